"""A master's messages as JSON lines, as they come: a change feed of a broker, without a JVM."""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

import logging
import select
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.app.cursor import Position, read_cursor, write_cursor
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, MessageMalformed, RocketmqHaError
from rocketmq_ha.impl.ha.feed import NotARecord, Records
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.back_off import BackOff
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Stopped, Unreachable
from rocketmq_ha.impl.net.open_feed import find_min, open_feed
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.wire.message import decode

_TURN_MS: Final = 100
_SAVE_EVERY_S: Final = 1.0
_LAST_LINES_S: Final = 1.0  # how long we write a line that is half out, after we are told to stop
_END_S: Final = 2.0  # no data for this time after a heartbeat: the master has no more
_PAUSE_S: Final = 0.2  # no data for this time: the catch-up is over

log = logging.getLogger(__name__)


class LogChanged(RocketmqHaError):
    """The master's log differs from the one that was read before, or has become shorter."""


@dataclass(frozen=True, slots=True)
class TailOptions:
    """The options of `rocketmq-ha tail`."""

    master: MasterEndpoint
    start: str | int  # "last", "min", "end" or an offset
    cursor: Path | None
    limit: int | None
    stop_at_end: bool
    topics: tuple[str, ...]
    body: str
    settle: float  # seconds
    heartbeat: int  # milliseconds
    file_size: int


def run_tail(options: TailOptions) -> int:
    """Print messages to standard output until an option or a signal ends it. Raises: ConfigInvalid; as `Tail.run`.

    Returns: the exit status; not 0 if a signal came before the end that an option names.
    """
    tls = options.master.client_tls()
    cursor = options.cursor
    if cursor is not None and not cursor.parent.is_dir():
        raise ConfigInvalid(f"{cursor}: its directory does not exist")
    sys.stdout.flush()
    writer: StdoutWriter[Position] = StdoutWriter(sys.stdout.fileno())
    stopped, ends = Stop(), options.limit is not None or options.stop_at_end
    tail = Tail(options, writer, read_cursor(cursor) if cursor else None, tls)
    is_done = tail.run(stopped)
    return stopped.status if ends and not is_done else 0


@dataclass(slots=True)
class _Connection:
    """The state of the present connection."""

    feed: MasterFeed
    start: int  # commit-log offset of the first byte that is taken
    records: Records
    is_known: bool  # the first record was read before
    connected_ms: int
    quiet_since: float
    is_first: bool = True  # no record has come yet
    heartbeat_at: float | None = None  # when the heartbeat came after which no data has come


