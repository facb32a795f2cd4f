"""`rocketmq-ha cluster` as processes: a whole cluster is started, looked at, broken and mended, and nothing of it is left.

The cluster of these tests runs once for all of them; each leaves it whole.
"""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.command_line import COMMAND, Process, invoke, run
from kit.terminals import terminal
from kit.waiting import LONG_S, PATIENCE_S, wait_for
from rocketmq_ha.impl.app.cluster.directory import read_state
from rocketmq_ha.impl.app.cluster.processes import is_running, send_signal
from rocketmq_ha.impl.net.status_socket import ask

BROKERS = ("broker-a", "broker-a-s", "broker-b", "broker-b-s")
STORED = {"SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}


class Playground:
    """A cluster that runs, and the directory in which people work with it."""

    def __init__(self, here: Path, process: Process) -> None:
        self.here, self.process = here, process
        self.directory = Path(process.line("directory"))
        self.namesrv = process.line("namesrv")
        wait_for(self._is_ready)

    def _is_ready(self) -> bool:
        assert self.process.process.poll() is None, self.process.log.read_text()
        return "To try in another terminal" in self.process.log.read_text()

    def do(self, *words: str) -> str:
        """A command of `cluster`. Returns: its output."""
        result = invoke("cluster", *words, "--dir", self.directory)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def refused(self, *words: str) -> str:
        result = invoke("cluster", *words, "--dir", self.directory)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        return result.stderr

    def status(self) -> dict[str, Any]:
        """The first status for which every node that is up has answered in time."""
        found: dict[str, Any] = {}

        def is_whole() -> bool:
            found.update(json.loads(self.do("status", "--json")))
            up = [node for node in found["nodes"] if node["state"] == "up" and node["name"] in BROKERS]
            return all(node["max_offset"] is not None and node["listed"] is not None for node in up)

        wait_for(is_whole)
        return found

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in self.status()["nodes"] if node["name"] == name)

    def is_cut(self, *ends: str) -> bool:
        return next(bool(link["is_cut"]) for link in self.status()["links"] if set(link["ends"]) == set(ends))

    def send(self, count: int, *more: str) -> list[dict[str, Any]]:
        """Send messages, by turns to all queues. Returns: their outcomes."""
        patient = ("--timeout", str(PATIENCE_S * 1000))
        command = [*COMMAND, "send", "--namesrv", self.namesrv, "--topic", "orders", "--json", *(more or patient)]
        lines = "".join(f"{number}\n" for number in range(count))
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]


def start(here: Path, *options: str) -> Process:
    here.mkdir(exist_ok=True)
    return Process(here / "up.log", "cluster", "up", "--dir", here / "cluster", *options, limit_s=LONG_S)


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    here = tmp_path_factory.mktemp("playground")
    process = start(here, "--mode", "sync-2m-2s")
    try:
        yield Playground(here, process)
    finally:
        status = process.end(signal.SIGTERM)
    assert status == 0
    kept = read_state(here / "cluster")
    assert kept.processes == {}


def all_well(playground: Playground) -> Callable[[], bool]:
    return lambda: all(node.get("listed", True) and node["state"] == "up" for node in playground.status()["nodes"])


def test_all_nodes_are_up_and_listed(playground: Playground) -> None:
    found = playground.status()
    assert [node["name"] for node in found["nodes"]] == ["namesrv", *BROKERS]
    assert all(node["state"] == "up" for node in found["nodes"])
    assert [node["listed"] for node in found["nodes"][1:]] == [True] * 4
    assert (found["mode"], found["flush"]) == ("sync-2m-2s", "async")
    assert not any(link["is_cut"] for link in found["links"])
    addresses = [node["address"] for node in found["nodes"]]
    assert len(set(addresses)) == 5
    assert addresses[0] == playground.namesrv
    for name in BROKERS:
        assert (playground.directory / "store" / name / "commitlog").is_dir()
        assert (playground.directory / "conf" / f"{name}.conf").is_file()


