"""`rocketmq-ha status` and `--metrics`: a running process reports its state, and no request can stop it."""

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from prometheus_client.parser import text_string_to_metric_families

import kit.nodes
from kit.command_line import COMMAND, invoke, status_of
from kit.nodes import follow
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.cli.quantities import duration, size
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.figures import Growth, MasterFigures, Rate, SlaveFigures
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.local_socket import listen_locally
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME as PUT_SOCKET_NAME
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME, NotRunning, StatusSocket, ask
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1 << 20
PATIENT = ("--sync-flush-timeout", "1000000")


def serve(nodes: ExitStack, store: Path, *more: str) -> tuple[Node, str]:
    return kit.nodes.serve(nodes, store, *more, file_size=FILE_SIZE)


def status(*arguments: object) -> Result:
    return invoke("status", *arguments)


# --- Figures ---------------------------------------------------------------------------------------------------------


def test_lag_is_the_age_of_the_first_byte_that_is_missing() -> None:
    growth = Growth(100, 0)
    for now_ms, offset in ((1000, 200), (2000, 200), (3000, 300)):
        growth.sample(offset, now_ms)
    assert [growth.lag_ms(offset, 5000) for offset in (50, 100, 150, 200, 299, 300, 400)] == [
        5000,
        4000,
        4000,
        2000,
        2000,
        0,
        0,
    ]


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate(0, 0)
    assert (rate.per_second(0, 0), rate.per_second(500, 500)) == (0, 1000)
    for tenth in range(1, 201):
        rate.sample(min(tenth, 100) * 10, tenth * 100)
    assert len(rate._samples) <= 11
    assert rate.per_second(1000, 20_000) == 0  # the first ten seconds are forgotten
    assert rate.per_second(2000, 20_500) == pytest.approx(1000 / 10.5, abs=0.1)
    rate.sample(5, 20_600)  # the log was truncated
    assert (rate.per_second(5, 20_700), rate.per_second(105, 21_600)) == (0, 100)
    growth = Growth(100, 0)
    growth.sample(5, 600)
    assert (growth.lag_ms(5, 1000), growth.lag_ms(0, 1000)) == (0, 400)


