"""A connection at an older offset: a master that lacks it and a connection that was cut look alike only at first."""

import socket
import threading
from collections.abc import Iterator

import pytest

from kit.waiting import PATIENCE_S, accepted, await_end
from rocketmq_ha.impl.net import open_feed as module
from rocketmq_ha.impl.net.feed import FeedEnded, OutOfRange
from rocketmq_ha.impl.net.open_feed import open_old
from rocketmq_ha.impl.wire.frame import HEADER

TARGET = 5000
HEARTBEAT = HEADER.pack(TARGET, 0)
DATA = HEADER.pack(TARGET, 3) + b"abc"


class Peer:
    """Sends to each connection what the next answer says, and closes it; to the last one, it stays."""

    def __init__(self, answers: list[bytes]) -> None:
        self.connections = 0
        self._answers, self._kept = answers, list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                sock = accepted(self._listener)
            except OSError:
                return
            sock.settimeout(PATIENCE_S)
            sock.recv(8)
            answer = self._answers[self.connections]
            self.connections += 1
            sock.sendall(answer)
            if answer is DATA:
                self._kept.append(sock)
            else:
                sock.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        await_end(self._thread)
        for sock in self._kept:
            sock.close()


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Peer]]:
    monkeypatch.setattr(module, "_AGAIN_S", 0)
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.close()


@pytest.mark.parametrize(
    ("answers", "error", "connections"),
    [
        ([b"", b"", DATA], None, 3),
        ([DATA[:5], b"", DATA], None, 3),
        ([b"", b"", b"", DATA], OutOfRange, 3),
        ([DATA[:11]] * 3, OutOfRange, 3),
        ([HEARTBEAT, DATA], FeedEnded, 1),  # it has begun at the offset: the master has it
        ([HEARTBEAT + DATA[:5], DATA], FeedEnded, 1),
        ([b"", HEARTBEAT, DATA], FeedEnded, 2),
    ],
    ids=["third time", "part of a header", "three times", "three parts", "heartbeat", "heartbeat and a part", "later"],
)
def test_a_master_that_closes_is_out_of_range_only_where_it_has_not_begun(
    peers: list[Peer], answers: list[bytes], error: type[Exception] | None, connections: int
) -> None:
    peers.append(peer := Peer(answers))
    if error is None:
        with open_old(peer.address, TARGET, lambda: False) as feed:
            assert feed.first_offset == TARGET
    else:
        with pytest.raises((FeedEnded, OutOfRange)) as ended:
            open_old(peer.address, TARGET, lambda: False)
        assert type(ended.value) is error
    assert peer.connections == connections
