"""Take the messages that producers send: check, append, and answer when the put has ended.

Decisions alone, sans-I/O: the broker's loop calls `send_message` for each request, and `on_turn` in each turn. A put that waits
for the disk or for a slave leaves its answer here; the answer finds its request by the opaque.

Spec: chapter 13.  Source: 4.9.8 SendMessageProcessor, AbstractSendMessageProcessor.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, Protocol

from rocketmq_ha.impl.broker.send_batch import Batch, batch_of
from rocketmq_ha.impl.broker.send_request import SendRequest
from rocketmq_ha.impl.broker.stats import BrokerStats
from rocketmq_ha.impl.broker.topic_config import MULTI_TAG, PERM_READ, PERM_WRITE, TopicConfig, TopicConfigManager
from rocketmq_ha.impl.broker.topic_validator import TOPIC_MAX_LENGTH, invalid_topic, is_not_allowed_send_topic
from rocketmq_ha.impl.errors import MessageIllegal, RequestInvalid, RocketmqHaError
from rocketmq_ha.impl.ha.puts import WaitingPut
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus, status_of
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Host, Message
from rocketmq_ha.impl.wire.message_id import message_id_prefix
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.spec.constants import (
    MAX_MESSAGE_SIZE,
    PROPERTY_NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)

MULTI_TAGS_FLAG: Final = 2  # of sysFlag
RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
_UNIT, _UNIT_SUB = 1, 2  # of topicSysFlag

# HA-SE-30 "MUST be answered with the code of its put's status"; any other status is SYSTEM_ERROR.
_CODES: Final = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class Appends(Protocol):
    """The store: messages are in the log when a call returns, and nothing waits. Raises: what MessageStore.put raises."""

    def append(self, message: Message) -> AppendResult: ...

    def append_batch(self, messages: Sequence[Message] | MessageBatch) -> AppendResult: ...


class Waits(Protocol):
    """What puts wait for (impl/ha/puts.py)."""

    def after_append(self, append: AppendResult, now_ms: int, *, waits: bool) -> WaitingPut: ...


class Channel(Protocol):
    """The connection of a producer. peer: "127.0.0.1:4711"."""

    @property
    def peer(self) -> str: ...

    def answer(self, response: RemotingCommand) -> None: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """A send that is not stored, and why."""

    code: ResponseCode
    remark: str


# Makes of a message and its properties what is put, for delayed, prepared and retried messages; or refuses it.
Prepares = Callable[[SendRequest, RemotingCommand, Message, dict[str, str]], Message | Refusal]


@dataclass(frozen=True, slots=True)
class SendSettings:
    """The broker's own settings; RocketMQ's names in snake case. store_host: brokerIP1 and listenPort."""

    broker_cluster_name: str
    store_host: Host
    broker_permission: int = PERM_READ | PERM_WRITE
    max_message_size: int = MAX_MESSAGE_SIZE
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    is_slave: bool = False


class SendMessageProcessor:
    """The handler of the codes 10, 310 and 320.

    Args:  puts: None for a slave, which takes no message. prepares: see Prepares; None refuses prepared messages, and stores
           all others as they are. stats: counts what is put. choose: takes a number n > 0 and returns one below it, at random.
    """

    def __init__(
        self,
        settings: SendSettings,
        store: Appends,
        puts: Waits | None,
        topics: TopicConfigManager,
        prepares: Prepares | None = None,
        stats: BrokerStats | None = None,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self._settings, self._store, self._puts, self._topics = settings, store, puts, topics
        self._prepares = prepares or _without_transactions
        self._stats = stats or BrokerStats(0, 0)
        self._choose = choose
        self._pending: deque[tuple[WaitingPut, Channel, RemotingCommand]] = deque()
        self.statuses: Counter[PutMessageStatus] = Counter()  # how puts have ended
        self._id_prefix = message_id_prefix(settings.store_host)
        # HA-SE-33 "MUST have the fields `MSG_REGION`, the broker's `regionId`"
        self._told = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
        self._cluster = f"CLUSTER{PROPERTY_NAME_SEPARATOR}{settings.broker_cluster_name}"
        self._store_flag = SYS_FLAG_STORE_HOST_V6 if ":" in settings.store_host[0] else 0
        self._is_writable = bool(settings.broker_permission & PERM_WRITE)

    @property
    def waiting(self) -> int:
        """The number of puts that wait for the disk or for a slave, and whose producers wait for an answer."""
        return len(self._pending)

    def send_message(self, channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand | None:
        """Take a send. Returns: the answer; None if it comes later, by `on_turn`.

        Raises: RequestInvalid, which the server answers with SYSTEM_ERROR.
        """
        if self._settings.is_slave:  # HA-R-5 "A slave MUST refuse puts, with SERVICE_NOT_AVAILABLE"
            return self._refuse(request, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave"))
        send = SendRequest(request)
        topic = self._check(send, channel.peer)
        if isinstance(topic, Refusal):
            return self._refuse(request, topic)
        queue_id = self._queue_id(send, topic)
        born_host = _host_of(channel.peer)
        sys_flag = self._sys_flag(send, topic, born_host)
        try:
            if send.is_batch:  # HA-SE-3 "if its field `batch` is true"
                batch, sizes = self._batch(send, request.body, queue_id, sys_flag, born_host)
                append = self._store.append_batch(batch)
                ids, waits = self._ids(append.offset, sizes), waits_for_store(send.properties)
            else:
                properties = parse_properties(send.properties)
                waits = properties.get("WAIT", "true").lower() == "true"
                message = self._message(send, request, properties, queue_id, sys_flag, born_host)
                if isinstance(message, Refusal):
                    return self._refuse(request, message)
                append = self._store.append(message)
                ids = f"{self._id_prefix}{append.offset:016X}"
        except RequestInvalid:
            raise
        except (RocketmqHaError, OSError) as error:
            self._stats.put_failed += 1
            return self._refuse(request, Refusal(_CODES.get(status_of(error), ResponseCode.SYSTEM_ERROR), str(error)))
        self._stats.put.total += append.messages
        self._stats.put_size += append.size
        # HA-SE-31 "MUST have the fields `msgId`, `queueId` and `queueOffset`"
        fields = {"msgId": ids, "queueId": str(queue_id), "queueOffset": str(append.queue_offset), **self._told}
        response = response_to(request, ext_fields=fields)
        assert self._puts is not None, "only a slave has no puts"
        put = self._puts.after_append(append, now_ms, waits=waits)
        if put.status is None:  # HA-SE-34 "MUST be answered when its put has ended, and not before"
            self._pending.append((put, channel, response))
            return None
        return self._ended(response, put.status)

    def on_turn(self) -> None:
        """Answer the sends whose puts have ended. HA-SE-34 "MAY be answered before it": those that do not wait are not here.

        Puts end in the order of the log, so the first that waits ends the search.
        """
        pending = self._pending
        while pending and (status := pending[0][0].status) is not None:
            _, channel, response = pending.popleft()
            channel.answer(self._ended(response, status))

    def finish(self) -> None:
        """Answer all sends, when no put will end any more: those without a status were acknowledged by no slave in time."""
        while self._pending:
            put, channel, response = self._pending.popleft()
            channel.answer(self._ended(response, put.status or PutMessageStatus.FLUSH_SLAVE_TIMEOUT))

    def _ended(self, response: RemotingCommand, status: PutMessageStatus) -> RemotingCommand:
        self.statuses[status] += 1
        response.code = _CODES.get(status, ResponseCode.SYSTEM_ERROR)
        return response

    def _refuse(self, request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
        return response_to(request, refusal.code, refusal.remark, dict(self._told))

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        return dict.fromkeys(codes, self.send_message)

    # --- Checks ------------------------------------------------------------------------------------------------------

    def _check(self, send: SendRequest, peer: str) -> TopicConfig | Refusal:
        """HA-SE-4 "MUST make the checks of the table below in their order". Returns: the settings of the topic."""
        name = send.topic
        topic = self._topics.select_topic_config(name)
        if not self._is_writable and topic is not None and topic.order:
            return Refusal(ResponseCode.NO_PERMISSION, f"topic {name}: the broker's permission has no write")
        if (refusal := _known_name(name) if len(name) <= TOPIC_MAX_LENGTH else _check_name(name)) is not None:
            return refusal
        if topic is None:
            topic = self._create(send, peer)
        if topic is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {name}: found none of this name, expected one to be created first"
            )
        if send.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            found = f"topic {name}: found queue id {send.queue_id}"
            expected = f"one below {max(topic.write_queue_nums, topic.read_queue_nums)}"
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{found}, expected {expected}")
        return topic

    def _create(self, send: SendRequest, peer: str) -> TopicConfig | None:
        """HA-SE-6 "MUST be created from the `defaultTopic` of the send"; HA-SE-7 "if the name begins with `%RETRY%`"."""
        is_retry = send.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        flag = 0 if not send.unit_mode else _UNIT_SUB if is_retry else _UNIT
        topic = self._topics.create_topic_in_send_message_method(
            send.topic, send.default_topic, peer, send.default_topic_queue_nums, flag
        )
        if topic is None and is_retry:
            return self._topics.create_topic_in_send_message_back_method(send.topic, 1, PERM_READ | PERM_WRITE, flag)
        return topic

    def _queue_id(self, send: SendRequest, topic: TopicConfig) -> int:
        """HA-SE-8 "MUST go to a queue below `writeQueueNums` of the topic, chosen at random". Raises: RequestInvalid."""
        if send.queue_id >= 0:
            return send.queue_id
        if topic.write_queue_nums <= 0:
            raise RequestInvalid(f"topic {send.topic}", "no queue to write to", "at least one")
        return self._choose(topic.write_queue_nums)

    # --- What is stored ----------------------------------------------------------------------------------------------

    def _sys_flag(self, send: SendRequest, topic: TopicConfig, born_host: Host) -> int:
        """HA-SE-10 "MUST be that of the send", and "the bits 16 and 32 say whether the two hosts are IPv6"."""
        sys_flag = send.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6) | self._store_flag
        if topic.topic_filter_type == MULTI_TAG:
            sys_flag |= MULTI_TAGS_FLAG
        return sys_flag | SYS_FLAG_BORN_HOST_V6 if ":" in born_host[0] else sys_flag

    def _message(
        self,
        send: SendRequest,
        request: RemotingCommand,
        properties: dict[str, str],
        queue_id: int,
        sys_flag: int,
        born_host: Host,
    ) -> Message | Refusal:
        """The message of a send that is no batch. properties: those of the send. Raises: MessageIllegal.

        Spec: HA-SE-9 "MUST have the topic, the body, the `flag`, the `bornTimestamp` and the `reconsumeTimes` of the send";
        HA-SE-11 "without WAIT, and with CLUSTER"; HA-SE-13 "MUST be answered with 13 (MESSAGE_ILLEGAL) if its body has more".
        """
        stored = [
            f"{name}{PROPERTY_NAME_SEPARATOR}{value}" for name, value in properties.items() if name not in ("WAIT", "CLUSTER")
        ]
        stored.append(self._cluster)
        properties["CLUSTER"] = self._settings.broker_cluster_name
        message = Message(
            topic=send.topic,
            body=request.body,
            queue_id=queue_id,
            flag=send.flag,
            sys_flag=sys_flag,
            born_timestamp=send.born_timestamp,
            born_host=born_host,
            store_host=self._settings.store_host,
            reconsume_times=send.reconsume_times,
            properties_string=PROPERTY_SEPARATOR.join(stored),
        )
        prepared = self._prepares(send, request, message, properties)
        if isinstance(prepared, Message) and len(request.body) > self._settings.max_message_size:
            raise MessageIllegal("body", f"{len(request.body)} bytes", f"at most {self._settings.max_message_size} bytes")
        return prepared

    def _batch(self, send: SendRequest, body: bytes, queue_id: int, sys_flag: int, born_host: Host) -> Batch:
        """The messages of a batch. Raises: RequestInvalid, MessageIllegal.

        Spec: HA-SE-21 "and all else as of a single message".
        """
        head = Message(
            topic=send.topic,
            body=b"",
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=send.born_timestamp,
            born_host=born_host,
            store_host=self._settings.store_host,
            reconsume_times=send.reconsume_times,
        )
        return batch_of(head, send.properties, self._settings.broker_cluster_name, body, self._settings.max_message_size)

    def _ids(self, offset: int, sizes: Sequence[int]) -> str:
        """The ids of records that begin at an offset. HA-SE-32 "MUST be the ids of its messages in order, joined by commas"."""
        return ",".join(f"{self._id_prefix}{at:016X}" for at in accumulate(sizes[:-1], initial=offset))


def _without_transactions(
    _send: SendRequest, _request: RemotingCommand, message: Message, properties: Mapping[str, str]
) -> Message | Refusal:
    """HA-SE-14 "MUST answer a message whose property TRAN_MSG is true with 16 (NO_PERMISSION)"."""
    if properties.get("TRAN_MSG", "").lower() == "true":
        return Refusal(ResponseCode.NO_PERMISSION, "this broker takes no transactional messages")
    return message


def _check_name(topic: str) -> Refusal | None:
    """HA-SE-4, checks 2 and 3."""
    if (why := invalid_topic(topic)) is not None:
        return Refusal(ResponseCode.SYSTEM_ERROR, why)
    if is_not_allowed_send_topic(topic):  # HA-SE-5 "No client MUST be able to send to"
        return Refusal(ResponseCode.NO_PERMISSION, f"topic {topic}: no client sends there")
    return None


_known_name: Final = lru_cache(maxsize=4096)(_check_name)  # for names that are short: it keeps them


@lru_cache(maxsize=4096)
def _host_of(peer: str) -> Host:
    return parse_address(peer)
