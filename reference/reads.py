"""A broker that consumers read from: `step(reads, event, setup)`.

Chapter 14 as a whole: a pull is checked and read (pull.py), or parked (pull_hold.py); messages, time and closed connections end
a hold. After every event the broker looks at the pulls that it holds.
"""

from typing import Final, assert_never

from rocketmq_ha.reference import consume_queue, pull, pull_hold
from rocketmq_ha.reference import read_events as events
from rocketmq_ha.reference.consume_queue import Entry, is_filler
from rocketmq_ha.reference.java_string import hash_code
from rocketmq_ha.reference.pull import Answer, LogRange, PullRequest, Queue, Status
from rocketmq_ha.reference.pull_hold import Hold, Parked
from rocketmq_ha.reference.reads_state import (
    GROUP,
    SYSTEM_BUSY,
    TOPIC,
    PullState,
    Reads,
    ReadsSetup,
    answered,
    as_read,
    hold_state,
)
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition, unique
from rocketmq_ha.spec.profile import HARDENED
from rocketmq_ha.spec.role import BrokerRole

LOOKED: Final = (Status.FOUND, Status.NO_MATCHED_MESSAGE, Status.MESSAGE_WAS_REMOVING)


def step(reads: Reads, event: events.Event, setup: ReadsSetup) -> tuple[Reads, tuple[Transition, ...]]:
    """One event, and everything that it sets in motion."""
    work = _Work(reads, setup)
    match event:
        case events.Dispatch():
            work.dispatch(event.messages)
        case events.Pull():
            work.pull(event)
        case events.Tick():
            work.now = replace(work.now, now_ms=work.now.now_ms + event.ms)
        case events.CloseChannel():
            work.drop("close", pull_hold.on_close(work.now.hold, event.channel))
        case events.Expire():
            work.expire(event.files, event.queues)
        case events.SetTopic():
            topic = pull.Topic(event.perm, event.read_queue_nums)
            work.set(topics={TOPIC: topic} if event.exists else {})
        case events.SetGroup():
            group = pull.Group(
                event.consume_enable,
                event.consume_broadcast_enable,
                event.broker_id,
                event.which_broker_when_consume_slowly,
            )
            work.set(groups={GROUP: group} if event.exists else {})
        case events.SetConsumers():
            work.heartbeat(event)
        case events.MasterLink():
            work.set(is_connected_to_master=event.is_connected)
        case events.Restart():
            work.drop("shutdown", pull_hold.on_shutdown(work.now.hold)[0])
        case _:
            assert_never(event)
    work.look("tick")
    return work.now, tuple(work.transitions)


