"""The end of a log, where all is appended: messages by the records that they become, replicated bytes as they are.

One lock orders what is appended. What does not depend on a message's place is made before the lock is taken.

Spec: HA-ST-2, HA-ST-3, HA-ST-6, HA-ST-12, HA-ST-15.
Source: 4.9.8 CommitLog.asyncPutMessage, DefaultAppendMessageCallback, appendData; quirks 17 and 18.
"""

import mmap
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rocketmq_ha.impl.errors import AppendRefused, MessageIllegal, RocketmqHaError
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.wire.batch import AllHanded, HandedFields, MessageBatch, lay_batch
from rocketmq_ha.impl.wire.message import Message, encode, with_store_host
from rocketmq_ha.impl.wire.parts import (
    UNUSUAL_FLAGS,
    USUAL_MAGIC,
    Parts,
    check_integers,
    check_zeros,
    no_integer,
    pack_place,
    pack_rest,
    pack_stored,
)
from rocketmq_ha.impl.wire.record_layout import BODY_POSITION, SIZE_AND_MAGIC
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, BODY_CRC_MASK, END_FILE_MIN_BLANK_SIZE

_crc32: Final = zlib.crc32
_new_tuple: Final = tuple.__new__  # faster than the constructor of a NamedTuple, which calls it

# Takes what the dispatch needs of one message; called under the put lock, so in the order of the log.
Offer = Callable[[HandedFields], None]
OfferAll = Callable[[AllHanded], None]  # the same of a batch


class QueueEnd:
    """Where the next message of a queue goes. next_offset: an index, changed under the put lock. place: see pack_place."""

    __slots__ = ("next_offset", "place")

    def __init__(self, queue_id: int, next_offset: int) -> None:
        self.next_offset = next_offset
        try:
            self.place = pack_place(queue_id, 0)
        except struct.error as error:
            raise no_integer(error) from None


