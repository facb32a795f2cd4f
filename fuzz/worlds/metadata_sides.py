"""The two sides of the world of metadata: the model, and the real tables, questions and answers of masters and a slave.

The world plays the network, the clock, the disk and the store: of a log it counts messages, and notes which are hidden. The
tables over real stores are held by tests/stateful/test_metadata_machine.py.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, assert_never, cast

from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from rocketmq_ha.impl.broker.metadata_changes import MetadataChanges
from rocketmq_ha.impl.broker.registration import OnAnswer
from rocketmq_ha.impl.broker.slave_synchronize import SlaveSynchronize
from rocketmq_ha.impl.broker.slave_tables import SlaveTables
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.remoting.body_json import quote_integer_keys
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.reference import metadata
from rocketmq_ha.reference import metadata_events as events
from rocketmq_ha.reference.consumer_offsets import Key
from rocketmq_ha.reference.metadata import BAD_ENTRIES, BAD_FROM, NO_DELAYS, OWN, REMEMBERED, Metadata, Settings
from rocketmq_ha.reference.metadata_process import MESSAGE_SIZE, SETTINGS, VERSIONED, Process, file_object
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.codes import RequestCode, ResponseCode
from rocketmq_ha.spec.profile import Profile

_TABLES: Final = TableSettings(SETTINGS.broker_name, SETTINGS.cluster_name)
_LIMITS: Final = RemotingLimits()


# --- What both sides show --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """tables, files: topics, groups, deleted, as the JSON objects of their answers and files; None for no file."""

    tables: tuple[object, ...]
    files: tuple[object, ...]
    offsets: Mapping[Key, int]
    offsets_file: Mapping[Key, int]
    hidden: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Observation:
    """sent: address, code, body, deadline of each question; whether it has an answer. The last of `brokers` is the slave."""

    ACTOR: ClassVar[str] = "slave"
    answers: tuple[tuple[int, object], ...]
    sent: tuple[tuple[str, int, object, int, bool], ...]
    usable: Mapping[str, int] | None
    delay_file: bytes | None  # HA-MD-14: as the master's came
    brokers: tuple[ObservedProcess, ...]


# --- The model -------------------------------------------------------------------------------------------------------


class ReferenceMetadata:
    """The model. `state` is what it knows."""

    def __init__(self, settings: Settings, profile: Profile, now_ms: int) -> None:
        self._settings, self._profile = settings, profile
        self.state: Metadata = metadata.new_metadata(settings, profile, now_ms)
        self._shown: dict[int, tuple[Process, ObservedProcess]] = {}

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.state, transitions = metadata.step(self.state, event, self._settings, self._profile)
        return transitions

    def broken(self) -> tuple[str, ...]:
        """HA-MD-28: a slave to which its master has told everything has the master's tables."""
        state = self.state
        asking, told = state.slave.asking, state.slave.told
        if asking.master is None or asking.master == OWN or asking.asked is not None or told.seen:
            return ()
        at = int(asking.master[0].rpartition(".")[2]) - 1
        master, mine = state.masters[at], state.slave.process
        if told.life != f"m{at}-{master.life}":
            return ()
        found = []
        for name in VERSIONED:
            table = master.tables[name]
            if told.at.get(name) == table.log.last and dict(mine.tables[name].entries) != dict(table.entries):
                found.append(f"{name}_are_the_masters")
        return tuple(found)

    def observe(self) -> Observation:
        state, slave = self.state, self.state.slave
        return Observation(
            state.answers,
            tuple(
                (format_address(*asked.address), asked.code, asked.body, asked.deadline_ms, asked.answer is not None)
                for asked in slave.sent
            ),
            slave.delays.usable,
            slave.delay_file,
            tuple(self._process(at, process) for at, process in enumerate((*state.masters, slave.process))),
        )

    def _process(self, at: int, process: Process) -> ObservedProcess:
        """A state of the model never changes, so it is shown once."""
        held = self._shown.get(at)
        if held is None or held[0] is not process:
            held = self._shown[at] = process, _shown(process)
        return held[1]


def _shown(process: Process) -> ObservedProcess:
    tables = {name: process.tables[name] for name in VERSIONED}
    return ObservedProcess(
        tuple(file_object(name, (table.version, table.entries)) for name, table in tables.items()),
        tuple(table.file.content and file_object(name, table.file.content) for name, table in tables.items()),
        process.offsets.in_memory,
        process.offsets.on_disk,
        {topic: offset for topic, offset in process.hidden.items() if offset},
    )


