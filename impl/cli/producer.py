"""What `rocketmq-ha master --put` puts: made-up messages, so many in flight, and how they ended."""

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rocketmq_ha.impl.cli.roles import without_wait
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.server import Master, clock_ms
from rocketmq_ha.impl.store.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message

POLL_MS: Final = 50
PUTS_A_TURN: Final = 64  # at most, between two turns of the loop
FIRST_ACK_S: Final = 10  # which a slave has for the first acknowledgement of its connection, before puts go on without it


def messages(count: int, size: int, seed: int, sync: float = 1.0) -> Iterator[Message]:
    """`count` messages with bodies of `size` bytes, the same for the same seed but for their timestamps.

    Args:  sync: the share of those that let their puts wait.
    """
    rng = random.Random(seed)
    for index in range(count):
        now_ms = time.time_ns() // 1_000_000
        message = Message(
            topic="rocketmq-ha",
            body=rng.randbytes(size),
            queue_id=index % 4,
            properties_string=f"KEYS\x01{index}",
            born_timestamp=now_ms,
            store_timestamp=now_ms,
        )
        yield message if int((index + 1) * sync) > int(index * sync) else without_wait(message)


def put_all(
    server: Master,
    puts: Puts,
    stopped: Callable[[], bool],
    produced: Iterator[Message],
    count: int,
    in_flight: int,
    await_slaves: int,
) -> tuple[Counter[PutMessageStatus], deque[WaitingPut]]:
    """Put all messages, never more than `in_flight` waiting. Returns: how they ended; those that a stop has left."""
    statuses: Counter[PutMessageStatus] = Counter()
    waiting: deque[WaitingPut] = deque()
    asked: list[MasterConnection] = []  # whom a message was put for that did not wait, so that they could acknowledge one
    progress = Progress(
        TextColumn("put"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.speed:.0f}/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not Console(stderr=True).is_terminal,
    )

    def poll(timeout_ms: int) -> None:
        server.poll(timeout_ms)
        puts.on_turn(clock_ms())

    def collect() -> None:
        poll(0 if len(waiting) < in_flight else POLL_MS)
        while waiting and (status := waiting[0].status) is not None:
            statuses[status] += 1
            waiting.popleft()
        if len(waiting) >= in_flight:  # most puts end in order; where one that waits keeps others back, all are looked at
            statuses.update(put.status for put in waiting if put.status is not None)
            still = [put for put in waiting if put.status is None]
            waiting.clear()
            waiting.extend(still)

    turn = min(max(in_flight // 2, 1), PUTS_A_TURN)  # so that a slave is busy with one half while the other is put
    with progress:
        task = progress.add_task("put", total=count)
        for index, message in enumerate(produced):
            while server.service.count_connected() < await_slaves and not stopped():
                poll(POLL_MS)
            # HA-G-5 "from its first acknowledgement on": a slave that was sent nothing yet can have acknowledged nothing. Once
            # for each company of connections a message does not wait, and they have some time to acknowledge it.
            lacking = server.service.count_slaves() < await_slaves and server.service.connections != asked
            put = puts.put(without_wait(message) if lacking else message, clock_ms())
            if lacking:
                asked = list(server.service.connections)
                until = time.monotonic() + FIRST_ACK_S
                while time.monotonic() < until and not stopped() and server.service.connections == asked:
                    if server.service.count_slaves() >= await_slaves:
                        break
                    poll(POLL_MS)
            if (status := put.status) is not None:
                statuses[status] += 1
            else:
                waiting.append(put)
            while len(waiting) >= in_flight and not stopped():
                collect()
            if index % turn == 0:
                collect()
            if index % PUTS_A_TURN == 0:
                progress.update(task, completed=index + 1)
            if stopped():
                break
        while waiting and not stopped():
            collect()
    return statuses, waiting
