"""What the checks of a record see: a change of any byte is noticed, or it is in one of the fields that have no check.

The fields without a check are listed here, as "What recovery looks at" of chapter 5 lists them. HA-ST-2, HA-ST-4, HA-ST-15.
"""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.variant_tables import VARIANTS
from kit.variants import V1, V2, Variant, log_of, name_of
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.store.derived.dispatch_request import Read, read_handed
from rocketmq_ha.impl.store.log.scan import scan
from rocketmq_ha.impl.wire.batch import HandedFields
from rocketmq_ha.impl.wire.message import decode, encode
from rocketmq_ha.impl.wire.message_id import message_id
from rocketmq_ha.reference import message

OFFSET = 0x0102030405060708
SMALL = [variant for variant in VARIANTS if variant.size < 300]


def without_check(variant: Variant) -> set[int]:
    """The positions of bytes that may change unseen, but for the bits of sysFlag that say how long a host is."""
    topic, end = variant.topic_position, variant.size
    properties = end - len(variant.properties)
    return set(
        chain(
            range(12, 16),  # queue id
            range(16, 20),  # flag
            range(20, 28),  # queue offset
            range(36, 40),  # sysFlag
            range(40, 48),  # born timestamp
            range(48, variant.body_position - 16),  # hosts, and the store timestamp between them
            range(variant.body_position - 16, variant.body_position - 4),  # reconsume times, prepared transaction offset
            range(topic, topic + len(variant.topic)),
            range(properties, end),
        )
    )


def is_whole(record: bytes) -> bool:
    try:
        decode(record)
    except MessageMalformed:
        return False
    return True


def changes(variant: Variant) -> list[tuple[int, int]]:
    """Positions, and what is changed there: two bits of each byte, every bit of sysFlag."""
    return [
        (at, mask)
        for at in range(variant.size)
        for mask in ((1, 128) if at not in range(36, 40) else (1 << bit for bit in range(8)))
    ]


@pytest.mark.parametrize("variant", SMALL, ids=name_of)
def test_a_changed_byte_is_noticed_or_has_no_check(variant: Variant) -> None:
    record = variant.record(OFFSET, 5)
    unseen = without_check(variant)
    for at, mask in changes(variant):
        changed = bytearray(record)
        changed[at] ^= mask
        data = bytes(changed)
        whole = is_whole(data)
        is_offset, is_crc, is_body = (
            at in range(28, 36),
            at in range(8, 12),
            0 <= at - variant.body_position < len(variant.body),
        )
        says_host_size = at == 39 and mask in (0x10, 0x20)
        assert whole == ((at in unseen and not says_host_size) or is_offset), (at, mask)
        assert (message.decode(data) is not None) == whole, (at, mask)  # the model's checks
        found = scan(data + bytes(40), OFFSET)  # the place is a check too
        is_found = whole and not is_offset
        assert found.messages == is_found, (at, mask)
        # Behind one that is like it, which a walk compares with.
        before = variant.record(OFFSET - variant.size)
        assert scan(before + data, OFFSET - variant.size).messages == 1 + is_found, (at, mask)
        handed: list[HandedFields] = []
        end, why = read_handed(memoryview(data), OFFSET, variant.size, OFFSET + variant.size, 9, handed)
        # The dispatch does not look at the CRC (quirk 29).
        is_dispatched = (whole and not is_offset) or is_crc or is_body
        assert (len(handed), end - OFFSET) == ((1, variant.size) if is_dispatched else (0, 0)), (at, mask)
        assert is_dispatched == (why is Read.BOUND)


@pytest.mark.parametrize("variant", (SMALL[0], SMALL[2], SMALL[4]), ids=name_of)
def test_a_changed_byte_is_noticed_among_many_records_alike(variant: Variant) -> None:
    """Records alike are compared many at a time (uniform_run.py): one of 150 is changed."""
    count, number = 150, 60
    place = number * variant.size
    log = bytearray(log_of([variant] * count, OFFSET))
    unseen = without_check(variant)
    for at, mask in changes(variant):
        log[place + at] ^= mask
        is_found = at in unseen and not (at == 39 and mask in (0x10, 0x20))
        assert scan(log, OFFSET).messages == (count if is_found else number), (at, mask)
        log[place + at] ^= mask


i32, i64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
ANY = st.builds(
    Variant,
    st.just("any"),
    st.binary(min_size=1, max_size=127),
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.sampled_from((V1, V2)),
    i32,
    i32,
    i32,
    i64,
    i32,
    i64,
)


@given(ANY, i64.filter(lambda offset: offset >= 0), i64.filter(lambda offset: offset >= 0))
@settings(deadline=None, max_examples=60)
def test_every_message_has_the_bytes_of_the_figure(variant: Variant, offset: int, queue_offset: int) -> None:
    """And they are read as that message by decode, by the model, by recovery's walk and by the dispatch."""
    record = variant.record(offset, queue_offset)
    assert encode(variant.message(), queue_offset, offset) == record
    read = decode(record)
    assert (read.topic_bytes, read.properties_bytes, read.born_host, read.store_host) == (
        *(variant.topic, variant.properties),
        *(variant.born_host, variant.store_host),
    )
    assert encode(read) == record
    found = message.decode(record)
    assert found is not None and found[1] == variant.size
    if variant.magic == V1:
        assert message.encode(found[0]) == record
    assert scan(record, offset).messages == 1
    handed: list[HandedFields] = []
    read_handed(memoryview(record), offset, variant.size, offset + 1, 1, handed)
    assert handed[0][:5] == (variant.topic, variant.queue_id, offset, variant.size, variant.properties)
    assert handed[0][6:] == (queue_offset, variant.sys_flag, variant.prepared_transaction_offset)


@pytest.mark.parametrize(
    ("host", "offset", "expected"),
    [
        (("10.9.8.7", 10911), 0, "0A090807" "00002A9F" "0000000000000000"),
        (("255.0.0.1", 2**31 - 1), 2**63 - 1, "FF000001" "7FFFFFFF" "7FFFFFFFFFFFFFFF"),
        (("2001:db8::9", 10912), 0xABC, "20010DB8000000000000000000000009" "00002AA0" "0000000000000ABC"),
        (("::ffff:1.2.3.4", 1), 1, "00000000000000000000FFFF01020304" "00000001" "0000000000000001"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_message_id_has_the_host_and_the_offset(host: tuple[str, int], offset: int, expected: str) -> None:
    """32 digits, or 56 with an IPv6 host."""
    assert message_id(host, offset) == expected
