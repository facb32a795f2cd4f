"""The premises of the properties of the protocol level (spec/tla/HAProperties.tla, HADurable.tla)."""

from typing import Final

from formal.premise import EdgePremise, Premise, StatePremise
from rocketmq_ha.reference.protocol import attached, connections, has_acked, max_offset, start_of_file
from rocketmq_ha.reference.protocol_durability import AckedState
from rocketmq_ha.reference.protocol_properties import survivors
from rocketmq_ha.reference.protocol_state import Connection, Scope, SlaveNode, State

# --- Possible in a scope -----------------------------------------------------------------------------------------------------


def can_roll(scope: Scope) -> bool:
    return scope.max_puts > scope.file_size


def can_refuse(scope: Scope) -> bool:
    """Return True if a scope can produce a bad report: by a forger, or by a master that lost units that it had sent."""
    return scope.checks and scope.max_forgeries + scope.max_master_crashes > 0


def can_lose_a_slave(scope: Scope) -> bool:
    return scope.forgets and scope.max_cuts + scope.max_slave_crashes > 0


# --- Premises on states -------------------------------------------------------------------------------------------------------


def live(state: State) -> list[tuple[SlaveNode, Connection]]:
    """The slaves that have a connection, each with its connection."""
    ends = ((node, attached(state, s)) for s, node in enumerate(state.slave, 1))
    return [(node, conn) for node, conn in ends if conn is not None]


def differs(node: SlaveNode, state: State) -> bool:
    """Return True if a slave holds a unit that differs from its master's at the same offset."""
    return node.base != -1 and any(mine != its for mine, its in zip(node.units, state.log[node.base :], strict=False))


def data_is_in_flight(state: State, _scope: Scope) -> bool:
    return any(frame.units for conn in connections(state.conn) for frame in conn.frames)


def frame_ends_with_its_file(state: State, scope: Scope) -> bool:
    """A frame ends at its file's end, although it has room for more units and the log has more."""
    for conn in connections(state.conn):
        for frame in conn.frames:
            end = frame.offset + len(frame.units)
            at_end = end == start_of_file(frame.offset, scope) + scope.file_size
            if frame.units and at_end and len(frame.units) < scope.batch and end < len(state.log):
                return True
    return False


def two_frames_are_in_flight(state: State, _scope: Scope) -> bool:
    return any(len(conn.frames) > 1 for conn in connections(state.conn))


def nothing_is_reported_yet(state: State, _scope: Scope) -> bool:
    """The log has units to send, and a connection has not reported yet."""
    return bool(state.log) and any(conn.req == -1 for conn in connections(state.conn))


def live_slave_has_acked(state: State, _scope: Scope) -> bool:
    return any(conn.ack > 0 for _, conn in live(state))


def something_is_acknowledged(state: State, _scope: Scope) -> bool:
    return state.push2 > 0


def start_is_asked_for(state: State, _scope: Scope) -> bool:
    """A connection's only report so far asks where the transfer starts, and acknowledges nothing."""
    return any(conn.ack > 0 and not has_acked(conn) for conn in connections(state.conn))


def something_is_sent(state: State, _scope: Scope) -> bool:
    return any(conn.next > 0 for conn in connections(state.conn))


def put_waits_beyond_an_ack(state: State, _scope: Scope) -> bool:
    return bool(state.waiting) and state.push2 > 0


def live_slave_is_ahead(state: State, _scope: Scope) -> bool:
    return any(max_offset(node) > len(state.log) for node, _ in live(state))


def live_slave_differs(state: State, _scope: Scope) -> bool:
    return any(differs(node, state) for node, _ in live(state))


def slave_differs(state: State, _scope: Scope) -> bool:
    return any(differs(node, state) for node in state.slave)


def slave_has_units(state: State, _scope: Scope) -> bool:
    return any(node.units for node in state.slave)


def slave_has_a_later_file(state: State, scope: Scope) -> bool:
    return len(state.log) > scope.file_size and any(node.base != -1 for node in state.slave)


def live_slave_reads_behind_a_deletion(state: State, _scope: Scope) -> bool:
    return state.min > 0 and any(conn.req != -1 for _, conn in live(state))


def slave_is_behind(state: State, _scope: Scope) -> bool:
    return any(max_offset(node) < len(state.log) for node in state.slave)


