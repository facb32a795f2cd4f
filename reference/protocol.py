"""The protocol level: the same protocol in units, as spec/protocol.md defines it and spec/tla/ states it in TLA+.

A unit is one message's worth of log, a frame is a run of units, a report is one offset. Names come from that page; if the byte
level has another name, the field says so. Each action has one function, in the order of the page: it returns the state after,
or None if the action is not enabled. `edges` labels the outcomes; an unchanged state is no edge.

The parts of a state are in protocol_state.py; the properties of states and edges are in protocol_properties.py.
"""

from collections.abc import Callable, Iterator
from functools import partial

from rocketmq_ha.reference.protocol_state import (
    FORGED_REPORT,
    SLOTS,
    Connection,
    Frame,
    Scope,
    SlaveNode,
    State,
    Units,
    initial,
)
from rocketmq_ha.reference.replace import replace

# --- Shared by the actions ----------------------------------------------------------------------------------------------------


def max_offset(node: SlaveNode) -> int:
    """A slave's max offset: 0 where there are no files."""
    return 0 if node.base == -1 else node.base + len(node.units)


def start_of_file(offset: int, scope: Scope) -> int:
    return offset - offset % scope.file_size


def counted(state: State, scope: Scope) -> int:
    """The slaves that a put may wait for: those with at least one connection that counts. HA-G-4, HA-G-5, HA-G-31."""
    return sum(any(not scope.forgets or has_acked(one) for one in slots if one is not None) for slots in state.conn)


def connections(conn: tuple[tuple[Connection | None, ...], ...]) -> list[Connection]:
    return [one for slots in conn for one in slots if one is not None]


def sent(conn: Connection) -> int:
    """The sent offset: `next`, or `req` while that is -1; once it is set, it is never less than `req`."""
    return max(conn.req, conn.next)


def has_acked(conn: Connection) -> bool:
    """Return True if it has reported more than the start of its transfer, so bytes that this master sent. HA-G-5."""
    return conn.start != -1 and conn.ack > conn.start


def acked(conn: Connection, scope: Scope) -> int:
    """The acknowledged offset of a connection: in classic always its last report. HA-G-4, HA-G-5."""
    return 0 if scope.forgets and not has_acked(conn) else conn.ack


def acknowledged(conn: tuple[tuple[Connection | None, ...], ...], scope: Scope) -> int:
    """The offset that enough slaves have acknowledged, or 0. HA-G-5, HA-G-30, HA-G-31."""
    greatest = sorted((max((0, *(acked(one, scope) for one in slots if one is not None))) for slots in conn), reverse=True)
    return greatest[scope.replicas - 1] if scope.replicas <= len(greatest) else 0


def started(conn: Connection, n: int) -> Connection:
    """The write side runs for the first time, and fixes the start of the transfer. HA-M-27, HA-G-5."""
    return replace(conn, start=n) if conn.next == -1 else conn


def transfer_from(conn: Connection, state: State, scope: Scope) -> int:
    """The offset of the next frame. HA-M-4, HA-M-5."""
    if conn.next != -1:
        return conn.next
    return start_of_file(len(state.log), scope) if conn.req == 0 else conn.req


def with_conn(state: State, s: int, k: int, conn: Connection | None) -> State:
    """The state with another connection in slot `k` of slave `s`."""
    slots = state.conn[s - 1]
    slots = (*slots[: k - 1], conn, *slots[k:])
    return replace(state, conn=(*state.conn[: s - 1], slots, *state.conn[s:]))


def with_slave(state: State, s: int, node: SlaveNode) -> State:
    return replace(state, slave=(*state.slave[: s - 1], node, *state.slave[s:]))


def close(state: State, scope: Scope, s: int, k: int) -> State:
    """Close a connection at the master; its slave notices unless the connection is stale. HA-M-13, HA-G-5."""
    conn = state.conn[s - 1][k - 1]
    assert conn is not None
    state = with_conn(state, s, k, None)
    if scope.forgets:
        state = replace(state, push2=acknowledged(state.conn, scope))
    return state if conn.stale else with_slave(state, s, replace(state.slave[s - 1], slot=0))


