"""PULL_MESSAGE and LITE_PULL_MESSAGE: give a consumer the messages of a queue, or hold its question until there are some.

    request -> check -> read the queue -> answer, or park (pull_hold.py)
                 ^                                 |
                 +---- a message, or the time -----+

Spec: HA-P-1 to HA-P-22, HA-R-20 to HA-R-31.  Source: 4.9.8 PullMessageProcessor.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_ha.impl.broker import filter as subscriptions
from rocketmq_ha.impl.broker.arrivals import Arrivals
from rocketmq_ha.impl.broker.filter import Refusal, shown
from rocketmq_ha.impl.broker.pull_hold import HeldPull, HoldSettings, Parking, PullRequestHoldService
from rocketmq_ha.impl.broker.pull_request import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullRequest, read_request
from rocketmq_ha.impl.broker.pull_tables import Channel, Consumers, Group, Groups, Offsets, Topics
from rocketmq_ha.impl.broker.store_queues import StoreQueues, queue_key
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.pull import PullBounds, PullResult, TagCodes
from rocketmq_ha.spec.role import BrokerRole

PERM_READ: Final = 4
MASTER_ID: Final = 0
_BROADCASTING: Final = "BROADCASTING"
_ANSWERED_IN_A_TURN: Final = 512  # parked pulls, so that a queue of many readers does not delay everything else

_CODES: Final = {  # HA-R-26; that of NO_MESSAGE_IN_QUEUE depends on the offset
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
_LOOKED: Final = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING)


@dataclass(frozen=True, slots=True)
class PullSettings:
    """RocketMQ's settings, with its defaults."""

    broker_permission: int = 6
    role: BrokerRole = BrokerRole.ASYNC_MASTER
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False

    @property
    def corrects_offsets(self) -> bool:
        """HA-R-31 "does not correct the offset of the pull"."""
        return self.role is not BrokerRole.SLAVE or self.offset_check_in_slave


class _Waiting(NamedTuple):
    """What is kept of a pull that is parked. command: the request without its fields and its body."""

    channel: Channel
    command: RemotingCommand
    pull: PullRequest


# --- The processor ---------------------------------------------------------------------------------------------------


