"""The requests that move a group's offsets (222, 314), and the one that is passed on to a consumer (307).

Spec: HA-BT-35, HA-BT-66, HA-BT-67, HA-BT-79.  Source: 4.9.8 Broker2Client, AdminBrokerProcessor.cloneGroupOffset, callConsumer.
"""

from typing import Final

from rocketmq_ha.impl.broker.clients import Channel as AnyChannel
from rocketmq_ha.impl.broker.clients import ConsumerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.broker.rebalance_lock import MessageQueue
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.command import request as new_request
from rocketmq_ha.impl.remoting.dispatch import Handler

CALL_TIMEOUT: Final = 10_000  # ms


class Broker2Client:
    """Handlers of 222, 307 and 314."""

    def __init__(
        self,
        settings: TableSettings,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        queues: QueueFigures,
    ) -> None:
        self._settings, self._topics, self._offsets = settings, topics, offsets
        self._consumers, self._queues = consumers, queues

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
        }

    def reset_offset(self, _channel: AnyChannel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """222. HA-BT-66 "MUST compute an offset for each write queue of the topic, send them to all consumers of the group".

        Raises: RequestInvalid. HA-BT-79 "MUST move this queue alone": the one of `queueId`.
        """
        topic, group = fields.text(request, "topic"), fields.text(request, "group")
        timestamp, is_force = fields.i64(request, "timestamp"), fields.boolean(request, "isForce")
        config = self._topics.select_topic_config(topic)
        if config is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"no offset is reset: no topic {topic} in this broker")
        only = fields.optional_i32(request, "queueId", -1)
        if only >= 0:
            self._check_queue(config, only)
            is_force = True
        table: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums) if only < 0 else (only,):
            consumer_offset = self._offsets.query_offset(group, topic, queue_id)
            if consumer_offset == -1:
                return response_to(request, ResponseCode.SYSTEM_ERROR, f"The consumer group <{group}> not exist")
            named = self._offset_of(request, topic, only) if only >= 0 else None
            offset = self._offset_at(topic, queue_id, timestamp) if named is None else named
            mq = MessageQueue(topic, self._settings.broker_name, queue_id)
            table[mq] = offset if is_force or offset < consumer_offset else consumer_offset
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            remark = f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}"
            return response_to(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = body_json.write({"offsetTable": {mq.key(): offset for mq, offset in table.items()}})
        ext_fields = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "false"}
        sent = [{**mq.fields(), "offset": offset} for mq, offset in table.items()]
        told = body_json.write({"offsetTable": sent}) if request.language == "CPP" else body
        for client in info.channel_info_table.values():
            assert isinstance(client.channel, Channel)
            client.channel.send(new_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext_fields, told, oneway=True))
        return response_to(request, body=body)

    def get_consumer_running_info(self, channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand | None:
        """307. HA-BT-67 "MUST be passed on to the consumer that it names, and be answered with its answer"."""
        group, client_id = fields.text(request, "consumerGroup"), fields.text(request, "clientId")
        client = self._consumers.find_channel(group, client_id)
        if client is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if request.is_oneway:
            return None

        def on_answer(answer: RemotingCommand | RequestFailed) -> None:
            if isinstance(answer, RequestFailed):
                channel.answer(
                    response_to(request, ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}>: {answer}")
                )
                return
            channel.answer(response_to(request, answer.code, answer.remark, answer.ext_fields, answer.body))

        assert isinstance(client.channel, Channel)
        asked = new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(request.ext_fields), request.body)
        client.channel.invoke(asked, now_ms + CALL_TIMEOUT, on_answer)
        return None

    def clone_group_offset(self, _channel: AnyChannel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """314. HA-BT-35 "MUST copy the offsets of one group in a topic to another group"; "unless `offline` is set, one to
        which the consumers of the first group do not subscribe".
        """
        src_group, dest_group = fields.text(request, "srcGroup"), fields.text(request, "destGroup")
        topic = fields.optional_text(request, "topic", "")
        is_offline = fields.optional_boolean(request, "offline")
        for name in [topic] if topic.strip() else self._offsets.which_topic_by_consumer(src_group):
            if self._topics.select_topic_config(name) is None:
                continue
            is_subscribed = self._consumers.find_subscription_data(src_group, name) is not None
            if not is_offline and not is_subscribed and self._consumers.find_subscription_data_count(src_group) > 0:
                continue
            if not self._offsets.clone_offset(src_group, dest_group, name):
                return response_to(request, ResponseCode.SYSTEM_ERROR, "no room for offsets of more groups and queues")
        return response_to(request)

    @staticmethod
    def _check_queue(config: TopicConfig, queue_id: int) -> None:
        """Raises: RequestInvalid for a queue that the topic does not have."""
        nums = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= nums:
            raise RequestInvalid("field queueId", queue_id, f"a queue of {config.topic_name}, 0 to {nums - 1}")

    def _offset_of(self, request: RemotingCommand, topic: str, queue_id: int) -> int | None:
        """The offset that a request names for its queue; None if it names none. Raises: RequestInvalid.

        HA-BT-79 "An offset that the queue does not have is refused with SYSTEM_ERROR".
        """
        offset = fields.optional_i64(request, "offset", -1)
        if offset == -1:
            return None
        least = max(0, self._queues.min_offset_in_queue(topic, queue_id))
        most = self._queues.max_offset_in_queue(topic, queue_id)
        if not least <= offset <= most:
            raise RequestInvalid("field offset", offset, f"{least} to {most}")
        return offset

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of a time, ms; the max offset for -1."""
        if timestamp == -1:
            return self._queues.max_offset_in_queue(topic, queue_id)
        return max(0, self._queues.offset_in_queue_by_time(topic, queue_id, timestamp))
