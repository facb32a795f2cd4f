"""The requests that change the tables of topics and groups, and those that ask for whole tables, settings and figures.

Spec: HA-BT-11, HA-BT-14 to HA-BT-17, HA-BT-23, HA-BT-24, HA-BT-60, HA-BT-61, HA-BT-68 to HA-BT-73, HA-BT-82, HA-MD-17,
HA-MD-22 to 25.
Source: 4.9.8 AdminBrokerProcessor.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rocketmq_ha.impl.broker import body_fields
from rocketmq_ha.impl.broker.clients import Channel
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.data_version import DataVersion
from rocketmq_ha.impl.broker.groups import (
    GROUP_FIELDS,
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    check_group_name,
    read_group,
)
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_attributes import ATTRIBUTES, alter
from rocketmq_ha.impl.broker.topic_config import MULTI_TAG, SINGLE_TAG, TopicConfig, TopicConfigManager, topic_fields
from rocketmq_ha.impl.broker.topic_validator import SYSTEM_TOPIC_SET, invalid_topic, is_system_topic
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

_MOST_PERM: Final = 7


class HidesMessages(Protocol):
    """See DeletedTopics.delete."""

    def __call__(self, topic: str, *, is_known: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class AdminSources:
    """What the broker's other parts say when they are asked.

    delay_offset: the body for 45, or None if this broker delivers no delayed messages. config: the settings with their values.
    hide_messages: gives nobody the messages of a topic any more.
    """

    is_slave: Callable[[], bool]
    runtime_info: Callable[[], Mapping[str, str]]
    ha_status: Callable[[], Mapping[str, object]]
    config: Callable[[], Mapping[str, str]]
    hide_messages: HidesMessages
    delay_offset: Callable[[], bytes] | None = None


class AdminBrokerProcessor:
    """Handlers of 17, 215, 21, 351, 200, 207, 201, 43, 45, 402, 305, 25, 26, 28 and 907."""

    def __init__(
        self,
        settings: TableSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        sources: AdminSources,
    ) -> None:
        self._settings, self._topics, self._groups, self._offsets = settings, topics, groups, offsets
        self.sources = sources
        self._peers = PeerLog(logger)

    def handlers(self) -> dict[int, Handler]:
        """For the server's table.

        HA-BT-81 "Requests 60 and 61 MUST be answered with REQUEST_CODE_NOT_SUPPORTED": they have no handler.
        """
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_and_create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic_config,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_and_create_subscription_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_subscription_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_subscription_group,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_message_request_mode,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topic_list,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_broker_config,
            RequestCode.GET_BROKER_CONFIG: self.get_broker_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
            RequestCode.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
        }

    # --- Topics ------------------------------------------------------------------------------------------------------

    def update_and_create_topic(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """17. HA-BT-17 "MUST replace all settings of the topic, or create it". The field `order` is not read (HA-BT-16)."""
        topic = fields.text(request, "topic")
        if (refused := self._refusal(request, topic)) is not None:
            return refused
        read_queue_nums, write_queue_nums = (
            self._queue_nums(request, "readQueueNums"),
            self._queue_nums(request, "writeQueueNums"),
        )
        perm = fields.i32(request, "perm")
        if not 0 <= perm <= _MOST_PERM:
            raise RequestInvalid("field perm", perm, f"0 to {_MOST_PERM}")
        filter_type = fields.text(request, "topicFilterType")
        if filter_type not in (SINGLE_TAG, MULTI_TAG):
            raise RequestInvalid("field topicFilterType", repr(filter_type[:60]), f"{SINGLE_TAG} or {MULTI_TAG}")
        sys_flag = fields.optional_i32(request, "topicSysFlag", 0)
        unknown = self._unknown(topic, fields.optional_text(request, "attributes", ""))
        config = TopicConfig(topic, read_queue_nums, write_queue_nums, perm, filter_type, sys_flag, unknown=unknown)
        if not self._topics.update_topic_config(config):
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"no room for more than {self._settings.max_topics} topics")
        logger.info("%s: topic %s is set: %s", channel.peer, topic, config)
        return response_to(request)

    def _unknown(self, topic: str, changes: str) -> Mapping[str, object]:
        """The settings of a topic that no field of the request replaces. changes: of its attributes. Raises: RequestInvalid."""
        old = self._topics.select_topic_config(topic)
        unknown = {} if old is None else old.unknown
        if not changes:
            return unknown
        current = unknown.get(ATTRIBUTES)
        return {**unknown, ATTRIBUTES: alter(current if isinstance(current, dict) else {}, changes, is_new=old is None)}

    def delete_topic(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """215. HA-BT-15 "MUST be gone from the table at once"; a topic that is not there counts as deleted.

        The messages are hidden first: a kill before the table has lost the topic leaves it with its settings, and the deletion
        can be asked for again. The other way round HA-BT-18 would make a topic with other settings.
        """
        topic = fields.text(request, "topic")
        if (refused := self._refusal(request, topic)) is not None:
            return refused
        self.sources.hide_messages(topic, is_known=topic in self._topics.topic_config_table)
        if self._topics.delete_topic_config(topic):
            logger.info("%s: topic %s is deleted", channel.peer, topic)
        return response_to(request)

    def get_all_topic_config(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """21. HA-MD-22 "MUST have `dataVersion` and `topicConfigTable`"."""
        return response_to(request, body=self._topics.encode())

    def get_topic_config(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """351. HA-BT-74 "MUST answer the settings of a topic as request 21 has them"."""
        topic = fields.text(request, "topic")
        config = self._topics.select_topic_config(topic)
        if config is None:
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, f"topic {topic}: found none of this name")
        return response_to(request, body=body_json.write(topic_fields(config)))

    def get_system_topic_list(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """305. HA-BT-72 "and request 305 the system topics, in `topicList`"."""
        return response_to(
            request, body=body_json.write({"topicList": sorted(SYSTEM_TOPIC_SET | self._topics.own_system_topics)})
        )

    def _refusal(self, request: RemotingCommand, topic: str) -> RemotingCommand | None:
        """The answer to a request that may not change a topic; None if it may."""
        if (refused := self._refuse_on_slave(request)) is not None:
            return refused
        why = invalid_topic(topic)
        # HA-BT-11 "a system topic MUST be refused with SYSTEM_ERROR"
        if why is None and is_system_topic(topic, self._topics.own_system_topics):
            why = f"The topic[{topic}] is conflict with system topic."
        return None if why is None else response_to(request, ResponseCode.SYSTEM_ERROR, why)

    def _queue_nums(self, request: RemotingCommand, name: str) -> int:
        """HA-BT-60 "MUST bound each of its tables". Raises: RequestInvalid."""
        nums = fields.i32(request, name)
        if not 0 <= nums <= self._settings.max_queue_nums:
            raise RequestInvalid(f"field {name}", nums, f"0 to {self._settings.max_queue_nums}")
        return nums

    # --- Groups and offsets ------------------------------------------------------------------------------------------

    def update_and_create_subscription_group(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """200. HA-BT-23 "MUST replace all settings of the group that its body names, or create it"."""
        if (refused := self._refuse_on_slave(request)) is not None:
            return refused
        config = self._read_group(request.body)
        if not self._groups.update_subscription_group_config(config):
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"no room for more than {self._settings.max_groups} groups")
        logger.info("%s: group %s is set: %s", channel.peer, config.group_name, config)
        return response_to(request)

    def delete_subscription_group(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """207. HA-BT-24 "MUST delete the group, and its offsets in all topics if `removeOffset` or `cleanOffset` is true"."""
        if (refused := self._refuse_on_slave(request)) is not None:
            return refused
        group = fields.text(request, "groupName")
        if self._groups.delete_subscription_group_config(group):
            logger.info("%s: group %s is deleted", channel.peer, group)
        if any(fields.optional_boolean(request, name) for name in ("removeOffset", "cleanOffset")):
            self._offsets.remove_offset(group)
        return response_to(request)

    def get_all_subscription_group(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """201. HA-MD-25 "MUST have `subscriptionGroupTable` and `dataVersion`"."""
        return response_to(request, body=self._groups.encode())

    def get_all_consumer_offset(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """43. HA-MD-23 "MUST have `offsetTable`"."""
        return response_to(request, body=self._offsets.encode())

    def get_all_delay_offset(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """45. HA-MD-24 "MUST have `offsetTable`"; HA-MD-17 "MUST answer SYSTEM_ERROR" where there is no table."""
        if self.sources.delay_offset is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, "No delay offset in this broker")
        return response_to(request, body=self.sources.delay_offset())

    def get_all_message_request_mode(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """402. HA-BT-73 "MUST answer an empty `messageRequestModeMap`"."""
        return response_to(request, body=b'{"messageRequestModeMap":{}}')

    def _read_group(self, body: bytes) -> SubscriptionGroupConfig:
        """A group from a request. Raises: RequestInvalid."""
        found = body_fields.read_object(body, "body")
        name = body_fields.text(found, "groupName")
        check_group_name(name)
        values: dict[str, object] = {}
        for field, _, default in GROUP_FIELDS:
            if isinstance(default, bool):
                values[field] = body_fields.boolean(found, field, missing=default)
            else:
                values[field] = body_fields.integer(found, field, default, 32 if field.startswith("retry") else 64)
        config = read_group(name, values)
        if not 0 <= config.retry_queue_nums <= self._settings.max_queue_nums:
            raise RequestInvalid("retryQueueNums", config.retry_queue_nums, f"0 to {self._settings.max_queue_nums}")
        old = self._groups.subscription_group_table.get(name)
        return config if old is None else replace(config, unknown=old.unknown)

    def _refuse_on_slave(self, request: RemotingCommand) -> RemotingCommand | None:
        """HA-BT-61 "A slave MUST refuse requests 17, 215, 200 and 207 with SYSTEM_ERROR"."""
        if not self.sources.is_slave():
            return None
        remark = "a slave's topics and groups are its master's: change them there"
        return response_to(request, ResponseCode.SYSTEM_ERROR, remark)

    # --- Settings and figures ----------------------------------------------------------------------------------------

    def update_broker_config(self, channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        """25. HA-BT-68 "MUST be refused with NO_PERMISSION"."""
        text, peer = "%s: a change of the broker's settings is refused", channel.peer
        self._peers.write(now_ms, logging.WARNING, text, peer, peer=peer, reason="settings")
        return response_to(request, ResponseCode.NO_PERMISSION, "the settings of this broker cannot be changed by the network")

    def get_broker_config(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """26. HA-BT-69 "MUST answer the broker's settings as lines"."""
        lines = "".join(f"{name}={value}\n" for name, value in self.sources.config().items())
        version = body_json.write(DataVersion().fields()).decode()  # the settings never change
        return response_to(request, ext_fields={"version": version}, body=lines.encode())

    def get_broker_runtime_info(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """28. HA-BT-70 "MUST answer `table`"."""
        return response_to(request, body=body_json.write({"table": self.sources.runtime_info()}))

    def get_broker_ha_status(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """907. HA-BT-71 "MUST answer whether the broker is a master"."""
        return response_to(request, body=body_json.write(self.sources.ha_status()))
