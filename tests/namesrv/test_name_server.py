"""A name server over real sockets: brokers register, connections close, or are silent. HA-R-17, HA-R-41, HA-R-42."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.name_server import NAMES, body_of, registration, topic_config
from kit.remoting import Client, Stand
from kit.waiting import wait_for
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.name_server import SCAN_MS, NameServer
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand

T = body_of(topic_config("T"))


class Served:
    """A name server on a stand. `turn` takes the time that the test says, from `start_ms` on."""

    def __init__(self, resources: ExitStack, directory: Path) -> None:
        self.stand = Stand(resources)
        self.routes = RouteInfoManager()
        processor = DefaultRequestProcessor(self.routes, KVConfigManager(directory / "kvConfig.json"), {})
        self.name_server = NameServer(self.stand.server, self.routes, processor)
        self.start_ms = clock_ms()

    def pass_time(self, ms: int) -> None:
        """Turn as a process that runs: a turn each half second."""
        for at in range(0, ms + 1, 500):
            self.name_server.turn(self.start_ms + at)
        self.start_ms += ms


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as resources:
        yield Served(resources, tmp_path)


def register(client: Client, **changes: str) -> None:
    assert client.ask(registration(T, **changes)).code == ResponseCode.SUCCESS


def route_of(client: Client) -> int:
    return client.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "T"})).code


def test_the_close_of_a_connection_takes_its_broker_off_at_once(served: Served) -> None:
    """HA-R-17 "or whose connection has closed, MUST be taken off the routes"."""
    broker, client = served.stand.connect(), served.stand.connect()
    register(broker)
    assert route_of(client) == ResponseCode.SUCCESS
    broker.sock.close()
    wait_for(lambda: not served.routes.broker_live_table, served.stand.turn)
    assert route_of(client) == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_that_has_connected_anew_stays_when_its_old_connection_closes(served: Served) -> None:
    """HA-R-41 "and no others, however late the close is seen"."""
    old, new, client = served.stand.connect(), served.stand.connect(), served.stand.connect()
    register(old)
    register(new)
    old.sock.close()
    wait_for(lambda: len(served.stand.server.channels) == 2, served.stand.turn)
    assert route_of(client) == ResponseCode.SUCCESS


def test_a_silent_broker_is_taken_off_and_its_connection_closed(served: Served) -> None:
    """HA-R-42 "MUST close the connection of a broker that it takes off because nothing came from it"."""
    broker, client = served.stand.connect(), served.stand.connect()
    register(broker)
    served.pass_time(115_000)
    assert route_of(client) == ResponseCode.SUCCESS
    served.pass_time(5_000 + SCAN_MS + 500)
    broker.await_close()
    assert route_of(client) == ResponseCode.TOPIC_NOT_EXIST


def test_a_pause_of_the_process_takes_nobody_off(served: Served) -> None:
    """HA-T-21 "MUST let nothing expire in the second that follows": the registrations of that time are still to be read."""
    broker = served.stand.connect()
    register(broker)
    served.pass_time(1_000)
    served.start_ms += 1_000_000
    served.pass_time(500)
    assert served.routes.broker_live_table
    served.pass_time(1_000 + SCAN_MS)
    assert not served.routes.broker_live_table


def test_a_refused_registration_leaves_the_connection(served: Served) -> None:
    client = served.stand.connect()
    for request in (registration(b"x"), registration(T, brokerId="x"), registration(T, bodyCrc32="1")):
        assert client.ask(request).code == ResponseCode.SYSTEM_ERROR
    register(client)


def test_a_snapshot_has_what_is_listed(served: Served) -> None:
    broker = served.stand.connect()
    register(broker)
    found = served.name_server.snapshot(clock_ms())
    counts = {name: found[name] for name in ("role", "brokers", "groups", "clusters", "topics", "group_topics", "connections")}
    assert counts == {
        "role": "namesrv",
        "brokers": 1,
        "groups": 1,
        "clusters": 1,
        "topics": 1,
        "group_topics": 1,
        "connections": 1,
    }
    assert found["requests"] == {"103": 1}
    (row,) = found["listed"]
    assert row.pop("silent_ms") >= 0
    assert row == {"broker": NAMES["brokerAddr"], "broker_name": "a", "broker_id": 0, "cluster": "c"}


def test_a_peer_cannot_flood_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-57 "MUST NOT write more than 30 log lines about its peers"."""
    client = served.stand.connect()
    with caplog.at_level(logging.INFO, "rocketmq_ha.impl.namesrv"):
        for number in range(40):
            register(client, brokerAddr=f"10.0.0.{number}:1", brokerId=str(number))
        assert len(caplog.records) == 30
