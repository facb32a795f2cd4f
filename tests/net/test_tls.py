"""TLS: the clauses of chapter 10 on a master that listens with TLS, and on a slave that connects with it."""

import contextlib
import gc
import logging
import random
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.certificates import Certificates
from kit.children import Child
from kit.command_line import COMMAND
from kit.files import log_files
from kit.limits import Clock
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.app.run_master import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net import tls as tls_module
from rocketmq_ha.impl.net import tls_ends
from rocketmq_ha.impl.net.back_off import LAST_BACK_OFF_S
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import HANDSHAKES_TURN, Master
from rocketmq_ha.impl.net.tls import PIECE, TlsSocket
from rocketmq_ha.impl.net.tls_ends import ClientTls, ServerTls
from rocketmq_ha.impl.net.tls_files import TlsFiles, server_context
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

ROOT = Path(__file__).resolve().parents[2]

MIB = 1024 * 1024


class Ends:
    """A master with both ports, polled by the test; slaves in threads; other clients."""

    def __init__(self, directory: Path, resources: ExitStack, certs: Certificates, file_size: int) -> None:
        self._directory, self.resources, self._certs, self._file_size = directory, resources, certs, file_size

    def open_log(self, name: str) -> CommitLog:
        return self.resources.enter_context(CommitLog.open(self._directory / name, file_size=self._file_size))

    def serve(
        self,
        limits: Limits | None = None,
        size: int = 0,
        files: TlsFiles | None = None,
        send_buffer: int | None = None,
        **settings_by_name: int,
    ) -> Master:
        log = self.open_log("m")
        body = random.Random(size).randbytes(MIB)
        while log.max_offset < size:
            log.append_data(log.max_offset, [memoryview(body)[: min(MIB, size - log.max_offset)]])
        tls_listener = listen("127.0.0.1", 0)
        if send_buffer:
            tls_listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        settings = Settings(self._file_size, master_read_buffer_size=MASTER_READ_BUFFER_SIZE, **settings_by_name)
        tls = ServerTls(tls_listener, files or self._certs.master)
        master = Master(log, listen("127.0.0.1", 0), settings, HARDENED, limits or Limits(), tls)
        self.resources.callback(master.close)
        return master

    def follow(
        self, port: int, files: TlsFiles | None, name: str = "s", tls_name: str = "127.0.0.1"
    ) -> tuple[CommitLog, Follower]:
        log, stopped = self.open_log(name), threading.Event()
        tls = ClientTls(files, tls_name) if files else None
        follower = Follower(log, "127.0.0.1", port, Settings(self._file_size), HARDENED, tls=tls)
        thread = threading.Thread(target=follower.run, args=(stopped.is_set,), name=name, daemon=True)

        def stop() -> None:
            stopped.set()
            await_end(thread)

        thread.start()
        self.resources.callback(stop)
        return log, follower


Make = Callable[..., Ends]


@pytest.fixture
def ends(tmp_path: Path, certs: Certificates) -> Iterator[Make]:
    with ExitStack() as resources:
        yield lambda file_size=4 * MIB: Ends(tmp_path, resources, certs, file_size)


def tls_port(master: Master) -> int:
    assert master.tls_address
    return master.tls_address[1]


def plain_connect(address: tuple[str, int] | None) -> socket.socket:
    assert address
    sock = socket.create_connection(address, timeout=PATIENCE_S)
    sock.settimeout(PATIENCE_S)
    return sock


class Stranger:
    """A TLS client from the standard library; the master is polled while the client acts."""

    def __init__(self, master: Master, context: ssl.SSLContext, receive_buffer: int | None = None) -> None:
        self.master = master
        raw = socket.socket()
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        assert master.tls_address
        raw.connect(master.tls_address)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setblocking(False)
        self.sock = context.wrap_socket(raw, server_hostname="127.0.0.1", do_handshake_on_connect=False)

    def turn(self, step: Callable[[], Any]) -> Any:
        """Retry a step until it need not wait, and poll the master meanwhile. Returns: the step's result."""
        until = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < until, "waited in vain"
            try:
                return step()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.master.poll(5)

    def shake_hands(self) -> "Stranger":
        self.turn(self.sock.do_handshake)
        return self

    def receive(self, size: int) -> bytes:
        data = bytearray()

        def some() -> bytes:
            return bytes(self.sock.recv(size - len(data)))

        while len(data) < size:
            part = self.turn(some)
            assert part, f"the end after {len(data)} bytes of {size}"
            data += part
        return bytes(data)

    def close(self) -> None:
        self.sock.close()


