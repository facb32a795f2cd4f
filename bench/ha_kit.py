"""What the benchmarks of replication share: logs to replicate, and the ends that do it, each in a process of its own.

All ends are on loopback. A new slave begins with the first record of the master's log, as one that has run before: with nothing
it would begin at the last file, however many there are.
"""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.wire.message import Message

from .java_store import ROUNDS, Rates, java_command
from .line_process import LineProcess, python

FILE_SIZE: Final = 1 << 30  # as brokers have it
BODY_SIZE: Final = 16 * 1024  # of the messages of a log to catch up with
NEVER: Final = 1 << 62  # the end of a slave that follows until it is killed


class Compared(NamedTuple):
    """A row of the table: which of a round's rates stand beside each other, by their names."""

    what: str
    beside: str
    ours: str
    other: str
    unit: str = "/s"


class Sides(Protocol):
    """Run rounds of several sides by turns, ours last; each gives rates by names of its own.

    A row whose other rate nobody gives is left out. Returns: the rates of each round.
    """

    def __call__(
        self,
        rows: Sequence[Compared],
        sides: Sequence[Callable[[], Rates]],
        *,
        rounds: int = ROUNDS,
        warm_up_rounds: int = 0,
    ) -> list[Rates]: ...


def fill(store: Path, size: int) -> int:
    """Make a log of so many bytes, or a few more. Returns: its max offset."""
    message = Message("bench", os.urandom(BODY_SIZE))
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        while log.max_offset < size:
            log.append(message)
        return log.max_offset


def seed(store: Path, master: Path) -> Path:
    """Make a store with the first record of the master's log. Returns: the store."""
    with first_file(master).open("rb") as file:
        size = file.read(4)
        record = size + file.read(int.from_bytes(size) - 4)
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(0, [record])
    return store


def link(store: Path, target: Path) -> Path:
    """The same log files under another store, for a second process that only reads them. Returns: that store."""
    (target / "commitlog").mkdir(parents=True)
    for file in sorted((store / "commitlog").iterdir()):
        os.link(file, target / "commitlog" / file.name)
    return target


def first_file(store: Path) -> Path:
    return store / "commitlog" / file_name(0)


class OurMaster(LineProcess):
    """ha_master.py on a store."""

    def __init__(self, store: Path) -> None:
        super().__init__(python("ha_master", store, FILE_SIZE), store.with_name(store.name + ".log"))
        self.port = int(self.answer()["port"])


class OurSlave(LineProcess):
    """ha_slave.py on a store; it connects when it is told to `start`."""

    def __init__(self, store: Path, port: int, end: int = NEVER, *notes: Path) -> None:
        super().__init__(python("ha_slave", store, FILE_SIZE, port, end, *notes), store.with_name(store.name + ".log"))
        self.answer()

    def start(self) -> None:
        self.tell("start")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class JavaMaster(LineProcess):
    """HaBench as a master. It serves when this returns."""

    def __init__(self, classpath: str, store: Path, role: str) -> None:
        self.port = free_port()
        command = java_command(classpath, store.parent, "HaBench", "master", store, role, self.port)
        super().__init__(command, store.with_name(store.name + ".log"))
        self.answer()


class JavaSlave(LineProcess):
    """HaBench as a slave."""

    def __init__(self, classpath: str, home: Path, port: int) -> None:
        super().__init__(java_command(classpath, home, "HaBench", "slave", port), home / "java-slave.log")
