"""A slave broker follows its master's log over TLS: the port, the certificate, and what a listener on the wire sees."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.certificates import Certificates, options
from kit.command_line import Process, Start, invoke, run, status_of
from kit.listener_on_the_wire import ListenerOnTheWire, listening_to, tls_records
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.net.address import parse_address

PORTS = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--min-free-space", 0, "--file-size", 1 << 22)
BODIES = [f"body {number} in the clear" for number in range(20)]


class Group:
    """A name server, and a master with TLS whose HA port for TLS a listener hears; slaves that the test starts."""

    def __init__(self, start: Start, certs: Certificates, directory: Path) -> None:
        self._start, self._certs, self._directory = start, certs, directory
        self.name_server = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", directory / "kv.json").line("listening")
        self.store = directory / "master"
        tls = ("--tls-listen", "127.0.0.1:0", *options(certs.master))
        self.master = start("broker", *PORTS, "--store", self.store, "--namesrv", self.name_server, *tls)
        for name in ("listening", "vip_listening"):
            self.master.line(name)
        self.ha_address = self.master.line("ha_listening")
        self.tls_address = self.master.line("ha_tls_listening")
        wait_for(lambda: "broker-a" in invoke("admin", "clusters", "--namesrv", self.name_server).stdout)

    def slave(self, *words: object) -> Process:
        slave = self._start(
            *("broker", *PORTS, "--store", self._directory / "slave", "--role", "SLAVE", "--broker-id", 1),
            *("--namesrv", self.name_server, "--register-name-server-period", 10_000, *words),
        )
        slave.line("listening")
        return slave

    def send(self) -> None:
        patient = ("--timeout", PATIENCE_S * 1000)
        sent = run("send", "--namesrv", self.name_server, "--topic", "T", "--body", "\n".join(BODIES), *patient, "--json")
        assert json.loads(sent.stdout)["status"] == "SEND_OK", sent.stderr


@pytest.fixture
def group(start: Start, certs: Certificates, tmp_path: Path) -> Group:
    return Group(start, certs, tmp_path)


@pytest.fixture
def wire(group: Group) -> Iterator[ListenerOnTheWire]:
    with listening_to(parse_address(group.tls_address)) as found:
        yield found


def errors(slave: Process) -> list[str]:
    """The warnings and errors that are about the HA link, without their times."""
    found = [re.sub(r"^\S+ ", "", line) for line in slave.log.read_text().splitlines()]
    return [line for line in found if re.match(r"(ERROR|WARNING)\s+rocketmq_ha.impl.net", line)]


def sent_to(wire: ListenerOnTheWire) -> list[bytes]:
    """What came on each connection; a slave that is stopped may leave one without a byte."""
    found = [bytes(heard.from_client) for heard in wire.heard if heard.from_client]
    assert found
    return found


def test_a_slave_broker_follows_its_master_with_tls_alone(
    group: Group, wire: ListenerOnTheWire, certs: Certificates, tmp_path: Path
) -> None:
    """HA-S-100 "MUST connect to that port of its master's host": the name server tells the host, and the port without TLS."""
    group.send()
    slave = group.slave("--tls-master-port", wire.port, *options(certs.slave))
    end = status_of(group.store)["max_offset"]
    wait_for(lambda: status_of(tmp_path / "slave")["max_offset"] == end)
    group.send()
    wait_for(lambda: status_of(tmp_path / "slave")["max_offset"] == status_of(group.store)["max_offset"])
    log = next((tmp_path / "slave" / "commitlog").iterdir()).read_bytes()
    assert log.count(BODIES[-1].encode()) == 2
    followed = status_of(tmp_path / "slave")["following"]
    assert (followed["master"], followed["certificate"]) == (f"127.0.0.1:{wire.port}", "CN=master,OU=HA,O=tests")
    assert "CN=master,OU=HA,O=tests, connected for" in invoke("status", tmp_path / "slave").stdout
    connections = status_of(group.store)["connections"]
    assert [each["certificate"] for each in connections] == ["CN=slave-1,OU=HA,O=tests"]  # nobody came to the plain port
    assert errors(slave) == []
    assert slave.end() == 0
    assert wire.heard
    for heard in wire.heard:
        for data in (bytes(heard.from_client), bytes(heard.from_server)):
            assert tls_records(data)[0] == 22
            assert b"in the clear" not in data


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--tls-ca", "other"),
            "self-signed certificate in certificate chain, expected TLS with a certificate of 127.0.0.1 that our CA has signed"
            " (--tls-ca)",
        ),
        (("--tls-name", "a.example"), "certificate is not valid for 'a.example'"),
    ],
)
def test_a_master_that_is_not_trusted_is_one_clear_line(
    words: tuple[str, str], said: str, group: Group, wire: ListenerOnTheWire, certs: Certificates, tmp_path: Path
) -> None:
    """HA-S-70 "MUST verify that its master's certificate is signed by the CA that it is told, and has the name"."""
    group.send()
    more = ("--tls-ca", certs.other_ca_file) if words[0] == "--tls-ca" else words
    own = ("--tls-cert", certs.slave.cert, "--tls-key", certs.slave.key, "--tls-ca", certs.ca_file)
    slave = group.slave("--tls-master-port", wire.port, *own, *more)
    wait_for(lambda: errors(slave))
    line = errors(slave)[0]
    assert line.startswith(f"ERROR   rocketmq_ha.impl.net.client: cannot connect: 127.0.0.1:{wire.port}: ")
    assert said in line
    status = status_of(tmp_path / "slave")
    assert (status["max_offset"], status["following"]["state"], status["following"]["certificate"]) == (0, "disconnected", None)
    assert status_of(group.store)["slaves"] == 0
    assert slave.end() == 0
    assert all(tls_records(data)[0] == 22 for data in sent_to(wire))
    assert all(b"in the clear" not in heard.from_server for heard in wire.heard)


def test_a_port_without_tls_gets_no_report(group: Group, certs: Certificates) -> None:
    """The plain port: the slave sends a handshake there, and nothing in the clear."""
    with listening_to(parse_address(group.ha_address)) as wire:
        slave = group.slave("--tls-master-port", wire.port, *options(certs.slave))
        wait_for(lambda: errors(slave))
        assert "closed in the handshake, no TLS: is it the port of --tls-listen?" in errors(slave)[0]
        assert slave.end() == 0
    assert all(set(tls_records(data)) == {22} for data in sent_to(wire))
    assert all(heard.from_server == b"" for heard in wire.heard)


def test_sighup_renews_the_certificates_of_a_slave_broker(
    group: Group, wire: ListenerOnTheWire, certs: Certificates, tmp_path: Path
) -> None:
    """HA-M-80: a connection that is made from then on uses the new files."""
    ca, there = tmp_path / "ca.pem", wire.server
    ca.write_bytes(certs.other_ca_file.read_bytes())
    wire.server = ("127.0.0.1", 1)  # nobody listens there: the slave tries again, soon
    own = ("--tls-cert", certs.slave.cert, "--tls-key", certs.slave.key, "--tls-ca", ca)
    slave = group.slave("--tls-master-port", wire.port, *own)
    wait_for(lambda: errors(slave))
    ca.write_bytes(certs.ca_file.read_bytes())
    slave.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "certificates read anew" in slave.log.read_text())
    wire.server = there
    wait_for(lambda: status_of(tmp_path / "slave")["following"]["state"] == "connected")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--tls-master-port", 7),
            "--tls-master-port is given and --tls-cert and --tls-key and --tls-ca are not: expected --tls-cert,"
            " --tls-key and --tls-ca together",
        ),
        (
            ("--tls-name", "m"),
            "--tls-name is given and --tls-master-port is not: expected the port where the master has TLS",
        ),
        (
            ("--tls-master-port", 7, "--profile", "classic", "files"),
            "--profile classic has no TLS, as RocketMQ has none: expected --profile hardened with --tls-*",
        ),
        (
            ("--tls-master-port", 7, "--tls-name", "..", "files"),
            "'..' is no name that a certificate has: expected a host's, or an address",
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    words: tuple[object, ...], said: str, certs: Certificates, tmp_path: Path
) -> None:
    given = [*words[:-1], *options(certs.slave)] if words[-1] == "files" else words
    result = invoke("broker", "--store", tmp_path / "s", *PORTS, "--role", "SLAVE", "--broker-id", 1, *given)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"rocketmq-ha: {said}\n")
    assert not (tmp_path / "s").exists()
