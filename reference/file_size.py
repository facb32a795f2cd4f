"""How long the master's files are, as the heads of its records tell a slave that walks them from the start of its first file.

    base                                                  base + file_size
     | record      | record    | record         | BLANK    |     the master's files are as long
     | record      | record    | BLANK ...|                      they are shorter, of exactly so many bytes
     | record      | record    | record                    .|.   they are longer: 8 bytes are spared for a BLANK
     | record      | record    | BLANK                     .|.   they are longer, of exactly so many bytes

Spec: HA-S-90 to HA-S-93.
"""

from dataclasses import dataclass

from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_SIZE,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a walk has come to. position: of the head that it has stopped at, in bytes from the log's base."""

    position: int
    is_same: bool = False  # the master's files are as long as the slave's
    differs: bool = False  # they are not
    size: int | None = None  # the master's, where it differs and is known


def walk(log: Log, more: bytes = b"") -> Seen:
    """Walk the heads of a log, and of bytes that are to be appended.

    Spec: HA-S-90 "MUST walk the heads of the records that it is sent, before it appends them"; HA-S-93 "nor that of a BLANK
    MUST end the walk and nothing else".
    """
    if len(log.data) >= log.file_size:
        return Seen(len(log.data), is_same=True)
    data = log.data + more
    position = 0
    while position + END_FILE_MIN_BLANK_SIZE <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        magic = int.from_bytes(data[position + 4 : position + 8], "big")
        end = position + size
        if magic == BLANK_MAGIC_CODE and size >= END_FILE_MIN_BLANK_SIZE:
            if end == log.file_size:
                return Seen(position, is_same=True)
            return Seen(position, differs=True, size=end)
        if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) or size <= MESSAGE_FIXED_SIZE:
            break
        if end + END_FILE_MIN_BLANK_SIZE > log.file_size:
            return Seen(position, differs=True)
        position = end
    return Seen(position)


def is_known(log: Log) -> bool:
    """Whether a log shows that the master's files are as long as its own."""
    return walk(log).is_same


def adopt(log: Log, offset: int, more: bytes, size: int | None) -> Log | None:
    """The log with files of another size, to which `more` is to be appended at an offset; None where that cannot be.

    Spec: HA-S-91 "MUST make its one file as long as the master's are, before it appends that BLANK".
    """
    base = offset if log.base is None else log.base
    if size is None or size > log.file_size or base % size or len(log.data) + len(more) > size:
        return None
    return replace(log, file_size=size)
