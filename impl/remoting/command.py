"""A command of remoting: a request or an answer; its header as JSON or in RocketMQ's binary form, and its frame.

The header of an answer has the form of its request's. What is read is bounded by the limits of `spec/constants.py`, and
everything else a peer may send is refused with FrameInvalid, whatever it is.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final

from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.impl.remoting import binary_header, json_header
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX, REMOTING_HEADER_MAX, REMOTING_VERSION

LANGUAGE: Final = "PYTHON"  # what we call ourselves; RocketMQ knows this name
_RESPONSE: Final = 1  # bit 0 of flag
_ONEWAY: Final = 2  # bit 1 of flag
_HEAD: Final = Struct(">iI")  # the length of what follows; the serialize type (u8) and the length of the header (u24)
_WORD: Final = Struct(">I")
_SMALL: Final = 64 * 1024  # bytes: a body up to this size is copied behind its header, so that it takes one buffer
_opaques = itertools.count(1)


class SerializeType(IntEnum):
    """How a header is written. HA-RM-1 "neither 0 (JSON) nor 1 (ROCKETMQ's binary form) MUST be refused"."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class RemotingCommand:
    """A request or an answer.

    ext_fields: the fields of the code, all of them text. body: bytes. buffers: what follows the body in the frame, such as
    views of the log; they are sent without a copy, and a command that was read has none.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = LANGUAGE
    version: int = REMOTING_VERSION
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON
    buffers: Sequence[memoryview] = ()

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender wants no answer. HA-RM-11 "MUST NOT be answered"."""
        return bool(self.flag & _ONEWAY)

    @property
    def body_size(self) -> int:
        """Bytes of the body and of all buffers."""
        return len(self.body) + sum(map(len, self.buffers))


def request(code: int, ext_fields: dict[str, str] | None = None, body: bytes = b"", *, oneway: bool = False) -> RemotingCommand:
    """A request of ours, with an opaque of its own."""
    return RemotingCommand(code, next(_opaques) & 0x7FFFFFFF, _ONEWAY if oneway else 0, ext_fields=ext_fields or {}, body=body)


def response_to(
    request: RemotingCommand,
    code: int = 0,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    buffers: Sequence[memoryview] = (),
) -> RemotingCommand:
    """The answer to a request. That to a oneway request has the mark of one, too, by which it is dropped (`Channel.answer`).

    Spec: HA-MD-20 "which repeats the `opaque` of its request"; HA-RM-8 "MUST be written in the serialization of its request".
    """
    return RemotingCommand(
        int(code),
        request.opaque,
        _RESPONSE | request.flag & _ONEWAY,
        remark=remark,
        ext_fields=ext_fields or {},
        body=body,
        serialize_type=request.serialize_type,
        buffers=buffers,
    )


def encode(command: RemotingCommand) -> list[bytes | memoryview]:
    """The frame of a command, its length first, as buffers for sendmsg. Raises: FrameInvalid if a field does not fit.

    Spec: HA-MD-18 "MUST be a 4-byte length that does not count itself, one byte of serialize type".
    """
    header = json_header.encode(command) if command.serialize_type is SerializeType.JSON else binary_header.encode(command)
    body = command.body
    size = 4 + len(header) + command.body_size
    if len(header) > REMOTING_HEADER_MAX and not command.is_response:
        raise FrameInvalid("header", f"{len(header)} bytes", f"at most {REMOTING_HEADER_MAX}")
    if size + 4 > REMOTING_FRAME_MAX:
        raise FrameInvalid("frame", f"{size + 4} bytes", f"at most {REMOTING_FRAME_MAX}")
    head = _HEAD.pack(size, command.serialize_type << 24 | len(header))
    if len(body) <= _SMALL:
        return [b"".join((head, header, body)), *command.buffers]
    return [head + header, body, *command.buffers]


def encode_whole(command: RemotingCommand) -> bytes:
    """The frame of a command in one piece. Raises: FrameInvalid."""
    return b"".join(encode(command))


def decode(frame: bytes, header_max: int = REMOTING_HEADER_MAX) -> RemotingCommand:
    """Read a frame, without its length of 4 bytes. Raises: FrameInvalid.

    Args:  header_max: bytes; that of a client, which reads answers, is the frame's.
    Spec: HA-RM-2 "whose header does not end within it, MUST be refused".
    """
    if len(frame) < _WORD.size:
        raise FrameInvalid("frame", f"{len(frame)} bytes", "a serialize type and the length of a header")
    (word,) = _WORD.unpack_from(frame)
    serialize_type, size = word >> 24, word & 0xFFFFFF
    if size > header_max:  # HA-RM-20 "more than 256 KiB MUST be refused"
        raise FrameInvalid("header", f"{size} bytes", f"at most {header_max}")
    end = _WORD.size + size
    if end > len(frame):
        raise FrameInvalid("header", f"{size} bytes in a frame of {len(frame)}", "a header within its frame")
    header = frame[_WORD.size : end]
    if serialize_type == SerializeType.JSON:
        fields = json_header.decode(header)
        kind = SerializeType.JSON
    elif serialize_type == SerializeType.ROCKETMQ:
        fields = binary_header.decode(header)
        kind = SerializeType.ROCKETMQ
    else:
        raise FrameInvalid("serialize type", serialize_type, "0 (JSON) or 1 (ROCKETMQ)")
    return RemotingCommand(*fields, frame[end:], kind)
