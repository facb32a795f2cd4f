"""A slave's tables and its questions equal those of the model, whatever happens to the answers of two masters.

Answers are lost, late, older than the question, of another version, or no answers at all. Masters end and begin again; one of
the two may be one that tells no changes. The slave follows now one and now the other; consumers commit to it in between; it
ends, and begins again as a slave, or for a while as a master. All tables are real, over real stores; the test is the network.

After each step the slave's tables, its question and what it has deleted are compared. HA-MD-27 to HA-MD-36.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kit.broker_tables import BrokerTables
from kit.examples import machine_settings
from kit.metadata import OWN, SlaveStand
from kit.sends import topic as topic_of
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.reference import deleted_topics as deleted_model
from rocketmq_ha.reference import master_offsets as offsets_model
from rocketmq_ha.reference import metadata_changes as model
from rocketmq_ha.reference import slave_synchronize as asking
from rocketmq_ha.spec.profile import HARDENED

HOSTS: Final = ("10.0.0.1", "10.0.0.3")
TOPICS: Final = ("orders", "refunds", "audit")
GROUPS: Final = ("g", "h")
CHANGES: Final = RequestCode.GET_METADATA_CHANGES
MOST_PARTS: Final = 12  # of all tables, with the least bound
Version = tuple[int, int]

which, topics, groups = st.sampled_from([0, 1]), st.sampled_from(TOPICS), st.sampled_from(GROUPS)
queues, offsets = st.integers(0, 1), st.integers(0, 4)


class MasterSide:
    """One master, the model of its change logs beside it. tells: whether it knows the question for changes.

    most_size, most_gone: bounds that few entries reach.
    """

    def __init__(self, directory: Path, *, tells: bool, most_size: int, most_gone: int) -> None:
        self.directory, self.tells, self.most_size, self.most_gone = directory, tells, most_size, most_gone
        self.start()

    def start(self) -> None:
        """A new process, and so a new life.

        It reads its files first, and then drops the deletions that hide nothing any more (`reference.deleted_topics.start`).
        Both count as changes.
        """
        self.resources = ExitStack()
        self.tables = tables = BrokerTables(self.directory, self.resources)
        for table in (tables.topics, tables.groups, tables.offsets, tables.deleted.table):
            table.load()
        for changes in (tables.deleted.table.changes, tables.topics.table.changes, tables.groups.table.changes,
                        tables.offsets.changes):  # fmt: skip
            changes.most_size, changes.most_gone = self.most_size, self.most_gone
        self.logs = {name: model.ChangeLog() for name in model.TABLES}
        self.before: dict[str, dict[str, object]] = {name: {} for name in model.TABLES}
        self.note()
        tables.deleted.load()
        self.note()

    def entries(self) -> dict[str, dict[str, object]]:
        """The tables as JSON objects."""
        found = {
            "deleted": self.tables.deleted.table.encode(),
            "topics": self.tables.topics.encode(),
            "groups": self.tables.groups.encode(),
            "offsets": self.tables.offsets.encode(),
        }
        fields = {"deleted": "deletedTopicTable", "topics": "topicConfigTable", "groups": "subscriptionGroupTable"}
        return {name: json.loads(body)[fields.get(name, "offsetTable")] for name, body in found.items()}

    def versions(self) -> dict[str, dict[str, int]]:
        tables = self.tables
        found = {"deleted": tables.deleted.table, "topics": tables.topics.table, "groups": tables.groups.table}
        return {name: table.data_version.fields() for name, table in found.items()}

    def note(self, table: str = "", written: str = "") -> None:
        """Tell the change logs of the model what has changed. written: an entry of a table, which may be as it was before."""
        now = self.entries()
        for name in model.TABLES:
            before, log = self.before[name], self.logs[name]
            for key in before:
                if key not in now[name]:
                    log = model.on_removed(log, key, self.most_gone)
            for key, entry in now[name].items():
                if before.get(key) != entry or (name, key) == (table, written):
                    log = model.on_set(log, key)
            self.logs[name] = log
        self.before = now

    def ask(self, code: int, body: bytes) -> tuple[int, bytes]:
        """What it answers. HA-MD-28: the answer is the model's."""
        if code != CHANGES:
            answer = self.tables.ask(code)
            return answer.code, answer.body
        if not self.tells:
            return ResponseCode.REQUEST_CODE_NOT_SUPPORTED, b""
        question = json.loads(body)
        flat = {(key, int(each)): pair for key, found in question["committed"].items() for each, pair in found.items()}
        stored = flatten(self.before["offsets"])
        ends = {key: self.tables.queues.max_offset_in_queue(key[0].partition("@")[0], key[1]) for key in flat}
        expected_offsets = offsets_model.on_committed(stored, {key: (old, new) for key, (old, new) in flat.items()}, ends)
        answer = self.tables.ask(code, body=body)
        assert answer.code == ResponseCode.SUCCESS
        self.note()
        assert flatten(self.before["offsets"]) == expected_offsets
        found = json.loads(answer.body)
        expected: dict[str, Any] = {"life": self.tables.changes.life, "maxOffset": self.tables.store.max_offset}
        for name in model.TABLES:
            is_known = question["life"] == self.tables.changes.life
            since, begun = (question["at"][name], question["begun"][name]) if is_known else (0, 0)
            self.logs[name], part = model.part(self.logs[name], self.before[name], since, begun, self.most_size)
            version = {} if name == "offsets" else {"dataVersion": self.versions()[name]}
            expected[name] = {"from": part.begin, "at": part.at, "begun": part.begun, "isEnd": part.is_end, **version}
            expected[name] |= {"changed": dict(part.changed), "gone": list(part.gone)}
        assert found == expected | {"delayOffset": json.loads(self.tables.delay_offset or b'{"offsetTable":{}}')}
        return answer.code, answer.body


