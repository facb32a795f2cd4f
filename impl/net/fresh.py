"""Find the offset at which a slave's empty log begins, and the size of its files, by connections like a reader's (feed.py).

The protocol has no such request. A master sends from the start of its last file if a slave reports 0, and from any other
offset that it has. So the search tries offsets, for the first file as for the size of the files (file_size.py).

These reports acknowledge nothing: each connection repeats one offset, and `Inquiry.settle` makes sure that no put can still
wait for it.
Spec: HA-S-80 to HA-S-85, HA-S-96 to HA-S-99.
"""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import FileSizeDiffers, MessageMalformed, PeerViolation, RocketmqHaError
from rocketmq_ha.impl.ha.feed import NotARecord, Piece, Records
from rocketmq_ha.impl.ha.size_search import CannotTell, OnlyLastFile
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Stopped, wait_readable
from rocketmq_ha.impl.net.file_size import learn_file_size
from rocketmq_ha.impl.net.inquiry import Inquiry
from rocketmq_ha.impl.net.open_feed import SETTLE_S, find_min
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.store.log.commit_log import FIRST_BYTE
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG

# "last" or "min": the master's last or first file. A number: the file that holds this commit-log offset.
Start = str | int

# States of a search.
ASKING: Final = "asking the master about its files"
WAITING: Final = "waiting for the master's first message"

_TURN_MS: Final = 100

log = logging.getLogger(__name__)


class NoSuchStart(RocketmqHaError):
    """The log cannot begin at the requested start. Another try would end in the same way."""


class WrongFileSize(RocketmqHaError):
    """The master's files differ from the size given, or their size cannot be learnt. Another try would end in the same way."""


class Found(NamedTuple):
    """The result of a search.

    base: commit-log offset of the file to begin with; None: the file that the master chooses, its last one.
    file_size: size of the master's files in bytes; None: it cannot be known yet.
    """

    base: int | None
    file_size: int | None