def ack_is_due(state: State, _scope: Scope) -> bool:
    return any(conn.ack < max_offset(node) for node, conn in live(state))


def put_waits(state: State, _scope: Scope) -> bool:
    return bool(state.waiting)


def put_waits_with_a_live_slave_and_no_fault_left(state: State, scope: Scope) -> bool:
    used = state.used
    spent = (used.cuts, used.mcrashes, used.scrashes, used.forgeries)
    most = (scope.max_cuts, scope.max_master_crashes, scope.max_slave_crashes, scope.max_forgeries)
    return bool(state.waiting) and spent == most and bool(live(state))


def stale_connection_stands(state: State, _scope: Scope) -> bool:
    return any(conn.stale for conn in connections(state.conn))


def put_ok_is_remembered(state: State, _scope: Scope) -> bool:
    return isinstance(state, AckedState) and bool(state.acked)


def log_is_beyond_the_slaves(state: State, _scope: Scope) -> bool:
    return all(max_offset(node) < len(state.log) for node in state.slave)


# --- Premises on edges --------------------------------------------------------------------------------------------------------


def transfer_moves(before: State, after: State, _scope: Scope) -> bool:
    return any(old.next not in (-1, new.next) for old, new in survivors(before, after))


def later_report_is_taken(before: State, after: State, _scope: Scope) -> bool:
    return any(old.req != -1 for old, _ in survivors(before, after))


def ack_moves(before: State, after: State, _scope: Scope) -> bool:
    return any(old.ack not in (-1, new.ack) for old, new in survivors(before, after))


def start_is_granted(before: State, after: State, _scope: Scope) -> bool:
    return any(old.req == -1 and new.req > 0 for old, new in survivors(before, after))


def connection_closes(before: State, after: State, _scope: Scope) -> bool:
    """The edge closes a connection: DeliverReports refuses a report, DeliverFrames refuses a frame."""
    return len(connections(after.conn)) < len(connections(before.conn))


def start_is_refused(before: State, after: State, scope: Scope) -> bool:
    closed = (
        old
        for slots, then in zip(before.conn, after.conn, strict=True)
        for old, new in zip(slots, then, strict=True)
        if old is not None and new is None
    )
    return connection_closes(before, after, scope) and any(conn.req == -1 for conn in closed)


def slave_that_differs_is_refused(before: State, after: State, scope: Scope) -> bool:
    return connection_closes(before, after, scope) and any(
        differs(old, before) for old, new in zip(before.slave, after.slave, strict=True) if old.slot and not new.slot
    )


def put_begins_to_wait(before: State, after: State, _scope: Scope) -> bool:
    return len(after.waiting) > len(before.waiting)


def put_ends(before: State, after: State, _scope: Scope) -> bool:
    """The edge ends a put: DeliverReports with PUT_OK, Timeout with FLUSH_SLAVE_TIMEOUT, MasterCrash without a status."""
    return len(after.waiting) < len(before.waiting)


def put_ends_beside_another_slave(before: State, after: State, scope: Scope) -> bool:
    return scope.slaves > 1 and put_ends(before, after, scope)


def put_finds_a_connection(before: State, _after: State, _scope: Scope) -> bool:
    return bool(connections(before.conn))


def put_finds_too_few(before: State, after: State, scope: Scope) -> bool:
    """A put does not wait, although a slave is connected."""
    return put_finds_a_connection(before, after, scope) and not put_begins_to_wait(before, after, scope)


def ack_is_forgotten(before: State, after: State, _scope: Scope) -> bool:
    return after.push2 < before.push2


def units_are_appended(before: State, after: State, _scope: Scope) -> bool:
    return any(len(new.units) > len(old.units) for old, new in zip(before.slave, after.slave, strict=True))


def units_are_appended_in_a_later_file(before: State, after: State, scope: Scope) -> bool:
    return any(
        len(new.units) > len(old.units) and max_offset(new) > scope.file_size
        for old, new in zip(before.slave, after.slave, strict=True)
    )


def slave_without_units_takes_a_heartbeat(before: State, after: State, _scope: Scope) -> bool:
    return any(not new.units and new.slot and before.conn[s] is not after.conn[s] for s, new in enumerate(after.slave))


# --- The premises of each property --------------------------------------------------------------------------------------------

