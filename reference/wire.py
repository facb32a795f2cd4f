"""Reports and transfer frames as bytes, by arithmetic on single integers.

    report            8 bytes = i64 max physical offset
    transfer header  12 bytes = i64 physical offset, i32 body size

Spec: HA-W-6 "Every integer on the wire MUST be big-endian, two's complement and signed".

>>> pack_report(1).hex()
'0000000000000001'
>>> pack_header(0x1122, 5).hex()
'000000000000112200000005'
>>> unpack_header(pack_header(-1, -4))
(-1, -4)
"""

from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE


def pack_report(offset: int) -> bytes:
    """8 bytes; `offset` is an i64. HA-W-1 "the slave's max physical offset, as a signed 64-bit integer"."""
    return offset.to_bytes(REPORT_SIZE, "big", signed=True)


def unpack_report(data: bytes) -> int:
    """The offset of an 8-byte report, negative ones included: nothing on the wire forbids them."""
    assert len(data) == REPORT_SIZE
    return int.from_bytes(data, "big", signed=True)


def pack_header(offset: int, body_size: int) -> bytes:
    """12 bytes; `offset` is an i64, `body_size` an i32.

    Spec: HA-W-2 "the physical offset of its body as a signed 64-bit integer and the size of its body as a signed 32-bit
    integer".
    """
    return offset.to_bytes(8, "big", signed=True) + body_size.to_bytes(4, "big", signed=True)


def unpack_header(data: bytes) -> tuple[int, int]:
    """(offset, body_size) of a 12-byte header."""
    assert len(data) == TRANSFER_HEADER_SIZE
    return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:], "big", signed=True)