class FreshStart:
    """One search over several connections, opened and closed one after the other."""

    def __init__(
        self,
        address: tuple[str, int],
        file_size: int | None,
        stopped: Callable[[], bool],
        settle_s: float = SETTLE_S,
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> None:
        """file_size: size in bytes that the user gave, if any. stopped: polled ten times a second."""
        self._inquiry = Inquiry(address, stopped, settle_s, tls, source_address)
        self._told, self._stopped = file_size, stopped
        self._is_waiting = False  # for the first message of an empty master
        self._tls, self._source_address = tls, source_address

    @property
    def state(self) -> str:
        """ASKING or WAITING; "" before the first connection."""
        if self._is_waiting:
            return WAITING
        return ASKING if self._inquiry.connections else ""

    def find(self, start: Start) -> Found:
        """Find the file to begin with, and the size of the master's files.

        If the master has no message yet, wait for one, unless the log begins with the last file.
        Spec: HA-S-84 "An offset inside a file MUST mean the start of that file"; HA-S-83 "beyond the master's end, or that the
        master has deleted, or that is no start of one of its files MUST be refused", "no multiple of the
        slave's file size MUST be refused".
        Raises: NoSuchStart, WrongFileSize; Unreachable, FeedEnded, PeerViolation, where another try may succeed; Stopped.
        """
        inquiry = self._inquiry
        offset = start if isinstance(start, int) else None
        with inquiry.open(0) as feed:
            last_file, _ = feed.first(self._stopped)
            if last_file == 0:  # HA-S-96 "Where that offset is 0 the slave cannot know the size yet"
                if start == "last":
                    return Found(None, None)
                self._see_file(feed, 0, offset or 0)
                return Found(0, None)
            is_fresh = inquiry.is_fresh(feed)
        learnt = self._learn(last_file, is_fresh)
        if start == "last":
            return Found(None, learnt)
        if is_fresh:
            inquiry.settle(last_file)
        size = learnt or MAPPED_FILE_SIZE_COMMIT_LOG
        if offset is None:
            return Found(last_file if learnt is None else self._find_first(size), learnt)
        base = offset - offset % size
        if base > last_file:
            peer = inquiry.peer
            raise NoSuchStart(f"{peer}: offset {offset} is beyond the master's end: its last file begins at {last_file}")
        if base < last_file:
            return Found(self._find_old(offset, base), learnt)
        with inquiry.open(0) as feed:
            if feed.first(self._stopped)[0] != last_file:
                raise FeedEnded(f"{feed.peer}: it has begun another file meanwhile")
            self._see_file(feed, last_file, offset)
        return Found(base, learnt)

    def check(self, patience_s: float) -> None:
        """Check with one request that a log with files of the given size can be the master's, before its slave goes on.

        Spec: HA-S-98 "MUST stop in one error that names both sizes".
        Raises: FileSizeDiffers; WrongFileSize, if the master's size cannot be learnt; Unreachable, FeedEnded, PeerViolation;
        Stopped.
        """
        assert self._told is not None
        with self._inquiry.open(0) as feed:
            last_file, _ = feed.first(self._stopped, patience_s)
            if last_file % self._told == 0:
                return
            is_fresh = self._inquiry.is_fresh(feed)
        try:
            size = learn_file_size(self._inquiry, last_file, is_fresh)
        except CannotTell as error:
            raise self._wrong_size(last_file) from error
        raise FileSizeDiffers(self._inquiry.peer, self._told, size)

    def _learn(self, last_file: int, is_fresh: bool) -> int | None:
        """Learn the size of the master's files. Returns: None if it may be the default and cannot be known yet.

        The search waits first if a put may still wait for an older offset, even if the user gave a size: most wrong sizes are
        powers of two and divide the start of the last file, as the right size does.
        Raises: WrongFileSize; as `find`.
        """
        told, peer = self._told, self._inquiry.peer
        try:
            size = learn_file_size(self._inquiry, last_file, is_fresh, told)
        except CannotTell as error:
            if told is not None and last_file % told == 0:
                return told
            if told is None and isinstance(error, OnlyLastFile) and last_file % MAPPED_FILE_SIZE_COMMIT_LOG == 0:
                log.info("%s: it has its last file alone: the size of its files shows at that file's end", peer)
                return None
            if told is not None:
                raise self._wrong_size(last_file) from error
            # HA-S-97 "the slave MUST stop in one error that asks for the size".
            text = f"the size of the master's files cannot be learnt: {error}; give it, by --file-size"
            raise WrongFileSize(f"{peer}: {text}") from error
        if told not in (None, size):  # HA-S-98 "MUST stop in one error that names both sizes"
            raise WrongFileSize(f"{peer}: the master's files are of {size} bytes, not of {told}; --file-size must be theirs")
        return size

    def _wrong_size(self, last_file: int) -> WrongFileSize:
        found = f"its last one begins at {last_file}"
        return WrongFileSize(
            f"{self._inquiry.peer}: the master's files are not of {self._told} bytes: {found}; --file-size must be theirs"
        )

    def _find_first(self, file_size: int) -> int:
        inquiry = self._inquiry
        try:
            feed = find_min(inquiry.address, file_size, self._stopped, tls=self._tls, source_address=self._source_address)
        except OutOfRange as error:
            raise FeedEnded(f"{error}, any more") from error
        with feed:
            assert feed.first_offset is not None
            base = feed.first_offset if feed.report == 0 else feed.report - (feed.report == 1)
            if feed.report or base == 0:  # else it is the last file, which may have no message yet
                self._read_record(feed, base)
        if base and inquiry.body_size_at(base - 1) is not None:
            raise FeedEnded(f"{feed.peer}: what it did not have before offset {base} is there")
        return base

    def _find_old(self, start: int, base: int) -> int:
        try:
            feed = self._inquiry.open_old(max(base, 1))
        except OutOfRange as error:
            raise NoSuchStart(
                f"{error}; it has deleted the file of offset {start}: --from min begins with its first"
            ) from error
        with feed:
            self._read_record(feed, base)
        return base

    # --- Reading the files -----------------------------------------------------------------------------------------------

    def _see_file(self, feed: MasterFeed, last_file: int, offset: int) -> None:
        """Check that the last file reaches an offset and, if it is also the first file, that it begins with a message."""
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
        """Read the first record of a file, to check that a record begins there. Wait for it if the file is still empty.

        Raises: NoSuchStart; PeerViolation, if the master's first frame has another offset.
        """
        first = feed.first_offset
        if first not in (base, int(base == 0)):
            raise PeerViolation("HA-M-5", feed.peer, f"a frame at offset {first}", f"offset {feed.report}")
        records = Records(base, known=FIRST_BYTE if first != base else b"")
        is_waiting = False
        try:
            while True:
                for offset, data in self._pieces(feed):
                    self._is_waiting = not data
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
        """The pieces that arrive within 100 ms. Raises: FeedEnded, PeerViolation, Stopped."""
        if self._stopped():
            raise Stopped
        pieces = feed.read() if feed.has_ready or wait_readable(feed, _TURN_MS) else []
        feed.tick()
        return pieces
