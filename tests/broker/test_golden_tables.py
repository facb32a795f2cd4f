"""The tables that releases of RocketMQ wrote are read, and what is written from them means the same. HA-BT-7, HA-BT-8."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.golden import VECTORS
from rocketmq_ha.fuzz.golden import extract
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import GROUP_MAX_LENGTH, SubscriptionGroupConfig, SubscriptionGroupManager, group_fields
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager, topic_fields
from rocketmq_ha.impl.broker.topic_validator import TOPIC_MAX_LENGTH
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.reference import broker_tables
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

SETTINGS = TableSettings(broker_name="golden-a", broker_cluster_name="GoldenCluster")
TOPIC_FIELDS = {"topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order"}
GROUP_FIELDS = {
    *("groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "retryQueueNums", "retryMaxTimes"),
    *("brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable"),
}


@pytest.fixture
def store(golden: Path, tmp_path: Path) -> Path:
    """A store with the release's `config/`, which a test may change."""
    shutil.copytree(golden / "config", tmp_path / "config")
    return tmp_path


def content(store: Path, name: str) -> Any:
    return body_json.read((store / "config" / name).read_bytes())


def test_topics_are_read_and_written_back(store: Path) -> None:
    """HA-BT-7 "MUST have the fields that a Java broker reads"; HA-MD-22 "MUST have `dataVersion` and `topicConfigTable`"."""
    before = content(store, "topics.json")
    topics = TopicConfigManager(store, SETTINGS, lambda: 0)
    assert topics.load()
    version = {"counter": before["dataVersion"]["counter"], "timestamp": before["dataVersion"]["timestamp"]}
    answer = json.loads(topics.encode())
    assert answer["dataVersion"] == version == topics.data_version.fields()
    assert {name: answer["topicConfigTable"][name] for name in before["topicConfigTable"]} == before["topicConfigTable"]
    assert all(fields.keys() >= TOPIC_FIELDS for fields in answer["topicConfigTable"].values())
    orders = topics.select_topic_config("GoldenOrders")
    assert orders is not None
    assert (orders.read_queue_nums, orders.write_queue_nums, orders.perm) == (4, 4, 6)
    assert topics.persist()
    assert content(store, "topics.json") == answer
    assert body_json.read((store / "config" / "topics.json.bak").read_bytes()) == before


def test_groups_are_read_and_written_back(store: Path) -> None:
    """HA-BT-8 "SHOULD keep the fields"; HA-MD-25 "MUST have `subscriptionGroupTable` and `dataVersion`"."""
    before = content(store, "subscriptionGroup.json")
    groups = SubscriptionGroupManager(store, SETTINGS, lambda: 0)
    assert groups.load()
    answer = json.loads(groups.encode())
    assert {name: answer["subscriptionGroupTable"][name] for name in before["subscriptionGroupTable"]} == before[
        "subscriptionGroupTable"
    ]
    assert all(fields.keys() >= GROUP_FIELDS for fields in answer["subscriptionGroupTable"].values())
    assert "GoldenReaders" in groups.subscription_group_table
    assert groups.persist()
    assert content(store, "subscriptionGroup.json") == answer


def test_consumer_offsets_are_read_and_written_back(store: Path) -> None:
    """HA-MD-23 "MUST have `offsetTable`, from `topic@group` to a table"; the keys that fastjson wrote have no quotes."""
    before = content(store, "consumerOffset.json")["offsetTable"]
    offsets = ConsumerOffsetManager(store, SETTINGS, 0)
    assert offsets.load()
    assert json.loads(offsets.encode()) == {"offsetTable": before}
    readers = before["GoldenOrders@GoldenReaders"]
    assert offsets.query_offset("GoldenReaders", "GoldenOrders", 1) == readers["1"]
    assert offsets.which_topic_by_consumer("GoldenReaders") == ["%RETRY%GoldenReaders", "GoldenOrders"]
    assert offsets.commit_offset("here", "GoldenReaders", "GoldenOrders", 1, 5)
    assert offsets.persist()
    assert content(store, "consumerOffset.json") == {
        "offsetTable": {**before, "GoldenOrders@GoldenReaders": {**readers, "1": 5}}
    }


