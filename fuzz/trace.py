"""Trace validation: check that the reference model could have produced a recorded link.

Both ends run as models. The model's master receives the slave's reports and must send each frame that the real one sent. The
model's slave receives these frames and must make each report that the real one made. The transcript decides what the model
leaves open, within limits:

    end of the master's log at a frame     a frame shorter than possible must end at the end of a record or a file
    time of a heartbeat or a report        an interval is taken to have passed; only the order is checked
    end of the slave's log on a lost link  its last report, or the end of a later whole frame; after a restart, what recovers

It refuses a byte that differs from the log, a gap, a frame across a file's end, a wrong start, a report of bytes not sent, and
a report in the wrong order, and names the link and the position.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.transcript import Piece, Restarted
from rocketmq_ha.reference import master, message, slave, store, wire
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

ROOM: Final = 1 << 40  # the model's sockets never block; real ones did where the transcript shows a split


class TraceRefusedError(FuzzError):
    """No run of the model produces this transcript."""


@dataclass(slots=True)
class Checked:
    """The counts of a checked transcript."""

    links: int = 0
    frames: int = 0
    heartbeats: int = 0
    reports: int = 0
    repeated_reports: int = 0  # reports of an offset reported before, made by the interval
    body_bytes: int = 0
    slave_max_offset: int = 0  # of the model's slave at the end
    slave_ack_offset: int = -1  # the last report


def record_ends(log: Log) -> frozenset[int]:
    """The possible max offsets after a put: the end of each record, and of each full file."""
    base, position, ends = log.base or 0, 0, {log.base or 0}
    while position < len(log.data):
        rest = log.file_size - position % log.file_size
        # A record is at most as long as a file, and never crosses a file's end.
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
    """One connection of the transcript, read up to some point."""

    number: int
    conn: MasterConnection
    from_master: bytearray
    from_slave: bytearray
    expected: list[int]  # reports of the model's slave that the transcript has not shown yet, in order
    last_report: int  # of the real slave on this connection; -1: none
    sent_bytes: int = 0  # bytes of complete frames


def check_transcript(
    transcript: Iterable[Piece | Restarted],
    master_log: Log,
    settings: Settings,
    master_profile: Profile,
    slave_profile: Profile,
    slave_log: Log | None = None,
) -> Checked:
    """Check a transcript against the model.

    Args: master_log: the master's log at the end, from its base on; it only grew.
          slave_log: the slave's log before; None: an empty store.
    Returns: the counts.
    Raises: TraceRefusedError, with the link, the byte in its direction, the model's behaviour and the recorded one.
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
        # Frames arrive one by one, none larger than a batch. So a buffer of two frames behaves like one of 4 MiB, but copies
        # less.
        self.settings = replace(settings, slave_read_buffer_size=2 * (settings.ha_transfer_batch_size + TRANSFER_HEADER_SIZE))
        self.master_log, self.ends = log, record_ends(log)
        self.master_profile = master_profile
        # One report for each frame. A slave that coalesces reports makes a subsequence of them.
        self.slave_profile = replace(slave_profile, coalesces_reports=False)
        self.may_skip = slave_profile.coalesces_reports
        self.slave = Slave(slave_log)
        self.link: _Link | None = None
        self.restarted = False
        self.acked = store.max_offset(slave_log)  # the slave has everything up to here
        self.frame_ends = [self.acked]  # it may have everything up to one of these
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
        """The size of the frame that is arriving, from its header; 0 while the header is incomplete."""
        if len(link.from_master) < TRANSFER_HEADER_SIZE:
            return 0
        offset, body_size = wire.unpack_header(bytes(link.from_master[:TRANSFER_HEADER_SIZE]))
        if not 0 <= body_size <= self.settings.ha_transfer_batch_size:
            self._refuse(
                link, f"a body of 0 to {self.settings.ha_transfer_batch_size} bytes", f"one of {body_size} at {offset}"
            )
        return TRANSFER_HEADER_SIZE + body_size

    def _frame(self, link: _Link, frame: bytes) -> None:
        """Check that the model's master sends this frame next, with a log that ends as the frame implies."""
        offset, body_size = wire.unpack_header(frame[:TRANSFER_HEADER_SIZE])
        expected = self._sent_by_model(link, offset, body_size)
        if expected != frame:
            self._refuse(link, _frame_text(expected), _frame_text(frame))
        link.sent_bytes += len(frame)
        self.checked.frames += 1
        self.checked.heartbeats += body_size == 0
        self.checked.body_bytes += body_size

    def _sent_by_model(self, link: _Link, offset: int, body_size: int) -> bytes:
        """The model's frame on a log that ends as the recorded frame implies. A full batch leaves the end open."""
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
        """Check that the received part of a frame equals the model's frame."""
        rest = bytes(link.from_master)
        if not rest:
            return
        next_offset = link.conn.next_transfer_from_where
        if next_offset == -1:
            return  # the first frame is checked when it is complete
        header = next_offset.to_bytes(8, "big", signed=True)
        if rest[:8] != header[: len(rest)]:
            self._refuse(link, f"a header of offset {next_offset}", rest[:8].hex())
        at = next_offset - store.min_offset(self.master_log)
        body = rest[TRANSFER_HEADER_SIZE:]
        if body != self.master_log.data[at : at + len(body)]:
            self._refuse(link, f"the log's bytes from {next_offset}", "others")

    # --- The slave's side ----------------------------------------------------------------------------------------------------

    def _to_slave(self, link: _Link, frame: bytes) -> None:
        """Give a frame to the model's slave; its reports are then expected."""
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
        """Check that the model's slave made this report or repeats the last one, and that the model's master accepts it."""
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
        """Check the first report: the slave has everything that passed; after a lost link, perhaps only a part of it.

        Several ends may give the same first report (HA-S-61). The largest is taken: missing bytes will be sent again.
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
        """Drop files before the last two: they are not read again, and each append copies the whole log."""
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
