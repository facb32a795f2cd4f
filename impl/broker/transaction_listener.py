"""What becomes of a half message that nobody has ended: its producer is asked, or it is given up.

Spec: HA-SE-92 to HA-SE-94.  Source: 4.9.8 AbstractTransactionalMessageCheckListener, DefaultTransactionalMessageCheckListener.
"""

import logging
from dataclasses import replace
from typing import Protocol

from rocketmq_ha.impl.broker.message_properties import PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY, number
from rocketmq_ha.impl.broker.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_ha.impl.broker.topic_validator import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_ha.impl.errors import FrameInvalid, MessageIllegal
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.impl.wire.message_id import message_id

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


class Appends(Protocol):
    """What is asked of the store; see MessageStore."""

    def append(self, message: Message) -> AppendResult: ...


class GivenUpTopics(Protocol):
    """What is asked of the table of topics."""

    def create_topic_of_tran_check_max_time(self, client_default_topic_queue_nums: int, perm: int) -> TopicConfig | None: ...


class Producer(Protocol):
    """The connection of a producer."""

    def send(self, command: RemotingCommand) -> None: ...


class Producers(Protocol):
    def get_available_channel(self, group: str) -> Producer | None: ...


class TransactionalMessageCheckListener:
    """Asks producers, and moves what is given up. It decides nothing; the service does."""

    def __init__(self, store: Appends, topics: GivenUpTopics, producers: Producers) -> None:
        self._store, self._topics, self._producers = store, topics, producers
        self.checked = 0  # how many questions there were, those that no producer got included

    def resolve_discard_msg(self, half: Message) -> int:
        """Move a half message that will not be checked again. Returns: bytes that were put. Raises: as an append does."""
        perm = PERM_READ | PERM_WRITE
        self._topics.create_topic_of_tran_check_max_time(1, perm)
        moved = replace(half, topic=RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, queue_id=0, queue_offset=0, physical_offset=0)
        logger.error("half message %d is given up, and moved to %s", half.queue_offset, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)
        try:
            return self._store.append(moved).size
        except MessageIllegal as error:
            logger.error("half message %d is dropped: %s", half.queue_offset, error)
            return 0

    def resolve_half_msg(self, copy: Message) -> None:
        """Ask a producer of the group. HA-SE-93 "MUST be one that is connected now"."""
        self.checked += 1
        properties = copy.properties
        group = properties.get(PRODUCER_GROUP, "")
        channel = self._producers.get_available_channel(group)
        if channel is None:
            logger.warning("half message %d: no producer of group %s is connected", copy.queue_offset, group)
            return
        try:
            channel.send(check_request(copy))
        except (FrameInvalid, MessageIllegal) as error:
            logger.error("half message %d: its producer is not asked: %s", copy.queue_offset, error)


def check_request(copy: Message) -> RemotingCommand:
    """The question to a producer. Raises: MessageIllegal, if the half message says no topic and queue.

    Spec: HA-SE-92 "MUST be a oneway 39 (CHECK_TRANSACTION_STATE)".
    """
    properties = copy.properties
    topic, queue_id = properties.get(REAL_TOPIC), number(properties.get(REAL_QUEUE_ID))
    if topic is None or queue_id is None:
        raise MessageIllegal(
            "half message", f"{topic!r}, queue {queue_id}", f"a topic and a queue in {REAL_TOPIC}, {REAL_QUEUE_ID}"
        )
    ext_fields = {
        "tranStateTableOffset": str(copy.queue_offset),
        "commitLogOffset": str(copy.physical_offset),
        "offsetMsgId": message_id(copy.store_host, copy.physical_offset),
    }
    unique = properties.get(UNIQ_KEY)
    if unique is not None:
        ext_fields |= {"msgId": unique, "transactionId": unique}
    body = encode(replace(copy, topic=topic, queue_id=queue_id))
    return request(RequestCode.CHECK_TRANSACTION_STATE, ext_fields, body, oneway=True)