def lose(state: State, s: int) -> State:
    """Close the slave's end of its connection. The master does not notice; reports in flight still arrive. HA-S-13."""
    k = state.slave[s - 1].slot
    conn = state.conn[s - 1][k - 1]
    assert conn is not None
    state = with_conn(state, s, k, replace(conn, frames=(), stale=True))
    return with_slave(state, s, replace(state.slave[s - 1], slot=0))


def acknowledge(state: State, r: int) -> State:
    """Advance push2, and end the puts that it reaches with PUT_OK. HA-G-1, HA-G-4."""
    if r <= state.push2:
        return state
    return replace(state, push2=r, waiting=tuple(o for o in state.waiting if o > r))


def reporting(conn: Connection, r: int, scope: Scope) -> Connection:
    """Add a report in flight; if the window is full, it replaces the last one. HA-M-2."""
    return replace(conn, reports=(*conn.reports[: scope.report_window - 1], r))


def flushing(node: SlaveNode, r: int, scope: Scope) -> SlaveNode:
    """A slave before it reports `r`: it has flushed everything up to `r`. HA-S-60."""
    return replace(node, flushed=r) if scope.acks_flushed and r > node.flushed else node


def attached(state: State, s: int) -> Connection | None:
    """The connection that slave `s` holds, or None."""
    k = state.slave[s - 1].slot
    return state.conn[s - 1][k - 1] if k else None


# --- Actions: the producer and the disk of the master ------------------------------------------------------------------------


def put(state: State, scope: Scope) -> State | None:
    """A message is appended to the master's log; its put does not wait. HA-ST-2."""
    # GUARD
    if state.used.puts >= scope.max_puts:
        return None
    # STATE
    return append(state, bytes((state.epoch,)))


def append(state: State, units: Units) -> State:
    """The units of one message reach the log. In the refinement they are the bytes of a record, and of a padding before it."""
    return replace(state, log=state.log + units, used=replace(state.used, puts=state.used.puts + 1))


def put_sync(state: State, scope: Scope) -> State | None:
    """A message is appended; its put waits for a slave, or ends at once: SLAVE_NOT_AVAILABLE, or PUT_OK (quirk 1). HA-G-3."""
    # GUARD
    if not scope.sync_puts:
        return None
    after = put(state, scope)
    # STATE
    return after and join(state, after, scope)


def join(before: State, after: State, scope: Scope) -> State:
    """The new put waits if enough slaves count, none has reported its end yet, and not all lag too far.

    Spec: HA-G-1, HA-G-3, HA-G-32.
    """
    lags = len(after.log) - after.push2
    if counted(before, scope) < scope.replicas or not 0 < lags < scope.fall_behind_max:
        return after
    return replace(after, waiting=(*after.waiting, len(after.log)))


def timeout(state: State, o: int) -> State | None:
    """A put that has waited too long ends with FLUSH_SLAVE_TIMEOUT. HA-G-2."""
    # GUARD
    if o not in state.waiting:
        return None
    # STATE
    return replace(state, waiting=tuple(other for other in state.waiting if other != o))


def flush(state: State, scope: Scope) -> State | None:
    """Flush the log. Enabled only if a crash can still come; otherwise it makes no difference."""
    # GUARD
    if state.used.mcrashes >= scope.max_master_crashes:
        return None
    # STATE
    return replace(state, flushed=len(state.log))


def delete(state: State, scope: Scope) -> State | None:
    """Delete the oldest file, unless it is the last. HA-ST-1."""
    # GUARD
    mmax, after = len(state.log), state.min + scope.file_size
    if state.used.deletes >= scope.max_deletes or after > start_of_file(mmax, scope) or after >= mmax:
        return None
    # STATE
    return replace(state, min=after, used=replace(state.used, deletes=state.used.deletes + 1))


# --- Actions: a connection and its reports -----------------------------------------------------------------------------------


def first_report(node: SlaveNode, scope: Scope) -> int:
    """The first report of a slave: its max offset; in hardened the start of its last unit. HA-S-1, HA-S-61."""
    return max_offset(node) - (1 if scope.overlaps and node.units else 0)


