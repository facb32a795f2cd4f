"""Where a slave without a log begins, if not in its master's last file: found by asking the master as a reader does (feed.py).

The wire knows no such question. A master tells where its last file begins (for a report of 0), and sends from any other
offset that it has. So the first file is found by trying; and so is whether the master's files are as large as the slave's: a
frame ends where a file does (HA-W-4), and the one that begins a byte before that has one byte.

What is reported here is never acknowledged: it is repeated, and is less than any put may still wait for, as `settle` sees to.
Spec: HA-S-80 to HA-S-85.
"""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

import logging
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import MessageMalformed, PeerViolation, RocketmqHaError
from rocketmq_ha.impl.ha.feed import NotARecord, Piece, Records
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.feed import (
    SETTLE_S,
    FeedEnded,
    MasterFeed,
    OutOfRange,
    Stopped,
    find_min,
    open_old,
    settle,
    settle_before,
    wait_readable,
)
from rocketmq_ha.impl.net.tls import ClientTls
from rocketmq_ha.impl.store.commit_log import FIRST_BYTE
from rocketmq_ha.impl.wire.message import decode

Start = str | int  # "min", the master's first file; or the file of a commit-log offset

_TURN_MS: Final = 100

log = logging.getLogger(__name__)


class NoSuchStart(RocketmqHaError):
    """A log cannot begin where it was told to. Another try would end in the same way."""


