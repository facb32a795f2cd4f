"""The slave's process loop: connect to the master, replicate its log, reconnect with back-off."""

import logging
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import AppendFailed, OutOfStep, PeerViolation
from rocketmq_ha.impl.ha.overlap import Overlap
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.address import CONNECT_TIMEOUT_S, connect, format_address
from rocketmq_ha.impl.net.back_off import LAST_BACK_OFF_S, BackOff
from rocketmq_ha.impl.net.feed import WITHOUT_A_BYTE, FeedEnded, MasterFeed, Stopped, Unreachable
from rocketmq_ha.impl.net.link import SlaveLink, Socket
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.net.server import TICK_MS
from rocketmq_ha.impl.net.tls import TlsSocket
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import Profile, Settings

HEARTBEATS: Final = 2  # heartbeats in a row at an offset where the master should have data: HA-S-64
REFUSALS: Final = 5  # connections in a row that the master ended without a byte, before it is asked for its last file
_READS_BEHIND_ANSWER: Final = 64  # the bound ends the loop on a master that sends heartbeats without end
FRAME_DEADLINE_MS: Final = 60_000  # enough for the largest frame at 70 kB a second, or 32 KiB at 550 bytes a second

log = logging.getLogger(__name__)


class Follower:
    """Replicates a master's log into `commit_log` until it is stopped.

    Spec: HA-S-19 "A slave MUST NOT hold more than one connection, but for the second one of HA-S-64": it closes a connection
    before it opens the next.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        host: str,
        port: int,
        settings: Settings,
        profile: Profile,
        frame_deadline_ms: int | None = None,
        *,
        flushes: bool = False,
        source_address: str = "",
        tls: ClientTls | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """frame_deadline_ms: time for one frame; None: the profile's (classic has no deadline).
        flushes: acknowledge only bytes that are on the disk (HA-S-60). tls: our certificate and the trusted CA (HA-S-70).
        source_address: our address to connect from, by which a master may count replicas (HA-G-31); "": the system chooses.
        has_room: polled after the disk was full: returns True if it may have room for the next file of the log.
        """
        self._tls = tls
        self._has_room = has_room
        self.disk_full: AppendFailed | None = None  # the append that found no room; reset before the next connect
        self._full_at: int | None = None  # the max offset at that time: one log line for each offset
        self._before_report = commit_log.flush if flushes else None
        self.client = SlaveClient(format_address(host, port), commit_log, settings, profile)
        self._log = commit_log
        self._address = (host, port)
        self._source_address = (source_address, 0) if source_address else None
        self._frame_deadline_ms = frame_deadline_ms or (FRAME_DEADLINE_MS if profile.has_frame_deadline else None)
        # HA-S-51 "MUST NOT write more than 30 log lines about its master", "it MUST log how many lines it left out".
        self._peers = PeerLog(log)
        self.back_off = BackOff()
        self.connects = self.failed_connects = 0
        self.connected_timestamp = 0  # clock_ms at the last connect
        # Bytes received and sent on all earlier connections, and the last one: one value, for another thread reads it.
        self._carried: tuple[int, int, SlaveLink | None] = (0, 0, None)
        self.last_close_reason = ""  # why the last connection ended
        self.last_close_clause = ""  # the clause that the master violated on it, if any
        self.master_subject = ""  # subject of the master's certificate on the last TLS connection
        self._is_unheard = False  # the master closed the last connection without sending a byte
        self._refusals = 0  # connections in a row that the master ended without a byte, where the slave asked for the overlap
        self._last_file: int | None = None  # start of the master's last file, asked for after REFUSALS of them
        self._asks_again = False  # `prepare` has not learnt everything yet: call it before the next connect, too

    @property
    def received_bytes(self) -> int:
        received, _, link = self._carried
        return received + (link.received if link else 0)

    @property
    def sent_bytes(self) -> int:
        _, sent, link = self._carried
        return sent + (link.sent if link else 0)

    def run(self, stopped: Callable[[], bool], prepare: Callable[[], bool] | None = None) -> None:
        """Replicate until `stopped()` returns True; it is polled at least every 100 ms while connected.

        Args:  prepare: called before each connect to ask the master what an empty log needs; returns True if nothing is left to
               ask.
        Raises: OutOfStep, if no further connection can help; exceptions of the log and of `prepare`.
        """
        while not stopped():
            if self.disk_full is not None:
                self._wait_for_room(stopped)
                continue
            if prepare is not None and not self._asked(prepare, stopped):
                continue
            try:
                sock = connect(self._address, self._source_address, CONNECT_TIMEOUT_S)
            except OSError as error:
                self.failed_connects += 1
                why, what, level = error.strerror or str(error), "cannot connect", logging.INFO
                if isinstance(error, socket.gaierror):  # a wrong host name needs a person, unlike a master that is down
                    what, level = "the host's name cannot be resolved", logging.WARNING
                again = "%s: %s: %s; trying again in at most %.1f s"
                self._say(level, again, self.client.peer, what, why, self.back_off.next_s, reason=why)
                self.back_off.wait(stopped)
                continue
            with sock:
                end = sock if self._tls is None else self._shake_hands(sock, self._tls, stopped)
                if end is None:
                    continue
                self.connects += 1
                try:
                    self._follow(sock, end, stopped)
                except AppendFailed as error:
                    if not error.is_for_want_of_room:
                        raise
                    self._note_full(error)
            self.last_close_reason = self.client.close_reason
            if self.disk_full is None and not stopped():
                why = self.last_close
                self._say(
                    logging.WARNING,
                    "%s: connection closed: %s",
                    self.client.peer,
                    why,
                    reason=self.last_close_reason,
                    offset=self._log.max_offset,
                )
                self.back_off.wait(stopped)

    @property
    def last_close(self) -> str:
        """Why the last connection ended, with the violated clause, or with advice."""
        if self.last_close_reason == "tls_port":
            return "the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca, or the port of its --listen"
        if self._is_unheard:
            return f"{self.last_close_reason}, {WITHOUT_A_BYTE}"
        return self.last_close_reason + (f" ({self.last_close_clause})" if self.last_close_clause else "")

    def _asked(self, prepare: Callable[[], bool], stopped: Callable[[], bool]) -> bool:
        """HA-S-99 "MUST ask anew before each connect".

        Returns: True if the master has answered; if not, a back-off has passed. Raises: other exceptions of `prepare`.
        """
        try:
            self._asks_again = not prepare()
        except Stopped:
            return False
        except (FeedEnded, PeerViolation, Unreachable) as error:
            self.failed_connects += 1
            self._say(logging.WARNING, "%s; trying again", error, reason=str(error))
            self.back_off.wait(stopped)
            return False
        return True

    @property
    def _learns_anew(self) -> bool:
        """Return True if a frame at a wrong offset may only mean that the master has begun a new file since `prepare` asked."""
        return self._asks_again and self._log.max_offset == 0

    def _say(self, level: int, text: str, *arguments: object, **fields: object) -> None:
        self._peers.write(clock_ms(), level, text, *arguments, peer=self.client.peer, **fields)

    def _shake_hands(self, sock: socket.socket, tls: ClientTls, stopped: Callable[[], bool]) -> TlsSocket | None:
        """Do the TLS handshake. Returns: None if it fails; then a back-off has passed. HA-S-70, HA-S-71."""
        try:
            end = tls.open(sock, self.client.peer, self._address[0], stopped)
        except PeerViolation as violation:
            self._say(logging.ERROR, "cannot connect: %s", violation, reason="tls")
            self.back_off.use_longest()
        except OSError as error:
            why = error.strerror or str(error)
            self._say(logging.WARNING, "%s: cannot connect: %s", self.client.peer, why, reason=why)
        else:
            if end is not None:
                self.master_subject = end.subject
                self._say(logging.INFO, "%s: %s, certificate %s", self.client.peer, end.version, end.subject)
            return end
        self.failed_connects += 1
        self.back_off.wait(stopped)
        return None

    def _follow(self, sock: socket.socket, end: Socket, stopped: Callable[[], bool]) -> None:
        """Replicate until the connection ends. end: the socket, or the TLS socket around it. SO_LINGER is off by default.

        Spec: HA-S-20 "MUST be non-blocking once connected, with TCP_NODELAY set and without lingering on close"; HA-S-35 "MUST
        look at the time at least once a second".
        """
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # some systems refuse this if the peer has gone already: the first read will show it
            pass
        link = SlaveLink(end, self.client, self._frame_deadline_ms, self._before_report, ends_short=True)
        self._carried = (self.received_bytes, self.sent_bytes, link)
        self.connected_timestamp = clock_ms()
        link.on_connect(self.connected_timestamp)
        start_offset, since_s = self.client.current_reported_offset, time.monotonic()
        held_offset = self._log.max_offset  # the first report may be less: the start of the last record (HA-S-61)
        self._say(logging.INFO, "%s: connected at offset %d", self.client.peer, start_offset, offset=start_offset)
        violation: PeerViolation | None = None
        poll = select.poll()
        if self.client.connected:  # the first report may have shown that the master is gone, which closes the socket
            poll.register(sock, select.POLLIN)
        wait: Callable[[int], object] = end.wait if isinstance(end, TlsSocket) else poll.poll
        compared, file_size = self.client.overlap, self._log.file_size
        pauses = Pauses()
        while self.client.connected and not stopped():
            ready = wait(TICK_MS)
            now_ms = clock_ms()
            if not ready:  # HA-T-20 "Between reading the clock and letting anything expire"
                ready = wait(0)
            if ready and (violation := link.on_frames(now_ms)):
                level = logging.INFO if self._learns_anew else logging.ERROR
                self._say(level, "closed the connection: %s", violation, reason=self.client.close_reason)
            if self._log.file_size != file_size:
                file_size = self._log.file_size
                self._say(
                    logging.INFO,
                    "%s: its commit-log files are of %d bytes; so are ours, from now on",
                    self.client.peer,
                    file_size,
                )
            if self.client.connected:
                link.on_tick(now_ms, may_expire=pauses.may_expire(now_ms))
            if compared is not None and self.client.overlap is compared and self.client.heartbeats >= HEARTBEATS:
                self.client.heartbeats = 0
                self._say(
                    logging.WARNING,
                    "%s: two heartbeats in a row, and no data at offset %d, which this slave has: asking where the master's "
                    "last file begins (HA-S-64)",
                    self.client.peer,
                    compared.position,
                )
                position, last_file = compared.position, self._ask_for_last_file(stopped)
                for _ in range(_READS_BEHIND_ANSWER):  # HA-S-64 "has read what came on the first"
                    if not (self.client.connected and wait(0)):
                        break
                    violation = link.on_frames(clock_ms())
                is_unchanged = self.client.connected and self.client.overlap is compared and compared.position == position
                if last_file is not None and is_unchanged:
                    raise self._out_of_range(compared, last_file)
            self._peers.end_window(now_ms)
        self.last_close_clause = violation.clause if violation else ""
        if link.out_of_step is not None:
            raise link.out_of_step
        self._is_unheard = link.received == 0 and self.client.close_reason == "end_of_stream"
        if compared is not None and self._is_unheard:
            self._count_refusal(compared, stopped)
        else:
            self._refusals, self._last_file = 0, None
        if (violation and not self._learns_anew) or self.client.close_reason == "tls_port":
            self.back_off.use_longest()
        elif self._log.max_offset > held_offset or time.monotonic() - since_s > LAST_BACK_OFF_S:
            self.back_off.reset()  # HA-S-25: only a connection that brought bytes, or that lasted, resets the back-off
        link.close("shutdown")

    def _count_refusal(self, compared: Overlap, stopped: Callable[[], bool]) -> None:
        """Count a connection that the master closed without a byte, and give up if this shows that it lacks our offset.

        A master that is just starting, or a proxy before it, closes connections too. So after REFUSALS of them in a row ask for
        the start of the master's last file, on a connection of its own, until an answer comes. A master that has answered and
        then refuses our offset once more does not have it. Raises: OutOfStep.
        """
        self._refusals += 1
        if self._last_file is not None:
            raise self._out_of_range(compared, self._last_file)
        if self._refusals >= REFUSALS:
            self._last_file = self._ask_for_last_file(stopped)

    def _ask_for_last_file(self, stopped: Callable[[], bool]) -> int | None:
        """Ask on a second connection where the master's last file begins (a report of 0). Returns: None without an answer."""
        try:
            with MasterFeed(self._address, 0, tls=self._tls, source_address=self._source_address) as feed:
                return feed.first(stopped)[0]
        except (FeedEnded, PeerViolation, Unreachable, Stopped):
            return None

    def _out_of_range(self, compared: Overlap, last_file: int) -> OutOfStep:
        """HA-S-64 "MUST stop with an error that says where its last record and the master's last file begin"."""
        is_ahead = compared.record >= last_file
        return OutOfStep(
            self.client.peer,
            "ahead: the master's log ends before this store's"
            if is_ahead
            else "out of range: the master has deleted that file",
            f"no data at commit-log offset {compared.position}, and a last file that begins at {last_file}",
            f"the last message of this store, which begins at {compared.record}",
        )

    def _note_full(self, error: AppendFailed) -> None:
        """HA-ST-68 "MUST close its connection, and connect again when there is room"."""
        self.client.close_master("disk_full")
        self.disk_full = error
        if self._full_at != self._log.max_offset:
            self._full_at = self._log.max_offset
            self._say(
                *(logging.WARNING, "%s: connection closed until there is room on the disk: %s", self.client.peer, error),
                reason="disk_full",
                offset=self._log.max_offset,
            )

    def _wait_for_room(self, stopped: Callable[[], bool]) -> None:
        """Back off, then wait until the disk shows room. A quota does not show, so the next append may fail again."""
        self.back_off.wait(stopped)
        while not (stopped() or self._has_room()):
            self.back_off.reset()
            time.sleep(TICK_MS / 1000)
        self.disk_full = None
