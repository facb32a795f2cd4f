"""The commit log: one sequence of bytes over files of one size, appended at the end, by records or by replicated bytes.

A file k holds offsets k * file_size to (k + 1) * file_size. A record never crosses a file: where it does not fit with 8
bytes to spare, a BLANK record takes the rest of the file.

Threads: any may append, one lock orders them; any may read what was appended before; one flushes at a time. After `close` all
raise StoreClosed; no flush may be under way then.

Source: article 003 section 1.1; 4.9.8 CommitLog and MappedFileQueue; quirks 17, 18 and 35.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from rocketmq_ha.impl.errors import AppendRefused, MessageIllegal, RocketmqHaError, StoreClosed
from rocketmq_ha.impl.store.layout import file_name
from rocketmq_ha.impl.store.mapped_file import MappedFile
from rocketmq_ha.impl.store.mapped_file_queue import Creator
from rocketmq_ha.impl.store.opening import Knowledge, Opened, nothing_known, open_files
from rocketmq_ha.impl.store.results import AppendResult
from rocketmq_ha.impl.wire.batch import MessageBatch, lay_batch
from rocketmq_ha.impl.wire.message import Message, decode, encode, read_header
from rocketmq_ha.impl.wire.parts import UNUSUAL_FLAGS, USUAL_HEAD, USUAL_MAGIC, Parts, check_body, properties_part
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, BODY_CRC_MASK, END_FILE_MIN_BLANK_SIZE

_BLANK: Final = struct.Struct(">iI")
_pack_head: Final = USUAL_HEAD.pack_into
_crc32: Final = zlib.crc32
_new_result: Final = tuple.__new__

# Takes the fields of a dispatch_request.Handed, as a plain tuple; under the put lock, so in the order of the log.
Offer = Callable[[Any], None]


class CommitLog:
    """A store's log, open for appending by this process alone. Make one with `open`."""

    def __init__(self, opened: Opened) -> None:
        self.queue: Final = opened.queue
        self.file_size: Final = opened.queue.file_size
        self.recovery: Final = opened.found
        self._lock = opened.lock
        self._put_lock = threading.Lock()
        self._queue_offsets = opened.found.queue_offsets
        self._parts = Parts()
        self._offer: Offer | None = None
        self._offer_all: Callable[[Iterable[Any]], None] | None = None  # of a batch
        self._refusal: Callable[[], RocketmqHaError] | None = None
        self._last = opened.queue.files[-1] if opened.queue.files else None  # where the next message goes, if there is room
        self._last_stored_ms = 0
        self._closed = False

    @classmethod
    def open(
        cls,
        store_dir: Path,
        *,
        file_size: int | None = None,
        clear_tail: bool = True,
        knowledge: Knowledge = nothing_known,
        create: Creator = MappedFile.create,
    ) -> "CommitLog":
        """Lock a store, find the end of its log, and make ready to append there. All is checked before any change.

        Where the log ends, and what is a tear and what is damage, is decided in recovery.py: what stands behind the
        last whole valid record counts as torn only if no whole valid record follows it; else the open is refused.

        Args:  store_dir: the store's root. It is made where only its parent exists; commitlog/ and lock are made in it.
               file_size: bytes. By default that of the files there are, or 1 GiB for a new store.
               clear_tail: make all bytes of the last file beyond the end zero; without a whole record, remove all files
               (HA-ST-7). If False they stay, as RocketMQ leaves them (quirk 35), and the end is where RocketMQ finds it
               (recovery.py, `strict`). Files that begin beyond the end are removed in any case, as in RocketMQ.
               knowledge: what a checkpoint says; see recovery.py. create: makes new files.
        Raises: ConfigInvalid, StoreCorrupt (file and offset), StoreLocked, OSError. Then nothing changed on disk.
        """
        return cls(open_files(store_dir, file_size=file_size, clear_tail=clear_tail, knowledge=knowledge, create=create))

    def dispatch_to(self, offer: Offer, offer_all: Callable[[Iterable[Any]], None]) -> None:
        """Hand over what dispatch needs of each message, or of a batch of them. Replicated bytes hand over nothing."""
        self._offer, self._offer_all = offer, offer_all

    def refuse(self, make_error: Callable[[], RocketmqHaError] | None) -> None:
        """Raise this at every append from now on, replicated bytes included; None takes it back.

        Spec: HA-ST-22 "shutting down, or not yet started, MUST refuse replicated bytes".

        When this returns, every append that is not refused has ended.
        """
        with self._put_lock:
            self._refusal = make_error

    def raise_queue_offsets(self, known: dict[tuple[int, bytes], int]) -> None:
        """Take what consume queues know: (queue id, topic) -> next queue offset. The greater one counts."""
        with self._put_lock:
            for key, next_offset in known.items():
                if next_offset > self._queue_offsets.get(key, 0):
                    self._queue_offsets[key] = next_offset

    @property
    def min_offset(self) -> int:
        """HA-ST-13 "MUST be the start of its first file"; 0 where there is none."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte of the log; 0 where there are no files."""
        return self.queue.max_offset

    @property
    def flushed_offset(self) -> int:
        """The log before this offset is on the disk."""
        return self.queue.flushed_offset

    @property
    def last_stored_ms(self) -> int:
        """The store timestamp of the last message that was put with one of the store's; 0 before the first."""
        return self._last_stored_ms

    @last_stored_ms.setter
    def last_stored_ms(self, time_ms: int) -> None:
        """No later message is stored before this time."""
        with self._put_lock:
            self._last_stored_ms = max(self._last_stored_ms, time_ms)

    def append(self, message: Message, stored_ms: int | None = None, store_host: bytes | None = None) -> AppendResult:
        """Put one message at the end, giving it its physical offset and its index in its queue.

        Spec: HA-ST-12 "Messages MUST be appended at the end of the log, one at a time"; HA-ST-15 "The physical offset in a
        record MUST be the commit-log offset of the record itself"; HA-ST-3 "the message opens the next file".

        Args:  stored_ms: the store timestamp, by default the message's own; where given, one that would lie before that of
               the message before becomes equal to it, so that times ascend with offsets. store_host: 8 bytes, IPv4 and
               port, by default the message's own; not for a message of which sysFlag says that its store host is IPv6.
        Raises: MessageIllegal for what no record holds, a record that fits no file of this log, or one that could not
        be told from its own beginning (it ends in a zero byte); StoreFull or another OSError where a new file cannot be
        allocated. Then nothing was written.
        """
        sys_flag = message.sys_flag
        if sys_flag & UNUSUAL_FLAGS or message.magic != USUAL_MAGIC:
            return self._append_unusual(message, stored_ms)
        # What does not depend on the place is made before the lock is taken.
        parts = self._parts
        topic = message.topic
        topic_part = parts.topics.get(topic) or parts.topic(topic)
        if message.properties_string:
            properties = properties_part(message.properties_string)
            tail = topic_part.prefix + len(properties).to_bytes(2, "big") + properties
        else:
            properties, tail = b"", topic_part.alone
        body = message.body
        body_size = len(body)
        check_body(body_size)
        size = 88 + body_size + len(tail)
        body_crc = _crc32(body) & BODY_CRC_MASK
        host = message.born_host
        born_host = parts.hosts.get(host) or parts.host(host)
        if store_host is None:
            host = message.store_host
            store_host = parts.hosts.get(host) or parts.host(host)
        queue_id = message.queue_id
        topic_bytes = topic_part.topic
        key = (queue_id, topic_bytes)
        time_ms = message.store_timestamp if stored_ms is None else stored_ms
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            file = self._last
            if file is None or size + END_FILE_MIN_BLANK_SIZE > file.size - file.wrote_position:
                file = self._room_for(size)
            position = file.wrote_position
            offset = file.base + position
            queue_offset = self._queue_offsets.get(key, 0)
            if stored_ms is not None:
                time_ms = max(time_ms, self._last_stored_ms)
                self._last_stored_ms = time_ms
            mapping = file.mapping
            try:
                _pack_head(
                    *(mapping, position, size, USUAL_MAGIC, body_crc, queue_id, message.flag, queue_offset, offset, sys_flag),
                    *(message.born_timestamp, born_host, time_ms, store_host, message.reconsume_times),
                    *(message.prepared_transaction_offset, body_size),
                )
            except struct.error as error:
                mapping[position : position + 88] = bytes(88)
                raise MessageIllegal("integer field", error, "an i32 (i64 for offsets and timestamps)") from None
            body_position = position + 88
            tail_position = body_position + body_size
            mapping[body_position:tail_position] = body
            end = position + size
            mapping[tail_position:end] = tail
            file.wrote_position = end
            self._queue_offsets[key] = queue_offset + 1
            if self._offer is not None:
                prepared = message.prepared_transaction_offset
                self._offer((topic_bytes, queue_id, offset, size, properties, time_ms, queue_offset, sys_flag, prepared))
        return _new_result(AppendResult, (offset, size, queue_offset, time_ms, 1))

    def _append_unusual(self, message: Message, stored_ms: int | None) -> AppendResult:
        """`append` of a message that is not of the usual kind: V2, a host of IPv6, part of a transaction."""
        key = (message.queue_id, message.topic_bytes)
        properties = message.properties_bytes
        if not (properties or key[1])[-1]:
            raise MessageIllegal("topic or properties", "a zero byte at the end", "none: recovery would cut it off")
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            if stored_ms is not None:
                self._last_stored_ms = max(self._last_stored_ms, stored_ms)
                message = replace(message, store_timestamp=self._last_stored_ms)
            queue_offset = self._queue_offsets.get(key, 0) if message.is_queued else 0
            size = len(encode(message))
            file = self._room_for(size)
            offset = file.end
            file.append(encode(message, queue_offset, offset))
            if message.is_queued:
                self._queue_offsets[key] = queue_offset + 1
            if self._offer is not None:
                handed = (message.store_timestamp, queue_offset, message.sys_flag, message.prepared_transaction_offset)
                self._offer((key[1], key[0], offset, size, properties, *handed))
        return AppendResult(offset, size, queue_offset, message.store_timestamp)

    def append_batch(
        self, messages: Sequence[Message] | MessageBatch, stored_ms: int | None = None, store_host: bytes | None = None
    ) -> AppendResult:
        """Put messages of one topic and queue behind one another: all of them in one file, or none.

        Args, Raises:  as `append` has them. The batch and 8 bytes must fit in a file; it holds at most 4 MiB.
        """
        laid = lay_batch(messages, self._parts, store_host)
        size = laid.size
        key = (laid.queue_id, laid.topic)
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            if stored_ms is not None:
                self._last_stored_ms = stored_ms = max(stored_ms, self._last_stored_ms)
            file = self._room_for(size)
            offset = file.end
            queue_offset = self._queue_offsets.get(key, 0)
            data, handed = laid.place(queue_offset, offset, stored_ms)
            file.append(data)
            self._queue_offsets[key] = queue_offset + laid.count
            if self._offer_all is not None:
                self._offer_all(handed)
        if stored_ms is None:
            stored_ms = (messages.head if isinstance(messages, MessageBatch) else messages[0]).store_timestamp
        return AppendResult(offset, size, queue_offset, stored_ms, laid.count)

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Append replicated bytes at max_offset, by one pwritev. HA-ST-6 "Replicated bytes are appended at the max offset".

        Without files, offset says which file to begin: the one that would hold it, and the bytes go to the start of
        that file even if offset is inside (quirk 18); no bytes at all still make the file (quirk 17). With
        files, offset is not looked at: the caller has compared it. A full last file rolls to the next first.

        Args:  offset: commit-log bytes, from the frame. buffers: views of bytes, in order; all go into one file.
        Raises: AppendRefused for bytes that cross the end of a file, or an offset before file 0; OSError. Then the log
        is as long as before.
        """
        total = sum(map(len, buffers))
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            last = self._last
            if last is not None and not last.is_full:
                base, room = last.base, last.size - last.wrote_position
            else:
                base, room = (_base_of(offset, self.file_size) if last is None else last.base + last.size), self.file_size
            if total > room or base < 0:
                path = self.queue.directory / file_name(base)
                raise AppendRefused(path, offset, f"{total} bytes", f"at most {room}: a frame lies in one file")
            if last is None or last.is_full:
                last = self._last = self.queue.add(base)
            if total:
                last.append_vectors(buffers, total)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        """The log's bytes from an offset on, in place: read-only, within one file, at most limit bytes.

        Returns: None where offset is outside min_offset to max_offset. At the end of a full file its BLANK and padding
        are bytes like others. The view may outlive the log.
        Spec: HA-W-4 "MUST NOT cross the end of a commit-log file"; HA-W-10 "MAY begin and end anywhere in a record"; HA-M-29
        "The master MAY send bytes that are not yet on its own disk", for no flushed position is looked at.
        """
        if self._closed:
            raise self._closed_error()
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.base
        if position >= file.wrote_position:
            return None
        try:
            return file.view(position, min(position + limit, file.wrote_position))
        except FileNotFoundError:  # removed since it was found
            return None

    def records(self, start: int | None = None) -> Iterator[tuple[int, int, Message]]:
        """Every message from an offset on, which must be a record's; by default from the first.

        Returns: (offset, size in bytes, message). Ends before a record that is not whole yet.
        Raises: MessageMalformed for bytes that are no record.
        """
        offset = self.min_offset if start is None else start
        while (data := self.data_at(offset, self.file_size)) is not None:
            if len(data) < END_FILE_MIN_BLANK_SIZE:
                return
            size, magic = read_header(data)
            if magic == BLANK_MAGIC_CODE:
                size = self.file_size - (offset - self.min_offset) % self.file_size
            elif size > len(data):
                return
            else:
                yield offset, size, decode(data)
            offset += size

    def delete_before(self, offset: int) -> int:
        """Remove the files that lie wholly before an offset, never the last one; the min offset moves. HA-ST-13.

        Returns: how many. Views of them that others hold stay valid.
        """
        return self.queue.delete_before(offset)

    def delete_expired(self, stored_before_ms: int, most: int = 10) -> int:
        """Remove the files of which the last change lies before a time, from the first on, never the last one.

        Args:  stored_before_ms: ms since 1970; the time of change of a file that is full is that of its last message.
               most: files at once; RocketMQ's deleteFilesBatchMax.
        Returns: how many.
        """
        keep_from = self.min_offset
        for file in self.queue.files[:-1][:most]:
            if file.path.stat().st_mtime_ns // 1_000_000 >= stored_before_ms:
                break
            keep_from = file.base + file.size
        return self.delete_before(keep_from)

    def flush(self, least_pages: int = 0) -> int:
        """Force what was appended, and the names of new files, to the disk: only then does it outlive a power cut.

        Args:  least_pages: of 4 KiB; nothing is done where fewer have something new.
        Returns: flushed_offset.
        Raises: OSError; then flushed_offset is still behind the last byte that a sync has covered.
        """
        return self.queue.flush(least_pages)

    def close(self) -> None:
        """Unmap, unlock; a second call does nothing. It does not flush: that is the caller's decision."""
        with self._put_lock:
            self._closed = True
            self._refusal = self._refusal or self._closed_error
        self.queue.close()
        self._lock.release()

    def __enter__(self) -> "CommitLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"{self.queue.directory}: the log is closed")

    def _room_for(self, size: int) -> MappedFile:
        """The file that takes a record of this size and 8 bytes: the last one, or the next, behind a BLANK in the last.

        The next file is made first: where that fails, no BLANK is written.
        """
        last = self._last
        if last is not None and size + END_FILE_MIN_BLANK_SIZE <= last.size - last.wrote_position:
            return last
        if size + END_FILE_MIN_BLANK_SIZE > self.file_size:
            limit = self.file_size - END_FILE_MIN_BLANK_SIZE
            raise MessageIllegal("size", f"{size} bytes", f"at most {limit}, a file of this log less its BLANK")
        if last is None:
            self._last = self.queue.add(0)
            return self._last
        room = last.size - last.wrote_position
        if 0 < room < END_FILE_MIN_BLANK_SIZE:  # replicated bytes can end anywhere, records cannot
            raise AppendRefused(last.path, last.end, f"{room} bytes to the end of the file", "8, for a BLANK")
        file = self.queue.prepare(last.base + last.size)
        if room:
            last.append_blank(_BLANK.pack(room, BLANK_MAGIC_CODE))
        self._last = self.queue.adopt(file)
        return file


def _base_of(offset: int, file_size: int) -> int:
    """The start of the file that would hold an offset, divided as Java divides: towards zero, so -1 is in file 0."""
    return offset - offset % file_size if offset >= 0 else -(-offset // file_size * file_size)