class FreshStart:
    """One search, by connections one after the other, each of which is closed."""

    def __init__(
        self,
        address: tuple[str, int],
        file_size: int,
        stopped: Callable[[], bool],
        settle_s: float = SETTLE_S,
        tls: ClientTls | None = None,
    ) -> None:
        """file_size: bytes, of the slave's files. stopped: is asked ten times a second."""
        self._tls = tls
        self._address, self._file_size, self._stopped, self._settle_s = address, file_size, stopped, settle_s

    def find(self, start: Start) -> int:
        """The commit-log offset, a multiple of the file size, of the master's file to begin with.

        It waits while the master has no message.
        Spec: HA-S-84 "An offset inside a file MUST mean the start of that file"; HA-S-83 "beyond the master's end, or that the
        master has deleted, or that is no start of one of its files MUST be refused".
        Raises: NoSuchStart; Unreachable, FeedEnded, PeerViolation, after which another try may fare better; Stopped.
        """
        size = self._file_size
        offset = start if isinstance(start, int) else None
        base = None if offset is None else offset - offset % size
        with MasterFeed(self._address, 0, tls=self._tls) as feed:
            last_file, _ = feed.first(self._stopped)
            if last_file % size:
                raise self._wrong_size(f"its last file begins at {last_file}, no multiple of it")
            if base is not None and base > last_file:
                raise NoSuchStart(
                    f"{feed.peer}: offset {start} is beyond the master's end: its last file begins at {last_file}"
                )
            if last_file in (base, 0):
                self._see_file(feed, last_file, offset or 0)
                return last_file
            found = feed.first_data(self._stopped)
            is_fresh = settle_before(memoryview(b"") if found is None else found[1])
        if is_fresh:  # HA-S-85 "MUST NOT report an offset that a put of the master may still wait for"
            settle(feed.peer, last_file, self._settle_s, self._stopped)
        self._check_size(last_file)
        return self._find_first() if base is None else self._find_old(start, base)

    def _find_first(self) -> int:
        try:
            feed = find_min(self._address, self._file_size, self._stopped, tls=self._tls)
        except OutOfRange as error:
            raise FeedEnded(f"{error}, any more") from error
        with feed:
            assert feed.first_offset is not None
            base = feed.first_offset if feed.report == 0 else feed.report - (feed.report == 1)
            if feed.report or base == 0:  # else it is the last file, which may have no message yet
                self._read_record(feed, base)
        if base and self._body_size_at(base - 1) is not None:
            raise FeedEnded(f"{feed.peer}: what it did not have before offset {base} is there")
        return base

    def _find_old(self, start: Start, base: int) -> int:
        try:
            feed = self._open_old(max(base, 1))
        except OutOfRange as error:
            raise NoSuchStart(
                f"{error}; it has deleted the file of offset {start}: --from min begins with its first"
            ) from error
        with feed:
            self._read_record(feed, base)
        return base

    # --- How large the master's files are ----------------------------------------------------------------------------

    def _check_size(self, last_file: int) -> None:
        """See that the file before the last one is as large as ours, as far as there is one. Raises: NoSuchStart."""
        size = self._file_size
        if self._body_size_at(last_file - 1) is None:
            return  # the last file is the only one
        before = last_file - size
        if before and self._body_size_at(before - 1) not in (None, 1):
            raise self._wrong_size(f"no file begins at {before}, and one at {last_file}")
        if self._body_size_at(before or 1) is None:
            raise self._wrong_size(f"it has what is before {last_file}, and nothing at {before}")
        # Files of ours would be as large as several of the master's: then one begins at a prime's share of it.
        for prime in _primes_of(size):
            between = last_file - size // prime
            if self._body_size_at(between - 1) == 1:
                raise self._wrong_size(f"a file begins at {between}, and one at {last_file}")

    def _body_size_at(self, offset: int) -> int | None:
        """Bytes of the frame that begins at an offset before the last file; None where the master has none."""
        try:
            with self._open_old(offset) as feed:
                return feed.first_body_size
        except OutOfRange:
            return None

    def _open_old(self, offset: int) -> MasterFeed:
        """A master that is just being started sends nothing of what it has either: it is asked again, once it answers.

        Raises: OutOfRange, twice found.
        """
        try:
            return open_old(self._address, offset, self._stopped, tls=self._tls)
        except OutOfRange:
            with MasterFeed(self._address, 0, tls=self._tls) as feed:
                feed.first(self._stopped)
            return open_old(self._address, offset, self._stopped, tls=self._tls)

    def _wrong_size(self, found: str) -> NoSuchStart:
        peer, size = format_address(*self._address), self._file_size
        return NoSuchStart(f"{peer}: the master's files are not of {size} bytes: {found}; --file-size must be theirs")

    # --- What is there -----------------------------------------------------------------------------------------------

    def _see_file(self, feed: MasterFeed, last_file: int, offset: int) -> None:
        """See that the last file reaches to an offset, and if it is the first one, that a message begins it."""
        if offset > last_file and feed.first_data(self._stopped) is None:
            raise self._beyond(feed, offset)
        if last_file == 0:
            self._read_record(feed, 0)
        while feed.next_offset is not None and feed.next_offset < offset:
            if not any(data for _, data in self._pieces(feed)) and feed.first_data(self._stopped) is None:
                raise self._beyond(feed, offset)

    @staticmethod
    def _beyond(feed: MasterFeed, offset: int) -> NoSuchStart:
        return NoSuchStart(f"{feed.peer}: offset {offset} is beyond the master's end, {feed.next_offset}")

    def _read_record(self, feed: MasterFeed, base: int) -> None:
        """Read the first record of a file, and so see that one begins there; wait where it has not come yet.

        Raises: NoSuchStart; PeerViolation for a master that begins elsewhere.
        """
        first = feed.first_offset
        if first not in (base, int(base == 0)):
            raise PeerViolation("HA-M-5", feed.peer, f"a frame at offset {first}", f"offset {feed.report}")
        records = Records(base, known=FIRST_BYTE if first != base else b"")
        is_waiting = False
        try:
            while True:
                for offset, data in self._pieces(feed):
                    if not data and not is_waiting:
                        log.info("%s: waiting for its first message", feed.peer)
                        is_waiting = True
                    # HA-S-82 "whose first record is of 16 MiB or more MUST be refused": here, or as its lengths do not add up.
                    if data and offset == 0 and data[0]:
                        raise NotARecord(0, f"{data[0]:#04x}, the first byte of a size", "0x00, of less than 16 MiB")
                    for _, record in records.take(data):
                        decode(record)
                        return
        except (NotARecord, MessageMalformed) as error:
            raise NoSuchStart(f"{feed.peer}: no log can begin at {base}: {error}") from error

    def _pieces(self, feed: MasterFeed) -> list[Piece]:
        """What comes in a tenth of a second. Raises: FeedEnded, PeerViolation, Stopped."""
        if self._stopped():
            raise Stopped
        pieces = feed.read() if feed.has_ready or wait_readable(feed, _TURN_MS) else []
        feed.tick()
        return pieces


def _primes_of(number: int) -> list[int]:
    """Its prime factors, each once."""
    primes, factor = [], 2
    while factor * factor <= number:
        if number % factor == 0:
            primes.append(factor)
            while number % factor == 0:
                number //= factor
        factor += 1
    return primes + [number] * (number > 1)
