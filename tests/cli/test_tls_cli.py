"""The TLS options: refusals in one line, and the commands that connect to a master over TLS, as processes."""

import logging
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from kit.certificates import Certificates, options
from kit.command_line import invoke, run, status_of
from kit.waiting import PATIENCE_S, accepted, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net import tls_files
from rocketmq_ha.impl.net.tls_ends import ClientTls, ServerTls
from rocketmq_ha.impl.net.tls_files import TlsFiles, subject_of
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare

ROOT = Path(__file__).resolve().parents[2]

FILE_SIZE = str(1 << 20)


def refusal(store: Path, *arguments: object, command: str = "master") -> str:
    """The one error line of a command that has not created a store."""
    listening = {
        "master": ("--store", store, "--listen", "127.0.0.1:0"),
        "slave": ("--store", store, "--master", "127.0.0.1:9"),
    }
    first = listening.get(command, ("--master", "127.0.0.1:9"))
    result = invoke(command, *first, *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    assert not store.exists()
    return line


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["cert", "key", "ca"])
@pytest.mark.parametrize("command", ["master", "slave", "tail", "doctor"])
def test_one_file_without_the_others_is_named(command: str, missing: str, certs: Certificates, tmp_path: Path) -> None:
    given = {"--tls-cert": certs.slave.cert, "--tls-key": certs.slave.key, "--tls-ca": certs.slave.ca}
    del given[f"--tls-{missing}"]
    words = [word for pair in given.items() for word in pair]
    line = refusal(tmp_path / "s", *words, command=command)
    assert f"--tls-{missing} is not: expected --tls-cert, --tls-key and --tls-ca together" in line


def test_addresses_and_names_without_files_are_refused(certs: Certificates, tmp_path: Path) -> None:
    assert "--tls-listen is given and --tls-cert and --tls-key" in refusal(tmp_path / "s", "--tls-listen", "127.0.0.1:0")
    assert "--tls-name is given and --tls-cert" in refusal(tmp_path / "s", "--tls-name", "m", command="slave")
    assert "--tls-listen is not" in refusal(tmp_path / "s", *options(certs.master))
    assert "expected HOST:PORT" in refusal(tmp_path / "s", "--tls-listen", "nowhere", *options(certs.master))
    assert "--listen none: expected --tls-listen" in refusal(tmp_path / "s", "--listen", "none")
    assert "has no TLS" in refusal(
        tmp_path / "s", "--tls-listen", "127.0.0.1:0", "--profile", "classic", *options(certs.master)
    )
    assert "has no TLS" in refusal(tmp_path / "s", "--profile", "classic", *options(certs.slave), command="slave")
    for name in ("..", "", "a" * 64, ".x"):
        said = refusal(tmp_path / "s", "--tls-name", name, *options(certs.slave), command="slave")
        assert f"{name!r} is no name that a certificate has" in said


def bad_files(certs: Certificates, directory: Path) -> Iterator[tuple[TlsFiles, str]]:
    """Unusable files, and the text of the error about each."""
    good = certs.master
    missing, empty, garbled = directory / "missing.pem", directory / "empty.pem", directory / "garbled.pem"
    empty.touch()
    garbled.write_text(
        "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n", "ascii"
    )
    locked = directory / "locked.key"
    key = serialization.load_pem_private_key(good.key.read_bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"secret")))
    yield (
        TlsFiles(missing, good.key, good.ca),
        f"{missing}: No such file or directory: expected a certificate in PEM (--tls-cert)",
    )
    yield TlsFiles(good.cert, missing, good.ca), f"{missing}: No such file or directory: expected a private key"
    yield TlsFiles(good.cert, good.key, missing), f"{missing}: No such file or directory: expected the certificate of a CA"
    yield TlsFiles(good.cert, good.key, directory), f"{directory}: Is a directory: expected the certificate of a CA"
    yield TlsFiles(empty, good.key, good.ca), f"{empty}: found none, expected a certificate in PEM (--tls-cert)"
    yield TlsFiles(good.key, good.key, good.ca), f"{good.key}: found none, expected a certificate"
    yield TlsFiles(good.cert, good.cert, good.ca), f"{good.cert}: found none, expected a private key"
    yield TlsFiles(good.cert, certs.slave.key, good.ca), f"{certs.slave.key}: found another's key, expected that of {good.cert}"
    yield TlsFiles(garbled, good.key, good.ca), f"{garbled}, {good.key}: "
    yield TlsFiles(good.cert, locked, good.ca), f"{locked}: found a key under a password"
    yield TlsFiles(good.cert, good.key, garbled), f"{garbled}: "
    yield TlsFiles(good.cert, good.key, good.cert), f"{good.cert}: found a certificate that may sign no others"


