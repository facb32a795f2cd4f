"""Translates addresses in the frames of one direction of a remoting connection. All other bytes pass as they came."""

from typing import Final

from rocketmq_ha.impl.app.cluster.plan import Translation
from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.impl.remoting.command import decode, encode_whole
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

_LENGTH_SIZE: Final = 4


class FrameTranslator:
    """Changes the values of header fields, as a router with address translation changes packets."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._reader = FrameReader()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes. Returns: the frames that are whole now. Raises: OSError, for bytes that are no frames."""
        found = b"".join(self._translated(frame) for frame in self._reader.feed(data))
        if self._reader.error is not None:
            raise ConnectionAbortedError(str(self._reader.error))
        return found

    def _translated(self, frame: bytes) -> bytes:
        """A frame with its length. One whose header cannot be read is for its reader to refuse."""
        as_it_came = len(frame).to_bytes(_LENGTH_SIZE, "big") + frame
        try:
            command = decode(frame, REMOTING_FRAME_MAX)
        except FrameInvalid:
            return as_it_came
        found = {
            name: values[value]
            for name, values in self._translation.items()
            if (value := command.ext_fields.get(name)) is not None and value in values
        }
        if not found:
            return as_it_came
        command.ext_fields = {**command.ext_fields, **found}
        return encode_whole(command)
