"""The transitions of a master with its puts and its replicas, for spec/transitions.json: found by exploring small scopes.

A scope is a master, the events that may happen, and a bound: two messages that wait, or two connections. All of it runs
`replicas.step`, so the rows are those of a campaign.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rocketmq_ha.reference import replicas
from rocketmq_ha.reference.five_waits import FiveWaits
from rocketmq_ha.reference.group_transfer import GroupCommitRequest
from rocketmq_ha.reference.puts import Master, WaitingPut
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.replica_events import Accept, Close, Event, Flush, Put, Report, Restart, Sync, Tick, Transfer
from rocketmq_ha.reference.replicas_state import Connection, Replicas, new_replicas
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS
from rocketmq_ha.spec.profile import Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

if TYPE_CHECKING:
    from rocketmq_ha.reference.transitions import Table

SYNC, ASYNC = BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER
MESSAGE: Final = 100  # bytes of a record of the scopes
SETTINGS: Final = Settings(
    mapped_file_size=4096,
    ha_housekeeping_interval_ms=20_000,
    ha_slave_fallbehind_max=2 * MESSAGE,
    sync_flush_timeout_ms=700,
    master_read_buffer_size=8,
)
PUT: Final = Put(8)
NO_WAIT: Final = Put(8, "WAIT\x01false")  # 11 bytes longer
SILENCE: Final = Tick(20_001)
HEARTBEAT: Final = Tick(5_001)  # one is due
ENDS: Final = (Restart(True), Restart(True, False), Restart(False))


def explore_scope(
    table: "Table", setup: Master, start: Iterable[Event], events: tuple[Event, ...], messages: int, links: int
) -> int:
    """Visit every state of a scope, and add its transitions. Returns: the number of states.

    messages: in the log, at most; links: open connections, at most. A restart ends a path.
    """

    def applied(now: Replicas, event: Event) -> Replicas:
        after, rows = replicas.step(now, event, setup)
        for row in rows:
            table.add(row.actor, row.from_state, row.event, row.to_state, setup.profile, row.clauses)
        return normal(after)

    first = normal(new_replicas(setup, 0))
    for event in start:
        first = applied(first, event)
    seen, frontier = {first}, [first]

    def successors(now: Replicas) -> Iterator[Replicas]:
        for event in events:
            if isinstance(event, Put) and len(now.ends) >= messages:
                continue
            if isinstance(event, Accept) and len(now.connections) >= links:
                continue
            if isinstance(event, (Transfer, Report, Close)) and event.connection >= len(now.connections):
                continue
            after = applied(now, event)
            if not isinstance(event, Restart):
                yield after

    while frontier:
        for node in successors(frontier.pop()):
            if node not in seen:
                seen.add(node)
                frontier.append(node)
    return len(seen)


def normal(now: Replicas) -> Replicas:
    """The state without what no later step reads; the time is 0, and all that has passed long ago counts as the same."""
    ms = now.now_ms

    def request(one: GroupCommitRequest) -> GroupCommitRequest:
        return replace(one, deadline_ms=max(-1, one.deadline_ms - ms))

    def put(one: WaitingPut) -> WaitingPut:
        return replace(one, deadline_ms=max(-1, one.deadline_ms - ms) if one.disk is None else -1)

    def connection(number: int, one: Connection) -> Connection:
        begun = one.conn.start_offset != -1
        conn = replace(
            one.conn,
            slave_request_offset=0 if begun and one.conn.slave_request_offset >= 0 else one.conn.slave_request_offset,
            last_read_timestamp=0,
            last_write_timestamp=-HEARTBEAT.ms if one.conn.last_write_timestamp - ms <= -HEARTBEAT.ms else 0,
            byte_buffer_read=bytes(len(one.conn.byte_buffer_read)),
            byte_buffer_header=b"",
            this_offset=-1,
        )
        return replace(one, number=number, conn=conn)

    group = now.puts.group
    if isinstance(group, FiveWaits):
        service = group.service
        since_ms = max(-GROUP_TRANSFER_WAIT_MS, service.waiting_since_ms - ms) if service.requests_read else 0
        write, read = (tuple(map(request, requests)) for requests in (service.requests_write, service.requests_read))
        service = replace(service, requests_write=write, requests_read=read, waiting_since_ms=since_ms)
        group = replace(group, service=service)
    group = replace(group, requests=tuple(map(request, group.requests)))
    return replace(
        now,
        now_ms=0,
        puts=replace(now.puts, group=group, waiting=tuple(map(put, now.puts.waiting))),
        connections=tuple(connection(number, one) for number, one in enumerate(now.connections)),
        next_number=len(now.connections),
        done=(),
        waited=(),
        forgotten=(),
        closed=(),
        told=0,
        lost=0,
    )


def explore_puts(table: "Table", profile: Profile) -> int:
    """Two puts that wait, with and without a slave that has acknowledged the message before them."""
    slave = (Accept(0), Report(0, 9), Transfer(0), NO_WAIT, Transfer(0), Report(0, 0))
    events: tuple[Event, ...] = (PUT, Transfer(0), Report(0, 0), Report(0, 1), Close(0), Flush(), Flush(2), Sync(), *ENDS)
    # A tick ends one of classic's waits, a producer's wait, or both: see explore_five_waits.
    events += (Tick(600), Tick(1000)) if not profile.serves_by_deadline else (Tick(400), Tick(701))
    states = 0
    for role, flushes in ((SYNC, True), (SYNC, False), (ASYNC, True), (ASYNC, False)):
        setup = Master(role, flushes, SETTINGS, profile)
        states += explore_scope(table, setup, slave, (*events, NO_WAIT), 3, 1)
        states += explore_scope(table, setup, (), events, 2, 0)
    if not profile.serves_by_deadline:  # five reports that are too small, of a put that waits or has waited for the disk
        few: tuple[Event, ...] = (
            PUT,
            Transfer(0),
            Flush(),
            Flush(2),
            Tick(1000),
            *(Report(0, 0, more) for more in range(-5, 1)),
        )
        for flushes in (True, False):
            states += explore_scope(table, Master(SYNC, flushes, SETTINGS, profile), slave, few, 2, 1)
    return states


def explore_connections(table: "Table", profile: Profile) -> int:
    """One connection, and all reports."""
    forged = [Report(0, message, more, honest=False) for message, more in ((0, -1 << 20), (0, 1), (1, 0), (9, -1))]
    events: tuple[Event, ...] = (
        PUT,
        Accept(0),
        Transfer(0),
        Close(0),
        HEARTBEAT,
        SILENCE,
        Report(0, 0),
        Report(0, 9),
        *forged,
        *ENDS,
    )
    settings = replace(SETTINGS, mapped_file_size=2 * MESSAGE)  # the second message opens the second file
    return explore_scope(table, Master(ASYNC, False, settings, profile), (), events, 2, 1)


def explore_replicas(table: "Table", profile: Profile) -> int:
    """Up to two connections, of one replica or of two; one replica or both are needed. Classic counts connections alone."""
    links, needs = (2, (1, 2)) if profile.counts_replicas else (1, (1,))
    events: tuple[Event, ...] = (PUT, Accept(0), Accept(1), SILENCE, Restart(True), Restart(False))
    for at in range(links):
        events += (Transfer(at), Report(at, 0), Close(at))
        events += (Report(at, 0, 1, honest=False),) if profile.checks_reports else ()
    states = 0
    for needed in needs:
        settings = replace(SETTINGS, replicas=needed, ha_slave_fallbehind_max=MESSAGE)
        states += explore_scope(table, Master(ASYNC, False, settings, profile), (), events, 2, links)
    # Of three messages the second is acknowledged, and puts are still too far behind.
    behind = replace(SETTINGS, ha_slave_fallbehind_max=MESSAGE)
    events = (PUT, Accept(0), Transfer(0), Report(0, 0), Report(0, 1))
    states += explore_scope(table, Master(ASYNC, False, behind, profile), (), events, 3, 1)
    return states