_REPORT: Final = ("DeliverReports",)
_PUT_OK: Final = EdgePremise(put_ends, _REPORT)
_ACKNOWLEDGED: Final = StatePremise(something_is_acknowledged)
_REFUSED: Final = EdgePremise(connection_closes, _REPORT, "reports refused", can_refuse)

PREMISES: Final[dict[str, tuple[Premise, ...]]] = {
    "NoFrameAcrossFile": (StatePremise(frame_ends_with_its_file),),
    "FrameIsLog": (
        StatePremise(data_is_in_flight),
        StatePremise(two_frames_are_in_flight, "with two frames", lambda scope: scope.frame_window > 1),
    ),
    "SilentBeforeFirstReport": (StatePremise(nothing_is_reported_yet),),
    "NextMonotone": (EdgePremise(transfer_moves, ("Transfer", "Heartbeat")),),
    "RequestSetOnce": (EdgePremise(later_report_is_taken, _REPORT),),
    "WaitersJoinByPuts": (EdgePremise(put_begins_to_wait, ("PutSync",)),),
    "WaitersEndOnce": (_PUT_OK, EdgePremise(put_ends, ("Timeout",), "by timeout")),
    "WaitersAreBeyondPush2": (StatePremise(put_waits_beyond_an_ack),),
    "AckIsAppended": (StatePremise(live_slave_has_acked), _REFUSED),
    "Push2WithinLog": (_ACKNOWLEDGED, _REFUSED),
    "NextWithinLog": (StatePremise(something_is_sent), _REFUSED),
    "AckMonotone": (EdgePremise(ack_moves, _REPORT), _REFUSED),
    "PutOkIsReached": (_PUT_OK,),
    "PutOkIsHeld": (_PUT_OK,),
    "PutOkIsHeldByAll": (EdgePremise(put_ends_beside_another_slave, _REPORT),),
    "Push2WasSent": (
        _ACKNOWLEDGED,
        StatePremise(start_is_asked_for, "starts asked for", can_lose_a_slave),
    ),
    "Push2IsGreatestAck": (
        _ACKNOWLEDGED,
        EdgePremise(ack_is_forgotten, ("DeliverReports", "DeliverFrames", "Cut", "Reap"), "acks forgotten", can_lose_a_slave),
    ),
    "Push2IsReached": (_ACKNOWLEDGED,),
    "OnlyReplicasAreWaitedFor": (
        EdgePremise(put_finds_a_connection, ("PutSync",)),
        EdgePremise(put_finds_too_few, ("PutSync",), "with too few"),
    ),
    "RequestIsServable": (
        EdgePremise(start_is_granted, _REPORT),
        EdgePremise(start_is_refused, _REPORT, "starts refused", can_refuse),
    ),
    "AheadIsNotServed": (StatePremise(live_slave_is_ahead),),
    "DivergedIsNotServed": (
        StatePremise(live_slave_differs),
        EdgePremise(slave_that_differs_is_refused, ("DeliverFrames",), "refused", lambda scope: scope.overlaps),
    ),
    "DiffersOnlyInLostUnits": (StatePremise(slave_differs),),
    "SlaveHoldsPrefix": (StatePremise(slave_has_units),),
    "SlaveNotAhead": (StatePremise(slave_has_units),),
    "FrameLandsAtItsOffset": (
        EdgePremise(units_are_appended, ("DeliverFrames",)),
        EdgePremise(units_are_appended_in_a_later_file, ("DeliverFrames",), "after a roll", can_roll),
    ),
    "NoEmptyFile": (EdgePremise(slave_without_units_takes_a_heartbeat, ("DeliverFrames",)),),
    "HistoryNotSkipped": (StatePremise(slave_has_a_later_file),),
    "NotStalled": (StatePremise(live_slave_reads_behind_a_deletion),),
    "CatchesUp": (StatePremise(slave_is_behind),),
    "AcksArrive": (StatePremise(ack_is_due),),
    "WaitersEnd": (StatePremise(put_waits),),
    "StaleIsReaped": (StatePremise(stale_connection_stands),),
    "WaitersAreAnswered": (StatePremise(put_waits_with_a_live_slave_and_no_fault_left),),
    "AckedIsInBestLog": (StatePremise(put_ok_is_remembered),),
    "LostIsBeyondBestLog": (StatePremise(log_is_beyond_the_slaves),),
    "NothingIsLost": (StatePremise(log_is_beyond_the_slaves),),
}