class _Work:
    """The state of one step while it is being made. Nothing of it outlives the step."""

    def __init__(self, before: Reads, setup: ReadsSetup) -> None:
        self.now = replace(before, answers=(), committed=())
        self.setup, self.settings = setup, setup.hold
        self.transitions: list[Transition] = []

    def set(self, **changes: object) -> None:
        self.now = replace(self.now, broker=replace(self.now.broker, **changes))  # type: ignore[arg-type]

    # --- Events ----------------------------------------------------------------------------------------------------------

    def dispatch(self, messages: tuple[events.Message, ...]) -> None:
        """Messages reach their queues, and all of a round are there before a pull is looked at again."""
        woken: list[int] = []
        for message in messages:
            key = TOPIC, message.queue_id
            at, code = self.place(message), hash_code(message.tag) + (message.high << 32)
            file = self.now.files[message.queue_id]
            number = consume_queue.max_offset_in_queue(file) + message.skipped
            put, _ = consume_queue.put_message_position_info(file, Entry(at, message.size, code), number, HARDENED)
            files = (*self.now.files[: message.queue_id], put, *self.now.files[message.queue_id + 1 :])
            self.now = replace(self.now, files=files, sizes=(*self.now.sizes, (at, message.size)))
            self.set(
                queues={**self.now.broker.queues, key: as_read(put, self.now.broker.queues.get(key, Queue()))},
                log=LogRange(self.now.broker.log.min_offset, at + message.size),
            )
            max_offset = consume_queue.max_offset_in_queue(put)
            before = self.now.hold
            hold, found = pull_hold.on_dispatch(before, TOPIC, message.queue_id, max_offset, code, self.settings)
            self.take("dispatch", before, hold)
            woken += found.poll_ids
        self.wake("dispatch", woken)

    def place(self, message: events.Message) -> int:
        """Where a message stands in the log: no record crosses the end of a file."""
        at, size = self.now.broker.log.max_offset + message.gap, self.setup.log_file_size
        return at if at // size == (at + message.size - 1) // size else at - at % size + size

    def pull(self, event: events.Pull) -> None:
        broker, number = self.now.broker, self.now.polls
        queue = broker.queues.get((TOPIC, event.queue_id), Queue())
        request = PullRequest(
            GROUP,
            TOPIC,
            event.queue_id,
            {"zero": 0, "min": queue.min_offset, "max": queue.max_offset}[event.at] + event.more,
            event.max_msg_nums,
            event.sys_flag,
            event.commit_offset,
            event.suspend_timeout_millis,
            event.sub_version,
            event.subscription,
            event.expression_type,
        )
        self.now = replace(self.now, polls=number + 1)
        answer = pull.process_request(broker, request)
        clauses: tuple[str, ...] = ("HA-P-1", "HA-P-2") if event.lite else ("HA-P-2",)
        if answer.commits is not None:
            self.now = replace(self.now, committed=(*self.now.committed, answer.commits))
        if answer.commits is not None or (event.sys_flag & pull.COMMIT_OFFSET and self.setup.is_slave):
            clauses += ("HA-P-15",)
        if answer.is_parked:
            self.park(number, event.channel, request, answer, clauses)
        else:
            self.answer(number, PullState.ARRIVED, "pull", request, answer, clauses)

    def park(self, number: int, channel: int, request: PullRequest, answer: Answer, clauses: tuple[str, ...]) -> None:
        checked = pull.check(self.now.broker, request)
        assert not isinstance(checked, Answer)
        before, now_ms = self.now.hold, self.now.now_ms
        poll = Parked(
            *(number, channel, TOPIC, request.queue_id, request.queue_offset),
            *(checked[1], now_ms, request.suspend_timeout_millis),
        )
        hold, refused = pull_hold.on_park(before, poll, self.settings)
        clauses += ("HA-P-16", "HA-R-29", *(("HA-R-57",) if answer.code != pull.PULL_NOT_FOUND else ()))
        if refused is not None:
            state = hold_state(before, self.setup).value
            self.row("hold", 0, "refuse", state, state, ("HA-P-22",))
            self.answer(number, PullState.ARRIVED, "pull", request, Answer(SYSTEM_BUSY), (*clauses, "HA-P-22"))
            return
        self.take("park", before, hold)
        self.now = replace(self.now, requests=(*self.now.requests, (number, request)))
        self.row("pull", number, "pull", PullState.ARRIVED.value, PullState.PARKED.value, clauses, request.queue_offset)

    def expire(self, files: int, queues: bool) -> None:
        """HA-ST-71 "MUST be deleted when all its messages have been deleted", in the queues too, but perhaps later."""
        log, size = self.now.broker.log, self.setup.log_file_size
        first = min(log.min_offset + files * size, log.max_offset - log.max_offset % size)
        self.set(log=LogRange(max(log.min_offset, first), log.max_offset))
        if queues:
            min_offset = self.now.broker.log.min_offset
            left = tuple(consume_queue.delete_expired_file(file, min_offset, HARDENED) for file in self.now.files)
            self.now = replace(self.now, files=left)
            found = self.now.broker.queues.items()
            self.set(queues={key: as_read(left[key[1]], queue) for key, queue in found})

    def heartbeat(self, event: events.SetConsumers) -> None:
        codes = frozenset(map(hash_code, pull.tags(event.sub_string) or ()))
        subscription = pull.Subscription(
            event.sub_string, codes, event.sub_version, event.expression_type, event.class_filter_mode
        )
        told = {TOPIC: subscription} if event.has_subscribed else {}
        consumers = pull.Consumers(event.is_broadcasting, told)
        self.set(consumers={GROUP: consumers} if event.connected else {})

    def look(self, event: str) -> None:
        """What every turn of the broker does: HA-P-18 "at each that has been parked for its `suspendTimeoutMillis`"."""
        max_offsets = {key: queue.max_offset for key, queue in self.now.broker.queues.items()}
        before = self.now.hold
        hold, woken = pull_hold.on_tick(before, self.now.now_ms, max_offsets, self.settings)
        self.take(event, before, hold)
        self.wake(event, list(woken.poll_ids))

    def drop(self, event: str, hold: Hold) -> None:
        """HA-P-20 "its parked pulls SHOULD be dropped without an answer", "MUST NOT answer the pulls that it has parked"."""
        before = self.now.hold
        left = {poll.poll_id for poll in hold.parked}
        for number, request in self.now.requests:
            if number not in left:
                states = PullState.PARKED.value, PullState.DROPPED.value
                self.row("pull", number, event, *states, ("HA-P-20",), request.queue_offset)
        self.now = replace(self.now, requests=tuple(each for each in self.now.requests if each[0] in left))
        self.take(event, before, hold)

    # --- What the events share -------------------------------------------------------------------------------------------

    def wake(self, event: str, numbers: list[int]) -> None:
        """HA-P-19 "MUST be answered, as if it had neither bit 1 nor bit 2; all checks are made again"."""
        requests = dict(self.now.requests)
        why = "HA-P-21" if not self.setup.long_polling_enable else "HA-P-17" if event == "dispatch" else "HA-P-18"
        for number in numbers:
            answer = pull.process_request(self.now.broker, requests[number], broker_allow_suspend=False)
            self.answer(number, PullState.PARKED, event, requests[number], answer, (why, "HA-P-19"))
        self.now = replace(self.now, requests=tuple(each for each in self.now.requests if each[0] not in numbers))

    def answer(
        self, number: int, before: PullState, event: str, request: PullRequest, answer: Answer, clauses: tuple[str, ...]
    ) -> None:
        self.now = replace(self.now, answers=(*self.now.answers, (number, answer)))
        exercised = unique((*clauses, *self.clauses_of(request, answer)))
        self.row("pull", number, event, before.value, answered(answer).value, exercised, request.queue_offset)

    def take(self, event: str, before: Hold, hold: Hold) -> None:
        """Take a hold, and note how full it is."""
        self.now = replace(self.now, hold=hold)
        states = hold_state(before, self.setup), hold_state(hold, self.setup)
        if states[0] is not states[1]:
            self.row("hold", 0, event, states[0].value, states[1].value, ("HA-P-20",) if event in ("close", "shutdown") else ())

    def row(
        self, actor: str, number: int, event: str, before: str, after: str, clauses: tuple[str, ...], offset: int = -1
    ) -> None:
        self.transitions.append(Transition(actor, number, event, before, after, offset, 0, -1, 0, clauses))

    def clauses_of(self, request: PullRequest, answer: Answer) -> tuple[str, ...]:
        """The clauses that say what an answer is."""
        if answer.code == SYSTEM_BUSY:
            return ()
        if answer.status is None:
            of_code = {pull.SUBSCRIPTION_PARSE_FAILED: "HA-P-4"}
            if request.max_msg_nums < 0:
                of_code[pull.SYSTEM_ERROR] = "HA-P-13"
            elif 0 <= request.queue_id < self.setup.queues:
                of_code[pull.SYSTEM_ERROR] = "HA-P-6"
            special = of_code.get(answer.code)
            return ("HA-P-3", "HA-R-30", *((special,) if special else ()))
        found = ["HA-P-7", "HA-P-14", "HA-R-26", "HA-R-20"]
        found.append("HA-R-24" if self.setup.slave_read_enable else "HA-R-22")
        if self.setup.role is BrokerRole.SLAVE:
            found.append("HA-R-6")
            if not self.setup.offset_check_in_slave and answer.status not in LOOKED:
                found.append("HA-R-31")
        if answer.status in LOOKED:
            found += self.clauses_of_reading(request, answer)
        return tuple(found)

    def clauses_of_reading(self, request: PullRequest, answer: Answer) -> list[str]:
        """Of a pull that has looked at entries."""
        broker, found = self.now.broker, ["HA-P-5", "HA-P-8", "HA-ST-37"]
        if self.setup.slave_read_enable:
            found.append("HA-R-21")
        if request.sys_flag & pull.SUBSCRIPTION:
            found.append("HA-P-4")
        queue, until = broker.queues[TOPIC, request.queue_id], answer.next_begin_offset or 0
        if until < min(queue.max_offset, request.queue_offset - request.queue_offset % queue.file_entries + queue.file_entries):
            found.append("HA-P-9")
        looked = queue.entries[request.queue_offset - queue.first : until - queue.first]
        if any(map(is_filler, looked)):
            found.append("HA-P-12")
        if any(not is_filler(entry) and broker.log.max_offset - entry.offset > broker.bounds.memory for entry in looked):
            found.append("HA-P-10")
        if answer.status is Status.MESSAGE_WAS_REMOVING:
            found.append("HA-P-11")
        return found


# --- Invariants --------------------------------------------------------------------------------------------------------


def broken(reads: Reads, setup: ReadsSetup) -> tuple[str, ...]:
    """Names of the invariants that do not hold: the bounds of the hold, and that nobody is held too long."""
    parked, settings = reads.hold.parked, setup.hold
    names = []
    channels = {poll.channel for poll in parked}
    most = max((sum(poll.channel == channel for poll in parked) for channel in channels), default=0)
    if len(parked) > settings.max_parked or most > settings.max_parked_of_connection:
        names.append("hold_is_bounded")
    if any(reads.now_ms >= poll.suspend_timestamp + poll.timeout_millis + settings.interval_ms for poll in parked):
        names.append("nobody_is_held_too_long")
    if {poll.poll_id for poll in parked} != {number for number, _ in reads.requests}:
        names.append("every_parked_pull_has_its_request")
    return tuple(names)
