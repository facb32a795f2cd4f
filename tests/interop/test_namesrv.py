"""Real brokers register with our name server and with RocketMQ's; real clients and mqadmin use ours; both answer alike.

HA-R-10, HA-R-17, HA-R-19, HA-R-41, HA-R-44, HA-R-46 to HA-R-52, HA-R-54.
"""

import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from golden_cluster import COMMON_CONF
from results import Results
from rocketmq import BROKER_NAME, Rocketmq, wait
from servers import PATIENCE_S, ask

from kit.command_line import Process, Start
from kit.scrapes import samples
from kit.waiting import LONG_S
from rocketmq_ha.impl.remoting import body_json

CLUSTER = COMMON_CONF["brokerClusterName"]
TOPIC = "NamesrvInterop"


def answer_of(namesrv: str, code: int, fields: dict[str, str] | None = None) -> Any:
    """What the JSON of an answer says, without what 5.x adds to it; lists that have no order are sorted."""
    host, _, port = namesrv.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        return ordered(body_json.read(ask(connection, code, fields or {}, b"")))


def ordered(found: Any) -> Any:
    if isinstance(found, dict):
        left_out = ("enableActingMaster", "topicQueueMappingByBroker")
        return {key: ordered(value) for key, value in found.items() if key not in left_out}
    return sorted(map(ordered, found), key=str) if isinstance(found, list) else found


def addresses_of(namesrv: str) -> dict[str, str]:
    groups = answer_of(namesrv, 106)["brokerAddrTable"]
    found: dict[str, str] = groups.get(BROKER_NAME, {}).get("brokerAddrs", {})
    return found


class NameServers:
    """Ours, as a process, and RocketMQ's."""

    def __init__(self, rocketmq: Rocketmq, start: Start, directory: Path, results: Results) -> None:
        self._rocketmq, self._start, self._directory, self._results = rocketmq, start, directory, results
        self.theirs = rocketmq.servers.namesrv
        self.ours = "127.0.0.1:0"
        self._process: Process | None = None
        self.run_ours()

    def run_ours(self) -> None:
        file, metrics = self._directory / "kvConfig.json", "127.0.0.1:0"
        self._process = self._start("namesrv", "--listen", self.ours, "--kv-config", file, "--metrics", metrics, limit_s=LONG_S)
        self.ours = self._process.line("listening")
        self._metrics = self._process.line("metrics")

    def requests(self) -> set[str]:
        """The codes of the requests that have come to ours."""
        return {code for (code,) in samples(self._metrics)["rocketmq_ha_requests_total"]}

    def kill_ours(self) -> None:
        assert self._process is not None
        self._process.end(signal.SIGKILL)

    @property
    def both(self) -> str:
        return f"{self.theirs};{self.ours}"

    def admin(self, *words: str, namesrv: str = "") -> str:
        """What mqadmin prints, by our name server alone unless others are given."""
        return "\n".join(self._rocketmq.servers.run("admin", *words, namesrv=namesrv or self.ours))

    def await_brokers(self, *ids: str) -> None:
        wait(f"the brokers {ids}", lambda: all(set(addresses_of(each)) == set(ids) for each in (self.ours, self.theirs)))

    def check_equal(self, step: str) -> None:
        """Each answer of ours is that of RocketMQ's; versions of topics may be those of different moments."""
        topics = answer_of(self.theirs, 206)["topicList"]
        assert TOPIC in topics or step == "registered"
        wait(
            f"{step}: the same topics",
            lambda: answer_of(self.ours, 206)["topicList"] == answer_of(self.theirs, 206)["topicList"],
        )
        questions: list[tuple[int, dict[str, str]]] = [(code, {}) for code in (106, 206, 311, 312, 313)]
        questions += [(224, {"cluster": CLUSTER}), *((105, {"topic": topic}) for topic in topics)]
        if self._rocketmq.release >= "5":
            questions.append((901, {"clusterName": CLUSTER, "brokerName": BROKER_NAME}))
        differing = [
            (code, *fields.values())
            for code, fields in questions
            if answer_of(self.ours, code, fields) != answer_of(self.theirs, code, fields)
        ]
        self._results.check(f"{step}: answers that differ", [], differing)
        both = [answer_of(each, 304) for each in (self.ours, self.theirs)]
        self._results.check(f"{step}: names of clusters and groups", both[1]["topicList"], both[0]["topicList"])


