"""Both sides of the world of reads: the model, and the broker's processor of pulls over real consume queues.

The log is played (pull_stand.py): a record's bytes say where it stands, so an answer's body tells which records it has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from rocketmq_ha.fuzz.worlds import pull_stand
from rocketmq_ha.fuzz.worlds.pull_stand import PlayedChannel, PlayedLog, PlayedStore, PullStand, body_of, bytes_of
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.java_hash import java_hash
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.reference import read_events as events
from rocketmq_ha.reference import reads
from rocketmq_ha.reference.pull import Answer
from rocketmq_ha.reference.reads_state import GROUP, TOPIC, Reads, ReadsSetup, new_reads
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.role import BrokerRole

CHANNELS: Final = 3
LITE_PULL_MESSAGE: Final = 361
BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java's trim drops
NONE: Final = -1  # a field that an answer does not have


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """The answer to a pull. records: its body."""

    poll: int
    code: int
    outcome: str  # of an answer that looked into the queue
    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: bytes


@dataclass(frozen=True, slots=True)
class ReadsObservation:
    """The observation of a broker."""

    queues: tuple[tuple[int, int], ...]  # min and max offset of each
    parked: tuple[int, ...]  # poll ids
    next_check_at: int  # ms; NONE where nothing is parked
    committed: tuple[int, ...]  # offsets, in this step
    answers: tuple[ObservedAnswer, ...]  # of this step, by poll id


class ReferenceReads:
    """The model."""

    def __init__(self, setup: ReadsSetup, now_ms: int) -> None:
        self.setup = setup
        self.reads: Reads = new_reads(setup, now_ms)

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.reads, transitions = reads.step(self.reads, event, self.setup)
        return transitions

    def broken(self) -> tuple[str, ...]:
        return reads.broken(self.reads, self.setup)

    def observe(self) -> ReadsObservation:
        now = self.reads
        found = [now.broker.queues.get((TOPIC, number)) for number in range(self.setup.queues)]
        sizes = dict(now.sizes)
        return ReadsObservation(
            tuple((queue.min_offset, queue.max_offset) if queue else (0, 0) for queue in found),
            tuple(sorted(poll.poll_id for poll in now.hold.parked)),
            NONE if now.hold.next_check_at is None else now.hold.next_check_at,
            now.committed,
            tuple(_of_model(poll, answer, sizes) for poll, answer in sorted(now.answers, key=lambda each: each[0])),
        )


def _of_model(poll: int, answer: Answer, sizes: dict[int, int]) -> ObservedAnswer:
    fields = (answer.suggest_which_broker_id, answer.next_begin_offset, answer.min_offset, answer.max_offset)
    suggested, next_begin, least, most = (NONE if value is None else value for value in fields)
    records = b"".join(bytes_of(offset, sizes[offset]) for offset in answer.records)
    outcome = answer.status.value if answer.status else ""
    return ObservedAnswer(poll, answer.code, outcome, suggested, next_begin, least, most, records)


class ImplementationReads:
    """The implementation with its queues in `directory`. The caller must close it."""

    def __init__(self, setup: ReadsSetup, now_ms: int, directory: Path) -> None:
        self._setup, self._now_ms, self._directory = setup, now_ms, directory
        self._log = PlayedLog(0, 0, setup.log_file_size)
        self._store = PlayedStore(self._log)
        self._queues: list[ConsumeQueue] = []
        for number in range(setup.queues):
            self._queues.append(pull_stand.open_queue(directory / f"queue-{number}", setup.file_entries))
        self._polls = 0
        self._stand = self._start()
        self._stand.topics = {TOPIC: pull_stand.topic(read_queue_nums=setup.queues)}
        self._stand.groups = {GROUP: pull_stand.group()}
        self._channels = [PlayedChannel(f"127.0.0.1:{number}") for number in range(CHANNELS)]

    def _start(self) -> PullStand:
        setup = self._setup
        role = BrokerRole.SLAVE if setup.is_slave else BrokerRole.ASYNC_MASTER
        return PullStand(
            self._store,
            PullSettings(setup.permission, role, setup.slave_read_enable, setup.offset_check_in_slave),
            HoldSettings(
                setup.long_polling_enable,
                setup.short_polling_time_mills,
                setup.max_parked,
                setup.max_parked_of_connection,
                setup.max_parked_tags,
            ),
            PullBounds(
                setup.memory, setup.messages_in_memory, setup.bytes_in_memory, setup.messages_on_disk, setup.bytes_on_disk
            ),
        )

    def close(self) -> None:
        for queue in self._queues:
            queue.close()

    def apply(self, event: events.Event) -> None:
        """Apply one event; then the broker's loop has a turn."""
        stand = self._stand
        stand.committed.clear()
        for channel in self._channels:
            channel.answers.clear()
        match event:
            case events.Dispatch():
                self._dispatch(event.messages)
            case events.Pull():
                self._pull(event)
            case events.Tick():
                self._now_ms += event.ms
            case events.CloseChannel():
                self._close_channel(event.channel)
            case events.Expire():
                self._expire(event.files, event.queues)
            case events.SetTopic():
                stand.topics = {TOPIC: pull_stand.topic(event.perm, event.read_queue_nums)} if event.exists else {}
            case events.SetGroup():
                stand.groups = {GROUP: _group(event)} if event.exists else {}
            case events.SetConsumers():
                self._heartbeat(event)
            case events.MasterLink():
                stand.is_connected_to_master = event.is_connected
            case events.Restart():
                self._restart()
            case _:
                assert_never(event)
        self._stand.processor.turn(self._now_ms)

    def _dispatch(self, messages: tuple[events.Message, ...]) -> None:
        log = self._log
        keys = []
        for message in messages:
            at, size = log.max_offset + message.gap, log.file_size
            if at % size + message.size > size:
                at = (at // size + 1) * size
            key, queue = (TOPIC.encode(), message.queue_id), self._queues[message.queue_id]
            self._store.found[key] = queue  # a queue is made by its first message
            queue.put(at, message.size, java_hash(message.tag) + message.high * (1 << 32), queue.max_offset + message.skipped)
            log.max_offset = at + message.size
            keys.append(key)
        self._stand.arrivals.on_dispatched(dict.fromkeys(keys).keys())

    def _pull(self, event: events.Pull) -> None:
        queue = self._store.found.get((TOPIC.encode(), event.queue_id))
        ends = {"zero": 0, "min": queue.min_offset if queue else 0, "max": queue.max_offset if queue else 0}
        fields: dict[str, object] = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": event.queue_id,
            "queueOffset": ends[event.at] + event.more,
            "maxMsgNums": event.max_msg_nums,
            "sysFlag": event.sys_flag,
            "commitOffset": event.commit_offset,
            "suspendTimeoutMillis": event.suspend_timeout_millis,
            "subVersion": event.sub_version,
            "subscription": event.subscription,
            "expressionType": event.expression_type,
        }
        code = LITE_PULL_MESSAGE if event.lite else pull_stand.PULL_MESSAGE
        request = pull_stand.pull_request(code, self._polls, **fields)
        channel = self._channels[event.channel]
        self._polls += 1
        answer = self._stand.processor.pull_message(channel, request, self._now_ms)
        if answer is not None:
            channel.answer(answer)

    def _close_channel(self, number: int) -> None:
        channel = self._channels[number]
        channel.is_open = False
        self._stand.processor.on_close(channel)
        self._channels[number] = PlayedChannel(channel.peer)

    def _expire(self, files: int, queues: bool) -> None:
        log, size = self._log, self._log.file_size
        log.min_offset = max(log.min_offset, min(log.min_offset + files * size, log.max_offset // size * size))
        for queue in self._store.found.values() if queues else ():
            queue.delete_expired(log.min_offset)

    def _heartbeat(self, event: events.SetConsumers) -> None:
        stand, tags = self._stand, [part.strip(BLANKS) for part in event.sub_string.split("||")]
        # A consumer drops empty tags: a message without a tag is of none of them (HA-P-4).
        codes = frozenset(java_hash(tag) for tag in tags if tag) if event.sub_string != "*" else frozenset()
        told = pull_stand.subscription(
            sub_string=event.sub_string,
            code_set=codes,
            sub_version=event.sub_version,
            expression_type=event.expression_type,
            class_filter_mode=event.class_filter_mode,
        )
        stand.models = {GROUP: "BROADCASTING" if event.is_broadcasting else "CLUSTERING"} if event.connected else {}
        stand.subscriptions = {(GROUP, TOPIC): told} if event.connected and event.has_subscribed else {}

    def _restart(self) -> None:
        before = self._stand
        before.processor.shutdown()
        self._stand = self._start()
        for name in ("topics", "groups", "models", "subscriptions", "is_connected_to_master"):
            setattr(self._stand, name, getattr(before, name))

    # --- Observation ---------------------------------------------------------------------------------------------------

    def observe(self) -> ReadsObservation:
        hold = self._stand.hold
        found = (self._store.found.get((TOPIC.encode(), number)) for number in range(self._setup.queues))
        answers = [_of_implementation(answer) for channel in self._channels for answer in channel.answers]
        return ReadsObservation(
            tuple((queue.min_offset, queue.max_offset) if queue else (0, 0) for queue in found),
            tuple(sorted(_opaque(held.request) for held in hold)),
            NONE if hold.next_check_at_ms is None else hold.next_check_at_ms,
            tuple(row[4] for row in self._stand.committed),
            tuple(sorted(answers, key=lambda answer: answer.poll)),
        )


def _opaque(request: Any) -> int:
    """The opaque of a parked pull, which is its poll id."""
    command: RemotingCommand = request.command
    return command.opaque


def _of_implementation(answer: RemotingCommand) -> ObservedAnswer:
    fields = answer.ext_fields
    if not fields:
        return ObservedAnswer(answer.opaque, answer.code, "", NONE, NONE, NONE, NONE, body_of(answer))
    names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    suggested, next_begin, least, most = (int(fields[name]) for name in names)
    return ObservedAnswer(answer.opaque, answer.code, answer.remark or "", suggested, next_begin, least, most, body_of(answer))


def _group(event: events.SetGroup) -> Any:
    return pull_stand.group(
        consume_enable=event.consume_enable,
        consume_broadcast_enable=event.consume_broadcast_enable,
        broker_id=event.broker_id,
        which_broker_when_consume_slowly=event.which_broker_when_consume_slowly,
    )
