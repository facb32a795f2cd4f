"""Contracts of the offset and time arithmetic of both ends of a connection, in the model and in the implementation.

Each contract is a function: it returns early unless its preconditions hold; its assertions must hold for all arguments
(contracts.py).
"""

from collections.abc import Sequence

from rocketmq_ha.impl.errors import FileSizeDiffers, PeerViolation
from rocketmq_ha.impl.ha import master as impl_master
from rocketmq_ha.impl.ha import slave as impl_slave
from rocketmq_ha.reference import group_transfer, master, slave, store
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

GIB = 1 << 30
SETTINGS = Settings(GIB, master_read_buffer_size=16)
LARGEST_BODY = SETTINGS.slave_read_buffer_size - 12


class Offsets:
    """A commit log reduced to its offsets."""

    def __init__(self, min_offset: int, max_offset: int, file_size: int = GIB) -> None:
        self.min_offset, self.max_offset, self.file_size = min_offset, max_offset, file_size

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        raise AssertionError(offset, limit)

    def append_data(self, offset: int, buffers: Sequence[memoryview]) -> None:
        raise AssertionError(offset, buffers)

    def count_as_written(self, offset: int, size: int) -> None:
        raise AssertionError(offset, size)

    def adopt_file_size(self, file_size: int) -> None:
        raise AssertionError(file_size)


# --- Where the transfer starts: HA-M-4, HA-M-5 -------------------------------------------------------------------------------


def request_0_starts_at_the_last_file(max_offset: int, file_size: int) -> None:
    assert max_offset >= 0
    assert file_size > 0
    conn = MasterConnection(0, 0, slave_request_offset=0, slave_ack_offset=0)
    start = master.on_transfer(conn, Log(file_size, max_offset, b""), 0, 0, Settings(file_size)).state.next_transfer_from_where
    assert start % file_size == 0
    assert start <= max_offset < start + file_size


def any_other_request_is_where_the_transfer_starts(max_offset: int, request: int) -> None:
    assert max_offset >= 0
    assert request != 0
    assert request != -1
    conn = MasterConnection(0, 0, slave_request_offset=request, slave_ack_offset=request)
    assert master.on_transfer(conn, Log(GIB, max_offset, b""), 0, 0, SETTINGS).state.next_transfer_from_where == request


def both_start_the_transfer_at_the_same_offset(max_offset: int, request: int, file_size: int) -> None:
    assert max_offset >= 0
    assert request != -1
    assert file_size > 0
    settings = Settings(file_size)
    conn = MasterConnection(0, 0, slave_request_offset=request, slave_ack_offset=request)
    start = master.on_transfer(conn, Log(file_size, max_offset, b""), 0, 0, settings).state.next_transfer_from_where
    ours = impl_master.MasterConnection("", Offsets(0, max_offset, file_size), 0, settings, HARDENED)
    ours.slave_request_offset = request
    ours._start()
    assert ours.next_transfer_from_where == start


# --- Frames: HA-M-6, HA-M-7 --------------------------------------------------------------------------------------------------


def a_frame_advances_the_transfer_by_its_body(offset: int, size: int) -> None:
    assert 0 <= offset < 1 << 62
    assert size in (0, 1, 5)
    conn = master.build_frame(MasterConnection(0, 0), offset, bytes(size) if size else None)
    assert conn.next_transfer_from_where == offset + size
    assert master.taken(conn) == 0
    assert master.sent_offset(conn) == offset


def the_socket_takes_a_heartbeat_from_its_first_byte_on(room: int) -> None:
    assert 0 <= room <= 13
    after, data = master.transfer_data(master.build_frame(MasterConnection(0, 0), 7, None), room, 1)
    assert len(data) == min(room, 12)
    assert after.last_write_over == (room >= 12)
    assert len(after.byte_buffer_header) == 12 - len(data)


def the_socket_takes_the_body_behind_the_header(room: int) -> None:
    assert 0 <= room <= 4
    pending = replace(master.build_frame(MasterConnection(0, 0), 7, b"12"), byte_buffer_header=b"h")
    after, data = master.transfer_data(pending, room, 1)
    assert data == b"h12"[:room]
    assert after.last_write_over == (room >= 3)
    assert master.taken(after) == (0 if room >= 3 else 11 + room)


# --- Reports: HA-M-2, HA-M-10, HA-M-11, HA-M-12 ------------------------------------------------------------------------------


def what_is_used_of_the_read_buffer_is_whole_reports(position: int, nbytes: int) -> None:
    assert 0 <= position < 8
    assert 0 < nbytes <= 9
    conn = MasterConnection(0, 0, byte_buffer_read=bytes(8)[:position])
    after = master.on_reports(conn, bytes(9)[:nbytes], Log(GIB), 0, SETTINGS, CLASSIC).state
    assert after.process_position % 8 == 0
    assert 0 <= len(after.byte_buffer_read) - after.process_position < 8


def a_read_buffer_that_is_full_is_begun_again(nbytes: int) -> None:
    assert 0 < nbytes < 8
    conn = MasterConnection(0, 0, byte_buffer_read=bytes(16), process_position=16)
    after = master.on_reports(conn, bytes(8)[:nbytes], Log(GIB), 0, SETTINGS, CLASSIC).state
    assert (len(after.byte_buffer_read), after.process_position) == (nbytes, 0)


def a_first_report_that_is_taken_is_0_or_within_the_log(min_offset: int, length: int, report: int) -> None:
    assert min_offset >= 0
    assert length in (0, 3)
    log = Log(GIB, min_offset, bytes(length))
    if not master.check_report(MasterConnection(0, 0), report, log):
        assert report == 0 or min_offset <= report <= min_offset + length


