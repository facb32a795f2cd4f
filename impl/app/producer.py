"""The producer of `rocketmq-ha master --put`: it puts generated messages, some in flight at a time, and counts how they end."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.impl.app.roles import without_wait
from rocketmq_ha.impl.app.slave_wait import SlaveWait
from rocketmq_ha.impl.clock import clock_ms, wall_clock_ms
from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.role import BrokerRole

POLL_MS: Final = 50
PUTS_A_TURN: Final = 64  # at most, between two turns of the loop
UNWAITED_KEY: Final = "unwaited"  # of a message that is put only so that a slave can acknowledge it


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """count: messages to put; None or 0: none. sync: the share of them that wait. await_*: see SlaveWait."""

    count: int | None
    size: int
    in_flight: int
    sync: float
    await_slaves: int
    await_replicas: int


def messages(count: int, size: int, seed: int, sync: float = 1.0) -> Iterator[Message]:
    """Make `count` messages with bodies of `size` bytes. The same seed gives the same messages, timestamps excepted.

    Args:  sync: the share of the messages whose puts wait.
    """
    rng = random.Random(seed)
    for index in range(count):
        waits = int((index + 1) * sync) > int(index * sync)
        yield _message(rng.randbytes(size), index % 4, str(index), wait=waits)


def _message(body: bytes, queue_id: int, key: str, *, wait: bool) -> Message:
    now_ms = wall_clock_ms()
    message = Message(
        topic="rocketmq-ha",
        body=body,
        queue_id=queue_id,
        properties_string=f"KEYS\x01{key}",
        born_timestamp=now_ms,
        store_timestamp=now_ms,
    )
    return message if wait else without_wait(message)


@dataclass(slots=True)
class PutCounts:
    """The outcomes of the messages of `--put`. unwaited: further messages, put so that a slave could acknowledge one."""

    statuses: Counter[PutMessageStatus] = field(default_factory=Counter)
    unwaited: int = 0

    def line(self, seconds: float) -> str:
        counts = " ".join(f"{status.value}={self.statuses[status]}" for status in PutMessageStatus if self.statuses[status])
        done = sum(self.statuses.values())
        unwaited = f" unwaited={self.unwaited}" if self.unwaited else ""
        return f"put={done}{unwaited} seconds={seconds:.1f} per_second={done / seconds:.0f} {counts}"


def put_all(
    server: Master,
    puts: Puts,
    stopped: Callable[[], bool],
    produced: Iterator[Message],
    in_flight: int,
    await_slaves: int = 0,
    await_replicas: int = 0,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[PutCounts, deque[WaitingPut]]:
    """Put all messages, never more than `in_flight` waiting.

    Args:  progress: is called now and then with the number of messages that were put.
    Returns: the outcomes; the puts that still wait when we are told to stop.
    """
    counts = PutCounts()
    statuses = counts.statuses
    server.service.tallies.append(statuses)
    waiting: deque[WaitingPut] = deque()
    is_sync_master = puts.role is BrokerRole.SYNC_MASTER

    def put_unwaited() -> None:
        with suppress(StoreFull):  # the put that needs it meets the full disk too
            puts.put(_message(b"", 0, UNWAITED_KEY, wait=False), clock_ms())

    slave_wait = SlaveWait(server.service, await_slaves, await_replicas, put_unwaited)

    def poll(timeout_ms: int) -> None:
        server.poll(timeout_ms)
        puts.on_turn(clock_ms())

    def collect() -> None:
        poll(0 if len(waiting) < in_flight else POLL_MS)
        while waiting and (status := waiting[0].status) is not None:
            statuses[status] += 1
            waiting.popleft()
        if (
            len(waiting) >= in_flight
        ):  # most puts end in order; if the first one still waits, take out the others that have ended
            statuses.update(put.status for put in waiting if put.status is not None)
            still = [put for put in waiting if put.status is None]
            waiting.clear()
            waiting.extend(still)

    turn = min(max(in_flight // 2, 1), PUTS_A_TURN)  # a slave works on one half while the other half is put
    for index, message in enumerate(produced):
        if await_slaves or await_replicas:
            waits = is_sync_master and waits_for_store(message.properties_string)
            slave_wait.wait(lambda: poll(POLL_MS), stopped, for_slave=waits)
            if stopped():
                break
        try:
            put = puts.put(message, clock_ms())
        except StoreFull as error:  # HA-ST-67 "MUST end with SERVICE_NOT_AVAILABLE"; a producer would wait a little, too
            statuses[status_of(error)] += 1
            poll(POLL_MS)  # HA-ST-67 "Slaves MUST be served all the while"
            if stopped():
                break
            continue
        if (status := put.status) is not None:
            statuses[status] += 1
        else:
            waiting.append(put)
        while len(waiting) >= in_flight and not stopped():
            collect()
        if index % turn == 0:
            collect()
        if index % PUTS_A_TURN == 0:
            progress(index + 1)
        if stopped():
            break
    while waiting and not stopped():
        collect()
    counts.unwaited = slave_wait.unwaited
    return counts, waiting
