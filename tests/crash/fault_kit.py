"""Helpers of disk_faults.py and cut_files.py: a ledger, errors of threads, mounts, and failing system calls."""

import logging
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from judge import check
from workload import Record

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode

PATIENCE_S: Final = 60
OPTIONS: Final = StoreOptions(
    file_size=1 << 18, queue_file_size=20_000, index_geometry=Geometry(100, 2000), floor_size=0, sync_flush=True
)


class Told(logging.Handler):
    """Collects the errors that the store's threads log, since they cannot raise to a caller."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def has(self, *words: object) -> bool:
        return any(all(str(word) in line for word in words) for line in self.lines)


told: Final = Told()


class Ledger:
    """Puts messages and remembers which ones the store must have."""

    def __init__(self, options: StoreOptions = OPTIONS) -> None:
        self.options = options
        self.records: list[Record] = []
        self.rng = random.Random(1)

    def put(self, store: MessageStore, count: int = 1, *, topic: str = "orders", size: int = 1000) -> None:
        for _ in range(count):
            message = Message(topic, self.rng.randbytes(size), properties_string=f"KEYS\1k{len(self.records)}")
            result = store.put(message)
            assert result.status is PutMessageStatus.PUT_OK, result
            self.note(message, result.append)

    def put_as_may_be(self, store: MessageStore, size: int = 1000) -> PutMessageStatus:
        """Put a message that is appended even if it cannot be flushed."""
        message = Message("orders", self.rng.randbytes(size), properties_string=f"KEYS\1k{len(self.records)}")
        result = store.put(message)
        self.note(message, result.append)
        return result.status

    def note(self, message: Message, append: AppendResult) -> None:
        placed = replace(message, store_timestamp=append.store_timestamp, store_host=self.options.store_host)
        self.records.append(Record(append.offset, encode(placed, append.queue_offset, append.offset), message))

    def put_until_error(self, store: MessageStore) -> Exception:
        for _ in range(100_000):
            try:
                self.put(store)
            except (OSError, RocketmqHaError) as error:
                return error
        raise AssertionError("no error came")

    def check(self, store: MessageStore) -> None:
        """Check that log, queues and index hold all of these messages and no other."""
        assert store.wait_for_dispatch(timeout_s=PATIENCE_S), f"dispatch is at {store.dispatcher.reput_from_offset}"
        assert len(check(store, self.records, self.rng)) == len(self.records)

    def check_anew(self, path: Path) -> None:
        """Open the store again, twice, with a put in between, and check each time."""
        for _ in range(2):
            with MessageStore.open(path, self.options) as store:
                self.check(store)
                self.put(store)
                self.check(store)


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def run(*command: object) -> bytes:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=PATIENCE_S).stdout


@contextmanager
def mounted(path: Path, *arguments: object) -> Iterator[Path]:
    path.mkdir(exist_ok=True)
    run("mount", *arguments, path)
    try:
        yield path
    finally:
        run("umount", "--lazy", path)


def tmpfs(path: Path, size: str) -> AbstractContextManager[Path]:
    return mounted(path, "-t", "tmpfs", "-o", f"size={size}", "none")


def expect(error: BaseException, number: int, file: Path) -> None:
    assert isinstance(error, OSError), repr(error)
    assert error.errno == number, repr(error)
    assert str(file) in str(error), f"{error} does not name {file}"


@contextmanager
def failing(call: str, number: int, part: str) -> Iterator[None]:
    """Make system calls of this name fail with an errno if the path contains `part`. See fail_calls.c."""
    control = Path(os.environ["FAIL_CALLS"])
    control.write_text(f"{call} {number} {part}")
    try:
        yield
    finally:
        control.write_text("")


def error_of(act: Callable[[], object]) -> OSError | None:
    try:
        act()
    except OSError as error:
        return error
    return None