def connect(state: State, scope: Scope, s: int, first: int | None = None) -> State | None:
    """A slave without a connection opens one, in the lowest free slot. HA-M-1, HA-S-1, HA-S-3, HA-S-61.

    first: another first report within the slave's log, for the refinement, where a record is many units.
    """
    # GUARD
    node = state.slave[s - 1]
    free = [k for k, conn in enumerate(state.conn[s - 1], 1) if conn is None]
    if node.slot or not free:
        return None
    # STATE
    reported = first_report(node, scope) if first is None else first
    if not max(node.base, 0) <= reported <= max_offset(node):
        return None
    node = replace(node, slot=free[0], reported=reported)
    if scope.at_once:
        node = flushing(node, reported, scope)
    state = with_conn(state, s, free[0], Connection(reports=(reported,) if scope.at_once else ()))
    return with_slave(state, s, node)


def report(state: State, scope: Scope, s: int) -> State | None:
    """A slave reports because its interval has passed. HA-S-2."""
    # GUARD
    node, conn = state.slave[s - 1], attached(state, s)
    if conn is None:
        return None
    # STATE
    state = with_conn(state, s, node.slot, reporting(conn, node.reported, scope))
    return with_slave(state, s, flushing(node, node.reported, scope))


def forge_report(state: State, scope: Scope, s: int, r: int) -> State | None:
    """Another peer reports `r` in the slave's name, since there is no authentication. HA-W-7."""
    # GUARD
    conn = attached(state, s)
    if state.used.forgeries >= scope.max_forgeries or conn is None:
        return None
    # STATE
    state = with_conn(state, s, state.slave[s - 1].slot, reporting(conn, r, scope))
    return replace(state, used=replace(state.used, forgeries=state.used.forgeries + 1))


def is_bad(conn: Connection, r: int, state: State) -> bool:
    """Return True if the hardened master refuses a report. HA-M-11, HA-M-12."""
    if conn.req == -1:
        return r > len(state.log) or not (r == 0 or r >= state.min)
    return not conn.ack <= r <= max(conn.ack, sent(conn))


def deliver_reports(state: State, scope: Scope, s: int, k: int, n: int = 1) -> State | None:
    """The master reads the first `n` reports and uses the last of them, or closes over it. HA-M-2, HA-M-3, HA-M-11, HA-M-12."""
    # GUARD
    conn = state.conn[s - 1][k - 1]
    if conn is None or n > len(conn.reports):
        return None
    r = conn.reports[n - 1]
    if scope.checks and is_bad(conn, r, state):
        return close(state, scope, s, k)
    # STATE
    conn = replace(conn, req=r if conn.req < 0 else conn.req, ack=r, reports=conn.reports[n:])
    state = with_conn(state, s, k, conn)
    return acknowledge(state, acknowledged(state.conn, scope))


# --- Actions: frames ---------------------------------------------------------------------------------------------------------


def begin(state: State, scope: Scope, s: int, k: int) -> State | None:
    """The write side finds the first report but nothing to send; it still fixes the start of the transfer. HA-M-27."""
    # GUARD
    conn = state.conn[s - 1][k - 1]
    if conn is None or conn.req == -1 or conn.next != -1:
        return None
    n = transfer_from(conn, state, scope)
    if state.min <= n < len(state.log):
        return None
    # STATE
    return with_conn(state, s, k, replace(started(conn, n), next=n))


def transfer(state: State, scope: Scope, s: int, k: int) -> State | None:
    """Send a data frame, up to the end of its file at most. HA-M-4 to HA-M-7, HA-W-4, HA-W-5."""
    # GUARD
    conn = state.conn[s - 1][k - 1]
    if conn is None or conn.req == -1 or len(conn.frames) >= scope.frame_window:
        return None
    n = transfer_from(conn, state, scope)
    if not state.min <= n < len(state.log):
        return None
    # STATE
    units = state.log[n : min(n + scope.batch, start_of_file(n, scope) + scope.file_size)]
    frames = () if conn.stale else (*conn.frames, Frame(n, units))
    return with_conn(state, s, k, replace(started(conn, n), next=n + len(units), frames=frames))