def test_clients_and_slaves_come_by_the_links(playground: Playground) -> None:
    """The first put of a group waits for no slave (HA-G-5); then each has its slave's acknowledgement."""
    sent = 0

    def are_sent() -> bool:
        nonlocal outcomes, sent
        outcomes = playground.send(8)
        sent += sum(outcome["status"] in STORED for outcome in outcomes)
        return {outcome["status"] for outcome in outcomes} == {"SEND_OK"}

    outcomes: list[dict[str, Any]] = []
    wait_for(are_sent)
    assert {outcome["broker_name"] for outcome in outcomes} == {"broker-a", "broker-b"}
    wanted = ("--topic", "orders", "--from", "first", "--stop-at-end")
    read = run("consume", "--namesrv", playground.namesrv, *wanted)
    assert len(read.stdout.splitlines()) == sent, read.stderr
    routes = run("admin", "routes", "--namesrv", playground.namesrv, "orders", "--json")
    told = {json.loads(line)["address"] for line in routes.stdout.splitlines()}
    assert told == {node["address"] for node in playground.status()["nodes"][1:]}
    wait_for(lambda: all(node["lag_bytes"] == 0 for node in playground.status()["nodes"] if node["role"] == "SLAVE"))
    for slave in ("broker-a-s", "broker-b-s"):
        followed = ask(playground.directory / "store" / slave)["following"]
        assert followed["master"] not in told  # neither the log nor the tables come past the link
        assert followed["tables_of"] is None or followed["tables_of"] not in told


def test_a_node_is_killed_and_started_on_its_store(playground: Playground) -> None:
    before = playground.node("broker-b")
    assert playground.do("kill", "broker-b") == f"killed=broker-b pid={before['pid']}\n"
    killed = playground.node("broker-b")
    assert (killed["state"], killed["exit_status"], killed["pid"], killed["max_offset"]) == ("killed", -9, None, None)
    wait_for(lambda: playground.node("broker-b")["listed"] is False)
    assert "broker-b: is killed; expected a node that is up" in playground.refused("kill", "broker-b")
    started = playground.do("start", "broker-b")
    again = playground.node("broker-b")
    assert started == f"started=broker-b pid={again['pid']} address={before['address']}\n"
    assert again["pid"] != before["pid"]
    assert (again["state"], again["listed"], again["max_offset"]) == ("up", True, before["max_offset"])
    assert f"broker-b: is up, as pid {again['pid']}" in playground.refused("start", "broker-b")


def test_a_node_that_ends_by_itself_is_seen(playground: Playground) -> None:
    process = read_state(playground.directory).processes["broker-a-s"]
    assert send_signal(process, signal.SIGKILL)
    wait_for(lambda: playground.node("broker-a-s")["state"] == "ended")
    wait_for(lambda: "broker-a-s: ended by itself with status -9" in playground.process.log.read_text())
    playground.do("start", "broker-a-s")
    assert playground.do("stop", "broker-a-s").startswith("stopped=broker-a-s pid=")
    assert (playground.node("broker-a-s")["state"], playground.node("broker-a-s")["exit_status"]) == ("stopped", 0)
    playground.do("start", "broker-a-s")
    wait_for(all_well(playground))


