"""The limits of a message line: for each field the last value that is taken, and the refusal of the next one, word by word."""

import json
from typing import Any

import pytest

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.message_line import parse_message_line

NOW_MS = 77
I32, I64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
INTEGERS = {
    "queue_id": (32, (0, I32[1])),
    "flag": (32, I32),
    "reconsume_times": (32, I32),
    "prepared_transaction_offset": (64, I64),
    "born_timestamp": (64, I64),
}


def parsed(**fields: Any) -> Message:
    return parse_message_line(json.dumps({"topic": "t", "body": "b"} | fields).encode(), NOW_MS)


def refusal(**fields: Any) -> str:
    with pytest.raises(MessageIllegal) as refused:
        parsed(**fields)
    return str(refused.value)


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_has_its_bits(name: str) -> None:
    bits, (least, most) = INTEGERS[name]
    for value in (least, most, 0):
        assert getattr(parsed(**{name: value}), name) == value
    for wrong in (-(1 << bits - 1) - 1, 1 << bits - 1, 1.0, "1", True, [1]):
        found = wrong if isinstance(wrong, str) else json.dumps(wrong)
        assert refusal(**{name: wrong}) == f"message {name}: found {found}, expected an integer of {bits} bits"
    default = NOW_MS if name == "born_timestamp" else 0
    assert getattr(parsed(**{name: None}), name) == getattr(parsed(), name) == default


def test_a_queue_id_is_not_negative() -> None:
    assert refusal(queue_id=-1) == "message queue_id: found -1, expected 0 or more"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"sys_flag": 0x7FFFFFFF}, 0x7FFFFFFF & ~0x731),  # hosts and compression are not the line's to say
        ({"sys_flag": -(1 << 31)}, -(1 << 31)),
        ({"sys_flag": 0x7FFFFFFF, "body_is_stored": False}, 0x7FFFFFFF & ~0x731),
        ({"sys_flag": 0x7FFFFFFF, "body_is_stored": True}, 0x7FFFFFFF & ~0x30),
        ({"sys_flag": 0x30, "born_host": "[::1]:5"}, 0x10),
        ({"sys_flag": 0, "born_host": "[::1]:5"}, 0x10),
        ({"sys_flag": 0x30, "born_host": "1.2.3.4:5"}, 0),
    ],
)
def test_the_bits_of_sysflag_that_say_how_a_record_is_laid_are_made_anew(fields: dict[str, Any], expected: int) -> None:
    assert parsed(**fields).sys_flag == expected


HOSTS = {
    "1.2.3.4:0": ("1.2.3.4", 0),
    "1.2.3.4:2147483647": ("1.2.3.4", 2147483647),
    "1.2.3.4:9999999999": ("1.2.3.4", 9999999999),  # 10 digits; the store says that its field does not hold it
    "[::1]:5": ("::1", 5),
}


@pytest.mark.parametrize("text", HOSTS)
def test_a_born_host_is_an_address_and_a_port(text: str) -> None:
    assert parsed(born_host=text).born_host == HOSTS[text]
    assert parsed(born_host=None).born_host == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    "text",
    (*("1.2.3.4:10000000000", "1.2.3.4:", "1.2.3.4", ":5", "[::1:5", "::1]:5", "[]:5", "::1:5", "1.2.3.4:-1", "1.2.3.4:٣", 5),),
)
def test_what_is_no_born_host_is_refused(text: object) -> None:
    assert refusal(born_host=text) == f"message born_host: found {text}, expected IP:PORT, as 10.0.0.7:41000"


TIME = "expected a time as 2024-05-01T12:00:00Z, or milliseconds since 1970"


@pytest.mark.parametrize(
    ("born_time", "expected"),
    [
        (I64[0], I64[0]),
        (I64[1], I64[1]),
        (0, 0),
        ("1970-01-01T00:00:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2024-05-01T12:00:00.0009Z", 1714564800000),  # what is less than a millisecond is left out
        ("0001-01-01T00:00:00Z", -62135596800000),
        ("9999-12-31T23:59:59.999-23:59", 253402387139999),
        (None, NOW_MS),
    ],
)
def test_a_born_time_is_taken_to_the_millisecond(born_time: object, expected: int) -> None:
    assert parsed(born_time=born_time).born_timestamp == expected
    assert parsed(born_time=born_time, born_timestamp=5).born_timestamp == 5


@pytest.mark.parametrize("born_time", ("x", "1", "", 1.0, True, [1], "10000-01-01T00:00:00Z"))
def test_what_is_no_born_time_is_refused(born_time: object) -> None:
    found = (born_time or "''") if isinstance(born_time, str) else json.dumps(born_time)
    assert refusal(born_time=born_time) == f"message born_time: found {found}, {TIME}"


