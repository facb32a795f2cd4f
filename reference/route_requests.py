"""The requests to a name server that the events of a schedule stand for."""

import json
import zlib
from collections.abc import Mapping
from struct import pack
from typing import Final

from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.registration import CRC_MASK
from rocketmq_ha.reference.remoting import Command
from rocketmq_ha.reference.route_table import DataVersion, QueueData, Registration
from rocketmq_ha.spec.codes import RequestCode

# The field that is the argument of a question, and the one that is its second.
_FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ("topic",),
    RequestCode.GET_TOPICS_BY_CLUSTER: ("cluster",),
    RequestCode.GET_BROKER_MEMBER_GROUP: ("brokerName", "clusterName"),
    RequestCode.GET_KV_CONFIG: ("namespace", "key"),
    RequestCode.GET_KVLIST_BY_NAMESPACE: ("namespace",),
}
LONG: Final = "n" * 513
CONTROL: Final = "a\x07"

Request = (
    events.Register | events.Unregister | events.SignOfLife | events.QueryVersion | events.Ask | events.Change
    | events.PutText | events.DeleteText
)  # fmt: skip
Fields = dict[str, str]


def request_of(event: Request, opaque: int) -> Command:
    """The request that an event sends."""
    code, fields, body = _parts(event)
    return Command(int(code), opaque, ext_fields=tuple(fields.items()), body=body)


def _parts(event: Request) -> tuple[int, Fields, bytes]:
    match event:
        case events.Register():
            return _registration(event)
        case events.Unregister():
            fields = {"brokerName": event.broker_name, "brokerAddr": event.broker_addr, "clusterName": "c1", "brokerId": "0"}
            return RequestCode.UNREGISTER_BROKER, fields, b""
        case events.SignOfLife():
            fields = {"brokerAddr": event.broker_addr, "clusterName": "c1", "brokerName": "a"}
            return RequestCode.BROKER_HEARTBEAT, fields, b""
        case events.QueryVersion():
            fields = {"brokerAddr": event.broker_addr, "brokerName": "a", "brokerId": "0", "clusterName": "c1"}
            return RequestCode.QUERY_DATA_VERSION, fields, to_bytes(version_object(event.version))
        case events.Ask():
            names = _FIELDS.get(event.code, ())
            values = (event.argument, event.second)
            found = {name: value for name, value in zip(names, values, strict=False) if value is not None}
            return event.code, found, b""
        case events.Change():
            return _change(event)
        case events.PutText():
            return RequestCode.PUT_KV_CONFIG, {"namespace": event.namespace, "key": event.key, "value": event.value}, b""
        case events.DeleteText():
            return RequestCode.DELETE_KV_CONFIG, {"namespace": event.namespace, "key": event.key}, b""


def _change(event: events.Change) -> tuple[int, Fields, bytes]:
    if event.code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER):
        return event.code, {"brokerName": event.name}, b""
    cluster = {} if event.cluster is None else {"clusterName": event.cluster}
    body = b""
    if event.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
        body = to_bytes({"queueDatas": [{"brokerName": group, **_queues(queue)} for group, queue in event.queue_datas]})
    return event.code, {"topic": event.name, **cluster}, body


def _registration(event: events.Register) -> tuple[int, Fields, bytes]:
    said = event.registration
    body = _body(event)
    crc = zlib.crc32(body) & CRC_MASK
    name = {"control": CONTROL, "long": LONG}.get(event.damage, said.broker_name)
    fields = {
        "brokerName": name,
        "brokerAddr": said.broker_addr,
        "clusterName": said.cluster_name,
        "haServerAddr": said.ha_server_addr,
        "brokerId": str(said.broker_id),
        "compressed": "true" if event.form == "compressed" else "false",
        "bodyCrc32": str(crc ^ 1 if event.damage == "crc" else crc),
    }
    if said.heartbeat_timeout_ms is not None:
        fields["heartbeatTimeoutMillis"] = str(said.heartbeat_timeout_ms)
    if said.gives_acting_master:
        fields["enableActingMaster"] = "false"
    return RequestCode.REGISTER_BROKER, {key: value for key, value in fields.items() if key != event.lacks}, body


def _body(event: events.Register) -> bytes:
    said = event.registration
    if event.form == "none":
        return b""
    body = _compressed(said) if event.form == "compressed" else _json(said)
    return body[:-1] if event.damage == "cut" else body


def _json(said: Registration) -> bytes:
    """As a broker of RocketMQ writes it; a topic has more fields than a name server reads."""
    table = {name: {"topicName": name, **_queues(queue), "topicFilterType": "SINGLE_TAG"} for name, queue in said.topics}
    wrapper: dict[str, object] = {"topicConfigTable": table}
    if said.version is not None:
        wrapper["dataVersion"] = version_object(said.version)
    return to_bytes({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def _compressed(said: Registration) -> bytes:
    """The zlib stream of HA-R-34. It has no flags of topics, and always a version."""
    version = to_bytes(version_object(said.version or DataVersion(0, 0)))
    parts = [pack(">i", len(version)) + version, pack(">i", len(said.topics))]
    for name, queue in said.topics:
        line = f"{name} {queue.read_queue_nums} {queue.write_queue_nums} {queue.perm} SINGLE_TAG".encode()
        parts.append(pack(">i", len(line)) + line)
    return zlib.compress(b"".join(parts) + pack(">i", 2) + b"[]")


def _queues(queue: QueueData) -> dict[str, int]:
    return {
        "readQueueNums": queue.read_queue_nums,
        "writeQueueNums": queue.write_queue_nums,
        "perm": queue.perm,
        "topicSysFlag": queue.topic_sys_flag,
    }


def version_object(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "timestamp": version.timestamp, "stateVersion": version.state_version}


def to_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
