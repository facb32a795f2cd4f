"""Scenarios in which files are removed or truncated under a live store: it raises an error with the file's name, no SIGBUS.

python tests/crash/disk_faults.py SCENARIO DIRECTORY
"""

import os
from collections.abc import Callable
from pathlib import Path

from fault_kit import OPTIONS, PATIENCE_S, Ledger, told

from rocketmq_ha.impl.errors import RocketmqHaError, StoreCorrupt
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message


def _two_files(path: Path, options: StoreOptions = OPTIONS) -> tuple[Ledger, MessageStore]:
    ledger = Ledger(options)
    store = MessageStore.open(path, options)
    ledger.put(store, 400)
    assert len(store.log.queue.files) == 2
    ledger.check(store)
    return ledger, store


def deleted_last_file(directory: Path) -> None:
    """The last file is deleted. Its bytes would be lost at the next start, so no put into it ends with PUT_OK."""
    ledger, store = _two_files(directory / "s")
    last = store.log.queue.files[-1].path
    last.unlink()
    try:
        result = store.put(Message("orders", b"into nothing"))
        assert result.status is not PutMessageStatus.PUT_OK, "PUT_OK for a message in a file that was removed"
        assert told.has(last), told.lines
    except (OSError, RocketmqHaError) as error:
        assert str(last) in str(error), repr(error)
    _close(store, last)
    held = len(ledger.records)
    ledger.records = [record for record in ledger.records if record.end <= OPTIONS.file_size]  # type: ignore[operator]
    assert 200 < len(ledger.records) < held
    ledger.check_anew(directory / "s")


def deleted_first_file(directory: Path) -> None:
    """The first file is deleted. Mapped bytes stay readable, but the store cannot be opened as if it were complete."""
    ledger, store = _two_files(directory / "s")
    first = store.log.queue.files[0].path
    first.unlink()
    ledger.put(store, 10)
    ledger.check(store)
    _close(store, first)
    with MessageStore.open(directory / "s", OPTIONS) as store:
        assert store.min_offset == OPTIONS.file_size
        ledger.records = [record for record in ledger.records if record.offset >= store.min_offset]
        ledger.check(store)


def truncated_last_file(directory: Path) -> None:
    """The last file is truncated. A write to its mapping would be SIGBUS, so the put is refused with the file's name."""
    _, store = _two_files(directory / "s")
    last = store.log.queue.files[-1].path
    os.truncate(last, 4096)
    _expect_corrupt(lambda: _put_many(store), last)
    _close(store, last)
    _expect_corrupt(lambda: MessageStore.open(directory / "s", OPTIONS).close(), last)


def truncated_first_file(directory: Path) -> None:
    """The first file is truncated. Reads beyond its end are refused with its name; other files are served."""
    ledger, store = _two_files(directory / "s")
    first = store.log.queue.files[0].path
    os.truncate(first, 4096)
    _expect_corrupt(lambda: [bytes(record) for record in store.get("orders", 0, 100).records], first)
    ledger.put(store)
    assert store.wait_for_dispatch(timeout_s=PATIENCE_S)
    assert next(iter(store.get("orders", 0, 400).messages())).body == ledger.records[-1].message.body
    _close(store, first)
    _expect_corrupt(lambda: MessageStore.open(directory / "s", OPTIONS).close(), first)


def truncated_queue(directory: Path) -> None:
    """A consume queue is truncated. A get is refused with the file's name; the log goes on."""
    _, store = _two_files(directory / "s")
    file = directory / "s" / "consumequeue" / "orders" / "0" / f"{0:020d}"
    os.truncate(file, 0)
    _expect_corrupt(lambda: [bytes(record) for record in store.get("orders", 0, 100).records], file)
    store.put(Message("orders", b"more"))
    _close(store, file)


def truncated_index(directory: Path) -> None:
    """An index file is truncated. A query is refused with the file's name; the log goes on."""
    _, store = _two_files(directory / "s")
    [file] = (directory / "s" / "index").iterdir()
    os.truncate(file, 0)
    _expect_corrupt(lambda: store.query("orders", "k100"), file)
    store.put(Message("orders", b"more", properties_string="KEYS\1more"))
    _close(store, file)


def _put_many(store: MessageStore) -> None:
    for _ in range(50):
        result = store.put(Message("orders", bytes(3000)))
        assert result.status is PutMessageStatus.PUT_OK, result


def _expect_corrupt(act: Callable[[], object], file: Path) -> None:
    try:
        act()
    except (StoreCorrupt, OSError) as error:
        assert str(file) in str(error), repr(error)
        return
    raise AssertionError(f"no error about {file}")


def _close(store: MessageStore, file: Path) -> None:
    """Close the store. This may fail with the file's name."""
    try:
        store.close()
    except (OSError, RocketmqHaError) as error:
        assert str(file) in str(error), repr(error)
