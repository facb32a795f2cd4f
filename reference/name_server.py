"""One name server: its routes, its texts, its clock; what it makes of each request, and what it answers.

    on_request --> (state, answer)      on_close, on_tick --> (state, connections that it closes)

The functions of route_table.py and kv_config.py make the changes; here are the requests that ask for them, with the clauses of
each step. Nothing is kept over a restart but the texts: HA-R-47 "Name servers know nothing of each other".
"""

import json
from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.reference import kv_config, name_server_answers, pauses, route_table
from rocketmq_ha.reference.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from rocketmq_ha.reference.name_server_answers import Json
from rocketmq_ha.reference.pauses import Pauses
from rocketmq_ha.reference.registration import has_its_crc, may_be_kept, read_body
from rocketmq_ha.reference.remoting import Command, read_boolean, read_number
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.route_table import UNIT, UNIT_SUB, Bounds, DataVersion, QueueData, Registration, RouteTable
from rocketmq_ha.spec.codes import RequestCode, ResponseCode

SCAN_MS: Final = 5_000
Clauses = tuple[str, ...]


class Invalid(Exception):  # noqa: N818  (as in impl/errors.py)
    """A request that lacks something, or asks for too much: HA-RM-13 "MUST be answered SYSTEM_ERROR (1)"."""


@dataclass(frozen=True, slots=True)
class Settings:
    """bounds, text_size: HA-R-56. order_message_enable: whether a route gives the queues of an ordered topic (HA-R-49)."""

    bounds: Bounds
    text_size: int = 1 << 20
    order_message_enable: bool = False
    listen_port: int = 9876