def test_a_slave_that_had_it_all_before_the_first_sample_still_has_a_rate(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log, ExitStack() as stack:
        master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), HARDENED)
        stack.callback(master.close)
        figures = MasterFigures(master, "hardened")
        sock = stack.enter_context(socket.create_connection(master.address, timeout=PATIENCE_S))
        sock.sendall(REPORT.pack(0))
        poll_until(master, lambda: any(conn.start_offset == 0 for conn in master.service.connections))
        master.put(Message("T", b"body"), wait=False)
        poll_until(master, lambda: master.service.connections[0].sent_offset == log.max_offset)
        sock.sendall(REPORT.pack(log.max_offset))
        poll_until(master, lambda: master.service.connections[0].slave_ack_offset == log.max_offset)
        time.sleep(0.002)  # a rate needs some time
        (slave,) = figures.snapshot()["connections"]
        assert slave["acks_per_second"] > 0
        assert slave["connected_ms"] >= 2


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_connection_that_acknowledges_nothing_is_no_slave_and_has_no_lag(tmp_path: Path, profile: Profile) -> None:
    """A reader repeats its start offset in every report. HA-G-5."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log, ExitStack() as stack:
        master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), profile)
        stack.callback(master.close)
        master.put(Message("T", b"before"), wait=False)
        figures = MasterFigures(master, profile.name)
        before = log.max_offset
        sock = stack.enter_context(socket.create_connection(master.address, timeout=PATIENCE_S))

        def told() -> dict[str, Any]:
            figures._next_sample_ms = 0
            figures.sample()
            return next(iter(figures.snapshot()["connections"]), {})

        lags = ("ack_offset", "lag_bytes", "lag_ms", "acks_per_second")
        poll_until(master, lambda: told().get("kind") == "not reported")
        assert told()["reported_offset"] is None
        sock.sendall(REPORT.pack(before))
        poll_until(master, lambda: told()["kind"] == "new")
        assert (told()["state"], told()["reported_offset"], [told()[name] for name in lags]) == ("all sent", before, [None] * 4)
        master.put(Message("T", b"behind"), wait=False)
        poll_until(master, lambda: told()["sent_offset"] == log.max_offset)
        assert told()["kind"] == "new"  # a slave would soon show as one
        time.sleep(0.002)  # of the clock
        sock.sendall(REPORT.pack(before))
        poll_until(master, lambda: told()["kind"] == "reader")
        assert (told()["state"], told()["reported_offset"], [told()[name] for name in lags]) == ("all sent", before, [None] * 4)
        sock.sendall(REPORT.pack(log.max_offset))
        poll_until(master, lambda: told()["kind"] == "slave")
        assert (told()["state"], told()["ack_offset"], told()["lag_bytes"]) == ("in sync", log.max_offset, 0)


def poll_until(master: Master, condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        master.poll(5)


def test_a_slave_is_connected_since_its_last_connection_began(tmp_path: Path) -> None:
    """Also if the slave reconnects between two samples."""
    done, ends = threading.Event(), list[float]()

    def serve() -> None:
        peer = accepted(listener)
        wait_for(lambda: connected_ms.get(1, 0) > 200)
        ends.append(time.monotonic())
        peer.close()
        peer = accepted(listener)
        with peer:
            done.wait(PATIENCE_S)

    with socket.create_server(("127.0.0.1", 0)) as listener, CommitLog.open(tmp_path / "b", file_size=FILE_SIZE) as log:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        follower = Follower(log, *listener.getsockname(), Settings(FILE_SIZE), HARDENED)
        figures, connected_ms = SlaveFigures(follower, log, "hardened"), {0: 0}

        def look() -> bool:
            if follower.client.connected:  # no sample without a connection
                figures._next_sample_ms = 0
                figures.sample()
                connected_ms[follower.connects] = figures.snapshot()["connected_ms"]
            return 2 in connected_ms

        follower.run(look)
        passed_ms = (time.monotonic() - ends[0]) * 1000
        done.set()
        await_end(thread)
    assert connected_ms[1] > 200
    assert connected_ms[2] < passed_ms + 100


def test_figures_are_said_as_people_say_them() -> None:
    sizes = [size(value) for value in (None, 0, 1023, 1024, 1_000_000, 1 << 30, 5 << 50)]
    assert sizes == ["-", "0 B", "1023 B", "1.0 KiB", "976.6 KiB", "1.0 GiB", "5120.0 TiB"]
    durations = [duration(value) for value in (None, 999, 1000, 61_000, 3_660_000, 90_000_000)]
    assert durations == ["-", "999 ms", "1.0 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]


# --- Processes -------------------------------------------------------------------------------------------------------


def test_master_and_slave_tell_how_they_stand(tmp_path: Path, nodes: ExitStack) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    node, address = serve(nodes, a, "--put", "1000", "--size", "500", "--await-slaves", "1", *PATIENT)
    follow(nodes, b, address, "--file-size", str(FILE_SIZE))
    assert "PUT_OK=1000" in node.line("put")
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE_S):
        wait_for(lambda: len(status_of(a)["connections"]) == 2)
        master, slave = status_of(a), status_of(b)
        table = status(a)
    end = master["max_offset"]
    assert end > 500_000
    assert (master["role"], master["listen"], master["slaves"], master["push2_slave_max_offset"]) == ("master", address, 1, end)
    replica, probe = master["connections"]
    assert (replica["kind"], probe["kind"]) == ("slave", "not reported")
    assert (replica["state"], replica["ack_offset"], replica["lag_bytes"], replica["lag_ms"]) == ("in sync", end, 0, 0)
    assert replica["acks_per_second"] > 0
    assert (probe["state"], probe["ack_offset"], probe["lag_bytes"]) == ("awaiting report", None, None)
    assert (slave["role"], slave["master"], slave["state"]) == ("slave", address, "connected")
    assert (slave["broker_role"], slave["comparing"]) == ("SLAVE", False)
    assert (slave["max_offset"], slave["reported_offset"], slave["connects"]) == (end, end, 1)
    lines = [line.split() for line in table.stdout.splitlines()]
    assert lines[0] == ["role", "SYNC_MASTER,", "profile", "hardened"]
    assert ["peer", "kind", "state", "acknowledged", "sent", "lag", "lag", "time", "acks", "heard", "connected"] in lines
    assert any(line[1:6] == ["slave", "in", "sync", f"{end:,}", f"{end:,}"] for line in lines)
    assert "state    connected for" in status(b).stdout


def test_a_slave_that_is_stopped_falls_behind_in_bytes_and_in_time(tmp_path: Path, nodes: ExitStack) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    _, address = serve(nodes, a, "--put", "3000", "--size", "500", "--await-slaves", "1", "--sync", "0")
    node = follow(nodes, b, address, "--file-size", str(FILE_SIZE))
    wait_for(lambda: status_of(a)["connections"])
    os.kill(status_of(b)["pid"], signal.SIGSTOP)
    try:
        wait_for(lambda: status_of(a)["max_offset"] > 1_500_000)
        first = status_of(a)["connections"][0]
        time.sleep(1)
        second = status_of(a)["connections"][0]
        assert second["silent_ms"] >= first["silent_ms"] + 900
        if second["lag_bytes"]:  # the slave was stopped in time
            assert second["lag_ms"] >= 900
        with pytest.raises(NotRunning, match="has not answered"):
            ask(b, timeout_s=0.3)
    finally:
        os.kill(node_pid := node._process.pid, signal.SIGCONT)
    wait_for(lambda: status_of(a)["connections"][0]["lag_bytes"] == 0)
    assert status_of(b)["pid"] == node_pid


def test_the_socket_is_private_gone_at_the_end_and_replaced_after_a_kill(tmp_path: Path, nodes: ExitStack) -> None:
    store = tmp_path / "a"
    node, _ = serve(nodes, store)
    path = store / SOCKET_NAME
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    pid = status_of(store)["pid"]
    node.kill()
    assert path.exists()
    result = status(store)
    assert (result.exit_code, "what a killed one has left" in result.stderr) == (2, True)
    node, _ = serve(nodes, store)
    assert status_of(store)["pid"] != pid
    node.stop()
    assert not path.exists()
    assert "there is no rocketmq-ha.sock in it" in status(store).stderr


def test_an_error_is_one_line_with_status_2(tmp_path: Path) -> None:
    command = [*COMMAND, "status", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rocketmq-ha: {tmp_path / 'none'}: no such directory, expected the root of a store\n"


def test_a_file_is_not_called_a_missing_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = status(tmp_path / "file")
    expected = f"rocketmq-ha: {tmp_path / 'file'}: not a directory, expected the root of a store\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_no_put_of_an_async_master_waits_for_replicas(tmp_path: Path, nodes: ExitStack) -> None:
    """An alert that compares the counted replicas with the needed ones finds no series to compare with."""
    node, _ = serve(nodes, tmp_path / "a", "--role", "ASYNC_MASTER", "--metrics", "127.0.0.1:0")
    at = node.line("metrics")
    wait_for(lambda: ("rocketmq_ha_replicas_counted", "") in scrape(at))
    assert ("rocketmq_ha_replicas_needed", "") not in scrape(at)
    assert "0 count, no put waits for them" in status(tmp_path / "a").stdout


def test_a_store_with_a_path_longer_than_an_address_has_its_status(tmp_path: Path, nodes: ExitStack) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    serve(nodes, deep / "a")
    assert status_of(deep / "a")["role"] == "master"
    assert (deep / "a" / SOCKET_NAME).is_socket()


def test_what_is_no_socket_stays_and_the_master_serves_all_the_same(tmp_path: Path, nodes: ExitStack) -> None:
    store = tmp_path / "a"
    store.mkdir()
    (store / SOCKET_NAME).write_text("mine")
    node, _ = serve(nodes, store, "--put", "10", "--sync", "0")
    assert "PUT_OK=10" in node.line("put")
    node.stop()
    assert (store / SOCKET_NAME).read_text() == "mine"
    assert "no status is served" in (tmp_path / "a.log").read_text()


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        (SOCKET_NAME, ("status",), "{store}: its process ended before it answered"),
        (PUT_SOCKET_NAME, ("put", "--topic", "t", "--body", "b", "--to"), "{path}: the master has ended before it answered"),
    ],
    ids=["status", "put"],
)
def test_a_process_that_is_killed_before_it_answers_is_one_line(
    tmp_path: Path, name: str, words: tuple[str, ...], told: str
) -> None:
    """The system resets a connection that nobody has accepted."""
    with listen_locally(tmp_path, name, 1) as listener:

        def die() -> None:
            select.select([listener], [], [], PATIENCE_S)
            listener.close()

        dying = threading.Thread(target=die, daemon=True)
        dying.start()
        result = invoke(*words, tmp_path)
        await_end(dying)
    expected = told.format(store=tmp_path, path=tmp_path / name)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"rocketmq-ha: {expected}\n")


def test_clients_that_do_not_read_are_given_up_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_ha.impl.net import status_socket

    monkeypatch.setattr(status_socket, "_GIVE_UP_S", 2.0)
    serving = StatusSocket(tmp_path, lambda: {"much": "x" * 1_000_000})
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(8)]
    monkeypatch.chdir(tmp_path)
    try:
        for client in clients:
            client.connect(SOCKET_NAME)
            serving.poll()
        assert len(serving._clients) == 8
        wait_for(lambda: not serving._clients, serving.poll)
        monkeypatch.setattr(status_socket, "_GIVE_UP_S", PATIENCE_S)
        answers: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: answers.append(ask(tmp_path)), daemon=True)
        asking.start()
        while asking.is_alive():
            serving.poll()
            time.sleep(0.001)
        assert len(answers[0]["much"]) == 1_000_000
        clients[0].settimeout(PATIENCE_S)
        cut = b""
        while data := clients[0].recv(1 << 20):
            cut += data
        assert 0 < len(cut) < 1_000_000
    finally:
        serving.close()
        for client in clients:
            client.close()
    assert not (tmp_path / SOCKET_NAME).exists()


# --- Metrics ---------------------------------------------------------------------------------------------------------


def scrape(address: str) -> dict[tuple[str, str], float]:
    """(name, replica, kind or status) -> value."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (
            sample.name,
            next((sample.labels[key] for key in ("replica", "kind", "status") if key in sample.labels), ""),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_are_the_figures_of_the_status(tmp_path: Path, nodes: ExitStack) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    node, address = serve(nodes, a, "--put", "500", "--await-slaves", "1", "--metrics", "127.0.0.1:0")
    at = node.line("metrics")
    slave = Node(
        *(tmp_path / "b.log", "slave", "--store", str(b), "--master", address),
        *("--file-size", str(FILE_SIZE), "--metrics", "127.0.0.1:0"),
    )
    nodes.callback(slave.stop)
    slave_at = slave.line("metrics")
    node.line("put")
    end = status_of(a)["max_offset"]
    wait_for(lambda: scrape(at).get(("rocketmq_ha_push2_slave_max_offset_bytes", "")) == end)
    wait_for(lambda: scrape(slave_at).get(("rocketmq_ha_reported_offset_bytes", "")) == end)
    found, peer = scrape(at), "127.0.0.1"
    assert found["rocketmq_ha_max_offset_bytes", ""] == found["rocketmq_ha_slave_ack_offset_bytes", peer] == end
    assert found["rocketmq_ha_slave_lag_bytes", peer] == found["rocketmq_ha_slave_lag_seconds", peer] == 0
    assert 0 <= found["rocketmq_ha_slave_silent_seconds", peer] < 20
    assert (
        found["rocketmq_ha_slaves", ""]
        == found["rocketmq_ha_replicas_counted", ""]
        == found["rocketmq_ha_connections", "slave"]
        == 1
    )
    assert found["rocketmq_ha_connections", "reader"] == found["rocketmq_ha_connections", "not reported"] == 0
    assert found["rocketmq_ha_replicas_needed", ""] == 1
    theirs = scrape(slave_at)
    assert theirs["rocketmq_ha_connected", ""] == theirs["rocketmq_ha_connects_total", ""] == 1
    node.stop()
    wait_for(lambda: scrape(slave_at)["rocketmq_ha_failed_connects_total", ""] > 0)
    assert scrape(slave_at)["rocketmq_ha_connected", ""] == 0


def test_a_port_that_is_taken_is_told_before_the_store_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [shutil.which("env") or "env", *COMMAND, "master"]
        command += ["--store", str(tmp_path / "a"), "--listen", "127.0.0.1:0", "--metrics", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert done.stderr == f"rocketmq-ha: cannot listen on {address}: Address already in use\n"
    assert not (tmp_path / "a").exists()


def test_an_ha_port_that_is_taken_is_named_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = invoke("master", "--store", str(tmp_path / "a"), "--listen", address)
    error = f"rocketmq-ha: --listen: cannot listen on {address}: Address already in use\n"
    assert (result.exit_code, result.stderr) == (2, error)
    assert not (tmp_path / "a").exists()
