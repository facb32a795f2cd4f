"""The record codec loses no field, and checks every byte that it can. HA-ST-2, HA-ST-4."""

import ipaddress
import struct
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.messages import EVERY_FIELD
from rocketmq_ha.impl.errors import MessageIllegal, MessageMalformed
from rocketmq_ha.impl.store.log.scan import Stop, scan
from rocketmq_ha.impl.wire.message import Message, decode, decompress_body, encode, read_header
from rocketmq_ha.impl.wire.properties import format_properties, parse_properties
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
# Any bytes as text: bytes that are no UTF-8 pass by surrogateescape.
any_text = st.binary(max_size=120).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
topics = st.one_of(
    st.from_regex(r"[%|a-zA-Z0-9_-]{1,100}", fullmatch=True),
    st.binary(min_size=1, max_size=127).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
ipv4 = st.integers(0, 2**32 - 1).map(lambda number: str(ipaddress.IPv4Address(number)))
ipv6 = st.integers(0, 2**128 - 1).map(lambda number: str(ipaddress.IPv6Address(number)))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    sys_flag = draw(i32) & ~0x30 | (0x10 if born_v6 else 0) | (0x20 if store_v6 else 0)
    return Message(
        topic=draw(topics),
        body=draw(st.binary(max_size=300)),
        queue_id=draw(i32),
        flag=draw(i32),
        queue_offset=draw(i64),
        physical_offset=draw(i64),
        sys_flag=sys_flag,
        born_timestamp=draw(i64),
        born_host=(draw(ipv6 if born_v6 else ipv4), draw(i32)),
        store_timestamp=draw(i64),
        store_host=(draw(ipv6 if store_v6 else ipv4), draw(i32)),
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
        properties_string=draw(any_text),
        magic=draw(st.sampled_from([MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2])),
    )


def is_whole(buffer: bytes, position: int = 0) -> bool:
    try:
        decode(buffer, position)
    except MessageMalformed:
        return False
    return True


@given(messages(), st.binary(max_size=20), st.binary(max_size=20))
@settings(deadline=None)
def test_decode_inverts_encode_wherever_the_record_stands(message: Message, before: bytes, behind: bytes) -> None:
    record = encode(message)
    decoded = decode(memoryview(before + record + behind), len(before))
    # An IPv6 address has many spellings; the bytes have one.
    assert encode(decoded) == record
    assert (decoded.topic, decoded.body, decoded.properties_string) == (
        message.topic,
        message.body,
        message.properties_string,
    )
    assert read_header(record) == (len(record), message.magic)
    assert decode(encode(decoded)) == decoded


@given(messages(), i64, i64)
@settings(deadline=None)
def test_a_put_fixes_both_offsets_and_nothing_else(message: Message, queue_offset: int, physical_offset: int) -> None:
    before, after = encode(message), encode(message, queue_offset, physical_offset)
    assert after[20:36] == struct.pack(">qq", queue_offset, physical_offset)
    assert (after[:20], after[36:]) == (before[:20], before[36:])


def test_fields_stand_where_rocketmq_puts_them() -> None:
    """Positions as 4.9.8 writes them, spelled out by hand."""
    properties = EVERY_FIELD.properties_string.encode()
    expected = b"".join(
        (
            struct.pack(">iIIii", 91 + 5 + 6 + len(properties), 0xDAA320A7, zlib.crc32(b"hello") & 0x7FFFFFFF, 11, 14),
            struct.pack(">qqiq", 12, 13, 8, 1_700_000_000_015),
            bytes((10, 0, 0, 16)) + struct.pack(">i", 17),
            struct.pack(">q", 1_700_000_001_018),
            bytes((10, 0, 0, 19)) + struct.pack(">i", 20),
            struct.pack(">iqi", 21, 22, 5) + b"hello",
            b"\x06orders",
            struct.pack(">h", len(properties)) + properties,
        )
    )
    assert encode(EVERY_FIELD) == expected
    assert decode(expected) == EVERY_FIELD
    assert EVERY_FIELD.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
    assert EVERY_FIELD.properties == {"KEYS": "k1  k2", "TAGS": "a", "other": "b"}


def test_crc_loses_its_top_bit() -> None:
    """HA-ST-4 "without its highest bit"."""
    body = next(body for n in range(99) if zlib.crc32(body := bytes([n])) >> 31)
    assert decode(encode(Message("t", body))).body_crc == zlib.crc32(body) - 2**31


def test_ipv6_hosts_make_a_record_twelve_bytes_longer_each() -> None:
    """HA-ST-14 "MUST take 8 bytes, or 20 where its bit of sysFlag"."""
    plain = len(encode(Message("t", b"")))
    born = encode(Message("t", b"", sys_flag=0x10, born_host=("2001:db8::1", 1)))
    both = encode(Message("t", b"", sys_flag=0x30, born_host=("::1", 1), store_host=("::ffff:1.2.3.4", 2)))
    assert (len(born) - plain, len(both) - plain) == (12, 24)
    assert decode(born).born_host == ("2001:db8::1", 1)
    assert decode(both).store_host == ("::ffff:1.2.3.4", 2)


def test_v2_has_a_topic_length_of_two_bytes() -> None:
    record = encode(Message("t" * 300, b"x", magic=MESSAGE_MAGIC_CODE_V2))
    assert len(record) == 92 + 300 + 1
    assert decode(record).topic == "t" * 300


@pytest.mark.parametrize(
    "message",
    [
        Message("t" * 127, b""),
        Message("é" * 63, b""),
        Message("t", b"", properties_string="p" * 32767),
        Message("t", bytes(4 << 20)),
    ],
)
def test_the_limits_themselves_are_legal(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("", b""), "topic"),
        (Message("t" * 128, b""), "topic"),
        (Message("é" * 64, b""), "topic"),
        (Message("\ud800", b""), "topic"),
        (Message("t", b"", properties_string="p" * 32768), "properties"),
        (Message("t", b"", properties_string="\ud800"), "properties"),
        (Message("t", bytes((4 << 20) + 1)), "body"),
        (Message("t", b"", magic=0xCBD43194), "magic"),
        (Message("t", b"", born_host=("::1", 1)), "born host"),
        (Message("t", b"", sys_flag=0x20, store_host=("1.2.3.4", 1)), "store host"),
        (Message("t", b"", store_host=("broker.example", 1)), "store host"),
        (Message("t", b"", store_host=("1.2.3.4\0", 1)), "store host"),
        (Message("t", b"", store_host=("1.2.3.4", 1 << 31)), "store host"),
        (Message("t", b"", queue_id=1 << 31), "integer field"),
        (Message("t", b"", store_timestamp=1 << 63), "integer field"),
        (Message("t", b"", reconsume_times=-(1 << 31) - 1), "integer field"),
    ],
)
def test_what_no_record_holds_is_refused_by_name(message: Message, field: str) -> None:
    with pytest.raises(MessageIllegal) as refused:
        encode(message)
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


