"""The frame of a command, by hand: the bytes of both serializations, and what is refused."""

import pytest

from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand, SerializeType, decode, encode, encode_whole, response_to
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX, REMOTING_HEADER_MAX

BINARY = SerializeType.ROCKETMQ


def frame_of(header: bytes, serialize_type: int = 0, body: bytes = b"") -> bytes:
    """A frame without its length."""
    return (serialize_type << 24 | len(header)).to_bytes(4) + header + body


def test_a_json_frame_has_the_bytes_that_rocketmq_writes() -> None:
    """HA-MD-18 "one byte of serialize type, a 3-byte header length, the header and the body"; HA-MD-20 "may be left out"."""
    command = RemotingCommand(21, 7, 0, "JAVA", 401, "why", {"a": "ä"}, b"body")
    header = (
        '{"code":21,"extFields":{"a":"ä"},"flag":0,"language":"JAVA","opaque":7,"remark":"why",'
        '"serializeTypeCurrentRPC":"JSON","version":401}'
    ).encode()
    assert encode_whole(command) == (4 + len(header) + 4).to_bytes(4) + len(header).to_bytes(4) + header + b"body"


def test_a_binary_frame_has_the_fields_of_the_table() -> None:
    """HA-RM-6 "a length of 0 stands for no text"."""
    command = RemotingCommand(15, 7, 2, "PYTHON", 409, None, {"ab": "c", "empty": ""}, b"", BINARY)
    header = bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000009 0002") + b"ab" + bytes.fromhex("00000001") + b"c"
    assert encode_whole(command) == (4 + len(header)).to_bytes(4) + (1 << 24 | len(header)).to_bytes(4) + header
    assert decode(encode_whole(command)[4:]).ext_fields == {"ab": "c"}


def test_the_answer_has_the_opaque_and_the_serialization_of_its_request() -> None:
    """HA-RM-8 "MUST be written in the serialization of its request"."""
    for kind in SerializeType:
        answer = response_to(RemotingCommand(11, 99, serialize_type=kind), 19, "nothing", {"x": "1"}, b"b")
        assert (answer.opaque, answer.is_response, answer.is_oneway, answer.serialize_type) == (99, True, False, kind)
        assert decode(encode_whole(answer)[4:]) == answer


