"""Topics, groups and consumer offsets of the implementation equal those of the model, whatever is asked in whatever order.

Restarts, a disk that is full and a clock that steps are among the steps. After each step the tables, the answers with whole
tables, the files and what is to be registered are compared. HA-BT-1 to HA-BT-8, HA-BT-10 to HA-BT-24, HA-BT-30 to HA-BT-35.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kit.examples import machine_settings
from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.reference import broker_tables as model
from rocketmq_ha.reference import consumer_offsets as model_offsets

NOWHERE: Final = Path("/nowhere")
LONG: Final = "%RETRY%" + "g" * 121  # 128 characters
NAMES: Final = ["a", "b", "%RETRY%g", "TBW102", "DefaultCluster", "BenchmarkTest"]
GROUPS: Final = ["g", "h", "CID_RMQ_SYS_x", "SELF_TEST_C_GROUP"]
KEYS: Final = [*GROUPS, "g@h", "", "ü"]

names = st.sampled_from(NAMES)
groups = st.sampled_from(GROUPS)
nums = st.sampled_from([-1, 0, 1, 4, 8, 16, 2000])
counts = st.sampled_from([0, 1, 4, 8, 16, 2000])  # what request 17 may ask for
booleans = st.booleans()


def fits(change: Callable[[], bool]) -> bool:
    """Whether no bound refuses a change: it says so, or that a name is too long."""
    try:
        return change()
    except RequestInvalid:
        return False


class TablesMachine(RuleBasedStateMachine):
    """The implementation's three tables and the model's, side by side."""

    @initialize(
        auto_topic=booleans, auto_group=booleans, cluster=booleans, trace=booleans, max_size=st.sampled_from([16_000_000, 96])
    )
    def begin(self, auto_topic: bool, auto_group: bool, cluster: bool, trace: bool, max_size: int) -> None:
        self.settings = TableSettings(
            auto_create_topic_enable=auto_topic, auto_create_subscription_group=auto_group, cluster_topic_enable=cluster,
            trace_topic_enable=trace, max_topics=12, max_groups=9, max_offset_entries=4,
            max_offset_key_length=17, max_offset_size=max_size,
        )  # fmt: skip
        self.model_settings = model.Settings(
            auto_create_topic=auto_topic, auto_create_group=auto_group, cluster_topic=cluster,
            trace_topic="RMQ_SYS_TRACE_TOPIC" if trace else None, max_topics=12, max_groups=9, max_offset_entries=4,
            max_offset_key_length=17, max_offset_size=max_size,
        )  # fmt: skip
        self.files = [MemoryFile(), MemoryFile(), MemoryFile()]
        self.wall_ms, self.now_ms = 1_700_000_000_000, 0
        self.saved_topics: model.Tables | None = None
        self.saved_groups: model.Tables | None = None
        self.saved_offsets: Mapping[model_offsets.Key, int] = {}
        self.start()

    def start(self) -> None:
        """HA-BT-10 "MUST begin with the topics of the table below"; HA-BT-20 "MUST begin with the groups"; both read files."""
        topics, groups_file, offsets = self.files
        self.topics = TopicConfigManager(NOWHERE, self.settings, lambda: self.wall_ms, topics)
        self.groups = SubscriptionGroupManager(NOWHERE, self.settings, lambda: self.wall_ms, groups_file)
        self.offsets = ConsumerOffsetManager(NOWHERE, self.settings, self.now_ms, offsets)
        assert self.topics.load() == (self.saved_topics is not None)
        assert self.groups.load() == (self.saved_groups is not None)
        self.offsets.load()
        self.registered: list[str] = []
        self.topics.on_change = lambda changed: self.registered.extend(config.topic_name for config in changed)
        tables = model.begin(self.model_settings, self.wall_ms)
        if (saved := self.saved_topics) is not None:
            tables = model.replace(tables, topics={**tables.topics, **saved.topics}, topic_version=saved.topic_version)
        if (saved := self.saved_groups) is not None:
            tables = model.replace(tables, groups={**tables.groups, **saved.groups}, group_version=saved.group_version)
        self.tables = tables
        self.model_offsets = model_offsets.start(self.model_settings, self.saved_offsets, self.now_ms)

    def moved(self, tables: model.Tables) -> None:
        """Take the model's next state, and compare what is to be registered. HA-BT-13."""
        before, self.tables = self.tables, tables
        assert sorted(self.registered) == sorted(tables.registered)
        self.registered.clear()
        if tables.topic_version != before.topic_version and not self.files[0].is_full:
            self.saved_topics = tables
        if tables.group_version != before.group_version and not self.files[1].is_full:
            self.saved_groups = tables

    # --- Topics ------------------------------------------------------------------------------------------------------

    @rule(name=names, default=names, client_nums=nums, flag=st.sampled_from([0, 3]))
    def message(self, name: str, default: str, client_nums: int, flag: int) -> None:
        """HA-BT-12 "MUST create it after the message's default topic"."""
        found = self.topics.create_topic_in_send_message_method(name, default, "peer", client_nums, flag)
        self.moved(model.create_topic_for_message(self.tables, name, default, client_nums, flag, self.wall_ms))
        assert (found is not None) == (name in self.tables.topics)
        assert found == self.topics.select_topic_config(name)

    @rule(name=st.sampled_from([*NAMES, LONG, LONG[:-1], "%RETRY%a.b"]), client_nums=nums, perm=st.integers(0, 7))
    def retry_topic(self, name: str, client_nums: int, perm: int) -> None:
        """HA-BT-78 "whose name breaks HA-BT-14 MUST NOT be created"."""
        found = self.topics.create_topic_in_send_message_back_method(name, client_nums, perm, 0)
        self.moved(model.create_topic_for_group(self.tables, name, client_nums, perm, 0, self.wall_ms))
        assert (found is not None) == (name in self.tables.topics)

    @rule(name=names, read=counts, write=counts, perm=st.integers(0, 7), unknown=booleans)
    def update_topic(self, name: str, read: int, write: int, perm: int, unknown: bool) -> None:
        """HA-BT-17 "MUST replace all settings of the topic"; a field that is not known stays in the file (HA-BT-8)."""
        other = {"attributes": {"a": "b"}} if unknown else {}
        done = self.topics.update_topic_config(TopicConfig(name, read, write, perm, unknown=other))
        self.moved(
            model.update_topic(self.tables, name, model.Topic(read, write, perm, other=tuple(other.items())), self.wall_ms)
        )
        assert done == (name in self.tables.topics)

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        """HA-BT-15 "MUST be gone from the table at once"."""
        was_there = name in self.tables.topics
        assert self.topics.delete_topic_config(name) == was_there
        self.moved(model.delete_topic(self.tables, name, self.wall_ms))

    @rule(ordered=st.frozensets(names, max_size=2))
    def order_topics(self, ordered: frozenset[str]) -> None:
        """HA-BT-16 "MUST have `order` true, and all others false"."""
        self.topics.update_order_topic_config(ordered)
        self.moved(model.order_topics(self.tables, ordered, self.wall_ms))
        assert {name for name in self.tables.topics if self.topics.is_order_topic(name)} == ordered & set(self.tables.topics)

    @rule(queues=st.dictionaries(names, st.integers(1, 20), max_size=3))
    def note_queues(self, queues: dict[str, int]) -> None:
        """HA-BT-18 "MUST add the topics of its consume queues"."""
        self.topics.note_queues(queues)
        self.moved(model.note_queues(self.tables, queues, self.wall_ms))

    # --- Groups ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(KEYS))
    def find_group(self, name: str) -> None:
        """HA-BT-21 "MUST be created with the defaults"; HA-BT-22 "MUST be refused with SYSTEM_ERROR"."""
        found = None
        with suppress(RequestInvalid):
            found = self.groups.find_subscription_group_config(name)
        self.moved(model.find_group(model.replace(self.tables, registered=()), name, self.wall_ms))
        assert (found is not None) == (name in self.tables.groups)

    @rule(name=groups, consume=booleans, times=nums)
    def update_group(self, name: str, consume: bool, times: int) -> None:
        """HA-BT-23 "MUST replace all settings of the group"."""
        config = SubscriptionGroupConfig(
            name, consume_enable=consume, retry_max_times=times, which_broker_when_consume_slowly=2
        )
        done = self.groups.update_subscription_group_config(config)
        group = model.Group(consumeEnable=consume, retryMaxTimes=times, whichBrokerWhenConsumeSlowly=2)
        self.moved(model.update_group(model.replace(self.tables, registered=()), name, group, self.wall_ms))
        assert done == (name in self.tables.groups)

    @rule(name=groups, removes_offsets=booleans)
    def delete_group(self, name: str, removes_offsets: bool) -> None:
        """HA-BT-24 "MUST delete the group, and its offsets in all topics"."""
        assert self.groups.delete_subscription_group_config(name) == (name in self.tables.groups)
        self.moved(model.delete_group(model.replace(self.tables, registered=()), name, self.wall_ms))
        if removes_offsets:
            self.offsets.remove_offset(name)
            self.model_offsets = model_offsets.remove_group(self.model_offsets, name)

    # --- Offsets -----------------------------------------------------------------------------------------------------

    @rule(topic=names, group=st.sampled_from(KEYS), queue_id=st.integers(0, 2), offset=st.integers(-2, 9))
    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """HA-BT-30 "MUST store the offset whatever it is"; HA-BT-60 "refuse with SYSTEM_ERROR what does not fit"."""
        done = fits(lambda: self.offsets.commit_offset("peer", group, topic, queue_id, offset))
        after = model_offsets.commit(self.model_offsets, topic, group, queue_id, offset)
        assert done == (after is not None)
        self.model_offsets = after or self.model_offsets

    @rule(topic=names, source=groups, destination=groups)
    def clone(self, topic: str, source: str, destination: str) -> None:
        """HA-BT-35 "MUST copy the offsets of one group in a topic to another group"."""
        done = fits(lambda: self.offsets.clone_offset(source, destination, topic))
        after = model_offsets.clone(self.model_offsets, topic, source, destination)
        assert done == (after is not None)
        self.model_offsets = after or self.model_offsets

    @rule(group=st.sampled_from(KEYS), topic=names)
    def look_up(self, group: str, topic: str) -> None:
        """HA-BT-32 "MUST be kept under `topic@group`"."""
        assert self.offsets.which_topic_by_consumer(group) == model_offsets.topics_of(self.model_offsets, group)
        assert self.offsets.which_group_by_topic(topic) == model_offsets.groups_of(self.model_offsets, topic)

    # --- Time, the disk, restarts ------------------------------------------------------------------------------------

    @rule(passed_ms=st.sampled_from([0, 1, 4_999, 5_000, 9_999, 10_000]), wall_step=st.sampled_from([0, 5_000, -3_600_000]))
    def tick(self, passed_ms: int, wall_step: int) -> None:
        """HA-BT-33 "MUST be written 10 s after the start, then every `flushConsumerOffsetInterval` (5 s)"."""
        self.now_ms += passed_ms
        self.wall_ms += wall_step
        for table, file in ((self.topics, self.files[0]), (self.groups, self.files[1])):
            before = file.writes
            table.on_tick(self.now_ms)
            if file.writes > before:
                assert not file.is_unsaved
                self.saved_topics, self.saved_groups = (
                    (self.tables, self.saved_groups) if table is self.topics else (self.saved_topics, self.tables)
                )
        self.offsets.on_tick(self.now_ms)
        self.model_offsets = model_offsets.on_tick(self.model_offsets, self.now_ms)
        if not self.files[2].is_full:
            self.saved_offsets = self.model_offsets.on_disk

    @rule(which=st.integers(0, 2), is_full=booleans)
    def fill_disk(self, which: int, is_full: bool) -> None:
        """HA-BT-6 "MUST keep the change in memory and go on"."""
        self.files[which].is_full = is_full

    @rule(is_clean=booleans)
    @precondition(lambda self: not self.files[2].is_full)
    def restart(self, is_clean: bool) -> None:
        """A kill loses what was not written; a clean stop writes the offsets. HA-BT-34 "stay for ever"."""
        if is_clean:
            self.offsets.persist()
            self.saved_offsets = self.model_offsets.in_memory
        self.start()

    # --- What must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def tables_are_equal(self) -> None:
        """HA-BT-1 "MUST each have a DataVersion"; HA-BT-2 "MUST count its version on by one, and set the timestamp"."""
        assert json.loads(self.topics.encode()) == model.topics_object(self.tables)
        assert json.loads(self.groups.encode()) == model.groups_object(self.tables)
        assert json.loads(self.offsets.encode()) == _text_keys(self.model_offsets.in_memory)

    @invariant()
    def the_answer_to_43_is_within_its_bound(self) -> None:
        """HA-BT-76 "MUST refuse an offset of another queue that would make a table of more than"."""
        assert self.offsets.encoded_size == model_offsets.greatest_size(self.model_offsets.in_memory)
        assert len(self.offsets.encode()) <= self.offsets.encoded_size
        assert self.offsets.encoded_size <= self.settings.max_offset_size

    @invariant()
    def files_are_equal(self) -> None:
        """HA-BT-3 "MUST be written to its file before the request that caused it is answered"."""
        topics, groups_file, offsets = (file.content for file in self.files)
        assert (topics is None) == (self.saved_topics is None)
        assert (groups_file is None) == (self.saved_groups is None)
        if topics is not None and self.saved_topics is not None:
            assert json.loads(topics) == model.topics_object(self.saved_topics)
        if groups_file is not None and self.saved_groups is not None:
            assert json.loads(groups_file) == model.groups_object(self.saved_groups)
        assert json.loads(offsets or b'{"offsetTable":{}}') == _text_keys(self.saved_offsets)


def _text_keys(table: Mapping[model_offsets.Key, int]) -> object:
    """The object of the offsets as JSON has it: its keys are text."""
    return json.loads(json.dumps(model_offsets.offsets_object(table)))


TestBrokerTables = TablesMachine.TestCase
TestBrokerTables.settings = machine_settings(60, steps=25)