def heartbeat(state: State, scope: Scope, s: int, k: int) -> State | None:
    """Send a frame without units, even if the transfer's offset is outside the log. HA-M-8, HA-W-3."""
    # GUARD
    conn = state.conn[s - 1][k - 1]
    if conn is None or conn.stale or conn.req == -1 or len(conn.frames) >= scope.frame_window:
        return None
    # STATE
    n = transfer_from(conn, state, scope)
    return with_conn(state, s, k, replace(started(conn, n), next=n, frames=(*conn.frames, Frame(n, b""))))


def deliver_frames(state: State, scope: Scope, s: int, n: int = 1) -> State | None:
    """The slave takes the first `n` frames: appends them and reports, or closes over one. HA-S-4 to HA-S-7, HA-S-10, HA-S-11.

    Classic reports after every frame, so it takes one at a time; hardened reports once after all frames that it has read.
    """
    # GUARD
    node, conn = state.slave[s - 1], attached(state, s)
    if conn is None or not 1 <= n <= (len(conn.frames) if scope.coalesces else min(1, len(conn.frames))):
        return None
    reported = node.reported
    for frame in conn.frames[:n]:
        if refuses(node, frame, scope) or differs(node, frame):
            return close(with_slave(state, s, replace(node, reported=reported)), scope, s, node.slot)
        node = appended(node, frame, scope)
    # STATE
    conn = replace(conn, frames=conn.frames[n:])
    if node.reported > reported:
        conn, node = reporting(conn, node.reported, scope), flushing(node, node.reported, scope)
    return with_slave(with_conn(state, s, node.slot, conn), s, node)


def refuses(node: SlaveNode, frame: Frame, scope: Scope) -> bool:
    """Return True if a slave closes at a frame because of its offset.

    An empty log accepts only the start of a file in hardened, and any offset in classic.

    Spec: HA-S-4, HA-S-11, HA-S-63.
    """
    if max_offset(node) == 0:
        return scope.ignores_heartbeats and frame.offset % scope.file_size != 0
    return frame.offset != node.reported


def differs(node: SlaveNode, frame: Frame) -> bool:
    """Return True if a frame at the right offset differs from units that the slave has already. HA-S-62."""
    own = held(node, frame)[: len(frame.units)]
    return own != frame.units[: len(own)]


def appended(node: SlaveNode, frame: Frame, scope: Scope) -> SlaveNode:
    """The slave after it appended the new units of a frame; a log without files opens the file of the offset.

    Spec: HA-S-5, HA-S-10, HA-ST-6.
    """
    if node.base == -1 and (frame.units or not scope.ignores_heartbeats):
        node = replace(node, base=start_of_file(frame.offset, scope))
    m, end = max_offset(node), frame.offset + len(frame.units)
    if 0 != m > end:
        return replace(node, reported=end)
    node = replace(node, units=node.units + frame.units[len(held(node, frame)) :])
    return replace(node, reported=max_offset(node))


def held(node: SlaveNode, frame: Frame) -> Units:
    """The slave's own units from a frame's offset on; none in an empty log, where no offset is compared."""
    return node.units[frame.offset - node.base :] if max_offset(node) else b""


# --- Actions: faults ---------------------------------------------------------------------------------------------------------


def cut(state: State, scope: Scope, s: int) -> State | None:
    """A link breaks, and both ends notice. HA-M-13, HA-S-13."""
    # GUARD
    k = state.slave[s - 1].slot
    if state.used.cuts >= scope.max_cuts or not k:
        return None
    # STATE
    state = close(state, scope, s, k)
    return replace(state, used=replace(state.used, cuts=state.used.cuts + 1))


def cut_unseen(state: State, scope: Scope, s: int) -> State | None:
    """A link breaks, and only the slave notices: the master keeps a stale connection with its reports. HA-S-13."""
    # GUARD
    if state.used.cuts >= scope.max_cuts or not state.slave[s - 1].slot:
        return None
    # STATE
    state = lose(state, s)
    return replace(state, used=replace(state.used, cuts=state.used.cuts + 1))


