"""A master and its slave as processes, observed from outside: rates, memory, logs.

The master puts all the time, and every put waits for the slave. So an attack on either shows in the growth of the slave's log,
in the statuses of the puts, in the anonymous memory of both (RssAnon), and in the bytes of their logs.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from kit.certificates import Certificates, options
from kit.waiting import await_end
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.status_socket import NotRunning, ask
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message

FILE_SIZE: Final = 64 * 1024 * 1024
IN_FLIGHT: Final = 16  # puts that wait at a time
PATIENCE_S: Final = 30.0
# Short deadlines, so that many inputs fit into minutes, and caps that a flood reaches.
REPORT_DEADLINE_S: Final = 1.5
WRITE_STALL_DEADLINE_S: Final = 2.0
FRAME_DEADLINE_S: Final = 2.0
MAX_CONNECTIONS: Final = 48
MAX_CONNECTIONS_PER_ADDRESS: Final = 24
ALLOWED: Final = "127.0.0.0/9"  # 127.200.0.1 is outside


class Unexpected(Exception):  # noqa: N818  (as the errors of impl)
    """A process did something that it must not do."""


def wait_for(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > until:
            raise Unexpected(f"waited {patience_s:.0f} s in vain: {what}")
        time.sleep(0.02)


class End:
    """One of the two processes, and its store."""

    def __init__(self, store: Path, node: Node, start: int = 0) -> None:
        """start: the offset at which the hash of the log begins."""
        self.store, self.node = store, node
        self._hashed = start  # hashed up to this offset
        self._hash = hashlib.sha256()

    def ask(self) -> dict[str, Any]:
        """The status of the process; waits until its status socket exists."""
        until = time.monotonic() + PATIENCE_S
        while True:
            self.node.check()
            try:
                return ask(self.store)
            except (NotRunning, ConfigInvalid):  # no socket, or no store yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    @property
    def offset(self) -> int:
        """The log's max offset."""
        return int(self.ask()["max_offset"])

    def rss_kib(self) -> int:
        """Anonymous memory in KiB, without mapped files."""
        self.node.check()
        pid = self.node._process.pid
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise Unexpected(f"process {pid} has no RssAnon")

    def log_bytes(self, offset: int, size: int) -> bytes:
        """Bytes of the log, from its files."""
        found = b""
        while len(found) < size:
            at = offset + len(found)
            base = at - at % FILE_SIZE
            with (self.store / "commitlog" / f"{base:020d}").open("rb") as file:
                file.seek(at - base)
                part = file.read(min(size - len(found), base + FILE_SIZE - at))
            if not part:
                raise Unexpected(f"{self.store}: no byte at {at}")
            found += part
        return found

    def digest(self, offset: int) -> str:
        """SHA-256 of the log up to an offset, which must not be less than in the previous call."""
        while self._hashed < offset:
            part = self.log_bytes(self._hashed, min(offset - self._hashed, 1 << 20))
            self._hash.update(part)
            self._hashed += len(part)
        return self._hash.hexdigest()

    def log_lines(self) -> int:
        return self.node.log.read_bytes().count(b"\n")


class Stand:
    """The master and its healthy slave."""

    def __init__(self, directory: Path, prefilled: int = 24 << 20, behind: Sequence[str] = ()) -> None:
        """prefilled: bytes in the master's log before the first put. behind: a command that both command lines begin with."""
        store = directory / "master"
        with CommitLog.open(store, file_size=FILE_SIZE) as log:
            body = bytes(range(256)) * 64
            while log.max_offset < prefilled:
                log.append(Message("hostile", body))
        serve = ("--store", str(store), "--listen", "127.0.0.1:0", "--allow", ALLOWED)
        put = ("--put", str(10**9), "--size", "100", "--in-flight", str(IN_FLIGHT), "--sync", "1", "--await-slaves", "1")
        caps = ("--max-connections", str(MAX_CONNECTIONS), "--max-connections-per-address", str(MAX_CONNECTIONS_PER_ADDRESS))
        deadlines = ("--report-deadline", str(REPORT_DEADLINE_S), "--write-stall-deadline", str(WRITE_STALL_DEADLINE_S))
        (directory / "certificates").mkdir()
        self.certs = Certificates(directory / "certificates")
        tls = ("--tls-listen", "127.0.0.1:0", *options(self.certs.master))
        self.master = End(store, Node(directory / "master.log", "master", *serve, *put, *caps, *deadlines, *tls, behind=behind))
        try:
            self.address = parse_address(self.master.node.line("listening"))
            self.tls_address = parse_address(self.master.node.line("tls_listening"))
        except BaseException:
            self.master.node.kill()
            raise
        self.slave = start_slave(directory, "slave", self.address, behind=behind)
        try:
            wait_for(lambda: self.slave.offset > prefilled, "the slave does not catch up")
        except BaseException:
            self.kill()
            raise

    def same(self) -> tuple[int, str]:
        """Compare both logs up to the slave's max offset. Returns: that offset and the hash. Raises: Unexpected."""
        offset = self.slave.offset
        ours, theirs = self.master.digest(offset), self.slave.digest(offset)
        if ours != theirs:
            raise Unexpected(f"the logs differ before {offset}: {ours[:16]} and {theirs[:16]}")
        return offset, theirs

    def stop(self) -> str:
        """Stop both processes. Returns: the number of puts by status, from the master."""
        self.slave.node.check()
        self.master.node.check()
        self.master.node._process.terminate()
        told = self.master.node.line("put")
        # Send one signal only: at its end the interpreter restores the default handlers, so a second signal would kill it.
        self.master.node._process.wait(PATIENCE_S)
        statuses = {"master": self.master.node.stop(), "slave": self.slave.node.stop()}
        if any(statuses.values()):
            raise Unexpected(f"exit statuses {statuses}, expected 0")
        return told

    def kill(self) -> None:
        for end in (self.master, self.slave):
            end.node.kill()


def start_slave(
    directory: Path, name: str, address: tuple[str, int], file_size: int = FILE_SIZE, behind: Sequence[str] = ()
) -> End:
    store = directory / name
    options = ("--file-size", str(file_size), "--frame-deadline", str(FRAME_DEADLINE_S))
    follow = ("slave", "--store", str(store), "--master", f"{address[0]}:{address[1]}", *options)
    return End(store, Node(directory / f"{name}.log", *follow, behind=behind))


def rate(end: End, seconds: float) -> float:
    """Growth of the log in bytes a second, measured over about `seconds`."""
    begun_s, begun = time.monotonic(), end.offset
    time.sleep(seconds)
    return (end.offset - begun) / (time.monotonic() - begun_s)


class Watched(Protocol):
    """A process whose memory is known."""

    def rss_kib(self) -> int: ...


class Watch:
    """Records the peak memory of a process while it runs."""

    def __init__(self, end: Watched) -> None:
        self._end = end
        self.before_kib = self.peak_kib = end.rss_kib()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._done.wait(0.02):
            try:
                self.peak_kib = max(self.peak_kib, self._end.rss_kib())
            except Exception:  # the process has ended; the caller will notice
                return

    def stop(self) -> None:
        self._done.set()
        await_end(self._thread)

    @classmethod
    @contextmanager
    def over(cls, end: Watched) -> Iterator["Watch"]:
        watch = cls(end)
        watch._thread.start()
        try:
            yield watch
        finally:
            watch.stop()
