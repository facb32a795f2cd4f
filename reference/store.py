"""The commit log as a value: the files of a store, laid end to end.

HA-ST-1 "a sequence of files of one fixed size, each named by the 20-digit offset of its first byte".

base              max_offset
 | file | file | fi...|
 +------+------+------+
"""

from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import message
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Step
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE
from rocketmq_ha.spec.profile import Profile


@dataclass(frozen=True, slots=True)
class Log:
    """A commit log. `base` is the offset of the first file, a multiple of `file_size`, or None where there are no files.

    Spec: HA-ST-11 "a store MUST keep the size with which it was begun": no function here changes `file_size`. HA-S-91 is the
    exception.
    """

    file_size: int
    base: int | None = None
    data: bytes = b""  # all bytes from base to the max offset
    # Stale bytes behind `data` in the last file, without trailing zeros: a recovery cut them off but did not clear them (quirk
    # 35).
    stale: bytes = b""


class StoreState(Enum):
    """The discrete state of a log, for the table of transitions."""

    NO_FILES = "no_files"
    PHANTOM = "phantom"  # an empty file (quirk 17)
    OPEN = "open"  # the last file has room
    FILE_FULL = "file_full"  # the next byte opens a new file


def classify(log: Log) -> StoreState:
    if log.base is None:
        return StoreState.NO_FILES
    if not log.data:
        return StoreState.PHANTOM
    return StoreState.OPEN if len(log.data) % log.file_size else StoreState.FILE_FULL


def min_offset(log: Log) -> int:
    """HA-ST-13 "MUST be the start of its first file"; 0 where there are no files."""
    return log.base or 0


def max_offset(log: Log) -> int:
    """The offset after the last byte; 0 where there are no files."""
    return (log.base or 0) + len(log.data)


def data_at(log: Log, offset: int, limit: int) -> bytes:
    """At most `limit` bytes from `offset`, up to the end of its file; empty outside the log.

    Spec: HA-W-4 "MUST NOT cross the end of a commit-log file"; HA-W-5 "MUST NOT be larger than ha_transfer_batch_size", where
    that is the limit; HA-W-10 "MAY begin and end anywhere in a record"; HA-M-29 "MAY send bytes that are not yet on its own
    disk", since `data` includes unflushed bytes.
    """
    if log.base is None or not log.base <= offset < max_offset(log):
        return b""
    end_of_file = offset - offset % log.file_size + log.file_size
    end = min(offset + limit, end_of_file, max_offset(log))
    return log.data[offset - log.base : end - log.base]


def blank(size: int) -> bytes:
    """A BLANK, which fills the end of a file. HA-ST-3 "its size and the BLANK magic followed by padding"."""
    return size.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(size - END_FILE_MIN_BLANK_SIZE)


def append_record(log: Log, record: Record) -> tuple[Log, int, int]:
    """Append a message: (log, its offset, its size). Opens file 0 in an empty store, the next file behind a BLANK.

    Spec: HA-ST-12 "MUST be appended at the end of the log, one at a time"; HA-ST-3 "When a message and 8 bytes more do not fit
    in the rest of a file"; HA-ST-15 "MUST be the commit-log offset of the record itself".
    """
    data = message.encode(replace(record, physical_offset=max_offset(log)))
    assert len(data) + END_FILE_MIN_BLANK_SIZE <= log.file_size, "a message larger than a file"
    remaining = log.file_size - len(log.data) % log.file_size
    base = log.base or 0
    if len(data) + END_FILE_MIN_BLANK_SIZE > remaining:
        # The padding keeps its bytes: HA-ST-17 "two logs that differ in padding alone MUST count as equal".
        padding = (log.stale + bytes(remaining))[END_FILE_MIN_BLANK_SIZE:remaining]
        log = _extend(log, blank(remaining)[:END_FILE_MIN_BLANK_SIZE] + padding, base)
        data = message.encode(replace(record, physical_offset=max_offset(log)))
    return _extend(log, data, base), max_offset(log), len(data)


