"""Transactional messages: how a prepared message is stored, and how its producer ends it.

    prepared  ->  half message: RMQ_SYS_TRANS_HALF_TOPIC, queue 0
    commit    ->  the message itself, then an op message: RMQ_SYS_TRANS_OP_HALF_TOPIC, body = the half's queue offset
    rollback  ->  an op message

A half message without an op message is checked by transaction_check.py.

Spec: HA-SE-75 to HA-SE-86.  Source: 4.9.8 EndTransactionProcessor, TransactionalMessageBridge.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from rocketmq_ha.impl.broker.delayed import to_schedule_topic
from rocketmq_ha.impl.broker.message_properties import (
    DELAY,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_PREPARED,
    WAIT,
    number,
)
from rocketmq_ha.impl.broker.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rocketmq_ha.impl.broker.transaction_ops import REMOVE_TAG, RecentOps
from rocketmq_ha.impl.errors import MessageIllegal, RequestInvalid, RocketmqHaError
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus, status_of
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, Host, Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.constants import SYS_FLAG_BORN_HOST_V6

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

NOT_TYPE: Final = 0  # commitOrRollback
COMMIT_TYPE: Final = 8
ROLLBACK_TYPE: Final = TRANSACTION_ROLLBACK
_REFUSED: Final = {
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class TransactionStore(Protocol):
    """What is asked of the store; see MessageStore."""

    def append(self, message: Message) -> AppendResult: ...
    def message_at(self, offset: int) -> Found | None: ...


# --- One message -----------------------------------------------------------------------------------------------------


def is_prepared(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a message is one of a transaction. HA-SE-75 "unless its `reconsumeTimes` and its `DELAY` are both above 0"."""
    if properties.get(TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and (number(properties.get(DELAY)) or 0) > 0)