class PullMessageProcessor:
    """Answers pulls, and holds them.

    `of_store` makes one with all that it needs. The loop calls `turn` when it was woken, and several times a second, and
    `on_close` when a connection has closed.
    """

    def __init__(
        self,
        queues: StoreQueues,
        topics: Topics,
        groups: Groups,
        consumers: Consumers,
        offsets: Offsets,
        hold: PullRequestHoldService,
        settings: PullSettings,
        is_connected_to_master: Callable[[], bool],
    ) -> None:
        self.hold: Final = hold
        self.messages = self.bytes = self.found = self.missed = 0  # given so far; pulls that found messages, and others
        self._queues, self._topics, self._groups = queues, topics, groups
        self._consumers, self._offsets, self._settings = consumers, offsets, settings
        self._is_connected_to_master = is_connected_to_master
        self._ready: deque[HeldPull] = deque()  # woken, and not answered yet

    @classmethod
    def of_store(
        cls,
        store: MessageStore,
        wake: Callable[[], None],
        topics: Topics,
        groups: Groups,
        consumers: Consumers,
        offsets: Offsets,
        settings: PullSettings,
        bounds: PullBounds,
        hold: HoldSettings,
        is_connected_to_master: Callable[[], bool],
    ) -> "PullMessageProcessor":
        """Answer pulls from a store, and be told by its dispatch of what has come.

        Args:  wake: ends the wait of the loop; any thread may call it, as long as the store is open. is_connected_to_master: of
               a slave, at this moment.
        """
        queues, arrivals = StoreQueues(store, bounds), Arrivals(wake)
        store.on_dispatched = arrivals.on_dispatched
        held = PullRequestHoldService(queues.max_offset_of, queues.has_message_for, arrivals, hold)
        return cls(queues, topics, groups, consumers, offsets, held, settings, is_connected_to_master)

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {RequestCode.PULL_MESSAGE: self.pull_message, RequestCode.LITE_PULL_MESSAGE: self.pull_message}

    def pull_message(self, channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand | None:
        """Answer a pull. HA-P-1 "MUST answer a PULL_MESSAGE (11) and a LITE_PULL_MESSAGE (361) by the same rules".

        Returns: None for a pull that is parked. Raises: RequestInvalid; StoreClosed.
        """
        pull = read_request(request)
        is_in_request = pull.sys_flag & SUBSCRIPTION
        checked = self._check(
            pull, subscriptions.of_request(pull.subscription, pull.expression_type) if is_in_request else None
        )
        if isinstance(checked, Refusal):
            return response_to(request, checked.code, checked.remark)
        group, codes = checked
        found = self._queues.pull(pull.topic, pull.queue_id, pull.queue_offset, pull.max_msg_nums, codes)
        # HA-P-15 "MUST store `commitOffset` as the group's offset of the queue if the pull has bit 1".
        if pull.sys_flag & COMMIT_OFFSET and self._settings.role is not BrokerRole.SLAVE:
            self._offsets.commit_offset(channel.peer, pull.consumer_group, pull.topic, pull.queue_id, pull.commit_offset)
        # HA-P-16 "A pull with bit 2 that would be answered 19 MUST be parked"; HA-R-29 "MUST NOT answer 19 to a pull".
        if pull.sys_flag & SUSPEND and self._waits(code_of(found.status, pull.queue_offset)):
            return self._park(channel, request, pull, codes, found.max_offset, now_ms)
        return self._answer(request, pull, group, found)

    def turn(self, now_ms: int) -> None:
        """Answer the parked pulls whose message has come, or whose time is over."""
        self._ready.extend(self.hold.turn(now_ms))
        for _ in range(min(len(self._ready), _ANSWERED_IN_A_TURN)):
            held = self._ready.popleft()
            waiting = held.request
            assert isinstance(waiting, _Waiting)
            if waiting.channel.is_open:
                waiting.channel.answer(self._look_again(waiting, held.codes))
        if self._ready:
            self.hold.turn_again()

    def on_close(self, channel: Channel) -> None:
        """A connection has closed: its parked pulls are dropped. HA-P-20."""
        self.hold.on_close(channel)

    def shutdown(self) -> None:
        """Drop all parked pulls without an answer. HA-P-20 "MUST NOT answer the pulls that it has parked"."""
        self.hold.shutdown()
        self._ready.clear()

    # --- Steps -------------------------------------------------------------------------------------------------------

    def _check(self, pull: PullRequest, codes_of_request: TagCodes | Refusal) -> Refusal | tuple[Group, TagCodes]:
        """HA-P-3 "MUST make the checks of the table in its order"; HA-R-30 "A pull that is refused".

        Args:  codes_of_request: what the subscription of the request was built to; it counts where bit 4 is set.
        """
        if pull.max_msg_nums < 0:  # HA-P-13 "A pull with a negative `maxMsgNums` MUST be answered with SYSTEM_ERROR"
            return Refusal(ResponseCode.SYSTEM_ERROR, f"maxMsgNums: found {pull.max_msg_nums}, expected 0 or more")
        if not self._settings.broker_permission & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, "this broker may not be read")
        group = self._groups.find_subscription_group_config(pull.consumer_group)
        if group is None:
            remark = f"consumer group {shown(pull.consumer_group)}: unknown to this broker"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            return Refusal(ResponseCode.NO_PERMISSION, f"consumer group {shown(pull.consumer_group)}: may not consume")
        topic = self._topics.select_topic_config(pull.topic)
        if topic is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {shown(pull.topic)}: unknown to this broker")
        if not topic.perm & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"topic {shown(pull.topic)}: may not be read")
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            expected = f"0 to {topic.read_queue_nums - 1}, the read queues of topic {shown(pull.topic)}"
            return Refusal(ResponseCode.SYSTEM_ERROR, f"queueId: found {pull.queue_id}, expected {expected}")
        codes = codes_of_request if pull.sys_flag & SUBSCRIPTION else self._codes_of_heartbeat(pull, group)
        return codes if isinstance(codes, Refusal) else (group, codes)

    def _codes_of_heartbeat(self, pull: PullRequest, group: Group) -> TagCodes | Refusal:
        info = self._consumers.get_consumer_group_info(pull.consumer_group)
        if info is None:
            remark = f"consumer group {shown(pull.consumer_group)}: no consumer of it is connected"
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.consume_broadcast_enable and info.message_model == _BROADCASTING:
            return Refusal(
                ResponseCode.NO_PERMISSION, f"consumer group {shown(pull.consumer_group)}: may not consume by broadcast"
            )
        subscription = self._consumers.find_subscription_data(pull.consumer_group, pull.topic)
        if subscription is None:
            remark = f"consumer group {shown(pull.consumer_group)}: has not subscribed to topic {shown(pull.topic)}"
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < pull.sub_version:
            remark = f"subVersion: found {pull.sub_version}, expected {subscription.sub_version}, that of the last heartbeat"
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        return subscriptions.of_heartbeat(subscription)

    def _waits(self, code: ResponseCode) -> bool:
        """Whether a pull that may be held is, by what a master would answer.

        HA-R-57 "MUST park a pull with bit 2 of `sysFlag` that it would answer 20 in place of 21".
        """
        if code is ResponseCode.PULL_OFFSET_MOVED:
            return not (self._settings.corrects_offsets or self._is_connected_to_master())
        return code is ResponseCode.PULL_NOT_FOUND

    def _park(
        self, channel: Channel, request: RemotingCommand, pull: PullRequest, codes: TagCodes, seen_up_to: int, now_ms: int
    ) -> RemotingCommand | None:
        # Its fields and its body may be large, and are not needed any more.
        command = RemotingCommand(request.code, request.opaque, request.flag, serialize_type=request.serialize_type)
        held = HeldPull(
            channel,
            queue_key(pull.topic, pull.queue_id),
            pull.queue_offset,
            codes,
            _Waiting(channel, command, pull._replace(subscription=None)),
            seen_up_to=seen_up_to,
        )
        if self.hold.suspend_pull_request(held, pull.suspend_timeout_millis, now_ms) is Parking.FULL:
            # HA-P-22 "A pull beyond a bound is answered with SYSTEM_BUSY (2)".
            return response_to(
                request, ResponseCode.SYSTEM_BUSY, f"this broker holds {self.hold.count} pulls, and takes no more"
            )
        return None

    def _look_again(self, waiting: _Waiting, codes_of_request: TagCodes) -> RemotingCommand:
        """Answer a pull that was parked. HA-P-19 "MUST be answered, as if it had neither bit 1 nor bit 2"."""
        pull = waiting.pull
        checked = self._check(pull, codes_of_request)
        if isinstance(checked, Refusal):
            return response_to(waiting.command, checked.code, checked.remark)
        group, codes = checked
        found = self._queues.pull(pull.topic, pull.queue_id, pull.queue_offset, pull.max_msg_nums, codes)
        return self._answer(waiting.command, pull, group, found)

    def _answer(self, request: RemotingCommand, pull: PullRequest, group: Group, found: PullResult) -> RemotingCommand:
        """HA-P-14 "MUST have the name of the outcome as its remark"; HA-R-26 "MUST answer 0 (SUCCESS) with messages"."""
        status = found.status
        code = code_of(status, pull.queue_offset)
        next_begin_offset = found.next_begin_offset
        suggested = self._suggested(group, found.lag)
        if not self._settings.corrects_offsets and status not in _LOOKED:
            next_begin_offset = pull.queue_offset
            if code is ResponseCode.PULL_OFFSET_MOVED:  # HA-R-31 "A slave answers 20 where a master answers 21"
                code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        if found.messages:
            self.found += 1
            self.messages += found.messages
            self.bytes += sum(map(len, found.buffers))
        else:
            self.missed += 1
        header = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(next_begin_offset),
            "minOffset": str(found.min_offset),
            "maxOffset": str(found.max_offset),
        }
        return response_to(request, code, status.value, header, buffers=found.buffers)

    def _suggested(self, group: Group, lag: int) -> int:
        """HA-R-20 "MUST suggest the `brokerId` to pull from next"; HA-R-24 "MUST NOT suggest more than one slave".

        HA-R-22 "A slave MUST NOT be suggested unless `slaveReadEnable` is set".
        """
        if not self._settings.slave_read_enable:
            return MASTER_ID
        is_slow = lag > self._queues.bounds.memory
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id


def code_of(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """The code of an outcome, at a master. HA-R-26.

    HA-R-6 "A slave answers pulls whatever `slaveReadEnable` says": the setting is not looked at.
    """
    if status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]
