"""The master: one selectors loop for the listener and all slaves, driven by the thread that puts."""

import contextlib
import logging
import selectors
import socket
from functools import partial
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.settings import check_settings
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.deadlines import WHY_EXPIRED, missed_deadline
from rocketmq_ha.impl.net.limits import LOOPBACK, ConnectionLimiter, Limits, Network, fit_descriptors, limits_of
from rocketmq_ha.impl.net.link import MasterLink, Socket
from rocketmq_ha.impl.net.listeners import Listeners
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.net.tls import TlsSocket
from rocketmq_ha.impl.net.tls_ends import ServerTls
from rocketmq_ha.impl.net.tls_record import HANDSHAKE
from rocketmq_ha.impl.net.token_bucket import TokenBucket
from rocketmq_ha.impl.net.transfer_turns import TransferTurns
from rocketmq_ha.impl.net.waker import Wakes
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings

TICK_MS: Final = 100  # how often deadlines and silence are checked
THROTTLED_MS: Final = 10  # the longest wait while a connection waits for its token bucket
HANDSHAKES_TURN: Final = 4  # each may cost a millisecond or two
_Ready = list[tuple[selectors.SelectorKey, int]]  # what select() returns

log = logging.getLogger(__name__)


class Master:
    """Serves slaves from a commit log. Not thread-safe: the thread that puts is the thread that polls.

    Spec: HA-M-14 "A broker MUST listen for slaves on a port of its own".
    """

    def __init__(
        self,
        commit_log: CommitLog,
        listener: socket.socket | None,
        settings: Settings,
        profile: Profile,
        limits: Limits | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Serve on `listener`, which becomes the master's own, and on that of `tls`. limits: the profile's, if none are given.

        Raises: ConfigInvalid.
        Spec: HA-M-70 "MUST listen there too", or there alone.
        """
        check_settings(settings, profile)
        self.service = HAService(commit_log, settings, profile)
        self._selector = selectors.DefaultSelector()
        self._tls_side = tls
        self._tls: dict[socket.socket, TlsSocket] = {}  # of the links that have TLS
        self._buffered: dict[
            socket.socket, MasterLink
        ] = {}  # TLS links with decrypted bytes pending, which select() cannot see
        self._handshakes = 0  # continued in this turn
        self.subjects: dict[MasterConnection, str] = {}  # the subject of the peer's certificate (HA-M-74)
        self._links: dict[socket.socket, MasterLink] = {}  # HA-M-21 "any number of slaves at once"
        self._turns = TransferTurns(self._write)
        self._hosts: dict[socket.socket, str] = {}
        self.limits: Final = fit_descriptors(limits or limits_of(profile))
        self.limiter: Final = ConnectionLimiter(self.limits)
        self._peers = PeerLog(log)
        self._listeners = Listeners(self._selector, listener, tls.listener if tls else None, self.limiter, self._peers)
        for address in filter(None, (self.plain_address, self.tls_address)):
            if self.limits.allow == LOOPBACK and not self.limiter.admits(address[0]):
                log.warning(
                    "listening on %s, and only loopback addresses may connect: --allow NETWORK says who else may",
                    format_address(*address),
                )
        self._next_tick_ms = 0
        self._pauses = Pauses()
        self.accepted_connections = self.sent_bytes = self.received_bytes = 0

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """Let these networks connect from now on; close the connections of peers outside of them.

        Spec: HA-M-80 "MUST close the connections from outside of them".
        """
        self.limiter.allow(networks)
        now_ms = clock_ms()
        for sock, link in list(self._links.items()):
            if not self.limiter.admits(self._hosts[sock]):
                link.close("allow")
                self._drop(sock, link, now_ms)

    def wake_by(self, waker: Wakes) -> None:
        """Let something else end the wait of `poll`; its caller then looks at the results that it waits for."""
        self._selector.register(waker, selectors.EVENT_READ, waker)

    @property
    def address(self) -> tuple[str, int]:
        """The address of the plain port if there is one, else of the TLS port; the port is the real one, never 0."""
        return self._listeners.address

    @property
    def plain_address(self) -> tuple[str, int] | None:
        return self._listeners.plain_address

    @property
    def tls_address(self) -> tuple[str, int] | None:
        return self._listeners.tls_address

    def put(self, message: Message, *, wait: bool) -> GroupCommitRequest:
        """Append a message; `poll` sends it, and ends the request if it waits."""
        return self.service.put(message, clock_ms() if wait else 0, wait=wait)

    @property
    def is_accepting(self) -> bool:
        """False while the system has no descriptor for a new connection."""
        return self._listeners.is_accepting

    def poll(self, timeout_ms: int) -> None:
        """Run one turn of the loop: send what was put, wait at most `timeout_ms`, read, send again, check deadlines.

        Spec: HA-M-25 "MUST look at the time at least once a second", however long the caller would wait; HA-M-32 "Every put
        MUST wake the write sides": the thread that puts calls `poll`, and what was put goes out before the wait.
        """
        turns = self._turns
        turns.begin()
        if turns.has_more or turns.is_throttled or self.service.log.max_offset != turns.offered:
            turns.serve(self.service.log.max_offset, clock_ms())
        if self._buffered:
            self._read_buffered(clock_ms())
        timeout_ms = min(timeout_ms, THROTTLED_MS if turns.is_throttled else TICK_MS)
        ready = self._selector.select(0 if turns.has_more or self._buffered else timeout_ms / 1000)
        now_ms = clock_ms()
        self._handshakes = 0
        if self._serve(ready, now_ms):
            turns.serve(self.service.log.max_offset, now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._read_once_more(ready, now_ms)
            turns.serve(self.service.log.max_offset, now_ms, at_tick=True)
            self._tick(now_ms)

    def _serve(self, ready: _Ready, now_ms: int) -> bool:
        """Read from, accept on or flush each ready socket. Returns: whether some link has something to write."""
        is_due = False
        for key, events in ready:
            if not isinstance(key.fileobj, socket.socket):
                key.data.on_readable()
                continue
            if key.data is None:
                self._accept(key.fileobj, now_ms)
                continue
            sock, link = key.fileobj, key.data
            if self._tls and sock in self._tls:
                self._serve_tls(sock, link, events, now_ms)
            elif events & selectors.EVENT_READ:
                self._read(sock, link, now_ms)
            if events & selectors.EVENT_WRITE:
                link.is_full = False
            is_due |= not (link.conn.has_all or link.is_full) and sock in self._turns.reported
        return is_due

    def _read_once_more(self, served: _Ready, now_ms: int) -> None:
        """Read the links that were not read in this turn, before deadlines are checked. Accept nothing: a turn has its bounds.

        If the process was stopped during select(), select() returns nothing, even if bytes have come meanwhile.
        Spec: HA-T-20 "Between reading the clock and letting anything expire by that reading, each end MUST look at what has
        come".
        """
        fds = {key.fd for key, _ in served}
        self._serve(
            [found for found in self._selector.select(0) if found[0].data is not None and found[0].fd not in fds], now_ms
        )

    def _write(self, sock: socket.socket, link: MasterLink, now_ms: int, most: int) -> bool:
        """Let a link write what it can. Returns: whether it has more.

        A closed link is dropped at once, because the next accept of this turn may get the same descriptor.
        """
        has_more = link.on_transfer(now_ms, most)
        if link.unread is not None:
            text, peer = "%s: closed: its part of the log cannot be read: %s", link.conn.peer
            self._peers.write(now_ms, logging.ERROR, text, peer, link.unread, peer=peer, reason="store")
        self.sent_bytes += link.moved
        if link.conn.close_reason:
            self._drop(sock, link, now_ms)
        else:
            self._watch(sock, link)
        return has_more

    def _accept(self, listener: socket.socket, now_ms: int) -> None:
        """Make a link for each connection that is accepted."""
        for sock, host, peer, has_tls in self._listeners.accept(listener, now_ms):
            rate = self.limits.max_transfer_rate
            bucket = None if rate is None else TokenBucket(rate, now_ms)
            end: Socket = sock
            conn = self.service.on_accept(peer, now_ms, replica=host)
            if self._tls_side and has_tls:
                end = self._tls[sock] = self._tls_side.wrap(sock, peer)
                end.on_established = partial(self._know, conn)
            link = MasterLink(end, conn, self.service, bucket, ends_short=True)
            self._links[sock] = link
            self.accepted_connections += 1
            self._hosts[sock] = host
            self._selector.register(sock, selectors.EVENT_READ, link)
            self._peers.write(now_ms, logging.INFO, "%s: connected", peer, peer=peer)

    def _is_tls_client(self, sock: socket.socket, link: MasterLink) -> bool:
        """True if a peer on the plain port has begun a TLS handshake. Its bytes could pass for a report."""
        if link.conn.slave_request_offset != -1 or not self.service.profile.offers_tls or sock in self._tls:
            return False
        try:
            return sock.recv(len(HANDSHAKE), socket.MSG_PEEK) == HANDSHAKE
        except OSError:
            return False  # the read will show the error

    def _read(self, sock: socket.socket, link: MasterLink, now_ms: int) -> None:
        if self._is_tls_client(sock, link):  # HA-M-86 "MUST close the connection, and say so"
            where = f"that is {format_address(*self.tls_address)}" if self.tls_address else "there is none: --tls-listen"
            text = "%s: closed: a TLS handshake on the plain port, expected a report; the port for TLS: %s"
            self._peers.write(now_ms, logging.WARNING, text, link.conn.peer, where, peer=link.conn.peer, reason="tls_client")
            link.close("tls_client")
            self._drop(sock, link, now_ms)
            return
        before = link.received
        violation = link.on_reports(now_ms)
        self.received_bytes += link.received - before
        if violation:
            why = link.conn.close_reason
            self._peers.write(now_ms, logging.WARNING, "closed a connection: %s", violation, peer=violation.peer, reason=why)
        if link.conn.close_reason:  # at once: the next accept of this turn may get the same descriptor
            self._drop(sock, link, now_ms)
        elif link.conn.slave_request_offset != -1:
            self._turns.reported[sock] = link

    def _serve_tls(self, sock: socket.socket, link: MasterLink, events: int, now_ms: int) -> None:
        """Serve a link with TLS: go on with its handshake, write pending encrypted bytes, read.

        Spec: HA-M-73 "MUST go on with no more than 4 handshakes"; the other sockets are still readable in the next turn.
        """
        tls = self._tls[sock]
        if not tls.is_established:
            if self._handshakes == HANDSHAKES_TURN:
                return
            self._handshakes += 1
        if events & selectors.EVENT_WRITE:
            with contextlib.suppress(OSError):  # the read will show the error
                tls.flush()
        if events & selectors.EVENT_READ:
            self._read(sock, link, now_ms)
        if link.conn.close_reason:
            self.limiter.refused["tls"] += link.conn.close_reason == "tls"
            return
        if tls.has_buffered:
            self._buffered[sock] = link
        self._watch(sock, link)

    def _read_buffered(self, now_ms: int) -> None:
        """Read the links whose bytes OpenSSL has decrypted already: their sockets need not be readable."""
        links, self._buffered = self._buffered, {}
        for sock, link in links.items():
            if sock in self._tls:
                self._serve_tls(sock, link, selectors.EVENT_READ, now_ms)

    def _tick(self, now_ms: int) -> None:
        """Check what depends on time: waiting puts, silence, deadlines, descriptors. All sockets were read just before."""
        if self._pauses.may_expire(now_ms):
            self._expire(now_ms)
        self._listeners.on_tick(now_ms)
        self._peers.end_window(now_ms)

    def _expire(self, now_ms: int) -> None:
        """End the puts that have waited too long; close the peers that were silent, or took no byte, for too long."""
        self.service.expired_ms = now_ms
        silent = set(self.service.on_tick(now_ms))
        for sock, link in list(self._links.items()):
            if link.conn in silent:
                link.close("housekeeping")
            elif reason := missed_deadline(link, self.limits, now_ms):
                link.close(reason)
            else:
                continue
            peer, reason = link.conn.peer, link.conn.close_reason
            self._peers.write(now_ms, logging.WARNING, "%s: closed: %s", peer, WHY_EXPIRED[reason], peer=peer, reason=reason)
            self._drop(sock, link, now_ms)

    def _watch(self, sock: socket.socket, link: MasterLink) -> None:
        """Ask select() for writability only while the socket is full: an idle socket is always writable."""
        is_full = link.is_full or (bool(self._tls) and (tls := self._tls.get(sock)) is not None and tls.wants_write)
        if is_full != link.is_watched:
            link.is_watched = is_full
            events = selectors.EVENT_READ | selectors.EVENT_WRITE if is_full else selectors.EVENT_READ
            self._selector.modify(sock, events, link)

    def _know(self, conn: MasterConnection, tls: TlsSocket) -> None:
        """A handshake is done: acknowledgements count for the subject of the certificate. No byte after it has been read yet.

        Spec: HA-G-31; HA-M-74 "MUST NOT be known before the handshake is done".
        """
        self.subjects[conn] = conn.replica = tls.subject
        self._peers.write(
            clock_ms(), logging.INFO, "%s: %s, certificate %s", conn.peer, tls.version, tls.subject, peer=conn.peer
        )

    def _drop(self, sock: socket.socket, link: MasterLink, now_ms: int) -> None:
        """HA-M-36 "take the connection off the list, close its socket"."""
        peer, reason, offset = link.conn.peer, link.conn.close_reason, link.conn.slave_ack_offset
        said = {"offset": offset} if offset != -1 else {}
        self._peers.write(now_ms, logging.INFO, "%s: disconnected: %s", peer, reason, peer=peer, reason=reason, **said)
        self._selector.unregister(sock)
        del self._links[sock]
        self._turns.reported.pop(sock, None)
        if sock in self._tls:
            del self._tls[sock]
            self._buffered.pop(sock, None)
            self.subjects.pop(link.conn, None)
        self.limiter.release(self._hosts.pop(sock))
        link.close(link.conn.close_reason)

    def close(self) -> None:
        """End every waiting put. HA-M-37 "MUST close every connection and its listening socket"."""
        self.service.shutdown()
        for sock in list(self._links):
            sock.close()
        self._links.clear()
        self._turns.reported.clear()
        self._selector.close()
        self._listeners.close()