@pytest.mark.parametrize("wrong", [1 << 63, -(1 << 63) - 1])
def test_a_born_time_that_is_a_number_has_64_bits(wrong: int) -> None:
    assert refusal(born_time=wrong) == f"message born_time: found {wrong}, expected an integer of 64 bits"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"properties": {}}, ""),
        ({"properties": {"a": "\x01"}}, "a\x01\x01"),
        ({"properties": {"b": "2", "a": "1"}, "tags": "x", "keys": "k"}, "b\x012\x02a\x011\x02TAGS\x01x\x02KEYS\x01k"),
        ({"keys": "a b", "properties": {"KEYS": " a  b "}}, "KEYS\x01 a  b "),  # the same words
        ({"keys": "", "properties": {"KEYS": "k"}}, "KEYS\x01k"),
        ({"keys": []}, ""),
        ({"keys": ["a b", "c"]}, "KEYS\x01a b c"),
        ({"keys": None, "tags": None, "properties": None}, ""),
    ],
)
def test_properties_tags_and_keys_become_one_string(fields: dict[str, Any], expected: str) -> None:
    assert parsed(**fields).properties_string == expected


LONG = "x" * 61
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "topic: found null, expected text"),
    ({"topic": 5}, "topic: found 5, expected text"),
    ({"body": None}, "body: found null, expected text"),
    ({"body": [1]}, "body: found [1], expected text"),
    ({"body_hex": "00"}, "body: found body and body_hex, expected one of body, body_json, body_base64, body_hex"),
    ({"body_is_stored": None}, "body_is_stored: found null, expected true or false"),
    ({"body_is_stored": 1}, "body_is_stored: found 1, expected true or false"),
    ({"properties": []}, "properties: found [], expected an object whose values are text"),
    ({"properties": {"a": None}}, 'properties: found {"a": null}, expected an object whose values are text'),
    ({"properties": {"": "x"}}, "property: found ''='x', expected a name and a value, neither of them empty"),
    ({"properties": {"a\x01": "x"}}, "property: found 'a\\x01'='x', expected no separator (0x01, 0x02) inside"),
    ({"properties": {"a": "\x02"}}, "property: found 'a'='\\x02', expected no separator (0x01, 0x02) inside"),
    ({"tags": 5}, "tags: found 5, expected text"),
    ({"tags": ""}, "property: found 'TAGS'='', expected a name and a value, neither of them empty"),
    ({"tags": "a", "properties": {"TAGS": "b"}}, "tags: found a, expected b, as the property TAGS says"),
    ({"tags": "\udc80"}, "properties: found surrogates not allowed, expected text that UTF-8 can hold"),
    ({"keys": 5}, "keys: found 5, expected text, or a list of texts"),
    ({"keys": ["a", None]}, 'keys: found ["a", null], expected text, or a list of texts'),
    ({"keys": "a b", "properties": {"KEYS": "b a"}}, "keys: found a b, expected b a, as the property KEYS says"),
    # What was found is shown in one line, and 60 characters of it.
    ({"flag": LONG[:60]}, f"flag: found {LONG[:60]}, expected an integer of 32 bits"),
    ({"flag": LONG}, f"flag: found {LONG[:60]}…, expected an integer of 32 bits"),
    ({"flag": "a\tb\u2028c"}, "flag: found a·b·c, expected an integer of 32 bits"),
    ({"flag": ""}, "flag: found '', expected an integer of 32 bits"),
    (
        {"zz": 2, "unknown": 1},
        "line: found the field unknown, expected none but body, body_base64, body_hex, body_is_stored, body_json, born_host, "
        "born_time, born_timestamp, flag, keys, prepared_transaction_offset, properties, queue_id, reconsume_times, sys_flag, "
        "tags, topic",
    ),
]


@pytest.mark.parametrize(("fields", "text"), REFUSALS, ids=[text[:40] for _, text in REFUSALS])
def test_a_refusal_names_the_field_what_was_found_and_what_was_expected(fields: dict[str, Any], text: str) -> None:
    assert refusal(**fields) == f"message {text}"


PASSED_OVER = (
    *("commit_log_offset", "store_size", "next_offset", "queue_offset", "store_timestamp", "store_time", "store_host"),
    *("transaction", "body_crc", "body_size"),
)


@pytest.mark.parametrize("name", PASSED_OVER)
def test_what_the_store_says_of_a_message_is_passed_over(name: str) -> None:
    assert parsed(**{name: ["whatever"]}) == parsed()
