"""The observation of a store and of a master. It changes nothing: it reads, and reports only harmless offsets (net/feed.py)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.errors import MessageMalformed, PeerViolation, StoreCorrupt
from rocketmq_ha.impl.first_difference import first_difference
from rocketmq_ha.impl.ha.feed import NotARecord, Records
from rocketmq_ha.impl.ha.file_size import End, Shows, Walk
from rocketmq_ha.impl.ha.size_search import CannotTell
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Unreachable, wait_readable
from rocketmq_ha.impl.net.file_size import learn_file_size
from rocketmq_ha.impl.net.inquiry import Inquiry
from rocketmq_ha.impl.net.open_feed import open_old, settle_before
from rocketmq_ha.impl.net.pause import Deadline
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import decode

_TURN_MS: Final = 100
_ASKED: Final = 5  # times that the master is asked for the last message of a store whose slave goes on meanwhile
_COMPARED_SIZE: Final = 1 << 20  # bytes of an old file, from the store's last message on


@dataclass(slots=True)
class StoreProbe:
    """The observation of a slave's store. Offsets are of the commit log."""

    reader: LogReader
    has_files: bool
    file_size: int
    min_offset: int
    end: int = 0  # behind the last whole message
    tail_size: int = 0  # the size of a message behind it that is not whole
    last_offset: int | None = None  # where the last whole message begins
    damage: StoreCorrupt | None = None

    @property
    def overlap(self) -> int:
        """The offset from which on both ends may have the same bytes: the last whole message; the end if there is none."""
        return self.end if self.last_offset is None else self.last_offset


def probe_store(reader: LogReader) -> StoreProbe:
    """Observe a store: read its last file with data, from the start of the file to the end of the log."""
    return reader.patiently(lambda: _look_at(reader))


def _look_at(reader: LogReader) -> StoreProbe:
    found = StoreProbe(reader, bool(reader.files), reader.file_size, reader.min_offset, reader.min_offset)
    with_data = [file for file in reader.files if file.has_data()]
    if not with_data:
        return found
    try:
        for offset, size, _ in reader.records(with_data[-1].base):
            found.last_offset, found.end = offset, offset + size
        found.end, found.tail_size = reader.max_offset, reader.tail_size
    except StoreCorrupt as error:
        found.damage = error
    return found


@dataclass(slots=True)
class MasterProbe:
    """The observation of a master, from what it has sent."""

    last_file: int  # where it starts for a report of 0
    end: int  # behind the last byte that was read
    is_end: bool = False  # it has sent a heartbeat, so there is no more
    received: int = 0
    seconds: float = 0.0  # the time that reading took
    heartbeat_s: float | None = None  # the time from its last bytes to its heartbeat
    messages: int = 0
    newest_ms: int | None = None  # store timestamp of the last message
    damage: str = ""  # why what it sends is not a log
    compared: int = 0  # messages that were compared with those of the store
    difference: int | None = None  # commit-log offset of the first byte that differs
    out_of_range: OutOfRange | None = None  # set if it does not have the store's last message
    lost: FeedEnded | None = None
    file_size: int | None = None  # of its commit-log files; None: unknown
    file_size_unseen: str = ""  # why it is unknown
    is_longer: bool = False  # its last file, as far as it was read, is longer than a file of the store
    connections: int = 1


def probe_master(
    feed: MasterFeed,
    store: StoreProbe | None,
    patience_s: float,
    settle_s: float,
    stopped: Callable[[], bool],
    tls: ClientTls | None = None,
) -> MasterProbe:
    """Observe a master: read what it sends for a report of 0, to its end or for patience_s, and compare it with the store.

    If the store ends before the master's last file, a second connection asks for the store's last message. Further connections
    find out how large the master's files are.
    Raises: FeedEnded, PeerViolation, Stopped; all before the first frame.
    """
    last_file, data = feed.first(stopped, patience_s)
    is_fresh = settle_before(data)
    found = MasterProbe(last_file, last_file)
    _read(feed, Records(last_file), found, store, patience_s, stopped)
    feed.close()
    if store is None or not last_file:
        return found
    inquiry = Inquiry(feed.address, stopped, settle_s, tls)
    if is_fresh:
        inquiry.settle(last_file)
    try:
        found.file_size = learn_file_size(inquiry, last_file, False, store.file_size)
    except (CannotTell, FeedEnded, PeerViolation, Unreachable) as error:
        found.file_size_unseen = str(error)
    found.connections += inquiry.connections
    if store.damage is None and not found.damage:
        _ask_for_old(feed.address, store, found, stopped, tls)
    return found


def _ask_for_old(
    address: tuple[str, int], store: StoreProbe, found: MasterProbe, stopped: Callable[[], bool], tls: ClientTls | None
) -> None:
    """Ask the master for the store's last message, if that is before the master's last file, and compare."""
    for _ in range(_ASKED):
        if not 0 < store.overlap < found.last_file:
            return
        found.connections += 1
        try:
            old = open_old(address, store.overlap, stopped, tls=tls)
        except OutOfRange as error:
            store.reader.reopen()
            later = probe_store(store.reader)
            if later.damage is not None or later.overlap <= store.overlap:
                found.out_of_range = error
                return
            store = later  # its slave has gone on since, and the master has deleted what it does not need
        except FeedEnded as error:
            found.lost = error
            return
        else:
            with old:
                _compare_old(old, store, found, stopped)
            return


def _read(
    feed: MasterFeed,
    records: Records,
    found: MasterProbe,
    store: StoreProbe | None,
    patience_s: float,
    stopped: Callable[[], bool],
) -> None:
    began = quiet_since = time.monotonic()
    deadline = Deadline(patience_s)
    walk = Walk(store.file_size) if store is not None and store.has_files else None
    try:
        while not stopped() and not found.is_end and not deadline.has_passed():
            if not feed.has_ready and not wait_readable(feed, _TURN_MS):
                feed.tick()
                continue
            for offset, data in feed.read():
                now = time.monotonic()
                if data:
                    found.received += len(data)
                    found.end = offset + len(data)
                    found.seconds, quiet_since = now - began, now
                    if store is not None and walk is not None and (ended := walk.take(data, 0, len(data))) is not None:
                        _note_size(ended, found, store.file_size)
                        walk = None
                    for at, record in records.take(data):
                        _note(at, record, found, store)
                else:
                    # A heartbeat that comes at once, with the first frame, was due before we connected.
                    found.heartbeat_s = now - max(quiet_since, feed.connected_s)
                    found.is_end = True
    except (NotARecord, MessageMalformed) as error:
        found.damage = str(error)
    except FeedEnded as error:
        found.lost = error


def _note_size(ended: End, found: MasterProbe, file_size: int) -> None:
    """Note what the walk over the master's last file shows about its size, as a slave would learn it. HA-S-90."""
    if ended.shows is Shows.SAME:
        found.file_size = file_size
    elif ended.shows is Shows.OTHER and ended.size is None:
        found.is_longer = True
    elif ended.shows is Shows.OTHER:
        found.file_size = ended.size


def _note(offset: int, record: bytes, found: MasterProbe, store: StoreProbe | None) -> None:
    found.messages += 1
    found.newest_ms = decode(record).store_timestamp
    if store is None or not store.has_files or found.difference is not None:
        return
    end = offset + len(record)
    if store.min_offset <= offset and end <= store.end + store.tail_size:
        found.compared += 1
        found.difference = _first_difference(offset, record, store.reader)


def _compare_old(feed: MasterFeed, store: StoreProbe, found: MasterProbe, stopped: Callable[[], bool]) -> None:
    records, taken = Records(store.overlap), 0
    try:
        for _, data in _pieces(feed, stopped):
            taken += len(data)
            for offset, record in records.take(data):
                if offset + len(record) <= store.end + store.tail_size and found.difference is None:
                    found.compared += 1
                    found.difference = _first_difference(offset, record, store.reader)
            if records.position >= store.end or taken > _COMPARED_SIZE:
                return
    except NotARecord:  # where a message of the store begins, the master has none
        found.difference = records.position
    except FeedEnded as error:
        found.lost = error


def _pieces(feed: MasterFeed, stopped: Callable[[], bool]) -> Iterator[tuple[int, memoryview]]:
    deadline = Deadline(_TURN_MS / 100)
    while not stopped() and not deadline.has_passed():
        if feed.has_ready or wait_readable(feed, _TURN_MS):
            yield from feed.read()
        feed.tick()


def _first_difference(offset: int, record: bytes, reader: LogReader) -> int | None:
    """Return the commit-log offset of the first byte in which a record differs from the store; None if none does."""
    ours = bytearray()
    while len(ours) < len(record):
        part = reader.data_at(offset + len(ours), len(record) - len(ours))
        if not part:
            break
        ours += part
    if ours == record:
        return None
    index = first_difference(ours, record)
    return offset + (len(ours) if index is None else index)
