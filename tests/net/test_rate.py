"""The limit of the rate at which a master sends the log: HA-M-56."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from kit.limits import Clock, Serve, connect, polled
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.token_bucket import BURST_MS, TokenBucket
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import Settings


@given(
    rate=st.integers(1024, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1)), max_size=50),
)
def test_no_interval_has_more_bytes_than_the_rate_and_one_burst(rate: int, steps: list[tuple[int, float]]) -> None:
    """HA-M-56 "except for one burst of a tenth of the rate", whatever part of its allowance the master uses."""
    bucket, now_ms = TokenBucket(rate, 0), 0
    spent: list[tuple[int, int]] = []
    for pause_ms, share in steps:
        now_ms += pause_ms
        nbytes = int(bucket.left(now_ms) * share)
        bucket.spend(nbytes)
        spent.append((now_ms, nbytes))
    for begin in range(len(spent)):
        total = 0
        for at_ms, nbytes in spent[begin:]:
            total += nbytes
            assert total * 1000 <= rate * (at_ms - spent[begin][0] + BURST_MS)


def test_a_slave_is_sent_its_rate_and_no_more(serve: Serve, clock: Clock) -> None:
    """HA-M-56 "headers and bodies counted": quirk 15 counts headers alone, and sends 40 times as much."""
    rate, size = 200_000, 600_000
    master = serve(Limits(max_transfer_rate=rate), size)
    with connect(master) as sock:
        sock.sendall(REPORT.pack(0))
        sock.setblocking(False)
        polled(master)
        start_ms, stream = clock.ms, b""
        frames = -(-size // Settings().ha_transfer_batch_size)
        while len(stream) < size + frames * HEADER.size:
            clock.ms += 20
            polled(master, 2)
            with contextlib.suppress(BlockingIOError):
                stream += sock.recv(1 << 20)
            assert len(stream) * 1000 <= rate * (clock.ms - start_ms + BURST_MS)
            sock.sendall(REPORT.pack(0))
            assert clock.ms - start_ms < 5000
    body = b""
    while stream:
        offset, body_size = HEADER.unpack_from(stream)
        assert offset == len(body)
        body += stream[12 : 12 + body_size]
        stream = stream[12 + body_size :]
    assert body == bytes(size)
