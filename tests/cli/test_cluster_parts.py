"""What a cluster is made of: its plan, the translation of addresses, its directory, and processes that are told apart."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from kit.children import Child
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app.cluster import child_of, ports, processes
from rocketmq_ha.impl.app.cluster import cluster as clusters
from rocketmq_ha.impl.app.cluster.cluster import Cluster
from rocketmq_ha.impl.app.cluster.directory import (
    STATE_FILE,
    Kept,
    NoCluster,
    Noted,
    State,
    dead_line,
    find_directory,
    is_alive,
    locked,
    new_directory,
    plan_for,
    read_state,
)
from rocketmq_ha.impl.app.cluster.plan import (
    CLIENTS,
    MODES,
    NAME_SERVER,
    RESERVED_PORT,
    broker_conf,
    conf_text,
    make_plan,
    ports_of,
)
from rocketmq_ha.impl.app.cluster.ports import BASE_PORT_STEP, chosen_plan
from rocketmq_ha.impl.app.cluster.processes import Identity, end_all, identity_of, is_running, send_signal, start
from rocketmq_ha.impl.app.cluster.translate import FrameTranslator
from rocketmq_ha.impl.cli.broker_conf import options_of
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.remoting.command import RemotingCommand, SerializeType, decode, encode_whole
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX
from rocketmq_ha.spec.role import BrokerRole

SLEEP = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]


# --- The plan ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("1m", {"broker-a": "ASYNC_MASTER"}),
        ("2m", {"broker-a": "ASYNC_MASTER", "broker-b": "ASYNC_MASTER"}),
        (
            "async-2m-2s",
            {"broker-a": "ASYNC_MASTER", "broker-a-s": "SLAVE", "broker-b": "ASYNC_MASTER", "broker-b-s": "SLAVE"},
        ),
        (
            "sync-2m-2s",
            {"broker-a": "SYNC_MASTER", "broker-a-s": "SLAVE", "broker-b": "SYNC_MASTER", "broker-b-s": "SLAVE"},
        ),
    ],
)
def test_a_mode_has_its_brokers(mode: str, expected: dict[str, str]) -> None:
    plan = make_plan(mode, "async", 20_000)
    assert {node.name: node.role and node.role.value for node in plan.brokers} == expected
    assert all((node.broker_id > 0) is (node.role is BrokerRole.SLAVE) for node in plan.brokers)
    assert {node.broker_name for node in plan.brokers} == {name.removesuffix("-s") for name in expected}


@pytest.mark.parametrize("mode", MODES)
def test_no_two_ends_have_one_port(mode: str) -> None:
    """Neither the nodes', nor those two below and one above them, nor those of the links."""
    plan = make_plan(mode, "async", 20_000)
    own = [plan.name_server.own[1], *(node.own[1] + more for node in plan.brokers for more in (-2, 0, 1))]
    near = [forward.near[1] for forward in plan.forwards]
    assert len({*own, *near}) == len(own) + len(near)
    assert ports_of(plan) == sorted([*own, *near])
    assert 20_000 + RESERVED_PORT not in ports_of(plan)
    assert max(ports_of(plan)) < 20_000 + BASE_PORT_STEP
    assert {forward.far[1] for forward in plan.forwards} == set(own)


def test_every_pair_that_talks_has_a_link() -> None:
    plan = make_plan("sync-2m-2s", "async", 20_000)
    brokers = [node.name for node in plan.brokers]
    talks = [{CLIENTS, NAME_SERVER}, *({name, other} for name in brokers for other in (CLIENTS, NAME_SERVER))]
    talks += [{"broker-a", "broker-a-s"}, {"broker-b", "broker-b-s"}]
    assert sorted(map(sorted, plan.links)) == sorted(map(sorted, talks))
    for first, second in combinations([CLIENTS, *(node.name for node in plan.nodes)], 2):
        if {first, second} in talks:
            assert plan.links_of(second, first) == [{first, second}]
        else:
            with pytest.raises(ConfigInvalid, match=f"{first} and {second}: no link joins them, expected {first} and"):
                plan.links_of(first, second)
    assert len(plan.links_of("broker-a", None)) == 3
    with pytest.raises(ConfigInvalid, match="'broker-c': no such node, expected one of clients, namesrv, broker-a"):
        plan.links_of("broker-a", "broker-c")