# --- The implementation ----------------------------------------------------------------------------------------------


class _Log:
    """The log of one broker, which outlives its processes, as the tables see a store."""

    min_offset = 0

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []
        self.hidden: dict[str, int] = {}
        self.log = self.queues = self

    @property
    def max_offset(self) -> int:
        return len(self.stored) * MESSAGE_SIZE

    def queue_keys(self) -> Iterator[tuple[int, bytes]]:
        return ((queue_id, topic.encode()) for topic, queue_id in self.stored)

    def ids(self, topic: bytes) -> list[int]:
        return sorted({queue_id for queue_id, name in self.queue_keys() if name == topic})

    def hide_before(self, topic: bytes, offset: int) -> None:
        self.hidden[topic.decode()] = offset
        if not offset:
            del self.hidden[topic.decode()]

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self.stored.count((topic, queue_id))


class _Parsed:
    """The JSON object of bytes that seldom change."""

    __slots__ = ("_data", "_found")

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._found: Any = None

    def of(self, data: bytes | None) -> Any:
        if data is not self._data:
            self._data, self._found = data, None if data is None else json.loads(data)
        return self._found


class _Disk:
    """The files of one broker, which outlive its processes."""

    def __init__(self) -> None:
        self.files = {name: MemoryFile() for name in (*VERSIONED, "offsets", "delays")}
        self.parsed = {name: _Parsed() for name in (*VERSIONED, "offsets", "delays")}

    def fill(self, is_full: bool) -> None:
        for file in self.files.values():
            file.is_full = is_full

    def begin(self) -> None:
        """A process begins: what the one before could not write is lost."""
        for file in self.files.values():
            file.is_unsaved = False


class _Process:
    """The tables of one process, over the files and the log of its broker."""

    def __init__(self, world: "ImplementationMetadata", disk: _Disk, log: _Log, *, is_slave: bool) -> None:
        self.disk, self.log = disk, log
        disk.begin()
        log.hidden.clear()
        files, nowhere, now_ms = disk.files, Path("/nowhere"), world.now_ms
        self.topics = TopicConfigManager(nowhere, _TABLES, lambda: world.now_ms, files["topics"])
        self.groups = SubscriptionGroupManager(nowhere, _TABLES, lambda: world.now_ms, files["groups"])
        self.offsets = ConsumerOffsetManager(nowhere, _TABLES, now_ms, files["offsets"])
        self.deleted = DeletedTopics(cast(Any, log), files["deleted"], lambda: world.now_ms)
        settings = world.settings
        for changes in (table.table.changes for table in (self.topics, self.groups, self.deleted)):
            changes.most_size, changes.most_gone = settings.most_size, settings.most_gone
        self.offsets.changes.most_size, self.offsets.changes.most_gone = settings.most_size, settings.most_gone
        has_topics = self.topics.load()
        self.groups.load()
        self.offsets.load()
        topics = frozenset(self.topics.topic_config_table) if has_topics and not is_slave else None
        self.deleted.load(topics=topics, forgets=is_slave and not world.profile.asks_changes)
        self._tables = tuple(_Parsed() for _ in VERSIONED)

    def delete_topic(self, name: str) -> None:
        """As the handler of 215 does."""
        self.deleted.delete(name, is_known=name in self.topics.topic_config_table)
        self.topics.delete_topic_config(name)

    def on_tick(self, now_ms: int) -> None:
        for table in (self.topics.table, self.groups.table, self.deleted.table):
            table.on_tick(now_ms)
        self.offsets.on_tick(now_ms)

    def observe(self) -> ObservedProcess:
        disk = self.disk
        encoded = self.topics.encode(), self.groups.encode(), self.deleted.table.encode()
        content = disk.files["offsets"].content
        return ObservedProcess(
            tuple(parsed.of(data) for parsed, data in zip(self._tables, encoded, strict=True)),
            tuple(disk.parsed[name].of(disk.files[name].content) for name in VERSIONED),
            {(key, queue_id): offset for key, found in self.offsets.offset_table.items() for queue_id, offset in found.items()},
            _flat(disk.parsed["offsets"].of(content)["offsetTable"]) if content is not None else {},
            dict(self.log.hidden),
        )