@pytest.fixture
def name_servers(rocketmq: Rocketmq, start: Start, tmp_path: Path, results: Results) -> NameServers:
    return NameServers(rocketmq, start, tmp_path, results)


def test_brokers_clients_and_admins_use_our_name_server(
    name_servers: NameServers, rocketmq: Rocketmq, tmp_path: Path, results: Results
) -> None:
    """A master and a slave; the slave of 4.9.8 compresses its registrations, and asks first whether they are needed."""
    often = {"namesrvAddr": name_servers.both, "registerNameServerPeriod": "10000"}
    unusual = {"compressedRegister": "true", "forceRegister": "false"} if rocketmq.release < "5" else {}
    rocketmq.start_broker("master", tmp_path / "master", "ASYNC_MASTER", **often)
    name_servers.await_brokers("0")
    rocketmq.start_broker("slave", tmp_path / "slave", "SLAVE", **often, **unusual)
    name_servers.await_brokers("0", "1")
    name_servers.check_equal("registered")

    run, ours = rocketmq.servers.run, name_servers.ours
    results.check("a producer finds the master", ["SEND_OK 200"], run("send", TOPIC, "200", "100", "1", "2", namesrv=ours))
    wait("a consumer reads it all", lambda: len(run("read", TOPIC, namesrv=ours)) == 200)
    name_servers.check_equal("with a topic that a producer has made")

    admin = name_servers.admin
    master, slave = f"127.0.0.1:{rocketmq.ports.master}", f"127.0.0.1:{rocketmq.ports.slave}"
    listed = admin("clusterList")
    results.check("clusterList", (True, True), (master in listed, slave in listed))
    results.check("topicList", True, TOPIC in admin("topicList").split())
    results.check("topicClusterList", True, CLUSTER in admin("topicClusterList", "-t", TOPIC))
    results.check("topicRoute", True, master in admin("topicRoute", "-t", TOPIC))
    made = admin("updateTopic", "-c", CLUSTER, "-t", "Made", "-r", "3", "-w", "3")
    results.check("updateTopic", True, "success" in made)
    wait("the topic that was made has a route", lambda: "Made" in answer_of(ours, 206)["topicList"])
    queues = answer_of(ours, 105, {"topic": "Made"})["queueDatas"]
    results.check("its queues", [3], [queue["readQueueNums"] for queue in queues])
    name_servers.check_equal("with a topic that an admin has made")

    for command, perms in (("wipeWritePerm", {4, 5}), ("addWritePerm", {6})):
        admin(command, "-b", BROKER_NAME, namesrv=name_servers.both)
        found = {queue["perm"] for queue in answer_of(ours, 105, {"topic": TOPIC})["queueDatas"]}
        results.check(f"{command}: permissions", (True, 1), (found <= perms, len(found)))
        name_servers.check_equal(command)
    admin("deleteTopic", "-c", CLUSTER, "-t", "Made", namesrv=name_servers.both)
    results.check("deleteTopic", False, "Made" in answer_of(ours, 206)["topicList"])
    admin("updateKvConfig", "-s", "ns", "-k", "key", "-v", "value")
    results.check("updateKvConfig", {"table": {"key": "value"}}, answer_of(ours, 219, {"namespace": "ns"}))
    results.check("getNamesrvConfig", True, "kvConfigPath" in admin("getNamesrvConfig"))
    refused = admin("updateNamesrvConfig", "-k", "listenPort", "-v", "1")
    results.check("updateNamesrvConfig is refused", True, "CODE: 16" in refused)

    codes = {"103", "105", "106", "205", "206", "216", "319", "318", "327"} | ({"322"} if unusual else set())
    wait(f"requests of the codes {codes}", lambda: codes <= name_servers.requests())
    name_servers.kill_ours()
    name_servers.run_ours()
    name_servers.await_brokers("0", "1")
    name_servers.check_equal("after a kill of our name server")
    results.check("the text is kept", {"table": {"key": "value"}}, answer_of(ours, 219, {"namespace": "ns"}))

    rocketmq.kill("master")
    name_servers.await_brokers("1")
    route = answer_of(ours, 105, {"topic": TOPIC})["brokerDatas"]
    results.check(
        "the master is killed: the slave alone has the route", [{"1": slave}], [data["brokerAddrs"] for data in route]
    )
    name_servers.check_equal("the master is killed")
    rocketmq.stop("slave")
    name_servers.await_brokers()
    results.check("both have gone: topics", [], answer_of(ours, 206)["topicList"])
