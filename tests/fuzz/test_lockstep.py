"""The lock-step judges each event: a divergence, a broken invariant and an error each have a verdict, a signature and a detail.

The two worlds are made unequal by an event that only one of them gets.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.schedules import ALL, SETTINGS, put, schedule_of
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import LinkLockstep, Lockstep, of_link, scratch_directory
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, Grant, RestartMaster, Tick
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

Make = Callable[[Profile], LinkLockstep]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made = []

    def lockstep_of(profile: Profile) -> LinkLockstep:
        made.append(of_link(2, SETTINGS, profile, tmp_path))
        return made[-1]

    yield lockstep_of
    for both in made:
        both.close()


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_step_tells_its_number_its_event_its_time_and_its_transitions(make: Make, profile: Profile) -> None:
    both = make(profile)
    steps = [both.apply(event) for event in (put(10), Tick(37), put(20), Tick(5))]
    assert [step.op_index for step in steps] == [0, 1, 2, 3]
    assert [step.event for step in steps] == [put(10), Tick(37), put(20), Tick(5)]
    assert [step.now_ms - START_MS for step in steps] == [0, 37, 37, 42]
    assert [[row.event for row in step.transitions] for step in steps] == [["put"], [], ["put"], []]
    assert {(step.verdict, step.signature, step.detail) for step in steps} == {("ok", "", "")}
    # Both stores hold the time of the lock-step.
    assert both.reference.observe().log[56:64] == START_MS.to_bytes(8, "big")
    assert both.implementation.observe().log[102 + 56 : 102 + 64] == (START_MS + 37).to_bytes(8, "big")


def test_a_divergence_names_the_first_field_and_shows_three(make: Make) -> None:
    both = make(HARDENED)
    both.apply(Connect(1, ALL, ALL))
    both.implementation.apply(put(10))
    both.implementation.apply(DeliverReports(1, 8))
    step = both.apply(Tick(1))
    assert (step.verdict, step.signature) == ("divergence", "master/Tick/max_offset")
    first, second, third = step.detail.split("; ")
    assert first == "master.max_offset: reference 0, implementation 102"
    assert re.fullmatch(
        r"master\.log: reference 0 bytes, from 0: end, implementation 102 bytes, from 0: 00 00 00 66 da a3 20 a7", second
    )
    assert third.startswith("link 0.to_slave: reference 0 bytes, from 0: end, implementation 126 bytes")


def test_a_divergence_of_a_link_and_of_a_slave_are_named_without_their_number(make: Make) -> None:
    both = make(CLASSIC)
    both.apply(Connect(1, ALL, ALL))
    both.implementation.apply(Grant(1, 7))
    step = both.apply(Tick(1))
    assert (step.signature, step.detail) == ("link/Tick/room", "link 0.room: reference 262144, implementation 7")
    both.apply(Grant(1, 9))
    both.reference.cluster = replace(
        both.reference.cluster,
        slaves=tuple(replace(node, current_reported_offset=5) for node in both.reference.cluster.slaves),
    )
    step = both.apply(put(0))
    assert step.signature == "slave/Put/current_reported_offset"
    assert step.detail == (
        "slave 0.current_reported_offset: reference 5, implementation 0; "
        "slave 1.current_reported_offset: reference 5, implementation 0"
    )


def replicated(both: LinkLockstep) -> None:
    for event in (
        put(10),
        Connect(0, ALL, ALL),
        *(Tick(5001), DeliverReports(0, ALL), DeliverFrames(0, ALL), DeliverReports(0, ALL)),
    ):
        assert both.apply(event).verdict == "ok"


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_broken_invariant_of_hardened_is_a_verdict_though_both_agree(make: Make, profile: Profile) -> None:
    both = make(profile)
    replicated(both)
    assert both.apply(RestartMaster(clean=False, lost=1)).verdict == "ok"  # the properties allow for a lost tail
    both.reference.cluster = replace(both.reference.cluster, has_lost=False)
    step = both.apply(Tick(1))
    if profile is CLASSIC:
        assert (step.verdict, step.signature, step.detail) == ("ok", "", "")
        return
    assert step.verdict == "invariant"
    broken = step.detail.split(", ")
    assert step.signature == f"cluster/Tick/{broken[0]}"
    assert broken == ["slave_holds_a_prefix", "slave_is_not_ahead"]


def test_a_divergence_comes_before_a_broken_invariant(make: Make) -> None:
    both = make(HARDENED)
    replicated(both)
    both.apply(RestartMaster(clean=False, lost=1))
    both.reference.cluster = replace(both.reference.cluster, has_lost=False)
    both.implementation.apply(put(10))
    assert both.apply(Tick(1)).verdict == "divergence"


class OopsError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "told"),
    [(OopsError("a text"), "a text"), (OopsError("one\ntwo"), "one"), (OopsError(), "OopsError")],
    ids=["with a text", "with two lines", "without"],
)
@pytest.mark.parametrize("place", ["apply", "observe"])
def test_an_exception_of_the_implementation_is_a_verdict(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str, place: str
) -> None:
    def raises(*_: object) -> None:
        raise error

    both = make(HARDENED)
    monkeypatch.setattr(both.implementation, place, raises)
    step = both.apply(put(10))
    assert step.verdict == "error"
    where = f"fuzz/test_lockstep.py:{raises.__code__.co_firstlineno + 1}"
    assert (step.signature, step.detail) == (f"OopsError/Put/{where}", f"{where}: {told}")
    assert [row.event for row in step.transitions] == ["put"]


def test_an_exception_of_the_model_is_a_verdict_and_one_of_a_user_is_not(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    both = make(HARDENED)
    step = both.apply(Connect(2, 1, 1))  # there are two slaves
    assert (step.verdict, step.transitions) == ("error", ())
    assert step.signature.startswith("IndexError/Connect/reference/cluster.py:")
    monkeypatch.setattr(both.implementation, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        both.apply(put(10))


def test_a_run_applies_all_events() -> None:
    outcome = lockstep.run(schedule_of(put(10), Tick(5), put(20), Connect(0, 1, 1), seed=3))
    assert [step.op_index for step in outcome.steps] == [0, 1, 2, 3]
    assert outcome.last is outcome.steps[-1]
    assert (outcome.verdict, outcome.n_messages, outcome.schedule.seed) == ("ok", 2, 3)


def test_a_run_ends_with_its_first_failure() -> None:
    """The implementation refuses a buffer that holds no whole number of reports (HA-M-10), when it accepts a connection."""
    settings = replace(SETTINGS, master_read_buffer_size=12)
    outcome = lockstep.run(schedule_of(put(10), Tick(5), put(0), Connect(0, 1, 1), put(20), put(30), settings=settings))
    assert [step.verdict for step in outcome.steps] == ["ok", "ok", "ok", "error"]
    assert (outcome.verdict, outcome.last.op_index, outcome.n_messages) == ("error", 3, 2)
    assert re.fullmatch(r"AssertionError/Connect/ha/master\.py:\d+", outcome.last.signature)
    assert re.fullmatch(r"ha/master\.py:\d+: AssertionError", outcome.last.detail)


def test_a_scratch_directory_is_gone_in_the_end() -> None:
    with pytest.raises(OopsError), scratch_directory() as directory:
        (directory / "file").touch()
        raise OopsError
    assert not directory.exists()
    assert directory.name.startswith("rocketmq-ha-")
    if Path("/dev/shm").is_dir():
        assert directory.parent == Path("/dev/shm")


def test_a_run_closes_both_worlds_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Path] = []
    close = Lockstep.close

    def recorded(both: LinkLockstep) -> None:
        closed.append(both.implementation._directory)
        assert closed[-1].is_dir()
        close(both)

    monkeypatch.setattr(Lockstep, "close", recorded)
    lockstep.run(schedule_of(put(10)))
    lockstep.run(schedule_of(put(10)))
    assert len(set(closed)) == 2
    assert not any(directory.exists() for directory in closed)