def test_a_slave_is_told_of_its_master_by_the_link_between_them() -> None:
    plan = make_plan("async-2m-2s", "async", 20_000)
    master, slave = plan.node("broker-a"), plan.node("broker-a-s")
    by = {next(iter(forward.link - {NAME_SERVER})): forward for forward in plan.forwards if NAME_SERVER in forward.link}
    registered = by["broker-a"].there["brokerAddr"][format_address(*master.own)]
    assert registered == format_address(*master.address)
    told = by["broker-a-s"].back["masterAddr"][registered]
    link = {"broker-a", "broker-a-s"}
    port = int(told.rpartition(":")[2])
    reached = {forward.near[1]: forward.far for forward in plan.forwards if forward.link == link}
    for more in (-2, 0, 1):  # the VIP port, where tables are asked for, and that of the log
        assert reached[port + more] == ("127.0.0.1", master.own[1] + more)
    ha_registered = by["broker-a"].there["haServerAddr"][f"127.0.0.1:{master.own[1] + 1}"]
    assert by["broker-a-s"].back["haServerAddr"][ha_registered] == f"127.0.0.1:{port + 1}"
    assert format_address(*slave.address) in by["broker-a-s"].there["brokerAddr"].values()


def test_the_settings_of_a_broker_are_a_broker_conf(tmp_path: Path) -> None:
    plan = make_plan("sync-2m-2s", "sync", 20_000)
    node, store = plan.node("broker-b-s"), tmp_path / "a b\\c"
    file = tmp_path / "broker.conf"
    found, left = options_of(file, conf_text(broker_conf(plan, node, store)), "broker")
    options = {name: value for name, (_, value) in found.items()}
    assert left == []
    assert options["store"] == str(store)
    assert (options["role"], options["flush"]) == ("SLAVE", "sync")
    assert (options["broker_name"], options["broker_id"]) == ("broker-b", "1")
    assert options["listen"] == format_address(*node.own)
    assert options["namesrv"] == format_address(*node.to_name_server)


@pytest.mark.parametrize(("mode", "flush"), [("3m", "async"), ("1m", "never")])
def test_an_unknown_mode_is_refused(mode: str, flush: str) -> None:
    with pytest.raises(ConfigInvalid, match="expected one of"):
        make_plan(mode, flush, 20_000)


# --- The translation -----------------------------------------------------------------------------------------------------

TRANSLATION = {"masterAddr": {"10.0.0.1:10911": "127.0.0.1:1"}, "haServerAddr": {"10.0.0.1:10912": "127.0.0.1:2"}}


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_addresses_are_translated_and_all_else_stays(kind: SerializeType, piece: int) -> None:
    fields = {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912", "other": "10.0.0.1:10911"}
    command = RemotingCommand(103, 7, 1, "JAVA", 399, "remark", fields, b"10.0.0.1:10911", kind)
    unknown = RemotingCommand(0, 8, 1, ext_fields={"masterAddr": "10.0.0.2:10911"}, serialize_type=kind)
    sent = encode_whole(command) + encode_whole(unknown)
    translator = FrameTranslator(TRANSLATION)
    found = b"".join(translator.feed(sent[at : at + piece]) for at in range(0, len(sent), piece))
    size = int.from_bytes(found[:4])
    first, second = decode(found[4 : 4 + size]), found[4 + size :]
    assert first.ext_fields == fields | {"masterAddr": "127.0.0.1:1", "haServerAddr": "127.0.0.1:2"}
    first.ext_fields = fields
    assert first == command
    assert second == encode_whole(unknown)


def test_bytes_that_are_no_header_pass_and_a_length_that_is_none_ends_the_connection() -> None:
    translator = FrameTranslator(TRANSLATION)
    strange = (8).to_bytes(4, "big") + b"\x00\x00\x00\x04{no}"
    assert translator.feed(strange) == strange
    with pytest.raises(ConnectionAbortedError, match="length"):
        translator.feed((REMOTING_FRAME_MAX).to_bytes(4, "big"))


# --- Processes -----------------------------------------------------------------------------------------------------------


def test_a_process_is_told_from_another_one_of_its_pid() -> None:
    child = Child(SLEEP, stdout=subprocess.PIPE)
    found = identity_of(child.pid)
    assert found is not None and found.started
    other = Identity(child.pid, found.started + "1")
    assert (is_running(found), is_running(other)) == (True, False)
    assert not send_signal(other, signal.SIGKILL)
    assert child.poll() is None
    assert send_signal(found, signal.SIGKILL)
    child.wait(PATIENCE_S)
    assert not is_running(found)
    assert not send_signal(found, signal.SIGKILL)
    assert identity_of(child.pid) is None


def test_a_process_that_nobody_has_collected_does_not_run() -> None:
    child = Child(SLEEP, stdout=subprocess.PIPE)
    found = identity_of(child.pid)
    assert found is not None
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(found))
    child.wait(PATIENCE_S)


