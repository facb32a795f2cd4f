"""A pull consumer: it pulls the queues of a topic, of master or slave, and commits what its owner says is consumed.

It takes all queues of the topic, or those that it is given; it shares them with no other consumer of its group. Nothing here
waits: the loop that holds the client calls `turn`.
Source: 4.9.8 PullAPIWrapper, DefaultMQPushConsumerImpl.pullMessage, RemoteBrokerOffsetStore, RebalancePushImpl.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from rocketmq_ha.impl.client.decisions import (
    AVOIDED_MS,
    PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION,
    ConsumeFromWhere,
    PullAnswer,
    commit_broker,
    find_broker_address_in_subscribe,
    has_looked,
    is_wanted,
    leads_back,
    next_pull,
    pull_from_where,
    tags_of,
)
from rocketmq_ha.impl.client.route_data import MASTER_ID, MessageQueue, TopicRoute, subscribe_queues
from rocketmq_ha.impl.client.routes import Asks, Routes
from rocketmq_ha.impl.errors import ConfigInvalid, MessageMalformed, NoRoute, RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode, response_name
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.wire.message import Message, decode, read_header

BROKER_SUSPEND_MAX_TIME_MILLIS: Final = 15_000
CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND: Final = 30_000
PERSIST_CONSUMER_OFFSET_INTERVAL_MS: Final = 5_000
OFFSET_TIMEOUT_MS: Final = 5_000
MAX_MSG_NUMS: Final = 32
MAX_WAITING: Final = 10_000  # messages that are received and not consumed
MAX_WAITING_SIZE: Final = 64 << 20  # bytes of them
_SUSPEND: Final = 2  # bits of sysFlag
_SUBSCRIPTION: Final = 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What to consume. expression: `*`, or tags as `a || b`. timestamp: ms since 1970, for TIMESTAMP. queues: their numbers;
    None for all. commits: whether the group's offsets are read and committed. waits: whether a pull is held at the broker.
    """

    group: str
    topic: str
    expression: str = "*"
    start: ConsumeFromWhere = ConsumeFromWhere.LAST
    timestamp: int = 0
    queues: Collection[int] | None = None
    commits: bool = True
    waits: bool = True


class Received(NamedTuple):
    """A message as it came. size: bytes of its record."""

    queue: MessageQueue
    size: int
    message: Message


class _Queue:
    """A queue that is consumed."""

    __slots__ = (
        "asked_ms",
        "at_ms",
        "broker_id",
        "committed",
        "is_asked",
        "is_at_end",
        "is_instead",
        "is_told",
        "offset",
        "offset_addr",
        "tells_again",
        "waiting",
    )

    def __init__(self) -> None:
        self.offset: int | None = None  # of the next pull; None until it is known
        self.broker_id = MASTER_ID  # HA-R-23 "the suggested id for each queue"
        self.at_ms = 0  # when to ask next
        self.asked_ms = 0  # when it was asked last
        self.is_asked = False
        self.is_instead = False  # another broker was asked than the one that has failed
        self.is_at_end = False  # the last answer left no message behind it
        # Offset and size of messages that are not consumed, as they came: their offsets go back where the queue's have (21).
        self.waiting: deque[tuple[int, int]] = deque()
        self.committed: int | None = None  # the offset that was told last
        self.tells_again = False  # HA-C-19: `committed` was sent once
        self.is_told = False  # this consumer has committed an offset of it
        self.offset_addr = ""  # of the broker that told it, or was told it

    @property
    def commit_offset(self) -> int | None:
        """HA-C-14 "MUST NOT commit an offset in front of which a message is still to be consumed"."""
        return self.offset if self.offset is None else min((self.offset, *(offset for offset, _ in self.waiting)))


