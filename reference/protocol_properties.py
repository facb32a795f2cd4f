"""What must hold at the protocol level: of every state, and of every edge. One predicate a property.

Hardened keeps all of them but those of EXCEPTIONS. Classic keeps those of CLASSIC_KEEPS, and breaks what CATALOGUE says, by the
quirks of spec/violations.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.protocol import acked, connections, has_acked, max_offset, sent, start_of_file, transfer_from
from rocketmq_ha.reference.protocol_state import Connection, Scope, State
from rocketmq_ha.reference.replace import replace

# --- Of a state --------------------------------------------------------------------------------------------------------------


def slave_holds_a_prefix(state: State, _scope: Scope) -> bool:
    """Every unit of a slave's log is the master's at that offset, as far as the master has it."""
    return all(
        node.base == -1 or state.log[node.base :][: len(node.units)] == node.units[: max(0, len(state.log) - node.base)]
        for node in state.slave
    )


def slave_holds_the_history(state: State, _scope: Scope) -> bool:
    """A slave's log begins where the master's began, or at what the master has deleted since."""
    return all(node.base <= state.min for node in state.slave)


def slave_is_not_ahead(state: State, _scope: Scope) -> bool:
    """No slave has an offset that the master has not."""
    return all(max_offset(node) <= len(state.log) for node in state.slave)


def transfer_is_within_the_log(state: State, scope: Scope) -> bool:
    """The master never promises units that it does not have."""
    return all(transfer_from(conn, state, scope) <= len(state.log) for conn in connections(state.conn))


def transfer_can_go_on(state: State, scope: Scope) -> bool:
    """What a slave waits for has not been deleted."""
    return all(transfer_from(conn, state, scope) >= state.min for conn in connections(state.conn) if conn.req != -1)


def frame_is_of_the_log(state: State, _scope: Scope) -> bool:
    """What is in flight is what the master's log holds there, up to next_transfer_from_where: no gap, no overlap."""
    for conn in connections(state.conn):
        behind = conn.next
        for frame in reversed(conn.frames):
            if frame.offset + len(frame.units) != behind or frame.units != state.log[frame.offset : behind]:
                return False
            behind = frame.offset
    return True


def frame_stays_in_its_file(state: State, scope: Scope) -> bool:
    """No frame is across a file, or longer than a batch. HA-W-4, HA-W-5."""
    return all(
        len(frame.units) <= min(scope.batch, start_of_file(frame.offset, scope) + scope.file_size - frame.offset)
        for conn in connections(state.conn)
        for frame in conn.frames
    )


def ack_is_appended(state: State, _scope: Scope) -> bool:
    """What a slave is believed to hold on its live connection, it holds."""
    return all(
        conn.stale or conn.ack <= max_offset(node)
        for node, slots in zip(state.slave, state.conn, strict=True)
        for conn in slots
        if conn is not None
    )


def ack_is_sent_or_requested(state: State, _scope: Scope) -> bool:
    """No slave acknowledges what this connection has neither sent nor begun with. HA-M-11."""
    return all(conn.ack <= max(conn.req, sent(conn)) for conn in connections(state.conn))


def push2_is_within_the_log(state: State, _scope: Scope) -> bool:
    """No put that is still to come counts as acknowledged."""
    return state.push2 <= len(state.log)


def push2_was_sent(state: State, _scope: Scope) -> bool:
    """What is acknowledged was sent on a connection that is open: nobody acknowledges by asking for a start. HA-G-5."""
    return state.push2 == 0 or any(conn.start < state.push2 <= conn.next for conn in connections(state.conn))


def push2_is_of_an_open_connection(state: State, scope: Scope) -> bool:
    """push2 is what `replicas` slaves have acknowledged on connections that are open, and no more have. HA-G-5, HA-G-30."""
    most = [max((0, *(acked(conn, scope) for conn in slots if conn is not None))) for slots in state.conn]
    have, have_more = (sum(map(compare, most)) for compare in (state.push2.__le__, state.push2.__lt__))
    return (state.push2 == 0 or have >= scope.replicas) and have_more < scope.replicas


def push2_is_within_the_slaves(state: State, scope: Scope) -> bool:
    """As many slaves as are needed hold what push2 promises."""
    return state.push2 == 0 or sum(max_offset(node) >= state.push2 for node in state.slave) >= scope.replicas