def test_a_broker_with_a_larger_max_message_size_can_be_served() -> None:
    message = Message("t", bytes((4 << 20) + 1))
    assert decode(encode(message, max_body_size=8 << 20)) == message


@given(messages(), st.data())
@settings(deadline=None)
def test_one_flipped_bit_in_what_is_checked_never_decodes(message: Message, data: st.DataObject) -> None:
    """Size, magic, CRC and body. The lengths of body, topic and properties are covered by their sum."""
    record = bytearray(encode(message))
    body_end = 88 + (12 if message.sys_flag & 0x10 else 0) + (12 if message.sys_flag & 0x20 else 0) + len(message.body)
    checked = [*range(12), *range(body_end - len(message.body), body_end)]
    record[data.draw(st.sampled_from(checked))] ^= 1 << data.draw(st.integers(0, 7))
    assert not is_whole(bytes(record) + bytes(512))


@given(messages(), st.data())
@settings(deadline=None)
def test_no_part_of_a_record_decodes(message: Message, data: st.DataObject) -> None:
    record = encode(message)
    with pytest.raises(MessageMalformed):
        decode(record[: data.draw(st.integers(0, len(record) - 1))])


@given(st.binary(max_size=200), st.integers(0, 210))
@settings(deadline=None)
def test_noise_raises_the_named_error_alone(noise: bytes, position: int) -> None:
    assert not is_whole(noise, position)


