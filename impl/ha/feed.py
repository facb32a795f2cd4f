"""Parse a master's stream for a reader without a log: into pieces of the log, and records. Sans-I/O.

`Pieces` takes bytes from the wire and yields (offset, bytes of the log). `Records` takes these and yields whole records. Both
buffer at most one record, and check everything: an impossible header, size, magic or offset is an error at once.

Spec: HA-W-8 "MUST NOT depend on where its reads split the stream"; HA-W-10 "begin and end anywhere in a record".
"""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

from collections.abc import Iterator
from typing import Final

from rocketmq_ha.impl.errors import PeerViolation, RocketmqHaError
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.impl.wire.record_layout import MAGICS, PHYSICAL_OFFSET, SIZE_AND_MAGIC, SMALLEST_RECORD, physical_offset_at
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE, MAX_MESSAGE_SIZE, SLAVE_READ_BUFFER_SIZE

LARGEST_BODY: Final = SLAVE_READ_BUFFER_SIZE - HEADER.size  # quirk 23: no slave could take a larger frame
LARGEST_RECORD: Final = 16 * MAX_MESSAGE_SIZE  # bytes; a broker's maxMessageSize may be raised, but within reason

Piece = tuple[int, memoryview]  # commit-log offset, bytes of the log at it; empty for a heartbeat


class NotARecord(RocketmqHaError):
    """No record begins where one should."""

    def __init__(self, offset: int, found: object, expected: object) -> None:
        super().__init__(f"at commit-log offset {offset}: found {found}, expected {expected}")
        self.offset, self.found, self.expected = offset, found, expected


class Pieces:
    """Parses the frames of one connection and yields their bodies piecewise as they arrive.

    Spec: HA-W-2 "A transfer frame MUST be a 12-byte header"; HA-W-3 "A frame with a body size of 0 is a heartbeat".
    """

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.next_offset: int | None = None  # offset of the next byte; None before the first header
        self.first_body_size: int | None = None  # body size of the first frame with data
        self._header = bytearray()
        self._left = 0  # bytes missing of the current body

    def take(self, data: memoryview) -> Iterator[Piece]:
        """Yield the pieces in the bytes, as views of `data`.

        Raises: PeerViolation for a frame that no correct master sends, or that does not continue the previous one.
        """
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                offset = self.next_offset
                assert offset is not None
                at += len(piece)
                self._left -= len(piece)
                self.next_offset = offset + len(piece)
                yield offset, piece
                continue
            missing = HEADER.size - len(self._header)
            self._header += data[at : at + missing]
            at += missing
            if len(self._header) == HEADER.size:
                self._left = self._parse_header()
                if not self._left:
                    assert self.next_offset is not None
                    yield self.next_offset, data[:0]

    @property
    def unparsed(self) -> bytes:
        """The bytes of an incomplete header."""
        return bytes(self._header)

    def _parse_header(self) -> int:
        offset, body_size = HEADER.unpack(self._header)
        self._header.clear()
        if not 0 <= body_size <= LARGEST_BODY:
            raise PeerViolation("HA-S-11", self.peer, f"a frame with a body size of {body_size}", f"0 to {LARGEST_BODY}")
        if offset < 0:
            raise PeerViolation("HA-S-11", self.peer, f"a frame at offset {offset}", "an offset of 0 or more")
        if self.next_offset not in (None, offset):
            raise PeerViolation("HA-S-4", self.peer, f"a frame at offset {offset}", f"offset {self.next_offset}")
        self.next_offset = offset
        if self.first_body_size is None and body_size:
            self.first_body_size = body_size
        return int(body_size)


class Records:
    """Splits the log into records, from the start of a record on. BLANKs and their padding are left out.

    A BLANK holds its own size, so the file size need not be known: HA-ST-17 "behind its first 8 bytes is padding".
    """

    def __init__(self, start: int, *, known: bytes = b"") -> None:
        """Begin at a record's start. known: its first bytes, if the caller knows them already."""
        self.position = start  # offset of the next record
        self._buffer = bytearray(known)
        self._padding = 0  # bytes of padding still to skip

    @property
    def next_offset(self) -> int:
        """The offset of the next byte for `take`."""
        return self.position + len(self._buffer) - self._padding

    def take(self, piece: memoryview) -> Iterator[tuple[int, bytes]]:
        """Add the next bytes; yield (offset, bytes) of each record that is complete now. Raises: NotARecord."""
        if self._padding:
            left_out = min(self._padding, len(piece))
            self._padding -= left_out
            piece = piece[left_out:]
        self._buffer += piece
        at = 0
        try:
            while (size := self._size_at(at)) is not None:
                if size < 0:  # a BLANK
                    there = min(-size, len(self._buffer) - at)
                    at += there
                    self.position -= size
                    self._padding = -size - there
                    continue
                record = bytes(memoryview(self._buffer)[at : at + size])
                offset = self.position
                at += size
                self.position += size
                yield offset, record
        finally:
            del self._buffer[:at]

    def _size_at(self, at: int) -> int | None:
        """The size of the record at a position of the buffer, negative for a BLANK; None if it is incomplete."""
        there = len(self._buffer) - at
        if there < END_FILE_MIN_BLANK_SIZE:
            return None
        size: int
        size, magic = SIZE_AND_MAGIC.unpack_from(self._buffer, at)
        if magic == BLANK_MAGIC_CODE:
            if size < END_FILE_MIN_BLANK_SIZE:
                raise NotARecord(self.position, f"a BLANK of {size} bytes", f"at least {END_FILE_MIN_BLANK_SIZE}")
            return -size
        if magic not in MAGICS:
            raise NotARecord(self.position, f"magic {magic:#010x}", " or ".join(f"{known:#010x}" for known in MAGICS))
        if not SMALLEST_RECORD <= size <= LARGEST_RECORD:
            raise NotARecord(self.position, f"total size {size}", f"{SMALLEST_RECORD} to {LARGEST_RECORD}")
        if there >= PHYSICAL_OFFSET.end:
            told = physical_offset_at(self._buffer, at)
            if told != self.position:
                raise NotARecord(self.position, f"a record of offset {told}", f"one of offset {self.position}")
        return size if there >= size else None
