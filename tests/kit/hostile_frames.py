"""Hostile bytes for a remoting port, each with what must come of them: the connection is closed, or there is an answer."""

import json
import random
from typing import Final

from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX, REMOTING_HEADER_MAX

ECHO: Final = 10  # a code that a test serves; a server of ours may have something else to say to it
CLOSED: Final = None  # the outcome of bytes that end their connection
FIXED: Final = "000a 03 0199 00000007 00000000"  # code 10, PYTHON, 409, opaque 7, no flag


def frame(header: bytes, serialize_type: int = 0, body: bytes = b"", header_size: int | None = None) -> bytes:
    size = len(header) if header_size is None else header_size
    rest = (serialize_type << 24 | size).to_bytes(4) + header + body
    return len(rest).to_bytes(4) + rest


def text(**fields: object) -> bytes:
    return frame(json.dumps({"code": ECHO, "opaque": 7} | fields).encode())


def raw(fields: str) -> bytes:
    return frame(('{"code":10,"opaque":7' + fields + "}").encode())


def binary(rest: str) -> bytes:
    return frame(bytes.fromhex(FIXED + rest), 1)


INPUTS: Final[dict[str, tuple[bytes, int | None]]] = {
    # No frames.
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", CLOSED),
    "a TLS handshake": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506), CLOSED),
    "the report of a slave": (bytes(8), CLOSED),
    "random bytes": (random.Random(7).randbytes(1 << 16), CLOSED),
    "a PROXY header": (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", CLOSED),
    "a length of 3": (b"\0\0\0\3abc", CLOSED),
    "a negative length": (b"\xff\xff\xff\xff", CLOSED),
    "the least negative length": (b"\x80\0\0\0", CLOSED),
    "a length beyond 16 MiB": ((REMOTING_FRAME_MAX - 3).to_bytes(4), CLOSED),
    "the greatest length": (b"\x7f\xff\xff\xff", CLOSED),
    # No headers.
    "a serialize type of 2": (frame(b"{}", 2), CLOSED),
    "a serialize type of 255": (frame(b"{}", 255), CLOSED),
    "a header beyond its frame": (frame(b"{}", header_size=3), CLOSED),
    "the longest header in a short frame": (frame(b"{}", header_size=0xFFFFFF), CLOSED),
    "a header of more than 256 KiB": (frame(b" " * (REMOTING_HEADER_MAX + 1)), CLOSED),
    "no header": (frame(b""), CLOSED),
    # JSON that is no header.
    "an array": (frame(b"[10,7]"), CLOSED),
    "a text": (frame(b'"code"'), CLOSED),
    "null": (frame(b"null"), CLOSED),
    "an object cut off": (frame(b'{"code":10,"opaque":7'), CLOSED),
    "bytes behind the object": (frame(b'{"code":10,"opaque":7}}'), CLOSED),
    "a byte order mark": (frame(b'\xef\xbb\xbf{"code":10,"opaque":7}'), CLOSED),
    "no code": (frame(b'{"opaque":7}'), CLOSED),
    "no opaque": (frame(b'{"code":10}'), CLOSED),
    "a code in text": (text(code="10"), CLOSED),
    "a code with a fraction": (text(code=10.0), CLOSED),
    "a code beyond an i32": (text(code=2**31), CLOSED),
    "a code of 4,000 digits": (raw(',"code":' + "9" * 4000), CLOSED),
    "a code that is true": (text(code=True), CLOSED),
    "a code that is null": (text(code=None), CLOSED),
    "NaN": (raw(',"x":NaN'), CLOSED),
    "a control character": (raw(',"remark":"a\x01"'), CLOSED),
    "half of a surrogate pair": (raw(',"remark":"\\ud800"'), CLOSED),
    "fields in an array": (text(extFields=[1]), CLOSED),
    "a field that is an object": (text(extFields={"topic": {}}), CLOSED),
    "100,000 levels of arrays": (raw(',"x":' + "[" * 100_000), CLOSED),
    "100,000 levels of objects": (raw(',"x":' + '{"a":' * 40_000), CLOSED),
    "33 levels in the fields": (text(extFields={"a": json.loads("[" * 31 + "]" * 31)}), CLOSED),
    # Binary that is no header.
    "a binary header of 20 bytes": (frame(bytes(20), 1), CLOSED),
    "a remark of -1 bytes": (binary("ffffffff 00000000"), CLOSED),
    "a remark beyond the header": (binary("00000005 00000000"), CLOSED),
    "a remark of 2 GiB": (binary("7fffffff 00000000"), CLOSED),
    "fields of -1 bytes": (binary("00000000 ffffffff"), CLOSED),
    "fields beyond the header": (binary("00000000 00000001"), CLOSED),
    "bytes behind the fields": (binary("00000000 00000000 00"), CLOSED),
    "a name of -1 bytes": (binary("00000000 00000006 ffff 00000000"), CLOSED),
    "a value of 2 GiB": (binary("00000000 00000007 0001 61 7fffffff"), CLOSED),
    "a value that leads back": (binary("00000000 00000007 0001 61 fffffff9"), CLOSED),
    "a pair cut off": (binary("00000000 00000003 0001 61"), CLOSED),
    # Odd, and taken all the same.
    "a negative code": (text(code=-1), 3),
    "a code of 5.x": (text(code=200_050), 3),
    "a negative opaque": (text(opaque=-7), 0),
    "numbers as fields": (text(extFields={"queueId": 3, "big": 10**400, "e": True}), 0),
    "30,000 fields": (text(extFields={str(number): "" for number in range(14_000)}), 0),
    "a field of 200 KiB": (text(extFields={"properties": "a" * 200_000}), 0),
    "the same names twice": (raw(',"opaque":8,"extFields":{"a":"1"},"extFields":{"a":"2"}'), 0),
    "bytes that are no UTF-8": (frame(b'{"code":10,"opaque":7,"remark":"\xff\xfe","extFields":{"\xc3":"\xc3"}}'), 0),
    "binary text that is no UTF-8": (binary("00000001 ff 00000008 0001 c3 00000001 c3"), 0),
    "an unknown language": (frame(bytes.fromhex("000a ff 0199 00000007 00000000 00000000 00000000"), 1), 0),
    "unknown fields": (text(nsd="x", lo=[[{"a": 1}]]), 0),
    "32 levels in an unknown field": (text(x=json.loads("[" * 31 + "]" * 31)), 0),
}