def test_all_are_ended_by_force_if_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_S", 2.0)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
    children = [Child(SLEEP, stdout=subprocess.PIPE), Child([sys.executable, "-c", deaf], stdout=subprocess.PIPE)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
    found = [identity for child in children if (identity := identity_of(child.pid))]
    gone = Identity(children[0].pid, "another")
    assert end_all([*found, gone]) == found
    assert [child.wait(PATIENCE_S) for child in children] == [-signal.SIGTERM, -signal.SIGKILL]


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends a child with its parent")
def test_a_child_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import sys, time; from rocketmq_ha.impl.app.cluster.processes import start\n"
        f"child = start({SLEEP!r}, open({str(tmp_path / 'log')!r}, 'wb'))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    parent = Child([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    found = identity_of(int(parent.stdout.readline()))
    assert found is not None
    wait_for(lambda: b"here" in (tmp_path / "log").read_bytes())
    assert is_running(found)
    parent.kill()
    parent.wait(PATIENCE_S)
    wait_for(lambda: not is_running(found))


def test_a_child_whose_parent_is_gone_does_not_begin(tmp_path: Path) -> None:
    began = tmp_path / "began"
    command = [sys.executable, "-I", "-S", child_of.__file__, "1", sys.executable, "-c", f"open({str(began)!r}, 'w')"]
    done = subprocess.run(command, check=False, timeout=PATIENCE_S)
    assert done.returncode == 128 + signal.SIGTERM
    assert not began.exists()


def test_a_child_gets_its_environment_and_no_signal_of_the_terminal(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['MORE'], os.getsid(0) == os.getpid(), flush=True)"
    with (tmp_path / "log").open("wb") as log:
        process = start([sys.executable, "-c", program], log, environment={"MORE": "word"}, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == b"word True\n"


# --- The directory -------------------------------------------------------------------------------------------------------


def kept(mode: str = "1m", **processes: Identity) -> Kept:
    plan = make_plan(mode, "sync", 20_100)
    nodes = {node.name: Noted(State.UP, None, 5) for node in plan.nodes}
    return Kept(plan, 77, True, 3, processes, nodes, {frozenset({"broker-a", CLIENTS}): 9})


def test_a_state_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = kept(links=Identity(5, "boot/6"))
    written.write(tmp_path)
    assert read_state(tmp_path) == written
    assert sorted(file.name for file in tmp_path.iterdir()) == [STATE_FILE]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("pid"),
        lambda state: state["nodes"].pop("broker-a"),
        lambda state: state["nodes"].update({"broker-a": ["asleep", None, 5]}),
        lambda state: state.update(mode="9m"),
        *(lambda state, port=port: state.update(base_port=port) for port in ("x", 0, -5, 32_001, 70_000, 20_001.5, True, None)),
        lambda state: state.update(processes={"a": [1]}),
        lambda state: state.update(cut=[["a"]]),
    ],
)
def test_a_damaged_state_file_is_named(tmp_path: Path, change: object) -> None:
    kept().write(tmp_path)
    file = tmp_path / STATE_FILE
    state = json.loads(file.read_text())
    change(state)  # type: ignore[operator]
    file.write_text(json.dumps(state))
    with pytest.raises(ConfigInvalid, match=f"{STATE_FILE}: expected the state of a cluster"):
        read_state(tmp_path)
    file.write_text("[")
    with pytest.raises(ConfigInvalid, match=f"{STATE_FILE}: expected the state of a cluster"):
        read_state(tmp_path)


