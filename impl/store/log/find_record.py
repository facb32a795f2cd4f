"""Where a walk has stopped: what is wrong there, and whether a whole record follows."""

from collections.abc import Iterator

from rocketmq_ha.impl.errors import MessageMalformed, StoreCorrupt
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.scan import scan
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.impl.wire.record_layout import (
    MAGIC,
    MAGIC_BYTES,
    MAGICS,
)
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_SIZE,
)


def explain(file: MappedFile, position: int) -> StoreCorrupt | None:
    """Say what is wrong with the bytes at a position, in the words of `decode`; None where nothing is (any more)."""
    found = scan(file.mapping, file.base, position, position + 1)
    if found.position > position:
        return None
    head = file.mapping[position : position + END_FILE_MIN_BLANK_SIZE]
    if not any(head):
        return StoreCorrupt(file.path, file.base + position, "zero bytes", "a record")
    if head[MAGIC.position :] == MAGIC_BYTES[BLANK_MAGIC_CODE]:
        told, left = int.from_bytes(head[: MAGIC.position], "big"), file.size - position
        return StoreCorrupt(file.path, file.base + position, f"a BLANK of {told} bytes", f"{left}, the rest of the file")
    try:
        message = decode(file.view(position, file.size), 0)
    except MessageMalformed as error:
        return StoreCorrupt(file.path, file.base + position, f"{error.field} {error.found}", error.expected)
    offset = message.physical_offset
    if offset == file.base + position:
        return None  # a writer has completed it in between
    return StoreCorrupt(file.path, file.base + position, f"physical offset {offset}", file.base + position)


def whole_record_at(file: MappedFile, position: int) -> bool:
    """Whether a whole record with a right CRC stands at a position, whatever physical offset it tells."""
    try:
        decode(file.view(position, file.size), 0)
    except MessageMalformed:
        return False
    return True


def find_record(file: MappedFile, start: int, stored_before_ms: int | None = None) -> int | None:
    """Look for a whole valid record of its own place at or after a position, byte by byte.

    Args:  stored_before_ms: only a record that was stored before this time counts.
    Returns: its position. Size, magic, CRC and physical offset must be right, so no stray bytes pass for one; a record
    image in a message's body tells another physical offset.
    """
    for position in _magic_positions(file, start):
        record = position - MAGIC.position
        if record < start or not scan(file.mapping, file.base, record, record + 1).messages:
            continue
        if stored_before_ms is None or decode(file.mapping, record).store_timestamp < stored_before_ms:
            return record
    return None


def _magic_positions(file: MappedFile, start: int) -> Iterator[int]:
    magics = [MAGIC_BYTES[magic] for magic in MAGICS]
    common = magics[0][:3]
    kept, kept_position = b"", start  # the last bytes of the chunk before: a magic may lie across
    for position, chunk in file.chunks(start):
        text = kept + chunk if kept_position + len(kept) == position else chunk
        origin = position + len(chunk) - len(text)
        at = text.find(common)
        while at >= 0:
            if text[at : at + 4] in magics:
                yield origin + at
            at = text.find(common, at + 1)
        kept = text[-3:]
        kept_position = origin + len(text) - len(kept)