def to_half_topic(message: Message, properties: Mapping[str, str]) -> Message:
    """The half message that is put in place of a prepared one. properties: those of the message, WAIT among them.

    Raises: MessageIllegal for a delayed one. HA-SE-77 "MUST be answered with 13 (MESSAGE_ILLEGAL), and not stored".
    Spec: HA-SE-76 "with its topic and queue id in `REAL_TOPIC` and `REAL_QID`".
    """
    if (number(properties.get(DELAY)) or 0) > 0:
        raise MessageIllegal(f"property {DELAY}", properties[DELAY], "none in a prepared message")
    stored = {**properties, REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    return replace(
        message,
        topic=RMQ_SYS_TRANS_HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties_string=format_properties(stored),
    )


def committed(half: Message, levels: DelayLevels) -> Message:
    """The message that a commit puts. Raises: MessageIllegal, if the half message says no topic and queue; RequestInvalid.

    Spec: HA-SE-82 "the physical offset of the half message as its prepared transaction offset".
    """
    properties = half.properties
    topic, queue_id = properties.get(REAL_TOPIC), number(properties.get(REAL_QUEUE_ID))
    if topic is None or queue_id is None:
        raise MessageIllegal(
            "half message", f"{topic!r}, queue {queue_id}", f"a topic and a queue in {REAL_TOPIC}, {REAL_QUEUE_ID}"
        )
    message = replace(
        half,
        topic=topic,
        queue_id=queue_id,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | COMMIT_TYPE,
        prepared_transaction_offset=half.physical_offset,
        queue_offset=0,
        physical_offset=0,
    )
    return to_schedule_topic(
        message, {name: value for name, value in properties.items() if name != TRANSACTION_PREPARED}, levels
    )


def op_message(half: Message, born_host: Host, born_timestamp: int) -> Message:
    """The op message that ends a half message.

    Spec: HA-SE-83 "with the tag `d`, and the half message's queue offset in decimal digits as body".
    """
    return Message(
        topic=RMQ_SYS_TRANS_OP_HALF_TOPIC,
        body=str(half.queue_offset).encode(),
        queue_id=half.queue_id,
        sys_flag=SYS_FLAG_BORN_HOST_V6 if ":" in born_host[0] else 0,
        born_timestamp=born_timestamp,
        born_host=born_host,
        properties_string=format_properties({WAIT: "true", TAGS: REMOVE_TAG}),
    )


# --- The request -----------------------------------------------------------------------------------------------------


class EndTransactionProcessor:
    """The handler of the code 37.

    Args:  host: the broker's own, for op messages. wall_clock: ms since 1970. recent: is told of each op message.
    """

    def __init__(
        self,
        store: TransactionStore,
        levels: DelayLevels,
        host: Host,
        wall_clock: Callable[[], int],
        recent: RecentOps,
        *,
        is_slave: bool = False,
    ) -> None:
        self._store, self._levels, self._host, self._wall_clock = store, levels, host, wall_clock
        self._recent, self._is_slave = recent, is_slave
        self.commits = self.rollbacks = 0

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
        }

    def end_transaction(self, _channel: object, request: RemotingCommand, _now_ms: int) -> RemotingCommand | None:
        """End a half message. Returns: the answer; None where there is none (HA-SE-80 "changes nothing, and has no answer").

        Raises: RequestInvalid, which the server answers with SYSTEM_ERROR.
        Spec: HA-SE-78 "MUST take the code 37 (END_TRANSACTION)"; HA-SE-79 "MUST answer 37 with 11 (SLAVE_NOT_AVAILABLE)";
        HA-SE-97 "a half message that has ended is taken like the first": nothing here looks for op messages.
        """
        if self._is_slave:
            return response_to(request, ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave")
        group = fields.text(request, "producerGroup")
        queue_offset = fields.i64(request, "tranStateTableOffset")
        offset = fields.i64(request, "commitLogOffset")
        kind = fields.i32(request, "commitOrRollback")
        if kind == NOT_TYPE:
            return None
        if kind not in (COMMIT_TYPE, ROLLBACK_TYPE):
            raise RequestInvalid("field commitOrRollback", kind, "0, 8 (commit) or 12 (rollback)")
        half = self._half(offset, queue_offset, group)
        if kind == COMMIT_TYPE:
            try:
                self._store.append(committed(half, self._levels))
            except RequestInvalid:
                raise
            except (RocketmqHaError, OSError) as error:  # HA-SE-84 "nor if that was refused"
                logger.error("half message %d: its commit is not stored: %s", queue_offset, error)
                return response_to(request, _REFUSED.get(status_of(error), ResponseCode.SYSTEM_ERROR), str(error))
            self.commits += 1
        else:
            self.rollbacks += 1
        self._end(half)
        return response_to(request)

    def _half(self, offset: int, queue_offset: int, group: str) -> Message:
        """The half message that a request names. Raises: RequestInvalid.

        Spec: HA-SE-81 "unless there is a half message at its `commitLogOffset`".
        """
        found = self._store.message_at(offset)
        if found is None or found[2].topic != RMQ_SYS_TRANS_HALF_TOPIC:
            raise RequestInvalid("field commitLogOffset", offset, "the offset of a prepared message")
        half = found[2]
        if half.properties.get(PRODUCER_GROUP) != group:
            raise RequestInvalid("field producerGroup", repr(group)[:60], "the group of the prepared message")
        if half.queue_offset != queue_offset:
            raise RequestInvalid("field tranStateTableOffset", queue_offset, half.queue_offset)
        return half

    def _end(self, half: Message) -> None:
        """Put the op message. HA-SE-85 "any other request 37 that passes its checks with 0": so where this fails, too."""
        try:
            append = self._store.append(op_message(half, self._host, self._wall_clock()))
        except (RocketmqHaError, OSError) as error:
            logger.error("half message %d: its op message is not stored, so it will be checked: %s", half.queue_offset, error)
            return
        self._recent.add(append.next_offset, half.queue_offset)