def is_closed(sock: socket.socket) -> bool:
    """Return True if the master has closed the connection. Bytes that it sent before are skipped."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


# --- The same wire inside ---------------------------------------------------------------------------------------------


class Splitter:
    """A proxy between a slave and a port. It passes bytes on in pieces of any size, and sometimes cuts the connection."""

    def __init__(self, port: int, seed: int, cuts: int) -> None:
        self._port, self._random, self.cuts_left = port, random.Random(seed), cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._listener.settimeout(0.05)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        await_end(self._thread)
        self._listener.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                slave = accepted(self._listener)
            except TimeoutError:
                continue
            with (
                slave,
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S) as master,
            ):
                for sock in (slave, master):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._carry(slave, master)

    def _carry(self, slave: socket.socket, master: socket.socket) -> None:
        left = self._random.randint(1, 400_000) if self.cuts_left else None
        while not self._closed.is_set():
            for sock in select.select([slave, master], [], [], 0.05)[0]:
                data = sock.recv(self._random.choice((1, 7, 100, 5000, 20000)))
                if not data:
                    return
                (master if sock is slave else slave).sendall(data)
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        self.cuts_left -= 1
                        return


@pytest.mark.parametrize("seed", [1, 2])
def test_replication_is_byte_identical_however_the_stream_is_cut(
    ends: Make, certs: Certificates, seed: int, tmp_path: Path
) -> None:
    """HA-M-71 "how they are divided into TLS records"; HA-S-72 "divided into TLS records"."""
    both = ends()
    master = both.serve(size=2 * MIB)
    splitter = Splitter(tls_port(master), seed, cuts=5)
    both.resources.callback(splitter.close)
    replica, follower = both.follow(splitter.port, certs.slave)
    wait_for(lambda: replica.max_offset == master.service.log.max_offset and not splitter.cuts_left, lambda: grow(master))
    wait_for(lambda: replica.max_offset == master.service.log.max_offset, lambda: master.poll(10))
    assert follower.connects + follower.failed_connects >= 6  # connections cut during the handshake count as failed
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s")


def grow(master: Master) -> None:
    """Add messages, so that there are bytes to cut."""
    if master.service.log.max_offset < 3 * MIB:
        master.put(Message("topic", bytes(5000)), wait=False)
    master.poll(5)


def test_a_sync_put_is_acknowledged_over_tls(ends: Make, certs: Certificates) -> None:
    """HA-M-71: the reports arrive, and HA-G-1 holds."""
    both = ends()
    master = both.serve()
    both.follow(tls_port(master), certs.slave)
    wait_for(master.service.count_connected, lambda: master.poll(10))
    master.put(Message("topic", b"first"), wait=False)
    wait_for(master.service.count_slaves, lambda: master.poll(10))
    requests = [master.put(Message("topic", b"%d" % index), wait=True) for index in range(200)]
    wait_for(lambda: all(request.status for request in requests), lambda: master.poll(10))
    assert {request.status for request in requests} == {PutMessageStatus.PUT_OK}


def test_replicas_are_told_apart_by_their_certificates(ends: Make, certs: Certificates) -> None:
    """HA-G-31 "the subject of its certificate under TLS": two certificates at one address count twice, one certificate on two
    connections counts once.
    """
    both = ends()
    master = both.serve(replicas=2)
    for name in ("s", "t"):
        both.follow(tls_port(master), certs.slave, name)
    wait_for(lambda: master.service.count_connected() == 2, lambda: master.poll(10))
    master.put(Message("topic", b"first"), wait=False)
    wait_for(lambda: master.service.count_slaves() == 2, lambda: master.poll(10))
    assert master.service.count_replicas() == 1
    assert master.put(Message("topic", b"second"), wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    both.follow(tls_port(master), certs.issue("slave-2", "slave-2.example"), "u")
    wait_for(lambda: master.service.count_replicas() == 2, lambda: master.poll(10))
    request = master.put(Message("topic", b"third"), wait=True)
    wait_for(lambda: request.status, lambda: master.poll(10))
    assert request.status is PutMessageStatus.PUT_OK
    assert {conn.replica for conn in master.service.connections} == set(master.subjects.values())


def test_a_large_log_is_caught_up_with_on_both_ports_at_once(ends: Make, certs: Certificates, tmp_path: Path) -> None:
    """HA-M-70 "MUST listen there too": 40 MiB, to a slave with TLS and one without."""
    both = ends(64 * MIB)
    master = both.serve(size=40 * MIB)
    (secret, _), (plain, _) = both.follow(tls_port(master), certs.slave, "s"), both.follow(master.address[1], None, "p")
    end = master.service.log.max_offset
    wait_for(lambda: secret.max_offset == plain.max_offset == end, lambda: master.poll(10))
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s") == log_files(tmp_path / "p")


def test_reports_of_more_than_a_turn_in_few_records_are_all_read(ends: Make, certs: Certificates) -> None:
    """HA-M-71: bytes already inside OpenSSL do not make the socket readable; the last report must still be read."""
    master = ends().serve(size=10_000)
    stranger = Stranger(master, certs.bare_context(certs.slave)).shake_hands()
    stranger.turn(lambda: stranger.sock.send(REPORT.pack(1)))
    stranger.receive(HEADER.size + 9_999)
    reports = b"".join(REPORT.pack(1 + at) for at in range(3000))
    assert stranger.turn(lambda: stranger.sock.send(reports)) == len(reports)
    (conn,) = master.service.connections
    wait_for(lambda: conn.slave_ack_offset == 3000, lambda: master.poll(5))
    stranger.close()


def test_what_the_socket_has_not_taken_goes_out_though_nothing_follows(ends: Make, certs: Certificates) -> None:
    """HA-M-71: the end of an idle log is sent, without a heartbeat to push it out."""
    both = ends()
    master = both.serve(size=14_000, send_buffer=4096, ha_send_heartbeat_interval_ms=10**6, ha_housekeeping_interval_ms=10**7)
    stranger = Stranger(master, certs.bare_context(certs.slave), receive_buffer=4096).shake_hands()
    stranger.turn(lambda: stranger.sock.send(REPORT.pack(1)))
    (link,) = master._links.values()
    wait_for(lambda: link.conn.has_all, lambda: master.poll(5))
    assert master._tls[next(iter(master._links))].wants_write
    assert len(stranger.receive(HEADER.size + 13_999)) == HEADER.size + 13_999
    stranger.close()


def test_the_end_of_a_connection_is_no_refusal(ends: Make, certs: Certificates) -> None:
    master = ends().serve(size=1000)
    stranger = Stranger(master, certs.bare_context(certs.slave)).shake_hands()
    stranger.turn(lambda: stranger.sock.send(REPORT.pack(0)))
    stranger.receive(HEADER.size)
    stranger.close()
    wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    assert master.limiter.refused.total() == 0


# --- Who is let in ----------------------------------------------------------------------------------------------------


def no_certificate(certs: Certificates) -> ssl.SSLContext:
    return certs.bare_context()


def of_another_ca(certs: Certificates) -> ssl.SSLContext:
    return certs.bare_context(certs.issue("intruder", signed_by=certs.other_ca))


def expired(certs: Certificates) -> ssl.SSLContext:
    return certs.bare_context(certs.issue("old", expired=True))


def too_old_tls(certs: Certificates) -> ssl.SSLContext:
    context = certs.bare_context(certs.slave)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def only_tls_1_2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize(
    ("made", "version", "says"),
    [
        (no_certificate, 1.2, "no certificate"),
        (no_certificate, 1.3, "no certificate"),
        (of_another_ca, 1.2, "a certificate that does not hold: unable to get local issuer certificate"),
        (of_another_ca, 1.3, "a certificate that does not hold: unable to get local issuer certificate"),
        (expired, 1.2, "a certificate that does not hold: certificate has expired"),
        (expired, 1.3, "a certificate that does not hold: certificate has expired"),
        (too_old_tls, 1.1, "unsupported protocol"),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_peer_without_a_valid_certificate_is_sent_nothing(
    made: Callable[[Certificates], ssl.SSLContext],
    version: float,
    says: str,
    ends: Make,
    certs: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HA-M-70 "MUST NOT send a byte of its log there to a peer that has not proven a certificate"."""
    master = ends().serve(size=1000)
    context = only_tls_1_2(made(certs)) if version == 1.2 else made(certs)
    stranger = Stranger(master, context)

    def tries() -> bytes:
        stranger.sock.do_handshake()
        stranger.sock.send(REPORT.pack(0))
        return bytes(stranger.sock.recv(1 << 16))

    with contextlib.suppress(OSError):
        assert stranger.turn(tries) == b""
    wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    assert master.limiter.refused == {"tls": 1}
    assert not master.subjects
    (line,) = (line for line in caplog.messages if "found" in line)
    assert says in line
    assert "(HA-M-70)" in line


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_peer_with_a_valid_certificate_is_served_from_tls_1_2_on(
    version: ssl.TLSVersion, ends: Make, certs: Certificates
) -> None:
    """HA-M-70 "in TLS 1.2 or later"; HA-M-74 "the subject of its certificate, as RFC 4514 writes it"."""
    master = ends().serve(size=1000)
    context = certs.bare_context(certs.slave)
    context.minimum_version = context.maximum_version = version
    stranger = Stranger(master, context).shake_hands()
    stranger.turn(lambda: stranger.sock.send(REPORT.pack(1)))
    assert HEADER.unpack(stranger.receive(HEADER.size + 999)[: HEADER.size]) == (1, 999)
    (conn,) = master.service.connections
    assert master.subjects == {conn: "CN=slave-1,OU=HA,O=tests"}
    stranger.close()
    wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    assert not master.subjects


