"""Which half messages have ended: what the op messages say.

    op topic   | done ...... | first_op .................. next_op | ... the op messages of a moment ago
                               remembered by a round                 RecentOps, until the dispatch has them

Spec: HA-SE-86, HA-SE-88, HA-SE-96.  Source: 4.9.8 TransactionalMessageServiceImpl.fillOpRemoveMap, calculateOpOffset.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

from rocketmq_ha.impl.broker.message_properties import TAGS, number
from rocketmq_ha.impl.broker.topic_validator import RMQ_SYS_TRANS_OP_HALF_TOPIC
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.store.get_result import GetMessageResult, GetMessageStatus
from rocketmq_ha.impl.wire.message import Message, decode

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

REMOVE_TAG: Final = "d"
OFFSET_SEPARATOR: Final = ","
OP_QUEUE: Final = 0
OPS_READ: Final = 32  # op messages that one read takes
MAX_OPS: Final = 100_000  # op messages that a round remembers
_NO_QUEUE: Final = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)


class OpStore(Protocol):
    """What is asked of the store; see MessageStore."""

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = 32, max_size: int = 256 << 10
    ) -> GetMessageResult: ...


def ended_offsets(op: Message) -> Iterator[int]:
    """The queue offsets of the half messages that an op message ends; none for another tag, or another body.

    Spec: HA-SE-86 "MUST take a body of several queue offsets with commas between and behind them".
    """
    if op.properties.get(TAGS) != REMOVE_TAG:
        logger.error("op message at commit-log offset %d: found another tag, expected %s", op.physical_offset, REMOVE_TAG)
        return
    for text in op.body.decode("latin-1").split(OFFSET_SEPARATOR):
        offset = number(text, 64)
        if offset is not None:
            yield offset
        elif text:
            logger.error("op message at commit-log offset %d: found %r, expected a queue offset", op.physical_offset, text[:60])


class _Op(NamedTuple):
    """An op message: its place in the log, and the half messages that it ends."""

    offset: int
    ends: tuple[int, ...]


class OpReader:
    """The op messages of one round. first_op: the queue offset of the first that is not done."""

    def __init__(self, store: OpStore, first_op: int, max_ops: int = MAX_OPS) -> None:
        self._store, self._max_ops = store, max_ops
        self.first_op = self.next_op = first_op
        self._ops: deque[_Op] = deque()
        self.ended: set[int] = set()  # queue offsets of half messages
        self.is_full = False  # there are op messages that it has no room for

    def read(self) -> bool:
        """Read the next op messages. Returns: False if there is none now, or no room."""
        found = self._store.get(RMQ_SYS_TRANS_OP_HALF_TOPIC, OP_QUEUE, self.next_op, OPS_READ)
        if not found.records:
            return self._skip(found)
        if len(self._ops) >= self._max_ops:
            if not self.is_full:
                logger.warning("transactions: a round takes %d op messages, and not those behind them", len(self._ops))
            self.is_full = True
            return False
        for record in found.records:
            try:
                op = decode(record)
            except MessageMalformed as error:
                logger.error("op message %d is passed over: %s", self.first_op + len(self._ops), error)
                self._ops.append(_Op(0, ()))
                continue
            ends = tuple(ended_offsets(op))
            self._ops.append(_Op(op.physical_offset, ends))
            self.ended.update(ends)
        self.next_op = found.next_begin_offset
        return True

    def _skip(self, found: GetMessageResult) -> bool:
        """Go to where the queue goes on, if its messages were deleted. Returns: whether there may be some."""
        if found.status in _NO_QUEUE or found.next_begin_offset == self.next_op:
            return False
        logger.warning("op messages: found progress %d, expected %d to %d", self.next_op, found.min_offset, found.max_offset)
        is_ahead = found.next_begin_offset > self.next_op
        self._ops.clear()  # what stands before a deleted message was deleted, too
        self.first_op = self.next_op = found.next_begin_offset
        return is_ahead

    def done(self, half: int, passed: Collection[int], stop: int | None) -> int:
        """The queue offset of the first op message that the next round needs.

        Args:  half: the first half message that is not passed. passed: half messages that have ended, and that the round has
        passed, themselves or their copies. stop: the log offset where the round ended; None for the end of the log.
        Spec: HA-SE-96 "the first op message whose half messages are not all passed". A half message before the round's first is
        passed for the last time when its copies are. These stand before the op message in the log: once the round has come to a
        place behind that, it has passed them.
        """
        done = self.first_op
        for op in self._ops:
            for ended in op.ends:
                if ended >= half or (ended not in passed and stop is not None and op.offset > stop):
                    return done
            done += 1
        return done


class RecentOps:
    """The half messages that ended a moment ago: the queue of op messages may not have these yet.

    dispatched_offset: the queues have every message of the log before it.
    """

    def __init__(self, dispatched_offset: Callable[[], int]) -> None:
        self.dispatched_offset: Final = dispatched_offset
        self._ops: deque[tuple[int, int]] = deque()  # the log offset behind an op message, the queue offset that it names
        self._offsets: Counter[int] = Counter()

    def add(self, next_offset: int, half_offset: int) -> None:
        self._forget()
        self._ops.append((next_offset, half_offset))
        self._offsets[half_offset] += 1

    def __contains__(self, half_offset: object) -> bool:
        self._forget()
        return half_offset in self._offsets

    def __len__(self) -> int:
        return len(self._ops)

    def _forget(self) -> None:
        dispatched = self.dispatched_offset()
        while self._ops and self._ops[0][0] <= dispatched:
            _, half_offset = self._ops.popleft()
            self._offsets[half_offset] -= 1
            if not self._offsets[half_offset]:
                del self._offsets[half_offset]
