"""Open a feed at a wanted offset: the last file, an offset in it, an older offset, or the master's first byte."""

import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Final

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.net.back_off import sleep_unless_stopped
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Stopped
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.wire.record_layout import STORE_TIMESTAMP, store_timestamp_at
from rocketmq_ha.spec.constants import (
    HA_SEND_HEARTBEAT_INTERVAL_MS,
    IPV6_EXTRA_SIZE,
)

log = logging.getLogger(__name__)

SETTLE_S: Final = 10.0  # longer than a put waits for a slave: 5 s, and 1 s that 4.9.8 may be late
_FRESH_MS: Final = (
    60_000  # a last file begun within it may have puts of the file before that still wait; clocks may differ by it
)
_AGAIN_S: Final = 0.1
_REFUSALS: Final = 3


def open_feed(
    address: tuple[str, int],
    target: int | None,
    stopped: Callable[[], bool],
    *,
    overlap: int | None = None,
    settle_s: float = SETTLE_S,
    heartbeat_ms: int = HA_SEND_HEARTBEAT_INTERVAL_MS,
    tls: ClientTls | None = None,
    source_address: tuple[str, int] | None = None,
) -> MasterFeed:
    """A connection whose pieces begin at an offset or before it; but for offset 0 in an old file, where they begin at 1.

    Args:  target: a commit-log offset; None for the start of the master's last file. overlap: an offset before the target, at
           which to begin where the target is in an older file.
    Raises: Unreachable, FeedEnded, PeerViolation; OutOfRange where the master has deleted the offset; Stopped.
    An offset beyond the master's end shows only as it is read on.
    """
    feed = MasterFeed(address, 0, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)
    try:
        last_file, data = feed.first(stopped)
        if target is None or target >= last_file:
            return feed
        is_fresh = settle_before(data)
    except BaseException:
        feed.close()
        raise
    feed.close()
    if is_fresh:
        settle(feed.peer, last_file, settle_s, stopped)
    return open_old(
        address,
        max(1, target if overlap is None else overlap),
        stopped,
        heartbeat_ms=heartbeat_ms,
        tls=tls,
        source_address=source_address,
    )


def find_min(
    address: tuple[str, int],
    file_size: int,
    stopped: Callable[[], bool],
    *,
    heartbeat_ms: int = HA_SEND_HEARTBEAT_INTERVAL_MS,
    tls: ClientTls | None = None,
    source_address: tuple[str, int] | None = None,
) -> MasterFeed:
    """A connection that begins at the master's first byte; or at its second, offset 1, for 0 would mean its last file.

    Where file 0 is gone, the first file is found by halving, over the multiples of a file's size. Each file that is gone costs
    some seconds: a classic master answers with a heartbeat only.
    Raises: as open_feed; OutOfRange where the start of the last file is no multiple of the size.
    """
    feed = open_feed(address, None, stopped, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)
    last_file = feed.first_offset
    if last_file == 0:
        return feed
    feed.close()
    assert last_file is not None
    try:
        return open_old(address, 1, stopped, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)
    except OutOfRange:
        log.info("%s: file 0 is gone; looking for the first one", feed.peer)
    if last_file % file_size:
        raise OutOfRange(feed.peer, last_file, f"it begins a file, and is no multiple of {file_size}: say --file-size")
    gone, there = 0, last_file // file_size
    while there - gone > 1:
        middle = (gone + there) // 2
        try:
            open_old(
                address, middle * file_size, stopped, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address
            ).close()
            there = middle
        except OutOfRange:
            gone = middle
    if there * file_size == last_file:  # which is asked for by 0 alone, and may have no byte yet
        return open_feed(address, None, stopped, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)
    return open_old(address, there * file_size, stopped, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)


def open_old(
    address: tuple[str, int],
    target: int,
    stopped: Callable[[], bool],
    *,
    heartbeat_ms: int = HA_SEND_HEARTBEAT_INTERVAL_MS,
    tls: ClientTls | None = None,
    source_address: tuple[str, int] | None = None,
) -> MasterFeed:
    """A connection that begins at an offset before the master's last file. Raises: as open_feed."""
    for refusals in count(1):
        feed = MasterFeed(address, target, heartbeat_ms=heartbeat_ms, tls=tls, source_address=source_address)
        try:
            data = feed.first_data(stopped)
            break
        except FeedEnded as error:
            feed.close()
            if feed.first_offset is not None:
                raise
            if refusals == _REFUSALS:  # a cut in the first header looks the same, but not every time
                raise OutOfRange(feed.peer, target, f"it closes, or stays silent ({error})") from error
            time.sleep(_AGAIN_S)
        except BaseException:
            feed.close()
            raise
    if data is None:
        feed.close()
        raise OutOfRange(feed.peer, target, "it sends heartbeats and no data, though its log goes on behind")
    return feed


def settle_before(data: memoryview) -> bool:
    """Whether the last file, which begins with these bytes, may have been begun a moment ago."""
    if len(data) < STORE_TIMESTAMP.end + IPV6_EXTRA_SIZE:
        return True
    return store_timestamp_at(data) > wall_clock_ms() - _FRESH_MS


def settle(peer: str, last_file: int, settle_s: float, stopped: Callable[[], bool]) -> None:
    """Wait until no put can wait any more for an offset before the master's last file. Raises: Stopped."""
    if settle_s > 0:
        log.info(
            "%s: has just begun file %d; waiting %g s, for no put may take a report of ours for its own",
            peer,
            last_file,
            settle_s,
        )
    if not sleep_unless_stopped(settle_s, stopped):
        raise Stopped
