"""The requests that change topics and groups, and that ask for whole tables, settings and figures."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.reference import broker_tables as model

TOPIC = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "3",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "1",
    "order": "true",
}
CREATE, DELETE = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER
SET_GROUP, DELETE_GROUP = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.DELETE_SUBSCRIPTIONGROUP


def test_a_topic_is_created_registered_saved_and_deleted(tables: BrokerTables) -> None:
    """HA-BT-17 "MUST replace all settings of the topic, or create it"; HA-BT-16: the field `order` is not read."""
    registered: list[TopicConfig] = []
    tables.topics.on_change = registered.extend
    assert tables.ask(CREATE, TOPIC).code == ResponseCode.SUCCESS
    made = TopicConfig("orders", 4, 3, 6, "SINGLE_TAG", 1, order=False)
    assert tables.topics.select_topic_config("orders") == made
    assert registered == [made]  # HA-BT-13 "MUST be registered with the name servers at once"
    file = tables.store.store_dir / "config" / "topics.json"
    assert json.loads(file.read_bytes())["topicConfigTable"]["orders"]["writeQueueNums"] == 3  # HA-BT-3 "MUST be written"
    assert tables.ask(CREATE, {**TOPIC, "writeQueueNums": "9"}).code == ResponseCode.SUCCESS
    assert tables.json(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]["orders"]["writeQueueNums"] == 9
    assert tables.topics.data_version.counter == 2
    registered.clear()
    assert tables.ask(DELETE, {"topic": "orders"}).code == ResponseCode.SUCCESS
    assert tables.ask(DELETE, {"topic": "orders"}).code == ResponseCode.SUCCESS  # it is gone already
    assert tables.topics.select_topic_config("orders") is None
    assert registered == []  # HA-BT-15 "The name servers are not told"
    assert tables.topics.data_version.counter == 3


def test_the_settings_of_one_topic_are_those_of_the_table(tables: BrokerTables) -> None:
    """HA-BT-74 "the settings of a topic as request 21 has them"."""
    tables.ask(CREATE, TOPIC)
    one = tables.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
    assert json.loads(one.body) == tables.json(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]["orders"]
    assert tables.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "none"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_the_attributes_of_a_topic(tables: BrokerTables) -> None:
    """HA-BT-82 "MUST change the attributes of the topic as it says": in the table, in the file, and in what is registered."""
    registered: list[TopicConfig] = []
    tables.topics.on_change = registered.extend

    def ask(changes: str, **more: str) -> dict[str, str]:
        assert tables.ask(CREATE, {**TOPIC, **more, "attributes": changes}).code == ResponseCode.SUCCESS
        one = json.loads(tables.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"}).body)
        file = tables.store.store_dir / "config" / "topics.json"
        assert json.loads(file.read_bytes())["topicConfigTable"]["orders"] == one
        assert registered.pop().unknown == {"attributes": one["attributes"]}
        found: dict[str, str] = one["attributes"]
        return found

    whole = {"message.type": "FIFO", "queue.type": "SimpleCQ", "cleanup.policy": "DELETE", "reserve.time": "-1"}
    assert ask("+message.type=FIFO,+queue.type=SimpleCQ,+cleanup.policy=DELETE,+reserve.time=-1,") == whole
    assert ask("", writeQueueNums="9") == whole  # HA-BT-17 "the topic keeps its attributes"
    del whole["reserve.time"]
    assert ask("-reserve.time,+message.type=DELAY") == whole | {"message.type": "DELAY"}
    assert ask("-message.type") == {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            "message.type=FIFO",
            "field attributes: found 'message.type=FIFO', expected +name=value or -name, with commas between them",
        ),
        ("+message.type", "field attributes: found '+message.type', expected +name=value or -name, with commas between them"),
        (" ", "field attributes: found ' ', expected +name=value or -name, with commas between them"),
        (",+message.type=FIFO", "field attributes: found '', expected +name=value or -name, with commas between them"),
        (
            "+message.type=FIFO,-message.type",
            "field attributes: found 'message.type' twice, expected each name once",
        ),
        (
            "+priority=1",
            "field attributes: found 'priority', expected one of message.type, queue.type, cleanup.policy, reserve.time",
        ),
        (
            "+message.type=MIXED",
            "attribute message.type: found 'MIXED', expected one of UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION",
        ),
        ("+queue.type=BatchCQ", "attribute queue.type: found 'BatchCQ', expected SimpleCQ"),
        ("+cleanup.policy=COMPACTION", "attribute cleanup.policy: found 'COMPACTION', expected DELETE"),
        ("+reserve.time=3600", "attribute reserve.time: found '3600', expected -1"),
        (
            "+message.type=NORMAL,-reserve.time",
            "attribute reserve.time: found '-reserve.time', expected an attribute that the topic has",
        ),
    ],
)
def test_attributes_that_would_not_be_kept_are_refused(tables: BrokerTables, changes: str, said: str) -> None:
    """HA-BT-82 "MUST be refused with SYSTEM_ERROR, and change nothing"."""
    answer = tables.ask(CREATE, {**TOPIC, "attributes": changes})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, said)
    assert tables.topics.select_topic_config("orders") is None
    tables.ask(CREATE, {**TOPIC, "attributes": "+message.type=DELAY"})
    before = tables.topics.select_topic_config("orders")
    if not changes.startswith(("+queue", "+cleanup")):
        answer = tables.ask(CREATE, {**TOPIC, "attributes": changes})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, said)
    for late in ("+queue.type=SimpleCQ", "-queue.type", "+cleanup.policy=DELETE"):
        answer = tables.ask(CREATE, {**TOPIC, "readQueueNums": "9", "attributes": late})
        found = f"attribute {late[1:].split('=')[0]}: found {late!r}, expected no change after the topic was created"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, found)
    assert tables.topics.select_topic_config("orders") == before


def test_settings_that_are_not_known_stay_when_a_topic_changes(tables: BrokerTables) -> None:
    """HA-BT-8 "SHOULD keep the fields"."""
    later = {"attributes": {"a": "b", "queue.type": "BatchCQ"}, "of": [6]}
    tables.topics.update_topic_config(TopicConfig("orders", unknown=later))
    for more in ({}, {"attributes": "+message.type=FIFO"}):
        tables.ask(CREATE, {**TOPIC, **more})
        found = tables.json(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]["orders"]
        assert {name: found[name] for name in later} == later
        later["attributes"]["message.type"] = "FIFO"
    tables.topics.update_topic_config(TopicConfig("orders", unknown={"attributes": 7}))
    tables.ask(CREATE, {**TOPIC, "attributes": "+message.type=FIFO"})  # what is no map of texts says nothing
    found = tables.json(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]["orders"]
    assert found["attributes"] == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../a", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("é", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a" * 128, "The specified topic is longer than topic max length 127."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "The topic[RMQ_SYS_TRANS_HALF_TOPIC] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ("b", "The topic[b] is conflict with system topic."),
        ("c_REPLY_TOPIC", "The topic[c_REPLY_TOPIC] is conflict with system topic."),
    ],
)
@pytest.mark.parametrize("code", [CREATE, DELETE])
def test_a_name_that_no_topic_may_have_is_refused(tables: BrokerTables, code: int, name: str, remark: str) -> None:
    """HA-BT-11 "a system topic MUST be refused with SYSTEM_ERROR"; HA-BT-14 "MUST be refused with SYSTEM_ERROR"."""
    before = tables.topics.encode()
    answer = tables.ask(code, {**TOPIC, "topic": name})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert tables.topics.encode() == before
    begun = model.begin(model.Settings("b", "c"), 0)
    assert not model.is_topic_name(name) or model.is_system_topic(begun, name)


@pytest.mark.parametrize("name", ["a", "%RETRY%g", "a|b-c_d", "a" * 127, "RMQ_SYS", "TBW1022"])
def test_other_names_are_not(tables: BrokerTables, name: str) -> None:
    assert tables.ask(CREATE, {**TOPIC, "topic": name}).code == ResponseCode.SUCCESS
    begun = model.begin(model.Settings("b", "c"), 0)
    assert model.is_topic_name(name)
    assert not model.is_system_topic(begun, name)


@pytest.mark.parametrize(
    ("field", "value", "remark"),
    [
        ("readQueueNums", "-1", "field readQueueNums: found -1, expected 0 to 8192"),
        ("writeQueueNums", "8193", "field writeQueueNums: found 8193, expected 0 to 8192"),
        ("writeQueueNums", "2147483648", "field writeQueueNums: found '2147483648', expected an i32"),
        ("perm", "8", "field perm: found 8, expected 0 to 7"),
        ("perm", "x", "field perm: found 'x', expected an i32"),
        ("topicFilterType", "SQL", "field topicFilterType: found 'SQL', expected SINGLE_TAG or MULTI_TAG"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(tables: BrokerTables, field: str, value: str, remark: str) -> None:
    """HA-BT-60 "MUST bound each of its tables, and refuse with SYSTEM_ERROR what does not fit"."""
    answer = tables.ask(CREATE, {**TOPIC, field: value})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert tables.topics.select_topic_config("orders") is None


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("topic", "text"),
        ("readQueueNums", "an i32"),
        ("writeQueueNums", "an i32"),
        ("perm", "an i32"),
        ("topicFilterType", "text"),
    ],
)
def test_a_setting_that_is_missing_is_named(tables: BrokerTables, field: str, expected: str) -> None:
    answer = tables.ask(CREATE, {name: value for name, value in TOPIC.items() if name != field})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"field {field}: found nothing, expected {expected}"


def test_a_full_table_takes_no_more_topics_and_groups(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-60: what is there can still be changed."""
    tables = BrokerTables(tmp_path, resources, TableSettings("b", "c", max_topics=9, max_groups=8))
    assert tables.ask(CREATE, TOPIC).code == ResponseCode.SUCCESS
    assert tables.ask(CREATE, TOPIC).code == ResponseCode.SUCCESS
    answer = tables.ask(CREATE, {**TOPIC, "topic": "more"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no room for more than 9 topics")
    assert tables.ask(SET_GROUP, body={"groupName": "g"}).code == ResponseCode.SUCCESS
    answer = tables.ask(SET_GROUP, body={"groupName": "h"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no room for more than 8 groups")


def test_a_group_is_created_and_replaced(tables: BrokerTables) -> None:
    """HA-BT-23 "MUST replace all settings of the group that its body names, or create it"."""
    assert (
        tables.ask(SET_GROUP, body={"groupName": "g", "retryMaxTimes": 3, "consumeEnable": False}).code == ResponseCode.SUCCESS
    )
    assert tables.ask(SET_GROUP, body={"groupName": "g", "retryQueueNums": "2", "attributes": {}}).code == ResponseCode.SUCCESS
    [found] = [
        group for name, group in tables.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"].items()
        if name == "g"
    ]  # fmt: skip
    expected = model.groups_object(model.update_group(model.begin(model.Settings(), 0), "g", model.Group(retryQueueNums=2), 0))
    table = expected["subscriptionGroupTable"]
    assert isinstance(table, dict)
    assert found == table["g"]


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "body: found "),
        (b"[]", "body: found [], expected an object"),
        (b"{}", "groupName: found nothing, expected text"),
        (b'{"groupName":""}', "groupName: found '', expected 1 to 255"),
        (b'{"groupName":"a/b"}', "groupName: found 'a/b', expected 1 to 255"),
        (json.dumps({"groupName": "g" * 256}).encode(), "groupName: found 'ggg"),
        (b'{"groupName":"g","brokerId":1.5}', "brokerId: found 1.5, expected an i64"),
        (b'{"groupName":"g","retryMaxTimes":2147483648}', "retryMaxTimes: found 2147483648, expected an i32"),
        (b'{"groupName":"g","retryQueueNums":-1}', "retryQueueNums: found -1, expected 0 to 8192"),
        (b'{"groupName":"g","consumeEnable":[]}', "consumeEnable: found [], expected true or false"),
    ],
)
def test_a_body_that_names_no_group_is_refused(tables: BrokerTables, body: bytes, remark: str) -> None:
    """HA-BT-22 "MUST be refused with SYSTEM_ERROR"."""
    before = tables.groups.encode()
    answer = tables.ask(SET_GROUP, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(remark)
    assert tables.groups.encode() == before


@pytest.mark.parametrize(
    ("name", "is_name"), [("g" * 255, True), ("g" * 256, False), ("", False), ("a b", False), ("%|_-", True)]
)
def test_the_model_knows_the_same_names(tables: BrokerTables, name: str, is_name: bool) -> None:
    assert model.is_group_name(name) == is_name
    assert (tables.ask(SET_GROUP, body={"groupName": name}).code == ResponseCode.SUCCESS) == is_name


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
@pytest.mark.parametrize("removes", [True, False])
def test_a_group_is_deleted_with_its_offsets_if_asked(tables: BrokerTables, removes: bool, field: str) -> None:
    """HA-BT-24 "and its offsets in all topics if `removeOffset` or `cleanOffset` is true": the tools of 4.9.8 and of 5.x."""
    tables.ask(SET_GROUP, body={"groupName": "g"})
    tables.offsets.commit_offset("here", "g", "orders", 0, 7)
    tables.offsets.commit_offset("here", "gg", "orders", 0, 8)
    answer = tables.ask(DELETE_GROUP, {"groupName": "g", field: str(removes).lower()})
    assert answer.code == ResponseCode.SUCCESS
    assert "g" not in tables.groups.subscription_group_table
    assert tables.offsets.query_offset("g", "orders", 0) == (-1 if removes else 7)
    assert tables.offsets.query_offset("gg", "orders", 0) == 8


@pytest.mark.parametrize(
    ("code", "ext_fields", "body"),
    [
        (CREATE, TOPIC, None),
        (DELETE, {"topic": "orders"}, None),
        (SET_GROUP, {}, {"groupName": "g"}),
        (DELETE_GROUP, {"groupName": "SELF_TEST_C_GROUP"}, None),
    ],
)
def test_a_slave_refuses_changes(tables: BrokerTables, code: int, ext_fields: dict[str, str], body: object) -> None:
    """HA-BT-61 "A slave MUST refuse requests 17, 215, 200 and 207 with SYSTEM_ERROR"."""
    tables.topics.update_topic_config(TopicConfig("orders"))
    before = tables.topics.encode(), tables.groups.encode()
    tables.is_slave = True
    answer = tables.ask(code, ext_fields, body)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "a slave's topics and groups are its master's: change them there",
    )
    assert (tables.topics.encode(), tables.groups.encode()) == before
    assert tables.ask(RequestCode.GET_ALL_TOPIC_CONFIG).code == ResponseCode.SUCCESS


def test_a_broker_without_delayed_messages_has_no_delay_offsets(tables: BrokerTables) -> None:
    """HA-MD-17 "A master that has no table to give MUST answer SYSTEM_ERROR"."""
    answer = tables.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "No delay offset in this broker")