@dataclass(frozen=True, slots=True)
class NameServer:
    """is_full: its disk refuses to write. next_scan_ms: when it looks for silent brokers again."""

    table: RouteTable = field(default_factory=RouteTable)
    texts: KVConfig = field(default_factory=KVConfig)
    is_full: bool = False
    pauses: Pauses = field(default_factory=Pauses)
    next_scan_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer: its code, its fields sorted by name, and its body: bytes, or what its JSON stands for."""

    code: int
    ext_fields: tuple[tuple[str, str], ...] = ()
    body: bytes | Json = b""


Step = tuple[NameServer, Answered, Clauses]


def on_request(server: NameServer, settings: Settings, channel: int, request: Command, now_ms: int) -> Step:
    """Serve a request that has come by a connection."""
    try:
        return _on_request(server, settings, channel, request, now_ms)
    except Invalid as invalid:
        clauses = () if not invalid.args else (str(invalid),)
        return server, Answered(ResponseCode.SYSTEM_ERROR), (*clauses, "HA-RM-13")


def on_close(server: NameServer, channel: int) -> tuple[NameServer, Clauses]:
    """A connection has closed."""
    before = server.table
    after = route_table.on_close(before, channel)
    clauses = ("HA-R-41", "HA-R-17") if len(after.brokers) < len(before.brokers) else ("HA-R-41",)
    return replace(server, table=after), (*clauses, *_groups_left(before, after))


def on_tick(server: NameServer, now_ms: int) -> tuple[NameServer, frozenset[int], Clauses]:
    """A turn of its loop. HA-R-17: it looks every 5 s. Returns: the state, the connections to close, the clauses."""
    paused, may_expire = pauses.on_reading(server.pauses, now_ms)
    clauses: Clauses = () if may_expire else ("HA-T-21",)
    server = replace(server, pauses=paused)
    if now_ms < server.next_scan_ms or not may_expire:
        return server, frozenset(), clauses
    before = server.table
    after, closed = route_table.expire(before, now_ms)
    if gone := [broker for addr, broker in before.brokers.items() if addr not in after.brokers]:
        clauses = ("HA-R-17", "HA-R-42")
        if any(broker.timeout_ms != route_table.CHANNEL_EXPIRED_MS for broker in gone):
            clauses = ("HA-R-17", "HA-R-40", "HA-R-42")
    server = replace(server, table=after, next_scan_ms=now_ms + SCAN_MS)
    return server, closed, (*clauses, *_groups_left(before, after))


def restart(server: NameServer) -> NameServer:
    """It is killed, and starts again: HA-R-53 "MUST be in the file kvConfigPath, and synced, before it is answered"."""
    return NameServer(texts=kv_config.of_file(kv_config.to_file(server.texts)), is_full=server.is_full)


def _groups_left(before: RouteTable, after: RouteTable) -> Clauses:
    return ("HA-R-44",) if before.cluster_of.keys() - after.cluster_of.keys() else ()


# --- Requests --------------------------------------------------------------------------------------------------------


def _on_request(server: NameServer, settings: Settings, channel: int, request: Command, now_ms: int) -> Step:
    """HA-R-50 "MUST answer the codes of the table as it says"; HA-R-51 "MUST carry out the codes". Raises: Invalid."""
    fields = dict(request.ext_fields)
    match request.code:
        case RequestCode.REGISTER_BROKER:
            return _register(server, settings, channel, request, now_ms)
        case RequestCode.UNREGISTER_BROKER:
            return _unregister(server, fields)
        case RequestCode.QUERY_DATA_VERSION:
            return _query_data_version(server, fields, request.body, now_ms)
        case RequestCode.BROKER_HEARTBEAT:
            table = route_table.heartbeat(server.table, _text(fields, "brokerAddr"), now_ms)
            return replace(server, table=table), Answered(ResponseCode.SUCCESS), ("HA-R-50",)
        case RequestCode.PUT_KV_CONFIG | RequestCode.DELETE_KV_CONFIG:
            return _change_texts(server, settings, request.code, fields)
        case RequestCode.WIPE_WRITE_PERM_OF_BROKER | RequestCode.ADD_WRITE_PERM_OF_BROKER:
            return _change_permissions(server, request.code, fields)
        case RequestCode.DELETE_TOPIC_IN_NAMESRV:
            table = route_table.delete_topic(server.table, _text(fields, "topic"), fields.get("clusterName") or None)
            return replace(server, table=table), Answered(ResponseCode.SUCCESS), ("HA-R-51",)
        case RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            return _register_topic(server, settings, fields, request.body)
        case _:
            answered, clauses = _question(server, settings, request.code, fields)
            return server, answered, clauses


def _text(fields: dict[str, str], name: str, clause: str = "") -> str:
    if name not in fields:
        raise Invalid(*([clause] if clause else []))
    return fields[name]


def _kept(fields: dict[str, str], name: str, clause: str = "") -> str:
    """A name that the server is to keep."""
    if not may_be_kept(found := _text(fields, name, clause)):
        raise Invalid("HA-R-56")
    return found


def _number(fields: dict[str, str], name: str, bits: int) -> int | None:
    if name not in fields:
        return None
    if (number := read_number(fields[name], bits)) is None:
        raise Invalid
    return number


def _register(server: NameServer, settings: Settings, channel: int, request: Command, now_ms: int) -> Step:
    """HA-R-32 "MUST refuse a registration, code 103, whose header lacks a field of the table that is not optional"."""
    said, clauses = _registration(request, settings)
    before = server.table
    after, registered = route_table.register(before, said, channel, now_ms, settings.bounds)
    if registered is None:
        raise Invalid("HA-R-56")
    body: bytes | Json = b""
    if (ordered := kv_config.list_by_namespace(server.texts, ORDER_TOPIC_CONFIG)) is not None:
        body = {"table": dict(ordered)}
        clauses = (*clauses, "HA-R-45")
    addresses = {"haServerAddr": registered.ha_server_addr, "masterAddr": registered.master_addr}
    fields = tuple((name, addr) for name, addr in addresses.items() if addr is not None)
    clauses = (*clauses, *_clauses_of_registration(before, after, said), *_groups_left(before, after))
    return replace(server, table=after), Answered(ResponseCode.SUCCESS, fields, body), clauses


def _registration(request: Command, settings: Settings) -> tuple[Registration, Clauses]:
    """What a request of code 103 says, and the clauses of reading it. Raises: Invalid."""
    fields, body = dict(request.ext_fields), request.body
    cluster, name, addr, ha_addr = (
        _kept(fields, field, "HA-R-32") for field in ("clusterName", "brokerName", "brokerAddr", "haServerAddr")
    )
    if (broker_id := _number(fields, "brokerId", 64)) is None:
        raise Invalid("HA-R-32")
    if not has_its_crc(body, _number(fields, "bodyCrc32", 32) or 0):
        raise Invalid("HA-R-33")
    found = read_body(body, compressed=read_boolean(fields.get("compressed", "false")))
    if found is None:
        raise Invalid("HA-R-34")
    version, topics = found
    if len(topics) > settings.bounds.queue_datas:  # HA-R-56 "so MUST a registration that names more topics"
        raise Invalid("HA-R-56")
    timeout_ms = _number(fields, "heartbeatTimeoutMillis", 64)
    acting = "enableActingMaster" in fields
    said = Registration(cluster, name, broker_id, addr, ha_addr, version, topics, timeout_ms, gives_acting_master=acting)
    return said, ("HA-R-32", "HA-R-33", "HA-R-34")


def _clauses_of_registration(before: RouteTable, after: RouteTable, said: Registration) -> Clauses:
    """The clauses that a registration which is not refused has exercised."""
    if said.broker_addr not in after.brokers:
        return ("HA-R-39",)
    found = ["HA-R-3", "HA-R-10", "HA-R-38"]
    if said.topics:
        found.append("HA-R-35")
        if route_table.takes_topics(before, said):
            found.append("HA-R-36")
    if any(key not in {(topic, said.broker_name) for topic, _ in said.topics} for key in before.queues):
        found.append("HA-R-37")
    return tuple(found)


def _unregister(server: NameServer, fields: dict[str, str]) -> Step:
    """Code 104."""
    _text(fields, "clusterName")
    if _number(fields, "brokerId", 64) is None:
        raise Invalid
    before = server.table
    after = route_table.unregister(before, _text(fields, "brokerName"), _text(fields, "brokerAddr"))
    return replace(server, table=after), Answered(ResponseCode.SUCCESS), ("HA-R-43", *_groups_left(before, after))


def _query_data_version(server: NameServer, fields: dict[str, str], body: bytes, now_ms: int) -> Step:
    """Code 322."""
    said = json.loads(body)
    asked = DataVersion(said["counter"], said["timestamp"], said["stateVersion"])
    table, changed, known = route_table.query_data_version(server.table, _text(fields, "brokerAddr"), asked, now_ms)
    told: bytes | Json = b""
    if known is not None:
        told = {"counter": known.counter, "timestamp": known.timestamp, "stateVersion": known.state_version}
    answered = Answered(ResponseCode.SUCCESS, (("changed", "true" if changed else "false"),), told)
    return replace(server, table=table), answered, ("HA-R-46",)


def _change_texts(server: NameServer, settings: Settings, code: int, fields: dict[str, str]) -> Step:
    """Codes 100 and 102. HA-R-53 "a change that cannot be written MUST be refused with SYSTEM_ERROR, and take no effect"."""
    before = server.texts
    if code == RequestCode.PUT_KV_CONFIG:
        namespace, key = _kept(fields, "namespace"), _kept(fields, "key")
        after = kv_config.put(before, namespace, key, _text(fields, "value"))
    else:
        after = kv_config.delete(before, _text(fields, "namespace"), _text(fields, "key"))
    if after.table == before.table:
        return server, Answered(ResponseCode.SUCCESS), ("HA-R-52",)
    if kv_config.file_size(after) > settings.text_size:
        raise Invalid("HA-R-56")
    if server.is_full:
        raise Invalid("HA-R-53")
    return replace(server, texts=after), Answered(ResponseCode.SUCCESS), ("HA-R-52", "HA-R-53")


def _change_permissions(server: NameServer, code: int, fields: dict[str, str]) -> Step:
    """Codes 205 and 327."""
    is_wipe = code == RequestCode.WIPE_WRITE_PERM_OF_BROKER
    change = route_table.wipe_write_perm if is_wipe else route_table.add_write_perm
    table, count = change(server.table, _text(fields, "brokerName"))
    told = (("wipeTopicCount" if is_wipe else "addTopicCount", str(count)),)
    return replace(server, table=table), Answered(ResponseCode.SUCCESS, told), ("HA-R-51",)


def _register_topic(server: NameServer, settings: Settings, fields: dict[str, str], body: bytes) -> Step:
    """Code 217."""
    topic = _kept(fields, "topic")
    numbers = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    said = [(queue["brokerName"], QueueData(*(queue[name] for name in numbers))) for queue in json.loads(body)["queueDatas"]]
    table = route_table.register_topic(server.table, topic, said, settings.bounds)
    if table is None:
        raise Invalid("HA-R-56")
    return replace(server, table=table), Answered(ResponseCode.SUCCESS), ("HA-R-51",)


# --- Questions -------------------------------------------------------------------------------------------------------


def _question(server: NameServer, settings: Settings, code: int, fields: dict[str, str]) -> tuple[Answered, Clauses]:
    """A question that changes nothing, or a code that is not served. Raises: Invalid."""
    match code:
        case RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return _route(server, settings, _text(fields, "topic"))
        case RequestCode.GET_KV_CONFIG:
            value = kv_config.get(server.texts, _text(fields, "namespace"), _text(fields, "key"))
            if value is None:
                return Answered(ResponseCode.QUERY_NOT_FOUND), ("HA-R-52",)
            return Answered(ResponseCode.SUCCESS, (("value", value),)), ("HA-R-52",)
        case RequestCode.GET_KVLIST_BY_NAMESPACE:
            found = kv_config.list_by_namespace(server.texts, _text(fields, "namespace"))
            if found is None:
                return Answered(ResponseCode.QUERY_NOT_FOUND), ("HA-R-52",)
            return Answered(ResponseCode.SUCCESS, (), {"table": dict(found)}), ("HA-R-52",)
        case RequestCode.UPDATE_NAMESRV_CONFIG:
            return Answered(ResponseCode.NO_PERMISSION), ("HA-R-54",)
        case RequestCode.GET_NAMESRV_CONFIG:
            order = "true" if settings.order_message_enable else "false"
            text = f"listenPort={settings.listen_port}\norderMessageEnable={order}\n"
            return Answered(ResponseCode.SUCCESS, (), text.encode()), ("HA-R-55",)
    body = _lists(server.table, code, fields)
    if body is None:
        return Answered(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), ("HA-RM-10",)
    return Answered(ResponseCode.SUCCESS, (), body), ("HA-R-50",)


def _route(server: NameServer, settings: Settings, topic: str) -> tuple[Answered, Clauses]:
    route = route_table.route(server.table, topic)
    if route is None:
        return Answered(ResponseCode.TOPIC_NOT_EXIST), ("HA-R-48",)
    order = kv_config.get(server.texts, ORDER_TOPIC_CONFIG, topic) if settings.order_message_enable else None
    return Answered(ResponseCode.SUCCESS, (), name_server_answers.topic_route(route, order)), ("HA-R-19", "HA-R-49")


def _lists(table: RouteTable, code: int, fields: dict[str, str]) -> Json | None:
    """The lists of HA-R-50; None for a code that is none of them."""
    topic_list = name_server_answers.topic_list
    match code:
        case RequestCode.GET_BROKER_CLUSTER_INFO:
            return name_server_answers.cluster_info(table)
        case RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return topic_list(route_table.all_topics(table))
        case RequestCode.GET_TOPICS_BY_CLUSTER:
            return topic_list(route_table.topics_by_cluster(table, _text(fields, "cluster")))
        case RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS:
            return topic_list(route_table.system_topics(table), min(table.brokers, default=None))
        case RequestCode.GET_UNIT_TOPIC_LIST:
            return topic_list(route_table.unit_topics(table, UNIT))
        case RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
            return topic_list(route_table.unit_topics(table, UNIT_SUB))
        case RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST:
            return topic_list(route_table.unit_topics(table, UNIT_SUB, UNIT))
        case RequestCode.GET_BROKER_MEMBER_GROUP:
            name, cluster = _text(fields, "brokerName"), _text(fields, "clusterName")
            return name_server_answers.member_group(table, cluster, name)
        case _:
            return None
