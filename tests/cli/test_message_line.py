"""A message as a JSON line: the output of a change feed can be put again, and bad lines are refused in one line."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_ha.fuzz import golden
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.wire.message import Message, decompress_body
from rocketmq_ha.impl.wire.message_id import message_id
from rocketmq_ha.impl.wire.message_line import parse_message_line
from rocketmq_ha.impl.wire.properties import format_properties

ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_700_000_000_000
HOSTS = (("127.0.0.1", 0), ("10.1.2.3", 2**31 - 1), ("2001:db8::7", 41000))
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=8)
I32 = st.integers(-(2**31), 2**31 - 1)


def parsed(**fields: object) -> Message:
    return parse_message_line(json.dumps(fields).encode(), NOW_MS)


def as_put(message: Message) -> Message:
    """The fields that a copy of a message keeps; the store that takes the copy sets the others."""
    is_v6 = ":" in message.born_host[0]
    sys_flag = message.sys_flag & ~0x30 | (0x10 if is_v6 else 0)
    properties = format_properties(message.properties)
    given = {"queue_offset": 0, "physical_offset": 0, "store_timestamp": NOW_MS, "store_host": ("127.0.0.1", 0)}
    return replace(message, properties_string=properties, sys_flag=sys_flag, magic=Message("t", b"").magic, **given)


@given(
    TEXT,
    st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.dictionaries(TEXT, TEXT, max_size=3),
    st.integers(0, 2**31 - 1),
    I32,
    st.sampled_from(HOSTS),
    st.integers(0, 2**40),
    st.sampled_from(("text", "base64", "raw")),
)
def test_what_the_feed_prints_is_put_again_as_it_was(
    topic: str,
    body: bytes,
    properties: dict[str, str],
    queue_id: int,
    flag: int,
    born_host: tuple[str, int],
    born: int,
    kind: str,
) -> None:
    sys_flag = 0x10 if ":" in born_host[0] else 0
    text = format_properties(properties)
    message = Message(
        topic, body, queue_id, flag, 7, 11, sys_flag, born, born_host, 5, properties_string=text, reconsume_times=3
    )
    assert parse_message_line(message_line(11, 200, message, kind), NOW_MS) == as_put(message)


@pytest.mark.parametrize("kind", ("text", "raw"))
def test_every_message_of_rocketmqs_own_store_is_put_again_as_it_was(tmp_path: Path, kind: str) -> None:
    """Also with compressed bodies: as text they are put decompressed, as raw bytes unchanged."""
    golden.unpack(tmp_path / "store")
    compressed = 0
    with LogReader(tmp_path / "store") as reader:
        for offset, size, message in reader.records():
            expected = as_put(message)
            if message.sys_flag & 1 and kind == "text":
                compressed += 1
                expected = replace(expected, body=decompress_body(message), sys_flag=expected.sys_flag & ~0x701)
            found = parse_message_line(message_line(offset, size, message, kind), NOW_MS)
            assert found == expected
    assert compressed > 10 or kind == "raw"


def test_tags_and_keys_are_properties() -> None:
    expected = Message("t", b"b", born_timestamp=NOW_MS, store_timestamp=NOW_MS, properties_string="TAGS\x01a\x02KEYS\x01k1 k2")
    assert parsed(topic="t", body="b", tags="a", keys=["k1", "k2"]) == expected
    assert parsed(topic="t", body="b", tags="a", keys="k1 k2") == expected
    assert parsed(topic="t", body="b", properties={"TAGS": "a", "KEYS": "k1 k2"}) == expected
    assert parsed(topic="t", body="b", properties={"TAGS": "a", "KEYS": "k1 k2"}, tags="a", keys=["k1", "k2"]) == expected
    assert parsed(topic="t", body="b", keys=[], tags=None, properties=None).properties_string == ""


def test_a_body_is_text_a_value_base64_or_hexadecimal() -> None:
    bodies = ({"body": "Größe"}, {"body_base64": "R3LDtsOfZQ=="}, {"body_hex": "4772c3b6c39f65"})
    assert {parsed(topic="t", **body).body for body in bodies} == {"Größe".encode()}
    assert parsed(topic="t", body_json={"ß": [1, None]}).body == '{"ß":[1,null]}'.encode()
    assert (parsed(topic="t", body="").body, parsed(topic="t", body_json=None).body) == (b"", b"null")


def test_a_time_is_a_number_or_iso() -> None:
    times: tuple[int | str, ...] = (
        1714564800123,
        "2024-05-01T12:00:00.123Z",
        "2024-05-01T12:00:00.123",
        "2024-05-01T14:00:00.123+02:00",
    )
    assert {parsed(topic="t", body="", born_time=time).born_timestamp for time in times} == {times[0]}
    assert parsed(topic="t", body="", born_time="2024-05-01T12:00:00Z", born_timestamp=7).born_timestamp == 7


# Whoever skips what does not belong there finds a body in each.
NO_BASE64 = (b"YWJj!", b"!YWJj", b"YW Jj", b"YWJj\\n", b"YW=Jj", b"YQ==YQ==", b"YW-_", "YWJjß".encode())
NO_HEX = (b"6162zz", b"61-62", b"0x61", b"616", b"6 1", "61\u0661\u0662".encode())
NO_NUMBERS = (b"1e400", b"-1e400", b"-Infinity", b"Infinity", b"NaN", b"01", b"1_0", b"+1", b"1.", b".5", b"0x1")

BAD = (
    (b"", "line: found '', expected a JSON object in UTF-8"),
    (b"[]", "line: found [], expected a JSON object"),
    (b"\xff", "line: found \\xff, expected a JSON object in UTF-8"),
    (b"[" * 100_000, "maximum recursion depth"),
    (b'{"topic":"t","body":"","flag":' + b"1" * 5000 + b"}", "line: found "),
    (b'{"topic":"t","body":"","body":""}', "a name that comes twice"),
    (b'{"topic":"t","body_json":NaN}', "NaN is no JSON"),
    (b'{"topic":"t","body":"","topc":1}', "line: found the field topc, expected none but body, "),
    (b'{"body":""}', "topic: found none, expected text"),
    (b'{"topic":7,"body":""}', "topic: found 7, expected text"),
    (b'{"topic":"\\ud800","body":""}', "topic: found surrogates not allowed, expected text that UTF-8 can hold"),
    (b'{"topic":"\\udc80","body":""}', "topic: found surrogates not allowed, expected text that UTF-8 can hold"),
    (b'{"topic":"t"}', "body: found none, expected one of body, body_json, body_base64, body_hex"),
    (b'{"topic":"t","body":"","body_hex":""}', "body: found body and body_hex, expected one of"),
    (b'{"topic":"t","body_base64":"a"}', "body_base64: found a, expected base64"),
    (b'{"topic":"t","body_hex":"0"}', "body_hex: found 0, expected hexadecimal digits"),
    *((b'{"topic":"t","body_base64":"%s"}' % text, ", expected base64") for text in NO_BASE64),
    *((b'{"topic":"t","body_hex":"%s"}' % text, ", expected hexadecimal digits") for text in NO_HEX),
    *((b'{"topic":"t","body_json":[0,%s]}' % text, "line: found ") for text in NO_NUMBERS),
    *((b'{"topic":"t","body":"%s"}' % text, "line: found ") for text in (b"a\xffb", b"\xc0\x80", b"\xed\xa0\x80", b"a\tb")),
    (b'{"topic":"t","body_json":"\\ud800"}', "body_json: found surrogates not allowed"),
    (b'{"topic":"t","body":"","queue_id":-1}', "queue_id: found -1, expected 0 or more"),
    (b'{"topic":"t","body":"","queue_id":true}', "queue_id: found true, expected an integer of 32 bits"),
    (b'{"topic":"t","body":"","flag":2147483648}', "flag: found 2147483648, expected an integer of 32 bits"),
    (b'{"topic":"t","body":"","properties":{"a":1}}', 'properties: found {"a": 1}, expected an object whose values are text'),
    (b'{"topic":"t","body":"","properties":{"a":""}}', "property: found 'a'='', expected a name and a value"),
    (b'{"topic":"t","body":"","properties":{"a":"\\u0002"}}', "expected no separator (0x01, 0x02) inside"),
    (b'{"topic":"t","body":"","properties":{"TAGS":"x"},"tags":"y"}', "tags: found y, expected x, as the property TAGS says"),
    (b'{"topic":"t","body":"","keys":[1]}', "keys: found [1], expected text, or a list of texts"),
    (b'{"topic":"t","body":"","born_time":"soon"}', "born_time: found soon, expected a time as 2024"),
    (b'{"topic":"t","body":"","born_host":"::1:5"}', "born_host: found ::1:5, expected IP:PORT"),
)


@pytest.mark.parametrize(("line", "words"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_no_message_is_refused_in_one_short_line(line: bytes, words: str) -> None:
    with pytest.raises(MessageIllegal) as raised:
        parse_message_line(line, NOW_MS)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500
    assert status_of(raised.value) in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_a_body_with_a_number_that_json_cannot_tell_is_shown_as_text(number: bytes) -> None:
    line = message_line(0, 100, Message("t", b"[%s]" % number), "json")
    assert json.loads(line)["body"] == f"[{number.decode()}]"
    assert "body_json" not in json.loads(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ("topic", "body", "body_hex", "queue_id", "tags", "keys", "properties", "born_time", "born_host", "flag")
)


@given(st.binary(max_size=60) | st.dictionaries(NAMES, JSON).map(lambda value: json.dumps(value).encode()))
def test_nothing_but_a_message_or_a_refusal_comes_of_any_bytes(line: bytes) -> None:
    with contextlib.suppress(MessageIllegal):
        assert isinstance(parse_message_line(line, NOW_MS), Message)


@pytest.mark.parametrize("release", ("4.9.8", "5.3.3"))
def test_message_ids_are_those_that_brokers_answered_with(release: str) -> None:
    """Each answer to a put in the golden transcripts: its msgId holds the broker's address and the message's offset."""
    exchanges = (ROOT / f"spec/vectors/rocketmq-{release}/transcripts.json").read_text("utf-8")
    found: list[str] = []

    def gather(value: object) -> None:
        if isinstance(value, dict):
            header = value.get("response_header")
            fields = header.get("extFields") if isinstance(header, dict) else None
            if isinstance(fields, dict) and "msgId" in fields and "queueOffset" in fields:
                found.extend(fields["msgId"].split(","))  # a batch has one for each message
            for inner in value.values():
                gather(inner)
        elif isinstance(value, list):
            for inner in value:
                gather(inner)

    gather(json.loads(exchanges))
    assert found
    for one in found:
        host = (".".join(str(byte) for byte in bytes.fromhex(one[:8])), int(one[8:16], 16))
        assert message_id(host, int(one[16:], 16)) == one