def test_delay_offsets_are_answered_as_they_are(tables: BrokerTables) -> None:
    """HA-MD-24 "MUST have `offsetTable`, from delay level to offset": what the delivery of delayed messages has."""
    body = b'{"offsetTable":{"1":5}}'
    tables.admin.sources = replace(tables.admin.sources, delay_offset=lambda: body)
    assert tables.ask(RequestCode.GET_ALL_DELAY_OFFSET).body == body


def test_the_settings_are_answered_and_never_changed(tables: BrokerTables) -> None:
    """HA-BT-69 "MUST answer the broker's settings as lines `name=value`"; HA-BT-68 "MUST be refused with NO_PERMISSION"."""
    answer = tables.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.body == b"brokerName=b\nlistenPort=10911\n"
    assert json.loads(answer.ext_fields["version"]) == {"counter": 0, "timestamp": 0}
    refused = tables.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"filterServerNums=1\nrocketmqHome=/tmp/x")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert tables.ask(RequestCode.GET_BROKER_CONFIG).body == answer.body


def test_refused_changes_of_the_settings_write_few_lines(tables: BrokerTables, caplog: pytest.LogCaptureFixture) -> None:
    """HA-RM-22: as HA-M-57 "MUST NOT write more than 30 log lines about its peers"."""
    for _ in range(60):
        tables.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"rocketmqHome=/tmp/x")
    assert len(caplog.records) == 30


