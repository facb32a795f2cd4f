"""The fields of a request, and JSON bodies in fastjson's form."""

from typing import Annotated

import msgspec
import pytest

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.command import RemotingCommand


def with_field(value: str) -> RemotingCommand:
    return RemotingCommand(10, ext_fields={"it": value})


@pytest.mark.parametrize(
    ("value", "number"), [("0", 0), ("-5", -5), ("+5", 5), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))]
)
def test_a_number_is_read_as_java_reads_it(value: str, number: int) -> None:
    """HA-RM-14 "an optional sign and decimal digits"."""
    assert fields.i32(with_field(value), "it") == number
    assert fields.i64(with_field(value), "it") == number
    assert fields.optional_i32(with_field(value), "it", 9) == number
    assert fields.optional_i64(with_field(value), "it") == number


@pytest.mark.parametrize("value", ["", "-", "1.0", " 1", "1 ", "1_0", "٣", "0x10", "2147483648", "9" * 5000])
def test_what_is_no_number_is_refused_by_name(value: str) -> None:
    """HA-RM-13 "none of the field's type"."""
    for read in (fields.i32, fields.optional_i32):
        with pytest.raises(RequestInvalid, match=r"^field it: found '") as caught:
            read(with_field(value), "it")
        assert len(str(caught.value)) < 120


def test_an_i64_has_its_own_range() -> None:
    for read in (fields.i64, fields.optional_i64):
        assert read(with_field(str(2**63 - 1)), "it") == 2**63 - 1
        assert read(with_field(str(-(2**63))), "it") == -(2**63)
        with pytest.raises(RequestInvalid, match="an i64"):
            read(with_field(str(2**63)), "it")
    for read in (fields.i32, fields.optional_i32):
        with pytest.raises(RequestInvalid, match="an i32"):
            read(with_field(str(2**31)), "it")


def test_a_field_that_must_be_there() -> None:
    """HA-RM-13 "a field that its code needs"."""
    for read, expected in (
        (fields.text, "text"),
        (fields.i32, "an i32"),
        (fields.i64, "an i64"),
        (fields.boolean, "true or false"),
    ):
        with pytest.raises(RequestInvalid, match=f"^field gone: found nothing, expected {expected}$"):
            read(with_field(""), "gone")


def test_a_field_that_may_be_missing_has_its_default() -> None:
    request = with_field("")
    assert fields.optional_text(request, "it", "x") == ""
    assert fields.optional_text(request, "gone", "x") == "x"
    assert fields.optional_text(request, "gone") is None
    assert fields.optional_i32(request, "gone", 8) == 8
    assert fields.optional_i64(request, "gone") is None
    assert fields.optional_boolean(request, "gone", default=True)


def test_a_truth_value_is_true_in_any_case_of_its_letters() -> None:
    """HA-RM-14 "`true` in any case is true"."""
    assert [fields.boolean(with_field(value), "it") for value in ("true", "TRUE", "True", "1", "yes", "", "false")] == [
        *(True, True, True),
        *(False, False, False, False),
    ]
    assert fields.optional_boolean(with_field("tRue"), "it")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":{0:852,1:2}}', {"a": {"0": 852, "1": 2}}),
        (b'{"a":{-3 : "x"}}', {"a": {"-3": "x"}}),
        (b'{"{1:\\"":{\n\t 7:{8:9}}}', {'{1:"': {"7": {"8": 9}}}),
        (b'{"a":"{1:2}"}', {"a": "{1:2}"}),
        (b'{"0":1}', {"0": 1}),
        (b'{"a\\"":0,5:{1:"x"}}', {'a"': 0, "5": {"1": "x"}}),
        (b"[1,2]", [1, 2]),
    ],
)
def test_a_body_may_have_integer_keys_without_quotes(body: bytes, value: object) -> None:
    """HA-MD-21 "map keys that are integers without quotes"."""
    assert body_json.read(body) == value
    assert body_json.read(body_json.write(value)) == value


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{0:}", b"nonsense", b'{"a":\xff}', b'{"a":"\xff"}', b"[" * 100_000, b"{0:" * 50_000]
)
def test_a_body_that_is_none_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(RequestInvalid, match=r"^offset table: found ") as caught:
        body_json.read(body, "offset table")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


class Version(msgspec.Struct):
    counter: int
    timestamp: int = 0


def test_a_body_is_read_into_a_type_and_unknown_fields_are_ignored() -> None:
    """HA-MD-26 "MUST ignore fields that it does not know"."""
    assert body_json.read_as(b'{"counter":3,"stateVersion":{0:1}}', Version) == Version(3)
    with pytest.raises(RequestInvalid, match="counter"):
        body_json.read_as(b'{"counter":"3"}', Version)


class Part(msgspec.Struct):
    perm: Annotated[int, msgspec.Meta(le=7)]
    name: str | None = None


class Whole(msgspec.Struct):
    table: dict[str, Part] | None = None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "found an end before that of the JSON, expected JSON"),
        (b'{"table":{', "found an end before that of the JSON, expected JSON"),
        (b'{"table":x}', "found no JSON at byte 9, expected JSON"),
        (b"[]", "found an array, expected an object"),
        (b'{"table":7}', "found a number at table, expected an object or null"),
        (b'{"table":{"t":{"perm":"6"}}}', "found text at table[...].perm, expected a number"),
        (b'{"table":{"t":{"perm":1.5}}}', "found a fraction at table[...].perm, expected a number"),
        (b'{"table":{"t":{"perm":true}}}', "found true or false at table[...].perm, expected a number"),
        (b'{"table":{"t":{"perm":6,"name":{}}}}', "found an object at table[...].name, expected text or null"),
        (b'{"table":{"t":{"perm":8}}}', "found a number out of its range at table[...].perm, expected at most 7"),
        (b'{"table":{"t":{"perm":1e999}}}', "found a number out of its range at table[...].perm, expected JSON"),
        (b'{"table":{"t":{}}}', "found nothing at table[...].perm, expected a value"),
        (b"\xff", "found no JSON at byte 0, expected JSON"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_plain_words(body: bytes, says: str) -> None:
    """The words of the parser, such as `$` and `int`, mean nothing to whoever reads the answer."""
    with pytest.raises(RequestInvalid) as caught:
        body_json.read_as(body, Whole)
    assert str(caught.value) == f"body: {says}"
