"""Questions to a master, each on a connection of its own: where its last file begins, and what it has at an offset.

The wire has no such questions. A master says where its last file begins when it is asked for data from offset 0 (HA-M-4), and
sends data from any other offset that it has (HA-M-5). An offset that is asked for is taken for an acknowledgement of all before
it (HA-W-9): so `settle` comes before the first one.
"""

from collections.abc import Callable

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.feed import SETTLE_S, MasterFeed, OutOfRange, open_old, settle, settle_before
from rocketmq_ha.impl.net.tls import ClientTls


class Inquiry:
    """Questions to one master. All raise Unreachable, FeedEnded and PeerViolation, after which another try may fare better, and
    Stopped.
    """

    def __init__(
        self,
        address: tuple[str, int],
        stopped: Callable[[], bool],
        settle_s: float = SETTLE_S,
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> None:
        """stopped: is asked ten times a second. source_address: of ours, to connect from; the system's choice, if none is
        given.
        """
        self.address, self.stopped, self._settle_s = address, stopped, settle_s
        self._tls, self._source_address = tls, source_address
        self.peer = format_address(*address)
        self.connections = 0
        self._is_settled = False

    def open(self, report: int) -> MasterFeed:
        """A connection that asks for data from an offset; from 0 for that of the master's last file."""
        feed = MasterFeed(self.address, report, tls=self._tls, source_address=self._source_address)
        self.connections += 1
        return feed

    def last_file(self) -> int:
        """Where the master's last file begins; 0 if it has no message."""
        with self.open(0) as feed:
            return feed.first(self.stopped)[0]

    def is_fresh(self, feed: MasterFeed) -> bool:
        """Whether a put may still wait for an offset before the last file. feed: one that asks for 0 and has its first
        piece.
        """
        found = feed.first_data(self.stopped)
        return settle_before(memoryview(b"") if found is None else found[1])

    def settle(self, last_file: int) -> None:
        """Wait until no put can wait any more for an offset before the last file, where this has not been done.

        Spec: HA-S-85 "MUST NOT report an offset that a put of the master may still wait for".
        """
        if not self._is_settled:
            settle(self.peer, last_file, self._settle_s, self.stopped)
            self._is_settled = True

    def body_size_at(self, offset: int) -> int | None:
        """Bytes of the frame that begins at an offset before the last file; None where the master has no data there."""
        try:
            with self._old(offset) as feed:
                if feed.first_offset != offset:
                    raise PeerViolation("HA-M-5", feed.peer, f"a frame at offset {feed.first_offset}", f"offset {offset}")
                return feed.first_body_size
        except OutOfRange:
            return None

    def open_old(self, offset: int) -> MasterFeed:
        """A connection that begins at an offset before the last file.

        A master that is just being started has no data at any offset, so it is asked again after it has answered a report of 0.
        Raises: OutOfRange, if it has had no data twice.
        """
        try:
            return self._old(offset)
        except OutOfRange:
            self.last_file()
            return self._old(offset)

    def _old(self, offset: int) -> MasterFeed:
        self.connections += 1
        return open_old(self.address, offset, self.stopped, tls=self._tls, source_address=self._source_address)
