"""Hostile requests to a name server: each is answered, none ends its connection, and the routes of others stay as they are."""

import json
import zlib
from contextlib import ExitStack
from pathlib import Path
from struct import pack

import pytest

from kit.name_server import NAMES, body_of, compressed_body, registration, topic_config
from kit.remoting import Stand
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.name_server import NameServer
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager, RouteLimits
from rocketmq_ha.impl.remoting.command import RemotingCommand

OK, ERROR, FORBIDDEN, NO_TOPIC, NOT_FOUND = 0, 1, 16, 17, 22
OTHER = {"brokerName": "z", "brokerAddr": "10.9.9.9:1"}
MIB = 1 << 20


def ask(code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=fields, body=body)


def register(body: bytes, **changes: str) -> RemotingCommand:
    return registration(body, **(OTHER | changes))


def many_topics(count: int) -> bytes:
    return body_of(*(topic_config(f"t{number}") for number in range(count)))


def nested(levels: int) -> bytes:
    return b'{"topicConfigSerializeWrapper":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


INPUTS: dict[str, tuple[RemotingCommand, int]] = {
    # Registrations.
    "a registration without a header": (ask(103), ERROR),
    "an id that is no number": (register(b"", brokerId="0x1"), ERROR),
    "an id beyond an i64": (register(b"", brokerId=str(1 << 63)), ERROR),
    "an id of 5,000 digits": (register(b"", brokerId="9" * 5000), ERROR),
    "a crc that is no number": (register(b"", bodyCrc32="crc"), ERROR),
    "a body of random bytes": (register(bytes(range(256))), ERROR),
    "a body of one megabyte of zeros": (register(bytes(MIB)), ERROR),
    "JSON of 100,000 levels": (register(nested(100_000)), ERROR),
    "an array of 100,000 levels": (register(b"[" * 100_000), ERROR),
    "a number of a million digits": (register(b'{"topicConfigSerializeWrapper":' + b"1" * MIB + b"}"), ERROR),
    "a string that does not end": (register(b'"' + b"a" * MIB), ERROR),
    "backslashes that do not end": (register(b'{"' + b"\\" * MIB), ERROR),
    "a million commas": (register(b"[" + b"1," * MIB), ERROR),
    "half of a surrogate pair": (register(b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud800":{}}}}'), ERROR),
    "a topic without a name": (register(b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{}}}}'), ERROR),
    "a name of a megabyte": (register(body_of(topic_config("n" * MIB))), ERROR),
    "more topics than there is room for": (register(many_topics(200)), ERROR),
    "a group's name of 1,000 characters": (register(b"", brokerName="n" * 1000), ERROR),
    "a zlib bomb": (register(zlib.compress(bytes(64 * MIB), 9), compressed="true"), ERROR),
    "a zlib stream of nothing": (register(zlib.compress(b""), compressed="true"), ERROR),
    "2,147,483,647 topics": (
        register(zlib.compress(pack(">i", 2) + b"{}" + pack(">i", (1 << 31) - 1)), compressed="true"),
        ERROR,
    ),
    "half a million compressed topics": (
        register(compressed_body(b"{}", *[b"t 1 1 6 SINGLE_TAG"] * 500_000), compressed="true"),
        ERROR,
    ),
    "a size of -1": (register(zlib.compress(pack(">i", -1)), compressed="true"), ERROR),
    "a size beyond the body": (register(zlib.compress(pack(">i", 1 << 30)), compressed="true"), ERROR),
    "a topic line of blanks": (register(compressed_body(b"{}", b" " * 1000), compressed="true"), ERROR),
    "numbers of a topic line with 5,000 digits": (
        register(compressed_body(b"{}", b"t " + b"9" * 5000 + b" 1 6 SINGLE_TAG"), compressed="true"),
        ERROR,
    ),
    "a timeout of minus a century": (register(b"", heartbeatTimeoutMillis=str(-(1 << 62))), OK),
    "a line break in a name": (register(b"", brokerName="a\r\nb"), ERROR),
    "a line break in a topic": (register(body_of(topic_config("t\n2026-01-01 INFO"))), ERROR),
    "a line break in a question": (ask(105, topic="t\nu"), NO_TOPIC),
    # The routes of others.
    "an unregistration of a stranger's address": (ask(104, **(NAMES | {"brokerName": "z", "brokerId": "0"})), OK),
    "a route for the topic of a group that is not there": (ask(217, b'{"queueDatas":[{"brokerName":"z"}]}', topic="T"), OK),
    "queues that are no array": (ask(217, b'{"queueDatas":1}', topic="T"), ERROR),
    "queues of 2^31": (ask(217, b'{"queueDatas":[{"brokerName":"a","perm":2147483648}]}', topic="T"), ERROR),
    "a version that is no object": (ask(322, b"[]", **NAMES), ERROR),
    "a version without a body": (ask(322, **NAMES), ERROR),
    # Questions.
    "a topic of a megabyte's tenth": (ask(105, topic="t" * (MIB // 10)), NO_TOPIC),
    "a topic with a path": (ask(105, topic="../../etc/passwd"), NO_TOPIC),
    "no topic": (ask(105), ERROR),
    "a cluster that is not there": (ask(224, cluster="z"), OK),
    # Texts and configuration.
    "a text of 200,000 bytes": (ask(100, namespace="n", key="k", value="v" * 200_000), ERROR),
    "a key of 1,000 characters": (ask(100, namespace="n", key="k" * 1000, value="v"), ERROR),
    "a namespace with a path": (ask(101, namespace="../..", key="k"), NOT_FOUND),
    "another file for the texts": (ask(318, b"kvConfigPath=/etc/cron.d/x\n"), FORBIDDEN),
    "another home": (ask(318, b"rocketmqHome=;touch /tmp/x\n"), FORBIDDEN),
    "a configuration of a megabyte": (ask(318, b"a=b\n" * (MIB // 4)), FORBIDDEN),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_hostile_request_is_answered(name: str, tmp_path: Path) -> None:
    request, code = INPUTS[name]
    with ExitStack() as resources:
        stand = Stand(resources)
        routes = RouteInfoManager(RouteLimits(brokers=10, queue_datas=100))
        processor = DefaultRequestProcessor(routes, KVConfigManager(tmp_path / "kvConfig.json", 100_000), {})
        NameServer(stand.server, routes, processor)
        broker, hostile = stand.connect(), stand.connect()
        assert broker.ask(registration(body_of(topic_config("T")))).code == OK
        route = broker.ask(ask(105, topic="T")).body
        assert json.loads(route)["brokerDatas"][0]["brokerAddrs"] == {"0": NAMES["brokerAddr"]}
        for _ in range(2):
            answer = hostile.ask(request)
            assert answer.code == code, answer
            assert "\n" not in (answer.remark or "")
            assert len(answer.remark or "") <= 1000
        assert broker.ask(ask(105, topic="T")).body == route
        assert stand.server.failures == 0
        assert len(stand.server.channels) == 2
        assert routes.queue_data_count == 1
