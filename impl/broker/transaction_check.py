"""The check of half messages that nobody has ended: their producers are asked (transaction_listener.py).

    half topic   | passed .....| i ->                    | copies of this round
                               |                         |
                 ended: an op message names it           an immune one, or one that is checked, is put here again
    op topic     | done ...| names a half that is not passed ...

One round every minute, in steps: a turn does a bounded part of it.

Spec: HA-SE-87 to HA-SE-91, HA-SE-94 to HA-SE-96.
Source: 4.9.8 TransactionalMessageServiceImpl, TransactionalMessageCheckService.
"""

import contextlib
import logging
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from rocketmq_ha.impl.broker.message_properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    number,
)
from rocketmq_ha.impl.broker.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_ha.impl.broker.topic_validator import (
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from rocketmq_ha.impl.broker.transaction_listener import Appends, GivenUpTopics, Producers, TransactionalMessageCheckListener
from rocketmq_ha.impl.broker.transaction_ops import OpReader, OpStore, RecentOps
from rocketmq_ha.impl.errors import MessageIllegal, MessageMalformed, RocketmqHaError
from rocketmq_ha.impl.store.get_result import GetMessageResult, GetMessageStatus
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.role import BrokerRole

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

CID_SYS_RMQ_TRANS: Final = "CID_RMQ_SYS_TRANS"
HALF_QUEUE: Final = 0
STEPS_TURN: Final = 64  # half messages and reads of op messages in one turn
SIZE_TURN: Final = 4 << 20  # bytes of copies after which a turn ends
ROUND_LIMIT_MS: Final = 60_000
NEVER_MS: Final = 2**63 - 1  # for a slave
PAUSE_MS: Final = 100  # until the dispatch is asked again whether it has the copies of the last round
_NONE_THERE: Final = (
    *(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE),
    *(GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
)
_HOUR_MS: Final = 3_600_000


class CheckStore(OpStore, Appends, Protocol):
    """What is asked of the store; see MessageStore."""

    def message_at(self, offset: int) -> Found | None: ...


class CheckTopics(GivenUpTopics, Protocol):
    def create_topic_in_send_message_back_method(
        self, topic: str, client_default_topic_queue_nums: int, perm: int, topic_sys_flag: int
    ) -> TopicConfig | None: ...


class CheckOffsets(Protocol):
    """The consumer offsets."""

    def query_offset(self, group: str, topic: str, queue_id: int) -> int: ...
    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """RocketMQ's settings, in ms and hours, with its defaults."""

    transaction_timeout: int = 6_000
    transaction_check_max: int = 15
    transaction_check_interval: int = 60_000
    file_reserved_time: int = 72


@dataclass(slots=True)
class _Round:
    """What a round knows. Offsets are those of the two queues, but for `_Op.offset`."""

    begin_ms: int  # time of day; half messages that are stored later wait for the next round
    limit_ms: int  # by the clock that does not step
    first_half: int
    half: int  # the next one
    ops: OpReader
    passed: set[int] = field(default_factory=set)  # ended ones that the round has passed, themselves or their copies
    first_copy: int | None = None  # log offset of the first copy of this round


class TransactionalMessageCheckService:
    """The check of one master. Args: now_ms: the time of the start, by the clock that does not step.

    role: a slave checks nothing. HA-R-7 "MUST run on masters only".
    """

    def __init__(
        self,
        store: CheckStore,
        topics: CheckTopics,
        offsets: CheckOffsets,
        producers: Producers,
        recent: RecentOps,
        now_ms: int,
        *,
        settings: CheckSettings | None = None,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
    ) -> None:
        self._store, self._topics, self._offsets = store, topics, offsets
        self._listener = TransactionalMessageCheckListener(store, topics, producers)
        self._recent, self._settings = recent, settings or CheckSettings()
        self._round: _Round | None = None
        self._progress: dict[str, int] = {}  # what was committed; the table of offsets may have no room
        self._last_copy = 0  # log offset behind the last copy
        self._copied_size = 0  # bytes that a turn has put
        first_ms = now_ms + self._settings.transaction_check_interval
        self.next_turn_ms = NEVER_MS if role is BrokerRole.SLAVE else first_ms  # when `turn` has something to do
        self.rounds = 0

    def turn(self, now_ms: int, wall_ms: int) -> None:
        """Begin a round if it is time, and do a part of it.

        Args:  now_ms: ms, of the clock that does not step. wall_ms: ms since 1970.
        Spec: HA-SE-87 "MUST check its half messages every 60 s".
        """
        if now_ms < self.next_turn_ms:
            return
        if self._round is None:
            if self._recent.dispatched_offset() < self._last_copy:  # the queue lacks copies of the last round
                self.next_turn_ms = now_ms + PAUSE_MS
                return
            self._round = self._begin(now_ms, wall_ms)
        current = self._round
        self._copied_size = 0
        for _ in range(STEPS_TURN):
            if self._copied_size > SIZE_TURN:
                return
            if now_ms > current.limit_ms or not self._step(current, wall_ms):
                self._finish(current)
                self.next_turn_ms = now_ms + self._settings.transaction_check_interval
                return

    def _begin(self, now_ms: int, wall_ms: int) -> _Round:
        self._topics.create_topic_in_send_message_back_method(RMQ_SYS_TRANS_HALF_TOPIC, 1, PERM_READ | PERM_WRITE, 0)
        for topic in (RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC):
            if topic not in self._progress:
                self._progress[topic] = max(0, self._offsets.query_offset(CID_SYS_RMQ_TRANS, topic, HALF_QUEUE))
        half = self._progress[RMQ_SYS_TRANS_HALF_TOPIC]
        ops = OpReader(self._store, self._progress[RMQ_SYS_TRANS_OP_HALF_TOPIC])
        return _Round(wall_ms, now_ms + ROUND_LIMIT_MS, half, half, ops)

    def _finish(self, current: _Round) -> None:
        """HA-SE-96 "MUST keep how far it has come in both topics"."""
        self._round = None
        self.rounds += 1
        stop = current.first_copy  # the queue may not have it yet
        found = self._store.get(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE, current.half, 1)
        if found.records:
            with contextlib.suppress(MessageMalformed):
                stop = _message(found).physical_offset
        self._commit(RMQ_SYS_TRANS_HALF_TOPIC, current.half)
        self._commit(RMQ_SYS_TRANS_OP_HALF_TOPIC, current.ops.done(current.half, current.passed, stop))

    def _commit(self, topic: str, offset: int) -> None:
        if self._progress.get(topic) != offset:
            self._progress[topic] = offset
            self._offsets.commit_offset("this broker", CID_SYS_RMQ_TRANS, topic, HALF_QUEUE, offset)

    # --- A step ------------------------------------------------------------------------------------------------------

    def _step(self, current: _Round, wall_ms: int) -> bool:
        """Read op messages, or else pass a half message. Returns: False at the end of the round."""
        return current.ops.read() or self._pass_half(current, wall_ms)

    def _pass_half(self, current: _Round, wall_ms: int) -> bool:
        """Pass the next half message. Returns: False if it ends the round."""
        found = self._store.get(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE, current.half, 1)
        if not found.records:
            return self._skip(current, found)
        try:
            half = _message(found)
        except MessageMalformed as error:
            logger.error("half message %d is passed over: %s", current.half, error)
            current.half += 1
            return True
        # HA-SE-87 "to the first that was stored after its own begin": a copy of this round is dispatched sooner or later
        if current.first_copy is not None and half.physical_offset >= current.first_copy:
            return False
        names = {current.half}
        first = number(half.properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET), 64)
        if first is not None:
            names.add(first)
        if any(name in current.ops.ended or name in self._recent for name in names):  # HA-SE-88 "if it has ended"
            current.passed |= names
            current.half += 1
            return True
        if current.ops.read():  # what was no longer recent is in the queue now
            return True
        if current.ops.is_full and current.half > current.first_half:
            return False  # the op messages that were not read may end it; the next round begins here
        try:
            is_passed = self._pass_open(current, half, wall_ms)
        except (RocketmqHaError, OSError) as error:  # HA-SE-95 "MUST end before the half message"
            logger.error("half message %d is checked later: %s", current.half, error)
            return False
        current.half += is_passed
        return is_passed

    def _skip(self, current: _Round, found: GetMessageResult) -> bool:
        """Go to where the queue goes on. Returns: False if it has no more messages."""
        if found.status in _NONE_THERE:
            if found.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY:
                logger.error("half messages: found progress %d, expected at most %d", current.half, found.max_offset)
                current.half = found.next_begin_offset
            return False
        logger.warning("half messages %d to %d are not there", current.half, found.next_begin_offset - 1)
        if current.half == current.first_half:
            current.first_half = found.next_begin_offset
        current.half = found.next_begin_offset
        return True

    def _pass_open(self, current: _Round, half: Message, wall_ms: int) -> bool:
        """Pass a half message that has not ended. Returns: False if it ends the round. Raises: what an append raises."""
        settings = self._settings
        age = wall_ms - half.born_timestamp
        properties = dict(half.properties)
        times = properties.get(TRANSACTION_CHECK_TIMES)
        count = 0 if times is None else number(times)
        checks = -1 if count is None else count
        # HA-SE-94 "MUST be moved to queue 0 of `TRANS_CHECK_MAX_TIME_TOPIC` instead"
        if (times is not None and checks >= settings.transaction_check_max) or age > settings.file_reserved_time * _HOUR_MS:
            self._copied_size += self._listener.resolve_discard_msg(half)
            return True
        if half.store_timestamp >= current.begin_ms:  # HA-SE-87 "to the first that was stored after its own begin"
            return False
        immunity = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is None:
            if 0 <= age < settings.transaction_timeout:  # HA-SE-89 "MUST end the round"
                return False
        else:
            seconds = number(immunity, 64)
            lasts_ms = settings.transaction_timeout if seconds in (None, -1) else (seconds or 0) * 1000
            if age < lasts_ms:  # HA-SE-90 "is put behind the others, and the round goes on"
                properties.setdefault(TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
                self._put_copy(current, half, properties)
                return True
        properties[TRANSACTION_CHECK_TIMES] = str(checks + 1)
        copy = self._put_copy(current, half, properties)
        if copy is not None:
            self._listener.resolve_half_msg(copy)
        return True

    def _put_copy(self, current: _Round, half: Message, properties: dict[str, str]) -> Message | None:
        """Put a half message behind the others. Returns: the copy; None if no record can hold it, and it was discarded.

        Spec: HA-SE-91 "MUST be put behind the others as a copy".
        """
        copy = replace(half, queue_offset=0, physical_offset=0, properties_string=format_properties(properties))
        try:
            append = self._store.append(copy)
        except MessageIllegal as error:
            logger.error("half message %d cannot be checked: %s", half.queue_offset, error)
            self._copied_size += self._listener.resolve_discard_msg(half)
            return None
        self._last_copy, self._copied_size = append.next_offset, self._copied_size + append.size
        if current.first_copy is None:
            current.first_copy = append.offset
        found = self._store.message_at(append.offset)
        assert found is not None, append
        return found[2]


def _message(found: GetMessageResult) -> Message:
    return decode(found.records[0])
