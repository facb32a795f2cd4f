"""`rocketmq-ha send`, `consume` and `admin`, with a name server and a broker of ours as processes. Chapter 15."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.broker_tables import heartbeat
from kit.children import Child
from kit.command_line import COMMAND, Process, invoke, run
from kit.scrapes import samples
from kit.waiting import LONG_S, PATIENCE_S, wait_for
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.wire.frame import HEADER, REPORT

pytestmark = pytest.mark.xdist_group("clients")  # one broker for all of these

CLUSTER, BROKER = "cluster-x", "broker-x"


@dataclass
class Servers:
    """A name server, and a broker that is registered with it. ha_address: where slaves of that broker connect."""

    name_server: str
    ha_address: str = ""

    def run(self, *words: object, lines: bytes = b"", status: int = 0) -> tuple[list[str], str]:
        """Run a command. Returns: the lines of its output, and its standard error."""
        command = [*COMMAND, *map(str, words), "--namesrv", self.name_server]
        if (words[0], status) == ("send", 0) and "--timeout" not in words:
            command += ["--timeout", str(PATIENCE_S * 1000)]
        done = subprocess.run(command, input=lines, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == status, (done.returncode, done.stderr)
        assert b"Traceback" not in done.stderr
        return done.stdout.decode().splitlines(), done.stderr.decode()

    def json(self, *words: object, lines: bytes = b"", status: int = 0) -> list[dict[str, Any]]:
        out, _ = self.run(*words, "--json", lines=lines, status=status)
        return list(map(json.loads, out))

    def consumed(self, topic: str, *words: object) -> list[dict[str, Any]]:
        """All messages of a topic, from the first, or from where a group has come to."""
        out, _ = self.run("consume", "--topic", topic, "--from", "first", "--stop-at-end", *words)
        return list(map(json.loads, out))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory: Path = tmp_path_factory.mktemp("servers")
    words = ("--listen", "127.0.0.1:0", "--kv-config", directory / "kv.json")
    name_server = Process(directory / "n", "namesrv", *words, limit_s=LONG_S)
    broker = None
    try:
        found = Servers(name_server.line("listening"))
        options = {
            "--store": directory / "store",
            "--cluster": CLUSTER,
            "--broker-name": BROKER,
            "--listen": "127.0.0.1:0",
            "--ha-listen": "127.0.0.1:0",
            "--namesrv": found.name_server,
            "--file-size": 1 << 22,
            "--min-free-space": 0,
        }
        words = [word for pair in options.items() for word in pair]
        broker = Process(directory / "b", "broker", *words, limit_s=LONG_S)
        broker.line("listening")
        broker.line("vip_listening")
        found.ha_address = broker.line("ha_listening")
        wait_for(lambda: BROKER in invoke("admin", "clusters", "--namesrv", found.name_server).stdout)
        yield found
    finally:
        if broker is not None:
            broker.end()
        name_server.end()


def test_a_slave_broker_follows_the_master_that_the_name_server_tells_and_can_be_followed(
    servers: Servers, tmp_path: Path
) -> None:
    """HA-S-17 "MUST take the master's HA address from each answer to its registration"; HA-R-27 "a slave listens as well"."""
    names = ("--cluster", CLUSTER, "--broker-name", BROKER, "--broker-id", 1, "--namesrv", servers.name_server)
    ports = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--ha-send-heartbeat-interval", 100)
    store = ("--store", tmp_path / "s", "--file-size", 1 << 22, "--min-free-space", 0)
    slave = Process(tmp_path / "b", "broker", "--role", "SLAVE", *names, *ports, *store)
    try:
        slave.line("listening")
        slave.line("vip_listening")
        with socket.create_connection(parse_address(slave.line("ha_listening")), timeout=PATIENCE_S) as follower:
            follower.sendall(REPORT.pack(0))
            assert len(follower.recv(HEADER.size)) == HEADER.size
        connected = f"{servers.ha_address}: connected at offset"
        wait_for(lambda: connected in slave.log.read_text())
    finally:
        slave.end()


def test_a_send_waits_for_a_master_that_is_down_and_an_interrupt_ends_it(tmp_path: Path) -> None:
    """HA-C-16 "A send that finds no route"; a stop before the end of the input is told by the exit status."""
    ports = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    name_server = Process(tmp_path / "n", "namesrv", *ports, "--kv-config", tmp_path / "kv.json")
    broker = None
    try:
        address, metrics = name_server.line("listening"), name_server.line("metrics")
        words = (*COMMAND, "send", "--namesrv", address, "--topic", "Late", "--timeout", "600000", "--json")

        def asked() -> float:
            """How many questions for routes have come."""
            return sum(samples(metrics).get("rocketmq_ha_requests_total", {}).values())

        with Child(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as given_up:
            assert given_up.stdin is not None
            given_up.stdin.write(b"x\n")
            given_up.stdin.flush()
            wait_for(lambda: asked() >= 4)  # for Late and for TBW102, and again
            given_up.send_signal(signal.SIGTERM)
            out, _ = given_up.communicate(timeout=PATIENCE_S)
            assert (given_up.returncode, json.loads(out)["status"]) == (143, "NO_ROUTE")
        before = asked()
        with Child((*words, "--body", "x"), stdout=subprocess.PIPE) as sending:
            wait_for(lambda: asked() >= before + 4)
            names = ("--cluster", CLUSTER, "--broker-name", BROKER, "--namesrv", address, "--min-free-space", 0)
            ports = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0")
            broker = Process(tmp_path / "b", "broker", "--store", tmp_path / "s", "--file-size", 1 << 22, *names, *ports)
            broker.line("listening")
            out, _ = sending.communicate(timeout=PATIENCE_S)
            assert (sending.returncode, json.loads(out)["status"]) == (0, "SEND_OK")
    finally:
        for process in (broker, name_server):
            if process is not None:
                process.end()


def test_what_is_sent_is_consumed(servers: Servers) -> None:
    """Line by line: the outcome of each, in their order; then body, tags, keys and properties as they were."""
    fields = ("--tags", "t", "--keys", "k1 k2", "--property", "colour=blue")
    sent = servers.json("send", "--topic", "One", *fields, lines=b"a\n\xff\n" + b"c" * 5000 + b"\n")
    assert [(each["line"], each["status"], each["attempts"]) for each in sent] == [(n, "SEND_OK", 1) for n in (1, 2, 3)]
    assert [each["queue_id"] for each in sent] == [0, 1, 2]
    found = sorted(servers.consumed("One"), key=lambda each: each["queue_id"])
    assert [each.get("body") or each["body_base64"] for each in found] == ["a", "/w==", "c" * 5000]
    assert found[2]["body_size"] < 5000  # it travels compressed
    for each, outcome in zip(found, sent, strict=True):
        assert (each["tags"], each["keys"], each["properties"]["colour"]) == ("t", ["k1", "k2"], "blue")
        assert each["properties"]["UNIQ_KEY"] == outcome["uniq_key"]
        assert each["queue_offset"] == outcome["queue_offset"] == 0


def test_what_is_consumed_can_be_sent_again(servers: Servers) -> None:
    servers.run("send", "--topic", "Again", "--body", "x", "--queue-id", 3)
    (first,) = servers.consumed("Again")
    line = json.dumps(first).encode() + b"\n"
    servers.run("send", "--lines", "json", lines=line)
    found = servers.consumed("Again")
    assert [each["queue_id"] for each in found] == [3, 3]
    assert found[0]["properties"] == found[1]["properties"]


def test_a_batch(servers: Servers) -> None:
    lines = b"".join(b"%d\n" % number for number in range(50))
    sent = servers.json("send", "--topic", "Batch", "--batch", 20, lines=lines)
    assert [(each["queue_id"], each["queue_offset"]) for each in sent[18:22]] == [(0, 18), (0, 19), (1, 0), (1, 1)]
    assert len({each["msg_id"] for each in sent}) == 50
    assert {each["body"] for each in servers.consumed("Batch")} == {str(number) for number in range(50)}


def test_oneway(servers: Servers) -> None:
    servers.run("send", "--topic", "Oneway", "--body", "first")
    _, err = servers.run("send", "--topic", "Oneway", "--oneway", "--quiet", lines=b"x\n" * 500)
    assert "SENT=500" in err
    wait_for(lambda: len(servers.consumed("Oneway")) == 501)


def test_a_line_that_is_no_message_stops_no_others(servers: Servers) -> None:
    lines = b'{"topic":"Some","body":"a"}\nnonsense\n{"topic":"Some","body":"b"}\n'
    sent = servers.json("send", "--lines", "json", lines=lines, status=1)
    assert [each["status"] for each in sent] == ["SEND_OK", "MESSAGE_ILLEGAL", "SEND_OK"]


GOOD, NONE, NO_QUEUE = b'{"topic":"Ends","body":"a"}\n', b"nonsense\n", b'{"topic":"Ends","body":"a","queue_id":77}\n'


@pytest.mark.parametrize(
    ("words", "lines", "status"),
    [
        ((), b"", 0),
        ((), GOOD * 2, 0),
        ((), GOOD + NONE, 1),
        ((), NO_QUEUE + GOOD, 1),
        (("--quiet",), GOOD + NO_QUEUE, 1),
        (("--batch", 9), GOOD * 2, 0),
        (("--batch", 9), GOOD + NONE + GOOD, 1),
        (("--batch", 9), GOOD * 2 + NO_QUEUE * 2, 1),
        (("--oneway",), b"", 0),
        (("--oneway",), GOOD * 2, 0),
        (("--oneway",), GOOD + NONE, 1),
        (("--oneway", "--quiet"), NONE + GOOD, 1),
        (("--oneway",), GOOD + NO_QUEUE, 1),
    ],
)
def test_the_exit_status_of_send(servers: Servers, words: tuple[object, ...], lines: bytes, status: int) -> None:
    """0 if every line was sent, and where outcomes are awaited ended with SEND_OK; else 1."""
    timeout_ms = 500 if NO_QUEUE in lines else PATIENCE_S * 1000
    servers.run("send", "--lines", "json", "--timeout", timeout_ms, *words, lines=lines, status=status)


def test_a_group_goes_on_where_it_has_come_to(servers: Servers) -> None:
    """HA-C-10, HA-C-14: what was written is committed at the end, and no more."""
    servers.run("send", "--topic", "Group", "--queue-id", 0, lines=b"1\n2\n3\n")
    out, _ = servers.run("consume", "--topic", "Group", "--group", "g", "--from", "first", "--limit", 2)
    assert [json.loads(line)["body"] for line in out] == ["1", "2"]
    progress = {each["queue"]: each for each in servers.json("admin", "progress", "g")}
    assert {name: progress[0][name] for name in ("min", "max", "consumer", "lag")} == {
        "min": 0,
        "max": 3,
        "consumer": 2,
        "lag": 1,
    }
    assert [each["body"] for each in servers.consumed("Group", "--group", "g")] == ["3"]
    assert servers.consumed("Group", "--group", "g") == []
    servers.run("admin", "reset-offset", "g", "Group", "--to", "first")
    _, err = servers.run("admin", "reset-offset", "unknown", "Group", "--to", "first")
    assert err == "group unknown: no broker of Group knew it; a consumer of this name will begin at these offsets\n"
    assert len(servers.consumed("Group", "--group", "g")) == 3


def test_the_offsets_of_a_group_with_consumers_are_not_reset(servers: Servers) -> None:
    """They would commit over it: exit status 2, and nothing is changed."""
    servers.run("send", "--topic", "Held", "--queue-id", 0, lines=b"1\n2\n")
    assert len(servers.consumed("Held", "--group", "held")) == 2
    (broker,) = servers.json("admin", "clusters")
    consumer = RemotingClient()
    try:
        beat = request(RequestCode.HEART_BEAT, body=json.dumps(heartbeat("c1", consumers={"held": ["Held"]})).encode())
        assert consumer.ask(broker["address"], beat, int(PATIENCE_S * 1000)).code == 0
        _, err = servers.run("admin", "reset-offset", "held", "Held", "--to", "first", status=2)
        assert "group held: found consumers, 1 connected to broker-x, c1 for one; expected none" in err
        assert [each["consumer"] for each in servers.json("admin", "progress", "held") if each["max"]] == [2]
    finally:
        consumer.close()

    def is_reset() -> bool:
        done = invoke("admin", "reset-offset", "held", "Held", "--to", "first", "--namesrv", servers.name_server)
        return done.exit_code == 0

    wait_for(is_reset)  # the broker has seen that the consumer is gone
    assert [each["consumer"] for each in servers.json("admin", "progress", "held") if each["max"]] == [0]


def test_tags_and_queues_are_chosen(servers: Servers) -> None:
    servers.run("send", "--topic", "Tags", "--tags", "a", lines=b"1\n2\n")
    servers.run("send", "--topic", "Tags", "--tags", "b", lines=b"3\n")
    assert {each["body"] for each in servers.consumed("Tags", "--tags", "a || c")} == {"1", "2"}
    (one,) = servers.consumed("Tags", "--tags", "a", "--queue-id", 1)
    assert one["body"] == "2"


def test_topics_and_groups_are_made_shown_and_deleted(servers: Servers) -> None:
    servers.run("admin", "create-topic", "Made", "--queues", 3, "--perm", 4)
    wait_for(lambda: "Made" in [each["topic"] for each in servers.json("admin", "topics")])
    (route,) = servers.json("admin", "routes", "Made")
    assert {name: route[name] for name in ("broker", "id", "read", "write", "perm")} == {
        "broker": BROKER,
        "id": 0,
        "read": 3,
        "write": 3,
        "perm": 4,
    }
    (refused,) = servers.json("send", "--topic", "Made", "--body", "x", status=1)
    assert refused["status"] == "NO_ROUTE"
    servers.run("admin", "create-group", "made-group", "--retries", 5)
    found = {each["group"]: each for each in servers.json("admin", "groups")}
    assert found["made-group"]["retries"] == 5
    servers.run("admin", "delete-topic", "Made")
    _, err = servers.run("admin", "delete-topic", "Made", status=1)
    assert err == "topic Made: no name server knew it\n"
    wait_for(lambda: "Made" not in [each["topic"] for each in servers.json("admin", "topics")])


def test_brokers_and_their_figures(servers: Servers) -> None:
    (broker,) = servers.json("admin", "clusters")
    assert (broker["cluster"], broker["broker"], broker["id"]) == (CLUSTER, BROKER, 0)
    (status,) = servers.json("admin", "status", "--cluster", CLUSTER)
    assert status["figures"]["brokerVersionDesc"] == "V4_9_8"
    assert status["ha_status"]["master"] is True
    out, _ = servers.run("admin", "status", "--broker", BROKER)
    assert any(line.split() == ["brokerVersionDesc", "V4_9_8"] for line in out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume", "--topic", "Nowhere"), "topic Nowhere: found no route (TOPIC_NOT_EXIST)"),
        (("admin", "routes", "Nowhere"), "TOPIC_NOT_EXIST"),
        (("admin", "create-topic", "bad topic"), "request UPDATE_AND_CREATE_TOPIC: found the answer SYSTEM_ERROR"),
        (("admin", "groups", "--cluster", "other"), "expected one of the cluster other"),
        (("admin", "status", "--broker", "other"), "lists no broker named other"),
    ],
)
def test_an_error_is_one_line(servers: Servers, words: tuple[str, ...], said: str) -> None:
    _, err = servers.run(*words, status=2)
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("progress", "nobody"), 1, "group nobody: no broker has an offset of it\n"),
        (("progress", "nobody", "--topic", "Nowhere"), 1, "group nobody: no broker has an offset of it in Nowhere\n"),
        (("routes", "Nowhere"), 2, "TOPIC_NOT_EXIST"),
        (("groups", "--broker", "other"), 2, "found no master, expected one of the group other"),
        (("status", "--cluster", "other"), 2, "the name server lists no broker of the cluster other"),
        (("create-topic", "T", "--cluster", "other"), 2, "found no master, expected one of the cluster other"),
        (("create-group", "g", "--broker", "other"), 2, "found no master, expected one of the group other"),
        (("create-group", "bad group"), 2, "request UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"),
        (("reset-offset", "g", "Nowhere", "--to", "first"), 2, "TOPIC_NOT_EXIST"),
        (("clusters",), 0, ""),
        (("topics",), 0, ""),
    ],
)
def test_the_exit_status_of_admin_is_the_same_in_both_forms(
    servers: Servers, words: tuple[str, ...], status: int, told: str, form: tuple[str, ...]
) -> None:
    """1 where there is nothing to show of a group, 2 where a server does not answer or refuses: a script must not go on."""
    result = invoke("admin", *words, *form, "--namesrv", servers.name_server)
    assert (result.exit_code, told in result.stderr) == (status, True), result.stderr
    assert bool(result.stdout) is (status == 0 or (status == 1 and not form))


@pytest.mark.parametrize("command", [("admin", "topics"), ("consume", "--topic", "T")])
def test_nobody_answers(command: tuple[str, ...]) -> None:
    result = run(*command, "--namesrv", "127.0.0.1:1")
    assert result.returncode == 2
    assert "127.0.0.1:1" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["", ";", "nothing", "h:99999", "127.0.0.1:1;h"])
def test_name_servers_that_are_none(text: str) -> None:
    result = invoke("admin", "topics", "--namesrv", text)
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr
