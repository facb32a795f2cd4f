"""`rocketmq-ha tail`: a master's messages as JSON lines, as they come; a change feed of a broker, without a JVM."""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

import logging
import random
import select
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.cursor import Position, read_cursor, write_cursor
from rocketmq_ha.impl.cli.master_option import master_option, parse_master, settle_option
from rocketmq_ha.impl.cli.message_json import body_option, message_line
from rocketmq_ha.impl.cli.outlet import Outlet
from rocketmq_ha.impl.cli.replication import Stop
from rocketmq_ha.impl.cli.start_option import start_at
from rocketmq_ha.impl.cli.tls_options import client_tls, tls_client_options
from rocketmq_ha.impl.errors import ConfigInvalid, MessageMalformed, RocketmqHaError
from rocketmq_ha.impl.ha.feed import NotARecord, Records
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.client import FIRST_BACK_OFF_S, LAST_BACK_OFF_S
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Stopped, Unreachable, find_min, open_feed
from rocketmq_ha.impl.net.tls import ClientTls
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.spec.constants import HA_SEND_HEARTBEAT_INTERVAL_MS, MAPPED_FILE_SIZE_COMMIT_LOG

_TURN_MS: Final = 100
_SAVE_EVERY_S: Final = 1.0
_LAST_LINES_S: Final = 1.0  # for a reader to take what was begun, once we are told to stop
_END_S: Final = 2.0  # without data behind a heartbeat: there is none
_PAUSE_S: Final = 0.2  # without data while catching up: that was all there is

log = logging.getLogger(__name__)


class LogChanged(RocketmqHaError):
    """The master's log is not the one that was read before, or not as far."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    address: tuple[str, int]
    start: str | int  # "last", "min", "end" or an offset
    cursor: Path | None
    limit: int | None
    topics: frozenset[str]
    body: str
    stop_at_end: bool
    settle_s: float
    heartbeat_ms: int
    file_size: int
    tls: ClientTls | None


@click.command()
@master_option("The master's HA address, 10912 by default there.")
@tls_client_options
@click.option(
    "--from",
    "start",
    default="last",
    show_default=True,
    type=start_at("last", "min", "end"),
    metavar="WHERE",
    help="Where to begin if the cursor does not say: the start of the master's last file (last), its first byte (min), what "
    "comes from now on (end), or the offset at which a message starts.",
)
@click.option(
    "--cursor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Go on from where this file says, and keep it up to date.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option(
    "--stop-at-end", is_flag=True, help="End when the master has no more (its heartbeat tells, after 5 s by default)."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic only; may be given again.")
@body_option
@settle_option
@click.option(
    "--heartbeat",
    type=click.IntRange(min=1),
    default=HA_SEND_HEARTBEAT_INTERVAL_MS,
    show_default=True,
    metavar="MS",
    help="Between two reports; less than the master's haHousekeepingInterval.",
)
@click.option(
    "--file-size",
    type=click.IntRange(min=1),
    default=MAPPED_FILE_SIZE_COMMIT_LOG,
    show_default=True,
    metavar="BYTES",
    help="Of the master's commit-log files; needed for --from min alone, where its first file is gone.",
)
def tail(
    address: str,
    start: str | int,
    cursor: Path | None,
    limit: int | None,
    stop_at_end: bool,
    topics: tuple[str, ...],
    body: str,
    settle: float,
    heartbeat: int,
    file_size: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_name: str | None,
) -> None:
    """Follow a live master and print its messages as JSON lines.

    It speaks the replication protocol to the HA port of a RocketMQ broker, or of `rocketmq-ha master`. Each line has offset,
    topic, queue, tags, keys, properties, times in UTC, and the body, decompressed, as in inspect and query (docs/messages.md).
    The messages are those of the log:
    transactional halves, delayed ones and internal topics are among them.

    With --cursor a later run goes on behind the last line, without a gap: the file is replaced every second, after lines are
    written to standard output. A kill -9, or a crash of the machine, can repeat the lines of the last second, and no others.
    Lines in a pipe whose reader has died count as written; a reader that must not lose one keeps the `next_offset` of the last
    line that it has dealt with, and comes back with --from.

    It is no replica: it reports 0, or an offset in an old file of the master, and repeats that for ever. So it reads the last
    file from its start, and skips what it need not print. A master that counts sockets (RocketMQ 4.x) counts it as a slave: if
    there is no other, sync puts end in FLUSH_SLAVE_TIMEOUT, not in SLAVE_NOT_AVAILABLE.

    Ends by SIGINT or SIGTERM, or where the reader of its lines goes away. A connection that ends is opened again.

    \b
        rocketmq-ha tail --master broker-a:10912 --from end
        rocketmq-ha tail --master broker-a:10912 --cursor feed.cursor --topic orders --body json | consume
    """
    master = parse_master(address)
    topic_set = frozenset(topics)
    tls = client_tls(master[0], tls_cert, tls_key, tls_ca, tls_name)
    wanted = Wanted(master, start, cursor, limit, topic_set, body, stop_at_end, settle, heartbeat, file_size, tls)
    if cursor is not None and not cursor.parent.is_dir():
        raise ConfigInvalid(f"{cursor}: its directory does not exist")
    sys.stdout.flush()
    Tail(wanted, Outlet(sys.stdout.fileno()), read_cursor(cursor) if cursor else None).run(Stop())


class Tail:
    """Reads, prints, keeps its place, and reconnects."""

    def __init__(self, wanted: Wanted, outlet: Outlet[Position], position: Position | None) -> None:
        self._wanted, self._outlet = wanted, outlet
        if position is None and isinstance(wanted.start, int):
            position = Position(wanted.start)
        self._position = position  # behind the last record that was read; None until the master has said where
        self._saved: Position | None = None
        self._saved_at = 0.0
        self._lines = 0
        self._done = False
        self._is_skipping = position is None and wanted.start == "end"
        self._back_off_s = FIRST_BACK_OFF_S

    def run(self, stopped: Callable[[], bool]) -> None:
        """Follow until told to stop, or until there is enough. Raises: what no further try would mend."""
        was_connected = False
        try:
            while not self._done and not stopped():
                try:
                    with self._open(stopped) as feed:
                        was_connected = True
                        self._follow(feed, stopped)
                except (Unreachable, FeedEnded) as error:
                    if not was_connected:
                        raise  # a wrong address is likelier than a master that will come
                    log.warning(
                        "%s; connecting again",
                        error,
                        extra={"peer": format_address(*self._wanted.address), "reason": str(error)},
                    )
                    self._wait(stopped)
            self._finish(stopped)
        except Stopped:
            self._finish(stopped)
        finally:
            self._save()

    # --- Where to begin ----------------------------------------------------------------------------------------------

    def _open(self, stopped: Callable[[], bool]) -> MasterFeed:
        wanted, position = self._wanted, self._position
        if position is None and wanted.start == "min":
            feed = find_min(wanted.address, wanted.file_size, stopped, heartbeat_ms=wanted.heartbeat_ms, tls=wanted.tls)
        else:
            next_offset, overlap = (None, None) if position is None else (position.next_offset, position.last_offset)
            try:
                feed = open_feed(
                    wanted.address,
                    next_offset,
                    stopped,
                    overlap=overlap if overlap != -1 else None,
                    settle_s=wanted.settle_s,
                    heartbeat_ms=wanted.heartbeat_ms,
                    tls=wanted.tls,
                )
            except OutOfRange as error:
                raise LogChanged(
                    f"{error}; it has deleted that part of its log, or never had it. Begin elsewhere: --from"
                ) from error
        return feed

    def _begin(self, feed: MasterFeed) -> tuple[int, Records, bool]:
        """Where to take the first byte, how to cut records from there, and whether the first one was read before."""
        first_offset = feed.first_offset
        assert first_offset is not None
        if self._position is None:
            start = first_offset - (first_offset == 1)  # find_min has asked for byte 1
            self._position = Position(start)
            if not self._is_skipping:
                self._outlet.put(b"", self._position)
            log.info("%s: connected; reading from offset %d", feed.peer, start, extra={"peer": feed.peer, "offset": start})
            return first_offset, self._records(start, first_offset), False
        position = self._position
        is_known = position.last_offset >= first_offset - (first_offset == 1)
        start = position.last_offset if is_known else position.next_offset
        text = "%s: connected; sent from offset %d on, going on at %d"
        fields = {"peer": feed.peer, "offset": position.next_offset}
        log.info(text, feed.peer, first_offset, position.next_offset, extra=fields)
        return max(start, int(first_offset == 1)), self._records(start, first_offset), is_known

    @staticmethod
    def _records(start: int, first_offset: int) -> Records:
        """Byte 0 of the log cannot be asked for, and is known: the first one of a record's size, which is below 16 MiB."""
        return Records(start, known=b"\0" if (start, first_offset) == (0, 1) else b"")

    # --- One connection ----------------------------------------------------------------------------------------------

    def _follow(self, feed: MasterFeed, stopped: Callable[[], bool]) -> None:
        start, records, is_known = self._begin(feed)
        outlet = self._outlet
        is_first = True  # of the records of this connection
        connected_ms = time.time_ns() // 1_000_000
        quiet_since = time.monotonic()
        heartbeat_at: float | None = None  # of a heartbeat behind which nothing has come
        while not self._done and not stopped():
            self._wait_for(feed, outlet)
            outlet.write()
            feed.tick(is_reading=not outlet.is_full)
            if not outlet.is_full:
                now = time.monotonic()  # HA-T-20: what had come by now is read before anything is drawn from silence
                pieces = feed.read()
                for offset, data in pieces:
                    if not data:
                        heartbeat_at = now if heartbeat_at is None else heartbeat_at
                        continue
                    heartbeat_at, quiet_since = None, now
                    self._back_off_s = FIRST_BACK_OFF_S
                    if offset + len(data) <= start:
                        continue
                    try:
                        for at, record in records.take(data[max(0, start - offset) :]):
                            if is_first and is_known:
                                self._check_overlap(at, record)
                            elif not self._done:
                                self._take(at, record, connected_ms)
                            is_first = False
                    except NotARecord as error:
                        raise self._explain(error, is_first, is_known) from error
                if self._is_skipping and (heartbeat_at or now - quiet_since > _PAUSE_S) and self._position is not None:
                    self._is_skipping = False
                    outlet.put(b"", self._position)
                if heartbeat_at is not None and now - heartbeat_at > _END_S and feed.may_expire:
                    self._at_end(feed, start)
            if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
                self._save()

    def _wait_for(self, feed: MasterFeed, outlet: Outlet[Position]) -> None:
        """Wait until the master has sent something, or the reader takes something, or has gone."""
        poll = select.poll()
        poll.register(outlet.fd, 0 if outlet.is_empty else select.POLLOUT)
        if not outlet.is_full:
            poll.register(feed, select.POLLIN)
        found = poll.poll(0 if feed.has_ready else _TURN_MS)
        if any(fd == outlet.fd and events & (select.POLLERR | select.POLLNVAL) for fd, events in found):
            raise BrokenPipeError

    def _take(self, offset: int, record: bytes, connected_ms: int) -> None:
        """Print a message, or pass it by."""
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
        wanted = self._wanted
        if wanted.topics and message.topic not in wanted.topics:
            self._outlet.put(b"", self._position)
            return
        self._outlet.put(message_line(offset, len(record), message, wanted.body), self._position)
        self._lines += 1
        self._done = wanted.limit is not None and self._lines >= wanted.limit

    def _check_overlap(self, offset: int, record: bytes) -> None:
        """The record before the cursor must be as it was."""
        position = self._position
        assert position is not None
        if (offset, len(record), zlib.crc32(record)) != (position.last_offset, position.last_size, position.last_crc):
            raise LogChanged(
                f"the message at offset {position.last_offset} is not the one that was read before: the master's log has been "
                "cut and has grown again, or this is another master. Begin elsewhere: --from, without the old cursor"
            )

    def _explain(self, error: NotARecord, is_first: bool, is_known: bool) -> RocketmqHaError:
        if is_first and is_known:
            return LogChanged(
                f"the log is not the one that was read before: {error}. Begin elsewhere: --from, without the old cursor"
            )
        if is_first and self._position is not None and self._position.last_offset == -1:
            return ConfigInvalid(f"offset {self._position.next_offset} is not the start of a message: {error}")
        return LogChanged(f"the master sent bytes that are no message: {error}")

    def _at_end(self, feed: MasterFeed, start: int) -> None:
        """The master has nothing more to send for now."""
        position = self._position
        assert position is not None
        end = feed.next_offset
        if end is not None and end < max(start, position.next_offset):
            raise LogChanged(
                f"offset {position.next_offset} is beyond the master's end, {end}: its log has been cut or replaced, or the "
                "offset is wrong. Begin elsewhere: --from"
            )
        if self._wanted.stop_at_end:
            self._done = True

    # --- Between connections, and at the end -------------------------------------------------------------------------

    def _wait(self, stopped: Callable[[], bool]) -> None:
        until = time.monotonic() + self._back_off_s * random.uniform(0.5, 1)
        self._back_off_s = min(2 * self._back_off_s, LAST_BACK_OFF_S)
        while (left_s := until - time.monotonic()) > 0 and not stopped():
            self._outlet.write(int(min(left_s, _TURN_MS / 1000) * 1000) + 1)
            time.sleep(max(0.0, min(until - time.monotonic(), 0.02)))

    def _finish(self, stopped: Callable[[], bool]) -> None:
        """Write what is left; once told to stop, only a line that is half out, and not for long."""
        outlet = self._outlet
        while not outlet.is_empty and not stopped():
            outlet.write(_TURN_MS)
        until = time.monotonic() + _LAST_LINES_S
        outlet.write()
        while outlet.finish_line() and time.monotonic() < until:
            outlet.write(_TURN_MS)

    def _save(self) -> None:
        """Replace the cursor, if lines were written since."""
        self._saved_at = time.monotonic()
        reached = self._outlet.reached
        if self._wanted.cursor is None or reached is None or reached == self._saved:
            return
        self._outlet.sync()
        write_cursor(self._wanted.cursor, reached)
        self._saved = reached
