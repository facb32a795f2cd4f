"""The invariants of the other worlds: each is broken by a state made to break it, and by no state that comes close to it.

Those of the link are in tests/spec/test_invariants.py, those of remoting in test_remoting_world.py. Where a state has many
parts, it is one of a drawn run with one part changed; the test then counts the states in which the invariant asks for anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any, Final

import pytest

from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.routes_sides import ReferenceRoutes
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import name_server, reads, replicas_invariants, store_life
from rocketmq_ha.reference.group_transfer import PUT_OK, GroupCommitRequest
from rocketmq_ha.reference.group_transfer_service import new_group
from rocketmq_ha.reference.metadata_process import VERSIONED
from rocketmq_ha.reference.name_server import NameServer
from rocketmq_ha.reference.pull import PullRequest, Subscription
from rocketmq_ha.reference.pull_hold import Hold, Parked
from rocketmq_ha.reference.puts import Master, Puts, WaitingPut
from rocketmq_ha.reference.reads_state import GROUP, TOPIC, Reads, ReadsSetup, new_reads
from rocketmq_ha.reference.replicas_state import Replicas, acks, new_replicas
from rocketmq_ha.reference.route_table import Bounds, Broker, QueueData, RouteTable
from rocketmq_ha.reference.routes import Settings as RoutesSettings
from rocketmq_ha.reference.step import Done
from rocketmq_ha.reference.store import max_offset
from rocketmq_ha.reference.store_state import StoreLife
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

NOW: Final = START_MS

# --- Name servers ----------------------------------------------------------------------------------------------------

A, B = (Broker(group, 0, "", None, 1, 0, 1_000) for group in ("a", "b"))
QUEUE: Final = QueueData(8, 8, 6)
TABLE: Final = RouteTable(
    {"h:1": A, "h:2": B}, frozenset({("c", "a"), ("c", "b")}), {"a": "c", "b": "c"}, {("T", "a"): QUEUE, ("U", "b"): QUEUE}
)


def of_routes(table: RouteTable, at: int = 0) -> tuple[str, ...]:
    """What is broken if the name server `at` of two has this table, and the other one the sound one."""
    reference = ReferenceRoutes(RoutesSettings(name_server.Settings(Bounds(8, 8)), 2, ()), HARDENED, NOW)
    servers = tuple(NameServer(table=table if number == at else TABLE) for number in range(2))
    reference.routes = replace(reference.routes, servers=servers)
    return reference.broken()


def test_a_sound_table_of_routes_breaks_nothing() -> None:
    assert of_routes(TABLE) == of_routes(RouteTable()) == ()
    assert of_routes(replace(TABLE, brokers={**TABLE.brokers, "h:3": replace(A, broker_id=1)}, queues={})) == ()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("topics_have_brokers", {"queues": {**TABLE.queues, ("T", "x"): QUEUE}}),
        ("groups_have_clusters", {"cluster_of": {"a": "c"}}),
        ("groups_have_clusters", {"cluster_of": {"a": "c", "b": "c", "x": "c"}}),
        ("groups_have_clusters", {"clusters": frozenset({("c", "a")})}),
        ("groups_have_clusters", {"clusters": frozenset({("c", "a"), ("c", "b"), ("c", "x")})}),
        ("ids_are_taken_once", {"brokers": {**TABLE.brokers, "h:3": A}}),
    ],
)
def test_a_broken_table_of_routes_is_named(name: str, changes: dict[str, Any], at: int) -> None:
    assert of_routes(replace(TABLE, **changes), at) == (name,)


def test_each_broken_property_of_routes_is_named_once() -> None:
    assert of_routes(RouteTable(queues={("T", "a"): QUEUE, ("U", "a"): QUEUE}, cluster_of={"a": "c"})) == (
        "topics_have_brokers",
        "groups_have_clusters",
    )


# --- A slave's tables ------------------------------------------------------------------------------------------------


def test_a_slave_to_which_all_was_told_has_its_masters_tables() -> None:
    """HA-MD-28, in states of drawn runs: each table of the slave gets a name more, and where all was told, that is named."""
    found = dict.fromkeys(VERSIONED, 0)
    for _, reference in islice(lives("metadata"), 6_000):
        assert reference.broken() == ()
        state = reference.state
        process = state.slave.process
        told, asking = state.slave.told, state.slave.asking
        for name in VERSIONED:
            table = process.tables[name]
            other = replace(table, entries={**table.entries, "no such name": {}})
            tables = {**process.tables, name: other}
            reference.state = replace(state, slave=replace(state.slave, process=replace(process, tables=tables)))
            broken = reference.broken()
            reference.state = state
            assert broken in ((), (f"{name}_are_the_masters",))
            found[name] += bool(broken)
            if broken:
                assert name in told.at
                assert asking.asked is None, "no answer is on its way"
                assert not told.seen, "no table is told in part"
    assert all(n > 300 for n in found.values()), found


def lives(name: str) -> Iterator[tuple[Any, Any]]:
    """(schedule, model) after each event of the drawn schedules in which invariants hold: one model a schedule."""
    world = registry.WORLDS[name]
    for seed in count():
        schedule = world.draw(seed)
        if not schedule.profile.keeps_invariants:
            continue
        reference = world.open_reference(schedule)
        for event in schedule.events:
            reference.apply(event)
            yield schedule, reference


# --- A broker that holds pulls ---------------------------------------------------------------------------------------

HOLDS: Final = ReadsSetup(max_parked=3, max_parked_of_connection=2)
REQUEST: Final = PullRequest(GROUP, TOPIC, 0, 0, 1, 0, 0, 0, 0, "*", "TAG")


def holding(*parked: tuple[int, int], now_ms: int = NOW) -> Reads:
    """A broker with these pulls, each (poll id, channel), which it parked at NOW for a second."""
    polls = tuple(Parked(poll, channel, TOPIC, 0, 0, Subscription(), NOW, 1_000) for poll, channel in parked)
    requests = tuple((poll, REQUEST) for poll, _ in parked)
    return replace(new_reads(HOLDS, NOW), now_ms=now_ms, hold=Hold(polls, NOW + 5_000), requests=requests)


@pytest.mark.parametrize(
    ("state", "names"),
    [
        (holding(), ()),
        (holding((0, 0), (1, 0), (2, 1)), ()),
        (holding((0, 0), (1, 1), (2, 2), (3, 3)), ("hold_is_bounded",)),
        (holding((0, 0), (1, 1), (2, 1), (3, 1)), ("hold_is_bounded",)),
        (holding((0, 0), (1, 0), (2, 0)), ("hold_is_bounded",)),
        (holding((0, 0), now_ms=NOW + 5_999), ()),
        (holding((0, 0), now_ms=NOW + 6_000), ("nobody_is_held_too_long",)),
        (replace(holding((0, 0)), requests=()), ("every_parked_pull_has_its_request",)),
        (replace(holding((0, 0)), hold=Hold()), ("every_parked_pull_has_its_request",)),
        (replace(holding((0, 0)), requests=((1, REQUEST),)), ("every_parked_pull_has_its_request",)),
    ],
)
def test_a_hold_that_breaks_a_property_is_named(state: Reads, names: tuple[str, ...]) -> None:
    assert reads.broken(state, HOLDS) == names


# --- A master's puts -------------------------------------------------------------------------------------------------

MASTER: Final = Master(BrokerRole.SYNC_MASTER, True, Settings(1_024, replicas=2), HARDENED)
ASYNC_FLUSH: Final = replace(MASTER, flushes_synchronously=False)


def waits(*, deadline_ms: int = NOW + 10, disk: str | None = None, disk_deadline_ms: int = NOW + 10) -> Replicas:
    """A put of 100 bytes waits for slaves, and for the disk unless it says otherwise. deadline_ms: of the wait for slaves."""
    group = replace(new_group(HARDENED), requests=(GroupCommitRequest(0, 100, deadline_ms),))
    puts = Puts(group, (WaitingPut(0, 100, disk_deadline_ms, disk, None),))
    return replace(new_replicas(MASTER, NOW), puts=puts, ends=(100,))


def ended(status: str = PUT_OK, *, flushed: int = 99, waited: tuple[int, ...] = (0,)) -> Replicas:
    """A put of 100 bytes has ended in this step."""
    return replace(
        new_replicas(MASTER, NOW),
        done=(Done(0, 100, status),),
        waited=waited,
        told=1,
        ends=(100,),
        flushed_offset=flushed,
    )


@pytest.mark.parametrize(
    ("state", "setup", "names"),
    [
        (new_replicas(MASTER, NOW), MASTER, ()),
        (waits(), MASTER, ()),
        (replace(waits(), push2_slave_max_offset=99), ASYNC_FLUSH, ("acknowledged_by_enough",)),
        (
            replace(waits(), push2_slave_max_offset=100),
            MASTER,
            ("nobody_waits_for_what_is_acknowledged", "acknowledged_by_enough"),
        ),
        (waits(deadline_ms=NOW, disk_deadline_ms=NOW), MASTER, ()),
        (waits(deadline_ms=NOW - 1), MASTER, ("nobody_waits_too_long",)),
        (waits(disk_deadline_ms=NOW - 1), MASTER, ("nobody_waits_too_long",)),
        (waits(disk_deadline_ms=NOW - 1, disk=PUT_OK), MASTER, ()),
        (replace(waits(), told=1), MASTER, ("every_put_ends_once",)),
        (replace(waits(), ends=(100, 200)), MASTER, ("every_put_ends_once",)),
        (replace(waits(), ends=(100, 200, 300), lost=1, told=1), MASTER, ()),
        (ended(flushed=100), MASTER, ()),
        (ended(flushed=99), MASTER, ("put_ok_is_on_the_disk",)),
        (ended(flushed=99), ASYNC_FLUSH, ()),
        (ended("FLUSH_DISK_TIMEOUT", flushed=99), MASTER, ()),
        (ended(flushed=99, waited=()), MASTER, ()),
    ],
)
def test_puts_that_break_a_property_are_named(state: Replicas, setup: Master, names: tuple[str, ...]) -> None:
    assert replicas_invariants.broken(state, setup) == names


def test_push2_is_acknowledged_by_as_many_replicas_as_are_needed() -> None:
    """HA-G-30, HA-G-31, in states of drawn runs: one byte more than any replica has acknowledged, and it is named."""
    found = 0
    for schedule, reference in islice(lives("replicas"), 4_000):
        state: Replicas = reference.replicas
        if not state.push2_slave_max_offset or state.puts.group.requests:
            continue
        assert reference.broken() == ()
        acked = [ack for _, ack in acks(state, HARDENED)]
        more = replace(state, push2_slave_max_offset=max(acked) + 1)
        assert replicas_invariants.broken(more, reference.setup) == ("acknowledged_by_enough",)
        alone = replace(state, connections=state.connections[:1])
        is_enough = schedule.settings.replicas == 1 and acked[0] >= state.push2_slave_max_offset
        assert replicas_invariants.broken(alone, reference.setup) == (() if is_enough else ("acknowledged_by_enough",))
        found += 1
    assert found > 200, found


# --- A store ---------------------------------------------------------------------------------------------------------

SPOILT: Final[dict[str, Callable[[StoreLife], StoreLife]]] = {
    "flushed_bytes_lost": lambda life: replace(life, promised=max_offset(life.log) + 1),
    "times_descend": lambda life: replace(life, messages=(*life.messages, (life.messages[-1][0], life.messages[-1][1] - 1))),
    "checkpoint_vouches_for_lost_messages": lambda life: replace(
        life,
        promised=0,
        flushed_where=life.messages[-1][0] - 1,
        checkpoint=replace(life.checkpoint, physic_msg_timestamp=life.messages[-1][1] + 3_000),
    ),
}
NEAR: Final[dict[str, Callable[[StoreLife], StoreLife]]] = {
    "flushed_bytes_lost": lambda life: replace(life, promised=max_offset(life.log)),
    "times_descend": lambda life: replace(life, messages=(*life.messages, life.messages[-1])),
    "checkpoint_vouches_for_lost_messages": lambda life: replace(
        life,
        promised=0,
        flushed_where=life.messages[-1][0] - 1,
        checkpoint=replace(life.checkpoint, physic_msg_timestamp=life.messages[-1][1] + 2_999),
    ),
}


def test_a_store_that_breaks_a_property_is_named() -> None:
    """HA-ST-5, HA-ST-24, HA-ST-28, in states of drawn runs. A store that is closed or was damaged keeps none of them."""
    found = 0
    for _, reference in islice(lives("store"), 3_000):
        life: StoreLife = reference.life
        assert reference.broken() == ()
        if not life.is_open or life.is_tainted or len(life.messages) < 2 or life.messages[-1][1] == life.messages[-2][1]:
            continue
        found += 1
        for name, spoil in SPOILT.items():
            spoilt = spoil(life)
            assert store_life.broken(spoilt, HARDENED) == (name,)
            for none in (replace(spoilt, is_open=False), replace(spoilt, is_tainted=True)):
                assert store_life.broken(none, HARDENED) == ()
            assert store_life.broken(spoilt, CLASSIC) == ()
            assert store_life.broken(NEAR[name](life), HARDENED) == ()
    assert found > 200, found