def waiter_waits_for_something(state: State, _scope: Scope) -> bool:
    """A put waits for an offset within the log, beyond what is acknowledged. HA-G-1."""
    return all(state.push2 < o <= len(state.log) for o in state.waiting)


def ends_agree(state: State, _scope: Scope) -> bool:
    """A slave's slot is the one connection of its that is not stale; nothing is in flight to the slave on a stale one."""
    return all(
        [k for k, conn in enumerate(slots, 1) if conn is not None and not conn.stale] == ([node.slot] if node.slot else [])
        and all(not conn.stale or not conn.frames for conn in slots if conn is not None)
        for node, slots in zip(state.slave, state.conn, strict=True)
    )


def offsets_are_in_order(state: State, scope: Scope) -> bool:
    """min is the start of a file within the log, flushed within the logs, and what is in flight within its windows."""
    return (
        0 <= state.min <= len(state.log)
        and state.min % scope.file_size == 0
        and 0 <= state.flushed <= len(state.log)
        and all(0 <= node.flushed <= (max_offset(node) if scope.acks_flushed else 0) for node in state.slave)
        and all(
            len(conn.frames) <= scope.frame_window and len(conn.reports) <= scope.report_window
            for conn in connections(state.conn)
        )
    )


# --- Of an edge: (before, label, after, scope) -------------------------------------------------------------------------------


def survivors(before: State, after: State) -> list[tuple[Connection, Connection]]:
    """The connections that an edge changes and leaves open."""
    if before.conn is after.conn:
        return []
    return [
        (old, new)
        for slots, then in zip(before.conn, after.conn, strict=True)
        for old, new in zip(slots, then, strict=True)
        if old is not new and old is not None and new is not None
    ]


def request_is_set_once(before: State, _label: str, after: State, _scope: Scope) -> bool:
    """The first report fixes slave_request_offset. HA-M-3."""
    return all(old.req in (-1, new.req) for old, new in survivors(before, after))


def request_is_in_the_log(before: State, _label: str, after: State, _scope: Scope) -> bool:
    """A first report that is taken is 0 or within the log. HA-M-11, HA-M-12."""
    fixed = (new.req for old, new in survivors(before, after) if old.req != new.req)
    return all(req == 0 or after.min <= req <= len(after.log) for req in fixed)


def transfer_only_grows(before: State, label: str, after: State, _scope: Scope) -> bool:
    """next_transfer_from_where never goes back in a connection, and goes on from where it was. HA-M-7."""
    moved = ((old, new) for old, new in survivors(before, after) if old.next != new.next)
    return all(
        new.next >= old.next
        and (not new.frames or old.next in (-1, new.frames[-1].offset))
        and label.startswith(("Begin", "Transfer", "Heartbeat"))
        for old, new in moved
    )


def ack_only_grows(before: State, _label: str, after: State, _scope: Scope) -> bool:
    """slave_ack_offset never goes back in a connection. HA-M-11."""
    return all(new.ack >= old.ack for old, new in survivors(before, after))


def frame_lands_at_its_offset(before: State, _label: str, after: State, _scope: Scope) -> bool:
    """The units of a frame become the slave's units at the frame's offset: no gap, and no unit twice. HA-ST-6."""
    for s, (old, new) in enumerate(zip(before.slave, after.slave, strict=True)):
        if len(new.units) > len(old.units):
            conn = before.conn[s][old.slot - 1]
            if conn is None:
                return False
            frame = conn.frames[0]
            at = frame.offset - new.base
            if not 0 <= at <= len(old.units) or new.units[at : at + len(frame.units)] != frame.units:
                return False
    return True


def slave_extends_a_prefix(before: State, label: str, after: State, scope: Scope) -> bool:
    """Units are appended only to a log that is a prefix of the master's: no stream goes on over a difference."""
    if not label.startswith("DeliverFrames") or slave_holds_a_prefix(before, scope):
        return True
    return all(new.units == old.units for old, new in zip(before.slave, after.slave, strict=True))


def slave_only_appends(before: State, label: str, after: State, _scope: Scope) -> bool:
    """What a slave holds stays, but for what a crash takes."""
    return label.startswith("SlaveCrash") or all(
        new.units[: len(old.units)] == old.units and old.base in (-1, new.base)
        for old, new in zip(before.slave, after.slave, strict=True)
        if old is not new
    )