# What brokers of 5.x begin with besides the topics and groups of the chapter (HA-BT-10, HA-BT-20).
TOPICS_OF_5_X = {
    *("rmq_sys_REVIVE_LOG_GoldenCluster", "rmq_sys_SYNC_BROKER_MEMBER_golden-a", "rmq_sys_wheel_timer"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
}
GROUPS_OF_5_X = {"CID_RMQ_SYS_TRANS"}


def test_a_broker_of_each_release_begins_with_these_topics_and_groups(golden: Path, vectors: Path) -> None:
    """HA-BT-10 "MUST begin with the topics of the table below"; HA-BT-20 "MUST begin with the groups"."""
    is_5_x = not vectors.name.startswith("rocketmq-4.")
    begun = broker_tables.begin(broker_tables.Settings("golden-a", "GoldenCluster"), 0)
    topics = body_json.read((golden / "config" / "topics.json").read_bytes())["topicConfigTable"]
    for name, topic in begun.topics.items():
        found = topics[name]
        numbers = found["readQueueNums"], found["writeQueueNums"], found["perm"]
        assert numbers == (topic.readQueueNums, topic.writeQueueNums, topic.perm), name
    groups = body_json.read((golden / "config" / "subscriptionGroup.json").read_bytes())["subscriptionGroupTable"]
    own = {"GoldenReaders", "GoldenRecorder", "GoldenTagged"}  # those of the clients that made the store
    assert groups.keys() - own == begun.groups.keys() | (GROUPS_OF_5_X if is_5_x else set())
    assert topics.keys() >= TOPICS_OF_5_X if is_5_x else not topics.keys() & TOPICS_OF_5_X - {"RMQ_SYS_TRANS_HALF_TOPIC"}


def test_the_versions_of_each_release_have_these_parts(golden: Path, vectors: Path) -> None:
    """HA-BT-1 "a DataVersion, a counter and a timestamp; that of consumer offsets has none". In 5.x it has one."""
    is_5_x = not vectors.name.startswith("rocketmq-4.")
    parts = {"counter", "timestamp"} | ({"stateVersion"} if is_5_x else set())
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        version = body_json.read((golden / "config" / name).read_bytes()).get("dataVersion")
        if name == "consumerOffset.json" and not is_5_x:
            assert version is None
        else:
            assert version.keys() == parts
            assert version.get("stateVersion", 0) == 0


def test_a_file_of_our_own_has_the_fields_of_a_file_of_4_9_8(tmp_path: Path) -> None:
    """HA-BT-7: no field is missing, and none is there that the release does not have."""
    extract(VECTORS / "rocketmq-4.9.8" / "store.tar.xz", tmp_path / "theirs")
    ours = tmp_path / "ours"
    assert TopicConfigManager(ours, SETTINGS, lambda: 0).persist()
    assert SubscriptionGroupManager(ours, SETTINGS, lambda: 0).persist()
    for name, table in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        found, expected = content(ours, name), content(tmp_path / "theirs", name)
        assert found.keys() == expected.keys()
        assert found["dataVersion"].keys() == expected["dataVersion"].keys()
        names = found[table].keys() & expected[table].keys()
        assert len(names) >= 7  # the system's own, which both begin with
        assert {key: found[table][key] for key in names} == {key: expected[table][key] for key in names}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("topics.json", "[]", "no topicConfigTable in it, expected one"),
        ("topics.json", '{"topicConfigTable":[]}', "no topicConfigTable in it, expected one"),
        ("topics.json", '{"topicConfigTable":{"a":1}}', "a: found 1, expected an object"),
        ("topics.json", '{"topicConfigTable":{"a":{"perm":"6"}}}', "a: perm: found '6', expected a whole number"),
        ("topics.json", '{"topicConfigTable":{"a":{"order":1}}}', "a: order: found 1, expected true or false"),
        ("topics.json", '{"topicConfigTable":{"a":{"topicFilterType":1}}}', "a: topicFilterType: found 1, expected a text"),
        ("topics.json", '{"topicConfigTable":{"a":{}},"dataVersion":1}', "dataVersion: found 1, expected an object"),
        (
            "topics.json",
            '{"topicConfigTable":{},"dataVersion":{"counter":"1"}}',
            "dataVersion: found '1', expected whole numbers",
        ),
        (
            "topics.json",
            '{"topicConfigTable":{"../../x":{}}}',
            "found the name '../../x', expected 1 to 262 characters that can",
        ),
        (
            "topics.json",
            '{"topicConfigTable":{"a":{"readQueueNums":-4}}}',
            "a: readQueueNums: found -4, expected 0 to 2147483647",
        ),
        (
            "topics.json",
            '{"topicConfigTable":{"a":{"readQueueNums":99999999999}}}',
            "a: readQueueNums: found 99999999999, expected 0 to 2147483647",
        ),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"..":{}}}', "found the name '..', expected 1 to 262 characters"),
        (
            "subscriptionGroup.json",
            '{"subscriptionGroupTable":{"g":{"brokerId":null}}}',
            "g: brokerId: found nothing, expected",
        ),
        ("consumerOffset.json", '{"offsetTable":{"t@g":[]}}', "t@g: found [], expected an object"),
        ("consumerOffset.json", '{"offsetTable":{"t@g":{"x":1}}}', "t@g: found the queue 'x', expected an i32"),
        ("consumerOffset.json", '{"offsetTable":{"t@g":{"1_0":1}}}', "t@g: found the queue '1_0', expected an i32"),
        ("consumerOffset.json", '{"offsetTable":{"t@g":{"0":"1"}}}', "t@g: queue 0: found the offset '1', expected an i64"),
        (
            "consumerOffset.json",
            '{"offsetTable":{"t@g":{"7":9223372036854775808}}}',
            "t@g: queue 7: found the offset 9223372036854775808, expected an i64",
        ),
        ("consumerOffset.json", '{"offsetTable":{"t@g":{0:1}', "the file: found"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_its_name(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / name
    path.write_text(text)
    table = {
        "topics.json": TopicConfigManager(tmp_path, SETTINGS, lambda: 0),
        "subscriptionGroup.json": SubscriptionGroupManager(tmp_path, SETTINGS, lambda: 0),
        "consumerOffset.json": ConsumerOffsetManager(tmp_path, SETTINGS, 0),
    }[name]
    before = table.encode()
    with pytest.raises(ConfigInvalid) as raised:
        table.load()
    assert str(raised.value).startswith(f"{path}: {why}")
    assert table.encode() == before
    assert path.read_text() == text


I32_MAX, I64_MAX = (1 << 31) - 1, (1 << 63) - 1


@pytest.mark.parametrize(
    "number",
    [*(sign * most + more for most in (I32_MAX, I64_MAX) for sign, more in ((1, 0), (1, 1), (-1, -1), (-1, -2))), -1, 0],
)
@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(("topics.json", field) for field in ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")),
        ("subscriptionGroup.json", "retryQueueNums"),
        ("subscriptionGroup.json", "retryMaxTimes"),
        ("subscriptionGroup.json", "brokerId"),
        ("subscriptionGroup.json", "whichBrokerWhenConsumeSlowly"),
        ("consumerOffset.json", "offset"),
        ("consumerOffset.json", "queue id"),
    ],
)
def test_a_number_of_a_file_is_within_its_type(tmp_path: Path, name: str, field: str, number: int) -> None:
    """HA-BT-77 "MUST take a file of `config/` for damaged (HA-BT-5) that has a value outside the table below"."""
    table, text = {
        "topics.json": (TopicConfigManager(tmp_path, SETTINGS, lambda: 0), {"topicConfigTable": {"a": {field: number}}}),
        "subscriptionGroup.json": (
            SubscriptionGroupManager(tmp_path, SETTINGS, lambda: 0),
            {"subscriptionGroupTable": {"a": {field: number}}},
        ),
        "consumerOffset.json": (
            ConsumerOffsetManager(tmp_path, SETTINGS, 0),
            {"offsetTable": {"t@a": {number: 5} if field == "queue id" else {0: number}}},
        ),
    }[name]
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(json.dumps(text))
    if broker_tables.is_number_in_file(field, number):
        assert table.load()
        assert str(number).encode() in table.encode()
    else:
        with pytest.raises(ConfigInvalid, match=f"found .*{number}.*, expected "):
            table.load()


@pytest.mark.parametrize("name", ["", "a", "a/b", "/", ".", "..", "...", "a\0b", "n" * 262, "n" * 263, "a.b c", "ü"])
def test_a_name_of_a_file_can_name_a_directory(tmp_path: Path, name: str) -> None:
    """HA-BT-77 "that has a value outside the table below": 4.9.8 makes retry topics of whatever a heartbeat has."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {name: {}}}))
    topics = TopicConfigManager(tmp_path, SETTINGS, lambda: 0)
    if broker_tables.is_name_in_file(name):
        assert topics.load()
        assert topics.select_topic_config(name) is not None
    else:
        with pytest.raises(ConfigInvalid, match=r"topics\.json: found the name .*, expected 1 to 262 characters"):
            topics.load()


def test_as_many_topics_and_groups_as_may_be_fit_into_a_frame() -> None:
    """HA-BT-60 "MUST bound each of its tables": the answers to 21 and 201 with the longest entries; 100,000 B for all else."""
    least, settings = -(1 << 31), TableSettings()
    most = (1 << 31) - 1
    topic = TopicConfig("t" * TOPIC_MAX_LENGTH, most, most, least, "MULTI_TAG", least, order=False)
    group = SubscriptionGroupConfig("g" * GROUP_MAX_LENGTH, False, False, False, least, least, -(1 << 63), -(1 << 63), False)
    for name, fields, count in (
        (topic.topic_name, topic_fields(topic), settings.max_topics),
        (group.group_name, group_fields(group), settings.max_groups),
    ):
        entry = body_json.write({name: fields})[1:-1] + b","
        assert REMOTING_FRAME_MAX // 2 < count * len(entry) <= REMOTING_FRAME_MAX - 100_000
