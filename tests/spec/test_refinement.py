"""Each byte-level step maps to zero or more protocol-level steps, except for named exceptions, each of which occurs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from formal import tiny
from rocketmq_ha.fuzz import schedule
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import cluster, events, message, refinement, refinement_map, wire
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.message import Record
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile, Settings

pytestmark = pytest.mark.xdist_group("refinement")  # it takes long: it begins first

SEEDS = 60  # the first 31 take every action
ALL = 1 << 18  # bytes
SIZE = len(message.encode(Record(b"T", b"")))  # of the smallest message that is put here; it ends in two zeros
CLUSTER = Settings(256, ha_transfer_batch_size=1000)


@dataclass(frozen=True)
class Walked:
    """One step of a run."""

    before: Cluster
    event: events.Event
    after: Cluster
    settings: Settings
    profile: Profile

    def refines(self, after: Cluster | None = None) -> str:
        return refinement.refines(self.before, self.event, after or self.after, self.settings, self.profile)

    def told_and_labels(self) -> tuple[str, tuple[str, ...]]:
        """The first difference, and the labels of the actions up to it."""
        return refinement.labels(self.before, self.event, self.after, self.settings, self.profile)

    def labels(self) -> tuple[str, ...]:
        return self.told_and_labels()[1]


def walk(operations: Sequence[events.Event], settings: Settings, profile: Profile, slaves: int = 1) -> Iterator[Walked]:
    before = cluster.new_cluster(slaves, settings, profile, START_MS)
    for event in operations:
        after, _ = cluster.step(before, event, settings, profile)
        yield Walked(before, event, after, settings, profile)
        before = after


def check_schedule(seed: int) -> set[str]:
    """Check that every step of a schedule refines. Returns: the names of the protocol-level actions."""
    drawn = schedule.draw(seed)
    names = set()
    for index, step in enumerate(walk(drawn.events, drawn.settings, drawn.profile, drawn.slaves)):
        told, labels = step.told_and_labels()
        assert not told, f"seed {seed}, event {index}: {told}"
        names |= {label.partition("(")[0] for label in labels}
    return names


def put(body: bytes = b"", wait: bool = False, pauses: bool = False) -> events.Put:
    return events.Put("T", body, "", 0, wait, pauses)


# --- Each step ---------------------------------------------------------------------------------------------------------------


def test_each_step_of_a_schedule_maps_to_protocol_level_steps() -> None:
    """Together the schedules take every action of the byte level, which flushes and deletes nothing."""
    names = set().union(*map(check_schedule, range(SEEDS)))
    assert names >= {
        *(
            "Put",
            "PutSync",
            "Timeout",
            "Connect",
            "Report",
            "ForgeReport",
            "DeliverReports",
            "Begin",
            "Transfer",
            "Heartbeat",
            "DeliverFrames",
        ),
        *("Cut", "CutUnseen", "Reap", "MasterCrash", "SlaveCrash"),
    }


@given(seed=st.integers(0, (1 << 32) - 1))
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_refines(seed: int) -> None:
    check_schedule(seed)


# --- Every step of small scopes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reads-classic", "acks-hardened"])
def test_every_step_of_a_tiny_scope_refines(name: str) -> None:
    """Bytes move one at a time; `make formal` checks the other scopes."""
    (chosen,) = [one for one in tiny.SCOPES if one.name == name]
    found = tiny.explore(chosen)
    assert found.differences == []
    covered, wanted, missing = tiny.coverage(found)
    assert (found.states, found.edges, covered, wanted) == tiny.RESULTS[name]
    assert not missing
    assert not +found.exceptions


def test_every_tiny_scope_has_its_results() -> None:
    assert [one.name for one in tiny.SCOPES] == list(tiny.RESULTS)


# --- The exceptions ----------------------------------------------------------------------------------------------------------

FIRST_REPORT = (events.Tick(5001), events.DeliverReports(0, ALL))  # the slave is silent until its interval has passed
SERVED = (events.Connect(0, ALL, ALL), *FIRST_REPORT, events.DeliverFrames(0, ALL))

SCENARIOS: dict[str, tuple[Profile, Settings, tuple[events.Event, ...]]] = {
    refinement.NEGATIVE_HEARTBEAT: (
        CLASSIC,
        CLUSTER,
        (
            events.Connect(0, ALL, ALL),
            events.ForgeReport(0, -5),
            events.DeliverReports(0, ALL),
            events.Tick(5001),
            events.DeliverFrames(0, ALL),
        ),
    ),
    refinement.REFUSE_UNSENT: (
        HARDENED,
        CLUSTER,
        (
            put(),
            events.Connect(0, 13, ALL),
            events.DeliverReports(0, ALL),
            events.ForgeReport(0, 1),
            events.DeliverReports(0, ALL),
        ),
    ),
    refinement.REFUSE_FRAME: (HARDENED, CLUSTER, (put(), *SERVED, events.ForgeHeader(0, -1), events.DeliverFrames(0, ALL))),
    refinement.REFUSE_FILE_SIZE: (  # the second put begins a new file at the master, but would lie in the slave's first file
        HARDENED,
        replace(CLUSTER, slave_file_size=1024),
        (put(bytes(80)), *SERVED, put(bytes(80)), events.DeliverFrames(0, ALL)),
    ),
    refinement.LOSE_REPORTS: (HARDENED, CLUSTER, (events.Connect(0, ALL, ALL), events.Cut(0, "slave"))),
    refinement.LOSE_FRAME: (CLASSIC, CLUSTER, (put(), *SERVED, events.ForgeHeader(0, -4), events.DeliverFrames(0, ALL), put())),
    refinement.FAIL_APPEND: (
        CLASSIC,
        CLUSTER,
        (put(), events.Connect(0, ALL, ALL), *FIRST_REPORT, events.DiskFull(0, True), events.DeliverFrames(0, ALL)),
    ),
    refinement.RESUME: (CLASSIC, CLUSTER, (*SERVED, put(wait=True, pauses=True), events.Resume(0))),
    refinement.LATE_OUTCOME: (
        CLASSIC,
        CLUSTER,
        (
            *SERVED,
            put(wait=True, pauses=True),
            put(wait=True, pauses=True),
            events.Resume(1),  # now the second put is served before the first
            events.Resume(0),
            events.DeliverFrames(0, 12 + SIZE),
            events.DeliverReports(0, ALL),
            events.DeliverFrames(0, ALL),
            events.DeliverReports(0, ALL),
        ),
    ),
    refinement.TORN_RECORD: (
        CLASSIC,
        Settings(256, ha_transfer_batch_size=SIZE - 1),
        (
            put(),
            events.Connect(0, ALL, ALL),
            *FIRST_REPORT,
            events.DeliverFrames(0, 12 + 12 + SIZE - 1),
            events.RestartSlave(0),
        ),
    ),
    refinement.TORN_BLANK: (
        HARDENED,
        Settings(256, ha_transfer_batch_size=40),
        # The third put does not fit; the rest of the file goes in two frames, and only one arrives.
        (put(), *SERVED, put(), events.DeliverFrames(0, ALL), put(), events.DeliverFrames(0, 12 + 40), events.RestartSlave(0)),
    ),
    refinement.GHOST_RECORD: (
        CLASSIC,
        Settings(256, ha_transfer_batch_size=50),
        (
            put(bytes(range(1, 53))),
            events.Connect(0, ALL, ALL),
            events.ForgeReport(
                0, 100
            ),  # the slave's log begins with the end of the record (quirk 18); the bytes after it are right
            events.DeliverReports(0, ALL),
            events.DeliverFrames(0, ALL),
            events.Cut(0, "both"),
            *SERVED,
            events.RestartSlave(0),  # recovery cuts everything off, but leaves the bytes in the file
            events.Connect(0, 12 + 12 + 50, ALL),
            *FIRST_REPORT,
            events.DeliverFrames(0, ALL),
            events.RestartSlave(0),
        ),
    ),
}


def test_every_exception_has_a_scenario() -> None:
    assert SCENARIOS.keys() == refinement.EXCEPTIONS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_exception_occurs(name: str) -> None:
    """The protocol level cannot take the last step, and would be able to with the named action."""
    profile, settings, operations = SCENARIOS[name]
    steps = list(walk(operations, settings, profile))
    assert [step.refines() for step in steps] == [""] * len(steps)
    names = [[label.partition("(")[0] for label in step.labels()] for step in steps]
    assert name in names[-1], names
    assert not any(name in found for found in names[:-1])


# --- The checker -------------------------------------------------------------------------------------------------------------


def last(*operations: events.Event, profile: Profile = HARDENED, settings: Settings = CLUSTER) -> Walked:
    step = list(walk(operations, settings, profile))[-1]
    assert step.refines() == ""
    return step


def with_link(after: Cluster, **changes: object) -> Cluster:
    return replace(after, links=(replace(after.links[0], **changes),))  # type: ignore[arg-type]


def with_conn(after: Cluster, **changes: object) -> Cluster:
    return with_link(after, conn=replace(after.links[0].conn, **changes))  # type: ignore[arg-type]


def test_a_put_that_is_not_appended_as_it_is_sent_is_told() -> None:
    """One byte in flight differs from the log."""
    step = last(put(b"ab"), events.Connect(0, ALL, ALL), events.DeliverReports(0, ALL))
    stream = step.after.links[0].to_slave
    told = step.refines(with_link(step.after, to_slave=stream[:-1] + b"!"))
    assert told.startswith("DeliverReports as DeliverReports(1,1) Transfer(1,1): connections of slave 1")


@pytest.mark.parametrize(
    ("field", "value"), [("slave_ack_offset", 1), ("slave_request_offset", 7), ("next_transfer_from_where", 0)]
)
def test_another_field_of_a_connection_is_told(field: str, value: int) -> None:
    step = last(put(), events.Connect(0, ALL, ALL), events.DeliverReports(0, ALL))
    assert step.refines(with_conn(step.after, **{field: value}))


def test_half_a_frame_without_its_rest_is_told() -> None:
    step = last(put(), events.Connect(0, 20, ALL), events.DeliverReports(0, ALL))
    told = step.refines(with_conn(step.after, select_mapped_buffer=b""))
    assert "a frame at 0 has 8 bytes of" in told
    assert "a report ends within it" in step.refines(with_link(step.after, to_master=b"\0\0\0"))


def test_a_report_that_is_lost_is_told() -> None:
    step = last(put(), events.Connect(0, ALL, ALL), events.DeliverReports(0, ALL), events.DeliverFrames(0, ALL))
    assert step.after.links[0].to_master
    assert "connections of slave 1" in step.refines(with_link(step.after, to_master=b""))


def test_a_connection_that_closes_without_a_cause_is_told() -> None:
    step = last(put(), events.Connect(0, ALL, ALL), events.DeliverReports(0, ALL), events.Tick(1))
    slaves = tuple(replace(node, connected=False, close_reason="housekeeping") for node in step.after.slaves)
    assert "slave 1" in step.refines(replace(step.after, links=(), slaves=slaves))


def test_a_frame_that_is_refused_without_a_cause_is_told() -> None:
    step = last(put(), events.Connect(0, ALL, ALL), events.DeliverReports(0, ALL), events.DeliverFrames(0, ALL))
    slaves = tuple(replace(node, connected=False, close_reason="offset", log=step.before.log) for node in step.before.slaves)
    assert "slave 1" in step.refines(replace(step.after, links=(), slaves=slaves))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_the_outcome_of_a_put_is_compared(profile: Profile) -> None:
    acknowledged = (
        put(),
        events.DeliverFrames(0, ALL),
        events.DeliverReports(0, ALL),
    )  # so that in hardened a slave counts (HA-G-5)
    step = last(
        *SERVED, *acknowledged, put(wait=True), events.DeliverFrames(0, ALL), events.DeliverReports(0, ALL), profile=profile
    )
    (done,) = step.after.done
    assert done.status == "PUT_OK"
    assert "puts that ended" in step.refines(replace(step.after, done=()))
    if profile is HARDENED:  # in classic a report may end the fifth wait, and the put with it
        assert "puts that ended" in step.refines(replace(step.after, done=(replace(done, status="FLUSH_SLAVE_TIMEOUT"),)))


def test_a_half_frame_is_one_frame_in_flight_wherever_it_is_cut() -> None:
    """With every number of bytes in the socket and every number of bytes delivered: one state of the protocol level."""
    begin = (put(b"abc"), events.Connect(0, 0, ALL), events.DeliverReports(0, ALL))
    whole = 12 + SIZE + 3
    views = set()
    for room in range(1, whole + 1):
        for arrived in (1, room // 2, room) if room < whole else (1, whole // 2):
            step = last(*begin, events.Grant(0, room), events.DeliverFrames(0, arrived))
            views.add(refinement_map.normal(refinement_map.abstract(step.after, CLUSTER)))
    assert len(views) == 1


def test_reports_of_a_stream_are_read_back() -> None:
    offsets = (0, -5, 7, (1 << 63) - 1)
    assert refinement_map.reports_of(b"".join(map(wire.pack_report, offsets))) == offsets