def test_a_link_is_cut_and_healed(playground: Playground) -> None:
    """Between master and slave: the put is stored, and nobody acknowledges it."""
    playground.send(8)
    assert playground.do("cut", "broker-a-s", "broker-a") == "cut=broker-a broker-a-s\n"
    try:
        assert playground.is_cut("broker-a", "broker-a-s")
        outcomes = {each["broker_name"]: each["status"] for each in playground.send(8)}
        assert outcomes["broker-a"] in ("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
        assert outcomes["broker-b"] == "SEND_OK"
        assert playground.node("broker-a-s")["lag_bytes"] > 0
        assert playground.do("cut", "broker-a", "broker-a-s") == ""
    finally:
        healed = playground.do("heal", "broker-a")
    assert healed == "heal=broker-a broker-a-s\n"
    assert not playground.is_cut("broker-a", "broker-a-s")
    wait_for(lambda: playground.node("broker-a-s")["lag_bytes"] == 0)


def test_a_broker_without_clients_is_silent(playground: Playground) -> None:
    assert playground.do("cut", "broker-b", "clients") == "cut=broker-b clients\n"
    try:
        outcomes = playground.send(8, "--timeout", "1000")
        assert len(outcomes) == 8
        assert "broker-b" not in {each.get("broker_name") for each in outcomes}
    finally:
        playground.do("heal", "broker-b", "clients")
    wait_for(lambda: {each.get("broker_name") for each in playground.send(8)} == {"broker-a", "broker-b"})


def test_an_order_that_needs_a_port_which_is_taken_is_refused_and_all_else_goes_on(playground: Playground) -> None:
    """A node that is down holds no port of its links, and somebody else may take one."""
    forwards = read_state(playground.directory).plan.forwards
    near = next(each.near for each in forwards if each.link == {"broker-a-s", "broker-a"} and each.target == "broker-a-s")
    playground.do("kill", "broker-a-s")
    with socket.create_server(near):
        taken = f"cannot listen on {near[0]}:{near[1]}: Address already in use"
        assert playground.refused("start", "broker-a-s") == f"rocketmq-ha: broker-a-s: is stopped again: {taken}\n"
        assert (playground.node("broker-a-s")["state"], playground.node("broker-a-s")["exit_status"]) == ("stopped", 0)
        assert playground.refused("cut", "broker-a-s") == f"rocketmq-ha: {taken}\n"
        assert not any(link["is_cut"] for link in playground.status()["links"])
        wait_for(lambda: {each["status"] for each in playground.send(8)} == {"SEND_OK", "SLAVE_NOT_AVAILABLE"})
    playground.do("start", "broker-a-s")
    wait_for(all_well(playground))


def test_what_is_no_node_or_no_link_is_named(playground: Playground) -> None:
    assert "'broker-c': no such node, expected one of clients, namesrv, broker-a" in playground.refused("cut", "broker-c")
    assert "broker-a and broker-b: no link joins them" in playground.refused("cut", "broker-a", "broker-b")
    assert "node 'clients': no such node" in playground.refused("kill", "clients")


def test_a_second_cluster_cannot_have_the_directory(playground: Playground) -> None:
    assert "a cluster runs here, as pid" in playground.refused("up", "--mode", "1m")


def test_the_screen_has_80_columns_and_all_nodes(playground: Playground) -> None:
    screens: list[str] = []

    def all_answer_and_no_slave_lags() -> bool:
        screens.append(terminal(80, *COMMAND, "cluster", "status", "--dir", playground.directory))
        return len(re.findall(r"^broker-\S+ +[\d,]+ +(?:-|\d+ B) +yes +up +up +up *$", screens[-1], re.MULTILINE)) == 4

    wait_for(all_answer_and_no_slave_lags)
    shown = screens[-1]
    assert all(len(line) <= 80 for line in shown.splitlines() if str(playground.directory) not in line), shown
    assert len(shown.splitlines()) <= 24
    for node in playground.status()["nodes"]:
        pattern = rf"^{node['name']} +(name server|SYNC_MASTER|SLAVE) +up +[\d.]+ (ms|s|min [\d.]+ s) +{node['pid']} +"
        pattern += re.escape(node["address"])
        assert re.search(pattern, shown, re.MULTILINE), shown


def test_a_detached_cluster_goes_on_until_down_and_starts_again_on_its_stores(tmp_path: Path) -> None:
    directory = tmp_path / "detached"
    begun = run("cluster", "up", "--mode", "1m", "--flush", "sync", "--dir", directory, "--detach")
    assert begun.returncode == 0, begun.stderr
    try:
        found = dict(line.split("=", 1) for line in begun.stdout.splitlines())
        assert found.keys() == {"directory", "namesrv", "broker-a"}
        words = ("--topic", "t", "--body", "kept", "--timeout", PATIENCE_S * 1000)
        sent = run("send", "--namesrv", found["namesrv"], *words)
        assert sent.returncode == 0, sent.stderr
        assert "flushDiskType=SYNC_FLUSH" in (directory / "conf" / "broker-a.conf").read_text()
        processes = read_state(directory).processes
        assert set(processes) == {"links", "namesrv", "broker-a"}
    finally:
        ended = invoke("cluster", "down", "--dir", directory)
    assert ended.stdout == f"down={directory}\n"
    assert not any(map(is_running, processes.values()))
    gone = invoke("cluster", "status", "--dir", directory)
    assert (gone.exit_code, gone.stderr.count("\n")) == (2, 1)
    assert f"{directory}: its cluster is down. `rocketmq-ha cluster up --dir` starts it again" in gone.stderr
    assert "its cluster is down" in invoke("cluster", "kill", "broker-a", "--dir", directory).stderr

    again = run("cluster", "up", "--dir", directory, "--detach")
    try:
        assert again.returncode == 0, again.stderr
        namesrv = dict(line.split("=", 1) for line in again.stdout.splitlines())["namesrv"]
        read = run("consume", "--namesrv", namesrv, "--topic", "t", "--from", "first", "--stop-at-end")
        assert json.loads(read.stdout)["body"] == "kept"
    finally:
        invoke("cluster", "down", "--dir", directory)


def test_nothing_is_left_of_a_cluster_that_was_killed(tmp_path: Path) -> None:
    """On Linux the system ends its processes; what a stopped process does not notice, `down` ends."""
    process = start(tmp_path, "--mode", "1m")
    playground = Playground(tmp_path, process)
    kept = read_state(playground.directory)
    broker = kept.processes["broker-a"]
    if sys.platform == "linux":
        assert send_signal(broker, signal.SIGSTOP)
    process.end(signal.SIGKILL)
    if sys.platform == "linux":
        wait_for(lambda: not any(is_running(each) for name, each in kept.processes.items() if name != "broker-a"))
    assert "its cluster is dead, and processes are left: broker-a" in playground.refused("status")
    assert "its cluster is dead, and processes are left: broker-a" in playground.refused("cut", "broker-a")
    assert "processes of the cluster before are left: broker-a" in playground.refused("up")
    assert send_signal(broker, signal.SIGCONT)
    shown = playground.do("down").splitlines()
    assert shown[-1] == f"down={playground.directory}"
    assert not any(map(is_running, kept.processes.values()))
    assert "its cluster is down" in playground.refused("status")


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    (directory / "store").mkdir(parents=True)
    (directory / "store" / "broker-a").write_text("no folder")
    failed = run("cluster", "up", "--mode", "1m", "--dir", directory)
    assert failed.returncode == 2
    lines = failed.stderr.splitlines()
    assert lines[-1].startswith("rocketmq-ha: broker-a: ended with status 2: ")
    assert str(directory / "store" / "broker-a") in lines[-1]
    kept = read_state(directory)
    assert kept.processes == {}
    detached = run("cluster", "up", "--dir", directory, "--detach")
    assert detached.returncode == 2
    assert detached.stderr.startswith(
        f"rocketmq-ha: {directory}: the cluster ended with status 2: broker-a: ended with status 2: "
    )


def test_a_new_cluster_needs_a_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "expected --mode for a new cluster" in invoke("cluster", "up").stderr
    assert "expected --mode for a new one" in invoke("cluster", "up", "--dir", tmp_path / "x").stderr
    assert not (tmp_path / "x").exists()
    found = invoke("cluster", "status")
    assert (found.exit_code, found.stderr.count("\n")) == (2, 1)
    assert "found no cluster.json here" in found.stderr