def test_views_of_a_body_are_sent_without_a_copy() -> None:
    log = memoryview(bytearray(100_000))
    command = RemotingCommand(0, 1, 1, buffers=(log[:60_000], log[60_000:]))
    head, *views = encode(command)
    assert [view.obj for view in views if isinstance(view, memoryview)] == [log.obj, log.obj]
    assert int.from_bytes(head[:4]) == len(head) - 4 + len(log)


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (b"\0\0\0", "3 bytes"),
        (frame_of(b"{}", 2), "2"),
        (b"\0\0\0\x09{}", "9 bytes in a frame of 6"),
        (frame_of(b" " * (REMOTING_HEADER_MAX + 1)), f"{REMOTING_HEADER_MAX + 1} bytes"),
        (frame_of(b""), "found an end before that of the JSON, expected a JSON object"),
        (frame_of(b"[]"), "found an array, expected an object"),
        (frame_of(b'{"code":1}'), "found nothing at opaque, expected a value"),
        (frame_of(b'{"opaque":1}'), "code"),
        (frame_of(b'{"code":2147483648,"opaque":1}'), "2147483647"),
        (frame_of(b'{"code":1.0,"opaque":1}'), "found a fraction at code, expected a number"),
        (frame_of(b'{"code":1,"opaque":1,"extFields":{"a":[1]}}'), "an array"),
        (frame_of(b'{"code":1,"opaque":1,"extFields":{"a":"\\ud800"}}'), "an end before"),
        (frame_of(b'{"code":1,"opaque":1,"x":' + b"[" * 32 + b"]" * 32 + b"}"), "more than 32"),
        (frame_of(b"\0" * 20, 1), "20 bytes"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 ffffffff 00000000"), 1), "-1 bytes"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000001 00000000"), 1), "1 bytes"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000001"), 1), "1 bytes where 0"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000001 00"), 1), "cut off"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000002 ffff"), 1), "-1 bytes"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000007 0001 61 00000009"), 1), "9 bytes"),
        (frame_of(bytes.fromhex("000f 03 0199 00000007 00000002 00000000 00000000 00"), 1), "0 bytes where 1"),
    ],
)
def test_a_frame_that_is_none_is_refused(frame: bytes, found: str) -> None:
    """HA-RM-1 "neither 0 (JSON) nor 1"; HA-RM-2 "does not end within it"; HA-RM-7 "negative, or do not fill it exactly".

    HA-RM-20 "A header of more than 256 KiB MUST be refused"; HA-RM-21 "of more than 32 levels, one within the other".
    """
    with pytest.raises(FrameInvalid, match="remoting") as caught:
        decode(frame)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (b'{"code":1,"opaque":2}', (1, 2, 0, "JAVA", 0, None, {})),
        (b'{"code":1,"opaque":2,"language":null,"version":null,"flag":null,"extFields":null}', (1, 2, 0, "JAVA", 0, None, {})),
        (b'{"opaque":-2,"code":1,"remark":"","unknown":[{}]}', (1, -2, 0, "JAVA", 0, "", {})),
        (
            b'{"code":1,"opaque":2,"extFields":{"a":1.50,"b":true,"c":null,"d":"x\\u00e4","e":-9}}',
            (1, 2, 0, "JAVA", 0, None, {"a": "1.50", "b": "true", "d": "xä", "e": "-9"}),
        ),
        (b'{"code":1,"opaque":2,"extFields":{"\xff":"a\xc3"}}', (1, 2, 0, "JAVA", 0, None, {"\ufffd": "a\ufffd"})),
        (
            b'{"code":1,"opaque":2,"x":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",' + b'"y":' + b"[" * 31 + b"]" * 31 + b"}",
            (1, 2, 0, "JAVA", 0, None, {}),
        ),
    ],
)
def test_a_json_header_is_taken_as_rocketmq_takes_it(header: bytes, fields: tuple[object, ...]) -> None:
    """HA-RM-3 "MUST take a JSON header that has `code` and `opaque` alone", HA-RM-5 "count as its text".

    HA-RM-4 "MUST read bytes that are no UTF-8 as U+FFFD".
    """
    command = decode(frame_of(header))
    shown = (command.code, command.opaque, command.flag, command.language, command.version, command.remark, command.ext_fields)
    assert shown == fields


def test_an_unknown_language_is_other_in_the_binary_form() -> None:
    header = bytes.fromhex("000f 63 0199 00000007 00000002 00000000 00000000")
    assert decode(frame_of(header, 1)).language == "OTHER"
    assert encode_whole(RemotingCommand(15, 7, 2, "COBOL", serialize_type=BINARY))[10] == 7


def test_the_header_of_an_answer_may_be_longer_than_that_of_a_request() -> None:
    """HA-RM-20: the answer to a batch of 10,000 messages names them all."""
    ids = ",".join(["7F00000100002A9F0000000000000000"] * 10_000)
    answer = RemotingCommand(0, flag=1, ext_fields={"msgId": ids})
    frame = b"".join(encode(answer))[4:]
    assert decode(frame, REMOTING_FRAME_MAX).ext_fields == {"msgId": ids}
    with pytest.raises(FrameInvalid, match="header"):
        decode(frame)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (RemotingCommand(2**31), "2147483648"),
        (RemotingCommand(1, opaque=-(2**31) - 1), "-2147483649"),
        (RemotingCommand(2**15, serialize_type=BINARY), "32768"),
        (RemotingCommand(1, version=2**15, serialize_type=BINARY), "32768"),
        (RemotingCommand(1, opaque=2**31, serialize_type=BINARY), "2147483648"),
        (RemotingCommand(1, ext_fields={"a" * 2**15: "b"}, serialize_type=BINARY), "32768 bytes"),
        (RemotingCommand(1, remark="\ud800"), "surrogate"),
        (RemotingCommand(1, ext_fields={"a": "\ud800"}, serialize_type=BINARY), "surrogate"),
        (RemotingCommand(1, remark="a" * REMOTING_HEADER_MAX), "bytes"),
        (RemotingCommand(1, body=bytes(REMOTING_FRAME_MAX - 20)), f"at most {REMOTING_FRAME_MAX}"),
    ],
)
def test_a_command_that_fits_no_frame_is_refused(command: RemotingCommand, found: str) -> None:
    with pytest.raises(FrameInvalid) as caught:
        encode(command)
    assert found in str(caught.value)
