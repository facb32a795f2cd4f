"""Real sockets: a master and a slave replicate over loopback, through kills, garbage, probes and refused starts."""

import os
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kit.command_line import COMMAND, Start
from kit.files import log_files, snapshot
from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.link import MasterLink, SlaveLink
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.log.verify import Comparison, Summary, compare, verify
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile, Settings

FILE_SIZE = 4096
# A classic slave first reports after an interval (HA-S-2).
SETTINGS = Settings(FILE_SIZE, ha_send_heartbeat_interval_ms=50, master_read_buffer_size=4096)


def message(index: int) -> Message:
    return Message("topic", b"%d" % index * (index % 60), queue_id=index % 3, properties_string=f"KEYS\x01{index}")


def verified(store: Path) -> Summary:
    with LogReader(store) as reader:
        return replace(verify(reader), store_dir=Path())


@contextmanager
def serving(store: Path, profile: Profile, port: int = 0) -> Iterator[Master]:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        master = Master(log, listen("127.0.0.1", port), SETTINGS, profile)
        try:
            yield master
        finally:
            master.close()
            log.flush()


@contextmanager
def following(store: Path, port: int, profile: Profile) -> Iterator[CommitLog]:
    """Run a slave in a thread, over a log that only this thread writes."""
    stopped = threading.Event()
    errors: list[BaseException] = []
    with CommitLog.open(store, file_size=FILE_SIZE) as log:

        def run() -> None:
            try:
                Follower(log, "127.0.0.1", port, SETTINGS, profile).run(stopped.is_set)
            except BaseException as error:  # raised again in the waiting thread
                errors.append(error)

        thread = threading.Thread(target=run, name="slave", daemon=True)
        thread.start()
        try:
            yield log
        finally:
            stopped.set()
            await_end(thread)
            assert not errors


# --- Two ends, one process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_a_slave_replicates_every_file_byte_for_byte(profile: Profile, tmp_path: Path) -> None:
    """HA-S-5, HA-G-1: 400 messages in more than ten files; every second one waits for the slave."""
    with serving(tmp_path / "m", profile) as master:
        service = master.service
        with following(tmp_path / "s", master.address[1], profile) as replica:
            wait_for(service.count_connected, lambda: master.poll(10))
            requests = [master.put(message(0), wait=False)]
            wait_for(service.count_slaves, lambda: master.poll(10))  # HA-G-5 "from its first acknowledgement on"
            for index in range(1, 400):
                requests.append(master.put(message(index), wait=index % 2 == 0))
                if index % 7 == 0:
                    master.poll(0)
            wait_for(lambda: all(request.status for request in requests), lambda: master.poll(10))
            assert {request.status for request in requests} == {PutMessageStatus.PUT_OK}
            wait_for(lambda: replica.max_offset == service.log.max_offset, lambda: master.poll(10))
            wait_for(lambda: service.push2_slave_max_offset == service.log.max_offset, lambda: master.poll(10))
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s")
    assert len(log_files(tmp_path / "m")) > 10
    assert verified(tmp_path / "m") == verified(tmp_path / "s")
    assert verified(tmp_path / "s").messages == 400


def test_a_new_slave_begins_with_the_last_file(tmp_path: Path) -> None:
    """HA-M-4 "at the beginning of the last commit-log file", over a socket; HA-ST-13 "MUST be the start of its first file"."""
    with serving(tmp_path / "m", HARDENED) as master:
        for index in range(100):
            master.put(message(index), wait=False)
        end = master.service.log.max_offset
        with following(tmp_path / "s", master.address[1], HARDENED) as replica:
            wait_for(lambda: replica.max_offset == end, lambda: master.poll(10))
            assert replica.min_offset == end - end % FILE_SIZE
    with LogReader(tmp_path / "m") as ours, LogReader(tmp_path / "s") as theirs:
        verify(ours)
        verify(theirs)
        found = compare(ours, theirs)
    assert found == Comparison(end - end % FILE_SIZE, end, None, 0)


def test_a_master_that_comes_back_is_followed_on(tmp_path: Path) -> None:
    """HA-S-1 "MUST set current_reported_offset to its max offset" on connecting again: nothing is sent twice or left out.

    HA-M-15 "allow its address to be taken again at once after a restart": the master comes back at the same port.
    """

    def put_a_hundred(master: Master, replica: CommitLog, begin: int) -> None:
        wait_for(master.service.count_connected, lambda: master.poll(10))
        for index in range(begin, begin + 100):
            master.put(message(index), wait=False)
        wait_for(lambda: replica.max_offset == master.service.log.max_offset, lambda: master.poll(10))

    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        master = first.enter_context(serving(tmp_path / "m", HARDENED))
        port = master.address[1]
        replica = stack.enter_context(following(tmp_path / "s", port, HARDENED))
        put_a_hundred(master, replica, 0)
        first.close()
        with serving(tmp_path / "m", HARDENED, port) as again:
            put_a_hundred(again, replica, 100)
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s")
    assert verified(tmp_path / "s").messages == 200


