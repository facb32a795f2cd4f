"""TLS between all of ours: a name server, a broker and the commands for them. HA-RM-28."""

import json
import signal
from pathlib import Path

import pytest

from kit.certificates import Certificates
from kit.command_line import Start, invoke, run
from kit.waiting import PATIENCE_S, wait_for

REFUSED = "it ended before any answer: it may demand TLS, or refuse us"


def name_server_of(start: Start, certs: Certificates, tmp_path: Path, *words: object) -> str:
    """The address of a name server that serves nobody without TLS."""
    tls = ("--tls-cert", certs.master.cert, "--tls-key", certs.master.key, "--tls-mode", "enforcing", *words)
    return start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", tmp_path / "kv.json", *tls).line("listening")


@pytest.fixture
def name_server(start: Start, certs: Certificates, tmp_path: Path) -> str:
    return name_server_of(start, certs, tmp_path)


def test_a_broker_and_the_commands_use_tls_for_every_connection(start: Start, certs: Certificates, tmp_path: Path) -> None:
    """Both servers demand it, and a certificate of each client."""
    name_server = name_server_of(start, certs, tmp_path, "--tls-ca", certs.ca_file)
    own = ("--tls-cert", certs.master.cert, "--tls-key", certs.master.key)
    tls = (*own, "--tls-ca", certs.ca_file, "--tls-mode", "enforcing", "--namesrv-tls-ca", certs.ca_file)
    ports = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--namesrv", name_server)
    store = ("--store", tmp_path / "store", "--file-size", 1 << 22, "--min-free-space", 0)
    start("broker", *ports, *store, *tls).line("listening")
    client = ("--namesrv", name_server, "--tls-ca", certs.ca_file)
    known = (*client, "--tls-cert", certs.slave.cert, "--tls-key", certs.slave.key)
    wait_for(lambda: "broker-a" in invoke("admin", "clusters", *known).stdout)
    patient = ("--timeout", PATIENCE_S * 1000)
    sent = run("send", *known, "--topic", "T", "--body", "x" * 100_000, *patient, "--json")
    assert json.loads(sent.stdout)["status"] == "SEND_OK", sent.stderr
    found = run("consume", *known, "--topic", "T", "--from", "first", "--stop-at-end")
    assert json.loads(found.stdout)["body"] == "x" * 100_000, found.stderr
    unknown = invoke("admin", "status", *client)
    assert unknown.exit_code == 2
    assert "expected an end that takes our certificate (--tls-cert)" in unknown.stderr


def test_what_ends_tls_is_one_line(certs: Certificates, name_server: str) -> None:
    untrusted = f"{certs.other_ca_file}"
    for said, expected in (
        (
            ("--tls-ca", untrusted),
            "unable to get local issuer certificate, expected TLS with a certificate of 127.0.0.1 that our CA",
        ),
        (("--tls-ca", certs.ca_file, "--tls-name", "a.example"), "certificate is not valid for 'a.example'"),
        ((), REFUSED),
    ):
        result = run("admin", "topics", "--namesrv", name_server, *said)
        assert (result.returncode, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert expected in line
        assert line.startswith(f"rocketmq-ha: {name_server}: request 206 (GET_ALL_TOPIC_LIST_FROM_NAMESERVER): closed: ")


def test_a_broker_that_may_not_register_says_why(start: Start, certs: Certificates, name_server: str, tmp_path: Path) -> None:
    words = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--namesrv", name_server, "--min-free-space", 0)
    for said, expected in (
        (("--namesrv-tls-ca", certs.other_ca_file), "unable to get local issuer certificate"),
        ((), REFUSED),
    ):
        broker = start("broker", *words, "--store", tmp_path / f"store{len(said)}", "--file-size", 1 << 22, *said)
        broker.line("listening")
        wait_for(lambda broker=broker: "not registered" in broker.log.read_text())  # type: ignore[misc]
        (line, *_) = [each for each in broker.log.read_text().splitlines() if "not registered" in each]
        assert expected in line


def test_sighup_renews_the_ca_of_the_name_servers(start: Start, certs: Certificates, name_server: str, tmp_path: Path) -> None:
    """HA-M-80: a connection that is made from then on uses the new file."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certs.other_ca_file.read_bytes())
    words = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--namesrv", name_server, "--min-free-space", 0)
    tls = ("--namesrv-tls-ca", ca, "--register-name-server-period", 10_000)
    broker = start("broker", *words, *tls, "--store", tmp_path / "store", "--file-size", 1 << 22)
    broker.line("listening")
    wait_for(lambda: "not registered" in broker.log.read_text())
    ca.write_bytes(certs.ca_file.read_bytes())
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "certificates read anew" in broker.log.read_text())
    client = ("--namesrv", name_server, "--tls-ca", certs.ca_file)
    wait_for(lambda: "broker-a" in invoke("admin", "clusters", *client).stdout)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("--tls-cert", "c"), "--tls-cert and --tls-key: expected both, or none"),
        (("--tls-ca", "a", "--tls-key", "k"), "--tls-cert and --tls-key: expected both, or none"),
        (("--tls-cert", "c", "--tls-key", "k"), "--tls-cert is given and --tls-ca is not: expected it for TLS"),
        (("--tls-name", "n"), "--tls-name is given and --tls-ca is not: expected it for TLS"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(said: tuple[str, ...], expected: str) -> None:
    for command in (("send", "--topic", "T", "--body", "x"), ("consume", "--topic", "T"), ("admin", "groups")):
        result = invoke(*command, "--namesrv", "127.0.0.1:1", *said)
        assert (result.exit_code, result.stderr) == (2, f"rocketmq-ha: {expected}\n")


def test_a_file_that_is_not_there_is_named() -> None:
    result = invoke("admin", "groups", "--namesrv", "127.0.0.1:1", "--tls-ca", "/none")
    expected = "rocketmq-ha: /none: No such file or directory: expected the certificate of a CA in PEM (--tls-ca)\n"
    assert (result.exit_code, result.stderr) == (2, expected)
