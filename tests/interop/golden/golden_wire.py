"""A recording proxy for remoting: what passes is kept byte for byte, as requests with their responses.

One thing has to be changed on the way. RocketMQ hands out broker addresses in its replies, and a peer that took
such an address would go around the proxy; so a proxy may replace one "ip:port" by another of the same length in
what it forwards to the client. The transcript holds the bytes before that.

`LinkRecorder` does the same for the HA port, whose bytes have no frames of remoting.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Codes worth a transcript. Not kept: those whose replies tell of the machine (GET_BROKER_CONFIG, runtime info).
CODES = {
    10: "SEND_MESSAGE",
    11: "PULL_MESSAGE",
    12: "QUERY_MESSAGE",
    14: "QUERY_CONSUMER_OFFSET",
    15: "UPDATE_CONSUMER_OFFSET",
    21: "GET_ALL_TOPIC_CONFIG",
    25: "UPDATE_BROKER_CONFIG",
    30: "GET_MAX_OFFSET",
    31: "GET_MIN_OFFSET",
    33: "VIEW_MESSAGE_BY_ID",
    34: "HEART_BEAT",
    36: "CONSUMER_SEND_MSG_BACK",
    37: "END_TRANSACTION",
    38: "GET_CONSUMER_LIST_BY_GROUP",
    40: "NOTIFY_CONSUMER_IDS_CHANGED",
    43: "GET_ALL_CONSUMER_OFFSET",
    45: "GET_ALL_DELAY_OFFSET",
    103: "REGISTER_BROKER",
    104: "UNREGISTER_BROKER",
    105: "GET_ROUTEINFO_BY_TOPIC",
    201: "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    310: "SEND_MESSAGE_V2",
    320: "SEND_BATCH_MESSAGE",
    322: "QUERY_DATA_VERSION",
}
RESPONSE_BIT, ONEWAY_BIT = 1, 2
KEPT_SIZE = 24 << 10
PER_CODE = 4


@dataclass(slots=True)
class Exchange:
    """One request and its response; both are whole frames, the 4-byte length included."""

    who: str
    to: str
    port: str
    number: int
    header: dict[str, object]
    request: bytes
    asked_at: float
    response_header: dict[str, object] | None = None
    response: bytes | None = None
    answered_at: float | None = None

    @property
    def size(self) -> int:
        return len(self.request) + len(self.response or b"")


@dataclass(slots=True)
class Transcript:
    """Every exchange of the codes above, in the order of the requests."""

    exchanges: list[Exchange] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, who: str, to: str, port: str, header: dict[str, object], frame: bytes) -> Exchange:
        with self.lock:
            exchange = Exchange(who, to, port, len(self.exchanges), header, frame, time.monotonic())
            self.exchanges.append(exchange)
            return exchange

    def everything(self, who: str) -> list[dict[str, object]]:
        """Every exchange of one that asked, in the order of the requests, with how long each answer took."""
        return [_row(exchange) | _times(exchange) for exchange in self.exchanges if exchange.who == who]

    def selection(self) -> list[dict[str, object]]:
        """Up to PER_CODE small exchanges of each kind: one a response code, the last, the smallest with a body."""
        groups: dict[tuple[str, str, object], list[Exchange]] = defaultdict(list)
        for exchange in self.exchanges:
            unanswered = exchange.response is None and not _flag(exchange.header) & ONEWAY_BIT
            if exchange.size <= KEPT_SIZE and not unanswered:
                key = (exchange.who, exchange.to, exchange.header["code"])
                groups[key].append(exchange)
        chosen = [exchange for group in groups.values() for exchange in _choose(group)]
        chosen.sort(key=lambda e: (_code(e.header), e.number))
        return [_row(exchange) for exchange in chosen]


def _choose(group: list[Exchange]) -> Iterable[Exchange]:
    with_body = [e for e in group if e.response and _body_size(e.response)]
    first_of: dict[object, Exchange] = {}
    for exchange in group:
        first_of.setdefault((exchange.response_header or {}).get("code"), exchange)
    wanted = [group[-1], *first_of.values(), *sorted(with_body, key=lambda e: e.size)[:1]]
    return {e.number: e for e in wanted[:PER_CODE]}.values()


def _row(exchange: Exchange) -> dict[str, object]:
    code = _code(exchange.header)
    response = exchange.response
    return {
        "code": code,
        "name": CODES[code],
        "who": exchange.who,
        "to": exchange.to,
        "oneway": bool(_flag(exchange.header) & ONEWAY_BIT),
        "request_header": exchange.header,
        "response_header": exchange.response_header,
        "request_body_size": _body_size(exchange.request),
        "response_body_size": None if response is None else _body_size(response),
        "request": base64.b64encode(exchange.request).decode(),
        "response": None if response is None else base64.b64encode(response).decode(),
    }


def _times(exchange: Exchange) -> dict[str, object]:
    answered = exchange.answered_at
    return {"port": exchange.port, "answered_ms": None if answered is None else round(1000 * (answered - exchange.asked_at))}


def _int(header: dict[str, object], name: str) -> int:
    value = header[name]
    assert isinstance(value, int), header
    return value


def _flag(header: dict[str, object]) -> int:
    return _int(header, "flag")


def _code(header: dict[str, object]) -> int:
    return _int(header, "code")


def _header_size(frame: bytes) -> int:
    return int.from_bytes(frame[5:8])


def _body_size(frame: bytes) -> int:
    return len(frame) - 8 - _header_size(frame)


def _header(frame: bytes) -> dict[str, object]:
    assert frame[4] == 0, "a header that is not JSON"
    header = json.loads(frame[8 : 8 + _header_size(frame)])
    assert isinstance(header, dict)
    return header


def _read_exactly(peer: socket.socket, size: int) -> bytes:
    """Return fewer bytes only where the peer has closed."""
    data = bytearray()
    while len(data) < size:
        try:
            part = peer.recv(size - len(data))
        except OSError:
            break
        if not part:
            break
        data += part
    return bytes(data)


class Proxy:
    """Forwards one loopback port to another; one thread a direction and connection."""

    def __init__(
        self,
        transcript: Transcript,
        who: str,
        to: str,
        *,
        port: int,
        target: int,
        host: str = "127.0.0.1",
        kind: str = "plain",
        hide: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.transcript, self.who, self.to, self.target = transcript, who, to, (host, target)
        self.kind = kind
        self.hide = [(shown.encode(), instead.encode()) for shown, instead in hide]
        assert all(len(shown) == len(instead) for shown, instead in self.hide)
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target, timeout=5)
            except ConnectionRefusedError:
                client.close()
                continue
            except OSError:
                return
            server.settimeout(None)
            for peer in (client, server):
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A request waits under (side that asked, opaque): each side counts its own.
            waiting: dict[tuple[bool, int], Exchange] = {}
            for source, sink, from_client in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, from_client, waiting), daemon=True).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        from_client: bool,
        waiting: dict[tuple[bool, int], Exchange],
    ) -> None:
        while True:
            length = _read_exactly(source, 4)
            frame = length + _read_exactly(source, int.from_bytes(length))
            if len(frame) < 8:
                break
            self._record(frame, from_client, waiting)
            if not from_client:
                for shown, instead in self.hide:
                    frame = frame.replace(shown, instead)
            try:
                sink.sendall(frame)
            except OSError:
                break
        for peer in (source, sink):
            with contextlib.suppress(OSError):  # the other direction has closed it
                peer.shutdown(socket.SHUT_RDWR)

    def _record(self, frame: bytes, from_client: bool, waiting: dict[tuple[bool, int], Exchange]) -> None:
        header = _header(frame)
        opaque = _int(header, "opaque")
        if _flag(header) & RESPONSE_BIT:
            exchange = waiting.pop((not from_client, opaque), None)
            if exchange is not None:
                exchange.response_header, exchange.response, exchange.answered_at = header, frame, time.monotonic()
        elif _code(header) in CODES:
            who, to = (self.who, self.to) if from_client else (self.to, self.who)
            waiting[from_client, opaque] = self.transcript.request(who, to, self.kind, header, frame)


class LinkRecorder:
    """Forwards the HA port, and keeps what passed: a row for each read, in the order in which they were forwarded."""

    def __init__(self, port: int, target: int) -> None:
        self.rows: list[dict[str, object]] = []
        self.target = target
        self.started = time.monotonic()
        self.connections = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                slave, _ = self.listener.accept()
                master = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except ConnectionRefusedError:
                slave.close()
                continue
            except OSError:
                return
            master.settimeout(None)
            number = self.connections
            self.connections += 1
            for name, source, sink in (("slave", slave, master), ("master", master, slave)):
                threading.Thread(target=self._pump, args=(number, name, source, sink), daemon=True).start()

    def _pump(self, number: int, name: str, source: socket.socket, sink: socket.socket) -> None:
        while True:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            with self.lock:
                ms = round(1000 * (time.monotonic() - self.started))
                self.rows.append({"connection": number, "from": name, "ms": ms, "bytes": base64.b64encode(data).decode()})
            try:
                sink.sendall(data)
            except OSError:
                break
        for peer in (source, sink):
            with contextlib.suppress(OSError):  # the other direction has closed it
                peer.shutdown(socket.SHUT_RDWR)
