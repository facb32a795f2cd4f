"""Inputs to a remoting port, that of a name server and that of a broker, and an honest client beside them.

The honest client asks one question after the other, on one connection that must last. So an input shows in its rate.
"""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hostile_stand import PATIENCE_S, Unexpected

from kit.hostile_frames import CLOSED
from kit.hostile_frames import INPUTS as BYTES
from kit.waiting import await_end
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, encode_whole, request
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.impl.remoting.limits import RemotingLimits

MAX_CONNECTIONS: Final = 48
MAX_CONNECTIONS_PER_ADDRESS: Final = 24
ALLOWED: Final = "127.0.0.0/9"  # 127.200.0.1 is outside
TIMES: Final = 5  # an input that closes its connection is repeated so often
GET_ROUTEINFO_BY_TOPIC: Final = 105
HEART_BEAT: Final = 34
UNKNOWN: Final = 4242  # a code that nobody serves
NO_LINGER: Final = struct.pack("ii", 1, 0)


class RemotingStand:
    """A process with a remoting port, and an honest client of it."""

    def __init__(self, directory: Path, what: str) -> None:
        """what: `namesrv` or `broker`."""
        caps = ("--max-connections", str(MAX_CONNECTIONS), "--max-connections-per-address", str(MAX_CONNECTIONS_PER_ADDRESS))
        # The options of a broker are those of its HA port; its remoting ports have the limits of `RemotingLimits`.
        most = RemotingLimits().connections.max_connections_per_address
        assert most is not None
        self.per_address = MAX_CONNECTIONS_PER_ADDRESS if what == "namesrv" else most
        own = {
            "namesrv": ("--listen", "127.0.0.1:0", "--kv-config", str(directory / "kvConfig.json")),
            "broker": ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--store", str(directory / "broker")),
        }[what]
        self.what = what
        self.node = Node(directory / f"{what}.log", what, *own, *caps, "--allow", ALLOWED)
        try:
            self.address = parse_address(self.node.line("listening"))
        except BaseException:
            self.node.kill()
            raise
        self.answers = 0
        self.problem = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="honest client", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            with Peer(self, "127.0.0.1") as honest:
                while not self._done.wait(0.001):
                    honest.ask(request(GET_ROUTEINFO_BY_TOPIC, {"topic": "no such topic"}))
                    self.answers += 1
        except (OSError, Unexpected) as error:
            self.problem = f"the honest client: {error}"

    def rss_kib(self) -> int:
        """Anonymous memory in KiB, without mapped files."""
        self.node.check()
        status = Path(f"/proc/{self.node._process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))

    def log_lines(self) -> int:
        return self.node.log.read_bytes().count(b"\n")

    def rate(self, seconds: float) -> float:
        """Answers a second that the honest client gets."""
        begun_s, begun = time.monotonic(), self.answers
        time.sleep(seconds)
        return (self.answers - begun) / (time.monotonic() - begun_s)

    def stop(self) -> str:
        """Returns: what went wrong; "" if nothing did."""
        self._done.set()
        await_end(self._thread)
        self.node.check()
        status = self.node.stop()
        if b"Traceback" in self.node.log.read_bytes():
            return f"{self.node.log}: a traceback"
        return self.problem or (f"exit status {status}, expected 0" if status else "")

    def kill(self) -> None:
        self._done.set()
        self.node.kill()


class Peer:
    """A connection to the port of a stand."""

    def __init__(self, stand: RemotingStand, host: str) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(PATIENCE_S)
        self.sock.bind((host, 0))
        self.sock.connect(stand.address)
        self._reader = FrameReader()
        self._frames: list[bytes] = []

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the server may have closed already
            self.sock.sendall(data)

    def answer(self) -> RemotingCommand | None:
        """The next answer; None at the end of the stream. Raises: Unexpected if neither comes."""
        while not self._frames:
            try:
                data = self.sock.recv(1 << 18)
            except TimeoutError:
                raise Unexpected(f"neither an answer nor an end within {PATIENCE_S:.0f} s") from None
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return decode(self._frames.pop(0))

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        """Raises: Unexpected where there is no answer."""
        self.send(encode_whole(command))
        answer = self.answer()
        if answer is None or answer.opaque != command.opaque:
            raise Unexpected(f"found {answer}, expected the answer to opaque {command.opaque}")
        return answer

    def must_close(self) -> None:
        """Raises: Unexpected if there is an answer first."""
        if (answer := self.answer()) is not None:
            raise Unexpected(f"found the answer {answer.code}, expected the end of the connection")


Input = Callable[[RemotingStand, str], None]
INPUTS: Final[dict[str, Input]] = {}


def hostile(name: str) -> Callable[[Input], Input]:
    def register(given: Input) -> Input:
        assert name not in INPUTS
        INPUTS[name] = given
        return given

    return register


def _bytes(data: bytes, outcome: int | None) -> Input:
    def run(stand: RemotingStand, host: str) -> None:
        for _ in range(TIMES):
            with Peer(stand, host) as peer:
                peer.send(data)
                if outcome is CLOSED:
                    peer.must_close()
                elif peer.answer() is None:
                    raise Unexpected("the connection ended, expected an answer")

    return run


for _name, (_data, _outcome) in BYTES.items():
    INPUTS[_name] = _bytes(_data, _outcome)


@hostile("100,000 requests that nobody reads the answers of")
def flood(stand: RemotingStand, host: str) -> None:
    with Peer(stand, host) as peer:
        peer.sock.settimeout(2.0)
        with contextlib.suppress(TimeoutError):  # it is not read from any more: HA-RM-24
            peer.send(encode_whole(request(UNKNOWN)) * 100_000)


@hostile("20,000 requests at once, all answered")
def pipeline(stand: RemotingStand, host: str) -> None:
    with Peer(stand, host) as peer:
        sender = threading.Thread(target=peer.send, args=(encode_whole(request(UNKNOWN)) * 20_000,), daemon=True)
        sender.start()
        for number in range(20_000):
            if peer.answer() is None:
                raise Unexpected(f"the connection ended after {number} answers of 20,000")
        await_end(sender)


@hostile("50,000 oneway requests")
def oneway(stand: RemotingStand, host: str) -> None:
    with Peer(stand, host) as peer:
        peer.send(encode_whole(request(UNKNOWN, oneway=True)) * 50_000)
        peer.ask(request(UNKNOWN))


@hostile("20,000 codes that nobody serves")
def codes(stand: RemotingStand, host: str) -> None:
    with Peer(stand, host) as peer:
        for number in range(0, 20_000, 1_000):
            peer.send(b"".join(encode_whole(RemotingCommand(1_000_000 + number + more, 1)) for more in range(1_000)))
            for _ in range(1_000):
                peer.answer()


@hostile("24 frames of 15 MiB that never end")
def unfinished(stand: RemotingStand, host: str) -> None:
    """HA-RM-26 has a limit of 256 MiB; here are 20, so that the machine is spared."""
    peers = [Peer(stand, host) for _ in range(MAX_CONNECTIONS_PER_ADDRESS)]
    for peer in peers:
        peer.send((15 << 20).to_bytes(4) + bytes(800_000))
    for peer in peers:
        peer.sock.close()


@hostile("more connections than an address may have")
def connections(stand: RemotingStand, host: str) -> None:
    peers = [Peer(stand, host) for _ in range(stand.per_address)]
    for peer in peers:
        peer.ask(request(UNKNOWN))
    with Peer(stand, host) as beyond:
        beyond.must_close()
    for peer in peers:
        peer.ask(request(UNKNOWN))
        peer.sock.close()


@hostile("500 connects that say nothing")
def connects(stand: RemotingStand, host: str) -> None:
    for _ in range(500):
        Peer(stand, host).sock.close()


@hostile("300 resets within a frame")
def resets(stand: RemotingStand, host: str) -> None:
    for _ in range(300):
        with Peer(stand, host) as peer:
            peer.send(encode_whole(request(UNKNOWN))[:20])
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


@hostile("a frame in single bytes")
def single_bytes(stand: RemotingStand, host: str) -> None:
    with Peer(stand, host) as peer:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_whole(request(UNKNOWN)):
            peer.send(bytes([byte]))
        if peer.answer() is None:
            raise Unexpected("the connection ended, expected an answer")


@hostile("somebody from a network that may not connect")
def outsider(stand: RemotingStand, _host: str) -> None:
    with Peer(stand, "127.200.0.1") as peer:
        peer.send(encode_whole(request(UNKNOWN)))
        peer.must_close()


@hostile("changes of the configuration by the network")
def configuration(stand: RemotingStand, host: str) -> None:
    """CVE-2023-33246 and CVE-2023-37582: a broker's settings (25), a name server's (318)."""
    body = b"rocketmqHome=-c $@|sh . echo touch /tmp/x;\nkvConfigPath=/tmp/x\nproductEnvName=x\n"
    with Peer(stand, host) as peer:
        for code in (25, 318):
            answer = peer.ask(request(code, body=body))
            if answer.code == 0:
                raise Unexpected(f"request {code} was answered {answer.code}, expected a refusal")


@hostile("12 heartbeats with names of megabytes")
def names_of_megabytes(stand: RemotingStand, host: str) -> None:
    """HA-BT-49: each of another group. Where they are taken, what they name stays."""
    text = "t" * 8_000_000
    with Peer(stand, host) as peer:
        for number in range(12):
            subscription = {"topic": "t", "subString": "*", ("topic", "subString", "expressionType")[number % 3]: text}
            consumer = {"groupName": f"g{number}", "subscriptionDataSet": [subscription]}
            answer = peer.ask(request(HEART_BEAT, body=json.dumps({"clientID": "x", "consumerDataSet": [consumer]}).encode()))
            if answer.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                raise Unexpected(f"a heartbeat was answered {answer.code}, expected a refusal")


@hostile("every code without fields and body")
def every_code(stand: RemotingStand, host: str) -> None:
    """Each is answered, or oneway by nature; none is a bug."""
    _every_code(stand, host, {}, b"")


@hostile("every code with fields that are no numbers, and a body that is no JSON")
def every_code_with_nonsense(stand: RemotingStand, host: str) -> None:
    names = (
        "topic",
        "queueId",
        "queueOffset",
        "offset",
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "h",
        "i",
        "consumerGroup",
        "brokerName",
    )
    _every_code(stand, host, dict.fromkeys(names, "\x00\u2028-"), b"\xff{0:[")


@hostile("every code with the greatest numbers")
def every_code_with_great_numbers(stand: RemotingStand, host: str) -> None:
    names = ("queueId", "queueOffset", "offset", "maxMsgNums", "sysFlag", "commitOffset", "timestamp", "maxNum", "brokerId")
    texts = {"topic": "TBW102", "consumerGroup": "g", "group": "g", "clientID": "c", "key": "k", "subscription": "*"}
    _every_code(stand, host, dict.fromkeys(names, "2147483647") | texts, b"{}")


def _every_code(stand: RemotingStand, host: str, fields: dict[str, str], body: bytes) -> None:
    """Ask all; a question behind them shows that the connection lives."""
    with Peer(stand, host) as peer:
        for code in sorted(RequestCode):
            command = request(code, dict(fields), body)
            peer.send(encode_whole(command))
        last = request(UNKNOWN)
        peer.send(encode_whole(last))
        while (answer := peer.answer()) is not None:
            if (answer.remark or "").startswith("internal error"):
                raise Unexpected(f"a request met a bug: {answer.remark}")
            if answer.opaque == last.opaque:
                return
        raise Unexpected("the connection ended, expected answers")
