"""Contracts of reports, headers, file names and file offsets, in the model and in the implementation.

Each contract is a function: it returns early unless its preconditions hold; its assertions must hold for all arguments
(contracts.py).
"""

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.layout import MAX_FILE_SIZE, check_file_size, file_name
from rocketmq_ha.impl.store.log.log_writer import _base_of
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.reference import store, wire
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE

I64, I32 = 1 << 63, 1 << 31
GIB = 1 << 30

# --- Reports and headers: HA-W-1, HA-W-2, HA-W-6 -----------------------------------------------------------------------------


def a_report_is_8_bytes_and_refuses_what_is_no_i64(offset: int) -> None:
    assert True
    try:
        data = wire.pack_report(offset)
    except OverflowError:
        assert not -I64 <= offset < I64
    else:
        assert -I64 <= offset < I64
        assert len(data) == 8


def a_header_is_12_bytes_and_refuses_what_is_no_i64_and_i32(offset: int, body_size: int) -> None:
    assert True
    fits = -I64 <= offset < I64 and -I32 <= body_size < I32
    try:
        data = wire.pack_header(offset, body_size)
    except OverflowError:
        assert not fits
    else:
        assert fits
        assert len(data) == 12


def the_first_bit_of_a_report_is_its_sign(offset: int) -> None:
    assert -I64 <= offset < I64
    assert (wire.pack_report(offset)[0] >= 0x80) == (offset < 0)


def the_last_byte_of_a_report_is_its_lowest(offset: int) -> None:
    assert -I64 <= offset < I64
    assert wire.pack_report(offset)[7] == offset % 256


def the_body_size_of_a_header_is_read_as_it_was_written(body_size: int) -> None:
    assert -I32 <= body_size < I32
    assert wire.unpack_header(wire.pack_header(0, body_size)) == (0, body_size)


def a_report_is_read_as_it_was_written(offset: int) -> None:
    assert -I64 <= offset < I64
    assert wire.unpack_report(wire.pack_report(offset)) == offset


def both_pack_a_report_alike(offset: int) -> None:
    assert -I64 <= offset < I64
    assert REPORT.pack(offset) == wire.pack_report(offset)


def both_pack_a_header_alike(offset: int, body_size: int) -> None:
    assert -I64 <= offset < I64
    assert -I32 <= body_size < I32
    assert HEADER.pack(offset, body_size) == wire.pack_header(offset, body_size)


# --- Files: HA-ST-1, HA-ST-3, HA-ST-6, HA-W-4, HA-W-5 ------------------------------------------------------------------------


def replicated_bytes_open_the_file_of_their_offset(offset: int, file_size: int) -> None:
    assert offset >= 0
    assert file_size > 0
    base = store.append_data(Log(file_size), offset, b"x").base
    assert base is not None
    assert base % file_size == 0
    assert base <= offset < base + file_size


def the_file_of_an_offset_is_found_as_java_divides(offset: int) -> None:
    assert -I64 <= offset < I64
    base = _base_of(offset, GIB)
    assert base % GIB == 0
    assert abs(offset - base) < GIB
    assert base <= offset if offset >= 0 else base >= offset  # towards zero


def both_open_the_same_file_for_an_offset(offset: int, file_size: int) -> None:
    assert file_size > 0
    base = _base_of(offset, file_size)
    assert store.append_data(Log(file_size), offset, b"x").base == (base if base >= 0 else None)


def data_ends_with_the_limit_with_its_file_and_with_the_log(offset: int, limit: int) -> None:
    assert limit >= 0
    data = store.data_at(Log(12, 24, bytes(30)), offset, limit)
    assert len(data) <= limit
    assert bool(data) == (limit > 0 and 24 <= offset < 54)
    assert not data or offset // 12 == (offset + len(data) - 1) // 12


def every_file_size_up_to_what_java_counts_is_taken(file_size: int) -> None:
    assert END_FILE_MIN_BLANK_SIZE <= file_size <= MAX_FILE_SIZE
    check_file_size(file_size)


def no_other_file_size_is_taken(file_size: int) -> None:
    assert not END_FILE_MIN_BLANK_SIZE <= file_size <= MAX_FILE_SIZE
    try:
        check_file_size(file_size)
    except ConfigInvalid:
        return
    raise AssertionError(file_size)


def a_file_name_has_20_digits(base: int) -> None:
    assert 0 <= base < I64
    assert len(file_name(base)) == 20
