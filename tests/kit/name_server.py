"""Requests to a name server, and a name server without sockets that answers them."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from struct import pack
from typing import Any

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager, RouteLimits
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to

NAMES = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "haServerAddr": "10.0.0.1:10912"}


def topic_config(name: str, queues: int = 4, perm: int = 6, sys_flag: int = 0) -> dict[str, object]:
    """A TopicConfig, as RocketMQ writes it."""
    return {
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": sys_flag,
        "writeQueueNums": queues,
    }


def body_of(*topics: Mapping[str, object], counter: int = 1, timestamp: int = 7, state_version: int | None = None) -> bytes:
    """The JSON body of a registration. state_version: as 5.x gives it."""
    version = {"counter": counter, "timestamp": timestamp}
    if state_version is not None:
        version["stateVersion"] = state_version
    wrapper = {"dataVersion": version, "topicConfigTable": {str(topic["topicName"]): topic for topic in topics}}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def compressed_body(version: bytes, *topics: bytes, behind: bytes = pack(">i", 2) + b"[]") -> bytes:
    """The compressed body. behind: what follows the topics."""
    parts = [pack(">i", len(version)) + version, pack(">i", len(topics))]
    parts += [pack(">i", len(topic)) + topic for topic in topics]
    return zlib.compress(b"".join(parts) + behind)


def registration(body: bytes = b"", broker_id: int = 0, **changes: str) -> RemotingCommand:
    """A request of code 103. changes: fields of the header."""
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    fields = {**NAMES, "brokerId": str(broker_id), "compressed": "false", "bodyCrc32": crc, **changes}
    return RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, body=body)


class NameServer:
    """The handlers of one name server, with a clock that a test sets. kv_path: of its texts."""

    def __init__(
        self, kv_path: Path, *, limits: RouteLimits | None = None, kv_size: int = 10_000, order_message_enable: bool = False
    ) -> None:
        self.routes = RouteInfoManager(limits)
        self.now_ms = 0
        settings = {"listenPort": "9876", "kvConfigPath": str(kv_path)}
        kv_config = KVConfigManager(kv_path, kv_size)
        processor = DefaultRequestProcessor(self.routes, kv_config, settings, order_message_enable=order_message_enable)
        self._handlers = processor.handlers()

    def serve(self, request: RemotingCommand, channel: str = "x") -> RemotingCommand:
        """Answer a request as a server with these handlers does."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        try:
            return handler(channel, request, self.now_ms)
        except RequestInvalid as error:
            return response_to(request, ResponseCode.SYSTEM_ERROR, str(error))

    def ask(self, code: int, body: bytes = b"", channel: str = "x", **fields: str) -> RemotingCommand:
        return self.serve(RemotingCommand(code, ext_fields=fields, body=body), channel)

    def json(self, code: int, **fields: str) -> Any:
        """The body of an answer that must be SUCCESS."""
        answer = self.ask(code, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer
        return json.loads(answer.body)

    def route(self, topic: str) -> Any:
        """The route of a topic; None where the answer is TOPIC_NOT_EXIST."""
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return None if answer.code == ResponseCode.TOPIC_NOT_EXIST else json.loads(answer.body)

    def brokers(self, topic: str) -> dict[str, dict[str, str]]:
        """The addresses of a topic's groups, by group and id; empty without a route."""
        route = self.route(topic)
        return {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]} if route else {}
