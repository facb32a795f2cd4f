"""One connection: its socket, with TLS or without it, and its channel."""

import selectors
import socket
from itertools import islice
from typing import Final

from rocketmq_ha.impl.net.tls import TlsSocket
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.tls import HANDSHAKE_MS

_MOST_BUFFERS: Final = 64  # of one sendmsg


class Connection:
    """What the loop knows of a connection. Nothing here waits."""

    __slots__ = ("channel", "events", "host", "is_connected", "is_dirty", "is_fresh", "is_paused", "number", "sock", "tls")

    def __init__(self, channel: Channel, sock: socket.socket | None, host: str) -> None:
        """sock: non-blocking; None until there is one. host: the peer's address."""
        self.channel, self.sock, self.host = channel, sock, host
        self.is_connected = sock is not None
        self.number = 0  # of a client's connections
        self.is_fresh = True  # nothing was read from it yet
        self.tls: TlsSocket | None = None
        self.events = 0  # for which the selector watches the socket
        self.is_dirty = False  # it has output, which goes at the end of the turn
        self.is_paused = False  # it has frames that may not be dispatched yet, or may not be read from

    @property
    def is_shaking_hands(self) -> bool:
        """Whether it has TLS whose handshake is not done."""
        return self.tls is not None and not self.tls.is_established

    @property
    def has_buffered(self) -> bool:
        """Whether TLS has decrypted bytes, which no select shows."""
        return self.tls is not None and self.tls.has_buffered

    def recv(self, size: int, plain: memoryview) -> bytes:
        """Read; no bytes at the end of the stream. plain: where TLS puts what it decrypts.

        Raises: OSError, BlockingIOError among them, and PeerViolation of TLS.
        """
        if self.tls is not None:
            return bytes(plain[: self.tls.recv_into(plain[:size])])
        assert self.sock is not None
        return self.sock.recv(size)

    def send(self, now_ms: int) -> int:
        """Send until all is sent, or the socket takes no more. Returns: bytes. Raises: OSError, but not BlockingIOError."""
        assert self.sock is not None
        out, tls, sent = self.channel.out, self.tls, 0
        try:
            if tls is not None:
                tls.flush()
                if not tls.is_established:
                    return 0
            while out:
                if tls is not None:
                    taken = tls.sendmsg([memoryview(part) for part in islice(out, _MOST_BUFFERS)])
                else:
                    taken = self.sock.send(out[0]) if len(out) == 1 else self.sock.sendmsg(islice(out, _MOST_BUFFERS))
                self.channel.on_sent(taken, now_ms)
                sent += taken
        except BlockingIOError:
            pass
        return sent

    def missed_deadline(self, now_ms: int, *, is_ready: bool) -> str | None:
        """Why it has to be closed by now. is_ready: there are bytes that were not read yet.

        Spec: HA-RM-22 "MUST close a connection whose TLS handshake is not done within 10 s".
        """
        if self.is_shaking_hands and now_ms - self.channel.active_ms >= HANDSHAKE_MS:
            return f"no TLS within {HANDSHAKE_MS} ms"
        return self.channel.missed_deadline(now_ms, is_ready=is_ready)

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Watch for writability while there is output, and for bytes while they may be read."""
        has_output = bool(self.channel.out) and not self.is_shaking_hands
        has_output |= self.tls is not None and self.tls.wants_write
        events = (selectors.EVENT_WRITE if has_output else 0) | (0 if self.is_paused else selectors.EVENT_READ)
        if events != self.events:
            self.watch_for(selector, events)

    def watch_for(self, selector: selectors.BaseSelector, events: int) -> None:
        """Let the selector watch the socket for these events; 0 for none."""
        assert self.sock is not None
        if not self.events and events:
            selector.register(self.sock, events, self)
        elif events:
            selector.modify(self.sock, events, self)
        elif self.events:
            selector.unregister(self.sock)
        self.events = events
