"""All consume queues of a store: `consumequeue/{topic}/{queueId}`.

A topic names a directory, but it comes from replicated bytes and may be anything. A topic that is no valid directory name
(`..`, a slash, too many bytes) gets no queue: its messages stay in the log, and a warning is logged.

Spec: HA-ST-29 to HA-ST-31, HA-ST-34, HA-ST-38.
Source: 4.9.8 DefaultMessageStore.loadConsumeQueue, putMessagePositionInfo and truncateDirtyLogicFiles.
"""

import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import FILE_SIZE, ConsumeQueue
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.dispatch_round import DispatchRound, add_entries
from rocketmq_ha.impl.store.derived.queue_entry import Entry
from rocketmq_ha.impl.store.derived.queue_file import QueueFiles
from rocketmq_ha.spec.constants import CONSUME_QUEUE_DIR

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

Key = tuple[bytes, int]  # topic, queue id
_QUEUE_ID: Final = re.compile(r"-?[0-9]{1,10}")
_NAME_LIMIT: Final = 255  # bytes: what file systems allow


class ConsumeQueueTable:
    """The consume queues of a store, by topic and queue id. They are loaded from the disk, and created as messages come.

    Args:  file_size: bytes; default: the size of existing files, else 6,000,000. writable: see ConsumeQueue.
    Raises: ConfigInvalid, StoreCorrupt, OSError, as ConsumeQueue does. Call `recover` before anything else.
    """

    def __init__(self, store_dir: Path, file_size: int | None = None, *, writable: bool) -> None:
        self.directory: Final = store_dir / CONSUME_QUEUE_DIR
        self._writable = writable
        self._files: Final = QueueFiles(store_dir)
        self._queues: dict[Key, ConsumeQueue] = {}
        self._ids: dict[bytes, list[int]] = {}  # of each topic's queues
        self._refused: set[Key] = set()
        self._hidden: dict[bytes, int] = {}  # by topic: messages before this offset of the log are hidden
        self._unflushed: dict[Key, ConsumeQueue] = {}  # those that a flush has something to do for
        self._flushing = threading.Lock()  # two flushes at once would share the queues, and each count all as flushed
        found = sorted(_queue_directories(self.directory))
        self.file_size: Final = file_size or next(filter(None, (_length(path) for _, path in found)), FILE_SIZE)
        for key, path in found:
            self._queues[key] = ConsumeQueue(path, self.file_size, writable=writable, files=self._files)
            self._ids.setdefault(key[0], []).append(key[1])

    def __iter__(self) -> Iterator[tuple[Key, ConsumeQueue]]:
        """Every queue, by topic and queue id."""
        return iter(sorted(self._queues.copy().items()))

    @property
    def count(self) -> int:
        """The number of queues."""
        return len(self._queues)

    def get(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """A queue; None if no message of it has been dispatched."""
        return self._queues.get((topic, queue_id))

    def ids(self, topic: bytes) -> tuple[int, ...]:
        """The ids of a topic's queues; none if no message of it has been dispatched."""
        return tuple(self._ids.get(topic, ()))

    def hide_before(self, topic: bytes, offset: int) -> None:
        """Hide the messages of a topic before a commit-log offset, also those that are dispatched later; see ConsumeQueue."""
        self._hidden[topic] = offset
        for queue_id in self.ids(topic):
            self._queues[topic, queue_id].hide_before(offset)

    def put(self, requests: Sequence[DispatchRequest]) -> None:
        """Dispatch messages to their queues. HA-ST-34 "MUST NOT be in any consume queue": prepared and rolled-back ones.

        Raises: OSError, StoreCorrupt; then the caller may put the same messages again. After StoreCorrupt the messages before
        its offset are in their queues, and none behind it, as if they had been put one by one in the order of the log.
        """
        if isinstance(requests, DispatchRound):
            entries = requests.entries
        else:
            add_entries(entries := {}, requests)
        failed: StoreCorrupt | None = None
        ends: list[tuple[ConsumeQueue, int]] = []  # where the last message ended before this call
        for key, fields in entries.items():
            if failed is not None and not (fields := _before(failed.offset, fields)):
                continue
            queue = self._queues.get(key) or self._add(key)
            if queue is not None:
                ends.append((queue, queue.max_physic_offset))
                try:
                    queue.put_all(fields)
                except StoreCorrupt as error:
                    failed = error
                finally:  # not before: a flush in between would find nothing, and forget the queue
                    self._unflushed[key] = queue
        if failed is not None:
            for queue, end in ends:
                queue.truncate_dirty(max(end, failed.offset))
            raise failed

    def recover(self, min_offset: int, max_offset: int | None) -> None:
        """Find begin and end of each queue, and cut off entries beyond the end of the log.

        Args:  min_offset, max_offset: of the log. A log without files (max_offset None) has no queues (HA-ST-38).
        """
        if max_offset is None and self._writable:
            self.destroy()
            return
        for queue in self._queues.values():
            queue.recover()
            if self._writable and max_offset is not None:
                queue.truncate_dirty(max_offset)
            queue.correct_min_offset(min_offset)
        self._note_unflushed()

    def keep_before(self, min_offset: int, offset: int, is_true: Callable[[Key, int, Entry], bool]) -> None:
        """Use this in place of `recover` after an unclean stop: keep only the entries of messages that end by a log offset.

        Args:  min_offset: of the log. is_true: see ConsumeQueue.keep_before.
        """
        for key, queue in self._queues.items():
            queue.keep_before(offset, partial(is_true, key))
            queue.correct_min_offset(min_offset)
        self._note_unflushed()

    def keep_expired(self, min_offset: int, firsts: Mapping[Key, int]) -> None:
        """Use this in place of `recover` after an unclean stop, if recovery begins where the log does.

        Args:  min_offset: of the log. firsts: the queue offset of the first message of each queue in the log.
        """
        for key, queue in self._queues.items():
            queue.keep_expired(min_offset, firsts.get(key))
            queue.correct_min_offset(min_offset)
        self._note_unflushed()

    def truncate_dirty(self, offset: int) -> None:
        """Remove the entries of all messages at or behind a commit-log offset."""
        for queue in self._queues.values():
            queue.truncate_dirty(offset)
        self._note_unflushed()

    def drop_unused(self) -> None:
        """After the dispatch of a recovery: remove the files that it emptied and that got no entry. Raises: OSError."""
        for key, queue in self._queues.items():
            queue.drop_unused()
            if not queue.is_flushed:
                self._unflushed[key] = queue

    def _note_unflushed(self) -> None:
        """What a recovery has changed is to be flushed."""
        self._unflushed = {key: queue for key, queue in self._queues.items() if not queue.is_flushed}

    def delete_expired(self, min_offset: int) -> int:
        """Delete files whose messages all lie before the log's min offset. Returns: their number."""
        return sum(queue.delete_expired(min_offset) for queue in list(self._queues.values()))

    def destroy(self) -> None:
        """Remove every queue from the disk."""
        for queue in self._queues.values():
            queue.destroy()
        self._queues, self._ids, self._unflushed = {}, {}, {}
        if self.directory.is_dir():
            shutil.rmtree(self.directory)

    @property
    def max_physic_offset(self) -> int:
        """The end offset of the last message in any queue; dispatch goes on there after a clean stop."""
        return max((queue.max_physic_offset for queue in list(self._queues.values())), default=0)

    def queue_offsets(self) -> dict[tuple[int, bytes], int]:
        """Map (queue id, topic) -> queue offset of the next message."""
        return {(queue_id, topic): queue.max_offset for (topic, queue_id), queue in self._queues.copy().items()}

    def flush(self, least_pages: int = 0) -> None:
        """Force all entries to the disk. Raises: OSError, StoreCorrupt, after the other queues were flushed."""
        failure: OSError | StoreCorrupt | None = None
        with self._flushing:
            synced: set[Path] = set()  # of topics, and above them: each has the names of all queues of the list by now
            for key in list(self._unflushed):
                queue = self._unflushed.pop(key)  # first: what is put from now on is noted again
                try:
                    queue.flush(least_pages, synced)
                except (OSError, StoreCorrupt) as error:
                    failure = error
                if not queue.is_flushed:
                    self._unflushed[key] = queue
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Give back all descriptors; a second call does nothing."""
        for queue in list(self._queues.values()):
            queue.close()

    def _add(self, key: Key) -> ConsumeQueue | None:
        topic, queue_id = key
        if not is_directory_name(topic):
            if key not in self._refused:
                self._refused.add(key)
                logger.warning("topic %r is no name for a directory: its messages get no consume queue", topic)
            return None
        directory = self.directory / os.fsdecode(topic) / str(queue_id)
        queue = ConsumeQueue(directory, self.file_size, writable=True, files=self._files)
        # Another thread that iterates makes a copy, or a list of the values, first, which nothing interrupts. A list of items
        # would make tuples, which may collect garbage: that runs Python code, in which threads may take turns.
        self._queues[key] = queue
        self._ids.setdefault(topic, []).append(queue_id)
        if (hidden := self._hidden.get(topic)) is not None:
            queue.hide_before(hidden)
        return queue


def is_directory_name(topic: bytes) -> bool:
    """Return True if the name denotes a directory directly in its parent.

    Spec: HA-ST-96 "A message whose topic cannot be the name of a directory MUST NOT be in any consume queue".
    """
    return 0 < len(topic) <= _NAME_LIMIT and topic not in (b".", b"..") and b"/" not in topic and b"\0" not in topic


def _queue_directories(directory: Path) -> Iterator[tuple[Key, Path]]:
    """The directories that look like queues; others are ignored, as in 4.9.8."""
    if directory.exists() and not directory.is_dir():
        raise ConfigInvalid(f"{directory}: not a directory, expected the consume queues of a store")
    for topic in directory.iterdir() if directory.is_dir() else ():
        if topic.is_dir():
            for queue in topic.iterdir():
                if queue.is_dir() and _QUEUE_ID.fullmatch(queue.name):
                    yield (os.fsencode(topic.name), int(queue.name)), queue


def _length(directory: Path) -> int | None:
    """The length of a queue's first file, which is the file size of the whole store."""
    names = sorted(path for path in directory.iterdir() if path.name.isdigit())
    return names[0].stat().st_size or None if names else None


def _before(offset: int, fields: list[int]) -> list[int]:
    """The fields of the messages before a commit-log offset; see ConsumeQueue.put_all."""
    return [field for at in range(0, len(fields), 4) if fields[at + 1] < offset for field in fields[at : at + 4]]
