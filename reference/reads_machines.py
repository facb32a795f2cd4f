"""The transitions of the pulls of a broker and of its hold, for spec/transitions.json: found by exploring small scopes.

A scope is a broker, the events that may happen, and a bound: a few messages, and one or two parked pulls. A broker answers
pulls alike in both profiles, so each scope is explored once.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from rocketmq_ha.reference import reads
from rocketmq_ha.reference.read_events import (
    CloseChannel,
    Dispatch,
    Event,
    Expire,
    MasterLink,
    Message,
    Pull,
    Restart,
    SetConsumers,
    SetGroup,
    SetTopic,
    Tick,
)
from rocketmq_ha.reference.reads_state import Reads, ReadsSetup, new_reads
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.profile import Profile

if TYPE_CHECKING:
    from rocketmq_ha.reference.transitions import Table

WAIT: Final = 6  # sysFlag: the subscription is in the request, and the pull may be held
SIZES: Final = ReadsSetup(queues=1, file_entries=2, log_file_size=32, memory=20, messages_in_memory=1, max_parked=1)
A, B = Dispatch((Message(0, 16, "a"),)), Dispatch((Message(0, 16, "b", skipped=1),))
AT_END: Final = (Pull(0, 0, "max", sys_flag=WAIT), Pull(0, 0, "max", sys_flag=WAIT, subscription="a"))
OUTSIDE: Final = (
    Pull(0, 0, "max", 1, sys_flag=WAIT),
    Pull(0, 0, "min", -1, sys_flag=WAIT),
    Pull(0, 0, "zero", 1, sys_flag=WAIT + 1),
)


Row = tuple[str, str, str, str, tuple[str, ...]]  # actor, state before, event, state after, clauses


def explore_scope(
    rows: set[Row], setup: ReadsSetup, events: tuple[Event, ...], messages: int, start: tuple[Event, ...] = ()
) -> int:
    """Visit every state of a scope, and add its transitions. Returns: the number of states. messages: at most so many."""

    def applied(now: Reads, event: Event) -> Reads:
        after, found = reads.step(now, event, setup)
        rows.update((row.actor, row.from_state, row.event, row.to_state, row.clauses) for row in found)
        return normal(after)

    first = normal(new_reads(setup, 0))
    for event in start:
        first = applied(first, event)
    seen, frontier = {repr(first)}, [first]  # their texts: the tables of a broker are mappings, which have no hash

    def successors(now: Reads) -> Iterator[Reads]:
        for event in events:
            if not isinstance(event, Dispatch) or len(now.sizes) < messages:
                yield applied(now, event)

    while frontier:
        for node in successors(frontier.pop()):
            if (text := repr(node)) not in seen:
                seen.add(text)
                frontier.append(node)
    return len(seen)


def normal(now: Reads) -> Reads:
    """The state without what no later step reads; the time is 0, and the parked pulls are numbered from 0."""
    ms, hold = now.now_ms, now.hold
    parked = tuple(
        replace(poll, poll_id=number, suspend_timestamp=poll.suspend_timestamp - ms) for number, poll in enumerate(hold.parked)
    )
    check_at = None if hold.next_check_at is None else hold.next_check_at - ms
    requests = dict(now.requests)
    return replace(
        now,
        now_ms=0,
        hold=replace(hold, parked=parked, next_check_at=check_at),
        requests=tuple((number, requests[poll.poll_id]) for number, poll in enumerate(hold.parked)),
        polls=len(parked),
        answers=(),
        committed=(),
    )


def _pulls(rows: set[Row]) -> int:
    """Every outcome of a pull, at a master and at a slave: at once, and when it has been parked."""
    states = 0
    asks = (Pull(0, 0, "min"), Pull(0, 0, "min", subscription="x", lite=True), Pull(0, 0, "min", sys_flag=1, subscription=None))
    events: tuple[Event, ...] = (A, B, *AT_END, *OUTSIDE, *asks, Expire(1), Expire(1, queues=False), Tick(5000))
    ends = (CloseChannel(0), Restart())
    for is_slave, corrects, reads_slaves in ((False, False, False), (True, False, True), (True, True, False)):
        setup = replace(SIZES, is_slave=is_slave, offset_check_in_slave=corrects, slave_read_enable=reads_slaves)
        links = (MasterLink(True), MasterLink(False)) if is_slave and not corrects else ()
        states += explore_scope(rows, setup, (*events, *ends, *links), 3)
    short = replace(SIZES, long_polling_enable=False, max_parked=2)
    # With short polling no message wakes a pull, so its message may be gone when its time is over.
    removals = (Expire(1), Expire(1, queues=False))
    return states + explore_scope(rows, short, (A, B, *AT_END, *removals, Tick(1000), *ends), 2)


def _tables(rows: set[Row]) -> int:
    """Every refusal, of a pull that arrives and of one that was parked when the table changed."""
    heard = SetConsumers()
    changes: tuple[Event, ...] = (
        *(SetTopic(False), SetTopic(True, 2), SetTopic(True, 6, 0), SetGroup(False), SetGroup(consume_enable=False)),
        *(SetConsumers(False), SetConsumers(has_subscribed=False), SetConsumers(sub_version=0)),
        SetConsumers(expression_type="SQL92"),
    )
    by_heartbeat = Pull(0, 0, "max", sys_flag=2, sub_version=1)
    refused = (Pull(0, 0, "max", subscription="||"), Pull(0, 0, "max", max_msg_nums=-1), Pull(0, -1, "max"))
    sql = Pull(0, 0, "max", expression_type="SQL92")
    events = (A, *AT_END, by_heartbeat, *refused, sql, Tick(5000), CloseChannel(0), Restart())
    states = 0
    for change in changes:
        states += explore_scope(rows, SIZES, (*events, change), 1, (heard,))
    broadcast = (SetGroup(consume_broadcast_enable=False), SetConsumers(is_broadcasting=True))
    states += explore_scope(rows, SIZES, (*events, *broadcast), 1, (heard,))
    # A pull that no message has woken so far; its messages expire, and then its group takes all tags.
    wider = (A, B, by_heartbeat, Expire(1, queues=False), SetConsumers())
    states += explore_scope(rows, SIZES, wider, 3, (SetConsumers(sub_string="a"),))
    unreadable = replace(SIZES, permission=2)
    return states + explore_scope(rows, unreadable, events, 1, (heard,))


def _hold(rows: set[Row]) -> int:
    """A hold of two pulls, with bounds of each kind; a round of messages may wake one of two, or both."""
    both = Dispatch((Message(0, 16, "a"), Message(0, 16, "b")))
    other = Pull(1, 0, "max", sys_flag=WAIT, subscription="b")
    many = Pull(0, 0, "max", sys_flag=WAIT, subscription="a||b")
    few: tuple[Event, ...] = (A, both, *AT_END, other, many, CloseChannel(0), CloseChannel(1), Tick(5000), Restart())
    states = 0
    for most, of_one, tags in ((2, 2, 9), (3, 1, 9), (3, 3, 1), (1, 1, 1)):
        setup = replace(SIZES, max_parked=most, max_parked_of_connection=of_one, max_parked_tags=tags)
        states += explore_scope(rows, setup, few, 2)
    # Pulls whose times are over at different checks, and one that is woken by time while another goes on.
    timed = (*few[2:], Pull(0, 0, "max", sys_flag=WAIT, suspend_timeout_millis=0), Tick(2500))
    return states + explore_scope(rows, replace(SIZES, max_parked=2), timed, 0)


@cache
def _explored(scopes: Callable[[set[Row]], int]) -> tuple[frozenset[Row], int]:
    rows: set[Row] = set()
    states = scopes(rows)
    return frozenset(rows), states


def _explore(scopes: Callable[[set[Row]], int], table: "Table", profile: Profile) -> int:
    rows, states = _explored(scopes)
    for actor, before, event, after, clauses in rows:
        table.add(actor, before, event, after, profile, clauses)
    return states


def explore_pulls(table: "Table", profile: Profile) -> int:
    return _explore(_pulls, table, profile) + _explore(_tables, table, profile)


def explore_hold(table: "Table", profile: Profile) -> int:
    return _explore(_hold, table, profile)