def test_nobody_is_known_before_the_handshake_is_done(ends: Make, certs: Certificates) -> None:
    """HA-M-74 "MUST NOT be known before the handshake is done"; and a peer without TLS has no name."""
    both = ends()
    master = both.serve()
    stranger, plain = Stranger(master, certs.bare_context(certs.slave)), plain_connect(master.plain_address)
    with pytest.raises(ssl.SSLWantReadError):
        stranger.sock.do_handshake()  # sends its hello; the answer is not read yet
    wait_for(lambda: len(master.service.connections) == 2, lambda: master.poll(5))
    wait_for(lambda: any(tls._fetched for tls in master._tls.values()), lambda: master.poll(5))
    assert not master.subjects
    stranger.shake_hands()
    wait_for(lambda: master.subjects, lambda: master.poll(5))
    assert list(master.subjects.values()) == ["CN=slave-1,OU=HA,O=tests"]
    stranger.close()
    plain.close()


@pytest.mark.parametrize("what", ["another CA", "expired", "another name"])
def test_a_slave_sends_nothing_to_a_master_without_a_valid_certificate(
    what: str, ends: Make, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-S-70 "MUST verify that its master's certificate is signed by the CA that it is told, and has the name"."""
    files = {
        "another CA": lambda: certs.issue("false", "127.0.0.1", signed_by=certs.other_ca),
        "expired": lambda: certs.issue("late", "127.0.0.1", expired=True),
        "another name": lambda: certs.issue("elsewhere", "10.9.8.7", "localhost"),
    }[what]()
    both = ends()
    master = both.serve(size=1000, files=files)
    reported: list[int] = []

    def turn() -> None:
        master.poll(5)
        reported.extend(conn.slave_request_offset for conn in master.service.connections)

    with caplog.at_level(logging.INFO, "rocketmq_ha.impl.net.client"):
        replica, follower = both.follow(tls_port(master), certs.slave)
        wait_for(lambda: follower.failed_connects, turn)
    assert replica.max_offset == 0
    assert set(reported) <= {-1}
    assert follower.connects == 0
    assert any("a certificate that does not hold" in line and "(HA-S-70)" in line for line in caplog.messages)


def test_the_name_may_be_another_than_the_address(ends: Make, certs: Certificates) -> None:
    """HA-S-70 "has the name that it is told"."""
    both = ends()
    master = both.serve(size=1000)
    replica, follower = both.follow(tls_port(master), certs.slave, tls_name="localhost")
    wait_for(lambda: replica.max_offset == 1000, lambda: master.poll(10))
    assert follower.master_subject == "CN=master,OU=HA,O=tests"


def test_a_slave_that_its_master_refuses_says_so(ends: Make, certs: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-70, from the other end: in TLS 1.3 the refusal comes after the slave's own half of the handshake."""
    both = ends()
    master = both.serve(size=1000)
    replica, follower = both.follow(tls_port(master), certs.issue("intruder-2", signed_by=certs.other_ca))
    wait_for(lambda: follower.last_close_reason, lambda: master.poll(5))
    assert replica.max_offset == 0
    if follower.last_close_reason == "tls":  # else the master's reset arrived before its alert was read
        assert any("its alert: unknown ca" in line for line in caplog.messages)


def test_a_slave_without_tls_on_the_tls_port_is_told_what_to_give(ends: Make, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-87 "SHOULD send a TLS alert before it closes"; the slave then says so, and uses its longest pause."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    both = ends()
    master = both.serve(size=1000)
    replica, follower = both.follow(tls_port(master), None)
    wait_for(lambda: follower.last_close_reason, lambda: master.poll(5))
    wait_for(lambda: any("connection closed" in line for line in caplog.messages))
    words = "the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca, or the port of its --listen"
    assert any(line.endswith(f"connection closed: {words}") for line in caplog.messages)
    assert follower.last_close == words
    assert any("found bytes that are no TLS" in line and "--tls-cert" in line for line in caplog.messages)
    assert (replica.max_offset, follower.back_off.next_s) == (0, LAST_BACK_OFF_S)


def test_a_slave_with_tls_on_the_plain_port_is_told_which_port(
    ends: Make, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-86 "begins as a TLS handshake does (0x16 0x03), the master MUST close the connection, and say so"."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    both = ends()
    master = both.serve(size=1000)
    assert master.plain_address
    replica, follower = both.follow(master.plain_address[1], certs.slave)
    # The slave may have connected again by the time that the first failure is seen.
    wait_for(lambda: follower.failed_connects and not master.service.connections, lambda: master.poll(5))
    port = f"the port for TLS: that is 127.0.0.1:{tls_port(master)}"
    assert any("a TLS handshake on the plain port, expected a report" in line and port in line for line in caplog.messages)
    assert any("is it the port of --tls-listen?" in line for line in caplog.messages)
    assert replica.max_offset == 0


def test_a_handshake_that_ends_like_a_report_acknowledges_nothing(ends: Make) -> None:
    """HA-M-86: the last eight bytes of a handshake may equal an offset of the log."""
    master = ends().serve(size=1000)
    with plain_connect(master.plain_address) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00" + bytes(3) + REPORT.pack(500))
        with contextlib.suppress(ConnectionError):
            wait_for(lambda: select.select([sock], [], [], 0)[0], lambda: master.poll(5))
            assert sock.recv(100) == b""
    assert master.service.connections == []


@pytest.mark.parametrize("command", ["doctor", "tail"])
def test_a_reader_without_tls_on_the_tls_port_is_told_what_to_give(command: str, ends: Make) -> None:
    master = ends().serve(size=1000)
    arguments = [*COMMAND, command, "--master", f"127.0.0.1:{tls_port(master)}"]
    with Child(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(lambda: process.poll() is not None, lambda: master.poll(5))
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == {"doctor": 1, "tail": 2}[command]
    assert "the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca" in said


def hostile_master(listener: socket.socket, certs: Certificates, sends: bytes, encrypted: bool, done: threading.Event) -> None:
    """A master with a valid certificate: it reads the first report, sends hostile bytes, and waits until the slave has gone."""
    sock = accepted(listener)
    sock.settimeout(PATIENCE_S)
    with server_context(certs.master).wrap_socket(sock, server_side=True) as tls:
        tls.recv(REPORT.size)
        if encrypted:
            tls.sendall(sends)
        else:
            socket.socket.sendall(tls, sends)
        with contextlib.suppress(OSError):
            while tls.recv(1 << 16):
                pass
    done.set()


@pytest.mark.parametrize(
    ("sends", "encrypted", "reason", "end"),
    [
        (HEADER.pack(0, 10) + bytes(10) + HEADER.pack(11, 10), True, "offset", 10),
        (HEADER.pack(0, -1), True, "frame", 0),
        (b"\x17\x03\x03\x00\x20" + bytes(32), False, "tls", 0),
        (HEADER.pack(0, 100) + bytes(50), False, "tls", 0),
    ],
)
def test_a_proven_master_that_breaks_the_wire_is_left_as_any_other(
    sends: bytes, encrypted: bool, reason: str, end: int, ends: Make, certs: Certificates
) -> None:
    """HA-S-72 "A slave MUST NOT depend on how": HA-S-4 and HA-S-11 hold inside TLS; bytes outside of TLS are no frames."""
    both, done = ends(), threading.Event()
    listener = both.resources.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.settimeout(PATIENCE_S)
    thread = threading.Thread(target=hostile_master, args=(listener, certs, sends, encrypted, done), daemon=True)
    thread.start()
    replica, follower = both.follow(listener.getsockname()[1], certs.slave)
    wait_for(lambda: follower.last_close_reason)
    assert (follower.last_close_reason, replica.max_offset) == (reason, end)
    await_end(thread)
    assert done.is_set()


# --- Peers without TLS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [REPORT.pack(0), b"GET / HTTP/1.1\r\n\r\n", random.Random(3).randbytes(70_000)])
def test_bytes_that_are_no_tls_close_the_connection(data: bytes, ends: Make) -> None:
    """HA-M-70: no peer without TLS gets a byte of the log on that port."""
    both = ends()
    master = both.serve(size=1000)
    with plain_connect(master.tls_address) as sock:
        master.poll(5)
        with contextlib.suppress(OSError):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    assert master.service.count_connected() == 0


def test_a_hello_on_the_plain_port_closes_the_connection(ends: Make, certs: Certificates) -> None:
    """HA-M-2 takes its last eight bytes for a report, of 0 or of an impossible offset; the slave finds no TLS."""
    both = ends()
    master = both.serve(size=1000)
    replica, follower = both.follow(master.address[1], certs.slave)
    wait_for(lambda: follower.failed_connects, lambda: master.poll(5))
    assert (replica.max_offset, follower.connects) == (0, 0)


# --- Time, turns and memory -------------------------------------------------------------------------------------------


def test_a_handshake_that_stalls_is_closed_in_time_and_holds_nobody_up(
    ends: Make, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-M-72 "MUST NOT hold up the loop, and its time is part of report_deadline"."""
    clock = Clock()
    monkeypatch.setattr(server_module, "clock_ms", clock)
    master = ends().serve(Limits(report_deadline_ms=10_000), size=1000)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = certs.bare_context(certs.slave).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    hello = outgoing.read()
    with plain_connect(master.tls_address) as silent, plain_connect(master.tls_address) as stalled:
        stalled.sendall(hello[: len(hello) // 2])
        done = Stranger(master, certs.bare_context(certs.slave)).shake_hands()  # it sends nothing more
        slave = Stranger(master, certs.bare_context(certs.slave)).shake_hands()
        slave.turn(lambda: slave.sock.send(REPORT.pack(1)))
        slave.receive(HEADER.size + 999)
        for _ in range(21):
            clock.ms += 500  # no pause (HA-T-21)
            master.poll(5)
        assert [is_closed(sock) for sock in (silent, stalled, done.sock, slave.sock)] == [True, True, True, False]
        done.close()
        slave.close()


def test_a_turn_goes_on_with_a_few_handshakes(ends: Make, certs: Certificates) -> None:
    """HA-M-73 "In one turn of its loop a master MUST go on with no more than 4 handshakes"; the others come later."""
    master = ends().serve()
    strangers = [Stranger(master, certs.bare_context(certs.slave)) for _ in range(3 * HANDSHAKES_TURN)]
    wait_for(lambda: len(master.service.connections) == len(strangers), lambda: master.poll(5))
    for stranger in strangers:
        with pytest.raises(ssl.SSLWantReadError):
            stranger.sock.do_handshake()

    def answered() -> int:
        return sum(bool(select.select([stranger.sock], [], [], 0)[0]) for stranger in strangers)

    seen = [0]
    while seen[-1] < len(strangers):
        assert len(seen) < 1000, seen
        master.poll(5)
        seen.append(answered())
        assert seen[-1] - seen[-2] <= HANDSHAKES_TURN == 4
    for stranger in strangers:
        stranger.close()


def test_a_handshake_that_is_too_long_is_closed(ends: Make, certs: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-73 "MUST close one that takes more than 32 KiB": an endless chain of certificates, closed before any is verified."""
    files = certs.issue("many", signed_by=certs.other_ca)
    size = len(ssl.PEM_cert_to_DER_cert(certs.other_ca_file.read_text("ascii")))
    files.cert.write_bytes(files.cert.read_bytes() + certs.other_ca_file.read_bytes() * (2 * tls_module.HANDSHAKE_SIZE // size))
    assert tls_module.HANDSHAKE_SIZE == 32 * 1024
    master = ends().serve(size=1000)
    stranger = Stranger(master, certs.bare_context(files))
    with contextlib.suppress(OSError):
        stranger.turn(stranger.sock.do_handshake)
    wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    assert "a handshake of more than 32768 bytes" in caplog.text
    stranger.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the ssl module sends no key updates, and openssl is not here")
def test_key_updates_without_end_are_closed(ends: Make, certs: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-73 "of which less than a 32nd part is data MUST be closed": each line that begins with k is a key update."""
    both = ends()
    master = both.serve(size=1000)
    connect = ("openssl", "s_client", "-connect", f"127.0.0.1:{tls_port(master)}", "-cert", certs.slave.cert)
    yes = Child(["yes", "k"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    client = Child(
        [*connect, "-key", certs.slave.key, "-CAfile", certs.ca_file],
        stdin=yes.stdout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: master.subjects, lambda: master.poll(5))
        wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    finally:
        for process in (client, yes):
            process.kill()
            process.wait(PATIENCE_S)
    assert "of TLS with 0 of data in them" in caplog.text


def test_reports_in_single_bytes_are_data_enough(ends: Make, certs: Certificates) -> None:
    """HA-M-73: an honest peer may send every byte in its own record, for ever."""
    master = ends().serve(size=1000)
    stranger = Stranger(master, certs.bare_context(certs.slave)).shake_hands()
    for byte in REPORT.pack(0) * 600:
        stranger.turn(lambda byte=byte: stranger.sock.send(bytes((byte,))))
    (tls,) = master._tls.values()
    wait_for(lambda: tls._given == 4800, lambda: master.poll(5))
    assert tls._fetched > 2 * tls_module._BARE - 32 * 1024
    assert len(master.service.connections) == 1
    stranger.close()


def test_half_open_and_half_closed_connections_end(ends: Make, certs: Certificates) -> None:
    """HA-M-13 over TLS: the end of the stream, TLS's own end of it, and a reset."""
    master = ends().serve(size=1000)
    three = [Stranger(master, certs.bare_context(certs.slave)).shake_hands() for _ in range(3)]
    wait_for(lambda: len(master.subjects) == 3, lambda: master.poll(5))
    socket.socket.shutdown(three[0].sock, socket.SHUT_WR)
    with pytest.raises(ssl.SSLWantReadError):
        three[1].sock.unwrap()  # it sends its close_notify, the socket stays open
    wait_for(lambda: len(master.service.connections) == 1, lambda: master.poll(5))
    three[2].sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    three[2].close()
    wait_for(lambda: not master.service.connections, lambda: master.poll(5))
    for stranger in three[:2]:
        stranger.close()


def test_a_slave_gives_up_a_handshake_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, ends: Make, certs: Certificates
) -> None:
    """HA-S-71 "A TLS handshake that is not finished after 5 s MUST be given up": a master that accepts and says nothing."""
    assert tls_ends.HANDSHAKE_TIMEOUT_S == 5
    monkeypatch.setattr(tls_ends, "HANDSHAKE_TIMEOUT_S", 0.2)
    both = ends()
    mute = both.resources.enter_context(socket.create_server(("127.0.0.1", 0)))
    replica, follower = both.follow(mute.getsockname()[1], certs.slave)
    wait_for(lambda: follower.failed_connects)
    assert (replica.max_offset, follower.connects) == (0, 0)


def test_the_caps_count_both_ports_together(ends: Make) -> None:
    """HA-M-75 "MUST hold on both ports together"; a refused peer is closed without a handshake."""
    master = ends().serve(Limits(max_connections=2))
    with plain_connect(master.plain_address) as plain, plain_connect(master.tls_address) as secret:
        for _ in range(3):
            master.poll(5)
        with plain_connect(master.tls_address) as third, plain_connect(master.plain_address) as fourth:
            for _ in range(3):
                master.poll(5)
            assert [is_closed(sock) for sock in (plain, secret, third, fourth)] == [False, False, True, True]
    assert master.limiter.refused == {"max_connections": 2}


def test_a_turn_accepts_a_few_on_both_ports_together(ends: Make) -> None:
    """HA-M-75, of HA-M-54 "MUST accept no more than 16 connections": eight on each port, whatever comes on the other."""
    master = ends().serve()
    socks = [plain_connect(address) for _ in range(20) for address in (master.plain_address, master.tls_address)]
    seen = [0]
    while seen[-1] < len(socks):
        assert len(seen) < 1000, seen
        master.poll(5)
        seen.append(len(master.service.connections))
        assert seen[-1] - seen[-2] <= 16
    assert seen[1] == 16
    for sock in socks:
        sock.close()


def test_a_peer_that_reads_nothing_is_closed(ends: Make, certs: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-M-53 over TLS: HA-M-76 "a socket that has not taken all of these bytes has taken none"."""
    clock = Clock()
    monkeypatch.setattr(server_module, "clock_ms", clock)
    master = ends().serve(Limits(write_stall_deadline_ms=5_000), size=3 * MIB, send_buffer=4096)
    stranger = Stranger(master, certs.bare_context(certs.slave), receive_buffer=4096).shake_hands()
    stranger.turn(lambda: stranger.sock.send(REPORT.pack(1)))
    wait_for(lambda: next(iter(master._links.values())).blocked_since_ms, lambda: master.poll(5))
    (link,) = master._links.values()
    assert not link.conn.close_reason

    def later() -> None:  # the system may accept some bytes late
        clock.ms += 5_000 + server_module.TICK_MS
        stranger.sock.send(REPORT.pack(1))  # so that it is not silent
        master.poll(5)

    with contextlib.suppress(OSError):
        wait_for(lambda: link.conn.close_reason, later)
    assert link.conn.close_reason == "write_stall"
    stranger.close()


def test_a_connection_costs_little_memory_of_ours(ends: Make, certs: Certificates) -> None:
    """HA-M-75, HA-M-55 "more than 64 KiB of memory": for a peer that reports, and reads nothing.

    OpenSSL's memory is not counted.
    """
    count = 20
    master = ends().serve(size=3 * MIB, send_buffer=4096)
    context = certs.bare_context(certs.slave)
    strangers = [Stranger(master, context, receive_buffer=4096).shake_hands()]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        more = [Stranger(master, context, receive_buffer=4096).shake_hands() for _ in range(count)]
        for stranger in more:
            stranger.turn(lambda stranger=stranger: stranger.sock.send(REPORT.pack(0) * 500 + bytes(7)))
        wait_for(
            lambda: sum(link.blocked_since_ms is not None for link in master._links.values()) == count, lambda: master.poll(5)
        )
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count  # includes the memory of the test's own clients
    finally:
        tracemalloc.stop()
    assert MASTER_READ_BUFFER_SIZE < each < 64 * 1024
    for stranger in strangers + more:
        stranger.close()


def test_sessions_are_not_hoarded(ends: Make, certs: Certificates) -> None:
    """HA-M-75: a peer that connects repeatedly with TLS 1.2, and closes properly, does not fill OpenSSL's session cache."""
    tls = ServerTls(ends().resources.enter_context(socket.create_server(("127.0.0.1", 0))), certs.master)
    context = only_tls_1_2(certs.bare_context(certs.slave))
    context.options |= ssl.OP_NO_TICKET
    most = 0
    for _ in range(3 * tls_ends._SESSIONS):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for sock in (ours, theirs):
                sock.setblocking(False)
            end = tls.wrap(ours, "peer")
            client = context.wrap_socket(theirs, server_hostname="127.0.0.1", do_handshake_on_connect=False)
            for _ in range(10):
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                if end.handshake():
                    break
            client.do_handshake()
            with contextlib.suppress(ssl.SSLWantReadError):
                client.unwrap()
            assert end.recv_into(memoryview(bytearray(10))) == 0
            client.close()
        most = max(most, tls._context.session_stats()["number"])
    assert most <= tls_ends._SESSIONS + 1


# --- The socket itself ------------------------------------------------------------------------------------------------


def pair(certs: Certificates, send_buffer: int = 4096) -> tuple[TlsSocket, TlsSocket]:
    """The master's end and the slave's end of a connection after the handshake."""
    socks = socket.socketpair()
    for sock in socks:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    scratch = memoryview(bytearray(3000))
    server = TlsSocket(socks[0], "slave", server_context(certs.master), scratch, None)
    client = TlsSocket(socks[1], "master", ClientTls(certs.slave, "localhost")._context, scratch, "localhost")
    for _ in range(20):
        client.handshake()
        if server.handshake():
            break
    assert client.is_established
    assert server.is_established
    return server, client


@pytest.mark.parametrize("seed", range(6))
def test_bytes_that_a_socket_has_accepted_arrive_once_and_in_order(seed: int, certs: Certificates) -> None:
    """HA-M-76 "until the socket has taken all that is encrypted already, 16 KiB at most"."""
    server, client = pair(certs)
    rng = random.Random(seed)
    data = memoryview(rng.randbytes(1_000_000))
    sent, got = 0, bytearray()
    until = time.monotonic() + PATIENCE_S
    while len(got) < len(data):
        assert time.monotonic() < until
        if sent < len(data) and rng.random() < 0.7:
            sizes = [rng.choice((1, 12, 500, 32_768)) for _ in range(rng.randint(1, 8))]
            buffers, at = [], sent
            for size in sizes:
                buffers.append(data[at : at + size])
                at += size
            with contextlib.suppress(BlockingIOError):
                sent += server.sendmsg([buffer for buffer in buffers if buffer])
            assert len(server._unsent) + server._outgoing.pending < PIECE + 200
        else:
            server.flush()
        if rng.random() < 0.5:
            buffer = memoryview(bytearray(rng.choice((1, 100, 10_000, 100_000))))
            with contextlib.suppress(BlockingIOError):
                got += buffer[: client.recv_into(buffer)]
    assert sent == len(data)
    assert got == data
    assert not client.has_buffered
    server.close()
    client.close()


def test_a_wait_ends_at_once_if_decrypted_bytes_are_pending(certs: Certificates) -> None:
    """HA-S-72: the rest of a partly read record, and records read with it, are inside OpenSSL; the socket shows nothing."""
    server, client = pair(certs, 1 << 16)
    client._scratch = memoryview(bytearray(1 << 16))
    for part in (b"a" * 1000, b"b" * 1000):
        server.sendmsg([memoryview(part)])
    buffer, got = memoryview(bytearray(100)), b""
    while len(got) < 2000:
        assert client.wait(PATIENCE_S * 1000 if not got else 0)
        got += bytes(buffer[: client.recv_into(buffer)])
    assert not client.wait(0)
    server.close()
    client.close()


def test_the_end_and_what_breaks_tls_come_behind_the_data_before_them(certs: Certificates) -> None:
    """HA-S-72: the data before a forged record is returned first, then the error, which counts as the peer's violation."""
    server, client = pair(certs, 1 << 16)
    server.sendmsg([memoryview(b"whole")])
    server._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))  # a forged record
    buffer = memoryview(bytearray(100))
    assert bytes(buffer[: client.recv_into(buffer)]) == b"whole"
    assert client.has_buffered
    with pytest.raises(PeerViolation, match="HA-S-70"):
        client.recv_into(buffer)
    client.close()
    assert server.recv_into(buffer) == 0 if not server.wait(0) else True
    server.close()