def put_ok_is_replicated(before: State, label: str, after: State, scope: Scope) -> bool:
    """When a put ends with PUT_OK, as many slaves as are needed hold its unit at its offset. HA-G-1, HA-G-30."""
    if not label.startswith("DeliverReports") or before.waiting == after.waiting:
        return True
    return all(
        sum(
            node.base != -1 and node.base < o <= max_offset(node) and node.units[o - 1 - node.base] == after.log[o - 1]
            for node in after.slave
        )
        >= scope.replicas
        for o in set(before.waiting) - set(after.waiting)
    )


def put_ok_is_acknowledged(before: State, label: str, after: State, scope: Scope) -> bool:
    """When a put ends with PUT_OK, so many logs reach behind it: HA-G-1 to the letter, and less than a user hopes for."""
    if not label.startswith("DeliverReports") or before.waiting == after.waiting:
        return True
    o = max(set(before.waiting) - set(after.waiting))
    return sum(max_offset(node) >= o for node in after.slave) >= scope.replicas


def waiter_ends_once(before: State, label: str, after: State, scope: Scope) -> bool:
    """A put begins to wait as it is put, unless all slaves lag, and ends by an ack, its deadline or with its master. HA-G-6."""
    if before.waiting == after.waiting:
        return True
    begun, ended = set(after.waiting) - set(before.waiting), set(before.waiting) - set(after.waiting)
    if label == "PutSync":
        return begun == {len(after.log)} and not ended and len(after.log) < after.push2 + scope.fall_behind_max
    if label.startswith("Timeout"):
        return not begun and len(ended) == 1
    return not begun and (label == "MasterCrash" or (label.startswith("DeliverReports") and max(ended) <= after.push2))


def waiter_has_a_replica(before: State, _label: str, after: State, scope: Scope) -> bool:
    """A put waits only where as many slaves as could answer have ever acknowledged anything. HA-G-3, HA-G-5, HA-G-32."""
    if len(after.waiting) <= len(before.waiting):
        return True
    return sum(any(conn is not None and has_acked(conn) for conn in slots) for slots in before.conn) >= scope.replicas


StateProperty = Callable[[State, Scope], bool]
EdgeProperty = Callable[[State, str, State, Scope], bool]

OF_STATES: Final[tuple[StateProperty, ...]] = (
    slave_holds_a_prefix,
    slave_holds_the_history,
    slave_is_not_ahead,
    transfer_is_within_the_log,
    transfer_can_go_on,
    frame_is_of_the_log,
    frame_stays_in_its_file,
    ack_is_appended,
    ack_is_sent_or_requested,
    push2_is_within_the_log,
    push2_was_sent,
    push2_is_of_an_open_connection,
    push2_is_within_the_slaves,
    waiter_waits_for_something,
    ends_agree,
    offsets_are_in_order,
)
OF_EDGES: Final[tuple[EdgeProperty, ...]] = (
    request_is_set_once,
    request_is_in_the_log,
    transfer_only_grows,
    ack_only_grows,
    frame_lands_at_its_offset,
    slave_extends_a_prefix,
    slave_only_appends,
    put_ok_is_replicated,
    put_ok_is_acknowledged,
    waiter_ends_once,
    waiter_has_a_replica,
)


# --- What each profile keeps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Excused:
    """A property that hardened breaks all the same, and why it may."""

    holds: StateProperty | EdgeProperty
    needs: tuple[str, ...]  # constants of a scope without which the property holds, but for another exception of it
    scope: Scope  # a least one that shows it; hardened
    reason: str
    unless: str = ""  # a constant with which the property holds all the same

    def excuses(self, scope: Scope) -> bool:
        """Whether a scope may show it."""
        return all(getattr(scope, name) for name in self.needs) and not (self.unless and getattr(scope, self.unless))


@dataclass(frozen=True, slots=True)
class Violation:
    """A quirk of classic that this level shows."""

    quirk: int
    breaks: StateProperty | EdgeProperty
    scope: Scope  # a least one that shows it; classic
    description: str


CLASSIC_KEEPS: Final[tuple[StateProperty | EdgeProperty, ...]] = (
    frame_is_of_the_log,
    frame_stays_in_its_file,
    ends_agree,
    offsets_are_in_order,
    request_is_set_once,
    transfer_only_grows,
    slave_only_appends,
    waiter_ends_once,
)

