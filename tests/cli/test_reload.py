"""SIGHUP: a master and a slave apply new certificates, log level and `--allow`, and never end because of it."""

import json
import os
import signal
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from kit.certificates import Certificates, options
from kit.nodes import follow, serve
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.net.status_socket import ask

FILE_SIZE = 1 << 16


def hang_up(node: Node, *, says: str) -> str:
    """Send SIGHUP. Returns: the line that the process writes."""
    before = node.log.read_text().count("SIGHUP: ")
    os.kill(node._process.pid, signal.SIGHUP)
    wait_for(lambda: node.log.read_text().count("SIGHUP: ") > before)
    line = next(line for line in reversed(node.log.read_text().splitlines()) if "SIGHUP: " in line)
    assert says in line, line
    return line


def test_a_master_takes_over_whom_it_lets_in_and_its_log_level(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-M-80 "MUST close the connections from outside of them"; HA-M-81 "MUST go on, with what it had"."""
    config = tmp_path / "master.toml"
    config.write_text('log_level = "info"\n[master]\nallow = ["127.0.0.0/8"]\n')
    node, address = serve(nodes, tmp_path / "a", "--config", str(config), "--report-deadline", "1000", file_size=FILE_SIZE)
    there = ("127.0.0.1", int(address.rpartition(":")[2]))
    with socket.create_connection(there, timeout=PATIENCE_S) as old:
        old.settimeout(PATIENCE_S)
        wait_for(lambda: ask(tmp_path / "a")["connections"])
        line = hang_up(node, says="nothing has changed")
        assert "Z INFO " in line
        config.write_text('log_level = "debug"\n[master]\nallow = ["127.0.0.2"]\nput = 5\n')
        hang_up(node, says="log_level = debug; allow = 127.0.0.2/32; only after a restart: count")
        assert old.recv(1) == b""
    wait_for(lambda: "disconnected" in node.log.read_text())
    (line,) = (line for line in node.log.read_text().splitlines() if "disconnected" in line)
    assert line.endswith("disconnected: allow")
    with socket.create_connection(there, timeout=PATIENCE_S) as refused:
        refused.settimeout(PATIENCE_S)
        assert refused.recv(1) == b""
    with socket.create_connection(there, source_address=("127.0.0.2", 0), timeout=PATIENCE_S):
        wait_for(lambda: ask(tmp_path / "a")["connections"])
        for text, says in (
            ("log_level = 1", "log_level = 1: 1 is not one of"),
            ("[master", "expected TOML"),
            ('log_level = "error"\n[master]\nallow = ["nowhere"]', "network 'nowhere'"),
        ):
            config.write_text(text)
            assert "all stays as it is: " in hang_up(node, says=says)
        config.unlink()
        hang_up(node, says="No such file or directory")
        assert len(ask(tmp_path / "a")["connections"]) == 1
    config.write_text("")
    hang_up(node, says="log_level = info; allow = 127.0.0.0/8, ::1/128")  # the defaults
    assert node.stop() == 0


def test_each_change_is_logged_once_and_so_is_its_reversal(tmp_path: Path, nodes: ExitStack) -> None:
    """Each reading is compared with the previous one, not with the first."""
    config = tmp_path / "master.toml"
    first = '[master]\nallow = ["127.0.0.0/8"]\nput = 3\n'
    config.write_text(first)
    node, _ = serve(nodes, tmp_path / "a", "--config", str(config), file_size=FILE_SIZE)
    restart = "only after a restart: count"
    for text, says, says_back in (
        ('log_level = "debug"\n' + first, "log_level = debug", "log_level = info"),
        ('log_format = "json"\n' + first, "log_format = json", "log_format = text"),
        (first.replace("127.0.0.0/8", "127.0.0.1"), "allow = 127.0.0.1/32", "allow = 127.0.0.0/8"),
        (first.replace("put = 3", "put = 5"), restart, restart),
        ("", f"allow = 127.0.0.0/8, ::1/128; {restart}", f"allow = 127.0.0.0/8; {restart}"),
    ):
        for now, told in ((text, says), (first, says_back)):
            config.write_text(now)
            assert told_by(hang_up(node, says=told)) == told
            again = hang_up(node, says="nothing has changed")
            assert told_by(again) == "nothing has changed"
            assert again.startswith("{") == ("json" in now)


def told_by(line: str) -> str:
    """The text after `SIGHUP: ` in a log line of either format."""
    text = json.loads(line)["message"] if line.startswith("{") else line
    return str(text).partition("SIGHUP: ")[2]


def test_the_command_line_stays(tmp_path: Path, nodes: ExitStack) -> None:
    config = tmp_path / "master.toml"
    config.write_text('log_level = "info"\n')
    options = ("--config", str(config), "--allow", "127.0.0.1", "--log-level", "info")
    node, _ = serve(nodes, tmp_path / "a", *options, file_size=FILE_SIZE)
    config.write_text('log_level = "error"\n[master]\nallow = ["10.0.0.0/8"]\n')
    hang_up(node, says="nothing has changed")


def test_both_ends_take_over_new_certificates_and_keep_the_old_where_the_new_are_bad(tmp_path: Path, nodes: ExitStack) -> None:
    certs = Certificates(tmp_path)
    listening = ("--file-size", "65536", "--listen", "none", "--tls-listen", "127.0.0.1:0", *options(certs.master))
    master = Node(tmp_path / "a.log", "master", "--store", str(tmp_path / "a"), *listening)
    nodes.callback(master.stop)
    address = master.line("tls_listening")
    slave = follow(nodes, tmp_path / "b", address, "--file-size", "65536", *options(certs.slave))

    def shown() -> bytes | None:
        context = certs.bare_context(certs.slave)
        with (
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE_S) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
        ):
            assert isinstance(tls, ssl.SSLSocket)
            return tls.getpeercert(binary_form=True)

    wait_for(lambda: ask(tmp_path / "b")["state"] == "connected")
    old = shown()
    good = certs.master.key.read_bytes()
    certs.master.key.write_bytes(certs.slave.key.read_bytes())
    assert "all stays as it is" in hang_up(master, says="found another's key")
    assert shown() == old
    certs.master.key.write_bytes(good)
    certs.issue("master", "127.0.0.1", "localhost")
    hang_up(master, says="certificates read anew, for new connections")
    assert shown() not in (old, None)
    hang_up(slave, says="certificates read anew, for new connections")
    assert ask(tmp_path / "b")["connects"] == 1  # the existing connection goes on


def test_a_slave_that_cannot_connect_goes_on_too(tmp_path: Path, nodes: ExitStack) -> None:
    slave = follow(nodes, tmp_path / "b", "127.0.0.1:9")
    hang_up(slave, says="nothing has changed")
    assert slave.status is None


def test_a_broker_takes_over_new_certificates_for_its_clients(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-RM-19: on the ports of producers and consumers."""
    files = Certificates(tmp_path).master
    small = ("--file-size", "65536", "--queue-file-size", "2000", "--max-hash-slot-num", "10", "--max-index-num", "40")
    ports = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--min-free-space", "0")
    said = ("--store", str(tmp_path / "a"), *ports, *small, "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    broker = Node(tmp_path / "a.log", "broker", *said)
    nodes.callback(broker.stop)
    there = ("127.0.0.1", int(broker.line("listening").rpartition(":")[2]))

    def shown() -> bytes | None:
        context = ssl.create_default_context(cafile=files.ca)
        with (
            socket.create_connection(there, timeout=PATIENCE_S) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
        ):
            return tls.getpeercert(binary_form=True)

    old = shown()
    again = Certificates(tmp_path)  # another CA, and a certificate of it in the same files
    hang_up(broker, says="certificates read anew, for new connections")
    assert again.master.cert == files.cert
    assert shown() not in (old, None)
