"""Deleted topics of the implementation equal those of the model: puts, deletions, restarts, changes of role, a cut log.

The store is real. After each step the begin of each queue, what a pull and request 14 say, and what a restart would add to the
topics are compared. HA-BT-80, HA-BT-31.
"""

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kit.broker_tables import BrokerTables
from kit.examples import machine_settings
from rocketmq_ha.impl.broker.store_queues import StoreQueues
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.reference import deleted_topics as model

TOPICS: Final = ("orders", "refunds")
QUEUES: Final = 3
OPTIONS: Final = StoreOptions(file_size=1 << 20, queue_file_size=6000, floor_size=0)
topics, queue_ids = st.sampled_from(TOPICS), st.integers(0, QUEUES - 1)


class DeletedTopicsMachine(RuleBasedStateMachine):
    """One master, whose broker ends and starts again."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="deleted-"))
        self.resources = ExitStack()
        self.stored: dict[str, list[model.Stored]] = defaultdict(list)
        self.deleted: model.Deleted = {}
        self.known: set[str] = set()  # of TOPICS, those of the table of topics
        self.numbers = 0
        self.bodies: dict[int, bytes] = {}  # by offset in the log
        self.start(forgets=False)

    def start(self, *, forgets: bool) -> None:
        self.tables = BrokerTables(self.directory, self.resources)
        self.pulls = StoreQueues(self.tables.store, PullBounds(1 << 30))
        topics = self.tables.topics.topic_config_table if self.tables.topics.load() else None
        assert topics is None or {topic for topic in TOPICS if topic in topics} == self.known
        self.tables.deleted.load(topics=topics, forgets=forgets)
        log = self.tables.store
        has_messages = [topic for topic, stored in self.stored.items() if stored]
        opened = model.open_log(self.deleted, log.max_offset)
        known = None if topics is None else self.known
        self.deleted = model.start(opened, log.min_offset, log.max_offset, known, has_messages, forgets=forgets)
        if topics is None:
            self.known = set()

    @rule(topic=topics, queue_id=queue_ids, waits=st.booleans())
    def put(self, topic: str, queue_id: int, waits: bool) -> None:
        self.put_by(self.tables.store, topic, queue_id)
        if waits:
            assert self.tables.store.wait_for_dispatch()

    def put_by(self, store: MessageStore, topic: str, queue_id: int) -> None:
        body = b"%d" % self.numbers
        self.numbers += 1
        put = store.put(Message(topic, body, queue_id=queue_id))
        assert put.append is not None
        self.stored[topic].append((put.append.offset, queue_id))
        self.bodies[put.append.offset] = body

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        """HA-BT-80 "MUST give no message of a deleted topic": messages that are not dispatched yet are hidden, too."""
        answer = self.tables.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        assert answer.code == ResponseCode.SUCCESS
        end, is_known = self.tables.store.max_offset, topic in self.known
        self.deleted = model.delete_topic(self.deleted, topic, self.stored[topic], end, is_known=is_known)
        self.known.discard(topic)

    @rule(topic=topics)
    def create(self, topic: str) -> None:
        assert self.tables.topics.update_topic_config(TopicConfig(topic, QUEUES, QUEUES))
        self.known.add(topic)

    @rule()
    def lose_the_topics(self) -> None:
        """Somebody has removed `topics.json`: HA-BT-18 brings back the topics that show messages."""
        for path in (self.directory / "config").glob("topics.json*"):
            path.unlink()
        self.restart(forgets=False)

    @rule(forgets=st.booleans())
    def restart(self, forgets: bool) -> None:
        """HA-BT-80 "also after a restart". forgets: as a slave of classic."""
        self.resources.close()
        self.start(forgets=forgets)

    @precondition(lambda self: any(self.stored.values()))
    @rule(data=st.data(), others=st.lists(st.tuples(topics, queue_ids), max_size=4))
    def lose_the_end(self, data: st.DataObject, others: list[tuple[str, int]]) -> None:
        """HA-BT-80 "MUST NOT hide what is stored in its place": a crash took the last messages.

        others: what another program than a broker has put before the broker starts.
        """
        self.lose_from(data.draw(st.sampled_from(sorted(self.bodies)), label="cut"), others)

    def lose_from(self, cut: int, others: Sequence[tuple[str, int]] = ()) -> None:
        self.resources.close()
        for path in (self.directory / "commitlog").iterdir():
            with path.open("r+b") as file:
                size = path.stat().st_size
                file.truncate(cut - int(path.name))
                file.truncate(size)
        for name in ("consumequeue", "index"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        (self.directory / "checkpoint").unlink()
        (self.directory / "abort").touch()
        for topic, stored in self.stored.items():
            self.stored[topic] = [place for place in stored if place[0] < cut]
        self.bodies = {offset: body for offset, body in self.bodies.items() if offset < cut}
        if others:
            with MessageStore.open(self.directory, OPTIONS) as store:
                self.deleted = model.open_log(self.deleted, store.max_offset)
                for topic, queue_id in others:
                    self.put_by(store, topic, queue_id)
            # It notes the topics of its store (HA-ST-52), deleted ones too: it does not know of deletions.
            self.known |= {topic for topic, stored in self.stored.items() if stored}
        self.start(forgets=False)

    @invariant()
    def shows_what_the_model_shows(self) -> None:
        store = self.tables.store
        assert store.wait_for_dispatch()
        assert self.tables.deleted.table.entries == self.deleted
        file = self.directory / "config" / "deletedTopics.json"
        saved = json.loads(file.read_bytes())["deletedTopicTable"] if file.exists() else {}
        assert {topic: fields["logOffset"] for topic, fields in saved.items()} == self.deleted
        nums = {topic: model.queue_nums(self.deleted, topic, stored) for topic, stored in self.stored.items()}
        assert self.tables.queues.queue_nums() == {topic: count for topic, count in nums.items() if count}
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self.check_queue(topic, queue_id)

    def check_queue(self, topic: str, queue_id: int) -> None:
        bodies = [self.bodies[offset] for offset, of_queue in self.stored[topic] if of_queue == queue_id]
        first = model.first_visible(self.deleted, topic, self.stored[topic], queue_id)
        assert self.tables.queues.first_visible_in_queue(topic, queue_id) == first
        assert self.tables.queues.min_offset_in_queue(topic, queue_id) == (first if bodies else -1)
        assert self.tables.queues.max_offset_in_queue(topic, queue_id) == len(bodies)
        found = self.pulls.pull(topic, queue_id, first, 100, None)
        assert [decode(view).body for view in records(found.buffers)] == bodies[first:]
        if first:  # a consumer with the offset of a hidden message is sent to the first that is not
            below = self.pulls.pull(topic, queue_id, first - 1, 100, None)
            assert (below.status, below.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first)
        # HA-BT-31 "the offset behind them stands for the 0"
        fields = {"consumerGroup": "g", "topic": topic, "queueId": str(queue_id)}
        assert self.tables.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext_fields["offset"] == str(first)

    def teardown(self) -> None:
        if hasattr(self, "resources"):
            self.resources.close()
            shutil.rmtree(self.directory, ignore_errors=True)


def entry(offset: int, queue_id: int, number: int) -> DispatchRequest:
    return DispatchRequest(b"orders", queue_id, offset, 100, 0, 1, number, "", None, 0, 0)


def records(buffers: tuple[memoryview, ...]) -> list[memoryview]:
    """The records in what a pull gives."""
    found = []
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            size = int.from_bytes(buffer[at : at + 4], "big")
            found.append(buffer[at : at + size])
            at += size
    return found


TestDeletedTopics = DeletedTopicsMachine.TestCase
TestDeletedTopics.settings = machine_settings(40, steps=20)


def test_a_queue_that_was_made_anew_elsewhere_hides_nothing(tmp_path: Path) -> None:
    """A Java broker that had the directory meanwhile has deleted the queues: numbers begin at 0 again, behind the deletion."""
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        tables.put("orders", 0, 3)
        tables.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        end = tables.store.max_offset
    with MessageStore.open(tmp_path, OPTIONS) as store:
        queue = store.queues.get(b"orders", 0)
        assert queue is not None
        queue.destroy()
        queue.put(end, 100, 0, 0)
        store.queues.hide_before(b"orders", end)
        assert (queue.first_visible, queue.min_offset, queue.max_offset) == (0, 0, 1)
        queue.destroy()


@pytest.mark.parametrize("others", [[], [("orders", 0)], [("orders", 0)] * 3])
def test_a_cut_log_hides_nothing_that_takes_the_place_of_hidden_messages(others: list[tuple[str, int]]) -> None:
    """HA-BT-80 "MUST NOT hide what is stored in its place", by a broker or by another program that has the store before it."""
    machine = DeletedTopicsMachine()
    machine.begin()
    try:
        for _ in range(3):
            machine.put("orders", 0, True)
        machine.delete("orders")
        machine.lose_from(machine.stored["orders"][1][0], others)
        machine.shows_what_the_model_shows()
        machine.put("orders", 0, True)
        machine.put("orders", 0, True)
        machine.shows_what_the_model_shows()
        machine.restart(forgets=False)
        machine.shows_what_the_model_shows()
    finally:
        machine.teardown()


def test_messages_that_are_dispatched_after_the_deletion_are_hidden_too(tmp_path: Path) -> None:
    """HA-BT-80: those that were stored before it, of queues that are there and of queues that are new; no file is deleted."""
    table = ConsumeQueueTable(tmp_path, 60, writable=True)
    table.put([entry(0, 0, 0)])
    table.hide_before(b"orders", 450)
    places = [(100, 0, 1), (200, 0, 2), (300, 1, 0), (400, 0, 3), (500, 0, 4), (600, 1, 1), (700, 2, 0)]
    table.put([entry(*place) for place in places])
    queues = {queue_id: queue for (_, queue_id), queue in table}
    assert {queue_id: queue.min_offset for queue_id, queue in queues.items()} == {0: 4, 1: 1, 2: 0}
    assert not any(queue.is_hidden for queue in queues.values())
    assert table.delete_expired(0) == 0
    assert len(list((tmp_path / "consumequeue" / "orders" / "0").iterdir())) == 2
    table.truncate_dirty(150)
    assert (queues[0].first_visible, queues[0].max_offset, queues[0].is_hidden) == (2, 2, True)
    table.close()


VALUES = [0, 1, 2**63 - 1, 2**63, -1, 1.5, 1.0, "7", True, None, [], {}]
FIELDS = [{}, {"offset": 7}, {"logoffset": 7}, *({"logOffset": value} for value in VALUES)]


@pytest.mark.parametrize("fields", FIELDS, ids=json.dumps)
def test_a_deletion_without_its_offset_damages_the_file(tmp_path: Path, fields: dict[str, object]) -> None:
    """HA-BT-77 "or lacks a `logOffset`": the file, the topic, what was found and what was expected are named."""
    written = {"dataVersion": {"counter": 2, "timestamp": 1}, "deletedTopicTable": {"a": {"logOffset": 5}, "orders": fields}}
    expected = model.read_entry(fields)
    with ExitStack() as resources:
        deleted = BrokerTables(tmp_path, resources).deleted
        file = write(tmp_path, json.dumps(written))
        if expected is not None:
            deleted.table.load()
            assert deleted.table.entries == {"a": 5, "orders": expected}
            return
        with pytest.raises(ConfigInvalid) as raised:
            deleted.load()
    value = fields.get("logOffset")
    found = "nothing" if value is None else repr(value) if isinstance(value, str) else json.dumps(value)
    within = "0 to 9223372036854775807" if type(value) is int else "a whole number"
    assert str(raised.value).startswith(
        f"{file}: orders: logOffset: found {found}, expected {within}; no deletedTopics.json.bak "
    )
    assert file.read_text() == json.dumps(written)


def test_the_copy_is_read_for_a_deletion_without_its_offset(tmp_path: Path) -> None:
    """HA-BT-77 "MUST take a file of `config/` for damaged (HA-BT-5)": the messages that the copy hides stay hidden."""
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        tables.put("orders", 0, 3)
        end = tables.store.max_offset
    file = write(tmp_path, '{"deletedTopicTable":{"orders":{}}}')
    file.with_name("deletedTopics.json.bak").write_text(json.dumps({"deletedTopicTable": {"orders": {"logOffset": end}}}))
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        tables.deleted.load()
        assert tables.queues.first_visible_in_queue("orders", 0) == 3


@pytest.mark.parametrize("content", ['{"deletedTopicTable":{"a":[]}}', "[]", '{"deletedTopicTable":{"a/b":{"logOffset":1}}}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    """HA-BT-77 "MUST take a file of `config/` for damaged"."""
    write(tmp_path, content)
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        with pytest.raises(ConfigInvalid, match=r"deletedTopics\.json: "):
            tables.deleted.load()


def write(directory: Path, content: str) -> Path:
    """Write the file of the deleted topics."""
    file = directory / "config" / "deletedTopics.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    return file