_ONE: Final = Scope(max_puts=1)
_ROLL: Final = Scope(max_puts=3)  # the third unit opens the second file

EXCEPTIONS: Final[tuple[Excused, ...]] = (
    Excused(
        slave_holds_the_history,
        (),
        replace(_ONE, max_puts=2, file_size=1),
        "quirk 8: an empty slave starts at the last file (HA-M-4); a compatible master cannot be asked for more",
    ),
    Excused(
        put_ok_is_replicated,
        ("sync_puts", "max_slave_crashes"),
        replace(_ROLL, file_size=1, max_slave_crashes=1, sync_puts=True),
        "quirk 8 again: a slave that lost its log starts behind the put if the file rolls first, and acknowledges what follows;"
        " or its report arrives after its end, as below",
        unless="acks_flushed",
    ),
    Excused(
        put_ok_is_acknowledged,
        ("sync_puts", "max_slave_crashes"),
        replace(_ONE, max_puts=2, max_slave_crashes=1, sync_puts=True),
        "an ack says appended, not flushed: a report may arrive when the slave that sent it has lost what it says",
        unless="acks_flushed",
    ),
    Excused(
        ack_is_appended,
        ("max_forgeries",),
        replace(_ONE, max_forgeries=1),
        "a forger may acknowledge what a slave has been sent (HA-M-11 refuses the rest); only the link can prove who reports",
    ),
    Excused(
        push2_is_within_the_slaves,
        ("max_forgeries",),
        replace(_ONE, max_forgeries=1),
        "the same",
    ),
    Excused(
        put_ok_is_acknowledged,
        ("sync_puts", "max_forgeries"),
        replace(_ONE, max_puts=2, max_forgeries=1, sync_puts=True),
        "the same, and a put ends by it",
    ),
    Excused(
        put_ok_is_replicated,
        ("sync_puts", "max_forgeries"),
        replace(_ONE, max_puts=2, max_forgeries=1, sync_puts=True),
        "the same",
    ),
    Excused(
        slave_is_not_ahead,
        ("max_master_crashes",),
        replace(_ONE, max_master_crashes=1),
        "quirk 9: the master sends what it has not flushed, and a crash takes it back",
    ),
    Excused(
        slave_holds_a_prefix,
        ("max_master_crashes",),
        replace(_ONE, max_puts=2, max_master_crashes=1),
        "quirk 9: the master grows again, and its log is another",
    ),
    Excused(
        push2_is_within_the_slaves,
        ("max_slave_crashes",),
        replace(_ONE, max_slave_crashes=1),
        "the master learns of a slave's loss when it closes the connection (HA-M-9)",
        unless="acks_flushed",
    ),
    Excused(
        transfer_can_go_on,
        ("max_deletes",),
        replace(_ROLL, max_deletes=1),
        "HA-M-12 looks at the first report alone: a file may go while a slave is still reading it",
    ),
)

CATALOGUE: Final[tuple[Violation, ...]] = (
    Violation(
        1,
        push2_is_within_the_log,
        Scope(max_forgeries=1),
        "one report that no slave sent, and every later put counts as acknowledged",
    ),
    Violation(
        2,
        push2_is_of_an_open_connection,
        replace(_ONE, max_cuts=1),
        "the slave is gone, and its acknowledgement counts for good",
    ),
    Violation(
        3,
        waiter_has_a_replica,
        replace(_ONE, sync_puts=True),
        "a socket that never reports counts as a slave: the put waits where it should be refused",
    ),
    Violation(
        7,
        request_is_in_the_log,
        replace(_ROLL, max_cuts=1, max_deletes=1),
        "the slave asks for what is deleted, and gets heartbeats for ever",
    ),
    Violation(
        8,
        slave_holds_the_history,
        replace(_ONE, max_puts=2, file_size=1),
        "an empty slave starts at the last file",
    ),
    Violation(
        9,
        slave_extends_a_prefix,
        replace(_ONE, max_puts=3, max_master_crashes=1),
        "the master loses its unflushed tail, grows again, and streams on over a divergent prefix",
    ),
    Violation(
        17,
        frame_lands_at_its_offset,
        replace(_ROLL, max_cuts=1),
        "a heartbeat gives an empty slave a file 0; later the first frame of another file is written into it",
    ),
)
