"""The table of possible transitions matches the model, and campaigns stay within it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.fuzz import lockstep, schedule
from rocketmq_ha.fuzz.lockstep import of_link
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import master, transitions, wire
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, Event, Put, Tick
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec import clauses
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile, Settings

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "spec" / "transitions.json"


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


# --- The table -------------------------------------------------------------------------------------------------------


def test_transitions_json_is_what_the_model_generates() -> None:
    assert TABLE.read_text(encoding="utf-8") == transitions.generate(), "make transitions, and look at the diff"


def test_the_program_prints_checks_and_writes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transitions.resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(transitions, "generate", lambda *_: "new\n")
    file = tmp_path / "transitions.json"
    told = f"{file}: differs from the model; make transitions writes it anew\n"
    seen = []
    for text, arguments in ((None, "--check"), ("old\n", "--check"), ("old\n", ""), ("old\n", "--write"), ("new\n", "--check")):
        if text is not None:
            file.write_text(text)
        status = transitions.main([arguments] if arguments else [])
        output = capsys.readouterr()
        seen.append((status, output.out, output.err, file.read_text() if file.exists() else None))
    assert seen == [
        (1, "", told, None),
        (1, "", told, "old\n"),
        (0, "new\n", "", "old\n"),
        (0, "", "", "new\n"),
        (0, "", "", "new\n"),
    ]


def test_texts_are_checked_without_the_transitions(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transitions.resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(transitions, "explored_in_processes", None)  # nothing is explored
    file = tmp_path / "transitions.json"
    rows = table["machines"]["store"]["transitions"]
    shorter = table | {"machines": table["machines"] | {"store": table["machines"]["store"] | {"transitions": rows[:-1]}}}
    other = table | {"clauses": table["clauses"] | {"HA-M-1": table["clauses"]["HA-M-1"] | {"sentence": "Another one."}}}
    told = f"{file}: differs from the model; make transitions writes it anew\n"
    for found, status, error in ((table, 0, ""), (shorter, 0, ""), (other, 1, told)):
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        assert (transitions.main(["--check-texts"]), capsys.readouterr().err) == (status, error)


def test_every_state_and_event_of_the_table_is_in_some_transition(table: dict[str, Any]) -> None:
    for actor, machine in table["machines"].items():
        rows = machine["transitions"]
        assert {state for before, _, after, _ in rows for state in (before, after)} == set(machine["states"]), actor
        assert {event for _, event, _, _ in rows} == set(machine["events"]), actor
        assert all(set(profiles) <= PROFILES.keys() for *_, profiles in rows), actor


def test_the_table_tells_the_profiles_apart(table: dict[str, Any]) -> None:
    """HA-S-10 and HA-S-11 as states: a phantom file is classic's own."""
    rows = table["machines"]["store"]["transitions"]
    assert ["no_files", "append_data", "phantom", ["classic"]] in rows
    assert all(profiles == ["classic"] for before, _, after, profiles in rows if "phantom" in (before, after))


def test_schedules_make_no_transition_that_is_not_in_the_table(table: dict[str, Any]) -> None:
    possible = {
        (actor, before, event, after, profile)
        for actor, machine in table["machines"].items()
        if "link" in machine["worlds"]
        for before, event, after, profiles in machine["transitions"]
        for profile in profiles
    }
    seen = set()
    for seed in range(300):
        drawn = schedule.draw(seed)
        world = ReferenceWorld(drawn.slaves, drawn.settings, drawn.profile, START_MS)
        for event in drawn.events:
            for row in world.apply(event):
                seen.add((row.actor, row.from_state, row.event, row.to_state, drawn.profile.name))
                assert set(row.clauses) <= table["clauses"].keys(), (seed, row)
    assert seen <= possible, sorted(seen - possible)
    assert len(seen) > 0.8 * len(possible)  # the scope of the table is not much larger than needed


# --- Clauses ---------------------------------------------------------------------------------------------------------


def test_the_table_quotes_the_clauses_as_they_stand(table: dict[str, Any]) -> None:
    sentences = clauses.load()
    for kind in ("clauses", "elsewhere"):
        assert {clause: found["sentence"] for clause, found in table[kind].items()}.items() <= sentences.items()
    assert table["clauses"].keys() | table["elsewhere"].keys() == sentences.keys()
    assert not table["clauses"].keys() & table["elsewhere"].keys()
    assert all(found["worlds"] for found in table["clauses"].values())
    assert all(bool(found["tests"]) != bool(found["reason"]) for found in table["elsewhere"].values())