def append_data(log: Log, offset: int, body: bytes) -> Log:
    """Append replicated bytes at the max offset, whatever `offset` says, once there is a file.

    Spec: HA-ST-6 "In a store without files they open the file that holds their offset, and are written from its start".
    """
    base = log.base
    if base is None:  # Java divides towards zero: an offset of -5 (quirk 4) is in file 0
        base = offset - offset % log.file_size if offset >= 0 else -(-offset // log.file_size * log.file_size)
    if base < 0 or len(body) > log.file_size - len(log.data) % log.file_size:
        return log  # a body that does not fit is dropped; HA-S-33 "does not look at the outcome of an append" (quirk 19)
    return _extend(log, body, base)


def unwritten(log: Log, size: int) -> bytes:
    """The bytes in the last file behind the max offset, at the place of the next append.

    Spec: HA-S-37 "counts an append whose write fails as done", and these are then the bytes of its log.
    """
    return (log.stale + bytes(size))[:size]


def record_size(log: Log, position: int) -> int:
    """The size of the record at a position, counted from the log's base; a BLANK extends to the end of its file."""
    record = message.decode(log.data, position)
    return log.file_size - position % log.file_size if record is None else record[1]


def next_queue_offsets(log: Log) -> dict[tuple[str, int], int]:
    """Map (topic, queue id) -> queue offset of the next message, from the records. HA-ST-31."""
    position, found = 0, {}
    while position < len(log.data):
        if record := message.decode(log.data, position):
            found[record[0].topic.decode(), record[0].queue_id] = record[0].queue_offset + 1
            position += record[1]
        else:
            position += log.file_size - position % log.file_size
    return found


def without_first_file(log: Log) -> Log:
    """The log after its first file was deleted; the last one never is. HA-ST-13 "older files may have been deleted"."""
    if log.base is None or len(log.data) <= log.file_size:
        return log
    return replace(log, base=log.base + log.file_size, data=log.data[log.file_size :])


def without_last_record(log: Log) -> Log:
    """The log after a power cut that lost the unflushed last record: its bytes are zero, and zeros are nothing stale.

    HA-M-29 "MAY send bytes that are not yet on its own disk".
    """
    position = found = 0
    while position < len(log.data):
        rest = log.file_size - position % log.file_size
        if record := message.decode(log.data, position):
            found = position
            position += record[1]
        else:  # a BLANK
            position += rest
    return replace(log, data=log.data[:found], stale=b"")


def _is_blank(data: bytes, position: int, rest_of_file: int) -> bool:
    """Return True if a BLANK begins at `position`. A file whose rest is too short for one has none: HA-ST-3.

    So few bytes can be left in the files of a slave of classic whose size is not its master's.
    """
    if rest_of_file < END_FILE_MIN_BLANK_SIZE:
        return False
    return data[position : position + END_FILE_MIN_BLANK_SIZE] == blank(rest_of_file)[:END_FILE_MIN_BLANK_SIZE]


def _extend(log: Log, body: bytes, base: int) -> Log:
    """Write at the max offset, over stale bytes. `base`: of the log, or of the first file of a log without files."""
    return replace(log, base=base, data=log.data + body, stale=log.stale[len(body) :])


def recover(log: Log, profile: Profile) -> Step[Log]:
    """Cut the log behind its last whole record; a BLANK extends to the end of its file.

    A new file consists of zeros, and nothing on the disk says how many bytes were written: HA-ST-5 "bytes that are missing and
    would be zero count as there". Hardened also clears the rest, HA-ST-7 "What recovery cuts off MUST be set to zero", and
    treats one more kind of record as torn, HA-ST-10 "whose topic, or whose properties if it has any, end in a zero byte is not
    whole, and recovery MUST cut it off".
    """
    if log.base is None:
        return Step(log, clauses=("HA-ST-5",))
    clauses = ["HA-ST-5"]
    data = log.data + log.stale
    data += bytes(-len(data) % log.file_size)
    position, last_position, ends_in_zero = 0, 0, False
    while True:
        rest_of_file = log.file_size - position % log.file_size
        if _is_blank(data, position, rest_of_file):
            position += rest_of_file
            ends_in_zero = False
            continue
        found = message.decode(data, position)
        if found is None or found[0].physical_offset != log.base + position or found[1] > rest_of_file:
            break
        record, size = found
        last_position, ends_in_zero = position, (record.properties or record.topic).endswith(b"\0")
        position += size
    if profile.checks_recovery and ends_in_zero and not any(data[position:]):
        position = last_position
        clauses.append("HA-ST-10")
    if profile.clears_tail and position < len(log.data):
        clauses.append("HA-ST-7")
    if profile.clears_tail and position == 0:
        return Step(Log(log.file_size), clauses=tuple(clauses))
    # Files that begin beyond the end are deleted. In the last file the bytes behind the end stay, unless they are cleared.
    end_of_file = position - position % log.file_size + log.file_size
    stale = b"" if profile.clears_tail else data[position:end_of_file].rstrip(b"\0")
    return Step(replace(log, data=data[:position], stale=stale), clauses=tuple(clauses))
