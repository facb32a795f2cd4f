"""What a consumer could not process and sends back: it goes to the retry topic of its group, or at last to the dead letters.

    36 CONSUMER_SEND_MSG_BACK, offset  ->  %RETRY%group, delayed  ->  consumed again  -- 16 times -->  %DLQ%group

Where that request fails, the consumer sends the message as a producer does, to %RETRY%group; `retried` looks at these sends.

Spec: HA-SE-65 to HA-SE-71.  Source: 4.9.8 SendMessageProcessor.asyncConsumerSendMsgBack, handleRetryAndDLQ.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from rocketmq_ha.impl.broker.delayed import to_schedule_topic
from rocketmq_ha.impl.broker.groups import RETRY_GROUP_TOPIC_PREFIX, SubscriptionGroupConfig, dlq_topic, retry_topic
from rocketmq_ha.impl.broker.message_properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from rocketmq_ha.impl.broker.send import Refusal
from rocketmq_ha.impl.broker.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_ha.impl.broker.topic_validator import TOPIC_MAX_LENGTH
from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus, status_of
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.message_id import message_id
from rocketmq_ha.impl.wire.properties import format_properties

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

DLQ_NUMS_PER_GROUP: Final = 1
VERSION_OF_MAX_TIMES: Final = 121  # MQVersion.V3_4_9: clients from there on say how often they try
_RETRY_DELAY: Final = 3  # the level of the first retry
_UNIT_SUB: Final = 2  # of topicSysFlag


class SendBackStore(Protocol):
    """What is asked of the store; see MessageStore."""

    def append(self, message: Message) -> AppendResult: ...
    def message_at(self, offset: int) -> Found | None: ...


class SendBackTopics(Protocol):
    """What is asked of the table of topics."""

    def create_topic_in_send_message_back_method(
        self, topic: str, client_default_topic_queue_nums: int, perm: int, topic_sys_flag: int
    ) -> TopicConfig | None: ...


class SendBackGroups(Protocol):
    """What is asked of the table of consumer groups."""

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None: ...


def max_reconsume_times(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """How often a message is sent back before it becomes a dead letter.

    Args:  version: of the client. asked: the field maxReconsumeTimes of its request.
    Spec: HA-SE-68 "the `reconsumeTimes` at the offset have reached the greatest number".
    """
    return group.retry_max_times if asked is None or version < VERSION_OF_MAX_TIMES else asked


def sent_back(
    message: Message, group: SubscriptionGroupConfig, delay_level: int, max_times: int, queue_id: int
) -> tuple[Message, dict[str, str]]:
    """What is stored of a message that a consumer sends back, and its properties; its delay is not looked at here.

    Args:  message: as the store has it. queue_id: of the retry topic.
    Spec: HA-SE-67 "MUST be the message at the offset, in a random queue below `retryQueueNums`"; HA-SE-68 "MUST go to queue 0
    of `%DLQ%` + group instead, with `DELAY` 0"; HA-SE-69 "or 3 plus the `reconsumeTimes` at the offset if that is 0".
    """
    properties = dict(message.properties)
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties[WAIT] = "false"
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = message_id(message.store_host, message.physical_offset)
    topic = retry_topic(group.group_name)
    if delay_level < 0 or message.reconsume_times >= max_times:
        topic, queue_id, level = dlq_topic(group.group_name), 0, 0
    else:
        level = delay_level or _RETRY_DELAY + message.reconsume_times
    properties[DELAY] = str(level)
    stored = replace(
        message,
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        physical_offset=0,
        prepared_transaction_offset=0,
        reconsume_times=message.reconsume_times + 1,
        properties_string=format_properties(properties),
    )
    return stored, properties


class SendBackProcessor:
    """The handler of the code 36, and the check of sends to retry topics.

    Args:  broker_permission: the setting brokerPermission. choose: takes a number n > 0 and returns one below it, at random.
    """

    def __init__(
        self,
        store: SendBackStore,
        topics: SendBackTopics,
        groups: SendBackGroups,
        levels: DelayLevels,
        *,
        broker_permission: int = PERM_READ | PERM_WRITE,
        is_slave: bool = False,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self._store, self._topics, self._groups, self._levels = store, topics, groups, levels
        self._is_writable, self._is_slave = bool(broker_permission & PERM_WRITE), is_slave
        self._choose = choose

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: self.consumer_send_msg_back,
        }

    def consumer_send_msg_back(self, _channel: object, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """Take a message back. Returns: the answer. Raises: RequestInvalid, which the server answers with SYSTEM_ERROR.

        Spec: HA-SE-65 "MUST take the code 36 (CONSUMER_SEND_MSG_BACK)"; HA-SE-70 "with the status of the put as remark".
        """
        if self._is_slave:
            return response_to(request, ResponseCode.SYSTEM_ERROR, PutMessageStatus.SERVICE_NOT_AVAILABLE.value)
        message = self._checked(request)
        if isinstance(message, Refusal):
            return response_to(request, message.code, message.remark or None)
        try:
            self._store.append(message)
        except (RocketmqHaError, OSError) as error:
            logger.error("group %s: a message that is sent back is not stored: %s", request.ext_fields["group"], error)
            return response_to(request, ResponseCode.SYSTEM_ERROR, status_of(error).value)
        return response_to(request)

    def _checked(self, request: RemotingCommand) -> Message | Refusal:
        """The message to be stored. HA-SE-66 "MUST make the checks of the table below in their order"."""
        offset, name = fields.i64(request, "offset"), fields.text(request, "group")
        delay_level = fields.i32(request, "delayLevel")
        unit_mode = fields.optional_boolean(request, "unitMode")
        asked = fields.optional_i32(request, "maxReconsumeTimes")
        group = self._groups.find_subscription_group_config(name)
        if group is None:
            return _no_group(name)
        if not self._is_writable:
            return Refusal(ResponseCode.NO_PERMISSION, "the broker's permission has no write")
        if group.retry_queue_nums <= 0:
            return Refusal(ResponseCode.SUCCESS, "")
        topic = self._create(retry_topic(name), group.retry_queue_nums, _UNIT_SUB if unit_mode else 0)
        if isinstance(topic, Refusal):
            return topic
        if not topic.is_writeable:
            return Refusal(ResponseCode.NO_PERMISSION, f"topic {topic.topic_name}: its permission has no write")
        found = self._store.message_at(offset)
        if found is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"found no message at commit-log offset {offset}")
        max_times = max_reconsume_times(group, request.version, asked)
        queue_id = self._choose(group.retry_queue_nums)
        message, properties = sent_back(found[2], group, delay_level, max_times, queue_id)
        if message.topic == dlq_topic(name):
            topic = self._create(message.topic, DLQ_NUMS_PER_GROUP, 0)
            if isinstance(topic, Refusal):
                return topic
        return to_schedule_topic(message, properties, self._levels)

    def retried(
        self, message: Message, properties: dict[str, str], version: int, asked: int | None
    ) -> tuple[Message, dict[str, str]] | Refusal:
        """What a send is stored as, if it goes to a retry topic; any other is returned as it is.

        Args:  properties: of the message. version: of the client. asked: the field maxReconsumeTimes of the send.
        Spec: HA-SE-71 "MUST be answered with 26 if the group is not known and not created".
        """
        if not message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return message, properties
        name = message.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = self._groups.find_subscription_group_config(name)
        if group is None:
            return _no_group(name)
        if message.reconsume_times < max_reconsume_times(group, version, asked):
            return message, properties
        topic = self._create(dlq_topic(name), DLQ_NUMS_PER_GROUP, 0)
        if isinstance(topic, Refusal):
            return topic
        # HA-SE-71 "it is put into queue 0 of `%DLQ%` + group without delay"
        dead = {name: value for name, value in properties.items() if name != DELAY}
        kept = {name: value for name, value in dead.items() if name != WAIT}
        return replace(message, topic=topic.topic_name, queue_id=0, properties_string=format_properties(kept)), dead

    def _create(self, topic: str, queue_nums: int, topic_sys_flag: int) -> TopicConfig | Refusal:
        if len(topic) > TOPIC_MAX_LENGTH:  # no record has room for it, so the message would be lost when it is due
            found = f"topic {topic[:60]}: found {len(topic)} characters, expected at most {TOPIC_MAX_LENGTH}"
            return Refusal(ResponseCode.SYSTEM_ERROR, found)
        perm = PERM_READ | PERM_WRITE
        created = self._topics.create_topic_in_send_message_back_method(topic, queue_nums, perm, topic_sys_flag)
        return created or Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic} is not there, and is not created")


def _no_group(name: str) -> Refusal:
    found = f"group {name}: found none of this name, expected one to be created first"
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, found)
