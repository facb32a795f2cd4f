"""Masters, their slave, and what travels between them: `step(metadata, event)`.

The slave follows one master at a time, or none. A master either tells the changes of its tables, or is one that does not know
that question, as every Java broker. Questions are answered and lost in any order that the schedule says.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never, cast

from rocketmq_ha.reference import (
    consumer_offsets,
    deleted_topics,
    master_offsets,
    metadata_changes,
    metadata_entries,
    metadata_process,
    slave_synchronize,
)
from rocketmq_ha.reference import metadata_events as events
from rocketmq_ha.reference.broker_tables import Group, Topic, Version
from rocketmq_ha.reference.metadata_changes import DelayOffsets, Part, Told
from rocketmq_ha.reference.metadata_process import Process
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave_synchronize import CHANGES, CODE_OF_CHANGES, Outcome, Synchronizing
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.codes import RequestCode, ResponseCode
from rocketmq_ha.spec.profile import Profile

OWN: Final = ("10.0.0.9", 10911)
PORT: Final = 10911
TIMEOUT_MS: Final = 3_000
DELAYS_MS: Final = 10_000
REMEMBERED: Final = 4  # answers that may come once more
NOT_SUPPORTED: Final = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
WHOLE: Final = {21: "topics", 43: "offsets", 45: "delays", 201: "groups"}
BAD_FROM: Final = 777
BAD_ENTRIES: Final[Mapping[str, object]] = {"a/b": 3}
NO_DELAYS: Final = b'{"offsetTable":{}}'

Answer = tuple[int, object]  # code, and what the body stands for; of delay offsets the bytes; None for bytes that are none


@dataclass(frozen=True, slots=True)
class Settings:
    """tells: of each master, whether it knows the question for changes. most_size, most_gone: bounds of HA-MD-28 and 29."""

    tells: tuple[bool, ...]
    most_size: int = metadata_changes.MOST_SIZE
    most_gone: int = metadata_changes.MOST_GONE


@dataclass(frozen=True, slots=True)
class InFlight:
    """A question of the slave, and the answer if a master has given it."""

    number: int
    index: int
    code: int
    address: tuple[str, int]
    master: int
    body: object
    deadline_ms: int
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Slave:
    """process: its tables. told: of the master's numbers; of_offsets: of its offsets, life_of_offsets: of which life that is.

    delay_file: its bytes; written: that progress; persist_at: when it is due again.
    known: the connection and the topics of the last answer to 21.
    """

    process: Process
    asking: Synchronizing
    told: Told = field(default_factory=Told)
    of_offsets: master_offsets.Told = field(default_factory=master_offsets.Told)
    life_of_offsets: str | int | None = None
    delays: DelayOffsets = field(default_factory=DelayOffsets)
    delay_file: bytes | None = None
    written: Mapping[str, int] | None = None
    delay_unsaved: bool = False
    persist_at: int = 0
    known: tuple[int, frozenset[str]] | None = None
    sent: tuple[InFlight, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """links: the number of the connection to each master. delays: of each master, how far the first level has come.

    answered: what masters have answered last, by code. answers: of the last step.
    """

    now_ms: int
    masters: tuple[Process, ...]
    slave: Slave
    links: tuple[int, ...]
    delays: tuple[int, ...]
    answered: tuple[tuple[int, Answer], ...] = ()
    answers: tuple[Answer, ...] = ()


def new_metadata(settings: Settings, profile: Profile, now_ms: int) -> Metadata:
    """Everybody begins over an empty directory, and the slave follows nobody."""
    masters = tuple(
        metadata_process.start(None, now_ms, settings.most_gone, is_slave=False, forgets=False) for _ in settings.tells
    )
    process = metadata_process.start(None, now_ms, settings.most_gone, is_slave=True, forgets=not profile.asks_changes)
    ones = tuple(1 for _ in settings.tells)
    return Metadata(now_ms, masters, _new_slave(process, profile, now_ms), ones, tuple(0 for _ in settings.tells))


def _new_slave(process: Process, profile: Profile, now_ms: int) -> Slave:
    asking = slave_synchronize.on_start(OWN, now_ms, asks_changes=profile.asks_changes)
    return Slave(process, asking, persist_at=now_ms + DELAYS_MS)


def step(state: Metadata, event: events.Event, settings: Settings, profile: Profile) -> tuple[Metadata, tuple[Transition, ...]]:
    """One event, and all that it sets in motion. An event that does not apply does nothing."""
    work = _Work(state, settings, profile)
    match event:
        case events.PutTopic():
            topic = metadata_process.topic_object(event.name, Topic(event.queue_nums, event.queue_nums))
            work.change(event.master, "put", lambda old: metadata_process.put(old, "topics", event.name, topic, work.now_ms))
            work.met("HA-BT-2", "HA-BT-3", "HA-BT-17")
        case events.DeleteTopic():
            work.change(event.master, "delete", lambda old: metadata_process.delete_topic(old, event.name, work.now_ms))
            work.met("HA-BT-15", "HA-BT-80")
        case events.PutGroup():
            group = metadata_process.group_object(event.name, Group(retryMaxTimes=event.retry_max_times))
            work.change(event.master, "put", lambda old: metadata_process.put(old, "groups", event.name, group, work.now_ms))
            work.met("HA-BT-2", "HA-BT-3", "HA-BT-23")
        case events.DeleteGroup():
            work.change(event.master, "delete", lambda old: _without_group(old, event, work.now_ms))
            work.met("HA-BT-24")
        case events.PutMessage():
            work.put_message(event)
        case events.Commit():
            work.commit(event)
        case events.DeliverDelayed():
            work.delays[event.master] = event.progress
        case events.RestartMaster():
            work.restart_master(event.master, saves=event.saves)
        case events.RestartSlave():
            work.restart_slave(saves=event.saves)
        case events.Follow():
            work.follow(event.master)
        case events.Reach():
            work.reach()
        case events.Arrive():
            work.arrive(event)
        case events.Repeat():
            work.repeat(event.nth)
        case events.BreakConnection():
            work.break_connection(event.master)
        case events.Disk():
            work.fill_disk(event)
        case events.Tick():
            work.tick(event.ms)
        case _:
            assert_never(event)
    return work.finish(state)


def _without_group(process: Process, event: events.DeleteGroup, now_ms: int) -> Process:
    process = metadata_process.remove(process, "groups", event.name, now_ms)
    return metadata_process.remove_offsets(process, event.name) if event.removes else process


class _Work:
    """What one step has made so far of the state before it."""

    def __init__(self, state: Metadata, settings: Settings, profile: Profile) -> None:
        self.settings, self.profile = settings, profile
        self.now_ms = state.now_ms
        self.masters, self.slave = list(state.masters), state.slave
        self.links, self.delays = list(state.links), list(state.delays)
        self.answered = state.answered
        self.answers: list[Answer] = []
        self.label = ""
        self.clauses: list[str] = []
        self.is_asking_touched = False
        self.touched: set[str] = set()  # tables of the slave that an answer is about

    def met(self, *clauses: str) -> None:
        self.clauses += clauses

    def finish(self, before: Metadata) -> tuple[Metadata, tuple[Transition, ...]]:
        after = Metadata(
            self.now_ms,
            tuple(self.masters),
            self.slave,
            tuple(self.links),
            tuple(self.delays),
            self.answered,
            tuple(self.answers),
        )
        old = (before.slave.process, *before.masters)
        if any(map(metadata_process.is_kept_in_memory, old, (after.slave.process, *after.masters))):
            self.met("HA-BT-6")
        rows = metadata_entries.rows(
            before, after, self.label, tuple(dict.fromkeys(self.clauses)), self.touched, asking=self.is_asking_touched
        )
        return after, tuple(rows)

    @property
    def process(self) -> Process:
        return self.slave.process

    @process.setter
    def process(self, process: Process) -> None:
        self.slave = replace(self.slave, process=process)

    # --- Masters and logs ------------------------------------------------------------------------------------------------

    def change(self, at: int, label: str, make: Callable[[Process], Process]) -> None:
        self.label = label
        self.masters[at] = make(self.masters[at])

    def put_message(self, event: events.PutMessage) -> None:
        self.label = "grow"
        key = event.topic, event.queue_id
        if event.process == events.SLAVE:
            self.process = replace(self.process, stored=(*self.process.stored, key))
            self.turn()
        else:
            process = self.masters[event.process]
            self.masters[event.process] = replace(process, stored=(*process.stored, key))

    def commit(self, event: events.Commit) -> None:
        self.label = "commit"
        self.met("HA-BT-30")
        said = event.topic, event.group, event.queue_id, event.offset
        if event.process != events.SLAVE:
            self.masters[event.process] = metadata_process.commit(self.masters[event.process], *said)
            return
        self.process = metadata_process.commit(self.process, *said)
        if self.profile.keeps_offsets:
            key = f"{event.topic}@{event.group}", event.queue_id
            self.slave = replace(self.slave, of_offsets=master_offsets.on_commit(self.slave.of_offsets, key))

    def restart_master(self, at: int, *, saves: bool) -> None:
        """HA-BT-33 "and at the stop"; one that is killed forgets what was committed since the file was written."""
        self.label = "life"
        self.met("HA-BT-10", "HA-BT-20", *(("HA-BT-33",) if saves else ()))
        process = metadata_process.save_offsets(self.masters[at]) if saves else self.masters[at]
        self.masters[at] = metadata_process.start(process, self.now_ms, self.settings.most_gone, is_slave=False, forgets=False)
        self.lose_connection(at)

    def fill_disk(self, event: events.Disk) -> None:
        if event.process == events.SLAVE:
            self.process = replace(self.process, is_full=event.is_full)
        else:
            self.masters[event.process] = replace(self.masters[event.process], is_full=event.is_full)

    def restart_slave(self, *, saves: bool) -> None:
        self.label = "restart"
        slave = self.slave
        if saves:
            slave = self.written_delays(slave)
            slave = replace(slave, process=metadata_process.save_offsets(slave.process))
        process = metadata_process.start(
            slave.process, self.now_ms, self.settings.most_gone, is_slave=True, forgets=not self.profile.asks_changes
        )
        self.slave = replace(_new_slave(process, self.profile, self.now_ms), delay_file=slave.delay_file)
        self.is_asking_touched = True
        self.met("HA-MD-5")
        self.turn()

    # --- Questions -------------------------------------------------------------------------------------------------------

    def follow(self, at: int) -> None:
        """HA-MD-5 "learn it anew from its next registration with the name server"."""
        self.label = "follow"
        self.is_asking_touched = True
        self.met("HA-MD-5", *(("HA-MD-4",) if at < 0 else ()))
        address = {events.SLAVE: OWN, -2: None}.get(at, _address(at))
        asking = slave_synchronize.on_master(self.slave.asking, address, self.now_ms)
        self.slave = replace(self.slave, asking=asking)
        self.turn()

    def turn(self) -> None:
        """A turn of the slave's loop between two answers."""
        self.use_delays()
        asking, question = slave_synchronize.on_tick(self.slave.asking, self.now_ms, self.link())
        self.slave = replace(self.slave, asking=asking)
        self.ask(question)

    def link(self) -> int:
        """The number of the connection to the master that the slave follows."""
        at = _number(self.slave.asking.master)
        return self.links[at] if at >= 0 else 0

    def ask(self, question: slave_synchronize.Question | None) -> None:
        if question is None:
            return
        self.is_asking_touched = True
        asking = self.slave.asking
        assert asking.asked is not None
        assert asking.master is not None
        at = _number(asking.master)
        body: object = None
        if question.code == CODE_OF_CHANGES:
            self.met("HA-MD-27", "HA-MD-28")
            body = self.question()
        else:
            self.met("HA-MD-1", "HA-MD-8", *(() if self.profile.asks_changes else ("HA-MD-2",)))
        asked = InFlight(*(asking.number, asking.asked, question.code, question.address, at, body, self.now_ms + TIMEOUT_MS))
        self.slave = replace(self.slave, sent=(*self.slave.sent, asked))

    def question(self) -> object:
        """The body of the question for changes. HA-MD-33 "MUST name in its question the offsets that consumers have"."""
        told = self.slave.told
        named = master_offsets.named(self.slave.of_offsets, self.process.offsets.in_memory)
        committed: dict[str, dict[str, list[int]]] = {}
        for (key, queue_id), pair in named.items():
            committed.setdefault(key, {})[str(queue_id)] = list(pair)
        if committed:
            self.met("HA-MD-33")
        numbers = ({name: found.get(name, 0) for name in metadata_changes.TABLES} for found in (told.at, told.begun))
        at, begun = numbers
        return {"life": told.life, "at": at, "begun": begun, "committed": committed}

    def reach(self) -> None:
        """The oldest question without an answer reaches its master, whose answer is on its way then."""
        for place, asked in enumerate(self.slave.sent):
            if asked.answer is None:
                answer = self.answer(asked)
                self.answers.append(answer)
                if answer[0] == 0:
                    self.answered = (*self.answered, (asked.code, answer))[-REMEMBERED:]
                self.replace_sent(place, replace(asked, answer=answer))
                self.label = "reach"
                return

    def replace_sent(self, place: int, *asked: InFlight) -> None:
        sent = self.slave.sent
        self.slave = replace(self.slave, sent=(*sent[:place], *asked, *sent[place + 1 :]))

    def answer(self, asked: InFlight) -> Answer:
        """What a master makes of a question. HA-MD-22 to HA-MD-25."""
        process = self.masters[asked.master]
        if asked.code == CODE_OF_CHANGES:
            return self.answer_changes(asked) if self.settings.tells[asked.master] else (NOT_SUPPORTED, None)
        if asked.code == RequestCode.GET_ALL_DELAY_OFFSET:
            self.met("HA-MD-24")
            return 0, self.delay_text(asked.master)
        if asked.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            self.met("HA-MD-23", "HA-MD-21")
            return 0, {"offsetTable": _offsets_json(process.offsets.in_memory)}
        name = WHOLE[asked.code]
        self.met("HA-MD-22" if name == "topics" else "HA-MD-25", "HA-BT-1", "HA-BT-7")
        table = process.tables[name]
        return 0, metadata_process.file_object(name, (table.version, table.entries))

    def delay_text(self, at: int) -> bytes:
        """As a master of ours writes it, or, without quotes, as a Java broker. HA-MD-21."""
        if not self.delays[at]:
            return NO_DELAYS
        return b'{"offsetTable":{%b:%d}}' % (b'"1"' if self.settings.tells[at] else b"1", self.delays[at])

    def answer_changes(self, asked: InFlight) -> Answer:
        """HA-MD-28 "MUST have, of each table, the entries that have changed since the number that the slave names"."""
        process, body = self.masters[asked.master], asked.body
        assert isinstance(body, dict)
        flat = {
            (key, int(queue)): (pair[0], pair[1]) for key, found in body["committed"].items() for queue, pair in found.items()
        }
        ends = {key: process.stored.count((key[0].partition("@")[0], key[1])) for key in flat}
        before = process.offsets.in_memory
        table = master_offsets.on_committed(before, flat, ends)
        for key, queue_id in [key for key in flat if table.get(key) != before.get(key)]:
            topic, _, group = key.partition("@")
            process = metadata_process.commit(process, topic, group, queue_id, table[key, queue_id])
        life = _life(asked.master, process)
        is_known = body["life"] == life
        found: dict[str, object] = {"life": life, "maxOffset": process.max_offset}
        found["delayOffset"] = json.loads(self.delay_text(asked.master))
        for name in metadata_changes.TABLES:
            since, begun = (body["at"][name], body["begun"][name]) if is_known else (0, 0)
            process, part = self.part(process, name, since, begun)
            version = {} if name == "offsets" else {"dataVersion": _version_json(process.tables[name].version)}
            found[name] = _part_json(part) | version
            self.met("HA-MD-28", *(() if part.is_end else ("HA-MD-29",)))
        self.masters[asked.master] = process
        return 0, found

    def part(self, process: Process, name: str, since: int, begun: int) -> tuple[Process, Part]:
        most_size = self.settings.most_size
        if name == "offsets":
            entries: Mapping[str, object] = _offsets_json(process.offsets.in_memory)
            log, part = metadata_changes.part(process.offsets_log, entries, since, begun, most_size)
            return replace(process, offsets_log=log), part
        table = process.tables[name]
        log, part = metadata_changes.part(table.log, table.entries, since, begun, most_size)
        return metadata_process.with_table(process, name, replace(table, log=log)), part

    # --- Answers ---------------------------------------------------------------------------------------------------------

    def arrive(self, event: events.Arrive) -> None:
        for place, asked in enumerate(self.slave.sent):
            if asked.answer is not None:
                self.replace_sent(place)
                self.end(asked, damaged(asked, event))
                return

    def repeat(self, nth: int) -> None:
        """What some master has answered before, to such a question."""
        if not self.slave.sent:
            return
        asked = self.slave.sent[0]
        found = [answer for code, answer in self.answered if code == asked.code]
        if found:
            self.replace_sent(0)
            self.end(asked, found[-1 - nth % len(found)])

    def end(self, asked: InFlight, answer: Answer | None) -> None:
        """A question has ended; None: without an answer."""
        asking = self.slave.asking
        if asking.asked is None or asked.number != asking.number:
            self.label = "stale"  # HA-MD-31 "if its master is another one by now"
            self.is_asking_touched = True
            self.met("HA-MD-31")
            self.turn()
            return
        outcome, size = self.taken(asked, answer)
        self.label = {"taken": "answer", "more": "more", "failed": "failed", "not supported": "not_supported"}[outcome]
        self.is_asking_touched = True
        if outcome == "failed":
            self.met("HA-MD-3")
        link = self.links[asked.master]
        asking, question = slave_synchronize.on_end(self.slave.asking, asked.number, self.now_ms, outcome, link=link, size=size)
        self.slave = replace(self.slave, asking=asking)
        self.use_delays()
        self.ask(question)

    def taken(self, asked: InFlight, answer: Answer | None) -> tuple[Outcome, int]:
        """Take an answer. Returns: how the question has ended, and the bytes of a whole table."""
        if answer is None:
            self.met(*(("HA-MD-7",) if self.now_ms >= asked.deadline_ms else ()))
            return "failed", 0
        code, body = answer
        link = self.links[asked.master]
        if code == NOT_SUPPORTED:
            self.met("HA-MD-30")
            self.slave = replace(self.slave, told=metadata_changes.on_life(self.slave.told, ""))
            return "not supported", 0
        if asked.index == CHANGES:
            return self.take_changes(body), 0
        size = len(body) if isinstance(body, bytes) else metadata_process.text_size(body)
        name = WHOLE[asked.code]
        if body is None or (isinstance(body, bytes) and name != "delays"):
            return "failed", 1
        self.touched.add(name)
        self.take_whole(name, body, link)
        return "taken", size

    def take_changes(self, body: object) -> Outcome:
        """HA-MD-31 "MUST change nothing on the slave", "if a part of it goes on from a number that the slave has not named"."""
        if not isinstance(body, dict):
            return "failed"
        slave = self.slave
        if body["life"] != slave.told.life:
            self.slave = slave = replace(slave, delays=replace(slave.delays, waiting=None))
        self.slave = replace(slave, told=metadata_changes.on_life(slave.told, body["life"]))
        self.begin_life_of_offsets(body["life"])
        is_more = is_failed = False
        for name in metadata_changes.TABLES:
            fields = body[name]
            part = Part(
                *(fields["from"], fields["at"], fields["begun"], fields["isEnd"], fields["changed"], tuple(fields["gone"]))
            )
            before = self.slave.told.at.get(name, 0)
            if "a/b" in part.changed or not self.take_part(name, part, fields):
                is_failed = True
            else:
                is_more |= part.at != before and not part.is_end
                self.touched.add(name)
        told = body["maxOffset"], body["delayOffset"]["offsetTable"]
        self.met("HA-MD-36")
        self.touched.add("delays")
        delays = metadata_changes.delay_offsets(self.slave.delays, self.process.max_offset, told)
        self.slave = replace(self.slave, delays=delays)
        return "more" if is_more else "failed" if is_failed else "taken"

    def take_part(self, name: str, part: Part, fields: Mapping[str, object]) -> bool:
        """Returns: False if the part is passed over."""
        told = self.slave.told
        if name == "offsets":
            return self.take_part_of_offsets(part)
        table = self.process.tables[name]
        taken = metadata_changes.take(told, name, table.entries, part, part.changed)
        if taken is None:
            return False
        after, entries = taken
        table = metadata_process.take(table, entries)
        if part.is_end:
            version = fields["dataVersion"]
            assert isinstance(version, dict)
            table = metadata_process.settle(
                table, Version(version["counter"], version["timestamp"]), is_full=self.process.is_full
            )
        process = metadata_process.with_table(self.process, name, table)
        if name == "deleted":
            self.met("HA-MD-34")
            mine = metadata_process.offsets_of_deleted(process)
            process = replace(process, hidden=deleted_topics.told(self.process.hidden, mine))
        self.slave = replace(self.slave, told=after, process=process)
        return True

    def take_part_of_offsets(self, part: Part) -> bool:
        told = self.slave.told
        after = metadata_changes.on_part(told, "offsets", part)
        if after is None:
            return False
        names = {*part.changed, *part.gone}
        if part.is_end and (part.begin == 0 or "offsets" in told.seen):
            seen = told.seen.get("offsets", frozenset()) if part.begin else frozenset[str]()
            names |= metadata_process.names_of(self.slave.of_offsets.told) - seen
        self.slave = replace(self.slave, told=after)
        self.merge(_flat(part.changed), names)
        return True

    def take_whole(self, name: str, body: object, link: int) -> None:
        """HA-MD-10 "MUST replace all topics"; HA-MD-13 "MUST be merged"; HA-MD-14 "in the form in which they came"."""
        if name == "delays":
            assert isinstance(body, bytes)
            self.met("HA-MD-14", "HA-MD-21")
            self.write_delays(body)
            return
        assert isinstance(body, dict)
        if name == "offsets":
            theirs = _flat(body["offsetTable"])
            if not self.profile.keeps_offsets:
                self.met("HA-MD-13")
                table = slave_synchronize.consumer_offsets(_by_key(self.process.offsets.in_memory), _by_key(theirs))
                flat = {(key, queue_id): offset for key, found in table.items() for queue_id, offset in found.items()}
                self.process = metadata_process.save_offsets(metadata_process.set_offsets(self.process, flat))
                return
            self.begin_life_of_offsets(link)
            named = {*body["offsetTable"], *metadata_process.names_of(self.slave.of_offsets.told)}
            self.merge(theirs, named)
            return
        self.replace_table(name, body)
        if name == "topics" and self.profile.asks_changes:
            self.on_topics(link, frozenset(body[metadata_process.FIELDS[name]]))

    def replace_table(self, name: str, body: Mapping[str, object]) -> None:
        """HA-MD-11 "MUST change nothing on the slave"; HA-MD-12 "if their counters and their timestamps are"."""
        said = body["dataVersion"]
        assert isinstance(said, dict)
        entries = cast("metadata_process.Entries", body[metadata_process.FIELDS[name]])
        theirs = slave_synchronize.Table((said["counter"], said["timestamp"]), entries)
        table = self.process.tables[name]
        mine = slave_synchronize.Table((table.version.counter, table.version.timestamp), table.entries)
        taken = slave_synchronize.topics_or_groups(mine, theirs)
        self.met("HA-MD-12", "HA-MD-11" if taken is mine else "HA-MD-10" if name == "topics" else "HA-MD-15")
        if taken is not mine:
            after = replace(table, version=Version(*taken.version), entries=taken.entries, is_dirty=False)
            self.process = metadata_process.with_table(
                self.process, name, metadata_process.written(after, is_full=self.process.is_full)
            )

    def on_topics(self, link: int, names: frozenset[str]) -> None:
        """HA-MD-34 "forgets the deletion of each topic that the master's table has"."""
        known = self.slave.known
        if known == (link, names):
            return
        self.met("HA-MD-34")
        before = known[1] if known is not None and known[0] == link else None
        stored = {topic for topic, _ in self.process.stored}
        mine = metadata_process.offsets_of_deleted(self.process)
        after = deleted_topics.on_topics(mine, before, names, stored, self.process.max_offset)
        process = replace(metadata_process.become_deleted(self.process, after, self.now_ms), hidden=after)
        self.slave = replace(self.slave, process=process, known=(link, names))

    def begin_life_of_offsets(self, life: str | int) -> None:
        if life != self.slave.life_of_offsets:
            of_offsets = master_offsets.on_life(self.slave.of_offsets)
            self.slave = replace(self.slave, life_of_offsets=life, of_offsets=of_offsets)

    def merge(self, theirs: Mapping[consumer_offsets.Key, int], names: Iterable[str]) -> None:
        """HA-MD-32 "MUST NOT make a consumer's offset less than it is when it takes an answer"."""
        self.met("HA-MD-32")
        mine = self.process.offsets.in_memory
        of_offsets, table = master_offsets.merge(self.slave.of_offsets, mine, theirs, set(names))
        self.slave = replace(self.slave, of_offsets=of_offsets, process=metadata_process.set_offsets(self.process, table))

    # --- Delay levels ----------------------------------------------------------------------------------------------------

    def use_delays(self) -> None:
        """HA-MD-36: in every turn."""
        delays = metadata_changes.delay_offsets(self.slave.delays, self.process.max_offset)
        if delays != self.slave.delays:
            self.slave = replace(self.slave, delays=delays)
            self.met("HA-MD-36")

    def write_delays(self, body: bytes) -> None:
        """HA-MD-14: as they came; what was told before says nothing any more."""
        self.slave = replace(self.slave, delays=DelayOffsets(), written=None)
        if self.process.is_full:
            self.slave = replace(self.slave, delay_unsaved=True)
        else:
            self.slave = replace(self.slave, delay_file=body, delay_unsaved=False)

    def written_delays(self, slave: Slave) -> Slave:
        usable = slave.delays.usable
        if usable is None or (usable == slave.written and not slave.delay_unsaved):
            return slave
        if slave.process.is_full:
            return replace(slave, delay_unsaved=True)
        text = json.dumps({"offsetTable": dict(usable)}, separators=(",", ":")).encode()
        return replace(slave, delay_file=text, written=usable, delay_unsaved=False)

    # --- Time and ends ---------------------------------------------------------------------------------------------------

    def break_connection(self, at: int) -> None:
        self.label = "broken"
        self.lose_connection(at)

    def lose_connection(self, at: int) -> None:
        """The questions that went by a connection get no answer."""
        lost = [asked for asked in self.slave.sent if asked.master == at]
        self.slave = replace(self.slave, sent=tuple(asked for asked in self.slave.sent if asked.master != at))
        self.links[at] += 1
        label = self.label
        for asked in lost:
            self.end(asked, None)
        self.label = label

    def tick(self, ms: int) -> None:
        self.label = "tick"
        self.now_ms += ms
        late = [asked for asked in self.slave.sent if asked.deadline_ms <= self.now_ms]
        self.slave = replace(self.slave, sent=tuple(asked for asked in self.slave.sent if asked.deadline_ms > self.now_ms))
        for asked in late:
            self.end(asked, None)
        self.turn()
        if self.now_ms >= self.slave.persist_at:
            self.slave = self.written_delays(replace(self.slave, persist_at=self.now_ms + DELAYS_MS))
        for process in (self.process, *self.masters):
            self.met(*metadata_process.clauses_of_tick(process, self.now_ms))
        self.process = metadata_process.on_tick(self.process, self.now_ms)
        self.masters = [metadata_process.on_tick(process, self.now_ms) for process in self.masters]


