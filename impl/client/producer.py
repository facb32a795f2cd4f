"""A producer: messages go to the brokers of their topic, and each outcome is told once.

Nothing here waits. The loop that holds the client calls `turn`; answers come from within the client's turn.
Source: 4.9.8 DefaultMQProducerImpl.sendDefaultImpl, MQClientAPIImpl.processSendResponse.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketmq_ha.impl.client.decisions import (
    STORED,
    WAIT_FOR_MASTER_MS,
    SendStatus,
    is_tried_again,
    is_waited_for,
    select_one_message_queue,
)
from rocketmq_ha.impl.client.route_data import MASTER_ID, PERM_WRITE, MessageQueue, TopicRoute, publish_queues
from rocketmq_ha.impl.client.routes import Asks, Routes
from rocketmq_ha.impl.client.send_command import Prepared, prepare, prepare_batch
from rocketmq_ha.impl.client.unique_id import MessageClientIDSetter
from rocketmq_ha.impl.errors import ConfigInvalid, FrameInvalid, NoRoute, RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import ResponseCode, response_name
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.wire.message import Message

SEND_MSG_TIMEOUT_MS: Final = 3_000
MAX_IN_FLIGHT_SIZE: Final = 4 << 20  # bytes of bodies; a connection takes 8 MiB that its peer has not read
NO_ROUTE: Final = "NO_ROUTE"
NO_ANSWER: Final = "NO_ANSWER"
SENT: Final = "SENT"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of a send. status: of SendStatus; else the name of the broker's answer, NO_ROUTE, NO_ANSWER, or SENT for one
    that awaits no answer.

    msg_id: by which the broker finds the message; several, with `,` between, for a batch. queue, queue_offset: None if the
    message is not known to be stored.
    """

    status: str
    uniq_keys: tuple[str, ...]
    attempts: int
    error: str | None = None
    queue: MessageQueue | None = None
    queue_offset: int | None = None
    msg_id: str | None = None
    transaction_id: str | None = None

    @property
    def is_stored(self) -> bool:
        return self.queue is not None


OnResult = Callable[[SendResult], object]


class _Send:
    """A send that has no outcome yet. attempts: made so far; last: the queue of the last one.

    tries: those of them that count for HA-C-6; written: those whose request a connection may have taken.
    """

    __slots__ = ("attempts", "deadline_ms", "is_oneway", "last", "on_result", "prepared", "queue_id", "tries", "written")

    def __init__(
        self, prepared: Prepared, queue_id: int | None, deadline_ms: int, on_result: OnResult, *, is_oneway: bool
    ) -> None:
        self.prepared, self.queue_id, self.deadline_ms, self.on_result = prepared, queue_id, deadline_ms, on_result
        self.is_oneway = is_oneway
        self.attempts = self.tries = self.written = 0
        self.last: MessageQueue | None = None


