"""The bytes of a recorded connection as steps of the model: its master's end and its slave's end, in the recorded
fragmentation.

Both ends run as models, as in trace.py. The recording decides what the model leaves open: when the master's log grew, when an
interval had passed, and, for a recording that begins in the middle, where both ends stood. A frame or a report that the model
would not send ends the run with the verdict divergence.

The master's log is unknown; each frame shows the piece of it that the frame needs. So bodies are not held against a log:
trace.py does that, where the log is there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from rocketmq_ha.reference import master, slave, store, wire
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Step, Transition, sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

ROOM: Final = 1 << 40  # the sockets took what was recorded
CHAIN: Final = 3  # frames behind each other that make a place in the stream a frame's begin

Source = Literal["master", "slave"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that one end sent, as one piece. passed: how many of them reached the other end."""

    source: Source
    data: bytes
    ts_ns: int  # since the begin of the recording
    passed: int = -1  # all

    @property
    def arrived(self) -> bytes:
        return self.data if self.passed < 0 else self.data[: self.passed]


@dataclass(frozen=True, slots=True)
class Recording:
    """One connection, from its begin or from its middle."""

    name: str
    chunks: tuple[Chunk, ...]
    has_begin: bool
    end: Literal["end_of_stream", "restart", ""]  # how it ended; empty: the recording ended first


@dataclass(frozen=True, slots=True)
class Row:
    op_index: int
    ts_ns: int
    transition: Transition


@dataclass(slots=True)
class LinkRows:
    """The rows of one connection, and what was wrong with it."""

    rows: list[Row] = field(default_factory=list)
    n_ops: int = 0
    nbytes: int = 0
    skipped: int = 0  # bytes before the first frame and report, in a recording that begins in the middle
    has_place: bool = True  # False: no frame or no report was found in it, so nothing can be said of it
    signature: str = ""
    detail: str = ""


class _Refused(Exception):  # noqa: N818
    """The model would not do what was recorded."""


def rows_of(recording: Recording, settings: Settings, profile: Profile) -> LinkRows:
    """Run both ends over a recording, as far as the model follows it."""
    run = _Run(recording, settings, profile)
    try:
        run.begin()
        if not run.found.has_place:
            return run.found
        for number, chunk in enumerate(recording.chunks):
            run.op_index, run.ts_ns = number, chunk.ts_ns
            if chunk.source == "master":
                run.from_master(chunk)
            else:
                run.from_slave(chunk)
            run.found.n_ops += 1
        run.end()
    except _Refused as refused:
        run.found.signature, run.found.detail = refused.args
        run.found.n_ops += 1
    return run.found


def frames_of(stream: bytes, most: int) -> int:
    """Where the first frame of a stream begins, which may begin in the middle of one. -1: nowhere."""
    for begin in range(len(stream) - TRANSFER_HEADER_SIZE + 1):
        at, expected = begin, None
        for _ in range(CHAIN):
            header = stream[at : at + TRANSFER_HEADER_SIZE]
            if len(header) < TRANSFER_HEADER_SIZE:
                break
            offset, size = wire.unpack_header(header)
            if offset < 0 or not 0 <= size <= most or (expected is not None and offset != expected):
                expected = None
                break
            at, expected = at + TRANSFER_HEADER_SIZE + size, offset + size
        # A single header whose frame goes beyond the end could be any bytes of a body.
        if expected is not None and (at <= len(stream) or at - begin > 2 * (TRANSFER_HEADER_SIZE + most)):
            return begin
    return -1


def reports_of(stream: bytes, low: int, high: int) -> int:
    """Where the first report of a stream begins: they only grow, and are near the frames. -1: nowhere."""
    for begin in range(REPORT_SIZE):
        values = [wire.unpack_report(stream[at : at + 8]) for at in range(begin, len(stream) - REPORT_SIZE + 1, REPORT_SIZE)]
        if values and values == sorted(values) and low <= values[0] and values[-1] <= high:
            return begin
    return -1


def file_size_of(first_offset: int, file_size: int) -> int:
    """The size of the master's files. A transfer to an empty slave begins at a file's start, which may rule `file_size` out."""
    return file_size if first_offset % file_size == 0 else first_offset