class _InFlight:
    def __init__(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        self.address, self.command, self.deadline_ms, self.on_answer = address, command, deadline_ms, on_answer
        self.body: object = json.loads(command.body) if command.body else None
        self.answer: RemotingCommand | None = None

    @property
    def master(self) -> int:
        return int(self.address.partition(":")[0].rpartition(".")[2]) - 1


class ImplementationMetadata:
    """Masters and a slave, whose questions the world carries."""

    def __init__(self, settings: Settings, profile: Profile, now_ms: int) -> None:
        self.settings, self.profile, self.now_ms = settings, profile, now_ms
        count = len(settings.tells)
        self._disks = [_Disk() for _ in range(count + 1)]  # the last one is the slave's
        self._logs = [_Log() for _ in range(count + 1)]
        self._masters = [_Process(self, self._disks[at], self._logs[at], is_slave=False) for at in range(count)]
        self._lives, self._links, self._delays = [1] * count, [1] * count, [0] * count
        self._channel = Channel(("127.0.0.1", 1), "slave", _LIMITS, Totals(), lambda _: None, now_ms)
        self._changes = [self._new_changes(at) for at in range(count)]
        self._sent: list[_InFlight] = []
        self._answered: list[tuple[int, RemotingCommand]] = []
        self._answers: list[tuple[int, object]] = []
        self._start_slave()

    def close(self) -> None:
        """Nothing is open: the files are the world's."""

    def _new_changes(self, at: int) -> MetadataChanges:
        own, log = self._masters[at], self._logs[at]
        tables = own.topics, own.groups, own.offsets, own.deleted
        life = f"m{at}-{self._lives[at]}"
        return MetadataChanges(*tables, log, lambda: log.max_offset, lambda: self._delay_text(at), life)

    def _delay_text(self, at: int) -> bytes:
        """What a master's schedule service says; a Java broker writes no quotes."""
        if not self._delays[at]:
            return NO_DELAYS
        return b'{"offsetTable":{%b:%d}}' % (b'"1"' if self.settings.tells[at] else b"1", self._delays[at])

    def _start_slave(self) -> None:
        self._slave = _Process(self, self._disks[-1], self._logs[-1], is_slave=True)
        own, log = self._slave, self._logs[-1]
        tables = own.topics, own.groups, own.offsets, own.deleted, self._disks[-1].files["delays"]
        self._taken = SlaveTables(*tables, lambda: log.max_offset, self.profile, self.now_ms)
        self._rounds = SlaveSynchronize(format_address(*OWN), self._taken, self, self.now_ms)

    # --- What the slave asks by ------------------------------------------------------------------------------------------

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        self._sent.append(_InFlight(address, command, deadline_ms, on_answer))

    def link(self, address: str) -> int:
        return self._links[int(address.partition(":")[0].rpartition(".")[2]) - 1]

    # --- Events ----------------------------------------------------------------------------------------------------------

    def apply(self, event: events.Event) -> None:
        self._answers = []
        match event:
            case events.PutTopic():
                config = TopicConfig(event.name, event.queue_nums, event.queue_nums)
                self._masters[event.master].topics.update_topic_config(config)
            case events.DeleteTopic():
                self._masters[event.master].delete_topic(event.name)
            case events.PutGroup():
                group = SubscriptionGroupConfig(event.name, retry_max_times=event.retry_max_times)
                self._masters[event.master].groups.update_subscription_group_config(group)
            case events.DeleteGroup():
                self._masters[event.master].groups.delete_subscription_group_config(event.name)
                if event.removes:
                    self._masters[event.master].offsets.remove_offset(event.name)
            case events.PutMessage():
                self._logs[event.process].stored.append((event.topic, event.queue_id))
                if event.process == events.SLAVE:
                    self._rounds.on_turn(self.now_ms)
            case events.Commit():
                process = self._slave if event.process == events.SLAVE else self._masters[event.process]
                process.offsets.commit_offset("", event.group, event.topic, event.queue_id, event.offset)
            case events.DeliverDelayed():
                self._delays[event.master] = event.progress
            case events.RestartMaster():
                self._restart_master(event.master, saves=event.saves)
            case events.RestartSlave():
                self._restart_slave(saves=event.saves)
            case events.Follow():
                known = {events.SLAVE: format_address(*OWN), -2: ""}
                self._rounds.master_addr = known.get(event.master, f"10.0.0.{event.master + 1}:10911")
                self._rounds.on_turn(self.now_ms)
            case events.Reach():
                self._reach()
            case events.Arrive():
                self._arrive(event)
            case events.Repeat():
                self._repeat(event.nth)
            case events.BreakConnection():
                self._lose_connection(event.master)
            case events.Disk():
                self._disks[event.process].fill(event.is_full)
            case events.Tick():
                self._tick(event.ms)
            case _:
                assert_never(event)

    def _restart_master(self, at: int, *, saves: bool) -> None:
        if saves:
            self._masters[at].offsets.persist()
        self._lives[at] += 1
        self._masters[at] = _Process(self, self._disks[at], self._logs[at], is_slave=False)
        self._changes[at] = self._new_changes(at)
        self._lose_connection(at)

    def _restart_slave(self, *, saves: bool) -> None:
        if saves:
            self._rounds.finish()
            self._slave.offsets.persist()
        self._sent = []
        self._start_slave()
        self._rounds.on_turn(self.now_ms)

    def _reach(self) -> None:
        for asked in self._sent:
            if asked.answer is None:
                asked.answer = self._answer(asked)
                self._answers.append((asked.answer.code, _meaning(asked.command.code, asked.answer.body)))
                if asked.answer.code == ResponseCode.SUCCESS:
                    self._answered = [*self._answered, (asked.command.code, asked.answer)][-REMEMBERED:]
                return

    def _answer(self, asked: _InFlight) -> RemotingCommand:
        at, command = asked.master, asked.command
        process = self._masters[at]
        match command.code:
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                body = process.topics.encode()
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                body = process.offsets.encode()
            case RequestCode.GET_ALL_DELAY_OFFSET:
                body = self._delay_text(at)
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                body = process.groups.encode()
            case _:
                if not self.settings.tells[at]:
                    return response_to(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
                return self._changes[at].get_metadata_changes(self._channel, command, self.now_ms)
        return response_to(command, body=body)

    def _arrive(self, event: events.Arrive) -> None:
        for asked in self._sent:
            if asked.answer is not None:
                self._sent.remove(asked)
                self._end(asked, _damaged(asked, asked.answer, event))
                return

    def _repeat(self, nth: int) -> None:
        if not self._sent:
            return
        asked = self._sent[0]
        found = [answer for code, answer in self._answered if code == asked.command.code]
        if found:
            del self._sent[0]
            self._end(asked, found[-1 - nth % len(found)])

    def _end(self, asked: _InFlight, answer: RemotingCommand | None) -> None:
        failed = RequestFailed(asked.address, asked.command.code, "no answer")
        asked.on_answer(failed if answer is None else answer)
        self._rounds.on_turn(self.now_ms)

    def _lose_connection(self, at: int) -> None:
        lost = [asked for asked in self._sent if asked.master == at]
        self._sent = [asked for asked in self._sent if asked.master != at]
        self._links[at] += 1
        for asked in lost:
            self._end(asked, None)

    def _tick(self, ms: int) -> None:
        self.now_ms += ms
        late = [asked for asked in self._sent if asked.deadline_ms <= self.now_ms]
        self._sent = [asked for asked in self._sent if asked.deadline_ms > self.now_ms]
        for asked in late:
            self._end(asked, None)
        self._rounds.on_turn(self.now_ms)
        for process in (self._slave, *self._masters):
            process.on_tick(self.now_ms)

    # --- Observation -----------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        return Observation(
            tuple(self._answers),
            tuple(
                (asked.address, int(asked.command.code), asked.body, asked.deadline_ms, asked.answer is not None)
                for asked in self._sent
            ),
            self._taken.delays.usable,
            self._disks[-1].files["delays"].content,
            tuple(process.observe() for process in (*self._masters, self._slave)),
        )


def _damaged(asked: _InFlight, answer: RemotingCommand, event: events.Arrive) -> RemotingCommand:
    """The answer as it arrives; one that is no success comes as it is."""
    if event.damage is None or answer.code != ResponseCode.SUCCESS:
        return answer
    body = b"{"
    if event.damage != "body" and asked.command.code == RequestCode.GET_METADATA_CHANGES:
        found = json.loads(answer.body)
        found[event.part] |= {"from": BAD_FROM} if event.damage == "from" else {"changed": dict(BAD_ENTRIES)}
        body = json.dumps(found).encode()
    return response_to(asked.command, body=body)


def _meaning(code: int, body: bytes) -> object:
    """What an answer stands for; delay offsets are compared as bytes."""
    if not body:
        return None
    return body if code == RequestCode.GET_ALL_DELAY_OFFSET else json.loads(quote_integer_keys(body))


def _flat(table: Mapping[str, Mapping[str, int]]) -> dict[Key, int]:
    return {(key, int(queue_id)): offset for key, found in table.items() for queue_id, offset in found.items()}