def reap(state: State, scope: Scope, s: int, k: int) -> State | None:
    """The master closes a stale connection, which stays silent. HA-M-9."""
    # GUARD
    conn = state.conn[s - 1][k - 1]
    if conn is None or not conn.stale:
        return None
    # STATE
    return close(state, scope, s, k)


def master_crash(state: State, scope: Scope, kept: int) -> State | None:
    """The master restarts with `kept` units, at least the flushed ones, and without any other state."""
    # GUARD
    if state.used.mcrashes >= scope.max_master_crashes or not max(state.flushed, state.min) <= kept <= len(state.log):
        return None
    # STATE
    return replace(
        state,
        log=state.log[:kept],
        flushed=kept,
        epoch=state.epoch + 1,
        push2=0,
        waiting=(),
        conn=initial(scope).conn,
        slave=tuple(replace(node, slot=0) for node in state.slave),
        used=replace(state.used, mcrashes=state.used.mcrashes + 1),
    )


def slave_crash(state: State, scope: Scope, s: int, kept: int) -> State | None:
    """A slave restarts with `kept` of its units, at least the flushed ones. HA-ST-5, HA-ST-7, HA-S-60."""
    # GUARD
    node = state.slave[s - 1]
    if state.used.scrashes >= scope.max_slave_crashes:
        return None
    if kept < len(node.units) and node.base + kept < node.flushed:
        return None
    # STATE
    if state.slave[s - 1].slot:
        state = lose(state, s)
    node = state.slave[s - 1]
    node = replace(node, base=-1 if scope.ignores_heartbeats and not kept else node.base, units=node.units[:kept])
    state = with_slave(state, s, replace(node, flushed=min(node.flushed, max_offset(node))))
    return replace(state, used=replace(state.used, scrashes=state.used.scrashes + 1))


# --- The graph ---------------------------------------------------------------------------------------------------------------


def attempts(state: State, scope: Scope) -> Iterator[tuple[str, State | None]]:
    """Every action with its label, enabled or not."""
    yield "Put", put(state, scope)
    yield "PutSync", put_sync(state, scope)
    for o in state.waiting:
        yield f"Timeout({o})", timeout(state, o)
    yield "Flush", flush(state, scope)
    yield "Delete", delete(state, scope)
    for kept in range(state.flushed, len(state.log) + 1):
        yield "MasterCrash", master_crash(state, scope, kept)
    for s in range(1, scope.slaves + 1):
        yield f"Connect({s})", connect(state, scope, s)
        yield f"Report({s})", report(state, scope, s)
        for r in (*range(len(state.log) + 1), FORGED_REPORT):
            yield f"ForgeReport({s})", forge_report(state, scope, s, r)
        for taken in several(partial(deliver_frames, state, scope, s), scope.frame_window):
            yield f"DeliverFrames({s})", taken
        yield f"Cut({s})", cut(state, scope, s)
        yield f"CutUnseen({s})", cut_unseen(state, scope, s)
        for kept in range(len(state.slave[s - 1].units) + 1):
            yield f"SlaveCrash({s})", slave_crash(state, scope, s, kept)
        for k in SLOTS:
            for taken in several(partial(deliver_reports, state, scope, s, k), scope.report_window):
                yield f"DeliverReports({s},{k})", taken
            yield f"Begin({s},{k})", begin(state, scope, s, k)
            yield f"Transfer({s},{k})", transfer(state, scope, s, k)
            yield f"Heartbeat({s},{k})", heartbeat(state, scope, s, k)
            yield f"Reap({s},{k})", reap(state, scope, s, k)


def several(action: Callable[..., State | None], window: int) -> list[State | None]:
    """The distinct outcomes of an action that takes one or more items in flight."""
    return list(dict.fromkeys(action(n) for n in range(1, window + 1)))


def edges(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """The labelled edges out of a state."""
    for label, after in attempts(state, scope):
        if after is not None and after != state:
            yield label, after