class Tail:
    """Reads messages, prints them, saves its position, and reconnects."""

    def __init__(
        self,
        options: TailOptions,
        writer: StdoutWriter[Position],
        position: Position | None,
        tls: ClientTls | None = None,
    ) -> None:
        self._options, self._writer, self._tls = options, writer, tls
        self._topics = frozenset(options.topics)
        if position is None and isinstance(options.start, int):
            position = Position(options.start)
        self._position = position  # behind the last record that was read; None until the master has said where
        self._saved: Position | None = None
        self._saved_at = 0.0
        self._lines = 0
        self._done = False
        self._is_skipping = position is None and options.start == "end"
        self._back_off = BackOff()

    def run(self, stopped: Callable[[], bool]) -> bool:
        """Follow until the options or `stopped` end it. Returns: whether the options did. Raises: what no retry can remove."""
        was_connected = False
        try:
            while not self._done and not stopped():
                try:
                    with self._open(stopped) as feed:
                        was_connected = True
                        self._follow(feed, stopped)
                except (Unreachable, FeedEnded) as error:
                    if not was_connected:
                        raise  # a wrong address is likelier than a master that is not up yet
                    log.warning(
                        "%s; connecting again",
                        error,
                        extra={"peer": format_address(*self._options.master.address), "reason": str(error)},
                    )
                    self._wait(stopped)
            self._finish(stopped)
        except Stopped:
            self._finish(stopped)
        except LogChanged:  # the messages before the damage are whole
            self._finish(stopped)
            raise
        finally:
            self._save()
        return self._done

    # --- Where to begin ----------------------------------------------------------------------------------------------

    def _open(self, stopped: Callable[[], bool]) -> MasterFeed:
        options, position = self._options, self._position
        address, heartbeat_ms = options.master.address, options.heartbeat
        if position is None and options.start == "min":
            return find_min(address, options.file_size, stopped, heartbeat_ms=heartbeat_ms, tls=self._tls)
        next_offset, overlap = (None, None) if position is None else (position.next_offset, position.last_offset)
        try:
            return open_feed(
                address,
                next_offset,
                stopped,
                overlap=overlap if overlap != -1 else None,
                settle_s=options.settle,
                heartbeat_ms=heartbeat_ms,
                tls=self._tls,
            )
        except OutOfRange as error:
            raise LogChanged(
                f"{error}; it has deleted that part of its log, or never had it. Begin elsewhere: --from"
            ) from error

    def _begin(self, feed: MasterFeed) -> _Connection:
        """Decide from which offset on the bytes of a new connection are taken, and whether the first record was read before."""
        first_offset = feed.first_offset
        assert first_offset is not None
        is_known = False
        if self._position is None:
            record_start = first_offset - (first_offset == 1)  # find_min has asked for byte 1
            self._position = Position(record_start)
            if not self._is_skipping:
                self._writer.put(b"", self._position)
            fields = {"peer": feed.peer, "offset": record_start}
            log.info("%s: connected; reading from offset %d", feed.peer, record_start, extra=fields)
        else:
            position = self._position
            is_known = position.last_offset >= first_offset - (first_offset == 1)
            record_start = position.last_offset if is_known else position.next_offset
            text = "%s: connected; sent from offset %d on, going on at %d"
            fields = {"peer": feed.peer, "offset": position.next_offset}
            log.info(text, feed.peer, first_offset, position.next_offset, extra=fields)
        return _Connection(
            feed,
            start=max(record_start, int(first_offset == 1)),
            records=self._records(record_start, first_offset),
            is_known=is_known,
            connected_ms=wall_clock_ms(),
            quiet_since=time.monotonic(),
        )

    @staticmethod
    def _records(start: int, first_offset: int) -> Records:
        """Byte 0 of the log cannot be requested. It is known: the first byte of a record's size, and that is below 16 MiB."""
        return Records(start, known=b"\0" if (start, first_offset) == (0, 1) else b"")

    # --- One connection ----------------------------------------------------------------------------------------------

    def _follow(self, feed: MasterFeed, stopped: Callable[[], bool]) -> None:
        connection = self._begin(feed)
        writer = self._writer
        while not self._done and not stopped():
            self._wait_for(feed)
            writer.write()
            feed.tick(is_reading=not writer.is_full)
            if not writer.is_full:
                self._read(connection)
            if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
                self._save()

    def _wait_for(self, feed: MasterFeed) -> None:
        """Wait until the master has sent bytes, or until the reader of our lines takes bytes or has gone."""
        writer = self._writer
        poll = select.poll()
        poll.register(writer.fd, 0 if writer.is_empty else select.POLLOUT)
        if not writer.is_full:
            poll.register(feed, select.POLLIN)
        found = poll.poll(0 if feed.has_ready else _TURN_MS)
        if any(fd == writer.fd and events & (select.POLLERR | select.POLLNVAL) for fd, events in found):
            raise BrokenPipeError

    def _read(self, connection: _Connection) -> None:
        """Take what the master has sent. After some silence, end the skipping and check for the end of its log."""
        now = time.monotonic()  # HA-T-20: what has come by now is read before silence counts
        for offset, data in connection.feed.read():
            if data:
                connection.heartbeat_at, connection.quiet_since = None, now
                self._back_off.reset()
                self._take_data(connection, offset, data)
            elif connection.heartbeat_at is None:
                connection.heartbeat_at = now
        heartbeat_at = connection.heartbeat_at
        if self._is_skipping and (heartbeat_at or now - connection.quiet_since > _PAUSE_S) and self._position is not None:
            self._is_skipping = False
            self._writer.put(b"", self._position)
        if heartbeat_at is not None and now - heartbeat_at > _END_S and connection.feed.may_expire:
            self._at_end(connection.feed, connection.start)

    def _take_data(self, connection: _Connection, offset: int, data: memoryview) -> None:
        start = connection.start
        if offset + len(data) <= start:
            return
        try:
            for at, record in connection.records.take(data[max(0, start - offset) :]):
                if connection.is_first and connection.is_known:
                    self._check_overlap(at, record)
                elif not self._done:
                    self._take(at, record, connection.connected_ms)
                connection.is_first = False
        except NotARecord as error:
            raise self._explain(error, connection) from error

    def _take(self, offset: int, record: bytes, connected_ms: int) -> None:
        """Print a message, or skip it."""
        assert self._position is not None
        try:
            message = decode(record)
        except MessageMalformed as error:
            raise LogChanged(f"the master sent a damaged message: at commit-log offset {offset}: {error}") from error
        self._position = Position(offset + len(record), offset, len(record), zlib.crc32(record))
        if self._is_skipping:
            if message.store_timestamp < connected_ms:
                return
            self._is_skipping = False
        if self._topics and message.topic not in self._topics:
            self._writer.put(b"", self._position)
            return
        self._writer.put(message_line(offset, len(record), message, self._options.body), self._position)
        self._lines += 1
        limit = self._options.limit
        self._done = limit is not None and self._lines >= limit

    def _check_overlap(self, offset: int, record: bytes) -> None:
        """Check that the record before the cursor is the same as before."""
        position = self._position
        assert position is not None
        if (offset, len(record), zlib.crc32(record)) != (position.last_offset, position.last_size, position.last_crc):
            raise LogChanged(
                f"the message at offset {position.last_offset} is not the one that was read before: the master's log has been "
                "cut and has grown again, or this is another master. Begin elsewhere: --from, without the old cursor"
            )

    def _explain(self, error: NotARecord, connection: _Connection) -> RocketmqHaError:
        if connection.is_first and connection.is_known:
            return LogChanged(
                f"the log is not the one that was read before: {error}. Begin elsewhere: --from, without the old cursor"
            )
        if connection.is_first and self._position is not None and self._position.last_offset == -1:
            return ConfigInvalid(f"offset {self._position.next_offset} is not the start of a message: {error}")
        return LogChanged(f"the master sent bytes that are no message: {error}")

    def _at_end(self, feed: MasterFeed, start: int) -> None:
        """Handle the end of the master's log: check that it is not before our position."""
        position = self._position
        assert position is not None
        end = feed.next_offset
        if end is not None and end < max(start, position.next_offset):
            raise LogChanged(
                f"offset {position.next_offset} is beyond the master's end, {end}: its log has been cut or replaced, or the "
                "offset is wrong. Begin elsewhere: --from"
            )
        if self._options.stop_at_end:
            self._done = True

    # --- Between connections, and at the end -------------------------------------------------------------------------

    def _wait(self, stopped: Callable[[], bool]) -> None:
        """Back off, and write lines meanwhile."""
        self._back_off.wait(stopped, lambda left_s: self._writer.write(int(min(left_s, _TURN_MS / 1000) * 1000) + 1))

    def _finish(self, stopped: Callable[[], bool]) -> None:
        """Write what is left. After we are told to stop, finish only a line that is half out, for a short time."""
        writer = self._writer
        while not writer.is_empty and not stopped():
            writer.write(_TURN_MS)
        until = time.monotonic() + _LAST_LINES_S
        writer.write()
        while writer.finish_line() and time.monotonic() < until:
            writer.write(_TURN_MS)

    def _save(self) -> None:
        """Replace the cursor file, if lines were written since the last time."""
        self._saved_at = time.monotonic()
        reached = self._writer.reached
        if self._options.cursor is None or reached is None or reached == self._saved:
            return
        self._writer.sync()
        write_cursor(self._options.cursor, reached)
        self._saved = reached
