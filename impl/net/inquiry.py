"""Questions to a master, each on a connection of its own: where its last file begins, and which frame it sends at an offset.

The protocol has no such request. A master answers a report of 0 from the start of its last file (HA-M-4), and sends data from
any other offset that it has (HA-M-5). It takes each report for an acknowledgement of everything before the offset (HA-W-9), so
`settle` comes before the first question about an old offset.
"""

from collections.abc import Callable

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.feed import MasterFeed, OutOfRange
from rocketmq_ha.impl.net.open_feed import SETTLE_S, open_old, settle, settle_before
from rocketmq_ha.impl.net.tls_ends import ClientTls


class Inquiry:
    """Questions to one master.

    All methods raise Unreachable, FeedEnded and PeerViolation, where another try may succeed, and Stopped.
    """

    def __init__(
        self,
        address: tuple[str, int],
        stopped: Callable[[], bool],
        settle_s: float = SETTLE_S,
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> None:
        """stopped: polled ten times a second. source_address: our address to connect from; None: the system chooses."""
        self.address, self.stopped, self._settle_s = address, stopped, settle_s
        self._tls, self._source_address = tls, source_address
        self.peer = format_address(*address)
        self.connections = 0
        self._is_settled = False

    def open(self, report: int) -> MasterFeed:
        """Open a connection that reports an offset and reads from there; 0 means the start of the last file."""
        feed = MasterFeed(self.address, report, tls=self._tls, source_address=self._source_address)
        self.connections += 1
        return feed

    def last_file(self) -> int:
        """The offset at which the master's last file begins; 0 if the master has no message."""
        with self.open(0) as feed:
            return feed.first(self.stopped)[0]

    def is_fresh(self, feed: MasterFeed) -> bool:
        """Return True if a put may still wait for an offset before the last file.

        feed: a connection that reported 0 and has received its first piece.
        """
        found = feed.first_data(self.stopped)
        return settle_before(memoryview(b"") if found is None else found[1])

    def settle(self, last_file: int) -> None:
        """Wait once until no put can still wait for an offset before the last file.

        Spec: HA-S-85 "MUST NOT report an offset that a put of the master may still wait for".
        """
        if not self._is_settled:
            settle(self.peer, last_file, self._settle_s, self.stopped)
            self._is_settled = True

    def body_size_at(self, offset: int) -> int | None:
        """Body size of the frame at an offset before the last file, in bytes; None if the master has no data there."""
        try:
            with self._old(offset) as feed:
                if feed.first_offset != offset:
                    raise PeerViolation("HA-M-5", feed.peer, f"a frame at offset {feed.first_offset}", f"offset {offset}")
                return feed.first_body_size
        except OutOfRange:
            return None

    def open_old(self, offset: int) -> MasterFeed:
        """Open a connection that reads from an offset before the last file.

        A master that is just starting has no data at any offset. So if it has none, wait until it answers a report of 0, then
        try again. Raises: OutOfRange, if the second try brings no data either.
        """
        try:
            return self._old(offset)
        except OutOfRange:
            self.last_file()
            return self._old(offset)

    def _old(self, offset: int) -> MasterFeed:
        self.connections += 1
        return open_old(self.address, offset, self.stopped, tls=self._tls, source_address=self._source_address)