class Producer:
    """Sends messages. Times are in ms; `now_ms` by the clock of the client's deadlines, `born` times since 1970."""

    def __init__(
        self,
        client: Asks,
        routes: Routes,
        group: str,
        ids: MessageClientIDSetter,
        *,
        timeout_ms: int = SEND_MSG_TIMEOUT_MS,
        max_in_flight: int = 1024,
    ) -> None:
        self._client, self._routes, self._group, self._ids = client, routes, group, ids
        self._timeout_ms, self._max_in_flight = timeout_ms, max_in_flight
        self._index = -1  # HA-C-5
        self._queues: dict[str, tuple[TopicRoute, list[MessageQueue]]] = {}  # by topic, with the route that they are of
        self._waiting: list[tuple[int, int, _Send, SendResult]] = []  # a heap: when to try again, and the outcome by now
        self._waits = 0  # so far: of two entries of one time the older one is the first
        self._is_ending = False
        self._now_ms = 0
        self.in_flight = self.in_flight_size = 0

    @property
    def is_full(self) -> bool:
        """Whether outcomes are to be awaited before the next send: of messages, or of bytes."""
        return self.in_flight >= self._max_in_flight or self.in_flight_size >= MAX_IN_FLIGHT_SIZE

    def turn(self, now_ms: int) -> None:
        """The time is `now_ms`."""
        self._now_ms = now_ms
        self._routes.turn(now_ms)
        waiting = self._waiting
        while waiting and (self._is_ending or now_ms >= waiting[0][0]):
            _, _, send, result = heapq.heappop(waiting)
            if self._is_ending or now_ms >= send.deadline_ms:
                self._end(send, result)
            else:
                self._routes.find_anew(send.prepared.topic, partial(self._attempt, send), now_ms)

    def end(self) -> None:
        """Wait for no broker from now on; sends that have reached one get their outcomes."""
        self._is_ending = True

    def send(self, message: Message, on_result: OnResult, now_ms: int, queue_id: int | None = None) -> None:
        """Send a message; on_result is called once, perhaps at once.

        Args:  queue_id: only queues of this number, of whichever group. Raises: MessageIllegal, and nothing is sent.
        """
        uniq_key = self._ids.create_uniq_id(message.born_timestamp)
        self._begin(prepare(message, self._group, uniq_key), queue_id, on_result, now_ms)

    def send_batch(self, messages: Sequence[Message], on_result: OnResult, now_ms: int, queue_id: int | None = None) -> None:
        """Send messages in one request, to one queue. Raises: MessageIllegal, and nothing is sent."""
        uniq_keys = [self._ids.create_uniq_id(message.born_timestamp) for message in messages]
        self._begin(prepare_batch(messages, self._group, uniq_keys), queue_id, on_result, now_ms)

    def send_oneway(self, message: Message, on_result: OnResult, now_ms: int, queue_id: int | None = None) -> None:
        """Send a message without an answer: SENT says that there was a broker to send it to. Raises: MessageIllegal."""
        prepared = prepare(message, self._group, self._ids.create_uniq_id(message.born_timestamp))
        self._begin(prepared, queue_id, on_result, now_ms, is_oneway=True)

    # --- A send ------------------------------------------------------------------------------------------------------

    def _begin(
        self, prepared: Prepared, queue_id: int | None, on_result: OnResult, now_ms: int, *, is_oneway: bool = False
    ) -> None:
        self._now_ms = max(self._now_ms, now_ms)
        send = _Send(prepared, queue_id, now_ms + self._timeout_ms, on_result, is_oneway=is_oneway)
        self.in_flight += 1
        self.in_flight_size += len(prepared.body)
        self._routes.find(prepared.topic, lambda route: self._attempt(send, route), now_ms, may_make=True)

    def _attempt(self, send: _Send, route: TopicRoute | NoRoute) -> None:
        """Send to the next queue."""
        if isinstance(route, NoRoute):
            self._wait(send, NO_ROUTE, str(route))
            return
        last = None if send.last is None else send.last.broker_name
        queue = self._select(send.prepared.topic, route, send.queue_id, last)
        if queue is None:
            error = f"topic {send.prepared.topic}: {_why_no_queue(route, send.queue_id)}"
            # HA-C-1 "where it finds no queue to send to": its master may be back
            self._routes.broker_failed(send.prepared.topic, self._now_ms)
            self._wait(send, NO_ROUTE, error)
            return
        send.attempts += 1
        send.tries += 1
        send.last = queue
        address = route.addrs(queue.broker_name).get(MASTER_ID)
        if address is None:
            self._failed(send, None, f"the master of {queue.broker_name} is down", is_unsent=True)
            return
        command = send.prepared.command(queue.queue_id, oneway=send.is_oneway)
        try:
            if send.is_oneway:
                self._client.send(address, command)
                self._end(send, SendResult(SENT, send.prepared.uniq_keys, send.attempts))
                return
            self._client.invoke(address, command, send.deadline_ms, lambda answer: self._on_answer(send, queue, answer))
        except FrameInvalid as error:  # the message does not fit into a frame
            name = ResponseCode.MESSAGE_ILLEGAL.name
            self._end(send, SendResult(name, send.prepared.uniq_keys, send.attempts, str(error)))
        except ConfigInvalid as error:  # the route has an address that is none
            self._failed(send, None, str(error), is_unsent=True)

    def _select(self, topic: str, route: TopicRoute, queue_id: int | None, last: str | None) -> MessageQueue | None:
        known = self._queues.get(topic)
        if known is None or known[0] is not route:
            known = self._queues[topic] = (route, publish_queues(topic, route))
        queues = known[1] if queue_id is None else [queue for queue in known[1] if queue.queue_id == queue_id]
        if not queues:
            return None
        queue, self._index = select_one_message_queue(queues, self._index, last)
        return queue

    def _on_answer(self, send: _Send, queue: MessageQueue, answer: RemotingCommand | RequestFailed) -> None:
        if isinstance(answer, RequestFailed):
            if answer.is_late:  # the client's clock is ahead of the last turn: HA-C-6 "MUST NOT last longer than one timeout"
                self._now_ms = max(self._now_ms, send.deadline_ms)
            self._routes.broker_failed(send.prepared.topic, self._now_ms)
            self._failed(send, None, str(answer), is_unsent=answer.is_unsent)
            return
        status = STORED.get(answer.code)
        if status is None:
            self._failed(send, answer.code, answer.remark or "no remark")
            return
        try:
            result = _stored(send, queue, status, answer)
        except RequestInvalid as error:  # it may be stored: another attempt would store it twice
            result = SendResult(
                NO_ANSWER, send.prepared.uniq_keys, send.attempts, f"answer {response_name(answer.code)}: {error}"
            )
        self._end(send, result)

    def _failed(self, send: _Send, code: int | None, error: str, *, is_unsent: bool = False) -> None:
        """HA-C-6 "A send that is answered with a code of the table's second row, or not at all"."""
        send.written += not is_unsent
        if is_tried_again(code, send.tries, send.deadline_ms - self._now_ms):
            self._routes.find(send.prepared.topic, lambda route: self._attempt(send, route), self._now_ms, may_make=True)
        else:
            self._wait(send, name_of(code), error, is_unsent=is_unsent)

    def _wait(self, send: _Send, status: str, error: str, *, is_unsent: bool = True) -> None:
        """Try again later, or end.

        HA-C-16 "that finds no route or no queue to send to, or whose request was written to no connection".
        """
        result = SendResult(status, send.prepared.uniq_keys, send.attempts, error)
        if self._is_ending or not is_waited_for(send.deadline_ms - self._now_ms, is_unsent=is_unsent):
            self._end(send, result)
            return
        send.tries = send.written  # "such a try is none of the three"
        self._waits += 1
        at_ms = min(self._now_ms + WAIT_FOR_MASTER_MS, send.deadline_ms)
        heapq.heappush(self._waiting, (at_ms, self._waits, send, result))

    def _end(self, send: _Send, result: SendResult) -> None:
        self.in_flight -= 1
        self.in_flight_size -= len(send.prepared.body)
        send.on_result(result)


def _why_no_queue(route: TopicRoute, queue_id: int | None) -> str:
    least = 0 if queue_id is None else queue_id
    groups = [data.broker_name for data in route.queue_datas if data.perm & PERM_WRITE and data.write_queue_nums > least]
    if groups:
        return f"found no master of {', '.join(sorted(groups))} in the route, expected one"
    wanted = "" if queue_id is None else f" of number {queue_id}"
    return f"found no queue{wanted} that may be written, expected one"


def name_of(code: int | None) -> str:
    """RocketMQ's name of an answer's code; NO_ANSWER for none."""
    if code is None:
        return NO_ANSWER
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"CODE_{code}"


def _stored(send: _Send, queue: MessageQueue, status: SendStatus, answer: RemotingCommand) -> SendResult:
    """Raises: RequestInvalid."""
    return SendResult(
        status.value,
        send.prepared.uniq_keys,
        send.attempts,
        None if status is SendStatus.SEND_OK else answer.remark or status.value,
        queue._replace(queue_id=fields.i32(answer, "queueId")),
        fields.i64(answer, "queueOffset"),
        fields.text(answer, "msgId"),
        answer.ext_fields.get("transactionId"),
    )