def test_files_that_cannot_be_used_are_named_in_one_line(certs: Certificates, tmp_path: Path) -> None:
    for files, says in bad_files(certs, tmp_path):
        assert says in refusal(tmp_path / "s", "--tls-listen", "127.0.0.1:0", *options(files))
        assert says in refusal(tmp_path / "s", *options(files), command="slave")


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_private_key_that_everybody_may_read_is_warned_of(
    mode: int, warns: bool, certs: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "own.key"
    shutil.copy(certs.slave.key, key)
    key.chmod(mode)
    with caplog.at_level(logging.WARNING, tls_files.__name__):
        tls_files.warn_of_readers(key)
    assert [
        f"{key}: every user of this machine may read this private key (mode {mode:03o}): chmod 600 it"
    ] * warns == caplog.messages


@pytest.mark.parametrize(
    ("certificate", "subject"),
    [
        ({"subject": ((("commonName", "a"),), (("organizationName", "b c"),))}, "O=b c,CN=a"),
        ({"subject": ((("commonName", "a"), ("userId", "7")),)}, "CN=a+UID=7"),
        ({"subject": ((("commonName", ' a"+,;<>\\ '),),)}, 'CN=\\ a\\"\\+\\,\\;\\<\\>\\\\\\ '),
        ({"subject": ((("commonName", "#1"),),)}, "CN=\\#1"),
        ({"subject": ((("commonName", " "),),)}, "CN=\\ "),
        ({"subject": ((("commonName", "a\x1b[2J\n"),),)}, "CN=a\\1B[2J\\0A"),
        ({"subject": ((("emailAddress", "ü@x"),),)}, "emailAddress=ü@x"),
        (
            {"subject": (), "subjectAltName": (("DirName", ()), ("URI", "spiffe://x/y")), "serialNumber": "1"},
            "URI:spiffe://x/y",
        ),
        ({"subject": (), "serialNumber": "2A"}, "serialNumber=2A"),
    ],
)
def test_a_peer_is_named_by_its_subject_or_its_first_alternative_name(certificate: dict[str, Any], subject: str) -> None:
    """HA-M-74 "the subject of its certificate, as RFC 4514 writes it; where it has none, its first alternative name"."""
    assert subject_of(certificate) == subject


# --- Processes --------------------------------------------------------------------------------------------------------


def start(running: ExitStack, log: Path, *arguments: object) -> Node:
    node = Node(log, *map(str, arguments))
    running.callback(node.stop)
    return node


def test_the_commands_replicate_tail_and_look_over_tls_alone(certs: Certificates, tmp_path: Path, nodes: ExitStack) -> None:
    """HA-M-70, without a plain port; 500 puts that each wait for the slave; and HA-M-74 in `status`."""
    ours, theirs = tmp_path / "m", tmp_path / "s"
    listening = ("--listen", "none", "--tls-listen", "127.0.0.1:0", *options(certs.master))
    put = ("--put", 500, "--await-slaves", 1, "--file-size", FILE_SIZE)
    master = start(nodes, tmp_path / "master.log", "master", "--store", ours, *listening, *put)
    address = master.line("tls_listening")
    follow = ("--store", theirs, "--master", address, "--file-size", FILE_SIZE)
    slave = start(nodes, tmp_path / "slave.log", "slave", *follow, *options(certs.slave))
    # the unwaited one came first, so that the slave had something to acknowledge
    assert master.line("put").split()[:2] == ["500", "unwaited=1"]
    told = status_of(ours)
    assert (told["listen"], told["tls_listen"]) == (None, address)
    assert [conn["certificate"] for conn in told["connections"]] == ["CN=slave-1,OU=HA,O=tests"]
    table = run("status", ours).stdout
    assert f" {address} (TLS)" in table
    assert "CN=slave-1,OU=HA,O=tests" in table
    wait_for(lambda: status_of(theirs)["max_offset"] == told["max_offset"])
    assert status_of(theirs)["certificate"] == "CN=master,OU=HA,O=tests"
    assert "certificate CN=slave-1,OU=HA,O=tests" in (tmp_path / "master.log").read_text("utf-8")

    tailed = run("tail", "--master", address, "--limit", 501, "--body", "none", *options(certs.slave))
    assert (tailed.returncode, len(tailed.stdout.splitlines())) == (0, 501), tailed.stderr
    looked = run("doctor", "--master", address, "--store", theirs, *options(certs.slave))
    assert looked.returncode == 0, looked.stdout
    assert slave.stop() == master.stop() == 0
    with LogReader(ours) as a, LogReader(theirs) as b:
        assert compare(a, b).difference is None


def test_a_new_slave_begins_where_it_is_told_over_tls_alone(certs: Certificates, tmp_path: Path, nodes: ExitStack) -> None:
    """HA-S-70 on every connection of a slave: those that find the first file, and those that compare after a restart."""
    ours, theirs = tmp_path / "m", tmp_path / "s"
    listening = ("--listen", "none", "--tls-listen", "127.0.0.1:0", *options(certs.master))
    put = ("--put", 300, "--sync", 0, "--size", 10_000, "--file-size", FILE_SIZE)
    master = start(nodes, tmp_path / "master.log", "master", "--store", ours, *listening, *put)
    address = master.line("tls_listening")
    assert master.line("put")
    end = status_of(ours)["max_offset"]
    assert end > 2 * int(FILE_SIZE)
    follow = ("--store", theirs, "--master", address, "--file-size", FILE_SIZE, "--from", "min", "--settle", 0)
    for _ in range(2):
        slave = Node(tmp_path / "slave.log", "slave", *map(str, follow), *options(certs.slave))
        try:
            wait_for((theirs / "rocketmq-ha.sock").exists)
            wait_for(lambda: status_of(theirs)["max_offset"] == end and status_of(theirs)["state"] == "connected")
        finally:
            ended = slave.stop()
        assert ended == 0
    with LogReader(ours) as a, LogReader(theirs) as b:
        assert (b.min_offset, compare(a, b).difference) == (0, None)


def test_both_ports_are_logged_and_can_come_from_the_config_file(certs: Certificates, tmp_path: Path, nodes: ExitStack) -> None:
    """The configuration file alone can give the options of TLS."""
    files = certs.master
    config = tmp_path / "ha.toml"
    config.write_text(
        f'store = "{tmp_path / "m"}"\ntls_ca = "{files.ca}"\ntls_cert = "{files.cert}"\ntls_key = "{files.key}"\n'
        f'[master]\nfile_size = {FILE_SIZE}\nlisten = "127.0.0.1:0"\ntls_listen = "127.0.0.1:0"\nput = 10\nsync = 0.0\n',
        "utf-8",
    )
    master = start(nodes, tmp_path / "master.log", "master", "--config", config)
    plain, secret = master.line("listening"), master.line("tls_listening")
    assert plain != secret
    assert master.line("put")
    assert f"{plain}, {secret} (TLS)" in run("status", tmp_path / "m").stdout
    tailed = run("tail", "--master", plain, "--limit", 10)
    assert (tailed.returncode, len(tailed.stdout.splitlines())) == (0, 10), tailed.stderr


def test_a_refused_client_is_told_why_in_one_line(certs: Certificates, tmp_path: Path, nodes: ExitStack) -> None:
    """HA-S-70, HA-M-70: doctor names the remedy, and tail ends with the reason."""
    listening = ("--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", *options(certs.master))
    put = ("--put", 10, "--sync", 0, "--file-size", FILE_SIZE)
    master = start(nodes, tmp_path / "master.log", "master", "--store", tmp_path / "m", *listening, *put)
    plain, secret = master.line("listening"), master.line("tls_listening")
    intruder = certs.issue("nobody", signed_by=certs.other_ca)
    trusting = TlsFiles(certs.slave.cert, certs.slave.key, certs.other_ca_file)
    cases = (
        (secret, options(trusting), "a certificate that does not hold"),
        (secret, (*options(certs.slave), "--tls-name", "elsewhere"), "a certificate that does not hold: Hostname mismatch"),
        # The last eight bytes of a hello may be a report of 0, which is answered (HA-M-2), or of an impossible offset.
        (plain, options(certs.slave), "no TLS"),
    )
    for address, given, says in cases:
        looked = run("doctor", "--master", address, *given)
        assert looked.returncode == 1
        assert any("FINDING  tls" in line and says in line for line in looked.stdout.splitlines()), looked.stdout
        tailed = run("tail", "--master", address, *given)
        assert (tailed.returncode, tailed.stdout) == (2, "")
        assert says in tailed.stderr.splitlines()[-1]
        assert "Traceback" not in tailed.stderr
    for command in ("doctor", "tail"):
        refused = run(command, "--master", secret, *options(intruder))
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr
    assert run("status", tmp_path / "m", "--json").returncode == 0
    assert status_of(tmp_path / "m")["refused_connections"] >= 2
    assert b"Traceback" not in (tmp_path / "master.log").read_bytes()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the example's program is not here")
def test_the_commands_of_the_example_make_certificates_that_hold(tmp_path: Path) -> None:
    """Each is valid for its own end only: a slave's is no master's, nor the reverse (HA-M-70 "valid for a client")."""
    text = (ROOT / "examples" / "tls.md").read_text("utf-8")
    script = text.partition("```sh\n")[2].partition("```")[0]
    done = subprocess.run(
        ["sh", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    ca = tmp_path / "ca.pem"
    master, slave = (TlsFiles(tmp_path / f"{name}.pem", tmp_path / f"{name}.key", ca) for name in ("master", "slave-1"))
    for name in ("127.0.0.1", "broker-a.example"):
        assert shaken(master, slave, name) == ("CN=slave-1,O=Example", "CN=broker-a,O=Example")
    broker = TlsFiles(tmp_path / "broker-1.pem", tmp_path / "broker-1.key", ca)
    assert shaken(broker, broker, "broker-1.example") == ("CN=broker-1,O=Example", "CN=broker-1,O=Example")
    for one in (master, slave):
        with pytest.raises(PeerViolation, match="certificate purpose"):
            shaken(one, one, "127.0.0.1")


def shaken(master: TlsFiles, slave: TlsFiles, name: str) -> tuple[str, str]:
    """Shake hands. Returns: the name that each end finds for the other. Raises: PeerViolation."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        sock = accepted(listener)
        with sock:
            sock.setblocking(False)
            end = ServerTls(listener, master).wrap(sock, "slave")
            until = time.monotonic() + PATIENCE_S
            theirs = ClientTls(slave, name).open(client, "master", "h", lambda: end.handshake() and False)
            while not end.handshake():
                assert time.monotonic() < until
                end.wait(10)
            assert theirs is not None
            return end.subject, theirs.subject


def test_the_key_is_warned_of_as_the_command_starts(certs: Certificates, tmp_path: Path) -> None:
    key = tmp_path / "open.key"
    shutil.copy(certs.slave.key, key)
    key.chmod(0o644)
    files = TlsFiles(certs.slave.cert, key, certs.slave.ca)
    found = run("doctor", "--master", "127.0.0.1:1", *options(files))
    assert f"{key}: every user of this machine may read this private key (mode 644)" in found.stderr