def test_a_lock_tells_a_living_cluster_from_a_dead_one(tmp_path: Path) -> None:
    assert not is_alive(tmp_path)
    with locked(tmp_path):
        assert is_alive(tmp_path)
        with pytest.raises(ConfigInvalid, match="a cluster runs here"), locked(tmp_path):
            pass
    assert not is_alive(tmp_path)
    with locked(tmp_path):
        pass


def test_what_is_said_of_a_cluster_that_does_not_run(tmp_path: Path) -> None:
    mine = identity_of(os.getpid())
    assert mine is not None
    before = Identity(os.getpid(), "an earlier start")
    assert dead_line(tmp_path, kept()).startswith(f"{tmp_path}: its cluster is down.")
    line = dead_line(tmp_path, kept(links=before))
    assert line.startswith(f"{tmp_path}: its cluster, pid 77, is dead; {STATE_FILE} is what it has left.")
    line = dead_line(tmp_path, kept(**{"links": before, "broker-a": mine}))
    assert f"is dead, and processes are left: broker-a (pid {mine.pid}); `rocketmq-ha cluster down` ends them" in line


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The two base ports to choose from, for clusters of mode 1m. They lie among the ports of a cluster that has none."""
    with chosen_plan("sync-2m-2s", "async", None) as around:
        first = around.base_port + RESERVED_PORT + 1
        monkeypatch.setattr(ports, "FIRST_BASE_PORT", first)
        monkeypatch.setattr(ports, "LAST_BASE_PORT", first + 80)
        monkeypatch.setattr(ports, "BASE_PORT_STEP", 40)
        yield [first, first + 40]


def test_a_directory_with_stores_keeps_its_mode_and_if_it_can_its_ports(tmp_path: Path, bases: list[int]) -> None:
    with pytest.raises(ConfigInvalid, match="expected --mode for a new one"):
        plan_for(tmp_path, None, None, None)
    with plan_for(tmp_path, "1m", None, None) as plan:
        assert plan.flush == "async"
    written = kept()
    plan = make_plan("1m", "sync", bases[1])
    Kept(plan, 77, True, 3, {}, written.nodes, {}).write(tmp_path)
    for _ in range(8):  # a base port that is drawn at random would be this one half of the time
        with plan_for(tmp_path, None, None, None) as found:
            assert found == plan
    with chosen_plan("1m", "sync", bases[1]), plan_for(tmp_path, None, None, None) as found:
        assert found == make_plan("1m", "sync", bases[0])
    with pytest.raises(ConfigInvalid, match=r"--flush async: the stores in .* are of --flush sync"):
        plan_for(tmp_path, "1m", "async", None)
    with pytest.raises(ConfigInvalid, match=r"--mode 2m: the stores in .* are of --mode 1m"):
        plan_for(tmp_path, "2m", None, None)
    with locked(tmp_path), pytest.raises(ConfigInvalid, match="a cluster runs here, as pid 77"):
        plan_for(tmp_path, None, None, None)
    mine = identity_of(os.getpid())
    assert mine is not None
    Kept(plan, 77, True, 3, {"broker-a": mine}, written.nodes, {}).write(tmp_path)
    with pytest.raises(
        ConfigInvalid, match=r"processes of the cluster before are left: broker-a; expected `rocketmq-ha cluster down`"
    ):
        plan_for(tmp_path, None, None, None)


def test_a_port_that_is_taken_is_named(bases: list[int]) -> None:
    base = bases[0]
    for port in ports_of(make_plan("1m", "async", base)):
        with socket.create_server(("127.0.0.1", port)):
            with (
                pytest.raises(ConfigInvalid, match=f"--base-port {base}: port {port} is taken"),
                chosen_plan("1m", "async", base),
            ):
                pass
            with chosen_plan("1m", "async", None) as plan:
                assert plan.base_port == bases[1]


def test_two_clusters_that_start_at_once_have_other_ports(bases: list[int]) -> None:
    """Seconds before the nodes of the first one listen."""
    with chosen_plan("1m", "async", None) as one:
        with chosen_plan("1m", "sync", None) as other:
            assert sorted([one.base_port, other.base_port]) == bases
            with (
                pytest.raises(ConfigInvalid, match=f"found no free ports from {bases[0]} to "),
                chosen_plan("1m", "async", None),
            ):
                pass
        match = f"--base-port {one.base_port}: port {one.base_port + RESERVED_PORT} is taken"
        with pytest.raises(ConfigInvalid, match=match), chosen_plan("1m", "async", one.base_port):
            pass
    with chosen_plan("1m", "async", one.base_port, preferred=other.base_port) as again:
        assert again == one


def test_a_cluster_whose_ports_were_taken_reserves_none(bases: list[int]) -> None:
    with socket.create_server(("127.0.0.1", bases[0] + 12)):
        with pytest.raises(ConfigInvalid) as refused, chosen_plan("1m", "async", bases[0]):
            pass
        socket.create_server(("127.0.0.1", bases[0] + RESERVED_PORT)).close()
    assert refused.tb  # its frames would have kept a socket that nobody had closed


def test_the_directory_is_found_where_it_is_plain_which(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=f"found no {STATE_FILE} here"):
        find_directory(tmp_path)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    kept().write(one)
    assert find_directory(tmp_path) == find_directory(one) == one
    other.mkdir()
    kept().write(other)
    with pytest.raises(NoCluster, match="found the clusters one, other; expected --dir"):
        find_directory(tmp_path)
    with locked(other):
        assert find_directory(tmp_path) == other
    with pytest.raises(NoCluster, match="no cluster was started here"):
        read_state(tmp_path)


def test_a_new_directory_is_not_there_yet(tmp_path: Path) -> None:
    first = new_directory(tmp_path, "1m")
    assert first.name == "cluster-1m"
    first.mkdir()
    assert new_directory(tmp_path, "1m").name == "cluster-1m-2"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One whose nodes do not run."""
    settings = {"brokerRole": "SYNC_MASTER", "brokerId": "7"}
    with chosen_plan("1m", "async", None) as plan:
        found = Cluster(plan, tmp_path / "cluster", settings=settings)
        try:
            yield found
        finally:
            found.down()


