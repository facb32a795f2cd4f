"""The master: one selectors loop for the listener and all slaves, driven by the thread that puts."""

import contextlib
import errno
import logging
import selectors
import socket
from functools import partial
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.settings import check_settings
from rocketmq_ha.impl.net.address import format_address, reason
from rocketmq_ha.impl.net.limits import LOOPBACK, ConnectionLimiter, Limits, Network, fit_descriptors, limits_of
from rocketmq_ha.impl.net.link import MAX_TURN, MasterLink, Socket
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.net.tls import ServerTls, TlsSocket
from rocketmq_ha.impl.net.tls_record import HANDSHAKE
from rocketmq_ha.impl.net.token_bucket import TokenBucket
from rocketmq_ha.impl.net.waker import Wakes
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings

TICK_MS: Final = 100  # how often deadlines and silence are looked at
THROTTLED_MS: Final = 10  # how often, while a connection waits for its bucket
ACCEPTS_TURN: Final = 16  # so that a flood of connects leaves time for those that are there
# Bytes a turn for all together that are behind; the last call may go beyond it, by MAX_SEND at most.
BULK_TURN: Final = 1024 * 1024
SHARE: Final = 256 * 1024  # bytes of it for one of them, if there are several; here, too, the last call may go beyond it
BACKLOG: Final = 1024  # connects that wait for an accept; the system may allow fewer
HANDSHAKES_TURN: Final = 4  # each may cost a millisecond or two
NO_DESCRIPTORS_MS: Final = 100
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_WHY: Final = {
    "housekeeping": "silent for more than the housekeeping interval",
    "report_deadline": "no report within --report-deadline",
    "write_stall": "it has taken nothing of what it is sent for more than --write-stall-deadline",
}

