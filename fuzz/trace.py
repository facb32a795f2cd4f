"""Trace validation: is a recorded link one that the reference model may produce?

Both ends are run as the model has them. The model's master is given the slave's reports, and must send each frame that the real
one sent; the model's slave is given those frames, and must make each report that the real one made. What the model leaves open
is settled by the transcript, and held against what it may be:

    how far the master's log had come     a frame that is shorter than it might be ends where a record ends, or a file
    when a heartbeat or a report was due  an interval has passed whenever one is seen: of times, only the order is checked
    what the slave had of a lost link     its last report, or the end of a whole frame behind it; after a restart, what recovers

So a byte that differs from the log, a gap, a frame across a file's end, a wrong start, a report of what has not been sent or in
the wrong order: each is refused, with the link and the place in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.transcript import Piece, Restarted
from rocketmq_ha.reference import master, message, slave, store, wire
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

ROOM: Final = 1 << 40  # of the model's sockets: what real ones refused shows in the transcript as a split


class TraceRefusedError(FuzzError):
    """No run of the model has this transcript."""


@dataclass(slots=True)
class Checked:
    """What a transcript held."""

    links: int = 0
    frames: int = 0
    heartbeats: int = 0
    reports: int = 0
    repeated_reports: int = 0  # of an offset that was reported before: the interval's
    body_bytes: int = 0
    slave_max_offset: int = 0  # of the model's slave, in the end
    slave_ack_offset: int = -1  # the last report


def record_ends(log: Log) -> frozenset[int]:
    """Where a put may have left the max offset: behind each record, and at the end of each file that is full."""
    base, position, ends = log.base or 0, 0, {log.base or 0}
    while position < len(log.data):
        rest = log.file_size - position % log.file_size
        # The longest record that can be is no longer than a file, and one that crosses its end is none.
        found = message.decode(log.data[position : position + rest])
        if found is not None:
            position += found[1]
        elif log.data[position : position + 8] == store.blank(rest)[:8]:
            position += rest
        else:
            raise TraceRefusedError(f"the master's log has no whole record at {base + position}")
        ends.add(base + position)
    return frozenset(ends)


@dataclass(slots=True)
class _Link:
    """One connection of the transcript, as far as it has been read."""

    number: int
    conn: MasterConnection
    from_master: bytearray
    from_slave: bytearray
    expected: list[int]  # reports that the model's slave has made and the real one has not been seen to make, in order
    last_report: int  # of the real slave on this connection; -1: none
    sent_bytes: int = 0  # of whole frames


def check_transcript(
    transcript: Iterable[Piece | Restarted],
    master_log: Log,
    settings: Settings,
    master_profile: Profile,
    slave_profile: Profile,
    slave_log: Log | None = None,
) -> Checked:
    """Hold a transcript against the model.

    Args: master_log: what the master's log held in the end, from its base on: it only grew.
          slave_log: what the slave had before; none: an empty store.
    Returns: what was counted.
    Raises: TraceRefusedError: the link, the byte in its direction, what the model does there and what was recorded.
    """
    trace = _Trace(master_log, settings, master_profile, slave_profile, slave_log or Log(settings.mapped_file_size))
    for entry in transcript:
        if isinstance(entry, Restarted):
            trace.restarted = True
        elif entry.source == "master":
            trace.from_master(entry)
        else:
            trace.from_slave(entry)
    trace.close_link()
    return trace.checked


class _Trace:
    def __init__(self, log: Log, settings: Settings, master_profile: Profile, slave_profile: Profile, slave_log: Log) -> None:
        # Frames are fed one by one, and none is larger than a batch: a buffer of two behaves as one of 4 MiB, and copies less.
        self.settings = replace(settings, slave_read_buffer_size=2 * (settings.ha_transfer_batch_size + TRANSFER_HEADER_SIZE))
        self.master_log, self.ends = log, record_ends(log)
        self.master_profile = master_profile
        # One report a frame: those of a slave that coalesces them are some of these, in their order.
        self.slave_profile = replace(slave_profile, coalesces_reports=False)
        self.may_skip = slave_profile.coalesces_reports
        self.slave = Slave(slave_log)
        self.link: _Link | None = None
        self.restarted = False
        self.acked = store.max_offset(slave_log)  # what the slave certainly has
        self.frame_ends = [self.acked]  # what it may have beyond that
        self.checked = Checked()

    # --- The master's side ---------------------------------------------------------------------------------------------------

    def from_master(self, piece: Piece) -> None:
        link = self._link_of(piece)
        link.from_master += piece.data
        cut = len(piece.data) - piece.passed
        while (size := self._whole_frame(link)) and size <= len(link.from_master):
            frame = bytes(link.from_master[:size])
            del link.from_master[:size]
            self._frame(link, frame)
            if len(link.from_master) >= cut:
                self._to_slave(link, frame)
        self._partial_frame(link)

    def _whole_frame(self, link: _Link) -> int:
        """The size of the frame that has begun to come, by its header; 0 while that is not whole."""
        if len(link.from_master) < TRANSFER_HEADER_SIZE:
            return 0
        offset, body_size = wire.unpack_header(bytes(link.from_master[:TRANSFER_HEADER_SIZE]))
        if not 0 <= body_size <= self.settings.ha_transfer_batch_size:
            self._refuse(
                link, f"a body of 0 to {self.settings.ha_transfer_batch_size} bytes", f"one of {body_size} at {offset}"
            )
        return TRANSFER_HEADER_SIZE + body_size

    def _frame(self, link: _Link, frame: bytes) -> None:
        """The model's master must send this frame next, with a log as long as the frame says."""
        offset, body_size = wire.unpack_header(frame[:TRANSFER_HEADER_SIZE])
        expected = self._sent_by_model(link, offset, body_size)
        if expected != frame:
            self._refuse(link, _frame_text(expected), _frame_text(frame))
        link.sent_bytes += len(frame)
        self.checked.frames += 1
        self.checked.heartbeats += body_size == 0
        self.checked.body_bytes += body_size

    def _sent_by_model(self, link: _Link, offset: int, body_size: int) -> bytes:
        """What the model's master sends on a log that ends as the frame tells; a frame of a whole batch leaves its end open."""
        log, end = self.master_log, offset + body_size
        if not store.min_offset(log) <= offset <= end <= store.max_offset(log):
            self._refuse(
                link, f"a frame within the log, {store.min_offset(log)} to {store.max_offset(log)}", f"{offset} to {end}"
            )
        if 0 < body_size < self.settings.ha_transfer_batch_size and end not in self.ends:
            whole = f"a frame that ends with a record, or is a batch of {self.settings.ha_transfer_batch_size} bytes"
            self._refuse(link, whole, f"one that ends inside a record, at {end}")
        base = offset - offset % log.file_size
        window = Log(log.file_size, base, log.data[base - store.min_offset(log) : end - store.min_offset(log)])
        conn = link.conn
        now_ms = conn.last_write_timestamp + (0 if body_size else self.settings.ha_send_heartbeat_interval_ms + 1)
        step = master.on_transfer(conn, window, TRANSFER_HEADER_SIZE + body_size, now_ms, self.settings)
        link.conn = step.state
        return sent(step)

    def _partial_frame(self, link: _Link) -> None:
        """What has come of a frame must agree with the model's, as far as it goes."""
        rest = bytes(link.from_master)
        if not rest:
            return
        next_offset = link.conn.next_transfer_from_where
        if next_offset == -1:
            return  # the first frame: its start is checked when it is whole
        header = next_offset.to_bytes(8, "big", signed=True)
        if rest[:8] != header[: len(rest)]:
            self._refuse(link, f"a header of offset {next_offset}", rest[:8].hex())
        at = next_offset - store.min_offset(self.master_log)
        body = rest[TRANSFER_HEADER_SIZE:]
        if body != self.master_log.data[at : at + len(body)]:
            self._refuse(link, f"the log's bytes from {next_offset}", "others")

    # --- The slave's side ----------------------------------------------------------------------------------------------------

    def _to_slave(self, link: _Link, frame: bytes) -> None:
        """The model's slave takes a frame, and owes the reports that it makes."""
        step = slave.on_frames(self.slave, frame, ROOM, 0, self.settings, self.slave_profile)
        self.slave = step.state
        link.expected += _reports(sent(step))
        if not self.slave.connected:
            self._refuse(link, f"a close of the slave ({self.slave.close_reason})", _frame_text(frame))
        if store.max_offset(self.slave.log) > self.frame_ends[-1]:
            self.frame_ends.append(store.max_offset(self.slave.log))
        self._forget_old_files()

    def from_slave(self, piece: Piece) -> None:
        link = self._link_of(piece)
        link.from_slave += piece.data
        while len(link.from_slave) >= REPORT_SIZE:
            report = wire.unpack_report(bytes(link.from_slave[:REPORT_SIZE]))
            del link.from_slave[:REPORT_SIZE]
            self._report(link, report)

    def _report(self, link: _Link, report: int) -> None:
        """The model's slave must have made this report, or repeat the last one; the model's master must take it."""
        if link.last_report == -1:
            self._first_report(link, report)
        elif report in (link.expected if self.may_skip else link.expected[:1]):
            del link.expected[: link.expected.index(report) + 1]
        elif report == link.last_report:
            self.checked.repeated_reports += 1
        else:
            self._refuse(link, f"a report of {(link.expected or [link.last_report])[0]}", f"{report}")
        link.last_report = self.acked = report
        while len(self.frame_ends) > 1 and self.frame_ends[0] < report:
            self.frame_ends.pop(0)
        self.checked.reports += 1
        self.checked.slave_ack_offset = report
        data = wire.pack_report(report)
        step = master.on_reports(link.conn, data, self.master_log, 0, self.settings, self.master_profile)
        link.conn = step.state
        if link.conn.close_reason:
            self._refuse(link, f"a close of the master ({link.conn.close_reason})", f"a report of {report} that it took")

    def _first_report(self, link: _Link, report: int) -> None:
        """Where the slave starts is what it has: all that passed, or, of a link that was lost, some of it.

        Several ends may have one first report (HA-S-61): the most is taken, for what the slave has not it will be sent again.
        """
        found: list[tuple[int, Slave, list[int]]] = []
        for end in dict.fromkeys(reversed(self.frame_ends)):
            log = self.slave.log
            had = replace(self.slave, log=replace(log, data=log.data[: end - (log.base or 0)]) if log.base is not None else log)
            if self.restarted:
                had = slave.on_restart(had, self.slave_profile).state
            step = slave.on_connect(had, ROOM, 0, self.slave_profile)
            told = _reports(sent(step)) or [step.state.current_reported_offset]
            if told[0] == report:
                found.append((store.max_offset(step.state.log), step.state, told[1:]))
        if not found:
            self._refuse(link, f"a first report of {self.frame_ends[-1]}", f"{report}")
        _, self.slave, link.expected = found[0]
        self.frame_ends, self.restarted = sorted({end for end, _, _ in found}), False

    def _forget_old_files(self) -> None:
        """Drop files before the last two: nothing here looks at them again, and each append copies what is left."""
        log = self.slave.log
        spare = max(0, len(log.data) // log.file_size - 2) * log.file_size
        if spare and log.base is not None:
            if self.acked < log.base + spare:
                return
            self.slave = replace(self.slave, log=replace(log, base=log.base + spare, data=log.data[spare:]))

    # --- Links ---------------------------------------------------------------------------------------------------------------

    def _link_of(self, piece: Piece) -> _Link:
        if self.link is None or self.link.number != piece.link:
            self.close_link()
            self.link = _Link(piece.link, master.on_accept(0).state, bytearray(), bytearray(), [], -1)
            self.checked.links += 1
        return self.link

    def close_link(self) -> None:
        if self.link is not None:
            if self.link.from_slave:
                self._refuse(self.link, "reports of 8 bytes", f"{len(self.link.from_slave)} bytes behind the last whole one")
            self.slave = slave.on_end_of_stream(self.slave).state
        self.checked.slave_max_offset = store.max_offset(self.slave.log)

    def _refuse(self, link: _Link, expected: str, found: str) -> NoReturn:
        where = f"link {link.number}, behind {link.sent_bytes} bytes of frames and report {self.checked.reports}"
        raise TraceRefusedError(f"{where}: the model has {expected}; the transcript has {found}")


def _reports(data: bytes) -> list[int]:
    return [wire.unpack_report(data[at : at + REPORT_SIZE]) for at in range(0, len(data), REPORT_SIZE)]


def _frame_text(frame: bytes) -> str:
    if not frame:
        return "nothing to send"
    offset, body_size = wire.unpack_header(frame[:TRANSFER_HEADER_SIZE])
    return f"a frame of {body_size} bytes at {offset}" if body_size else f"a heartbeat of {offset}"
