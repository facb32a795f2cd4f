"""The files of a commit log or of a consume queue: names, bytes, loading, truncation, expiry.

    base                                  max offset
     |               data                     | stale | zeros  |
     | 00000000000000000000 | 00000000000000001000 |            file_size = 1000, two files

Both are a `store.Log`: whole files of one size, end to end, written up to the max offset. The bytes of the last file behind it
are stale or zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log, max_offset
from rocketmq_ha.spec.constants import FILE_NAME_DIGITS
from rocketmq_ha.spec.profile import Profile

MappedFileQueue = Log  # RocketMQ's name for both
DELETE_FILES_BATCH_MAX = 10  # files that one round of expiry deletes at most; observed in 4.9.8


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a store, which stays unchanged: the file, the value found, the value expected."""

    reason: str
    file: str
    found: int
    expected: int


def file_count(queue: MappedFileQueue) -> int:
    """The number of files. A file behind the max offset counts only if it holds stale bytes."""
    if queue.base is None:
        return 0
    return max(1, -(-(len(queue.data) + len(queue.stale)) // queue.file_size))


def file_names(queue: MappedFileQueue) -> tuple[str, ...]:
    """The names of the files there are: HA-ST-1 "each named by the 20-digit offset of its first byte".

    >>> file_names(Log(1024 ** 3, 1024 ** 3, b"a record"))
    ('00000000001073741824',)
    """
    base = queue.base or 0
    return tuple(f"{base + index * queue.file_size:0{FILE_NAME_DIGITS}d}" for index in range(file_count(queue)))


def files(queue: MappedFileQueue) -> dict[str, bytes]:
    """The whole bytes of each file, as on the disk: data, stale bytes behind it, and the zeros of a new file."""
    image = queue.data + queue.stale
    image += bytes(file_count(queue) * queue.file_size - len(image))
    return {
        name: image[index * queue.file_size : (index + 1) * queue.file_size] for index, name in enumerate(file_names(queue))
    }


def load(file_size: int, found: Mapping[str, bytes]) -> MappedFileQueue | Refused:
    """Load the files of a directory as full files; recovery finds out how far they are written.

    Spec: HA-ST-21 "A store with a commit-log file of another length than the others MUST be refused". A missing file
    between two others is refused, too, since a log has no gaps; 4.9.8 logs a line and goes on.
    """
    names = sorted(found)
    for index, name in enumerate(names):
        if len(found[name]) != file_size:
            return Refused("length of a file", name, len(found[name]), file_size)
        if int(name) != (expected := int(names[0]) + index * file_size):
            return Refused("name of a file", name, int(name), expected)
    if not names:
        return Log(file_size)
    return Log(file_size, int(names[0]), b"".join(found[name] for name in names))


def file_at(queue: MappedFileQueue, offset: int) -> int | None:
    """The index of the file that contains `offset`, written or not; None outside the files."""
    base = queue.base or 0
    index = (offset - base) // queue.file_size
    return index if offset >= base and index < file_count(queue) else None


def truncate_dirty_files(queue: MappedFileQueue, offset: int, profile: Profile) -> MappedFileQueue:
    """Cut the files at `offset`: delete those that begin beyond it, and set the end of the file that contains it.

    Classic moves the position only, and the bytes stay (quirk 35); hardened: HA-ST-7 "What recovery cuts off MUST be set to
    zero, and a store without a whole record MUST have no files".
    """
    if queue.base is None or offset < queue.base or (profile.clears_tail and offset == queue.base):
        return Log(queue.file_size)
    position = offset - queue.base
    image = queue.data + queue.stale
    assert position <= len(queue.data), "a truncation never goes forward"
    end_of_file = position - position % queue.file_size + queue.file_size
    stale = b"" if profile.clears_tail else image[position:end_of_file].rstrip(b"\0")
    return replace(queue, data=queue.data[:position], stale=stale)


def delete_first_files(queue: MappedFileQueue, count: int) -> MappedFileQueue:
    """Delete the first `count` files: HA-ST-13 "older files may have been deleted", and the min offset moves."""
    assert count == 0 or count < file_count(queue), "the last file stays"
    if count == 0 or queue.base is None:
        return queue
    size = count * queue.file_size
    return replace(queue, base=queue.base + size, data=queue.data[size:])


def delete_expired_file_by_time(
    queue: MappedFileQueue,
    last_modified_ms: Sequence[int],
    now_ms: int,
    file_reserved_time_ms: int,
    clean_at_once: bool = False,
) -> MappedFileQueue:
    """Delete files last written `file_reserved_time_ms` ago or longer, beginning with the first, ten at most.

    The last file stays, and so do all files behind one that stays: a log has no gaps. `clean_at_once`: the disk is nearly full.
    """
    assert len(last_modified_ms) == file_count(queue)
    count = 0
    for modified_ms in last_modified_ms[:-1][:DELETE_FILES_BATCH_MAX]:
        if now_ms < modified_ms + file_reserved_time_ms and not clean_at_once:
            break
        count += 1
    return delete_first_files(queue, count)


def append(queue: MappedFileQueue, data: bytes) -> MappedFileQueue:
    """Write at the max offset, over stale bytes; new files are opened as needed."""
    return replace(queue, data=queue.data + data, stale=queue.stale[len(data) :])


def end(queue: MappedFileQueue) -> int:
    """The offset of the next byte."""
    return max_offset(queue)
