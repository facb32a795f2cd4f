"""What an administrator asks name servers and brokers, and lets them change. Each method asks and waits for the answers.

Source: 4.9.8 MQClientAPIImpl, DefaultMQAdminExtImpl.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rocketmq_ha.impl.client.object_keys import quote_object_keys
from rocketmq_ha.impl.client.producer import name_of
from rocketmq_ha.impl.client.route_data import MASTER_ID, MessageQueue, TopicRoute, read_route
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed, RequestInvalid, RequestRefused
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

TIMEOUT_MS: Final = 5_000


class AsksAndWaits(Protocol):
    """The client (impl/remoting/client.py)."""

    def ask(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand: ...


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker as the name servers list it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group has come in a queue. Offsets are indexes of the queue; timestamps are ms since 1970, 0 if unknown."""

    queue: MessageQueue
    min_offset: int
    broker_offset: int
    consumer_offset: int
    last_timestamp: int

    @property
    def lag(self) -> int:
        """Messages that are still to be consumed; those that were deleted unread do not count."""
        return self.broker_offset - max(self.consumer_offset, self.min_offset)


class Admin:
    """Asks.

    Raises: RequestFailed, if nobody answers; RequestRefused for an answer that is an error; RequestInvalid for one that
    cannot be read.
    """

    def __init__(self, client: AsksAndWaits, name_servers: Sequence[str], timeout_ms: int = TIMEOUT_MS) -> None:
        """name_servers: each HOST:PORT, at least one."""
        self._client, self._name_servers, self._timeout_ms = client, tuple(name_servers), timeout_ms

    # --- Name servers ------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """206: all topics that the name server knows."""
        body = body_json.read(self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body, "topics")
        return sorted(str(topic) for topic in _list(body, "topicList"))

    def route(self, topic: str) -> TopicRoute:
        """105. Raises: RequestRefused with TOPIC_NOT_EXIST where there is none."""
        return read_route(self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body)

    def brokers(self) -> list[BrokerAddress]:
        """106: all brokers, sorted."""
        body = body_json.read(self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO).body, "brokers")
        table = _dict(body, "brokerAddrTable")
        found = []
        for name, data in table.items():
            for broker_id, address in _dict(data, "brokerAddrs").items():
                if not str(broker_id).isdecimal():
                    raise RequestInvalid("brokers", f"the broker id {str(broker_id)[:40]!r}", "a number")
                cluster = data.get("cluster") or next(
                    (each for each, names in _dict(body, "clusterAddrTable").items() if name in names), ""
                )
                found.append(BrokerAddress(str(cluster), str(name), int(broker_id), str(address)))
        return sorted(found, key=lambda broker: (broker.cluster, broker.broker_name, broker.broker_id))

    def masters(self, cluster: str | None = None, broker_name: str | None = None) -> list[BrokerAddress]:
        """The masters of a cluster or of a group, or all. Raises: ConfigInvalid if there is none."""
        found = [
            broker
            for broker in self.brokers()
            if broker.broker_id == MASTER_ID and cluster in (None, broker.cluster) and broker_name in (None, broker.broker_name)
        ]
        if not found:
            what = f"the cluster {cluster}" if cluster else f"the group {broker_name}" if broker_name else "a broker"
            raise ConfigInvalid(f"{';'.join(self._name_servers)}: found no master, expected one of {what}")
        return found

    # --- Brokers -----------------------------------------------------------------------------------------------------

    def runtime_info(self, address: str) -> dict[str, str]:
        """28: the figures of a broker."""
        table = _dict(body_json.read(self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body, "figures"), "table")
        return {str(name): str(value) for name, value in table.items()}

    def ha_status(self, address: str) -> dict[str, Any] | None:
        """907: who replicates; None for a broker that does not know the request, as those of 4.x."""
        try:
            body = body_json.read(self._ask(address, RequestCode.GET_BROKER_HA_STATUS).body, "HA status")
        except RequestRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED.name:
                return None
            raise
        return body if isinstance(body, dict) else None

    def groups(self, address: str) -> dict[str, dict[str, Any]]:
        """201: the consumer groups of a broker, by name."""
        body = body_json.read(self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body, "groups")
        return _dict(body, "subscriptionGroupTable")

    def progress(self, address: str, group: str, topic: str | None = None) -> list[QueueProgress]:
        """208 and 202: how far a group has come in the queues of one broker, sorted."""
        ext_fields = {"consumerGroup": group} | ({} if topic is None else {"topic": topic})
        answer = self._ask(address, RequestCode.GET_CONSUME_STATS, ext_fields)
        body = body_json.read(quote_object_keys(answer.body), "progress")
        found = {_queue(key): value for key, value in _dict(body, "offsetTable").items()}
        least = {}
        for name in {mq.topic for mq in found}:
            stats = self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": name})
            for key, value in _dict(body_json.read(quote_object_keys(stats.body), "topic"), "offsetTable").items():
                least[_queue(key)] = _int(value, "minOffset")
        return [
            QueueProgress(
                mq,
                least.get(mq, 0),
                _int(value, "brokerOffset"),
                _int(value, "consumerOffset"),
                _int(value, "lastTimestamp"),
            )
            for mq, value in sorted(found.items())
        ]

    def create_topic(self, address: str, topic: str, queues: int, perm: int) -> None:
        """17: make a topic at one master, or replace its settings."""
        ext_fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields)

    def delete_topic(self, topic: str, brokers: Sequence[BrokerAddress]) -> list[RequestFailed]:
        """215 at the masters, then 216 at each name server: a name server alone would learn it from them again.

        A name server that does not answer may be down, and is passed over where another one answers. One that refuses still
        lists the topic: the others are asked too, and then its refusal is raised.

        Returns: the failures of the name servers that were passed over.
        """
        for broker in brokers:
            self._ask(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        failures: list[RequestFailed] = []
        refusals: list[RequestRefused] = []
        for address in self._name_servers:
            try:
                self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
            except RequestFailed as error:
                failures.append(error)
            except RequestRefused as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        if len(failures) == len(self._name_servers):
            raise failures[0]
        return failures

    def create_group(self, address: str, group: str, retry_max_times: int) -> None:
        """200: make a consumer group at one master, or replace its settings."""
        body = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": retry_max_times,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body_json.write(body))

    def offset_of(self, address: str, mq: MessageQueue, where: str | int) -> int:
        """The offset of a place in a queue: "first" (31), "last" (30), or of a time in ms since 1970 (29)."""
        ext_fields = {"topic": mq.topic, "queueId": str(mq.queue_id)}
        code = {"first": RequestCode.GET_MIN_OFFSET, "last": RequestCode.GET_MAX_OFFSET}.get(str(where))
        if code is None:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            ext_fields["timestamp"] = str(where)
        return fields.i64(self._ask(address, code, ext_fields), "offset")

    def consumers(self, address: str, group: str) -> list[str]:
        """38: the client ids of the group's consumers at a broker. A broker answers SYSTEM_ERROR where there are none."""
        try:
            answer = self._ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        except RequestRefused as error:
            if error.code == ResponseCode.SYSTEM_ERROR.name:
                return []
            raise
        return [str(each) for each in _list(body_json.read(answer.body, "consumers"), "consumerIdList")]

    def reset_offset(self, address: str, group: str, mq: MessageQueue, offset: int) -> None:
        """15: set the offset of a group in a queue. Running consumers commit over it: they have to be stopped before."""
        ext_fields = {
            "consumerGroup": group,
            "topic": mq.topic,
            "queueId": str(mq.queue_id),
            "commitOffset": str(offset),
        }
        self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields)

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _ask(
        self, address: str, code: RequestCode, ext_fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        answer = self._client.ask(address, request(code, ext_fields, body), self._timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(address, code.name, name_of(answer.code), answer.remark)
        return answer

    def _ask_name_server(self, code: RequestCode, ext_fields: dict[str, str] | None = None) -> RemotingCommand:
        """Ask one name server after the other. HA-C-1 "MUST be followed by the next one"."""
        for address in self._name_servers[:-1]:
            try:
                return self._ask(address, code, ext_fields)
            except RequestFailed:
                continue
        return self._ask(self._name_servers[-1], code, ext_fields)


def _dict(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise RequestInvalid(name, type(found).__name__, "an object")
    return found


def _list(value: object, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise RequestInvalid(name, type(found).__name__, "an array")
    return found


def _int(value: object, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if type(found) is not int:
        raise RequestInvalid(name, repr(found)[:40], "a number")
    return found


def _queue(key: str) -> MessageQueue:
    """A key that is a queue. Raises: RequestInvalid."""
    try:
        found = json.loads(key)
        return MessageQueue(str(found["topic"]), str(found["brokerName"]), int(found["queueId"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestInvalid("offsetTable", repr(key[:60]), "keys that are queues") from None