_Ready = list[tuple[selectors.SelectorKey, int]]  # what a look at the sockets gives

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """Take the address; apart from Master, so that a refusal comes before any store is touched. Raises: ConfigInvalid.

    Spec: HA-M-15 "allow its address to be taken again at once after a restart", which `create_server` does; HA-M-63 "MUST ask
    the system to keep 1,024 connects until it accepts them".
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigInvalid(f"cannot listen on {format_address(host, port)}: {reason(error)}") from error


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
        self._listeners = [sock for sock in (listener, tls.listener if tls else None) if sock is not None]
        self._listener, self._tls_side = listener, tls
        for sock in self._listeners:
            sock.setblocking(False)  # HA-M-15 "The listening socket MUST be non-blocking"
            self._selector.register(sock, selectors.EVENT_READ)
        self._tls: dict[socket.socket, TlsSocket] = {}  # those of the links that have it
        self._buffered: dict[socket.socket, MasterLink] = {}  # what there is to read of them, their sockets do not show
        self._handshakes = 0  # that were gone on with in this turn
        self.subjects: dict[MasterConnection, str] = {}  # whom a peer has proven to be (HA-M-74)
        self._links: dict[socket.socket, MasterLink] = {}  # HA-M-21 "any number of slaves at once"
        self._reported: dict[socket.socket, MasterLink] = {}  # those of them that have something to be sent
        self._hosts: dict[socket.socket, str] = {}
        self.limits: Final = fit_descriptors(limits or limits_of(profile))
        self.limiter: Final = ConnectionLimiter(self.limits)
        for address in filter(None, (self.plain_address, self.tls_address)):
            if self.limits.allow == LOOPBACK and not self.limiter.admits(address[0]):
                log.warning(
                    "listening on %s, and only loopback addresses may connect: --allow NETWORK says who else may",
                    format_address(*address),
                )
        self._peers = PeerLog(log)
        self._next_tick_ms = 0
        self._pauses = Pauses()
        self.accepted_connections = self.sent_bytes = self.received_bytes = 0
        self._accepts_again_ms: int | None = None  # while there are no descriptors
        self._unsent = False  # some link has more to write than its turn allowed
        self._offered = 0  # the end of the log that all links have been offered
        self._throttled = False  # some link waits for its bucket
        self._bulk_left = BULK_TURN  # of this turn

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """From now on these networks may connect; who is in none of them is sent away.

        Spec: HA-M-80 "MUST close the connections from outside of them".
        """
        self.limiter.allow(networks)
        now_ms = clock_ms()
        for sock, link in list(self._links.items()):
            if not self.limiter.admits(self._hosts[sock]):
                link.close("allow")
                self._drop(sock, link, now_ms)

    def wake_by(self, waker: Wakes) -> None:
        """Let something else end the wait of `poll`, whose caller then looks at what it waits for."""
        self._selector.register(waker, selectors.EVENT_READ, waker)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, without TLS if anywhere so; the port that was taken, if 0 was asked for."""
        return _address_of(self._listeners[0])

    @property
    def plain_address(self) -> tuple[str, int] | None:
        return _address_of(self._listener) if self._listener else None

    @property
    def tls_address(self) -> tuple[str, int] | None:
        return _address_of(self._tls_side.listener) if self._tls_side else None

    def put(self, message: Message, *, wait: bool) -> GroupCommitRequest:
        """Append a message; `poll` sends it, and ends the request if it waits."""
        return self.service.put(message, clock_ms() if wait else 0, wait=wait)

    @property
    def is_accepting(self) -> bool:
        """Whether it asks for new connections: not while the system has no descriptor for one."""
        return self._accepts_again_ms is None

    def poll(self, timeout_ms: int) -> None:
        """One turn of the loop: send what was put, wait at most `timeout_ms` for something to do, read, go on sending, expire.

        Spec: HA-M-25 "MUST look at the time at least once a second", however long the caller would wait; HA-M-32 "Every put
        MUST wake the write sides": who puts polls, and what was put goes out before the wait.
        """
        self._bulk_left = BULK_TURN
        if self._unsent or self._throttled or self.service.log.max_offset != self._offered:
            self._transfer_all(clock_ms())
        if self._buffered:
            self._read_buffered(clock_ms())
        timeout_ms = min(timeout_ms, THROTTLED_MS if self._throttled else TICK_MS)
        ready = self._selector.select(0 if self._unsent or self._buffered else timeout_ms / 1000)
        now_ms = clock_ms()
        self._handshakes = 0
        if self._serve(ready, now_ms):
            self._transfer_all(now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._read_once_more(ready, now_ms)
            self._transfer_all(now_ms, at_tick=True)
            self._tick(now_ms)

    def _serve(self, ready: _Ready, now_ms: int) -> bool:
        """Do what the sockets are ready for. Returns: whether some link has something to write."""
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
            is_due |= not (link.conn.has_all or link.is_full) and sock in self._reported
        return is_due

    def _read_once_more(self, served: _Ready, now_ms: int) -> None:
        """Read of those links that have not been read since the clock was, and nobody is accepted: a turn keeps its bounds.

        A wait that a stop of the process interrupts ends with nothing, whatever has come meanwhile.
        Spec: HA-T-20 "Between reading the clock and letting anything expire by that reading, each end MUST look at what has
        come".
        """
        fds = {key.fd for key, _ in served}
        self._serve(
            [found for found in self._selector.select(0) if found[0].data is not None and found[0].fd not in fds], now_ms
        )

    def _transfer_all(self, now_ms: int, *, at_tick: bool = False) -> None:
        """Let all links write that have something to write and a socket that may take it.

        A socket that is full says when it has room for much; at each tick it is asked whether it has any. Then heartbeats, too.

        Spec: HA-M-60 "A master MUST send the bytes of the last puts to the slaves that are in step before"; HA-M-61 "MUST NOT
        send more than 2 MiB"; HA-M-62 "MUST serve in each turn the slave with the least left to send; it MUST NOT serve one of
        the others twice".
        """
        self._unsent = self._throttled = False
        end = self._offered = self.service.log.max_offset
        in_step: list[tuple[socket.socket, MasterLink]] = []  # that had everything before the last puts
        behind: list[tuple[socket.socket, MasterLink]] = []
        for sock, link in self._reported.items():
            if at_tick:
                link.is_full = False
            elif link.is_full or (link.conn.has_all and link.conn.next_transfer_from_where == end):
                continue
            (in_step if link.conn.has_all else behind).append((sock, link))
        for sock, link in in_step:
            self._write(sock, link, now_ms, MAX_TURN)
        if not behind:
            return
        if len(behind) > 1:
            least = max(range(len(behind)), key=lambda index: behind[index][1].conn.next_transfer_from_where)
            behind.insert(0, behind.pop(least))
        for sock, link in behind:
            if self._bulk_left <= 0:
                self._unsent = True
                break
            self._reported[sock] = self._reported.pop(sock)  # the others come before it in the next turn
            self._write(sock, link, now_ms, SHARE if len(behind) > 1 else self._bulk_left)
            self._bulk_left -= link.moved

    def _write(self, sock: socket.socket, link: MasterLink, now_ms: int, most: int) -> None:
        """Let a link write what it can; drop it if it is closed: the next accept of this turn may be given its descriptor."""
        if link.on_transfer(now_ms, most):
            self._unsent = True
        if link.unread is not None:
            text, peer = "%s: closed: its part of the log cannot be read: %s", link.conn.peer
            self._peers.write(now_ms, logging.ERROR, text, peer, link.unread, peer=peer, reason="store")
        self.sent_bytes += link.moved
        self._throttled |= link.is_throttled
        if link.conn.close_reason:
            self._drop(sock, link, now_ms)
        else:
            self._watch(sock, link)

    def _accept(self, listener: socket.socket, now_ms: int) -> None:
        """Let in who may come in. HA-M-54 "MUST accept no more than 16 connections".

        Spec: HA-M-75 "MUST hold on both ports together": both ports share one limiter.
        """
        if self._accepts_again_ms is not None:  # it was the other listener's turn before
            return
        for _ in range(ACCEPTS_TURN // len(self._listeners)):
            try:
                sock, address = listener.accept()
            except OSError as error:  # nobody is there, the peer has gone again, or there are no descriptors left
                if error.errno in _NO_ROOM:
                    self._pause_accepting(now_ms, error)
                return  # HA-M-20 "MUST NOT touch the other connections, nor end the service"
            host, peer = address[0], format_address(*address[:2])
            if refusal := self.limiter.refusal(host):
                sock.close()
                self._peers.write(now_ms, logging.WARNING, "%s: refused: %s", peer, refusal, peer=peer, reason=refusal)
                continue
            # HA-M-17 "MUST be non-blocking, with TCP_NODELAY set and without lingering on close", which is off unless asked
            # for.
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # some systems refuse it to a socket whose peer is gone
                sock.close()
                self.limiter.release(host)
                continue
            rate = self.limits.max_transfer_rate
            bucket = None if rate is None else TokenBucket(rate, now_ms)
            end: Socket = sock
            conn = self.service.on_accept(peer, now_ms, replica=host)
            if self._tls_side and listener is self._tls_side.listener:
                end = self._tls[sock] = self._tls_side.wrap(sock, peer)
                end.on_established = partial(self._know, conn)
            link = MasterLink(end, conn, self.service, bucket, ends_short=True)
            self._links[sock] = link
            self.accepted_connections += 1
            self._hosts[sock] = host
            self._selector.register(sock, selectors.EVENT_READ, link)
            self._peers.write(now_ms, logging.INFO, "%s: connected", peer, peer=peer)

    def _pause_accepting(self, now_ms: int, error: OSError) -> None:
        """HA-M-58 "MUST NOT ask its listening socket again before 100 ms have passed": it stays readable all the while."""
        for listener in self._listeners:
            self._selector.unregister(listener)
        self._accepts_again_ms = now_ms + NO_DESCRIPTORS_MS
        self._peers.write(now_ms, logging.WARNING, "cannot accept: %s", error.strerror, reason=error.strerror)

    def _is_tls_client(self, sock: socket.socket, link: MasterLink) -> bool:
        """Whether a connection of the plain port has begun a TLS handshake. Its bytes could be taken for a report."""
        if link.conn.slave_request_offset != -1 or not self.service.profile.checks_reports or sock in self._tls:
            return False
        try:
            return sock.recv(len(HANDSHAKE), socket.MSG_PEEK) == HANDSHAKE
        except OSError:
            return False  # the read will tell

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
        if link.conn.close_reason:  # now: the next accept of this turn may be given its descriptor
            self._drop(sock, link, now_ms)
        elif link.conn.slave_request_offset != -1:
            self._reported[sock] = link

    def _serve_tls(self, sock: socket.socket, link: MasterLink, events: int, now_ms: int) -> None:
        """Read of a link with TLS, or write what its socket has left, or go on with its handshake.

        Spec: HA-M-73 "MUST go on with no more than 4 handshakes", and the others' sockets are still readable in the next turn.
        """
        tls = self._tls[sock]
        if not tls.is_established:
            if self._handshakes == HANDSHAKES_TURN:
                return
            self._handshakes += 1
        if events & selectors.EVENT_WRITE:
            with contextlib.suppress(OSError):  # the read will tell
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
        """What OpenSSL holds for a link, its socket does not show."""
        links, self._buffered = self._buffered, {}
        for sock, link in links.items():
            if sock in self._tls:
                self._serve_tls(sock, link, selectors.EVENT_READ, now_ms)

    def _tick(self, now_ms: int) -> None:
        """Look at what time brings: waiting puts, silence, deadlines, descriptors. The sockets have been looked at since."""
        if self._pauses.may_expire(now_ms):
            self._expire(now_ms)
        if self._accepts_again_ms is not None and now_ms >= self._accepts_again_ms:
            self._accepts_again_ms = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ)
        self._peers.end_window(now_ms)

    def _expire(self, now_ms: int) -> None:
        """End the puts that have waited for too long, and close who has been silent, or taken nothing, for too long."""
        self.service.expired_ms = now_ms
        silent = set(self.service.on_tick(now_ms))
        for sock, link in list(self._links.items()):
            if link.conn in silent:
                link.close("housekeeping")
            elif reason := self._overdue(link, now_ms):
                link.close(reason)
            else:
                continue
            peer, reason = link.conn.peer, link.conn.close_reason
            self._peers.write(now_ms, logging.WARNING, "%s: closed: %s", peer, _WHY[reason], peer=peer, reason=reason)
            self._drop(sock, link, now_ms)

    def _overdue(self, link: MasterLink, now_ms: int) -> str | None:
        """The deadline that a connection has missed, if any. HA-M-72 "is part of report_deadline".

        Spec: HA-M-52 "report_deadline after its accept MUST be closed"; HA-M-53 "taken no byte of a pending frame for more
        than write_stall_deadline MUST be closed".
        """
        conn, limits = link.conn, self.limits
        deadline_ms = limits.report_deadline_ms
        if deadline_ms is not None and conn.slave_request_offset == -1 and now_ms - conn.connected_timestamp > deadline_ms:
            return "report_deadline"
        deadline_ms = limits.write_stall_deadline_ms
        since_ms = link.blocked_since_ms
        if deadline_ms is not None and since_ms is not None and now_ms - since_ms > deadline_ms:
            return "write_stall"
        return None

    def _watch(self, sock: socket.socket, link: MasterLink) -> None:
        """Ask for writability only while the socket is full: an idle one is always writable."""
        is_full = link.is_full or (bool(self._tls) and (tls := self._tls.get(sock)) is not None and tls.wants_write)
        if is_full != link.is_watched:
            link.is_watched = is_full
            events = selectors.EVENT_READ | selectors.EVENT_WRITE if is_full else selectors.EVENT_READ
            self._selector.modify(sock, events, link)

    def _know(self, conn: MasterConnection, tls: TlsSocket) -> None:
        """A handshake is done, and nothing has been read behind it: the certificate's subject is whom acknowledgements are of.

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
        self._reported.pop(sock, None)
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
        self._reported.clear()
        self._selector.close()
        for listener in self._listeners:
            listener.close()


def _address_of(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return host, port