class LogWriter:
    """Appends to a queue of files. Any thread may call anything here.

    Args:  queue_offsets: (queue id, topic) -> queue offset of its next message, of those that are known.
    """

    def __init__(self, queue: MappedFileQueue, queue_offsets: dict[tuple[int, bytes], int]) -> None:
        self.queue: Final = queue
        self.file_size = queue.file_size
        self._put_lock = threading.Lock()
        self._queue_ends = {key: QueueEnd(key[0], next_offset) for key, next_offset in queue_offsets.items()}
        self.queue_count = len(self._queue_ends)  # grows when a message of a new queue comes
        self._parts = Parts()
        self._offer: Offer | None = None
        self._offer_all: OfferAll | None = None
        self._refusal: Callable[[], RocketmqHaError] | None = None
        self._last: MappedFile | None = None  # where the next message goes, if there is room
        self._mapping: mmap.mmap | None = None  # of that file, from the first put on: replicated bytes need none
        self._last_stored_ms = 0
        self._stored: tuple[int, bytes, bytes] = (0, bytes(8), bytes(16))  # store timestamp, store host; both in a record
        if queue.files:
            self._take(queue.files[-1])

    def dispatch_to(self, offer: Offer, offer_all: OfferAll) -> None:
        """Hand over what dispatch needs of each message, or of a batch of them. Replicated bytes hand over nothing."""
        self._offer, self._offer_all = offer, offer_all

    def refuse(self, make_error: Callable[[], RocketmqHaError] | None) -> None:
        """Raise this at every append from now on, replicated bytes included; None takes it back.

        Spec: HA-ST-22 "shutting down, or not yet started, MUST refuse replicated bytes".

        When this returns, every append that is not refused has ended.
        """
        with self._put_lock:
            self._refusal = make_error

    def take_queue_offsets(self, known: dict[tuple[int, bytes], int]) -> None:
        """Take what the consume queues know once all has been dispatched: (queue id, topic) -> next queue offset.

        No CRC covers the queue offset in a record, but each message of the log has its place in its queue. So the queue counts,
        if it has entries. A queue id that is no i32 is passed over: it names a directory, but no message can have it.

        Spec: HA-ST-31 "The entry of the message with queue offset n MUST be entry n of its queue".
        """
        with self._put_lock:
            for (queue_id, topic), next_offset in known.items():
                if -(1 << 31) <= queue_id < 1 << 31:
                    queue = self._queue_end(queue_id, topic)
                    queue.next_offset = next_offset or queue.next_offset

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
        record MUST be the commit-log offset of the record itself"; HA-ST-3 "the rest MUST become a BLANK",
        "the message opens the next file".

        Args:  stored_ms: the store timestamp, by default the message's own; where given, one that would lie before that of
               the message before becomes equal to it, so that times ascend with offsets. store_host: 8 bytes, IPv4 and
               port, by default the message's own; where given, sysFlag says afterwards that the store host is IPv4.
        Raises: MessageIllegal for what no record holds, a record that fits no file of this log, or one that could not
        be told from a part of it (it ends in a zero byte, or has 512 in a row); StoreFull or another OSError where a new file
        cannot be allocated, or the last one was removed; StoreCorrupt where that was cut. Then nothing was written.
        """
        sys_flag = message.sys_flag
        if sys_flag & UNUSUAL_FLAGS or message.magic != USUAL_MAGIC:
            return self._append_unusual(message, stored_ms, store_host)
        # All in one function: each call to a piece of it would cost a put more than 2% of its time. PARTS
        parts = self._parts
        topic_part = parts.topics.get(message.topic) or parts.topic(message.topic)
        text = message.properties_string
        properties, tail = topic_part.tails.get(text) or parts.tail(topic_part, text)
        body = message.body
        body_size = len(body)
        sizes = (body_size, len(tail))
        pack_into, size, begin, rest = parts.shapes.get(sizes) or parts.shape(*sizes)
        crc = _crc32(body) & BODY_CRC_MASK
        host = message.born_host
        born_host = parts.hosts.get(host) or parts.host(host)
        if store_host is None:
            host = message.store_host
            store_host = parts.hosts.get(host) or parts.host(host)
        topic, queue_id, flag = topic_part.topic, message.queue_id, message.flag
        born, reconsume_times, prepared = message.born_timestamp, message.reconsume_times, message.prepared_transaction_offset
        time_ms = message.store_timestamp if stored_ms is None else stored_ms
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            # PLACE: file, offset, queue offset, time.
            file, queue = self._last, self._queue_ends.get((queue_id, topic))
            if queue is None or file is None or size + END_FILE_MIN_BLANK_SIZE > file.size - file.wrote_position:
                check_integers(message, time_ms)  # a refused message begins no file, and no queue
                file = self._room_for(size)
                queue = queue or self._queue_end(queue_id, topic)
            at = file.wrote_position
            offset = file.base + at
            queue_offset = queue.next_offset
            if stored_ms is not None:
                if time_ms > self._last_stored_ms:
                    self._last_stored_ms = time_ms
                else:
                    time_ms = self._last_stored_ms
            # RECORD
            try:
                known_ms, known_host, stored = self._stored
                if time_ms != known_ms or store_host != known_host:
                    file.check_file()  # once a millisecond, not at every put
                    stored = pack_stored(time_ms, store_host)
                    self._stored = (time_ms, store_host, stored)
                place = pack_place(queue_id, flag) if flag else queue.place
                if reconsume_times or prepared:
                    rest = pack_rest(reconsume_times, prepared, body_size)
                mapping = self._mapping
                if mapping is None:
                    mapping = self._mapping = file.mapping
                pack_into(
                    mapping, at, begin, crc, place, queue_offset, offset, sys_flag, born, born_host, stored, rest, body, tail
                )
            except struct.error as error:
                file.mapping[at : at + BODY_POSITION] = bytes(BODY_POSITION)
                raise no_integer(error) from None
            # STATE
            file.wrote_position = at + size
            queue.next_offset = queue_offset + 1
            if self._offer is not None:
                self._offer((topic, queue_id, offset, size, properties, time_ms, queue_offset, sys_flag, prepared))
        return _new_tuple(AppendResult, (offset, size, queue_offset, time_ms, 1))

    def _append_unusual(self, message: Message, stored_ms: int | None, store_host: bytes | None) -> AppendResult:
        """`append` of a message that is not of the usual kind: V2, a host of IPv6, part of a transaction."""
        if store_host is not None:
            message = with_store_host(message, store_host)
        topic, properties = message.topic_bytes, message.properties_bytes
        check_zeros("topic", topic)
        check_zeros("properties", properties)
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            if stored_ms is not None:
                message = replace(message, store_timestamp=max(self._last_stored_ms, stored_ms))
            size = len(encode(message))
            file = self._room_for(size)
            file.check_file()
            queue = self._queue_end(message.queue_id, topic)
            queue_offset = queue.next_offset if message.is_queued else 0
            offset = file.end
            file.append(encode(message, queue_offset, offset))
            if stored_ms is not None:
                self._last_stored_ms = message.store_timestamp
            queue.next_offset += message.is_queued
            if self._offer is not None:
                handed = (message.store_timestamp, queue_offset, message.sys_flag, message.prepared_transaction_offset)
                self._offer((topic, message.queue_id, offset, size, properties, *handed))
        return AppendResult(offset, size, queue_offset, message.store_timestamp)

    def append_batch(
        self, messages: Sequence[Message] | MessageBatch, stored_ms: int | None = None, store_host: bytes | None = None
    ) -> AppendResult:
        """Put messages of one topic and queue behind one another: all of them in one file, or none.

        Args, Raises:  as `append` has them. The batch and 8 bytes must fit in a file; it holds at most 16 MiB.
        """
        laid = lay_batch(messages, self._parts, store_host)
        size = laid.size
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            file = self._room_for(size)
            file.check_file()
            if stored_ms is not None:
                self._last_stored_ms = stored_ms = max(stored_ms, self._last_stored_ms)
            offset = file.end
            queue = self._queue_end(laid.queue_id, laid.topic)
            queue_offset = queue.next_offset
            data, handed = laid.place(queue_offset, offset, stored_ms)
            file.append(data)
            queue.next_offset += laid.count
            if self._offer_all is not None:
                self._offer_all(handed)
        if stored_ms is None:
            stored_ms = (messages.head if isinstance(messages, MessageBatch) else messages[0]).store_timestamp
        return AppendResult(offset, size, queue_offset, stored_ms, laid.count)

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Append replicated bytes at max_offset, by one pwritev. HA-ST-6 "Replicated bytes MUST be appended at the max offset".

        Without files, offset says which file to begin: the one that would hold it, and the bytes go to the start of
        that file even if offset is inside (quirk 18); no bytes at all still make the file (quirk 17). With
        files, offset is not looked at: the caller has compared it. A full last file rolls to the next first.

        Args:  offset: commit-log bytes, from the frame. buffers: views of bytes, in order; all go into one file.
        Raises: AppendRefused for bytes that cross the end of a file, or an offset before file 0; OSError. Then the log
        is as long as before.
        """
        total = sum(map(len, buffers))
        with self._put_lock:
            file = self._file_for(offset, total)
            if total:
                file.append_vectors(buffers, total)

    def count_as_written(self, offset: int, size: int) -> None:
        """Move the max offset over replicated bytes that the disk has refused: the file keeps what it held there (quirk 42).

        Args, Raises:  as `append_data` has them.
        Spec: HA-S-37 "counts an append whose write fails as done". For classic alone.
        """
        with self._put_lock:
            file = self._file_for(offset, size)
            file.check_file()
            file.wrote_position += size

    def _file_for(self, offset: int, size: int) -> MappedFile:
        """The file that takes so many bytes; it may be new. The caller has the put lock. Raises: as append_data."""
        if self._refusal is not None:
            raise self._refusal()
        last = self._last
        if last is not None and not last.is_full:
            base, room = last.base, last.size - last.wrote_position
        else:
            base, room = (_base_of(offset, self.file_size) if last is None else last.base + last.size), self.file_size
        if size > room or base < 0:
            path = self.queue.directory / file_name(base)
            raise AppendRefused(path, offset, f"{size} bytes", f"at most {room}: a frame lies in one file")
        return self._take(self.queue.add(base)) if last is None or last.is_full else last

    def _queue_end(self, queue_id: int, topic: bytes) -> QueueEnd:
        """The end of a queue, which may be new. The caller has the put lock. Raises: MessageIllegal for no queue id."""
        queue = self._queue_ends.get((queue_id, topic))
        if queue is None:
            queue = self._queue_ends[queue_id, topic] = QueueEnd(queue_id, 0)
            self.queue_count += 1
        return queue

    def queue_keys(self) -> list[tuple[int, bytes]]:
        """(queue id, topic) of each queue of which the log knows the end."""
        return list(self._queue_ends)

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
            return self._take(self.queue.add(0))
        room = last.size - last.wrote_position
        if 0 < room < END_FILE_MIN_BLANK_SIZE:  # replicated bytes can end anywhere, records cannot
            raise AppendRefused(last.path, last.end, f"{room} bytes to the end of the file", "8, for a BLANK")
        file = self.queue.prepare(last.base + last.size)
        if room:
            last.append_blank(SIZE_AND_MAGIC.pack(room, BLANK_MAGIC_CODE))
        return self._take(self.queue.adopt(file))

    def _take(self, file: MappedFile) -> MappedFile:
        self._last, self._mapping = file, None
        return file


def _base_of(offset: int, file_size: int) -> int:
    """The start of the file that would hold an offset, divided as Java divides: towards zero, so -1 is in file 0."""
    return offset - offset % file_size if offset >= 0 else -(-offset // file_size * file_size)