def a_later_report_that_is_taken_neither_falls_nor_exceeds_what_was_sent(ack: int, sent: int, report: int) -> None:
    assert ack >= 0
    assert sent >= 0
    conn = MasterConnection(0, 0, slave_request_offset=0, slave_ack_offset=ack, next_transfer_from_where=sent)
    if not master.check_report(conn, report, Log(GIB)):
        assert ack <= report <= max(ack, sent)


def a_report_that_the_model_takes_is_taken(
    min_offset: int, length: int, request: int, ack: int, sent: int, report: int
) -> None:
    assert min_offset >= 0
    assert length in (0, 3)
    assert request == -1 or (request >= 0 and ack >= 0 and sent >= 0)
    conn = MasterConnection(0, 0, b"", 0, request, ack, sent)
    if master.check_report(conn, report, Log(GIB, min_offset, bytes(length))):
        return
    ours = impl_master.MasterConnection("", Offsets(min_offset, min_offset + length), 0, SETTINGS, HARDENED)
    ours.slave_request_offset, ours.slave_ack_offset, ours.sent_offset = request, ack, sent
    ours._check_report(report)


def a_report_that_the_model_refuses_is_refused(ack: int, sent: int, report: int) -> None:
    assert ack >= 0
    assert sent >= 0
    conn = MasterConnection(0, 0, b"", 0, 0, ack, sent)
    if not master.check_report(conn, report, Log(GIB)):
        return
    ours = impl_master.MasterConnection("", Offsets(0, 0), 0, SETTINGS, HARDENED)
    ours.slave_request_offset, ours.slave_ack_offset, ours.sent_offset = 0, ack, sent
    try:
        ours._check_report(report)
    except PeerViolation:
        return
    raise AssertionError(report)


# --- Frames at the slave: HA-S-11 --------------------------------------------------------------------------------------------


def _is_taken(max_offset: int, offset: int, body_size: int, file_size: int = GIB) -> bool:
    """Return True if the model's hardened slave accepts a frame at its own max offset, with files of a given size."""
    log = Log(file_size, max_offset, b"")
    is_legal = not slave.check_end_of_file(log, offset) and not slave.check_frame(log, offset, body_size, Settings(file_size))
    return is_legal and slave.ends_in_its_file(log, offset, body_size)


def a_frame_that_is_taken_fits_the_buffer_and_lies_in_one_file(
    max_offset: int, offset: int, body_size: int, file_size: int
) -> None:
    assert max_offset in (0, offset)
    assert file_size > 0
    if _is_taken(max_offset, offset, body_size, file_size):
        assert 0 <= body_size <= LARGEST_BODY
        assert offset >= 0
        assert offset % file_size + body_size <= file_size
        assert max_offset != 0 or offset % file_size == 0


def _check(max_offset: int, offset: int, body_size: int) -> None:
    """What the implementation's hardened slave looks at."""
    client = impl_slave.SlaveClient("", Offsets(0, max_offset), SETTINGS, HARDENED)
    client._check_end_of_file(offset)
    client._check_frame(offset, body_size, max_offset)


def a_frame_that_the_model_takes_is_taken(max_offset: int, offset: int, body_size: int) -> None:
    assert max_offset in (0, offset)
    assert _is_taken(max_offset, offset, body_size)
    _check(max_offset, offset, body_size)


def a_frame_that_the_model_refuses_is_refused(max_offset: int, offset: int, body_size: int) -> None:
    assert max_offset in (0, offset)
    assert not _is_taken(max_offset, offset, body_size)
    try:
        _check(max_offset, offset, body_size)
    except (
        PeerViolation,
        FileSizeDiffers,
    ):  # HA-S-90: a frame that crosses a file's end may mean that the master's files are longer
        return
    raise AssertionError(offset, body_size)


# --- Time and lag: HA-T-1, HA-M-9, HA-S-2, HA-S-12, HA-G-3 -------------------------------------------------------------------


def a_master_closes_after_more_than_the_interval(now_ms: int, read_ms: int) -> None:
    assert True
    closes = bool(master.on_tick(MasterConnection(read_ms, 0), now_ms, SETTINGS).state.close_reason)
    assert closes == (now_ms - read_ms > 20_000)
    ours = impl_master.MasterConnection("", Offsets(0, 0), read_ms, SETTINGS, HARDENED)
    assert ours.on_tick(now_ms) == closes


def a_slave_reports_after_more_than_the_interval(now_ms: int, write_ms: int, read_ms: int) -> None:
    assert now_ms - read_ms <= 20_000
    client = Slave(Log(GIB), True, 0, write_ms, read_ms)
    assert bool(slave.on_tick(client, 8, now_ms, SETTINGS, HARDENED).outputs) == (now_ms - write_ms > 5_000)


def a_slave_notices_silence_after_more_than_the_interval(now_ms: int, read_ms: int) -> None:
    assert True
    client = Slave(Log(GIB), True, 0, now_ms, read_ms)
    closes = not slave.on_tick(client, 8, now_ms, SETTINGS, HARDENED).state.connected
    assert closes == (now_ms - read_ms > 20_000)
    ours = impl_slave.SlaveClient("", Offsets(0, 0), SETTINGS, HARDENED)
    ours.last_read_timestamp = read_ms
    assert ours.is_master_silent(now_ms) == closes


def a_put_waits_for_a_slave_that_is_near_enough(slaves: int, next_offset: int, push2: int) -> None:
    assert slaves >= 0
    near = group_transfer.is_slave_ok(slaves, next_offset, push2, SETTINGS)
    assert near == (slaves > 0 and next_offset < push2 + 256 * 1024 * 1024)


def an_offset_outside_the_log_has_no_data(base: int, offset: int) -> None:
    assert base >= 0
    assert not base <= offset < base + 3
    assert store.data_at(Log(GIB, base, bytes(3)), offset, 100) == b""