@given(messages(), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4), st.integers(0, 40))
@example(Message("t", b"", sys_flag=0), [(87, 255)], 0)
@example(Message("t", b"b" * 20), [(3, 92)], 0)
@settings(deadline=None, max_examples=400)
def test_the_fast_walk_and_decode_agree_on_every_mutant(message: Message, changes: list[tuple[int, int]], behind: int) -> None:
    """scan repeats the checks of decode, for speed; it must accept exactly the records that decode accepts."""
    record = bytearray(encode(message, physical_offset=4096) + bytes(behind))
    for position, value in changes:
        record[position % len(record)] = value
    whole = is_whole(bytes(record)) and decode(record).physical_offset == 4096
    found = scan(record, 4096, 0, 1)
    assert (found.messages == 1) == whole
    if whole:
        assert found.position == read_header(record)[0]
    else:
        assert found.position == 0 or found.stop is Stop.FULL


def test_a_compressed_body_comes_back_as_the_producer_had_it() -> None:
    body = b"RocketMQ " * 1000
    message = decode(encode(Message("t", zlib.compress(body, 5), sys_flag=1)))
    assert decompress_body(message) == body
    assert decompress_body(Message("t", body)) == body
    assert decompress_body(Message("t", zlib.compress(body), sys_flag=0x301)) == body


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (Message("t", b"plain", sys_flag=1), "header"),
        (Message("t", zlib.compress(b"x" * 999)[:-5], sys_flag=1), "ends early"),
        (Message("t", b"", sys_flag=1), "ends early"),
        (Message("t", zlib.compress(bytes(1 << 20)), sys_flag=1), "more than 1024"),
        (Message("t", b"x", sys_flag=0x101), "LZ4"),
        (Message("t", b"x", sys_flag=0x201), "ZSTD"),
        (Message("t", b"x", sys_flag=0x701), "unknown"),
    ],
)
def test_a_body_that_cannot_be_decompressed_says_why(message: Message, found: str) -> None:
    with pytest.raises(MessageMalformed, match=found):
        decompress_body(message, max_size=1024)


@pytest.mark.parametrize(("limit", "is_refused"), [(999, True), (1000, False), (1001, False)])
def test_a_compressed_body_of_the_limit_is_given_and_a_larger_one_is_not(limit: int, is_refused: bool) -> None:
    body = bytes(range(250)) * 4
    message = Message("t", zlib.compress(body), sys_flag=1)
    if not is_refused:
        assert decompress_body(message, limit) == body
        return
    with pytest.raises(MessageMalformed) as refused:
        decompress_body(message, limit)
    expected = f"a whole zlib stream of at most {limit} bytes"
    assert str(refused.value) == f"compressed body: found more than {limit} bytes, expected {expected}"


@given(any_text)
@settings(deadline=None)
def test_any_properties_string_parses(text: str) -> None:
    assert all(name and value for name, value in parse_properties(text).items())


@given(
    st.dictionaries(
        st.text(min_size=1, alphabet=st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])),
        st.text(min_size=1, alphabet=st.characters(exclude_characters="\x02", exclude_categories=["Cs"])),
        max_size=5,
    )
)
@settings(deadline=None)
def test_properties_come_back(pairs: dict[str, str]) -> None:
    """HA-ST-16 "MUST be stored as one string"; "MUST take the string with 0x02 behind the last value, and without it"."""
    assert parse_properties(format_properties(pairs)) == pairs
    assert parse_properties(format_properties(pairs) + "\x02") == pairs


def test_properties_are_read_as_rocketmq_reads_them() -> None:
    """4.9.8 string2messageProperties: the last value of a name counts; an item without a name or a value is no pair."""
    assert parse_properties("a\x011\x02b\x012\x02a\x013") == {"a": "3", "b": "2"}
    assert parse_properties("a\x01\x02\x01v\x02novalue\x02\x02k\x01v\x01w") == {"k": "v\x01w"}


@pytest.mark.parametrize("pairs", [{"": "v"}, {"n": ""}, {"n\x01": "v"}, {"n": "v\x02"}, {"n\x02": "v"}])
def test_properties_that_would_not_come_back_are_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(MessageIllegal):
        format_properties(pairs)