def damaged(asked: InFlight, event: events.Arrive) -> Answer:
    """The answer as it arrives."""
    assert asked.answer is not None
    code, body = asked.answer
    if event.damage is None or code:
        return asked.answer
    if event.damage == "body" or asked.code != CODE_OF_CHANGES:
        return code, None
    assert isinstance(body, dict)
    part = body[event.part] | ({"from": BAD_FROM} if event.damage == "from" else {"changed": dict(BAD_ENTRIES)})
    return code, {**body, event.part: part}


def _address(at: int) -> tuple[str, int]:
    return f"10.0.0.{at + 1}", PORT


def _number(address: tuple[str, int] | None) -> int:
    """The master of an address; -1 for none, and for the slave's own."""
    return -1 if address is None or address == OWN else int(address[0].rpartition(".")[2]) - 1


def _life(at: int, process: Process) -> str:
    return f"m{at}-{process.life}"


def _version_json(version: Version) -> dict[str, int]:
    return {"counter": version.counter, "timestamp": version.timestamp}


def _part_json(part: Part) -> dict[str, object]:
    return {
        "from": part.begin,
        "at": part.at,
        "begun": part.begun,
        "isEnd": part.is_end,
        "changed": dict(part.changed),
        "gone": list(part.gone),
    }


def _offsets_json(table: Mapping[consumer_offsets.Key, int]) -> dict[str, dict[str, int]]:
    """As JSON has it: queue ids are text. HA-MD-21 "MUST accept map keys that are integers without quotes"."""
    found: dict[str, dict[str, int]] = {}
    for (key, queue_id), offset in table.items():
        found.setdefault(key, {})[str(queue_id)] = offset
    return found


def _flat(table: Mapping[str, object]) -> dict[consumer_offsets.Key, int]:
    offsets = cast("Mapping[str, Mapping[str, int]]", table)
    return {(key, int(queue)): offset for key, found in offsets.items() for queue, offset in found.items()}


def _by_key(table: Mapping[consumer_offsets.Key, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (key, queue_id), offset in table.items():
        found.setdefault(key, {})[queue_id] = offset
    return found
