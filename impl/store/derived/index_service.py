"""The index of a store: a run of index files, named by the time of their making, the last of which takes the keys.

The keys of a message are its unique key and each word of its property KEYS. What is put is `topic#key`, by its hash.

What a crash leaves: 4.9.8 removes every file that ends behind the index time of the checkpoint, that is the last one at least,
and with it the keys of messages whose dispatch is not repeated (`delete_unsafe`). Here the files are kept, and cut where the
dispatch begins anew (`truncate`): then the index is that of the log. What lies before that place was flushed, for the second
time of the checkpoint moves only when queues and index are on the disk. So little is dispatched again, however long a file is.

Spec: HA-ST-43 "named by the time of its making, yyyyMMddHHmmssSSS"; HA-ST-42 "MUST be that of topic#key".
Source: article 003 section 1.3; 4.9.8 IndexService.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_file import Geometry, IndexFile
from rocketmq_ha.impl.store.derived.index_geometry import find_geometry
from rocketmq_ha.impl.store.derived.java_hash import (
    index_key_hash,
    java_text,
    positive,
    power_of_31,
    unsigned_hash,
    unsigned_hashes,
)
from rocketmq_ha.impl.store.log.layout import CREATING_SUFFIX, sync_directory
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketmq_ha.spec.constants import INDEX_DIR

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

MAX_MSGS_NUM_BATCH: Final = 64  # 4.9.8: a query gives no more, whatever it asks for
_NAME: Final = re.compile(r"[0-9]{17}")
_REMEMBERED_TOPICS: Final = 4096


class IndexService:
    """The index files of a store. The dispatch puts; any thread may query meanwhile.

    Args:  geometry: by default that of the files there are, else RocketMQ's. writable: whether anything may be changed.
    Raises: ConfigInvalid, StoreCorrupt for a file of another length, OSError.
    """

    def __init__(self, store_dir: Path, geometry: Geometry | None = None, *, writable: bool) -> None:
        self.directory: Final = store_dir / INDEX_DIR
        self._writable = writable
        if self.directory.exists() and not self.directory.is_dir():
            raise ConfigInvalid(f"{self.directory}: not a directory, expected the index of a store")
        entries = sorted(self.directory.iterdir()) if self.directory.is_dir() else []
        paths = [path for path in entries if _NAME.fullmatch(path.name)]
        self._leftovers = [path for path in entries if path.name.endswith(CREATING_SUFFIX)]
        self.geometry: Final = geometry or (find_geometry(paths) if paths else Geometry())
        self._guard = threading.Lock()  # of which files there are
        self._is_unsynced = writable and bool(paths)  # names may have changed that are not on the disk, by who was here before
        self.files: tuple[IndexFile, ...] = ()
        try:
            for path in paths:
                self.files += (IndexFile(path, self.geometry, writable=writable),)
        except BaseException:
            self.close()
            raise
        self._topic_hashes: dict[bytes, tuple[str, int]] = {}

    @property
    def end_phy_offset(self) -> int:
        """The commit-log offset of the last message in the index; 0 where it is empty."""
        return self.files[-1].header.end_phy_offset if self.files else 0

    # --- Writing -----------------------------------------------------------------------------------------------------

    def put(self, requests: Sequence[DispatchRequest]) -> None:
        """Put the keys of messages, in the order of the log.

        A message before the end of the index is passed over, and so are the keys that the last one has in it already (4.9.8
        would put these twice). HA-ST-78 "A prepared message MUST be in the index, and a rolled-back one MUST NOT be".

        Raises: OSError, where no file or no space can be had; then it may be called again with the same.
        """
        end = self.end_phy_offset
        texts: list[str] = []
        places: list[tuple[str, int, int, int]] = []  # topic, its hash, offset, store timestamp
        for topic, _, offset, _, _, timestamp, _, keys, uniq_key, sys_flag, _ in requests:
            if offset < end or not (keys or uniq_key) or sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                continue
            name, topic_hash = self._topic_hashes.get(topic) or self._topic_hash(topic)
            place = (name, topic_hash, offset, timestamp)
            words = words_of(keys, uniq_key)
            if offset == end:  # put already, all of it or what there was room for
                del words[: self._count_last(offset)]
            for word in words:
                texts.append(word)
                places.append(place)
        hashes = []
        for text, text_hash, (name, topic_hash, offset, timestamp) in zip(texts, unsigned_hashes(texts), places, strict=True):
            if text.isascii():  # one character, one unit
                key_hash = topic_hash * power_of_31(len(text)) + text_hash & 0xFFFFFFFF
                if key_hash > 0x7FFFFFFF:
                    key_hash = positive(key_hash)
            else:
                key_hash = index_key_hash(f"{name}#{text}")
            hashes.append((key_hash, offset, timestamp))
        done = 0
        while done < len(hashes):
            file = self._last_file()
            part = hashes[done : done + file.room]
            file.put_all(part)
            done += len(part)

    def _topic_hash(self, topic: bytes) -> tuple[str, int]:
        name = java_text(topic)
        found = name, unsigned_hash(f"{name}#")
        if len(self._topic_hashes) < _REMEMBERED_TOPICS:
            self._topic_hashes[topic] = found
        return found

    def _count_last(self, offset: int) -> int:
        """How many of the last entries are of the message at an offset."""
        count = 0
        for file in reversed(self.files):
            for found in file.offsets_backward():
                if found != offset:
                    return count
                count += 1
        return count

    def _last_file(self) -> IndexFile:
        """The file that takes the next key. 4.9.8 makes the next one at the next message, even at one without a key."""
        if self.files and not self.files[-1].is_full:
            return self.files[-1]
        self.directory.mkdir(parents=True, exist_ok=True)
        header = self.files[-1].header if self.files else None
        file = IndexFile.create(
            self._new_path(),
            self.geometry,
            end_phy_offset=header.end_phy_offset if header is not None else 0,
            end_timestamp=header.end_timestamp if header is not None else 0,
        )
        self._is_unsynced = True
        with self._guard:
            self.files = (*self.files, file)
        return file

    def _new_path(self) -> Path:
        """Named by now, in local time; where the clock was set back, by the number behind the last name.

        Spec: HA-ST-88 "MUST be above that of the last one".
        """
        now_ms = wall_clock_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        if self.files and name <= (last := self.files[-1].path.name):
            name = f"{int(last) + 1:017d}"
        return self.directory / name

    def flush(self) -> int:
        """Force all keys, and the names of new files, to the disk. Raises: OSError.

        Returns: the checkpoint's index time, the end of the last full file; 0 where none is full, or a damaged time is below 0.
        """
        files = self.files
        self._sync_names()
        for file in files:
            file.flush()
        return max([0, *(file.header.end_timestamp for file in files if file.is_full)])

    def _sync_names(self) -> None:
        """A file whose name is not on the disk is lost with all that was flushed into it; a removed one can come back."""
        is_unsynced, self._is_unsynced = self._is_unsynced, False  # first: a file that is made now counts again
        if is_unsynced:
            try:
                for directory in (self.directory, self.directory.parent):
                    sync_directory(directory)
            except BaseException:
                self._is_unsynced = True
                raise

    # --- After a stop, and deletion ----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove what interrupted creations have left."""
        for leftover in self._leftovers:
            leftover.unlink(missing_ok=True)
        self._leftovers = []

    def delete_unsafe(self, index_msg_timestamp: int) -> int:
        """Remove the files that end behind the checkpoint's index time, as 4.9.8 does. Returns: how many."""
        return self._remove([file for file in self.files if file.header.end_timestamp > index_msg_timestamp])

    def count_vouched(self, index_msg_timestamp: int, max_offset: int) -> int:
        """How many files, from the first on, are on the disk by the word of a checkpoint, and name nothing beyond the log.

        They were flushed in their order when they were full. So all that end before the checkpoint's index time are there, and
        the first that ends at it. Whether a second one that ends in the same ms is there, nobody knows.
        """
        count, end_timestamp = 0, 0
        while count < len(self.files) and end_timestamp < index_msg_timestamp:
            file = self.files[count]
            end_timestamp = file.header.end_timestamp
            if not file.is_full or end_timestamp > index_msg_timestamp or file.header.end_phy_offset >= max_offset:
                break
            count += 1
        return count

    def truncate(self, offset: int, store_timestamp_of: Callable[[int], int], vouched: int = 0) -> int:
        """Cut off the keys of messages at or behind a commit-log offset, and repair what a crash has left before it.

        Args:  store_timestamp_of: of the message at an offset before that, in ms; 0 where there is none.
               vouched: that many of the first files are left as they are.
        If the index is not writable, nothing is changed.

        Returns: the offset from which dispatch must begin for the index to be whole: that one, or where damage begins.
        Raises: OSError. What is left of a file is on the disk before a later one is removed.
        """
        removed: list[IndexFile] = []
        end = self.files[vouched - 1].header.end_phy_offset if vouched else 0
        for file in self.files[vouched:]:
            if removed or file.header.begin_phy_offset >= offset:
                removed.append(file)
                continue
            before = file.header.index_count - 1
            kept, is_damaged, last_offset = file.truncate(offset, store_timestamp_of)
            if is_damaged or not kept:  # it begins before the offset, so it had something
                if self._writable:
                    logger.warning("%s: keeps %d of %d entries", file.path, kept, before)
                offset = last_offset if kept else file.header.begin_phy_offset if before else end
            if kept:
                file.flush()
                end = last_offset
            else:
                removed.append(file)
        if self._writable:
            self._remove(removed)
            self._sync_names()
        return offset

    def doubt(self, number: int) -> None:
        """Let the next flush sync a file that the checkpoint vouches for.

        Its time alone says so, and a file that was synced and has expired may have ended in the same ms.
        """
        self.files[number].doubt()

    def delete_expired(self, min_offset: int) -> int:
        """Remove files whose messages all lie before the log's first offset; never the last. Returns: how many.

        Where the first of the others ends in the same ms as the last of these, it takes its place as the one file of that time
        that the checkpoint vouches for (`count_vouched`). So it must be on the disk before.

        Raises: OSError.
        """
        files = self.files
        expired = []
        for file in files[:-1]:
            if file.header.end_phy_offset >= min_offset:
                break
            expired.append(file)
        if expired:
            heir = files[len(expired)]
            if heir.is_full and heir.header.end_timestamp == expired[-1].header.end_timestamp:
                self._sync_names()
                heir.flush()
        return self._remove(expired)

    def destroy(self) -> None:
        """Remove all files."""
        self._remove(list(self.files))

    def close(self) -> None:
        """Let go of all files; a second call does nothing. It does not flush."""
        for file in self.files:
            file.close()

    def _remove(self, files: list[IndexFile]) -> int:
        """Remove files, from the last on. Raises: OSError; then those that are left are files of this index again."""
        with self._guard:
            before, self.files = self.files, tuple(file for file in self.files if file not in files)
        left = list(files)
        try:
            while left:
                self._is_unsynced = True
                left[-1].destroy()
                left.pop()
        except OSError:
            with self._guard:
                added = tuple(file for file in self.files if file not in before)
                self.files = tuple(file for file in before if file in left or file in self.files) + added
            raise
        return len(files)

    # --- Queries -----------------------------------------------------------------------------------------------------

    def offsets(self, topic: str, key: str, begin: int, end: int, *, classic: bool = False) -> Iterator[int]:
        """The commit-log offsets of messages with the hash of a key, newest first, stored between two times (ms).

        Times are compared by the second, see IndexFile; another key can have the same hash. Who wants to be sure reads the
        messages (query.py).
        """
        key_hash = index_key_hash(f"{topic}#{key}")
        for file in reversed(self.files):
            if file.is_time_matched(begin, end):
                yield from file.offsets(key_hash, begin, end, classic=classic)
            if file.header.begin_timestamp < begin:
                return

    def count_at_or_behind(self, offset: int) -> int:
        """How many keys are of messages at or behind a commit-log offset: the last ones."""
        found = chain.from_iterable(file.offsets_backward() for file in reversed(self.files))
        return sum(1 for _ in takewhile(lambda other: other >= offset, found))

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """What 4.9.8 answers: the newest `max_num`, 64 at most, ascending. HA-ST-44 without the reading of the messages."""
        return sorted(islice(self.offsets(topic, key, begin, end, classic=True), min(max_num, MAX_MSGS_NUM_BATCH)))


def words_of(keys: str, uniq_key: str | None) -> list[str]:
    """The keys of a message: the unique key, and each word of the property KEYS, in the order in which they are put."""
    words = [word for word in keys.split(" ") if word] if " " in keys else [keys] if keys else []
    if uniq_key:
        words.insert(0, uniq_key)
    return words
