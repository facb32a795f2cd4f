"""Delayed messages: where they wait, and their delivery when they are due.

    SCHEDULE_TOPIC_XXXX, queue = level - 1:   0 1 2 3 4 5 6 7
                                                  |       the tags code of each entry is the time when it is due
                                                  +-- progress of the level, kept in config/delayOffset.json

Decisions alone: the broker's loop calls `turn` in each of its rounds, with two times: that of a clock that does not step, for
intervals, and the time of day, which says what is due.

After a kill, HA-SE-62 "the master delivers again what it has delivered since it wrote the progress".

Spec: HA-SE-50 to HA-SE-62.  Source: 4.9.8 ScheduleMessageService, CommitLog.asyncPutMessage.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from rocketmq_ha.impl.broker.body_fields import shown
from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.message_properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, TIMERS, number
from rocketmq_ha.impl.broker.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketmq_ha.impl.errors import ConfigInvalid, MessageIllegal, RequestInvalid, RocketmqHaError
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.queue_entry import Entry
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, UNQUEUED_TYPES, Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.role import BrokerRole

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

NEVER_MS: Final = 2**63 - 1  # for a slave
PAUSE_MS: Final = 100  # between two looks at the queues where nothing is due, and after a failed delivery
LEVEL_TURN: Final = 16  # entries of one level that a turn reads
SIZE_TURN: Final = 4 << 20  # bytes after which a turn ends
FLUSH_DELAY_OFFSET_INTERVAL: Final = 10_000  # ms; RocketMQ's setting flushDelayOffsetInterval
_SHOWN: Final = 60  # characters of a property that an error repeats


class ScheduleQueue(Protocol):
    """What the delivery asks of a consume queue."""

    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def entry(self, queue_offset: int) -> Entry | None: ...


class ScheduleQueues(Protocol):
    def get(self, topic: bytes, queue_id: int) -> ScheduleQueue | None: ...


class ScheduleStore(Protocol):
    """What the delivery asks of the store. `append` puts without a wait; it raises what MessageStore.put raises."""

    @property
    def queues(self) -> ScheduleQueues: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    def append(self, message: Message) -> AppendResult: ...
    def message_at(self, offset: int) -> Found | None: ...
    def flush(self) -> int: ...


# --- One message -----------------------------------------------------------------------------------------------------


def to_schedule_topic(message: Message, properties: Mapping[str, str], levels: DelayLevels) -> Message:
    """The message that is put in place of a delayed one; a message without a delay is returned as it is.

    Args:  properties: those of the message, also where its string lacks some of them.
    Raises: RequestInvalid for a delay that the broker does not have.
    Spec: HA-SE-50 "MUST be put into `SCHEDULE_TOPIC_XXXX` instead"; HA-SE-51 "A level above the greatest MUST count as the
    greatest"; HA-SE-52 "is no i32 MUST be answered with 1"; HA-SE-53 "and no `DELAY` above 0, MUST be answered with 1".
    """
    text = properties.get(DELAY)
    timers = [name for name in TIMERS if name in properties]
    if text is None and not timers:
        return message
    if message.sys_flag & TRANSACTION_MASK in UNQUEUED_TYPES:
        return message
    level = 0 if text is None else number(text)
    if level is None:
        raise RequestInvalid(f"property {DELAY}", repr(text)[:_SHOWN], "an i32")
    if level <= 0:
        if timers:
            raise RequestInvalid(f"property {timers[0]}", "a delay to the second or the millisecond", f"a level in {DELAY}")
        return message
    level = min(level, levels.max_level)
    if level == 0:  # messageDelayLevel is empty
        raise RequestInvalid(f"property {DELAY}", repr(text)[:_SHOWN], "none: this broker has no delay levels")
    changed = {name: value for name, value in properties.items() if name not in TIMERS}
    changed |= {DELAY: str(level), REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    properties_string = format_properties(changed)
    return replace(message, topic=RMQ_SYS_SCHEDULE_TOPIC, queue_id=level - 1, properties_string=properties_string)


def time_up(message: Message) -> Message:
    """The message that is put when a delayed one is due.

    Raises: MessageIllegal for a message that says no topic and queue to go to.
    Spec: HA-SE-56 "MUST have the topic `REAL_TOPIC`, the queue `REAL_QID`"; HA-SE-57 "its `REAL_QID` is no i32".
    """
    properties = message.properties
    topic, queue_id = properties.get(REAL_TOPIC), number(properties.get(REAL_QUEUE_ID))
    if topic is None or topic == RMQ_SYS_TRANS_HALF_TOPIC:
        raise MessageIllegal(f"property {REAL_TOPIC}", topic, "a topic for delivery")
    if queue_id is None:
        raise MessageIllegal(f"property {REAL_QUEUE_ID}", repr(properties.get(REAL_QUEUE_ID))[:_SHOWN], "an i32")
    return replace(message, topic=topic, queue_id=queue_id, queue_offset=0, physical_offset=0, prepared_transaction_offset=0)


# --- All of them -----------------------------------------------------------------------------------------------------


class ScheduleMessageService:
    """The delivery of one master.

    Args:  file: config/delayOffset.json. now_ms: the time of the start, by the clock that does not step. Call `load` next.
           role: a slave delivers nothing. HA-R-7 "MUST run on masters only".
    """

    def __init__(
        self,
        store: ScheduleStore,
        levels: DelayLevels,
        file: KeptFile,
        now_ms: int,
        *,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        flush_interval_ms: int = FLUSH_DELAY_OFFSET_INTERVAL,
    ) -> None:
        self.levels: Final = levels
        self._store, self._file, self._is_master = store, file, role is not BrokerRole.SLAVE
        self._flush_interval_ms = flush_interval_ms
        self._offset_table: dict[int, int] = {}
        self._persisted: dict[int, int] = {}
        # What will be written when the log is flushed up to an offset: this offset and the table.
        self._pending: tuple[int, dict[int, int]] | None = None
        self._persist_at = now_ms + flush_interval_ms
        self.next_turn_ms = now_ms if self._is_master else NEVER_MS  # when `turn` has something to do
        self.delivered = 0  # messages
        self.passed_over = 0
        self._delivered_size = 0  # bytes, in this turn
        self._first = 0  # index of the level with which the next turn begins
        self._is_refused = False  # the store took no message at the last try

    @property
    def offset_table(self) -> Mapping[int, int]:
        """The progress of each level: the queue offset of the next message. HA-SE-59."""
        return self._offset_table

    # --- Delivery ----------------------------------------------------------------------------------------------------

    def turn(self, now_ms: int, wall_ms: int) -> int:
        """Deliver what is due, at most LEVEL_TURN messages of each level; write the progress where it is time.

        Args:  now_ms: ms, of the clock that does not step. wall_ms: ms since 1970.
        Returns: the number of messages that were delivered.
        """
        if now_ms < self.next_turn_ms:
            return 0
        before, self._delivered_size = self.delivered, 0
        self._is_refused, was_refused = False, self._is_refused
        has_more = False
        count = self.levels.max_level
        for each in range(self._first, self._first + count):
            has_more |= self._deliver(1 + each % count, wall_ms, was_refused)
            if self._delivered_size > SIZE_TURN:
                self._first = (each + 1) % count  # so that no level holds up the others
                break
            if self._is_refused:
                break
        self.next_turn_ms = now_ms if has_more and not self._is_refused else now_ms + PAUSE_MS
        self._on_tick(now_ms)
        return self.delivered - before

    def _deliver(self, level: int, wall_ms: int, was_refused: bool) -> bool:
        """Deliver what is due of a level. Returns: True if there may be more.

        Spec: HA-SE-55 "MUST be delivered in the order of their queue".
        """
        queue = self._store.queues.get(RMQ_SYS_SCHEDULE_TOPIC.encode(), level - 1)
        if queue is None:
            return False
        for _ in range(LEVEL_TURN):
            offset = self._corrected(level, queue)
            entry = queue.entry(offset)
            if entry is None:
                return False
            if not entry.is_filler:
                # HA-SE-54 "unless it is ahead by more than the delay of its level"
                if 0 < entry.tags_code - wall_ms <= self.levels.delays_ms[level - 1]:
                    return False
                if not self._deliver_one(level, offset, entry, was_refused):
                    return False
            self._offset_table[level] = offset + 1
            if self._delivered_size > SIZE_TURN:
                break
        return True

    def _deliver_one(self, level: int, offset: int, entry: Entry, was_refused: bool) -> bool:
        """Deliver a message that is due, or pass it over. Returns: False if it is to be tried again."""
        found = self._store.message_at(entry.offset)
        if found is None:
            self._pass_over(level, offset, f"found no message at commit-log offset {entry.offset}")
            return True
        try:
            self._delivered_size += self._store.append(time_up(found[2])).size
        except MessageIllegal as error:  # HA-SE-57 "MUST be passed over if it cannot be delivered at any time"
            self._pass_over(level, offset, str(error))
            return True
        except (RocketmqHaError, OSError) as error:  # HA-SE-58 "MUST be tried again"
            if not was_refused and not self._is_refused:
                logger.error("delay level %d: message %d is not delivered, which is tried again: %s", level, offset, error)
            self._is_refused = True
            return False
        self.delivered += 1
        return True

    def _pass_over(self, level: int, offset: int, why: str) -> None:
        logger.error("delay level %d: message %d is passed over: %s", level, offset, why)
        self.passed_over += 1

    def _corrected(self, level: int, queue: ScheduleQueue) -> int:
        """The progress of a level, within its queue. HA-SE-61 "a level without progress begins at 0"."""
        offset = self._offset_table.get(level, 0)
        corrected = min(max(offset, queue.min_offset), queue.max_offset)
        if corrected != offset:
            logger.error("delay level %d: found progress %d, expected %d to %d, the offsets of its queue", level, offset,
                         queue.min_offset, queue.max_offset)  # fmt: skip
            self._offset_table[level] = corrected
        return corrected

    # --- The file ----------------------------------------------------------------------------------------------------

    def load(self) -> bool:
        """Read the file. Returns: False if there is none. Raises: ConfigInvalid, OSError; see ConfigFile.load.

        Spec: HA-SE-61 "MUST be moved to the first or the behind-last offset of its queue".
        """
        is_there = self._file.load(self.decode)
        for level in self._offset_table:
            queue = self._store.queues.get(RMQ_SYS_SCHEDULE_TOPIC.encode(), level - 1)
            if queue is not None:
                self._corrected(level, queue)
        return is_there

    def decode(self, content: bytes) -> None:
        """Take the progress of a JSON text. Raises: ConfigInvalid for what is no such table; then nothing has changed."""
        try:
            found = body_json.read(content, "the file")
        except RequestInvalid as error:
            raise ConfigInvalid(str(error)) from None
        table = found.get("offsetTable") if isinstance(found, dict) else None
        if not isinstance(table, dict):
            raise ConfigInvalid("no offsetTable in it, expected one")
        read: dict[int, int] = {}
        for key, offset in table.items():
            level = number(str(key))
            if level is None or type(offset) is not int:
                raise ConfigInvalid(f"offsetTable: found {shown(key)}: {shown(offset)}, expected a level and an offset")
            read[level] = offset
        self._offset_table = read
        self._persisted = dict(read)

    def encode(self) -> bytes:
        """The answer to GET_ALL_DELAY_OFFSET. HA-MD-24 "MUST have `offsetTable`, from delay level to offset"."""
        return _encode(self._offset_table)

    def _on_tick(self, now_ms: int) -> None:
        """HA-SE-59 "every 10 s"; HA-SE-60 "MUST NOT be ahead of the disk": the table is written when the log is flushed."""
        if now_ms >= self._persist_at:
            self._persist_at = now_ms + self._flush_interval_ms
            if self._offset_table != self._persisted and self._pending is None:
                self._pending = (self._store.max_offset, dict(self._offset_table))
        if self._pending is not None and self._store.flushed_offset >= self._pending[0]:
            self._write(self._pending[1])
            self._pending = None

    def _write(self, table: dict[int, int]) -> None:
        if self._file.persist(_encode(table)):
            self._persisted = table

    def shutdown(self) -> None:
        """Write the progress, after a flush of the log. The store is still open. Raises: OSError, if it cannot be flushed."""
        if self._is_master and self._offset_table != self._persisted:
            self._store.flush()
            self._write(dict(self._offset_table))


def _encode(table: Mapping[int, int]) -> bytes:
    return body_json.write({"offsetTable": dict(sorted(table.items()))})
