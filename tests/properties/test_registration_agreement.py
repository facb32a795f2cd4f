"""Model and implementation read the same topics from the body of a registration, or both refuse it. HA-R-33, HA-R-34."""

import json
import zlib
from struct import pack

from hypothesis import event, example, given
from hypothesis import strategies as st

from kit.name_server import compressed_body
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.namesrv import registration as impl
from rocketmq_ha.impl.namesrv.route_data import DataVersion, QueueData
from rocketmq_ha.reference import registration as model

I32 = st.sampled_from([0, 1, -1, 6, (1 << 31) - 1, -(1 << 31), 1 << 31, -(1 << 31) - 1])
I64 = st.sampled_from([0, 7, (1 << 63) - 1, -(1 << 63), 1 << 63, -(1 << 63) - 1, 10**30])
odd = st.sampled_from([None, True, 1.0, "4", [], {}])
names = st.sampled_from(["T", "é", "", "a b", "n" * 512, "n" * 513, "\ud800"]) | st.text(max_size=3)
configs = st.fixed_dictionaries(
    {},
    optional={
        "topicName": names | odd,
        **dict.fromkeys(("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"), I32 | I32 | odd),
        "attributes": odd,
    },
)
versions = st.fixed_dictionaries({}, optional=dict.fromkeys(("counter", "timestamp", "stateVersion"), I64 | odd)) | odd
good_configs = st.fixed_dictionaries({"topicName": names, "perm": I32}, optional={"attributes": odd})
tables = st.dictionaries(names, good_configs, max_size=3) | st.dictionaries(names, configs, max_size=3) | odd
wrappers = st.fixed_dictionaries({}, optional={"dataVersion": versions, "topicConfigTable": tables, "x": odd}) | odd
bodies = st.fixed_dictionaries({}, optional={"topicConfigSerializeWrapper": wrappers, "filterServerList": odd}) | odd
words = st.sampled_from(
    [
        "T",
        "é",
        "4",
        "-1",
        "+6",
        "",
        "6x",
        "2147483647",
        "2147483648",
        "1_0",
        "\t4",
        "\u0664",
        "SINGLE_TAG",
        "MULTI_TAG",
        "NO_TAG",
        '{"a":"b"}',
    ]
)
kinds = st.sampled_from(["SINGLE_TAG", "MULTI_TAG", "SINGLE_TAG {}", "MULTI_TAG ", "SINGLE_TAG x y"])
lines = st.lists(words, max_size=7) | st.tuples(words, words, words, words, kinds)


def impl_reads(body: bytes, *, compressed: bool) -> object:
    """What the implementation reads, as the model says it; None for a body that it refuses."""
    try:
        version, topics = impl.read_body(body, "g", 1_000, compressed=compressed)
    except RequestInvalid as error:
        assert "\n" not in str(error)
        return None
    return version, topics


def model_reads(body: bytes, *, compressed: bool) -> object:
    found = model.read_body(body, compressed=compressed)
    event("refused" if found is None else "read")
    if found is None:
        return None
    version, topics = found
    return (
        None if version is None else DataVersion(version.counter, version.timestamp, version.state_version),
        {
            name: QueueData("g", queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)
            for name, queue in topics
        },
    )


@given(bodies, st.booleans())
def test_json_bodies(found: object, ascii_only: bool) -> None:
    """HA-R-34 "MUST read the body of a registration as JSON"."""
    body = json.dumps(found, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert impl_reads(body, compressed=False) == model_reads(body, compressed=False)


@given(st.binary(max_size=20), st.booleans())
@example(b"{} x", False)
@example(b'{"a":NaN}', False)
@example(b'{"a":01}', False)
@example(b"\xef\xbb\xbf{}", False)
@example(b"[" * 100_000, False)
def test_any_bytes(body: bytes, compressed: bool) -> None:
    assert impl_reads(body, compressed=compressed) == model_reads(body, compressed=compressed)


@given(versions, st.lists(lines, max_size=3), st.integers(-1, 4), st.integers(0, 12), st.integers(0, 200))
def test_compressed_bodies(version: object, topics: list[list[str]], more: int, cut: int, end: int) -> None:
    """HA-R-34 "as the zlib stream below": whole, with another count than topics, with wrong sizes, and cut anywhere."""
    parts = [" ".join(words).encode() for words in topics]
    body = compressed_body(json.dumps(version).encode(), *parts)
    if more:
        data = zlib.decompress(body)
        body = zlib.compress(data[: len(data) - cut] + pack(">i", more))
    body = body[: max(0, len(body) - max(0, end - 190))]
    assert impl_reads(body, compressed=True) == model_reads(body, compressed=True)


@given(st.binary(max_size=10), st.integers(-(1 << 31), (1 << 31) - 1) | st.just(0), st.booleans())
def test_crcs(body: bytes, crc: int, is_right: bool) -> None:
    """HA-R-33 "is not 0, and not the CRC-32 of the body as it was sent without its highest bit"."""
    said = zlib.crc32(body) & 0x7FFFFFFF if is_right else crc
    try:
        impl.check_crc(body, said)
        is_taken = True
    except RequestInvalid:
        is_taken = False
    assert is_taken == model.has_its_crc(body, said)