# --- Other peers --------------------------------------------------------------------------------------------


def read_to_the_end(sock: socket.socket, master: Master) -> bytes:
    """Read everything that the master sends until it closes the connection."""
    sock.setblocking(False)
    data, until = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        master.poll(5)
        try:
            part = sock.recv(1 << 16)
        except BlockingIOError:
            continue
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part
    raise AssertionError(f"the connection is still open; it sent {len(data)} bytes")


@pytest.mark.parametrize(
    "garbage",
    [
        REPORT.pack(-1),
        REPORT.pack(-5),
        REPORT.pack((1 << 63) - 1),
        REPORT.pack(10_000_000),
        b"GET / HTTP/1.1\r\n\r\n",
        REPORT.pack(0) + REPORT.pack(1 << 40),
        bytes(range(256)) * 100,
    ],
    ids=["-1", "-5", "greatest", "beyond", "http", "second", "noise"],
)
def test_garbage_closes_its_connection_and_counts_for_nothing(garbage: bytes, tmp_path: Path) -> None:
    """HA-M-11 "MUST close the connection and MUST NOT be used" (quirks 1, 4): the next put finds no slave."""
    with serving(tmp_path / "m", HARDENED) as master:
        master.put(message(1), wait=False)
        with socket.create_connection(master.address, timeout=PATIENCE_S) as sock:
            sock.sendall(garbage)
            sent = read_to_the_end(sock, master)
        assert len(sent) in (0, HEADER.size + master.service.log.max_offset)  # only an honest first report is answered
        assert master.service.connections == []
        assert master.service.push2_slave_max_offset == 0
        assert master.put(message(2), wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_classic_takes_the_greatest_report_for_an_ack(tmp_path: Path) -> None:
    """HA-G-4 (quirk 1), over a socket: a waiting put ends with PUT_OK, although no slave has it."""
    with serving(tmp_path / "m", CLASSIC) as master, socket.create_connection(master.address, timeout=PATIENCE_S) as sock:
        wait_for(lambda: master.service.connections, lambda: master.poll(10))
        request = master.put(message(1), wait=True)
        assert request.status is None
        sock.sendall(REPORT.pack((1 << 63) - 1))
        wait_for(lambda: request.status, lambda: master.poll(10))
        assert request.status is PutMessageStatus.PUT_OK


def test_probes_and_half_reports_do_no_harm(tmp_path: Path) -> None:
    """HA-M-13 "An end of stream or an error of the socket MUST close the connection": peers connect and close, with no byte,
    with part of a report, or by a reset; a real slave gets the whole log meanwhile.
    """
    with serving(tmp_path / "m", HARDENED) as master, following(tmp_path / "s", master.address[1], HARDENED) as replica:
        wait_for(lambda: master.service.count_connected() == 1, lambda: master.poll(10))
        descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0  # noqa: PTH208
        for index in range(60):
            sock = socket.create_connection(master.address, timeout=PATIENCE_S)
            if index % 3:
                sock.sendall(REPORT.pack(0)[: index % 8])
            if index % 5 == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close by reset
            sock.close()
            master.put(message(index), wait=False)
            master.poll(0)
        wait_for(lambda: len(master.service.connections) == 1, lambda: master.poll(10))
        end = master.service.log.max_offset
        wait_for(lambda: replica.max_offset == end, lambda: master.poll(10))
        wait_for(lambda: master.service.count_slaves() == 1, lambda: master.poll(10))
        if descriptors:
            assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * len(log_files(tmp_path / "m"))  # noqa: PTH208
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s")


def test_a_frame_goes_out_as_the_documents_say(tmp_path: Path) -> None:
    """HA-W-1 to HA-W-3, HA-M-1, byte by byte; the slave is a plain socket."""
    with serving(tmp_path / "m", HARDENED) as master, socket.create_connection(master.address, timeout=PATIENCE_S) as sock:
        result = master.put(message(3), wait=False)
        for _ in range(5):
            master.poll(5)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing before the first report
            sock.recv(1)
        sock.sendall(bytes(7))
        master.poll(20)
        with pytest.raises(BlockingIOError):  # nor after seven bytes of it
            sock.recv(1)
        sock.sendall(bytes(1))
        received = b""

        def receive() -> None:
            nonlocal received
            master.poll(10)
            try:
                received += sock.recv(1 << 16)
            except BlockingIOError:
                return
            while received[:12] == bytes(12):  # a heartbeat comes first if the test was slow (HA-M-8)
                received = received[12:]

        size = result.next_offset
        wait_for(lambda: len(received) >= HEADER.size + size + HEADER.size, receive)  # the frame, then a heartbeat
        assert received[:12] == (0).to_bytes(8, "big") + size.to_bytes(4, "big")
        assert received[12 : 12 + size] == (tmp_path / "m" / "commitlog" / f"{0:020d}").read_bytes()[:size]
        assert received[12 + size : 24 + size] == size.to_bytes(8, "big") + bytes(4)


# --- Two processes ----------------------------------------------------------------------------------------------------


def test_a_slave_killed_in_the_middle_goes_on_where_its_log_ends(start: Start, tmp_path: Path) -> None:
    """HA-ST-5, HA-S-1: kill -9 while puts wait for it; half of the 4000 puts wait, and at the end both logs are equal."""
    m, s = tmp_path / "m", tmp_path / "s"
    slow = ("--max-transfer-rate", 300_000)  # 1.25 MB are on their way for seconds
    options = ("--file-size", 65536, "--put", 4000, "--size", 200, "--sync", 0.5, "--await-slaves", 1, *slow)
    master = start("master", "--store", m, "--listen", "127.0.0.1:0", *options)
    address = master.line("listening")
    slave = start("slave", "--store", s, "--master", address, "--file-size", 65536)
    wait_for(lambda: len(list((s / "commitlog").glob("0*"))) >= 3 if s.exists() else False, lambda: time.sleep(0.001))
    slave.process.kill()
    slave.process.wait(PATIENCE_S)
    assert len(log_files(s)) < 4000 * 312 // 65536
    slave = start("slave", "--store", s, "--master", address)
    told = dict(word.split("=") for word in f"put={master.line('put')}".split())
    assert told["put"] == "4000"
    assert int(told["PUT_OK"]) + int(told.get("FLUSH_SLAVE_TIMEOUT", 0)) + int(told.get("SLAVE_NOT_AVAILABLE", 0)) == 4000
    assert int(told["PUT_OK"]) > 3000
    wait_for(lambda: log_files(s) == log_files(m))
    assert (master.end(signal.SIGTERM), slave.end(signal.SIGTERM)) == (0, 0)
    assert verified(m) == verified(s)
    assert verified(s).messages == 4000 + int(told.get("unwaited", 0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_both_cleanly_in_the_middle_of_puts(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    """HA-G-6: the put that waits ends too; status 0, and both stores verify and are unlocked (HA-ST-9)."""
    m, s = tmp_path / "m", tmp_path / "s"
    master = start("master", "--store", m, "--listen", "127.0.0.1:0", "--file-size", 65536, "--put", 10**7, "--await-slaves", 1)
    slave = start("slave", "--store", s, "--master", master.line("listening"), "--file-size", 65536)
    wait_for(lambda: len(list((s / "commitlog").glob("0*"))) >= 3 if s.exists() else False)
    assert master.end(number) == 0
    assert slave.end(number) == 0
    for node in (master, slave):
        assert "Traceback" not in node.log.read_text()
    assert verified(m).tail_size == 0
    theirs = verified(s)
    with LogReader(m) as ours, LogReader(s) as replica:
        verify(ours)
        verify(replica)
        assert compare(ours, replica).difference is None
    for store in (m, s):
        with CommitLog.open(store) as log:
            assert log.recovery.messages > 0
    assert theirs.min_offset % 65536 == 0


# --- Refused starts ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four files."""
    store = tmp_path_factory.mktemp("template") / "store"
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        for index in range(100):
            log.append(message(index))
        assert len(log_files(store)) == 4
    return store


def refused(directory: Path, *arguments: object) -> str:
    """Assert that the start is refused and `directory` unchanged. Returns: the one line of the refusal."""
    before = snapshot(directory)
    command = [*COMMAND, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert snapshot(directory) == before
    return ended.stderr


def roles(store: object, address: str = "127.0.0.1:0") -> list[tuple[object, ...]]:
    peer = address.replace(":0", ":9") if address.endswith(":0") else address
    return [("master", "--store", store, "--listen", address), ("slave", "--store", store, "--master", peer)]


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:port", "127.0.0.1:65536", ":10912", "::1:10912", ""])
def test_an_address_that_cannot_be_parsed_is_refused(address: str, tmp_path: Path) -> None:
    for arguments in roles(tmp_path / "new", address):
        line = refused(tmp_path, *arguments)
        assert repr(address) in line
        assert "HOST:PORT" in line


def test_a_slave_needs_the_port_of_its_master(tmp_path: Path) -> None:
    assert "not 0" in refused(tmp_path, "slave", "--store", tmp_path / "new", "--master", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("localhost", "expected an IP address"),
        ("192.0.2.1", "Cannot assign requested address"),
        ("127.0.0.1:0", "expected an IP"),
    ],
)
def test_an_address_that_a_slave_cannot_connect_from_is_refused(address: str, says: str, tmp_path: Path) -> None:
    line = refused(tmp_path, "slave", "--store", tmp_path / "new", "--master", "127.0.0.1:9", "--bind", address)
    assert repr(address) in line
    assert says in line


def test_more_copies_than_classic_can_count_are_refused(tmp_path: Path) -> None:
    """HA-G-33 "in classic other than 1, MUST be refused before it starts"."""
    master = roles(tmp_path / "new")[0]
    assert "replicas 2: expected 1 in the classic profile" in refused(
        tmp_path, *master, "--profile", "classic", "--replicas", 2
    )


@pytest.mark.parametrize("name", ["new", "store", "torn"])
def test_a_port_that_is_taken_is_refused_before_any_store_is_touched(
    name: str, tmp_path: Path, taken: int, template: Path
) -> None:
    """No new store is created, and the torn tail of an old one is not cut off (HA-ST-7)."""
    for existing in ("store", "torn"):
        shutil.copytree(template, tmp_path / existing)
        (tmp_path / existing / "lock").unlink()
    with CommitLog.open(tmp_path / "torn") as log:
        log.append_data(log.max_offset, [b"\0\0\1\0\xda\xa3"])
    line = refused(tmp_path, "master", "--store", tmp_path / name, "--listen", f"127.0.0.1:{taken}")
    assert f"127.0.0.1:{taken}" in line
    assert "in use" in line


def test_a_host_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    assert "host.invalid:0" in refused(tmp_path, "master", "--store", tmp_path / "new", "--listen", "host.invalid:0")


def test_a_store_in_no_directory_is_refused(tmp_path: Path) -> None:
    for arguments in roles(tmp_path / "missing" / "store"):
        line = refused(tmp_path, *arguments)
        assert str(tmp_path / "missing" / "store") in line
        assert "parent" in line


@pytest.mark.parametrize("name", ["file", "store/commitlog"])
def test_what_is_not_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / name).write_bytes(b"x")
    for arguments in roles(tmp_path / Path(name).parts[0]):
        line = refused(tmp_path, *arguments)
        assert str(tmp_path / name) in line
        assert "directory" in line


def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path, template: Path, start: Start) -> None:
    """HA-ST-9."""
    shutil.copytree(template, tmp_path / "stores" / "m")
    owner = start("master", "--store", tmp_path / "stores" / "m", "--listen", "127.0.0.1:0")
    owner.line("listening")
    for arguments in roles(tmp_path / "stores" / "m"):
        line = refused(tmp_path / "stores", *arguments)
        assert str(tmp_path / "stores" / "m") in line
        assert "locked" in line
    assert owner.end(signal.SIGTERM) == 0


def test_a_file_size_that_disagrees_is_refused(tmp_path: Path, template: Path) -> None:
    shutil.copytree(template, tmp_path / "store")
    for arguments in roles(tmp_path / "store"):
        line = refused(tmp_path, *arguments, "--file-size", 8192)
        assert "4096" in line
        assert "8192" in line


def test_a_file_of_the_wrong_name_or_length_is_refused(tmp_path: Path, template: Path) -> None:
    """HA-ST-1 "each named by the 20-digit offset of its first byte"; HA-ST-21 "of another length than the others MUST be
    refused" (quirk 39): the line names the file.
    """
    files = sorted((shutil.copytree(template, tmp_path / "store") / "commitlog").iterdir())
    damages: list[tuple[Path, Callable[[], object]]] = [
        (files[1], lambda: os.truncate(files[1], FILE_SIZE - 1)),
        (files[0].with_name("notes.txt"), lambda: files[0].with_name("notes.txt").write_bytes(b"x")),
        (files[2].with_name(f"{8193:020d}"), lambda: files[2].rename(files[2].with_name(f"{8193:020d}"))),
        (files[3], files[2].unlink),  # a gap
    ]
    for culprit, damage in damages:
        shutil.rmtree(tmp_path / "store")
        shutil.copytree(template, tmp_path / "store")
        damage()
        for arguments in roles(tmp_path / "store"):
            assert str(culprit) in refused(tmp_path, *arguments)


def test_a_corrupt_record_is_refused_by_file_and_offset(tmp_path: Path, template: Path) -> None:
    """HA-ST-4: one flipped bit in the body of a message in the middle of the log."""
    shutil.copytree(template, tmp_path / "store")
    with LogReader(tmp_path / "store") as reader:
        offset, size, _ = list(reader.records())[40]
    file = tmp_path / "store" / "commitlog" / f"{offset - offset % FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    data[offset % FILE_SIZE + 90] ^= 1
    assert size > 100
    file.write_bytes(data)
    for arguments in roles(tmp_path / "store"):
        line = refused(tmp_path, *arguments)
        assert str(file) in line
        assert str(offset) in line


@pytest.mark.parametrize(
    "option", [("--file-size", 7), ("--file-size", 0), ("--profile", "modern"), ("--store",), ("--nonsense",)]
)
def test_an_option_that_cannot_be_is_refused(tmp_path: Path, option: tuple[object, ...]) -> None:
    line = refused(tmp_path, *roles(tmp_path / "new")[0], *option)
    assert str(option[0]).removeprefix("--").replace("-", " ")[:4] in line.replace("-", " ")


def test_what_was_put_goes_out_before_the_loop_waits(tmp_path: Path) -> None:
    """HA-M-32 "Every put MUST wake the write sides": when a turn begins to wait, every byte is on its way."""
    with serving(tmp_path / "m", HARDENED) as master, following(tmp_path / "s", master.address[1], HARDENED) as replica:
        wait_for(lambda: master.service.count_connected() == 1, lambda: master.poll(10))
        unsent = []
        selector = master._selector
        select = selector.select

        def watched(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            (conn,) = master.service.connections
            unsent.append(master.service.log.max_offset - conn.sent_offset)
            return select(timeout)

        selector.select = watched  # type: ignore[method-assign]
        for index in range(20):
            request = master.put(message(index), wait=index % 2 == 0)
            master.poll(10)
            wait_for(lambda: request.status, lambda: master.poll(10))  # noqa: B023  (asked at once)
        del selector.select
        assert len(unsent) >= 20
        assert not any(unsent)
        wait_for(lambda: replica.max_offset == master.service.log.max_offset, lambda: master.poll(10))


class Asked:
    """A socket that counts how often it is asked for bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.reads = sock, 0

    def recv_into(self, buffer: memoryview) -> int:
        self.reads += 1
        return self._sock.recv_into(buffer)

    def send(self, data: bytes) -> int:
        return self._sock.send(data)

    def sendmsg(self, buffers: list[memoryview]) -> int:
        return self._sock.sendmsg(buffers)

    def close(self) -> None:
        self._sock.close()


def test_a_socket_that_gave_little_is_not_asked_again(tmp_path: Path) -> None:
    """HA-S-7, HA-M-24: over real sockets a frame and its report are one read each, and the put ends."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    with (
        CommitLog.open(tmp_path / "m", file_size=FILE_SIZE) as log,
        CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as copy,
    ):
        service = HAService(log, SETTINGS, HARDENED)
        masters, slaves = map(Asked, ends)
        master = MasterLink(masters, service.on_accept("slave", 0), service, ends_short=True)
        slave = SlaveLink(slaves, SlaveClient("master", copy, SETTINGS, HARDENED), ends_short=True)
        slave.on_connect(0)
        assert master.on_reports(0) is None
        # HA-G-5 "from its first acknowledgement on": only then a put waits for the slave
        service.put(message(3), 0, wait=False)
        assert (master.on_transfer(0), slave.on_frames(0), master.on_reports(0)) == (False, None, None)
        for index in range(3):
            masters.reads = slaves.reads = 0
            request = service.put(message(index), 0, wait=True)
            assert not master.on_transfer(0)
            assert slave.on_frames(0) is None
            assert master.on_reports(0) is None
            assert request.status is PutMessageStatus.PUT_OK
            assert (masters.reads, slaves.reads) == (1, 1)
        master.close("done")
        slave.close("done")
    assert log_files(tmp_path / "m") == log_files(tmp_path / "s")
