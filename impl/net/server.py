"""The master: one selectors loop for the listener and all slaves, driven by the thread that puts."""

import logging
import selectors
import socket
import time
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.settings import check_settings
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings

TICK_MS: Final = 100  # how often deadlines and silence are looked at

log = logging.getLogger(__name__)


def clock_ms() -> int:
    """HA-T-2 "milliseconds of one clock a machine"; HA-T-3 "MUST be measured by a clock that does not step"."""
    return time.monotonic_ns() // 1_000_000


def listen(host: str, port: int) -> socket.socket:
    """Take the address; apart from Master, so that a refusal comes before any store is touched. Raises: ConfigInvalid.

    Spec: HA-M-15 "allow its address to be taken again at once after a restart", which `create_server` does.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigInvalid(f"cannot listen on {format_address(host, port)}: {error.strerror or error}") from error


class Master:
    """Serves slaves from a commit log. Not thread-safe: the thread that puts is the thread that polls.

    Spec: HA-M-14 "A broker MUST listen for slaves on a port of its own".
    """

    def __init__(self, commit_log: CommitLog, listener: socket.socket, settings: Settings, profile: Profile) -> None:
        """Serve on `listener`, which becomes the master's own. Raises: ConfigInvalid."""
        check_settings(settings)
        self.service = HAService(commit_log, settings, profile)
        self._listener = listener
        self._listener.setblocking(False)  # HA-M-15 "The listening socket MUST be non-blocking"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._links: dict[socket.socket, MasterLink] = {}  # HA-M-21 "any number of slaves at once"
        self._next_tick_ms = 0
        self._unsent = False  # some link has more to write than its turn allowed
        self._offered = 0  # the end of the log that all links have been offered

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port that was taken, if 0 was asked for."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def put(self, message: Message, *, wait: bool) -> GroupCommitRequest:
        """Append a message; `poll` sends it, and ends the request if it waits."""
        return self.service.put(message, clock_ms() if wait else 0, wait=wait)

    def poll(self, timeout_ms: int) -> None:
        """One turn of the loop: send what was put, wait at most `timeout_ms` for something to do, read, go on sending, expire.

        Spec: HA-M-25 "MUST look at the time at least once a second", however long the caller would wait; HA-M-32 "Every put
        MUST wake the write sides": who puts polls, and what was put goes out before the wait.
        """
        if self._unsent or self.service.log.max_offset != self._offered:
            self._transfer_all(clock_ms())
        timeout = 0 if self._unsent else min(timeout_ms, TICK_MS) / 1000
        ready = self._selector.select(timeout)
        now_ms = clock_ms()
        for key, events in ready:
            if key.fileobj is self._listener:
                self._accept(now_ms)
                continue
            link = key.data
            if events & selectors.EVENT_READ and (violation := link.on_readable(now_ms)):
                log.warning("closed a connection: %s", violation)
            if not link.conn.has_all or events & selectors.EVENT_WRITE or link.conn.close_reason:
                self._transfer(link, now_ms)  # drops it: the next accept of this turn may be given its descriptor
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            for conn in self.service.on_tick(now_ms):
                log.warning("%s: closed: silent for more than the housekeeping interval", conn.peer)
                self.service.close(conn, "housekeeping")
            self._transfer_all(now_ms)  # heartbeats

    def _transfer_all(self, now_ms: int) -> None:
        self._unsent = False
        self._offered = self.service.log.max_offset
        for link in list(self._links.values()):
            self._transfer(link, now_ms)

    def _transfer(self, link: MasterLink, now_ms: int) -> None:
        """Let a link write what it can; drop it if it is closed."""
        if not link.conn.close_reason and link.transfer(now_ms):
            self._unsent = True
        sock = link.sock
        assert isinstance(sock, socket.socket)
        if link.conn.close_reason:
            self._drop(sock, link)
        else:
            self._watch(sock, link)

    def _accept(self, now_ms: int) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:  # the peer has gone again, or there are no descriptors left
            return  # HA-M-20 "MUST NOT touch the other connections, nor end the service"
        # HA-M-17 "MUST be non-blocking, with TCP_NODELAY set and without lingering on close", which is off unless asked for.
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = format_address(*address[:2])
        link = MasterLink(sock, self.service.accept(peer, now_ms), self.service, ends_short=True)
        self._links[sock] = link
        self._selector.register(sock, selectors.EVENT_READ, link)
        log.info("%s: connected", peer)

    def _watch(self, sock: socket.socket, link: MasterLink) -> None:
        """Ask for writability only while a frame is pending: an idle socket is always writable."""
        events = selectors.EVENT_READ if link.conn.last_write_over else selectors.EVENT_READ | selectors.EVENT_WRITE
        if self._selector.get_key(sock).events != events:
            self._selector.modify(sock, events, link)

    def _drop(self, sock: socket.socket, link: MasterLink) -> None:
        """HA-M-36 "take the connection off the list, close its socket"."""
        log.info("%s: disconnected: %s", link.conn.peer, link.conn.close_reason)
        self._selector.unregister(sock)
        del self._links[sock]
        link.close(link.conn.close_reason)

    def close(self) -> None:
        """End every waiting put. HA-M-37 "MUST close every connection and its listening socket"."""
        self.service.shutdown()
        for sock in list(self._links):
            sock.close()
        self._links.clear()
        self._selector.close()
        self._listener.close()
