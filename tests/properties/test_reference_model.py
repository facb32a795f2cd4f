"""Laws of the pure model, for all values: wire, buffers, store. Its record codec agrees with the implementation's."""

import itertools
import socket
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kit.golden import RELEASES, VECTORS
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.wire import message as impl_message
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import master, message, slave, store, wire
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Acked
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile, Settings

FILE_SIZE = 300
UNHURRIED = hypothesis_settings(deadline=None)  # an example may take long on a busy machine
ROOM = 1 << 20  # a socket that never blocks

i64s = st.integers(-(1 << 63), (1 << 63) - 1)
i32s = st.integers(-(1 << 31), (1 << 31) - 1)
profiles = st.sampled_from(sorted(PROFILES.values(), key=lambda profile: profile.name))


def cut(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """`data` in the fragments that begin at `cuts`, taken modulo its length."""
    places = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return (data[begin:end] for begin, end in itertools.pairwise(places))


cuts_anywhere = st.lists(st.integers(0, 5000), max_size=40)


# --- Wire ------------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(i64s)
def test_a_report_is_eight_bytes_big_endian_on_both_sides(offset: int) -> None:
    """HA-W-1 "as a signed 64-bit integer", over the whole range of an i64."""
    data = wire.pack_report(offset)
    assert len(data) == constants.REPORT_SIZE == REPORT.size
    assert wire.unpack_report(data) == offset
    assert data == REPORT.pack(offset)


@UNHURRIED
@given(i64s, i32s)
def test_a_header_is_twelve_bytes_big_endian_on_both_sides(offset: int, body_size: int) -> None:
    """HA-W-2 "a 12-byte header, the physical offset of its body", over the whole ranges of an i64 and an i32."""
    data = wire.pack_header(offset, body_size)
    assert len(data) == constants.TRANSFER_HEADER_SIZE == HEADER.size
    assert wire.unpack_header(data) == (offset, body_size)
    assert data == HEADER.pack(offset, body_size)


@pytest.mark.parametrize("offset", [1 << 63, -(1 << 63) - 1])
def test_what_is_no_i64_is_no_report(offset: int) -> None:
    """HA-W-1."""
    with pytest.raises(OverflowError):
        wire.pack_report(offset)


@pytest.mark.parametrize("body_size", [1 << 31, -(1 << 31) - 1])
def test_what_is_no_i32_is_no_body_size(body_size: int) -> None:
    """HA-W-2."""
    with pytest.raises(OverflowError):
        wire.pack_header(0, body_size)


# --- Slave: fragments ------------------------------------------------------------------------------------------------


def frames(sizes: Sequence[int], batch: int, heartbeats: bool) -> bytes:
    """The frames, of at most `batch` bytes, in which an honest master sends a log of consecutive byte values."""
    stream, offset = b"", 0
    for size in sizes:
        body_size = min(size, batch, FILE_SIZE - offset % FILE_SIZE)
        if body_size or heartbeats:
            body = bytes((offset + at) % 251 for at in range(body_size))
            stream += wire.pack_header(offset, body_size) + body
        offset += body_size
    return stream


def read(node: Slave, fragments: Iterator[bytes], settings: Settings, profile: Profile) -> Slave:
    for fragment in fragments:
        if node.connected:
            node = slave.on_frames(node, fragment, ROOM, 0, settings, profile).state
    return node


@UNHURRIED
@given(
    st.lists(st.integers(0, 200), max_size=12),
    cuts_anywhere,
    st.integers(1, 200),
    st.integers(0, 300),
    st.integers(0, 12 + 200),
    profiles,
)
def test_fragments_make_no_difference_to_a_slave(
    sizes: list[int], cuts: list[int], batch: int, spare: int, missing: int, profile: Profile
) -> None:
    """HA-W-8 "any sequence of reads that returns the same bytes leads to the same log", and to the same unparsed bytes.

    So HA-S-5 "A body MUST be appended only when all of it is there".
    """
    settings = Settings(FILE_SIZE, batch, slave_read_buffer_size=constants.TRANSFER_HEADER_SIZE + batch + spare)
    stream = frames(sizes, batch, heartbeats=True)
    stream = stream[: max(0, len(stream) - missing)]
    start = replace(Slave(Log(FILE_SIZE)), connected=True)
    whole = slave.on_frames(start, stream, ROOM, 0, settings, profile).state
    pieces = read(start, cut(stream, cuts), settings, profile)
    assert (pieces.log, slave.unparsed(pieces)) == (whole.log, slave.unparsed(whole))
    assert (pieces.connected, pieces.current_reported_offset) == (whole.connected, whole.current_reported_offset)
    assert pieces.connected


@UNHURRIED
@given(st.binary(max_size=200), cuts_anywhere, profiles)
@example(wire.pack_header(0, -4) + bytes(40), [12], HARDENED)
@example(wire.pack_header(13, -4) + wire.pack_header(13, 2) + b"de", [20, 27, 40], CLASSIC)
@example(wire.pack_header(77, 5) + bytes(5) + wire.pack_header(82, 1), [17], CLASSIC)
def test_fragments_make_no_difference_to_a_slave_that_is_sent_garbage(
    garbage: bytes, cuts: list[int], profile: Profile
) -> None:
    """However the garbage is cut, the connection ends at the same byte, for the same reason, with the same log.

    HA-S-4, HA-S-11, HA-S-14.
    """
    settings = Settings(FILE_SIZE, slave_read_buffer_size=64)
    start = replace(Slave(Log(FILE_SIZE, 0, bytes(10))), connected=True)
    start_garbage = wire.pack_header(10, 3) + b"abc" + garbage
    whole = slave.on_frames(start, start_garbage, ROOM, 0, settings, profile).state
    pieces = read(start, cut(start_garbage, cuts), settings, profile)
    assert (pieces.log, pieces.connected, pieces.close_reason) == (whole.log, whole.connected, whole.close_reason)
    assert pieces.deaf == whole.deaf
    assert slave.unparsed(pieces) == slave.unparsed(whole)


@UNHURRIED
@given(st.binary(max_size=100), st.integers(0, 100))
def test_reallocate_byte_buffer_keeps_the_unparsed_bytes(buffer: bytes, dispatch_position: int) -> None:
    """HA-S-9 "swap the two buffers, and set dispatch_position to 0"."""
    node = Slave(Log(FILE_SIZE), byte_buffer_read=buffer, dispatch_position=min(dispatch_position, len(buffer)))
    after = slave.reallocate_byte_buffer(node)
    assert slave.unparsed(after) == slave.unparsed(node) == after.byte_buffer_read
    assert after.dispatch_position == 0
    assert replace(after, byte_buffer_read=buffer, dispatch_position=node.dispatch_position) == node


def test_a_frame_that_exactly_fills_the_buffer_works() -> None:
    """Quirk 23: one byte more would be HA-S-14."""
    settings = Settings(FILE_SIZE, slave_read_buffer_size=50)
    start = replace(Slave(Log(FILE_SIZE)), connected=True)
    for size, connected in ((38, True), (39, False)):
        stream = wire.pack_header(0, size) + bytes(size)
        for profile in (CLASSIC, HARDENED):
            node = slave.on_frames(start, stream, ROOM, 0, settings, profile).state
            assert node.connected == connected, (size, profile.name)
            reason = "" if connected else "frame" if profile is HARDENED else "stalled"
            assert node.close_reason == reason


# --- Master: fragments -----------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), cuts_anywhere, st.sampled_from((8, 16, 24, 64, 4096)))
def test_fragments_make_no_difference_to_the_last_ack(offsets: list[int], cuts: list[int], buffer_size: int) -> None:
    """Which reports are used depends on the reads: HA-W-8 "it takes the last one of each read". The last ack does not.

    Nor do the leftover bytes depend on them, for HA-M-10 "it is reused from its start only when it is
    full, and its size is a multiple of 8".
    """
    settings = Settings(FILE_SIZE, master_read_buffer_size=buffer_size)
    stream = b"".join(map(wire.pack_report, offsets)) + b"\0\0\0"
    conn = master.on_accept(0).state
    used: list[int] = []
    for fragment in cut(stream, cuts):
        step = master.on_reports(conn, fragment, Log(FILE_SIZE), 0, settings, CLASSIC)
        conn = step.state
        used += [output.offset for output in step.outputs if isinstance(output, Acked)]
    assert conn.slave_ack_offset == offsets[-1]
    assert len(conn.byte_buffer_read) - conn.process_position == 3
    assert conn.process_position % constants.REPORT_SIZE == 0
    assert conn.slave_request_offset == used[0]  # HA-M-3: the first of the reports that ended a read
    remaining = iter(offsets)
    assert all(offset in remaining for offset in used)  # a subsequence


@UNHURRIED
@given(st.integers(0, 700), st.lists(st.integers(0, 60), max_size=60), st.integers(1, 100), st.integers(0, 700))
def test_what_a_socket_takes_makes_no_difference_to_the_stream(size: int, rooms: list[int], batch: int, request: int) -> None:
    """HA-M-6 "from the byte where the socket stopped taking it": if the log does not grow, all frames are the same."""
    log = Log(FILE_SIZE, 0, bytes(at % 251 for at in range(size)))
    settings = Settings(FILE_SIZE, batch)
    begun = replace(master.on_accept(0).state, slave_request_offset=request)

    def send(rooms: Sequence[int]) -> bytes:
        conn, stream = begun, b""
        for room in rooms:
            step = master.on_transfer(conn, log, room, 0, settings)
            conn, data = step.state, b"".join(output.data for output in step.outputs)  # type: ignore[union-attr]
            assert len(data) <= room
            stream += data
        assert conn.last_write_over
        return stream

    stream = send([ROOM])
    assert send([*rooms, ROOM]) == stream
    at, position = 0, request or size - size % FILE_SIZE
    while at < len(stream):
        offset, body_size = wire.unpack_header(stream[at : at + 12])
        assert offset == position
        assert 0 < body_size <= batch
        assert offset // FILE_SIZE == (offset + body_size - 1) // FILE_SIZE
        assert stream[at + 12 : at + 12 + body_size] == log.data[offset : offset + body_size]
        at, position = at + 12 + body_size, position + body_size
    assert position >= size


# --- Store -----------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.integers(0, 3), st.integers(0, 1000), st.integers(-10, 2000), st.integers(0, 500))
def test_data_never_crosses_a_file(files_before: int, size: int, offset: int, limit: int) -> None:
    """HA-W-4 "MUST NOT cross the end of a commit-log file"; HA-W-5 "MUST NOT be larger than ha_transfer_batch_size".

    The bytes are the log's, and there are fewer than asked for only at the end of a file or of the log.
    """
    base = files_before * FILE_SIZE
    log = Log(FILE_SIZE, base, bytes(at % 251 for at in range(size)))
    body = store.data_at(log, offset, limit)
    assert len(body) <= limit
    if not body:
        assert limit == 0 or not base <= offset < store.max_offset(log)
        return
    assert body == log.data[offset - base : offset - base + len(body)]
    assert offset // FILE_SIZE == (offset + len(body) - 1) // FILE_SIZE
    end = offset + len(body)
    assert len(body) == limit or end % FILE_SIZE == 0 or end == store.max_offset(log)


records = st.builds(
    Record,
    topic=st.sampled_from((b"T", b"orders")),
    body=st.binary(max_size=120),
    properties=st.sampled_from((b"", b"K\x01v")),
    queue_id=st.integers(0, 3),
)


def log_of(put: Sequence[Record]) -> Log:
    log = Log(FILE_SIZE)
    for record in put:
        log, offset, size = store.append_record(log, record)
        assert offset % FILE_SIZE + size + constants.END_FILE_MIN_BLANK_SIZE <= FILE_SIZE
    return log


@UNHURRIED
@given(st.lists(records, max_size=8), st.integers(0, 400), profiles)
def test_recovery_is_idempotent_and_keeps_a_prefix(put: list[Record], missing: int, profile: Profile) -> None:
    """If the log is cut anywhere, recovery keeps a prefix of it, and missing zeros count as present.

    HA-ST-5, HA-ST-7, HA-ST-10.
    """
    complete = log_of(put)
    torn = replace(complete, data=complete.data[: max(0, len(complete.data) - missing)])
    once = store.recover(torn, profile).state
    assert store.recover(once, profile).state == once
    assert (torn.data + bytes(FILE_SIZE)).startswith(once.data)
    if profile is HARDENED:
        assert complete.data.startswith(once.data)  # classic may take a torn topic for whole (quirk 40)
        assert not once.data or once.base == torn.base
    if missing == 0:
        assert once.data == complete.data


@UNHURRIED
@given(st.lists(records, min_size=1, max_size=8))
def test_recovery_cuts_at_a_record_and_nowhere_else(put: list[Record]) -> None:
    """HA-ST-5 "Recovery MUST end behind the last whole record": for a log of any length, also inside a BLANK."""
    complete = log_of(put)
    ends, log = [0], Log(FILE_SIZE)
    for record in put:
        before = len(log.data)
        log, offset, size = store.append_record(log, record)
        ends += [offset] if offset > before else []  # a BLANK
        ends.append(offset + size)
    for length in range(0, len(complete.data) + 1, 7):
        kept = store.recover(replace(complete, data=complete.data[:length]), HARDENED).state.data
        # Missing zeros count as present: a record without properties ends in two, and a BLANK is padded with them.
        ready = [end for end in ends if not any(complete.data[length:end])]
        assert len(kept) == max(ready)


@UNHURRIED
@given(st.binary(max_size=60), i64s, i64s)
def test_a_blank_fills_the_rest_of_its_file(body: bytes, born: int, stored: int) -> None:
    """HA-ST-3 "the rest MUST become a BLANK", if a message does not leave 8 bytes free."""
    record = Record(b"T", body, born_timestamp=born, store_timestamp=stored)
    log = log_of([record] * 6)
    size = len(message.encode(record))
    at, found = 0, 0
    while at < len(log.data):
        rest = FILE_SIZE - at % FILE_SIZE
        if size + 8 > rest:
            assert log.data[at : at + rest] == store.blank(rest)
            at += rest
        else:
            assert message.decode(log.data, at) == (replace(record, physical_offset=at), size)
            at, found = at + size, found + 1
    assert found == 6


# --- Two codecs ------------------------------------------------------------------------------------------------------


def as_record(told: Message) -> Record:
    """Convert a message to the model's record."""
    hosts = [ip_address(ip).packed + port.to_bytes(4, "big", signed=True) for ip, port in (told.born_host, told.store_host)]
    return Record(
        told.topic.encode("utf-8", "surrogateescape"),
        told.body,
        told.properties_string.encode("utf-8", "surrogateescape"),
        told.queue_id,
        told.flag,
        told.queue_offset,
        told.physical_offset,
        told.sys_flag,
        told.born_timestamp,
        hosts[0],
        told.store_timestamp,
        hosts[1],
        told.reconsume_times,
        told.prepared_transaction_offset,
    )


V6 = constants.SYS_FLAG_BORN_HOST_V6 | constants.SYS_FLAG_STORE_HOST_V6


@st.composite
def messages(draw: st.DrawFn) -> Message:
    sys_flag = draw(i32s) & ~V6 | draw(st.sampled_from((0, 0x10, 0x20, 0x30)))

    def host(bit: int) -> tuple[str, int]:
        ip = draw(st.ip_addresses(v=6 if sys_flag & bit else 4)).packed
        return socket.inet_ntop(socket.AF_INET6 if sys_flag & bit else socket.AF_INET, ip), draw(i32s)

    topic = draw(st.text(min_size=1, max_size=40).filter(lambda text: 0 < len(text.encode()) <= constants.MAX_TOPIC_LENGTH))
    return Message(
        topic,
        draw(st.binary(max_size=300)),
        draw(i32s),
        draw(i32s),
        draw(i64s),
        draw(i64s),
        sys_flag,
        draw(i64s),
        host(constants.SYS_FLAG_BORN_HOST_V6),
        draw(i64s),
        host(constants.SYS_FLAG_STORE_HOST_V6),
        draw(i32s),
        draw(i64s),
        draw(st.text(max_size=100)),
    )


@UNHURRIED
@given(messages())
def test_two_independent_codecs_write_and_read_the_same_bytes(told: Message) -> None:
    """HA-ST-2 "A message MUST be one record: total size, magic, body CRC, queue id": neither codec uses the
    other.
    """
    data = impl_message.encode(told)
    record = as_record(told)
    assert message.encode(record) == data
    assert message.decode(data) == (record, len(data))
    assert impl_message.decode(data) == told
    assert message.body_crc(told.body) == told.body_crc


@pytest.mark.parametrize(("topic_size", "is_whole"), [(0, False), (1, True), (127, True), (128, False), (255, False)])
def test_a_v1_record_has_a_topic_of_1_to_127_bytes(topic_size: int, is_whole: bool) -> None:
    """HA-ST-72 "A topic MUST have 1 to 127 bytes in a V1 record": RocketMQ also reads the length as a signed byte."""
    data = message.encode(Record(b"t" * topic_size, b"body"))
    assert (message.decode(data) is not None) is is_whole
    if is_whole:
        assert len(impl_message.decode(data).topic) == topic_size
    else:
        with pytest.raises(MessageMalformed, match="topic length"):
            impl_message.decode(data)


@UNHURRIED
@given(messages(), st.data())
def test_a_flipped_bit_is_whole_to_both_or_to_neither(told: Message, data: st.DataObject) -> None:
    """HA-ST-4 "the CRC-32 of the stored body": the two readers also agree on which records are whole."""
    encoded = bytearray(impl_message.encode(told))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = message.decode(bytes(encoded))
    try:
        expected = as_record(impl_message.decode(bytes(encoded)))
    except MessageMalformed:
        expected = None
    assert (found and found[0]) == expected


@pytest.fixture(scope="module", params=RELEASES)
def golden_log(request: pytest.FixtureRequest) -> Log:
    """The commit log that a release of Apache RocketMQ wrote."""
    with tarfile.open(VECTORS / f"rocketmq-{request.param}" / "store.tar.xz") as archive:
        files = {
            member.name: archive.extractfile(member) for member in archive if "commitlog/" in member.name and member.isfile()
        }
        parts = [files[name].read() for name in sorted(files)]  # type: ignore[union-attr]
    return Log(len(parts[0]), 0, b"".join(parts))


def test_every_golden_record_is_the_same_to_both_and_comes_back(golden_log: Log) -> None:
    """HA-ST-2 to HA-ST-5: read, compared and written again by the model and by the implementation."""
    end = len(store.recover(golden_log, HARDENED).state.data)
    position, found = 0, 0
    while position < end:
        rest = golden_log.file_size - position % golden_log.file_size
        if golden_log.data[position : position + 8] == store.blank(rest)[:8]:
            position += rest
            continue
        read_by_model = message.decode(golden_log.data, position)
        assert read_by_model is not None, position
        record, size = read_by_model
        told = impl_message.decode(golden_log.data[position : position + size])
        assert as_record(told) == record
        assert message.encode(record) == impl_message.encode(told) == golden_log.data[position : position + size]
        position, found = position + size, found + 1
    assert found > 2000
    assert not any(golden_log.data[end:])