class _Run:
    def __init__(self, recording: Recording, settings: Settings, profile: Profile) -> None:
        streams = {source: _stream(recording.chunks, source) for source in ("master", "slave")}
        self.recording, self.found = recording, LinkRows()
        self.begins = {"master": 0, "slave": 0}
        if not recording.has_begin:
            self.begins = {"master": frames_of(streams["master"], settings.ha_transfer_batch_size), "slave": 0}
        self.stream = streams["master"]
        first = self._header(self.begins["master"]) if self.begins["master"] >= 0 else None
        self.first_offset = first[0] if first else 0
        if recording.has_begin and first and streams["slave"][:REPORT_SIZE] == bytes(REPORT_SIZE):
            settings = replace(settings, mapped_file_size=file_size_of(self.first_offset, settings.mapped_file_size))
        if not recording.has_begin:
            low = self.first_offset - (1 << 31)
            self.begins["slave"] = reports_of(streams["slave"], low, self.first_offset + len(self.stream))
        self.reports = streams["slave"][self.begins["slave"] :] if self.begins["slave"] >= 0 else b""
        self.settings = replace(settings, slave_read_buffer_size=2 * (settings.ha_transfer_batch_size + TRANSFER_HEADER_SIZE))
        # One report for each frame; a slave that coalesces reports makes a subsequence of them. Its log is not there.
        self.profile = profile
        self.slave_profile = replace(profile, coalesces_reports=False, checks_overlap=False, checks_file_size=False)
        self.at = {"master": 0, "slave": 0}  # bytes of each stream so far
        self.conn = MasterConnection(last_read_timestamp=0, last_write_timestamp=0)
        self.node = Slave(Log(self.settings.mapped_file_size))
        self.expected: list[int] = []
        self.last_report = -1
        self.report_bytes = b""
        self.op_index, self.ts_ns = 0, recording.chunks[0].ts_ns if recording.chunks else 0

    def begin(self) -> None:
        if self.recording.has_begin:
            step = master.on_accept(0)
            self.conn = step.state
            self._master_row("accept", self.conn, step, 0)
            return
        if self.begins["master"] < 0 or self.begins["slave"] < 0:
            self.found.has_place = False
            return
        self.found.skipped = self.begins["master"] + self.begins["slave"]
        first_report = wire.unpack_report(self.reports[:REPORT_SIZE])
        at = min(first_report, self.first_offset)
        self.conn = replace(
            self.conn, slave_request_offset=at, slave_ack_offset=at, start_offset=at, next_transfer_from_where=self.first_offset
        )
        log = Log(self.settings.mapped_file_size, self.first_offset)
        self.node = replace(self.node, log=log, connected=True, current_reported_offset=self.first_offset)
        self.last_report = at

    # --- The master's bytes --------------------------------------------------------------------------------------------------

    def from_master(self, chunk: Chunk) -> None:
        start = max(self.at["master"], self.begins["master"])
        end = self.at["master"] + len(chunk.data)
        arrives = chunk.arrived[max(0, start - self.at["master"]) :]
        self.at["master"] = end
        while start < end and (taken := self._send(start, end)):
            start += taken
        if arrives:
            self._arrive(arrives)

    def _send(self, start: int, end: int) -> int:
        """Let the model's master send what was recorded of a frame. Returns: the bytes; 0 where its header ends the stream."""
        conn = self.conn
        begin = start - master.taken(conn)
        header = self._header(begin)
        if header is None:
            return 0
        offset, size = header
        if not 0 <= size <= self.settings.ha_transfer_batch_size:
            most = self.settings.ha_transfer_batch_size
            raise _Refused("master_connection/transfer/body_size", f"the model has 0 to {most}, the recording {size}")
        whole = TRANSFER_HEADER_SIZE + size
        room = min(end, begin + whole) - start
        body = self.stream[begin + TRANSFER_HEADER_SIZE : begin + whole]
        # Of a body that the recording does not hold to its end, the rest is never sent.
        window = Log(self.settings.mapped_file_size, offset, body + bytes(size - len(body)))
        now_ms = conn.last_write_timestamp + (0 if size else self.settings.ha_send_heartbeat_interval_ms + 1)
        step = master.on_transfer(conn, window, room, now_ms, self.settings)
        if sent(step) != self.stream[start : start + room]:
            model = self._header_text(sent(step)[:TRANSFER_HEADER_SIZE]) if begin == start else "other bytes"
            raise _Refused("master_connection/transfer/frame", f"the model has {model}, the recording {size} bytes at {offset}")
        self.conn = step.state
        self._master_row("transfer", conn, step, room)
        return room

    def _arrive(self, data: bytes) -> None:
        before = self.node
        if not before.connected:
            raise _Refused("slave_client/frames/connected", "the model's slave has closed, in the recording it gets frames")
        step = slave.on_frames(before, data, ROOM, 0, self.settings, self.slave_profile)
        self.node = step.state
        self.expected += _values(sent(step))
        self._slave_row("frames", before, step, len(data))
        self.found.nbytes += len(data)
        end = store.max_offset(self.node.log)
        if self.node.log.base is not None:  # what it holds is not read again, and each append copies it
            self.node = replace(self.node, log=Log(self.node.log.file_size, end))

    def _header(self, begin: int) -> tuple[int, int] | None:
        header = self.stream[begin : begin + TRANSFER_HEADER_SIZE]
        return wire.unpack_header(header) if len(header) == TRANSFER_HEADER_SIZE else None

    def _header_text(self, header: bytes) -> str:
        if len(header) < TRANSFER_HEADER_SIZE:
            return "nothing to send" if not header else "the begin of another frame"
        offset, size = wire.unpack_header(header)
        return f"{size} bytes at {offset}"

    # --- The slave's bytes ---------------------------------------------------------------------------------------------------

    def from_slave(self, chunk: Chunk) -> None:
        skip = max(0, self.begins["slave"] - self.at["slave"])
        self.at["slave"] += len(chunk.data)
        self.report_bytes += chunk.data[skip:]
        while len(self.report_bytes) >= REPORT_SIZE:
            report = wire.unpack_report(self.report_bytes[:REPORT_SIZE])
            self.report_bytes = self.report_bytes[REPORT_SIZE:]
            self._report(report)
        if data := chunk.arrived[skip:]:
            conn = self.conn
            log = Log(self.settings.mapped_file_size, max(0, self.last_report))
            step = master.on_reports(conn, data, log, 0, self.settings, self.profile)
            self.conn = step.state
            self._master_row("reports", conn, step, len(data))
            self.found.nbytes += len(data)
            if self.conn.close_reason:
                told = f"the model's master closes ({self.conn.close_reason}), in the recording it takes {self.last_report}"
                raise _Refused("master_connection/reports/close_reason", told)

    def _report(self, report: int) -> None:
        if self.last_report == -1:
            self._connect(report)
        elif report in (self.expected if self.profile.coalesces_reports else self.expected[:1]):
            del self.expected[: self.expected.index(report) + 1]
        elif report == self.last_report:
            self._tick()
        elif not (not self.recording.has_begin and self.last_report <= report <= self.first_offset):
            expected = (self.expected or [self.last_report])[0]
            raise _Refused("slave_client/frames/report", f"the model reports {expected}, the recording {report}")
        self.last_report = report

    def _connect(self, report: int) -> None:
        before = Slave(Log(self.settings.mapped_file_size, report if report else None))
        step = slave.on_connect(before, ROOM, 0, self.slave_profile)
        self.node = step.state
        self._slave_row("connect", before, step, 0)
        if not sent(step):
            self._tick()

    def _tick(self) -> None:
        """The slave reports because its interval has passed."""
        before = self.node
        now_ms = before.last_write_timestamp + self.settings.ha_send_heartbeat_interval_ms + 1
        if not before.connected:
            raise _Refused("slave_client/tick/connected", "the model's slave has closed, in the recording it reports")
        # Only the report: whether the master is silent is a matter of real time.
        step = slave.on_tick(replace(before, last_read_timestamp=now_ms), ROOM, now_ms, self.settings, self.slave_profile)
        self.node = step.state
        self._slave_row("tick", before, step, 0)

    # --- The end, and rows ---------------------------------------------------------------------------------------------------

    def end(self) -> None:
        if not self.recording.end:
            return
        self.op_index += 1
        self.found.n_ops += 1
        if not self.conn.close_reason:
            conn, at_master = self.conn, master.on_end_of_stream(self.conn)
            self.conn = at_master.state
            self._master_row("end_of_stream", conn, at_master, 0)
        if self.node.connected:
            before = self.node
            is_restart = self.recording.end == "restart"
            at_slave = slave.on_restart(before, self.slave_profile) if is_restart else slave.on_end_of_stream(before)
            self.node = at_slave.state
            self._slave_row(self.recording.end, before, at_slave, 0)

    def _master_row(self, event: str, before: MasterConnection, step: Step[MasterConnection], nbytes: int) -> None:
        conn, is_reports = step.state, event == "reports"
        of_report = len(conn.byte_buffer_read) - conn.process_position
        offset = conn.slave_ack_offset if is_reports else conn.next_transfer_from_where
        split_at = of_report if is_reports else master.taken(conn)
        states = master.classify(before).value, master.classify(conn).value
        self._row("master_connection", event, states, offset, (nbytes, nbytes), split_at, step.clauses)

    def _slave_row(self, event: str, before: Slave, step: Step[Slave], nbytes: int) -> None:
        node = step.state
        states = slave.classify(before).value, slave.classify(node).value
        amount = nbytes or len(sent(step))
        end = store.max_offset(node.log)
        self._row("slave_client", event, states, end, (amount, nbytes), len(slave.unparsed(node)), step.clauses)

    def _row(
        self,
        actor: str,
        event: str,
        states: tuple[str, str],
        offset: int,
        nbytes: tuple[int, int],
        split_at: int,
        clauses: Iterable[str],
    ) -> None:
        amount, moved = nbytes
        row = Transition(actor, 0, event, *states, offset, amount, moved or -1, split_at, tuple(clauses))
        self.found.rows.append(Row(self.op_index, self.ts_ns, row))


def _stream(chunks: Sequence[Chunk], source: str) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.source == source)


def _values(data: bytes) -> list[int]:
    return [wire.unpack_report(data[at : at + REPORT_SIZE]) for at in range(0, len(data), REPORT_SIZE)]