# --- Cases that schedules reach by chance alone, or never: a log whose first files were deleted, a clock that steps back ------


@pytest.mark.parametrize(
    ("report", "reason"), [(0, ""), (512, ""), (700, ""), (712, ""), (1, "HA-M-12"), (511, "HA-M-12"), (713, "HA-M-11")]
)
def test_hardened_refuses_a_first_report_below_the_log(report: int, reason: str) -> None:
    """HA-M-12 "greater than 0 and less than the log's min offset" (quirk 7), on a log from 512 to 712.

    0 is no offset: it asks for the last file (HA-M-4). Classic takes every report.
    """
    log = Log(256, 512, bytes(200))
    for profile in (HARDENED, CLASSIC):
        conn = master.on_accept(0).state
        step = master.on_reports(conn, wire.pack_report(report), log, 0, Settings(256), profile)
        expected = reason if profile is HARDENED else ""
        assert step.state.close_reason == ("report" if expected else "")
        assert set(step.clauses) & {"HA-M-11", "HA-M-12"} == ({expected} if expected else set())


@pytest.mark.parametrize("report", [0, 1, 511, 512, 700, 712, 713, -1])
@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_the_implementation_refuses_what_the_model_refuses(report: int, profile: Profile) -> None:
    """HA-M-11, HA-M-12, at each offset near the ends of a log whose first files were deleted."""
    from rocketmq_ha.impl.errors import PeerViolation
    from rocketmq_ha.impl.ha.master import MasterConnection

    class DeletedHistory:
        min_offset, max_offset = 512, 712

        def data_at(self, offset: int, limit: int) -> memoryview | None:
            del offset, limit
            return None

    settings = Settings(256)
    step = master.on_reports(
        master.on_accept(0).state, wire.pack_report(report), Log(256, 512, bytes(200)), 0, settings, profile
    )
    conn = MasterConnection("peer", DeletedHistory(), 0, settings, profile)
    conn.recv_buffer()[:8] = wire.pack_report(report)
    try:
        conn.on_reports(8, 0)
        refused = ""
    except PeerViolation as violation:
        refused = violation.clause
    assert bool(refused) == bool(step.state.close_reason)
    assert not refused or refused in step.clauses
    if not refused:
        assert (conn.slave_request_offset, conn.slave_ack_offset) == (report, report)


@pytest.mark.parametrize("back_ms", [1, 5_000, 3_600_000])
@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_clock_that_steps_back_delays_what_is_due_and_nothing_else(profile: Profile, back_ms: int) -> None:
    """HA-T-2 "a clock that steps back delays what is due, and nothing else" (quirk 28), in both worlds.

    No heartbeat, report or timeout comes for the time of the step; after it all are as before.
    """
    settings = Settings(1000)
    with lockstep.scratch_directory() as directory:
        worlds = of_link(1, settings, profile, directory)
        try:

            def happens(*events: Event) -> set[str]:
                """The machines that the last event moved."""
                outcomes = [worlds.apply(event) for event in events]
                assert all(outcome.verdict == VERDICT_OK for outcome in outcomes), outcomes
                return {row.actor for row in outcomes[-1].transitions}

            happens(
                Connect(0, 1 << 18, 1 << 18), Tick(5001), DeliverReports(0, 99), DeliverFrames(0, 999), DeliverReports(0, 99)
            )
            happens(
                Put("T", b"first", "", 0, False), DeliverFrames(0, 999), DeliverReports(0, 99)
            )  # so that the slave counts (HA-G-5)
            happens(Put("T", b"waits", "", 0, True))
            assert happens(Tick(-back_ms)) == set()
            assert happens(Tick(back_ms)) == set()
            assert happens(Tick(5000)) == (set() if profile is HARDENED else {"group_transfer"})  # one of five waits
            assert happens(Tick(1)) == {"slave_client", "master_connection", "group_transfer"}
            assert happens(Tick(-back_ms)) == set()
            assert happens(DeliverFrames(0, 999)) == {"slave_client", "store"}  # bytes are not delayed
        finally:
            worlds.close()