def test_lists_that_tools_and_slaves_ask_for(tables: BrokerTables) -> None:
    """HA-BT-72 "request 305 the system topics, in `topicList`"; HA-BT-73 "MUST answer an empty `messageRequestModeMap`"."""
    assert set(tables.json(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]) == {
        *model.SYSTEM_TOPICS,
        *model.begin(model.Settings("b", "c"), 0).topics,
    }
    assert tables.json(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE) == {"messageRequestModeMap": {}}


def test_the_state_of_replication_is_answered(tables: BrokerTables) -> None:
    """HA-BT-71 "MUST answer whether the broker is a master, and a master's slaves with what they have acknowledged"."""
    tables.put("orders", 0)
    end = tables.store.max_offset
    assert tables.json(RequestCode.GET_BROKER_HA_STATUS) == {
        "haConnectionInfo": [
            {
                "addr": "127.0.0.1:10912",
                "diff": end - 7,
                "inSync": True,
                "slaveAckOffset": 7,
                "transferFromWhere": 9,
                "transferredByteInSecond": 0,
            }
        ],
        "inSyncSlaveNums": 1,
        "master": True,
        "masterCommitLogMaxOffset": end,
    }


def test_the_figures_of_the_broker_are_texts(tables: BrokerTables) -> None:
    """HA-BT-70 "MUST answer `table`, a map of texts with the figures that `mqadmin clusterList` and `brokerStatus` show"."""
    tables.put("orders", 0, 3)
    tables.stats.put.total += 3
    tables.stats.put_size += 300
    table = tables.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V4_9_8"
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["commitLogMaxOffset"] == str(tables.store.max_offset)
    first = tables.store.message_at(0)
    assert first is not None
    assert table["earliestMessageTimeStamp"] == str(first[2].store_timestamp)
    assert table["putTps"] == table["getTransferedTps"] == table["getTransferredTps"] == "0.0 0.0 0.0"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills"):
        assert table[name] == "0"
