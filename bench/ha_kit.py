"""Helpers of the replication benchmarks: logs to replicate, and masters and slaves in processes of their own.

All of them are on loopback. A new slave's log has the first record of the master's log, as if it had run before. With an empty
log the slave would begin at the master's last file.
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

FILE_SIZE: Final = 1 << 30  # the default of brokers
BODY_SIZE: Final = 16 * 1024  # of each message in a log that a slave catches up with
NEVER: Final = 1 << 62  # the end offset of a slave that follows until it is killed


class Compared(NamedTuple):
    """A row of the table: the names of the two rates of a round that it compares."""

    what: str
    beside: str
    ours: str
    other: str
    unit: str = "/s"


class Sides(Protocol):
    """Run rounds in which several sides take turns, ours last. Each side returns its rates by name.

    A row is left out if no side returns its `other` rate. Returns: the rates of each round.
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
    """Make a log of at least `size` bytes. Returns: its max offset."""
    message = Message("bench", os.urandom(BODY_SIZE))
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        while log.max_offset < size:
            log.append(message)
        return log.max_offset


def seed(store: Path, master: Path) -> Path:
    """Make a store that has only the first record of the master's log. Returns: the store."""
    with first_file(master).open("rb") as file:
        size = file.read(4)
        record = size + file.read(int.from_bytes(size) - 4)
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(0, [record])
    return store


def link(store: Path, target: Path) -> Path:
    """Link the log files into another store, for a second process that only reads them. Returns: the other store."""
    (target / "commitlog").mkdir(parents=True)
    for file in sorted((store / "commitlog").iterdir()):
        os.link(file, target / "commitlog" / file.name)
    return target


def first_file(store: Path) -> Path:
    return store / "commitlog" / file_name(0)


class OurMaster(LineProcess):
    """A process that runs ha_master.py on a store."""

    def __init__(self, store: Path) -> None:
        super().__init__(python("ha_master", store, FILE_SIZE), store.with_name(store.name + ".log"))
        self.port = int(self.answer()["port"])


class OurSlave(LineProcess):
    """A process that runs ha_slave.py on a store. It connects on the command `start`."""

    def __init__(self, store: Path, port: int, end: int = NEVER, *notes: Path) -> None:
        super().__init__(python("ha_slave", store, FILE_SIZE, port, end, *notes), store.with_name(store.name + ".log"))
        self.answer()

    def start(self) -> None:
        self.send("start")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class JavaMaster(LineProcess):
    """A process that runs HaBench as a master. The constructor returns when it serves."""

    def __init__(self, classpath: str, store: Path, role: str) -> None:
        self.port = free_port()
        command = java_command(classpath, store.parent, "HaBench", "master", store, role, self.port)
        super().__init__(command, store.with_name(store.name + ".log"))
        self.answer()


class JavaSlave(LineProcess):
    """A process that runs HaBench as a slave."""

    def __init__(self, classpath: str, home: Path, port: int) -> None:
        super().__init__(java_command(classpath, home, "HaBench", "slave", port), home / "java-slave.log")
