"""Cut a stream into frames, whatever pieces it comes in."""

from struct import Struct
from typing import Final

from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

_LENGTH: Final = Struct(">i")


class FrameReader:
    """Keeps the bytes of a frame that is not whole yet. One reader a connection."""

    __slots__ = ("_needed", "_partial", "error")

    def __init__(self) -> None:
        self.error: FrameInvalid | None = None  # what follows the frames that were read; nothing more is read then
        self._partial = bytearray()
        self._needed = _LENGTH.size  # bytes that the partial frame must have before it is looked at again

    @property
    def buffered(self) -> int:
        """Bytes of a frame that has begun and is not whole; 0 between two frames."""
        return len(self._partial)

    @property
    def wanted(self) -> int:
        """Bytes that the frame which has begun still needs; 0 between two frames."""
        return self._needed - len(self._partial) if self._partial else 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream. Returns: the frames that are whole now, without their lengths.

        The frames before a length that is none are returned, and `error` is set: however the stream is cut into pieces, the
        same frames come out of it.
        Spec: HA-MD-19 "A frame of more than 16 MiB, its length of 4 bytes included, MUST be refused".
        """
        if self.error is not None:
            return []
        partial = self._partial
        if partial:
            partial += data
            if len(partial) < self._needed:
                return []
            data = bytes(partial)
            partial.clear()
        frames: list[bytes] = []
        at, end = 0, len(data)
        needed = _LENGTH.size
        while end - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if not _LENGTH.size <= length <= REMOTING_FRAME_MAX - _LENGTH.size:
                self.error = FrameInvalid("frame", f"a length of {length}", f"4 to {REMOTING_FRAME_MAX - _LENGTH.size}")
                return frames
            if end - at - _LENGTH.size < length:
                needed = _LENGTH.size + length
                break
            at += _LENGTH.size
            frames.append(data[at : at + length])
            at += length
        if at < end:
            partial += data[at:] if at else data
        self._needed = needed
        return frames
