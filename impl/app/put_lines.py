"""The lines that `put` sends: one JSON line for each message, made from the options and from standard input."""

import base64
import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE

_READ_SIZE: Final = 64 * 1024
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

# A line to send, or the reason why it cannot be sent.
Line = bytes | MessageIllegal


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of every message that the options give; None if they do not."""

    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    queue_id: int | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the fields of a message that has no others."""
        return self.onto({})

    def onto(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a message, with those of the options in place of its own."""
        fields = dict(fields)
        properties = fields.get("properties")
        properties = dict(properties) if isinstance(properties, dict) else {}
        for name, value in (("tags", self.tags), ("keys", self.keys)):
            if value is not None:
                fields[name] = value
                properties.pop(name.upper(), None)
        properties.update(self.properties)
        if properties:
            fields["properties"] = properties
        if self.topic is not None:
            fields["topic"] = self.topic
        if self.queue_id is not None:
            fields["queue_id"] = self.queue_id
        return fields

    @property
    def is_nothing(self) -> bool:
        return self == MessageFields()


def text_maker(overrides: MessageFields) -> Callable[[bytes], Line]:
    """Return a function that makes a line from a body: as text if the body is UTF-8, else as base64."""
    begin = _encode(overrides.fields())[:-1].encode()
    begin += b"," if overrides.fields() else b""

    def make(body: bytes) -> Line:
        try:
            text = _encode(body.decode())
        except UnicodeDecodeError:
            text = ""
        if (
            text and 3 * len(text) <= 4 * len(body) + 12
        ):  # escaped text may be six times as long as the body, base64 four thirds
            return begin + b'"body":' + text.encode() + b"}"
        return begin + b'"body_base64":"' + base64.b64encode(body) + b'"}'

    return make


def json_maker(overrides: MessageFields) -> Callable[[bytes], Line]:
    """Return a function that adds the options' fields to a JSON line. The master refuses a line that is not JSON."""
    if overrides.is_nothing:
        return lambda line: line

    def make(line: bytes) -> Line:
        try:
            fields = json.loads(line.decode())
        except (ValueError, RecursionError):
            return line
        return _encode(overrides.onto(fields)).encode() if isinstance(fields, dict) else line

    return make


class LineSource:
    """Reads lines from a descriptor, and makes the lines to send. Call `read` if it is readable and `lines` is short."""

    def __init__(self, fd: int | None, make: Callable[[bytes], Line], max_line_size: int, is_text: bool = False) -> None:
        """is_text: True if a line is a body; a refusal then names the body and not the line."""
        self.fd = fd  # None after its end
        self.lines: deque[Line] = deque()
        self._make, self._max_line_size, self._is_text = make, max_line_size, is_text
        self._part = bytearray()
        self._too_long = False

    def read(self) -> None:
        """Read once. A line that is too long is skipped, and is not kept in memory."""
        assert self.fd is not None
        data = os.read(self.fd, _READ_SIZE)
        if not data:
            self.fd = None
            if self._part or self._too_long:  # the last line may lack its newline
                self._end_line(b"")
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._end_line(end)
        if not self._too_long:
            self._part += rest
            if len(self._part) > self._max_line_size:
                self._part, self._too_long = bytearray(), True

    def _end_line(self, end: bytes) -> None:
        if self._too_long:
            self._too_long = False
            self.lines.append(self._too_long_line(f"more than {self._max_line_size} bytes"))
            return
        line = bytes(self._part) + end if self._part else end
        self._part = bytearray()
        made = self._make(line)
        if isinstance(made, bytes) and len(made) > self._max_line_size:
            made = self._too_long_line(f"{len(line if self._is_text else made)} bytes")
        self.lines.append(made)

    def _too_long_line(self, found: str) -> MessageIllegal:
        if self._is_text:
            return MessageIllegal("body", found, f"at most {MAX_MESSAGE_SIZE} bytes")
        return MessageIllegal("line", found, f"at most {self._max_line_size} bytes as JSON, a body of 4 MiB in base64")
