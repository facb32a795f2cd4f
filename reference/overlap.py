"""The overlap: a hardened slave asks again for the end of its own log, from the start of its last whole record.

Offsets alone do not tell whether a slave's log is a prefix of the master's (quirk 9). A record does: it holds its store
timestamp and its offset. So the slave first reports the start of its last record and receives bytes that it has already. It
compares them, and appends only what follows them.

    base                    first report           max_offset
     +----------+-----------+----------------------+
     | record   | record    | last whole record  ..|    compared, padding apart
     +----------+-----------+----------------------+

Spec: HA-S-61, HA-S-62.
"""

from rocketmq_ha.reference import store
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_SIZE,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
)

_MAGICS = {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}


def first_report(log: Log) -> int:
    """The first report: the start of the last whole record; the start of the log if it has none.

    Spec: HA-S-61 "MUST set current_reported_offset to the start of its last whole record, or of its log where it has none, or
    to 1 where that is 0".
    """
    if not log.data:
        return store.max_offset(log)
    found = last_record(log)
    return max(1, store.min_offset(log) + (0 if found is None else found[0]))


def last_record(log: Log) -> tuple[int, int] | None:
    """Begin and end of the last whole record, counted from the log's base.

    Spec: HA-S-61 "stands at the start of a file or behind another".
    """
    for start in reversed(range(0, len(log.data), log.file_size)):
        end = min(start + log.file_size, len(log.data))
        position, found = start, None
        while position + END_FILE_MIN_BLANK_SIZE <= end:
            size, magic = _head(log, position)
            if magic not in _MAGICS or size <= MESSAGE_FIXED_SIZE or position + size > end:
                break
            found = (position, position + size)
            position += size
        if found is not None:
            return found
    return None


def differs(log: Log, offset: int, body: bytes) -> bool:
    """Return True if received bytes for an offset within the log differ from the log's own bytes.

    Spec: HA-S-62 "except the padding of a BLANK".
    """
    base = store.min_offset(log)
    own = log.data[offset - base : offset - base + len(body)]
    padding = _padding(log)
    return any(
        mine != theirs and offset - base + index not in padding
        for index, (mine, theirs) in enumerate(zip(own, body, strict=False))
    )


def _padding(log: Log) -> range:
    """The padding of the BLANK behind the last whole record, if there is one."""
    found = last_record(log)
    if found is None or found[1] % log.file_size == 0:
        return range(0)
    behind = found[1]
    start, end_of_file = behind + END_FILE_MIN_BLANK_SIZE, behind - behind % log.file_size + log.file_size
    if start > min(end_of_file, len(log.data)) or _head(log, behind)[1] != BLANK_MAGIC_CODE:
        return range(0)
    return range(start, end_of_file)


def _head(log: Log, position: int) -> tuple[int, int]:
    """(size, magic) at a position."""
    head = log.data[position : position + END_FILE_MIN_BLANK_SIZE]
    return int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big")