def test_the_settings_of_a_start_come_before_those_of_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "in place of those it had"."""
    monkeypatch.setattr(cluster, "_start", lambda node: setattr(cluster.nodes[node.name], "identity", identity_of(1)))
    cluster.start("broker-a", brokerRole="ASYNC_MASTER", brokerId="0")
    lines = cluster.conf_of("broker-a").read_text("utf-8").splitlines()
    assert {"brokerRole=ASYNC_MASTER", "brokerId=0"} <= {line.replace(" ", "") for line in lines}


@pytest.mark.parametrize(
    ("name", "said", "serves"),
    [
        ("broker-a", b"listening=127.0.0.1:1\n", False),
        ("broker-a", b"listening=127.0.0.1:1\nha_listening=127.0", False),
        ("broker-a", b"listening=127.0.0.1:1\nha_listening=127.0.0.1:2\n", True),
        ("namesrv", b"listening=127.0", False),
        ("namesrv", b"listening=127.0.0.1:1\n", True),
    ],
)
def test_a_node_serves_when_its_last_line_is_whole(cluster: Cluster, name: str, said: bytes, serves: bool) -> None:
    assert cluster.serves(cluster.plan.node(name), said) is serves


def test_what_a_process_of_before_has_said_counts_no_more(cluster: Cluster) -> None:
    out = cluster.directory / "logs" / "namesrv.out"
    out.write_bytes(b"listening=127.0.0.1:1\n")
    size = out.stat().st_size
    assert cluster._said("namesrv", size) == b""
    with out.open("ab") as lines:
        lines.write(b"listening=127.0.0.1:2\n")
    assert cluster._said("namesrv", size) == b"listening=127.0.0.1:2\n"


@pytest.mark.parametrize(("pid", "registered_ms", "is_it"), [(1, 5, True), (1, None, False), (2, 5, False)])
def test_a_process_of_before_is_not_registered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, pid: int, registered_ms: int | None, is_it: bool
) -> None:
    monkeypatch.setattr(clusters, "ask", lambda *_: {"pid": pid, "name_servers": [{"registered_ms": registered_ms}]})
    cluster.nodes["broker-a"].identity = identity_of(1)
    assert cluster.is_registered(cluster.plan.node("broker-a")) is is_it