class PullConsumer:
    """Pulls, and hands over the messages of each answer by `on_messages`, in the order of each queue."""

    def __init__(
        self, client: Asks, routes: Routes, settings: ConsumerSettings, on_messages: Callable[[list[Received]], object]
    ) -> None:
        self._client, self._routes, self._settings, self._on_messages = client, routes, settings, on_messages
        self._tags = tags_of(settings.expression)
        self._queues: dict[MessageQueue, _Queue] = {}
        self._route: TopicRoute | None = None
        self._now_ms = 0
        self._commit_at_ms: int | None = None
        self._waiting = self._waiting_size = 0
        self._failed: dict[str, int] = {}  # HA-C-18: addresses without an answer, until when another is asked, in ms
        self.error: NoRoute | None = None  # there was no route at the start
        self.commits_in_flight = 0
        self.is_paused = False  # set by the owner: nothing is pulled
        self.is_ending = False  # set by the owner: what fails from now on is not worth a word

    @property
    def is_at_end(self) -> bool:
        """Whether the last answer for each queue had no message behind it, and all messages are consumed."""
        return bool(self._queues) and self._waiting == 0 and all(queue.is_at_end for queue in self._queues.values())

    @property
    def offsets(self) -> dict[MessageQueue, int]:
        """The offset at which each queue goes on, where it is known."""
        return {mq: queue.offset for mq, queue in self._queues.items() if queue.offset is not None}

    def start(self, now_ms: int) -> None:
        """Ask for the route. Where there is none, `error` says so."""
        self._now_ms = now_ms

        def on_route(route: TopicRoute | NoRoute) -> None:
            topic, wanted = self._settings.topic, frozenset(self._settings.queues or ())
            if isinstance(route, NoRoute):
                self.error = route
            elif missing := wanted.difference(mq.queue_id for mq in subscribe_queues(topic, route)):
                numbers = ", ".join(map(str, sorted(missing)))
                self.error = NoRoute(topic, f"no queue {numbers}", "a queue that may be read")

        self._routes.find(self._settings.topic, on_route, now_ms)

    def turn(self, now_ms: int) -> None:
        """Ask where it is time."""
        self._now_ms = now_ms
        self._routes.turn(now_ms)
        self._take_route()
        for mq, queue in self._queues.items():
            if queue.is_asked or now_ms < queue.at_ms:
                continue
            if queue.offset is None:
                self._ask_offset(mq, queue)
            elif not (self.is_paused or self._is_full):
                self._pull(mq, queue, queue.offset)
        if self._commit_at_ms is None:
            self._commit_at_ms = now_ms + PERSIST_CONSUMER_OFFSET_INTERVAL_MS
        elif now_ms >= self._commit_at_ms:
            self._commit_at_ms = now_ms + PERSIST_CONSUMER_OFFSET_INTERVAL_MS
            self.commit()

    @property
    def _is_full(self) -> bool:
        """HA-C-15 "and the messages that are received and not consumed"."""
        return self._waiting >= MAX_WAITING or self._waiting_size >= MAX_WAITING_SIZE

    def _take_route(self) -> None:
        """Begin the queues that are new in the route, and end those that are gone."""
        route = self._routes.get(self._settings.topic)
        if route is None or route is self._route:
            return
        self._route = route
        wanted = self._settings.queues
        queues = [mq for mq in subscribe_queues(self._settings.topic, route) if wanted is None or mq.queue_id in wanted]
        for mq in queues:
            self._queues.setdefault(mq, _Queue())
        for mq in self._queues.keys() - set(queues):
            for _, size in self._queues.pop(mq).waiting:
                self._waiting -= 1
                self._waiting_size -= size

    # --- Where a queue begins ----------------------------------------------------------------------------------------

    def _ask_offset(self, mq: MessageQueue, queue: _Queue) -> None:
        if self._settings.commits:
            ext_fields = {"consumerGroup": self._settings.group, "topic": mq.topic, "queueId": str(mq.queue_id)}
            self._ask(mq, queue, request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields), self._on_committed)
        else:
            self._begin(mq, queue, None)

    def _ask(
        self,
        mq: MessageQueue,
        queue: _Queue,
        command: RemotingCommand,
        on_answer: Callable[[MessageQueue, _Queue, RemotingCommand | RequestFailed], object],
    ) -> None:
        """Ask the broker of the group that knows the offsets."""
        address = commit_broker(self._addrs(mq))
        if address is None:
            queue.at_ms = self._now_ms + PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION
            return
        queue.is_asked, queue.offset_addr = True, address
        self._invoke(address, command, OFFSET_TIMEOUT_MS, partial(on_answer, mq, queue))

    def _on_committed(self, mq: MessageQueue, queue: _Queue, answer: RemotingCommand | RequestFailed) -> None:
        if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.QUERY_NOT_FOUND:
            queue.is_asked = False
            self._begin(mq, queue, None)
            return
        self._on_offset(mq, queue, answer)
        if queue.offset is not None:
            queue.committed = queue.offset

    def _begin(self, mq: MessageQueue, queue: _Queue, committed: int | None) -> None:
        found = pull_from_where(mq.topic, committed, self._settings.start)
        if not isinstance(found, RequestCode):
            queue.offset = found
            return
        ext_fields = {"topic": mq.topic, "queueId": str(mq.queue_id)}
        if found == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            ext_fields["timestamp"] = str(self._settings.timestamp)
        self._ask(mq, queue, request(found, ext_fields), self._on_offset)

    def _on_offset(self, mq: MessageQueue, queue: _Queue, answer: RemotingCommand | RequestFailed) -> None:
        """The answer is the offset where the queue begins."""
        queue.is_asked = False
        why: object = answer
        if isinstance(answer, RemotingCommand):
            if answer.code == ResponseCode.SUCCESS:
                try:
                    queue.offset = max(0, fields.i64(answer, "offset"))
                except RequestInvalid as error:
                    why = error
                else:
                    return
            else:
                why = f"answer {response_name(answer.code)}: {answer.remark}"
        self._on_failure(mq, queue, why)

    # --- Pulls -------------------------------------------------------------------------------------------------------

    def _failed_now(self) -> Collection[str]:
        self._failed = {address: until for address, until in self._failed.items() if self._now_ms < until}
        return self._failed.keys()

    def _pull(self, mq: MessageQueue, queue: _Queue, offset: int) -> None:
        addrs = self._addrs(mq)
        broker = find_broker_address_in_subscribe(addrs, queue.broker_id, self._failed_now())
        if broker is None:
            queue.at_ms = self._now_ms + PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION
            self._routes.broker_failed(mq.topic, self._now_ms)
            return
        waits = self._settings.waits
        suspend_ms = BROKER_SUSPEND_MAX_TIME_MILLIS if waits else 0
        ext_fields = {
            "consumerGroup": self._settings.group,
            "topic": mq.topic,
            "queueId": str(mq.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(MAX_MSG_NUMS),
            "sysFlag": str(_SUBSCRIPTION | (_SUSPEND if waits else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(suspend_ms),
            "subscription": self._settings.expression,
            "subVersion": "0",
            "expressionType": "TAG",
        }
        queue.is_asked, queue.asked_ms = True, self._now_ms
        command = request(RequestCode.PULL_MESSAGE, ext_fields)
        timeout_ms = CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND
        queue.is_instead = broker != find_broker_address_in_subscribe(addrs, queue.broker_id)
        self._invoke(broker.address, command, timeout_ms, partial(self._on_pulled, mq, queue, offset, broker.address))

    def _on_pulled(
        self, mq: MessageQueue, queue: _Queue, offset: int, address: str, answer: RemotingCommand | RequestFailed
    ) -> None:
        queue.is_asked = False
        if isinstance(answer, RequestFailed):
            self._failed[address] = self._now_ms + AVOIDED_MS
        if self._queues.get(mq) is not queue:  # the route has lost it
            return
        looked: PullAnswer | None = None
        received: list[Received] = []
        why = str(answer)
        if isinstance(answer, RemotingCommand):
            if has_looked(answer.code):
                try:
                    looked, received = self._read(mq, answer)
                except (RequestInvalid, MessageMalformed) as error:
                    why = str(error)
            else:
                why = f"answer {response_name(answer.code)}: {answer.remark}"
        if looked is not None and leads_back(offset, looked, is_instead=queue.is_instead):
            why = f"{address}, asked in place of another: leads back to {looked.next_begin_offset}, expected {offset} or more"
            looked = None
        has_other = isinstance(answer, RequestFailed) and bool(set(self._addrs(mq).values()).difference(self._failed_now()))
        found = next_pull(offset, queue.broker_id, looked, self._now_ms - queue.asked_ms, has_other=has_other)
        if looked is None:
            self._on_failure(mq, queue, why, found.delay_ms)
            return
        queue.offset, queue.broker_id = found.offset, found.broker_id
        queue.at_ms = self._now_ms + found.delay_ms
        queue.waiting.extend((each.message.queue_offset, each.size) for each in received)
        self._waiting += len(received)
        self._waiting_size += sum(each.size for each in received)
        if received:
            self._on_messages(received)

    def _read(self, mq: MessageQueue, answer: RemotingCommand) -> tuple[PullAnswer, list[Received]]:
        """The fields and the messages of an answer. Raises: RequestInvalid, MessageMalformed."""
        next_begin_offset = fields.i64(answer, "nextBeginOffset")
        if next_begin_offset < 0:
            raise RequestInvalid("field nextBeginOffset", next_begin_offset, "0 or more")
        broker_id = fields.i64(answer, "suggestWhichBrokerId")
        max_offset = fields.i64(answer, "maxOffset")
        received: list[Received] = []
        at, body, last = 0, answer.body, -1
        has_messages = answer.code == ResponseCode.SUCCESS and bool(body)
        while has_messages and at < len(body):
            size, _ = read_header(body, at)
            message = decode(body, at)
            if message.queue_offset <= last:
                raise MessageMalformed("queue offset", message.queue_offset, f"more than {last}")
            last = message.queue_offset
            at += size
            if is_wanted(self._tags, message.properties.get("TAGS") if self._tags else None):
                received.append(Received(mq, size, message))
        self._queues[mq].is_at_end = next_begin_offset >= max_offset
        return PullAnswer(answer.code, next_begin_offset, broker_id, has_messages), received

    def _on_failure(
        self, mq: MessageQueue, queue: _Queue, why: object, delay_ms: int = PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION
    ) -> None:
        queue.at_ms = self._now_ms + delay_ms
        queue.is_at_end = False
        if self.is_ending:
            return
        shown = "".join(each if each.isprintable() else " " for each in str(why)[:300])
        again = f"again in {delay_ms} ms" if delay_ms else "another broker of the group is asked"
        log.warning("%s %s queue %d: %s; %s", mq.broker_name, mq.topic, mq.queue_id, shown, again)
        self._routes.broker_failed(mq.topic, self._now_ms)

    # --- Offsets -----------------------------------------------------------------------------------------------------

    def consumed(self, mq: MessageQueue, queue_offset: int) -> None:
        """The messages of a queue are consumed, in the order in which they came, up to the first one of this offset."""
        queue = self._queues.get(mq)
        while queue is not None and queue.waiting and queue.waiting[0][0] <= queue_offset:
            offset, size = queue.waiting.popleft()
            self._waiting -= 1
            self._waiting_size -= size
            if offset == queue_offset:  # behind it may be others with lesser offsets
                return

    def commit(self) -> None:
        """Tell the brokers what is consumed. HA-C-14 "SHOULD send what it has consumed (15) every 5 s".

        HA-C-19 "MUST send it a second time 5 s later". After that it is told to another broker alone: to the slave when the
        master is gone, and to the master when it is back.
        """
        for address, mq, offset in self._to_commit():
            try:
                self._client.send(address, self._commit_request(mq, offset, oneway=True))
            except ConfigInvalid as error:
                log.warning("%s: %s", mq.broker_name, error)

    def commit_last(self) -> None:
        """Commit what is consumed, and what was committed before, too; `commits_in_flight` counts what has no answer yet.

        HA-C-17 "MUST send all that it has committed, ask for answers, and wait for each before it sends the next offset".
        """
        lanes: dict[str, deque[tuple[MessageQueue, int]]] = {}
        for address, mq, offset in self._to_commit(is_last=True):
            lanes.setdefault(address, deque()).append((mq, offset))
            self.commits_in_flight += 1
        for address, lane in lanes.items():
            self._commit_next(address, lane)

    def _to_commit(self, *, is_last: bool = False) -> Iterator[tuple[str, MessageQueue, int]]:
        """Yield the broker's address, the queue and the offset of each commit that is due."""
        if not self._settings.commits:
            return
        for mq, queue in self._queues.items():
            offset = queue.commit_offset
            address = commit_broker(self._addrs(mq))
            if offset is None or address is None:
                continue
            is_same = (offset, address) == (queue.committed, queue.offset_addr)
            if is_same and not queue.tells_again and not (is_last and queue.is_told):
                continue
            queue.tells_again = not is_same
            queue.committed, queue.offset_addr, queue.is_told = offset, address, True
            yield address, mq, offset

    def _commit_request(self, mq: MessageQueue, offset: int, *, oneway: bool = False) -> RemotingCommand:
        ext_fields = {
            "consumerGroup": self._settings.group,
            "topic": mq.topic,
            "queueId": str(mq.queue_id),
            "commitOffset": str(offset),
        }
        return request(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields, oneway=oneway)

    def _commit_next(self, address: str, lane: deque[tuple[MessageQueue, int]]) -> None:
        if not lane:
            return
        mq, offset = lane.popleft()

        def on_answer(answer: RemotingCommand | RequestFailed) -> None:
            self._on_commit(mq, offset, answer)
            if isinstance(answer, RequestFailed):  # each of the others would take as long to fail
                while lane:
                    self._on_commit(*lane.popleft(), answer)
            self._commit_next(address, lane)

        self._invoke(address, self._commit_request(mq, offset), OFFSET_TIMEOUT_MS, on_answer)

    def _on_commit(self, mq: MessageQueue, offset: int, answer: RemotingCommand | RequestFailed) -> None:
        self.commits_in_flight -= 1
        if isinstance(answer, RequestFailed) or answer.code != ResponseCode.SUCCESS:
            why = str(answer) if isinstance(answer, RequestFailed) else f"answer {response_name(answer.code)}: {answer.remark}"
            log.warning("%s %s queue %d: offset %d not committed: %s", mq.broker_name, mq.topic, mq.queue_id, offset, why)

    def _addrs(self, mq: MessageQueue) -> dict[int, str]:
        return {} if self._route is None else self._route.addrs(mq.broker_name)

    def _invoke(
        self,
        address: str,
        command: RemotingCommand,
        timeout_ms: int,
        on_answer: Callable[[RemotingCommand | RequestFailed], object],
    ) -> None:
        try:
            self._client.invoke(address, command, self._now_ms + timeout_ms, on_answer)
        except ConfigInvalid as error:  # the route has an address that is none
            on_answer(RequestFailed(address, command.code, str(error)))