class MetadataMachine(RuleBasedStateMachine):
    """A slave and two masters."""

    @initialize(
        tells=st.sampled_from([(True, True), (True, False), (False, False)]),
        most_size=st.sampled_from([300, 2_000, model.MOST_SIZE]),
        most_gone=st.sampled_from([0, 1, model.MOST_GONE]),
    )
    def begin(self, tells: tuple[bool, bool], most_size: int, most_gone: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="metadata-"))
        self.masters = [
            MasterSide(self.directory / f"master-{at}", tells=tell, most_size=most_size, most_gone=most_gone)
            for at, tell in enumerate(tells)
        ]
        self.now_ms, self.links = 0, {0: 1, 1: 1}
        self.answered: dict[int, list[bytes]] = {}  # bodies that were answered, by code
        self.late: tuple[int, bytes] | None = None  # the answer to the question, on its way
        self.deleted: deleted_model.Deleted = {}
        self.start_slave()
        self.follow(0)

    # --- The slave ---------------------------------------------------------------------------------------------------

    def start_slave(self) -> None:
        self.resources = ExitStack()
        self.slave = SlaveStand(self.directory / "slave", self.resources, HARDENED)
        self.state = asking.on_start(OWN, self.now_ms, asks_changes=True)
        self.told, self.of_offsets = model.Told(), offsets_model.Told()
        self.delays, self.known = model.DelayOffsets(), None
        self.life_of_offsets: object = None
        store = self.slave.tables.store
        self.deleted = deleted_model.open_log(self.deleted, store.max_offset)
        self.deleted = deleted_model.start(self.deleted, store.min_offset, store.max_offset, None, ())
        self.topics, self.groups = self.observed_topics(), self.observed_groups()
        self.offsets = dict(flatten(json.loads(self.slave.offsets.encode())["offsetTable"]))
        self.question: asking.Question | None = None
        self.late = None
        self.has_all = False  # the last answer told of all changes

    def observed_topics(self) -> tuple[Version, dict[str, object]]:
        return versioned(self.slave.topics.encode(), "topicConfigTable")

    def observed_groups(self) -> tuple[Version, dict[str, object]]:
        return versioned(self.slave.groups.encode(), "subscriptionGroupTable")

    def link(self) -> int:
        return 0 if self.state.master is None else self.links[HOSTS.index(self.state.master[0])]

    def turn(self, *, is_after_end: bool = False) -> None:
        """One turn of the slave; after the end of a question the model has taken its step already."""
        for at, host in enumerate(HOSTS):
            self.slave.client.links[f"{host}:10911"] = self.slave.client.links[f"{host}:10909"] = self.links[at]
        if not is_after_end:
            self.state, question = asking.on_tick(self.state, self.now_ms, self.link())
            self.asks(question)
        self.slave.rounds.on_turn(self.now_ms)
        self.delays = model.delay_offsets(self.delays, self.slave.tables.store.max_offset)

    def asks(self, question: asking.Question | None) -> None:
        """The model asks, or not. named: what the question says that consumers have committed."""
        if question is not None:
            self.question = question
            self.named = offsets_model.named(self.of_offsets, self.offsets)

    @rule(after_ms=st.sampled_from([0, 500, 1_000, 10_000]))
    def time(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.turn()

    @rule(at=which)
    def follow(self, at: int) -> None:
        """A name server tells a master's address. HA-MD-31 "if its master is another one by now"."""
        if self.state.master != (HOSTS[at], 10911):
            self.question = self.late = None
            self.slave.client.requests.clear()  # their answers would be passed over; see test_metadata_changes.py
        self.state = asking.on_master(self.state, (HOSTS[at], 10911), self.now_ms)
        self.slave.rounds.master_addr = f"{HOSTS[at]}:10911"
        self.turn()

    @rule(topic=topics, group=groups, queue_id=queues, offset=offsets)
    def commit_to_slave(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """HA-MD-33 "the offsets that consumers have committed to it"."""
        assert self.slave.offsets.commit_offset("", group, topic, queue_id, offset)
        key = f"{topic}@{group}", queue_id
        self.offsets[key] = offset
        self.of_offsets = offsets_model.on_commit(self.of_offsets, key)

    @rule(topic=topics, queue_id=queues)
    def replicate(self, topic: str, queue_id: int) -> None:
        """A message comes over the HA link."""
        self.slave.tables.put(topic, queue_id)
        self.turn()

    @rule(as_master=st.booleans())
    def restart_slave(self, as_master: bool) -> None:
        """It ends, and begins again; in between perhaps as a master, which knows the topics of its log (HA-BT-18)."""
        self.slave.rounds.finish()
        self.slave.offsets.persist()
        self.resources.close()
        if as_master:
            with ExitStack() as resources:
                tables = BrokerTables(self.directory / "slave", resources)
                tables.topics.load()
                tables.deleted.load()
                before = set(tables.topics.topic_config_table)
                stored = tables.queues.queue_nums()
                tables.topics.note_queues(stored)
                assert set(tables.topics.topic_config_table) - before == set(stored) - before
                assert not {topic for topic in self.deleted if topic in stored and self.hidden(tables, topic)}
        self.start_slave()
        self.turn()

    @staticmethod
    def hidden(tables: BrokerTables, topic: str) -> bool:
        return tables.queues.queue_nums_of(topic) == 0

    # --- The masters -------------------------------------------------------------------------------------------------

    @rule(at=which, topic=topics, nums=st.integers(1, 3))
    def put_topic(self, at: int, topic: str, nums: int) -> None:
        self.masters[at].tables.topics.update_topic_config(topic_of(topic, nums, nums))
        self.masters[at].note("topics", topic)

    @rule(at=which, topic=topics, queue_id=queues)
    def put_message(self, at: int, topic: str, queue_id: int) -> None:
        self.masters[at].tables.put(topic, queue_id)

    @rule(at=which, topic=topics)
    def delete_topic(self, at: int, topic: str) -> None:
        assert self.masters[at].tables.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == ResponseCode.SUCCESS
        self.masters[at].note()

    @rule(at=which, group=groups, times=st.integers(0, 2))
    def put_group(self, at: int, group: str, times: int) -> None:
        self.masters[at].tables.groups.update_subscription_group_config(SubscriptionGroupConfig(group, retry_max_times=times))
        self.masters[at].note("groups", group)

    @rule(at=which, group=groups, removes=st.booleans())
    def delete_group(self, at: int, group: str, removes: bool) -> None:
        fields = {"groupName": group, "removeOffset": str(removes).lower()}
        assert self.masters[at].tables.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == ResponseCode.SUCCESS
        self.masters[at].note()

    @rule(at=which, topic=topics, group=groups, queue_id=queues, offset=offsets)
    def commit_to_master(self, at: int, topic: str, group: str, queue_id: int, offset: int) -> None:
        self.masters[at].tables.offsets.commit_offset("", group, topic, queue_id, offset)
        self.masters[at].note("offsets", f"{topic}@{group}")

    @rule(at=which, progress=st.integers(0, 3))
    def deliver(self, at: int, progress: int) -> None:
        self.masters[at].tables.delay_offset = b'{"offsetTable":{"1":%d}}' % progress

    @rule(at=which, saves=st.booleans())
    def restart_master(self, at: int, saves: bool) -> None:
        """HA-MD-32: one that is killed forgets what was committed since the file was written."""
        master = self.masters[at]
        if saves:
            master.tables.offsets.persist()
        master.resources.close()
        self.links[at] += 2
        master.start()
        if self.late is not None and self.state.master == (HOSTS[at], 10911):
            self.lose()

    @rule(at=which)
    def break_connection(self, at: int) -> None:
        self.links[at] += 2

    @rule(count=st.integers(1, 2))
    def rounds(self, count: int) -> None:
        """Nothing goes wrong for a while: the slave asks, and the master answers, until there is no question."""
        is_of_now = False  # the last answer; one that was on its way already may be older than a change
        for _ in range(count):
            self.now_ms += 1_000
            self.turn()
            for _ in range(MOST_PARTS):
                if self.question is None:
                    break
                if self.late is None:
                    self.reach()
                    is_of_now = True
                self.arrive()
        if self.question is None and self.has_all and is_of_now:
            self.the_slave_has_the_tables_of_its_master()

    @precondition(lambda self: [master.tells for master in self.masters] == [True, False])
    @rule()
    def there_and_back(self) -> None:
        """To the master that tells whole tables, and back. HA-MD-30: the slave then names no number of the former life."""
        for at in (0, 1, 0):
            self.follow(at)
            self.rounds(1)

    def the_slave_has_the_tables_of_its_master(self) -> None:
        """HA-MD-28: an answer without "more" is the end. No model is between the two; see HA-MD-32 for the offsets."""
        assert self.state.master is not None
        master = self.masters[HOSTS.index(self.state.master[0])].tables
        assert json.loads(self.slave.topics.encode()) == json.loads(master.topics.encode())
        assert json.loads(self.slave.groups.encode()) == json.loads(master.groups.encode())
        assert self.slave.tables.deleted.table.entries == master.deleted.table.entries
        for key, found in master.offsets.offset_table.items():
            mine = self.slave.offsets.offset_table[key]
            assert all(mine[queue_id] >= offset for queue_id, offset in found.items())

    # --- The network -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.question is not None and self.late is None)
    @rule()
    def reach(self) -> None:
        """The question reaches the master, whose answer is on its way."""
        [(_, command, _, _)] = self.slave.client.requests
        assert self.state.master is not None
        if command.code == CHANGES:  # HA-MD-28 "the number that the slave names"
            asked = json.loads(command.body)
            assert asked["life"] == self.told.life
            assert asked["at"] == {name: self.told.at.get(name, 0) for name in model.TABLES}
            assert asked["begun"] == {name: self.told.begun.get(name, 0) for name in model.TABLES}
        self.late = self.masters[HOSTS.index(self.state.master[0])].ask(command.code, command.body)
        if self.late[0] == ResponseCode.SUCCESS:
            self.answered.setdefault(command.code, []).append(self.late[1])

    @precondition(lambda self: self.late is not None)
    @rule()
    def arrive(self) -> None:
        assert self.late is not None
        self.end(*self.late)

    @precondition(lambda self: self.question is not None)
    @rule()
    def lose(self) -> None:
        """The question or its answer is lost, or the master is gone."""
        self.end(-1, b"")

    @precondition(lambda self: self.question is not None and self.question.code in self.answered)
    @rule(data=st.data())
    def older(self, data: st.DataObject) -> None:
        """What some master has answered before, to the same question."""
        assert self.question is not None
        found = self.answered[self.question.code]
        self.end(0, found[data.draw(st.integers(0, len(found) - 1), label="answer")])

    @precondition(lambda self: self.late is not None and self.late[0] == 0)
    @rule(counter=st.integers(0, 3), table=st.sampled_from(["topics", "groups"]))
    def another_version(self, counter: int, table: str) -> None:
        assert self.late is not None and self.question is not None
        body = json.loads(self.late[1])
        holder = body[table] if self.question.code == CHANGES else body
        holder["dataVersion"] = {"counter": counter, "timestamp": 7}
        self.end(0, json.dumps(body).encode())

    @precondition(lambda self: self.question is not None)
    @rule(body=st.sampled_from([b"", b"{", b"[]", b'{"life":"x"}', b'{"offsetTable":3}', b'{"topicConfigTable":[]}']))
    def malformed(self, body: bytes) -> None:
        self.end(0, body)

    @precondition(lambda self: self.late is not None and self.question is not None and self.question.code == CHANGES)
    @rule(table=st.sampled_from(model.TABLES), field=st.sampled_from(["from", "changed"]))
    def malformed_part(self, table: str, field: str) -> None:
        """HA-MD-31 "if a part of it goes on from a number that the slave has not named"; the other tables are taken."""
        assert self.late is not None
        if self.late[0] != 0:
            return
        body = json.loads(self.late[1])
        body[table][field] = 777 if field == "from" else {"a/b": 3}
        self.end(0, json.dumps(body).encode())

    # --- What the model makes of an answer ----------------------------------------------------------------------------

    def end(self, code: int, body: bytes) -> None:
        question, self.question, self.late = self.question, None, None
        assert question is not None
        link, size = self.link(), 0
        outcome: asking.Outcome = "failed"
        if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and question.code == CHANGES:
            outcome = "not supported"
            self.told = model.on_life(self.told, "")
        elif code == 0 and question.code == CHANGES:
            outcome = self.take_changes(body)
        self.has_all = outcome == "taken"
        if code == 0 and question.code != CHANGES:
            size = len(body)
            self.take_whole(question.code, body, link)
        number = self.state.number
        self.state, asked = asking.on_end(self.state, number, self.now_ms, outcome, link=link, size=size)
        self.asks(asked)
        host, port = question.address
        self.slave.client.answer(f"{host}:{port}", code, body)
        self.turn(is_after_end=True)

    def take_changes(self, body: bytes) -> asking.Outcome:
        found = read(body)
        if not isinstance(found, dict) or not {"life", "maxOffset", "delayOffset", *model.TABLES} <= set(found):
            return "failed"
        if found["life"] != self.told.life:
            self.delays = replace(self.delays, waiting=None)
        self.told = model.on_life(self.told, found["life"])
        self.begin_life_of_offsets(found["life"])
        is_more, failed = False, False
        for name in model.TABLES:
            fields = found[name]
            numbers = fields["from"], fields["at"], fields["begun"]
            part = model.Part(*numbers, fields["isEnd"], fields["changed"], tuple(fields["gone"]))
            before = self.told.at.get(name, 0)
            if "a/b" in part.changed or not self.take_part(name, part, fields):
                failed = True
            else:
                is_more |= part.at != before and not part.is_end
        progress = found["delayOffset"]["offsetTable"]
        self.delays = model.delay_offsets(self.delays, self.slave.tables.store.max_offset, (found["maxOffset"], progress))
        return "more" if is_more else "failed" if failed else "taken"

    def take_part(self, name: str, part: model.Part, fields: Mapping[str, Any]) -> bool:
        """Returns: False if the part is passed over."""
        if name == "offsets":
            after = model.on_part(self.told, name, part)
            if after is None:
                return False
            names = {*part.changed, *part.gone}
            if part.is_end and (part.begin == 0 or name in self.told.seen):
                seen = self.told.seen.get(name, frozenset()) if part.begin else frozenset[str]()
                names |= {key for key, _ in self.of_offsets.told} - seen
            self.told = after
            self.merge_offsets(flatten(part.changed), names)
            return True
        version, mine = {"topics": self.topics, "groups": self.groups}.get(name, ((0, 0), dict(self.deleted)))
        entries = part.changed if name != "deleted" else {topic: entry["logOffset"] for topic, entry in part.changed.items()}  # type: ignore[index]
        taken = model.take(self.told, name, mine, part, entries)
        if taken is None:
            return False
        self.told, mine = taken
        if part.is_end:
            version = fields["dataVersion"]["counter"], fields["dataVersion"]["timestamp"]
        if name == "topics":
            self.topics = version, mine
        elif name == "groups":
            self.groups = version, mine
        else:
            self.deleted = deleted_model.told(self.deleted, mine)  # type: ignore[arg-type]
        return True

    def take_whole(self, code: int, body: bytes, link: int) -> None:
        found = read(body)
        found = found if isinstance(found, dict) else {}
        if code == 21 and isinstance(table := found.get("topicConfigTable"), dict):
            version = found["dataVersion"]["counter"], found["dataVersion"]["timestamp"]
            taken = asking.topics_or_groups(asking.Table(*self.topics), asking.Table(version, table))
            self.topics = taken.version, dict(taken.entries)
            before = self.known[1] if self.known is not None and self.known[0] == link else None
            stored = {topic for topic in TOPICS if self.slave.tables.store.queues.ids(topic.encode())}
            self.deleted = deleted_model.on_topics(self.deleted, before, table, stored, self.slave.tables.store.max_offset)
            self.known: tuple[int, frozenset[str]] | None = link, frozenset(table)
        elif code == 43 and isinstance(table := found.get("offsetTable"), dict):
            self.begin_life_of_offsets(link)
            self.merge_offsets(flatten(table), {*table, *(key for key, _ in self.of_offsets.told)})
        elif code == 45 and isinstance(found.get("offsetTable"), dict):
            self.delays = model.DelayOffsets()
        elif code == 201 and isinstance(table := found.get("subscriptionGroupTable"), dict):
            version = found["dataVersion"]["counter"], found["dataVersion"]["timestamp"]
            taken = asking.topics_or_groups(asking.Table(*self.groups), asking.Table(version, table))
            self.groups = taken.version, dict(taken.entries)

    def begin_life_of_offsets(self, life: object) -> None:
        if life != self.life_of_offsets:
            self.life_of_offsets = life
            self.of_offsets = offsets_model.on_life(self.of_offsets)

    def merge_offsets(self, theirs: Mapping[offsets_model.Key, int], names: set[str]) -> None:
        before, told = dict(self.offsets), dict(self.of_offsets.told)
        self.of_offsets, self.offsets = offsets_model.merge(self.of_offsets, self.offsets, theirs, names)
        for key, offset in before.items():  # HA-MD-32, said once more
            assert self.offsets.get(key, -1) >= offset or theirs.get(key, -1) < told[key]

    # --- What is compared ---------------------------------------------------------------------------------------------

    @invariant()
    def the_slave_is_as_the_model_says(self) -> None:
        slave = self.slave
        assert self.observed_topics() == self.topics
        assert self.observed_groups() == self.groups
        assert flatten(json.loads(slave.offsets.encode())["offsetTable"]) == self.offsets
        assert slave.tables.deleted.table.entries == self.deleted
        assert slave.taken.delays.usable == self.delays.usable
        requests = [(address, command.code) for address, command, _, _ in slave.client.requests]
        expected = self.question
        assert requests == ([] if expected is None else [(f"{expected.address[0]}:{expected.address[1]}", expected.code)])
        if expected is not None and expected.code == CHANGES:
            asked = json.loads(slave.asked().body)
            numbers = {name: dict.fromkeys(model.TABLES, 0) for name in ("at", "begun")}
            numbers["at"].update(self.told.at)
            numbers["begun"].update(self.told.begun)
            assert {name: asked[name] for name in ("life", "at", "begun")} == {"life": self.told.life} | numbers
            assert {key: tuple(pair) for key, pair in flatten(asked["committed"]).items()} == self.named

    @invariant()
    def it_answers_for_the_topics_of_its_log(self) -> None:
        """HA-MD-35 "a topic which its table lacks, and of which its log has messages that are not hidden"."""
        for topic in TOPICS:
            found = self.slave.topics.select_topic_config(topic)
            nums = self.slave.tables.queues.queue_nums().get(topic, 0)
            if topic not in self.topics[1]:
                assert (found.read_queue_nums if found else 0) == nums

    def teardown(self) -> None:
        for each in (self, *getattr(self, "masters", ())):
            if hasattr(each, "resources"):
                each.resources.close()
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory, ignore_errors=True)


def read(body: bytes) -> Any:
    """The JSON of a body; None for what is none."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def versioned(body: bytes, field: str) -> tuple[Version, dict[str, object]]:
    found = json.loads(body)
    return (found["dataVersion"]["counter"], found["dataVersion"]["timestamp"]), found[field]


def flatten(table: Mapping[str, Any]) -> dict[offsets_model.Key, Any]:
    """By topic@group and queue id."""
    return {(key, int(queue_id)): value for key, found in table.items() for queue_id, value in found.items()}


TestMetadata = MetadataMachine.TestCase
TestMetadata.settings = machine_settings(40, steps=40)
