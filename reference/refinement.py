"""Check the refinement: each byte-level step maps to zero or more protocol-level steps, which are built here.

For a byte-level step, `simulate` lists the actions of spec/protocol.md that it maps to. The functions of protocol.py take these
actions one by one, from the protocol-level view of the cluster before the step (refinement_map.py). Each action must be
enabled, and the last state must be the view of the cluster after the step. The puts that end on the way must be those that end
at the byte level, with the same outcome. `refines` checks all this.

EXCEPTIONS names the byte-level steps that the protocol level lacks: each is an action with its own guard, checked like the
others. No other deviation is accepted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from rocketmq_ha.reference import events, file_size, group_transfer, master, protocol, slave
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.protocol_state import Connection, Frame, SlaveNode, State
from rocketmq_ha.reference.refinement_map import (
    NoViewError,
    abstract,
    byte_scope,
    first_difference,
    is_attached,
    is_open,
    normal,
    open_links,
    to_slave,
    units_of,
)
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

NEGATIVE_HEARTBEAT: Final = "NegativeHeartbeat"
REFUSE_UNSENT: Final = "RefuseUnsent"
REFUSE_FRAME: Final = "RefuseFrame"
REFUSE_FILE_SIZE: Final = "RefuseFileSize"
LOSE_REPORTS: Final = "LoseReports"
LOSE_FRAME: Final = "LoseFrame"
FAIL_APPEND: Final = "FailAppend"
RESUME: Final = "Resume"
LATE_OUTCOME: Final = "LateOutcome"
TORN_RECORD: Final = "TornRecord"
TORN_BLANK: Final = "TornBlank"
GHOST_RECORD: Final = "GhostRecord"


@dataclass(frozen=True, slots=True)
class BelowTheLevel:
    """An action that only bytes can take. `quirk` is its number in spec/violations.md, or None."""

    quirk: int | None
    clauses: tuple[str, ...]
    description: str


EXCEPTIONS: Final[dict[str, BelowTheLevel]] = {
    NEGATIVE_HEARTBEAT: BelowTheLevel(
        4,
        ("HA-S-10",),
        "a heartbeat at a negative offset reaches a slave without files: division towards zero gives it file 0, or none at all",
    ),
    REFUSE_UNSENT: BelowTheLevel(
        None,
        ("HA-M-11",),
        "a forged report lies within the frame that the socket has not taken whole: it has been sent in units, not in bytes",
    ),
    REFUSE_FRAME: BelowTheLevel(
        23,
        ("HA-S-11", "HA-S-14", "HA-S-52"),
        "a header says a size that the slave's read buffer cannot hold, or an offset whose file ends beyond all offsets, and "
        "the slave closes over it: units have no size, and no such offsets",
    ),
    REFUSE_FILE_SIZE: BelowTheLevel(
        19,
        ("HA-S-11", "HA-S-92"),
        "a slave of other files than its master's appends what is before the record that shows it, and closes",
    ),
    LOSE_REPORTS: BelowTheLevel(
        None,
        ("HA-S-13",),
        "a link breaks with the reports that are on their way; in units they stay in flight, to arrive or to be reaped",
    ),
    LOSE_FRAME: BelowTheLevel(
        21,
        ("HA-S-36",),
        "what the master sends behind a header that no slave can dispatch is lost, on a connection that stays open",
    ),
    FAIL_APPEND: BelowTheLevel(
        42,
        ("HA-S-37", "HA-S-38"),
        "a slave's disk is full: classic takes what its file holds for the units of the frame, hardened closes over it",
    ),
    RESUME: BelowTheLevel(
        32, ("HA-G-12",), "a put waits some time after it has been appended, behind others that were put later (classic)"
    ),
    LATE_OUTCOME: BelowTheLevel(
        32, ("HA-G-12", "HA-G-15"), "a put that a report has reached is told so later, or that it timed out (classic)"
    ),
    TORN_RECORD: BelowTheLevel(
        40, ("HA-ST-5", "HA-ST-10"), "a slave stops within the zeros at a record's end, and recovers what it never received"
    ),
    TORN_BLANK: BelowTheLevel(
        38, ("HA-ST-5",), "a slave stops within a BLANK, and recovers all of it: what is missing are zeros, as in the file"
    ),
    GHOST_RECORD: BelowTheLevel(
        35, ("HA-ST-7",), "bytes that a recovery cut off and left in the file complete a record at the next one (classic)"
    ),
}


@dataclass(frozen=True, slots=True)
class Taken:
    """One step of a witness."""

    label: str
    before: State
    after: State


class _StuckError(Exception):
    """An action of the witness is not enabled."""


def refines(before: Cluster, event: events.Event, after: Cluster, settings: Settings, profile: Profile) -> str:
    """Return the first difference, with the witness up to it; "" if the step refines."""
    return labels(before, event, after, settings, profile)[0]


def labels(
    before: Cluster, event: events.Event, after: Cluster, settings: Settings, profile: Profile
) -> tuple[str, tuple[str, ...]]:
    """Both: (what `refines` says, the labels of the witness). The states are not kept: a step may be of 10,000 frames."""
    return _build(before, event, after, settings, profile, lambda _: None)


def simulate(
    before: Cluster, event: events.Event, after: Cluster, settings: Settings, profile: Profile
) -> tuple[str, tuple[Taken, ...]]:
    """Both: (what `refines` says, the witness: the actions that the step maps to, up to the difference)."""
    taken: list[Taken] = []
    told, _ = _build(before, event, after, settings, profile, taken.append)
    return told, tuple(taken)


def _build(
    before: Cluster,
    event: events.Event,
    after: Cluster,
    settings: Settings,
    profile: Profile,
    took: Callable[[Taken], object],
) -> tuple[str, tuple[str, ...]]:
    """What `labels` returns; `took` is given each action.

    A classic slave whose files have another size than its master's is not checked: it does not notice it (quirk 19).
    """
    if settings.slave_file_size and not profile.checks_file_size:
        return "", ()
    work = _Witness(before, event, after, settings, profile, took)
    try:
        work.build()
        told = work.difference()
    except (_StuckError, NoViewError) as error:
        told = str(error)
    names = " ".join(work.labels) or "no action"
    return told and f"{type(event).__name__} as {names}: {told}", tuple(work.labels)


class _Witness:
    """The witness of one step while it is being built."""

    def __init__(
        self,
        before: Cluster,
        event: events.Event,
        after: Cluster,
        settings: Settings,
        profile: Profile,
        took: Callable[[Taken], object],
    ) -> None:
        self.before, self.event, self.after = before, event, after
        self.settings, self.profile = settings, profile
        self.took = took  # given each action
        self.scope = byte_scope(len(before.slaves), settings, profile)
        self.labels: list[str] = []  # of the actions
        self.done: list[tuple[int, str]] = []  # (next offset, outcome) of the puts that have ended
        self.ended = [(done.next_offset, done.status) for done in after.done]  # the same, at the byte level

    def build(self) -> None:
        """Take the actions of the event, then those of the write sides, which run at the end of every step."""
        self.state = abstract(self.before, self.settings)
        self.slot_of = {
            link.link_id: k
            for index in range(len(self.before.slaves))
            for k, link in enumerate(open_links(self.before, index), 1)
        }
        if isinstance(self.event, events.Tick) or not (
            self.profile.serves_by_deadline or isinstance(self.event, events.RestartMaster)
        ):
            self.timeouts()
        match self.event:
            case events.Put():
                self.put(self.event)
            case events.Tick():
                self.tick()
            case events.Connect():
                self.connect(self.event)
            case events.DeliverFrames():
                self.deliver_frames(self.event)
            case events.DeliverReports():
                self.deliver_reports(self.event)
            case events.ForgeReport():
                if link := self.attached(self.event.slave):
                    s, offset = link.slave + 1, self.event.offset
                    self.act(f"ForgeReport({s})", protocol.forge_report(self.state, self.scope, s, offset))
            case events.Cut():
                self.cut(self.event)
            case events.RestartSlave():
                self.restart_slave(self.event.slave)
            case events.RestartMaster():
                self.restart_master(self.event)
            case events.DeleteFile():
                if (after := protocol.delete(self.state, self.scope)) is not None:
                    self.act("Delete", after)
            case events.Resume():
                self.resume(self.event.nth)
            case events.Grant() | events.Clog() | events.ForgeHeader() | events.DiskFull():
                pass  # how much a socket takes is below the level; so is a header, until it is dispatched
            case _:
                assert_never(self.event)
        for link in self.after.links:
            if is_open(link):
                self.transfer(link)
        if not self.profile.serves_by_deadline:
            self.late_outcomes()

    def difference(self) -> str:
        """The first difference between the witness's last state and the cluster after; "" if there is none."""
        told = first_difference(normal(self.state), normal(abstract(self.after, self.settings)))
        if not told and sorted(self.done) != sorted(self.ended):
            told = f"puts that ended: {sorted(self.done)}, and at the byte level {sorted(self.ended)}"
        return told

    def act(self, label: str, after: State | None, outcome: str = "") -> None:
        """Take one action and record the outcome of the puts that it ends. An action that changes nothing is skipped."""
        if after is None:
            raise _StuckError(f"{label} is not enabled")
        if outcome:
            self.done += ((offset, outcome) for offset in self.state.waiting if offset not in after.waiting)
        if after != self.state:
            self.take(Taken(label, self.state, after))
        self.state = after

    def take(self, taken: Taken) -> None:
        self.labels.append(taken.label)
        self.took(taken)

    # --- Events, in the order of reference/events.py ---------------------------------------------------------------------

    def put(self, event: events.Put) -> None:
        """Append once, with padding if needed; a put that does not wait has its outcome at once. HA-G-3."""
        units = units_of(self.after.log)[len(self.state.log) :]
        after = protocol.append(self.state, units)
        pauses = event.pauses and not self.profile.joins_at_append
        refused = event.wait and not pauses and self.is_refused(len(after.log))
        if not event.wait or pauses:
            self.act("Put", after)
        else:
            self.act("PutSync", protocol.join(self.state, after, self.scope))
            if not refused and len(after.log) <= after.push2:
                self.done.append((len(after.log), group_transfer.PUT_OK))

    def resume(self, nth: int) -> None:
        """A paused put joins the waiting ones, as in PutSync, although later messages were appended meanwhile."""
        if nth < len(self.before.paused):
            next_offset = self.before.paused[nth][1]
            if self.is_refused(next_offset):
                return
            if next_offset <= self.state.push2:
                self.done.append((next_offset, group_transfer.PUT_OK))
            else:
                joined = tuple(sorted((*self.state.waiting, next_offset)))
                self.act(f"{RESUME}({next_offset})", replace(self.state, waiting=joined))

    def is_refused(self, next_offset: int) -> bool:
        """Whether a put ends with SLAVE_NOT_AVAILABLE: too few count, or lag too far. HA-G-3, HA-G-32."""
        lags = next_offset - self.state.push2 >= self.settings.ha_slave_fallbehind_max
        refused = lags or protocol.counted(self.state, self.scope) < self.scope.replicas
        if refused:
            self.done.append((next_offset, group_transfer.SLAVE_NOT_AVAILABLE))
        return refused

    def tick(self) -> None:
        """Time passes: silent connections end, slaves report, puts time out."""
        now_ms, settings = self.after.now_ms, self.settings
        for link in self.before.links:
            if is_open(link) and now_ms - link.conn.last_read_timestamp > settings.ha_housekeeping_interval_ms:
                s, k = link.slave + 1, self.slot_of[link.link_id]
                if is_attached(link):
                    self.break_link(s)
                else:
                    self.act(f"Reap({s},{k})", protocol.reap(self.state, self.scope, s, k))
        for index, node in enumerate(self.before.slaves):
            own = self.attached(index)
            if own and self.state.slave[index].slot:
                if now_ms - node.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:
                    self.act(f"Report({index + 1})", protocol.report(self.state, self.scope, index + 1))
                    self.break_if_cut(own, 1)
                silent = now_ms - node.last_read_timestamp > settings.ha_housekeeping_interval_ms
                if self.profile.detects_silent_master and silent and self.state.slave[index].slot:
                    self.break_link(index + 1)

    def connect(self, event: events.Connect) -> None:
        if self.before.slaves[event.slave].connected:
            return
        s = event.slave + 1
        first = self.after.slaves[event.slave].current_reported_offset
        self.act(f"Connect({s})", protocol.connect(self.state, self.scope, s, first))
        self.slot_of[self.before.next_link_id] = self.state.slave[event.slave].slot
        if self.profile.reports_on_connect and event.slave_room < REPORT_SIZE:
            self.break_link(s)

    def deliver_frames(self, event: events.DeliverFrames) -> None:
        """The slave takes whole frames.

        It may refuse a partial frame by its header, or never complete one that is too large.
        """
        link = self.attached(event.slave)
        if link is None or not link.to_slave[: event.nbytes]:
            return
        s, size = event.slave + 1, self.settings.slave_read_buffer_size
        stream = to_slave(link, self.before.slaves[event.slave], self.settings)
        left = len(slave.unparsed(self.before.slaves[event.slave])) + len(link.to_slave[: event.nbytes])
        node, run, reports = self.state.slave[event.slave], 0, 0  # run: whole frames that wait for the report behind them
        own_size = self.before.slaves[event.slave].log.file_size
        for frame in stream.frames:
            frame_size = TRANSFER_HEADER_SIZE + len(frame.units)
            if left < TRANSFER_HEADER_SIZE:
                break
            if protocol.refuses(node, frame, self.scope):
                self.take_frames(s, run + 1)
                return
            if slave.check_end_of_file(Log(own_size), frame.offset):
                self.act(f"{REFUSE_FRAME}({s})", self.close_at_slave(s, run))
                return
            if self.has_no_place(node, frame, own_size):
                self.act(f"{REFUSE_FILE_SIZE}({s})", self.close_at_slave(s, run))
                return
            if left < frame_size:
                break
            left, run = left - frame_size, run + 1
            if protocol.differs(node, frame):
                self.take_frames(s, run)
                return
            if self.before.slaves[event.slave].disk_full and len(protocol.held(node, frame)) < len(frame.units):
                if self.profile.checks_appends:
                    self.act(f"{FAIL_APPEND}({s})", self.close_at_slave(s, run - 1))
                    return
                self.act(f"{FAIL_APPEND}({s})", self.with_first_frame(s, self.unwritten(s, node, frame)))
            if self.settings.slave_file_size:
                own_size, fitting = self.look_at_size(node, frame, own_size)
                if fitting is not None:
                    self.act(f"{REFUSE_FILE_SIZE}({s})", self.close_at_slave(s, run - 1, fitting))
                    return
            node = protocol.appended(node, frame, self.scope)  # in classic recv_frame takes it, and node is read anew
            if not self.profile.coalesces_reports:
                reports += self.take_frames(s, run)
                self.break_if_cut(link, reports)
                node, run = self.state.slave[event.slave], 0
                if not node.slot:
                    return
        else:
            if stream.stopper and left >= TRANSFER_HEADER_SIZE:
                offset, body_size = stream.stopper
                stalls = left >= size and not slave.parsing_throws(body_size)
                ends_late = slave.check_end_of_file(Log(own_size), offset)
                if self.profile.checks_frames or protocol.max_offset(node) not in (0, offset) or ends_late or stalls:
                    self.act(f"{REFUSE_FRAME}({s})", self.close_at_slave(s, run))
                    return
        if run:
            self.break_if_cut(link, self.take_frames(s, run))

    def has_no_place(self, node: SlaveNode, frame: Frame, own_size: int) -> bool:
        """Return True if a frame does not fit into the slave's files: HA-S-11, HA-S-90."""
        starts_inside = protocol.max_offset(node) == 0 and frame.offset % own_size != 0
        crosses = frame.offset % own_size + len(frame.units) > own_size
        return self.profile.checks_frames and bool(self.settings.slave_file_size) and (starts_inside or crosses)

    def look_at_size(self, node: SlaveNode, frame: Frame, own_size: int) -> tuple[int, Frame | None]:
        """What a slave learns of its master's file size by a whole frame.

        Returns: the size of its own files from then on, and what it appends of the frame if it closes over it; else None.
        """
        log = Log(own_size, None if node.base == -1 else node.base, node.units)
        held = len(protocol.held(node, frame)[: len(frame.units)])
        seen = file_size.walk(log, frame.units[held:])
        if not seen.differs or held == len(frame.units):
            return own_size, None
        if self.settings.adopts_file_size and file_size.adopt(log, frame.offset, frame.units[held:], seen.size):
            assert seen.size is not None
            return seen.size, None
        return own_size, replace(frame, units=frame.units[: held + max(0, seen.position - len(node.units))])

    def deliver_reports(self, event: events.DeliverReports) -> None:
        """Each read fills the buffer and uses the reports that it completes, once. HA-M-2, HA-M-10."""
        link = self.attached(event.slave)
        arrived = len(link.to_master[: event.nbytes]) if link else 0
        if link is None or not arrived:
            return
        s, k, size = link.slave + 1, self.slot_of[link.link_id], self.settings.master_read_buffer_size
        position, process_position = len(link.conn.byte_buffer_read), link.conn.process_position
        while arrived and self.state.slave[event.slave].slot:
            if position == size:
                position = process_position = 0
            read = min(arrived, size - position)
            position, arrived = position + read, arrived - read
            completed = (position - process_position) // REPORT_SIZE
            process_position += completed * REPORT_SIZE
            if completed:
                self.recv_report(link, s, k, completed)

    def cut(self, event: events.Cut) -> None:
        """The link breaks. That the slave notices a break later than its master is not visible at the protocol level."""
        s = event.slave + 1
        link = self.attached(event.slave)
        if link is None:
            return
        if event.tell == "slave":
            self.act(f"CutUnseen({s})", protocol.cut_unseen(self.state, self.scope, s))
            self.lose_reports(link)
        else:
            self.break_link(s)

    def restart_slave(self, index: int) -> None:
        """The link breaks, since the process's sockets are closed; then recovery cuts off a partial record."""
        s, log, recovered = index + 1, self.before.slaves[index].log, self.after.slaves[index].log
        if self.attached(index):
            self.break_link(s)
        if len(recovered.data) > len(log.data):
            label = TORN_RECORD if len(recovered.data) % log.file_size else TORN_BLANK
            label = GHOST_RECORD if any(recovered.data[len(log.data) :]) else label
            self.act(f"{label}({s})", self.reread(s, log, recovered))
        if len(recovered.data) < len(log.data):
            self.act(f"SlaveCrash({s})", protocol.slave_crash(self.state, self.scope, s, len(recovered.data)))

    def restart_master(self, event: events.RestartMaster) -> None:
        """Only flushed bytes survive. Waiting puts get a status only after a clean stop in hardened. HA-G-6."""
        outcome = group_transfer.FLUSH_SLAVE_TIMEOUT if event.clean and self.profile.serves_by_deadline else ""
        kept = len(units_of(self.after.log))
        self.act("MasterCrash", protocol.master_crash(self.state, self.scope, kept), outcome)

    def transfer(self, link: Link) -> None:
        """Build the frames that are in flight after the step but were not before; if stale, those that `next` has passed."""
        s, k, fixed = link.slave + 1, self.slot_of[link.link_id], link.conn.next_transfer_from_where
        if self.state.conn[link.slave][k - 1] is None:
            return  # closed at one level alone: the comparison will say so
        loses = True
        if is_attached(link):
            stream = to_slave(link, self.after.slaves[link.slave], self.settings)
            loses = stream.is_deaf or stream.stopper is not None
            for frame in stream.frames[len(self.connection(link).frames) :]:
                self.transfer_frame(s, k, bool(frame.units))
        while loses and protocol.transfer_from(self.connection(link), self.state, self.scope) < fixed:
            self.transfer_frame(s, k, has_units=True)
            self.lose(link, s, k)
        if self.connection(link).next == -1 != fixed:
            if begun := protocol.begin(self.state, self.scope, s, k):
                self.act(f"Begin({s},{k})", begun)
            else:  # a heartbeat is due, and precedes the data
                self.transfer_frame(s, k, has_units=False)
                self.lose(link, s, k)

    def transfer_frame(self, s: int, k: int, has_units: bool) -> None:
        if has_units:
            self.act(f"Transfer({s},{k})", protocol.transfer(self.state, self.scope, s, k))
        else:
            self.act(f"Heartbeat({s},{k})", protocol.heartbeat(self.state, self.scope, s, k))

    def lose(self, link: Link, s: int, k: int) -> None:
        """Lose the last frame: it follows a header that the slave cannot dispatch."""
        conn = self.connection(link)
        if not conn.stale:
            lost = replace(conn, frames=conn.frames[:-1])
            self.act(f"{LOSE_FRAME}({s},{k})", protocol.with_conn(self.state, s, k, lost))

    def lose_reports(self, link: Link) -> None:
        """Lose the reports in flight on a connection that becomes stale."""
        s, k = link.slave + 1, self.slot_of[link.link_id]
        conn = self.connection(link)
        if conn.reports:
            self.act(f"{LOSE_REPORTS}({s},{k})", protocol.with_conn(self.state, s, k, replace(conn, reports=())))

    def timeouts(self) -> None:
        """Puts that the byte level ends with a time-out: by time, or in classic by the fifth wait. HA-G-2, HA-G-15.

        This is the first action of a step: the fifth wait may end with a report, and the next report may reach the put.
        """
        for offset, status in self.ended:
            if status == group_transfer.FLUSH_SLAVE_TIMEOUT and offset in self.state.waiting:
                self.act(f"Timeout({offset})", protocol.timeout(self.state, offset), status)

    def late_outcomes(self) -> None:
        """Classic gives a put its status when its thread gets to it; the put may have timed out by then."""
        push2 = self.state.push2
        late = {request.next_offset for cluster in (self.before, self.after) for request in cluster.group.requests}
        for offset, status in self.ended:
            was_late = offset in late and offset <= push2 and (offset, status) not in self.done
            if was_late and status != group_transfer.SLAVE_NOT_AVAILABLE:
                self.take(Taken(f"{LATE_OUTCOME}({offset})", self.state, self.state))
                self.done.append((offset, status))
        still = {request.next_offset for request in self.after.group.requests}
        self.done = [
            (offset, outcome) for offset, outcome in self.done if outcome != group_transfer.PUT_OK or offset not in still
        ]

    # --- What the events share -------------------------------------------------------------------------------------------

    def attached(self, index: int) -> Link | None:
        """The connection of a slave, as it was before the event, if both ends hold it."""
        return next((link for link in self.before.links if link.slave == index and is_attached(link)), None)

    def connection(self, link: Link) -> Connection:
        conn = self.state.conn[link.slave][self.slot_of[link.link_id] - 1]
        assert conn is not None
        return conn

    def break_link(self, s: int) -> None:
        self.act(f"Cut({s})", protocol.cut(self.state, self.scope, s))

    def break_if_cut(self, link: Link, reports: int) -> None:
        """The slave closes the connection if its socket does not take a whole report. HA-S-8."""
        if link.slave_room < reports * REPORT_SIZE:
            self.break_link(link.slave + 1)

    def take_frames(self, s: int, n: int) -> int:
        """Take `n` frames, or close the connection at the last of them. Returns: the number of reports sent."""
        conn, node = protocol.attached(self.state, s), self.state.slave[s - 1]
        assert conn is not None
        if conn.frames[0].offset < 0 and node.base == -1:
            self.act(f"{NEGATIVE_HEARTBEAT}({s})", self.negative_heartbeat(s, conn))
            return 0
        self.act(f"DeliverFrames({s})", protocol.deliver_frames(self.state, self.scope, s, n))
        then = protocol.attached(self.state, s)
        return 0 if then is None else len(then.reports) - len(conn.reports)

    def recv_report(self, link: Link, s: int, k: int, n: int) -> None:
        """Use the last of `n` reports. For the byte level a partially written frame is not sent."""
        conn = self.connection(link)
        r = conn.reports[n - 1]
        sent_offset = master.sent_offset(replace(link.conn, slave_request_offset=conn.req))
        if self.scope.checks and conn.req != -1 and not protocol.is_bad(conn, r, self.state) and r > max(conn.ack, sent_offset):
            self.act(f"{REFUSE_UNSENT}({s},{k})", protocol.close(self.state, self.scope, s, k))
            return
        self.act(f"DeliverReports({s},{k})", protocol.deliver_reports(self.state, self.scope, s, k, n), group_transfer.PUT_OK)

    # --- Below the level: EXCEPTIONS ---------------------------------------------------------------------------------------

    def negative_heartbeat(self, s: int, conn: Connection) -> State | None:
        """A slave without files takes a heartbeat at a negative offset: it has file 0, if that is less than a file away."""
        frame, node = conn.frames[0], self.state.slave[s - 1]
        if frame.units or self.scope.ignores_heartbeats:
            return None
        node = replace(node, base=0 if -frame.offset < self.scope.file_size else -1)
        conn = replace(conn, frames=conn.frames[1:])
        return protocol.with_slave(protocol.with_conn(self.state, s, node.slot, conn), s, node)

    def close_at_slave(self, s: int, run: int, fitting: Frame | None = None) -> State:
        """A slave appends several frames and closes at the next one, whose beginning it may append."""
        conn, node = protocol.attached(self.state, s), self.state.slave[s - 1]
        assert conn is not None
        for frame in conn.frames[:run]:
            node = protocol.appended(node, frame, self.scope)
        if fitting is not None and fitting.units:
            node = protocol.appended(node, fitting, self.scope)
        return protocol.close(protocol.with_slave(self.state, s, node), self.scope, s, node.slot)

    def unwritten(self, s: int, node: SlaveNode, frame: Frame) -> Frame:
        """A frame whose units equal the bytes in the slave's file at their place: bytes that recovery cut off, and zeros."""
        log = self.before.slaves[s - 1].log
        held = (log.data + log.stale)[len(node.units) :] + bytes(len(frame.units))
        return replace(frame, units=held[: len(frame.units)])

    def with_first_frame(self, s: int, frame: Frame) -> State:
        """Replace the next frame that the slave takes."""
        conn = protocol.attached(self.state, s)
        assert conn is not None
        slot = self.state.slave[s - 1].slot
        return protocol.with_conn(self.state, s, slot, replace(conn, frames=(frame, *conn.frames[1:])))

    def reread(self, s: int, log: Log, recovered: Log) -> State | None:
        """A recovery takes bytes behind the log's end for a part of it: bytes cut off earlier, and zeros."""
        if recovered.data != (log.data + log.stale + bytes(len(recovered.data)))[: len(recovered.data)]:
            return None
        return protocol.with_slave(self.state, s, replace(self.state.slave[s - 1], units=recovered.data))
