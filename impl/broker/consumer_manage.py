"""The requests by which a consumer learns of the others of its group (38), and asks and says how far it has come (14, 15).

Spec: HA-BT-30 to HA-BT-32, HA-BT-46.  Source: 4.9.8 ConsumerManageProcessor.
"""

from typing import Protocol

from rocketmq_ha.impl.broker.clients import Channel, ConsumerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler


class Queues(Protocol):
    """What the handlers need of the store."""

    def first_visible_in_queue(self, topic: str, queue_id: int) -> int: ...
    def min_offset_in_queue(self, topic: str, queue_id: int) -> int: ...
    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, consume_offset: int) -> bool: ...


class ConsumerManageProcessor:
    """Handlers of 38, 14 and 15."""

    def __init__(self, offsets: ConsumerOffsetManager, consumers: ConsumerManager, queues: Queues) -> None:
        self._offsets, self._consumers, self._queues = offsets, consumers, queues

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list_by_group,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
        }

    def get_consumer_list_by_group(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """38. HA-BT-46 "MUST answer the client ids of the group's consumers", or SYSTEM_ERROR if it has none."""
        group = fields.text(request, "consumerGroup")
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return response_to(request, body=body_json.write({"consumerIdList": info.all_client_ids()}))

    def update_consumer_offset(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """15. HA-BT-30 "MUST store the offset whatever it is"."""
        group, topic = fields.text(request, "consumerGroup"), fields.text(request, "topic")
        queue_id, offset = fields.i32(request, "queueId"), fields.i64(request, "commitOffset")
        if not self._offsets.commit_offset(channel.peer, group, topic, queue_id, offset):
            return response_to(request, ResponseCode.SYSTEM_ERROR, "no room for offsets of more groups and queues")
        return response_to(request)

    def query_consumer_offset(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """14. HA-BT-31 "MUST answer the stored offset if it is 0 or more", else the begin of a whole queue."""
        group, topic = fields.text(request, "consumerGroup"), fields.text(request, "topic")
        queue_id = fields.i32(request, "queueId")
        offset = self._offsets.query_offset(group, topic, queue_id)
        if offset < 0:
            offset = self._queues.first_visible_in_queue(topic, queue_id)
            is_on_disk = self._queues.check_in_disk_by_consume_offset(topic, queue_id, offset)
            if self._queues.min_offset_in_queue(topic, queue_id) > offset or is_on_disk:
                return response_to(request, ResponseCode.QUERY_NOT_FOUND, f"group {group} has no offset in this queue")
        return response_to(request, ext_fields={"offset": str(offset)})
