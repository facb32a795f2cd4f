"""A steady producer and a consumer of ours, and what they saw: the outcome of each send, and each delivery.

Both run in threads of their own. Times are those of `time.monotonic`, in s.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from under_test import Delivered, Sent

from rocketmq_ha.impl.app.client_session import ClientSession, NameServers, client_session, message_ids
from rocketmq_ha.impl.client.decisions import ConsumeFromWhere, SendStatus
from rocketmq_ha.impl.client.producer import Producer, SendResult
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings, PullConsumer, Received
from rocketmq_ha.impl.clock import clock_ms, wall_clock_ms
from rocketmq_ha.impl.wire.message import Message

TOPIC: Final = "orders"
GROUP: Final = "modes"
QUEUES: Final = 4  # of each group
BODY_SIZE: Final = 200
IN_FLIGHT: Final = 4096  # more than the sends of one timeout
POLL_MS: Final = 5
CATCH_UP: Final = 50  # sends that a producer which was held up makes at once, at most
OK: Final = SendStatus.SEND_OK.value


class Traffic:
    """The two clients. As TrafficUnderTest."""

    def __init__(self, name_server: str, rate: int) -> None:
        """rate: sends a second."""
        self.sent: Final[list[Sent]] = []
        self.delivered: Final[list[Delivered]] = []
        self.begun = 0  # sends
        self.is_paused = False  # the consumer pulls nothing
        self.error: BaseException | None = None  # what ended a client
        self._name_servers, self._rate = NameServers((name_server,)), rate
        self._sends, self._runs = True, True
        self._threads = [
            threading.Thread(target=partial(self._guarded, run), name=name, daemon=True)
            for name, run in (("producer", self._produce), ("consumer", self._consume))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def in_flight(self) -> int:
        return self.begun - len(self.sent)

    def stop_sending(self, within_s: float) -> None:
        self._sends = False
        self._threads[0].join(within_s)
        assert not self._threads[0].is_alive(), f"{self.in_flight} sends have no outcome"

    def close(self) -> None:
        self._sends = self._runs = False
        for thread in self._threads:
            thread.join(30)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self.error = error

    # --- The producer ------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        with client_session(self._name_servers) as session:
            producer = Producer(
                session.client,
                session.routes,
                GROUP,
                message_ids(session.name_servers[0]),
                max_in_flight=IN_FLIGHT,
            )
            began, due = time.monotonic(), 0
            while self._sends or self.in_flight:
                now_ms = clock_ms()
                producer.turn(now_ms)
                wanted = int((time.monotonic() - began) * self._rate)
                due = max(due, wanted - CATCH_UP)  # what could not be sent in its time is not sent later
                while self._sends and due < wanted and not producer.is_full:
                    due += 1
                    self._send(producer, now_ms)
                session.client.poll(POLL_MS)

    def _send(self, producer: Producer, now_ms: int) -> None:
        number, begun = self.begun, time.monotonic()
        self.begun += 1
        message = Message(TOPIC, b"%d " % number + b"x" * BODY_SIZE, born_timestamp=wall_clock_ms())

        def on_result(result: SendResult) -> None:
            queue = result.queue
            where = ("", -1, -1) if queue is None else (queue.broker_name, queue.queue_id, result.queue_offset or 0)
            self.sent.append(Sent(number, begun, time.monotonic(), result.status, *where))

        producer.send(message, on_result, now_ms)

    # --- The consumer ------------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        with client_session(self._name_servers) as session:
            settings = ConsumerSettings(GROUP, TOPIC, start=ConsumeFromWhere.FIRST)
            consumer = Consumer(session, settings, self.delivered)
            while self._runs:
                consumer.pulls.is_paused = self.is_paused
                consumer.turn()


class Consumer:
    """A consumer that has consumed each message when it has noted it."""

    def __init__(self, session: ClientSession, settings: ConsumerSettings, delivered: list[Delivered]) -> None:
        self._session, self._delivered = session, delivered
        self.pulls = PullConsumer(session.client, session.routes, settings, self._take)
        self.pulls.start(clock_ms())

    def turn(self) -> None:
        self.pulls.turn(clock_ms())
        self._session.client.poll(POLL_MS)

    def _take(self, received: list[Received]) -> None:
        now = time.monotonic()
        for each in received:
            queue, message = each.queue, each.message
            where = queue.broker_name, queue.queue_id, message.queue_offset
            self._delivered.append(Delivered(now, number_of(message.body), *where))
            self.pulls.consumed(queue, message.queue_offset)


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 1)[0])


def read_all(name_server: str, within_s: float) -> list[Delivered]:
    """What a reader that comes anew gets from the first message to the end. Queues without a broker give nothing."""
    found: list[Delivered] = []
    with client_session(NameServers((name_server,))) as session:
        settings = ConsumerSettings("reader", TOPIC, start=ConsumeFromWhere.FIRST, commits=False, waits=False)
        consumer = Consumer(session, settings, found)
        until = time.monotonic() + within_s
        while not consumer.pulls.is_at_end and consumer.pulls.error is None and time.monotonic() < until:
            consumer.turn()
    return found
