"""The requests that ask how far queues and groups have come, who is connected, and that move a group's offsets."""

import json
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables, heartbeat
from kit.remoting import Quiet
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.broker.stats import BrokerStats
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request, response_to
from rocketmq_ha.reference import broker_tables as model
from rocketmq_ha.reference import consumer_offsets as model_offsets

STATS, PROGRESS, RESET = (
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
RUNNING = RequestCode.GET_CONSUMER_RUNNING_INFO


def mq(topic: str, queue_id: int) -> str:
    """HA-BT-64 "MUST be written with each key as a text that holds the queue's JSON object"."""
    return json.dumps({"brokerName": "b", "queueId": queue_id, "topic": topic}, separators=(",", ":"))


def wrapper(broker_offset: int, consumer_offset: int, last_timestamp: int) -> dict[str, int]:
    """HA-BT-63 "its offset once more as `pullOffset`": else the tools of 5.x count what is in flight from 0."""
    return {
        "brokerOffset": broker_offset,
        "consumerOffset": consumer_offset,
        "lastTimestamp": last_timestamp,
        "pullOffset": consumer_offset,
    }


def stored_ms(tables: BrokerTables, topic: str, queue_id: int, queue_offset: int) -> int:
    [message] = tables.store.get(topic, queue_id, queue_offset, 1).messages()
    return message.store_timestamp


def test_the_queues_of_a_topic(tables: BrokerTables) -> None:
    """HA-BT-62 "MUST answer for each write queue of the topic its min offset, its max offset and the store time"."""
    tables.topics.update_topic_config(TopicConfig("orders", 3, 2))
    tables.put("orders", 1, 3)
    assert tables.json(STATS, {"topic": "orders"}) == {
        "offsetTable": {
            mq("orders", 0): {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
            mq("orders", 1): {"lastUpdateTimestamp": stored_ms(tables, "orders", 1, 2), "maxOffset": 3, "minOffset": 0},
        }
    }
    answer = tables.ask(STATS, {"topic": "other"})
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[other] not exist")


def test_how_far_a_group_has_come(tables: BrokerTables) -> None:
    """HA-BT-63 "MUST answer for each read queue of the topics in which the group has committed, or of the topic"."""
    for topic in ("orders", "other"):
        tables.topics.update_topic_config(TopicConfig(topic, 1, 2))
    tables.put("orders", 0, 3)
    tables.offsets.commit_offset("here", "g", "orders", 0, 2)
    tables.offsets.commit_offset("here", "g", "unknown", 0, 2)
    orders = {
        mq("orders", 0): wrapper(3, 2, stored_ms(tables, "orders", 0, 1)),
    }
    other = {mq("other", 0): wrapper(0, 0, 0)}
    assert tables.json(PROGRESS, {"consumerGroup": "g"}) == {"consumeTps": 0.0, "offsetTable": orders}
    assert tables.json(PROGRESS, {"consumerGroup": "g", "topic": " "}) == {"consumeTps": 0.0, "offsetTable": orders}
    assert tables.json(PROGRESS, {"consumerGroup": "g", "topic": "other"}) == {"consumeTps": 0.0, "offsetTable": other}
    assert tables.json(PROGRESS, {"consumerGroup": "nobody"}) == {"consumeTps": 0.0, "offsetTable": {}}
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["other"]}))
    assert tables.json(PROGRESS, {"consumerGroup": "g"}) == {"consumeTps": 0.0, "offsetTable": {}}


def test_how_far_a_group_has_come_in_a_list_of_topics(tables: BrokerTables) -> None:
    """HA-BT-63 "A `topicList`, names with `;` between them, stands in place of `topic`, and of what is subscribed to"."""
    for topic in ("orders", "other", "third"):
        tables.topics.update_topic_config(TopicConfig(topic, 1, 1))
    tables.offsets.commit_offset("here", "g", "orders", 0, 2)
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}))

    def found(**named: str) -> dict[str, int]:
        table = tables.json(PROGRESS, {"consumerGroup": "g", **named})["offsetTable"]
        return {json.loads(key)["topic"]: wrapper["consumerOffset"] for key, wrapper in table.items()}

    assert found() == {"orders": 2}
    assert found(topicList="other;orders;") == {"other": 0, "orders": 2}  # as the client of 5.3.2 writes it
    assert found(topicList="other;unknown", topic="third") == {"other": 0}
    assert found(topicList="other; orders") == {"other": 0}  # no topic has a blank in its name
    for nothing in ("", " ", ";;"):
        assert found(topicList=nothing, topic="orders") == {"orders": 2}
        assert found(topicList=nothing, topic="other") == {}  # nobody subscribes to it


def test_an_offset_before_the_first_message_has_no_time(tables: BrokerTables) -> None:
    """A negative offset counts as 0, and one beyond the end has no message before it."""
    tables.topics.update_topic_config(TopicConfig("orders", 2, 2))
    tables.put("orders", 0)
    tables.offsets.commit_offset("here", "g", "orders", 0, -5)
    tables.offsets.commit_offset("here", "g", "orders", 1, 9)
    table = tables.json(PROGRESS, {"consumerGroup": "g"})["offsetTable"]
    assert table[mq("orders", 0)] == wrapper(1, 0, 0)
    assert table[mq("orders", 1)] == wrapper(0, 9, 0)


def test_the_connections_of_groups(tables: BrokerTables) -> None:
    """HA-BT-65 "MUST answer the connections of a consumer group (with its subscriptions and how it consumes)"."""
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}, producers=["p"]))
    connection = {"clientAddr": "127.0.0.1:4711", "clientId": "x", "language": "PYTHON", "version": 409}
    assert tables.json(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}) == {
        "connectionSet": [connection],
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "orders": {
                "classFilterMode": False,
                "codeSet": [],
                "expressionType": "TAG",
                "subString": "*",
                "subVersion": 1,
                "tagsSet": [],
                "topic": "orders",
            }
        },
    }
    assert tables.json(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"}) == {"connectionSet": [connection]}
    consumer = tables.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "p"})
    assert (consumer.code, consumer.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[p] not online")
    producer = tables.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "g"})
    assert (producer.code, producer.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[g] not exist")


def test_who_consumes_a_topic(tables: BrokerTables) -> None:
    """HA-BT-72 "MUST answer the groups that have consumers which subscribe to a topic, or offsets in it, in `groupList`"."""
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"], "h": ["other"]}))
    tables.offsets.commit_offset("here", "i", "orders", 0, 1)
    assert tables.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}) == {"groupList": ["g", "i"]}
    assert tables.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "none"}) == {"groupList": []}


# --- Offsets of a group ----------------------------------------------------------------------------------------------


@pytest.fixture
def orders(tables: BrokerTables) -> BrokerTables:
    """Two queues with 3 messages and none; the group `g` stands at 2 and 0."""
    tables.topics.update_topic_config(TopicConfig("orders", 2, 2))
    tables.put("orders", 0, 3)
    tables.offsets.commit_offset("here", "g", "orders", 0, 2)
    tables.offsets.commit_offset("here", "g", "orders", 1, 0)
    return tables


def reset(timestamp: int, *, force: bool) -> dict[str, str]:
    return {"topic": "orders", "group": "g", "timestamp": str(timestamp), "isForce": str(force).lower()}


@pytest.mark.parametrize(
    ("timestamp", "force", "expected"),
    [(0, False, 0), (0, True, 0), (-1, True, 3), (-1, False, 2), (1 << 60, True, 3), (1 << 60, False, 2)],
)
def test_a_group_is_told_of_its_new_offsets(orders: BrokerTables, timestamp: int, force: bool, expected: int) -> None:
    """HA-BT-66 "send them to all consumers of the group with request 220 (oneway), and answer them"."""
    ours, others = Quiet(), Quiet(("127.0.0.1", 4712))
    for channel, client_id in ((ours, "x"), (others, "y")):
        orders.ask(RequestCode.HEART_BEAT, body=heartbeat(client_id, consumers={"g": ["orders"]}), channel=channel)
        channel.sent.clear()
    ours.sent.clear()
    table = {mq("orders", 0): expected, mq("orders", 1): 0}
    assert orders.json(RESET, reset(timestamp, force=force)) == {"offsetTable": table}
    for channel in (ours, others):
        [told] = channel.sent
        assert (told.code, told.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert (told.ext_fields["topic"], told.ext_fields["group"]) == ("orders", "g")
        assert json.loads(told.body) == {"offsetTable": table}
    assert orders.offsets.query_offset("g", "orders", 0) == 2  # the consumers commit what they go on from


def test_a_client_in_cpp_is_told_by_a_list(orders: BrokerTables) -> None:
    """HA-BT-66: the tool's language says so."""
    channel = Quiet()
    orders.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}), channel=channel)
    channel.sent.clear()
    asked = request(RESET, reset(0, force=True))
    asked.language = "CPP"
    assert orders.handlers[RESET](orders.channel, asked, 0) is not None
    queue = {"brokerName": "b", "topic": "orders", "offset": 0}
    assert json.loads(channel.sent[0].body) == {"offsetTable": [{**queue, "queueId": 0}, {**queue, "queueId": 1}]}


def test_a_group_that_cannot_be_reset(orders: BrokerTables) -> None:
    """HA-BT-66: no such topic, no offset in one of the queues, and no consumer."""
    answer = orders.ask(RESET, {**reset(0, force=True), "topic": "none"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no offset is reset: no topic none in this broker")
    answer = orders.ask(RESET, {**reset(0, force=True), "group": "h"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The consumer group <h> not exist")
    assert orders.ask(RESET, reset(0, force=True)).code == ResponseCode.CONSUMER_NOT_ONLINE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queueId": "0", "offset": "1"}, {0: 1}),
        ({"queueId": "0", "offset": "3"}, {0: 3}),  # forwards, though `isForce` is false
        ({"queueId": "0", "offset": "-1", "timestamp": "-1"}, {0: 3}),
        ({"queueId": "0"}, {0: 0}),
        ({"queueId": "1", "offset": "0"}, {1: 0}),
        ({"queueId": "-1", "offset": "1"}, {0: 0, 1: 0}),
    ],
)
def test_one_queue_is_reset_alone(orders: BrokerTables, fields: dict[str, str], expected: dict[int, int]) -> None:
    """HA-BT-79 "MUST move this queue alone": a tool of 5.3.3 asks with the time 0, which moved all queues to their begin."""
    channel = Quiet()
    orders.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}), channel=channel)
    channel.sent.clear()
    table = {mq("orders", queue_id): offset for queue_id, offset in expected.items()}
    assert orders.json(RESET, {**reset(0, force=False), **fields}) == {"offsetTable": table}
    assert json.loads(channel.sent[0].body) == {"offsetTable": table}


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"queueId": "2", "offset": "0"}, "field queueId: found 2, expected a queue of orders, 0 to 1"),
        ({"queueId": "0", "offset": "4"}, "field offset: found 4, expected 0 to 3"),
        ({"queueId": "0", "offset": "-2"}, "field offset: found -2, expected 0 to 3"),
        ({"queueId": "1", "offset": "1"}, "field offset: found 1, expected 0 to 0"),
    ],
)
def test_an_offset_that_a_queue_does_not_have_is_refused(orders: BrokerTables, fields: dict[str, str], remark: str) -> None:
    """HA-BT-79 "is refused with SYSTEM_ERROR": nobody is told."""
    channel = Quiet()
    orders.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}), channel=channel)
    channel.sent.clear()
    answer = orders.ask(RESET, {**reset(0, force=False), **fields})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert channel.sent == []


@pytest.mark.parametrize("topic", ["orders", ""])
def test_offsets_are_copied_to_another_group(orders: BrokerTables, topic: str) -> None:
    """HA-BT-35 "in place of all that this group has there": of one topic, or of all in which the first group has committed;
    "A topic that the broker does not have is left out".
    """
    clone = RequestCode.CLONE_GROUP_OFFSET
    orders.offsets.commit_offset("here", "h", "orders", 5, 1)
    orders.offsets.commit_offset("here", "g", "unknown", 0, 1)
    fields = {"srcGroup": "g", "destGroup": "h", "offline": "false", **({"topic": topic} if topic else {})}
    assert orders.ask(clone, fields).code == ResponseCode.SUCCESS
    assert orders.offsets.query_offsets("h", "orders") == {0: 2, 1: 0}
    assert orders.offsets.query_offsets("h", "unknown") == {}
    orders.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["other"]}))
    orders.offsets.commit_offset("here", "g", "orders", 0, 3)
    orders.ask(clone, fields)
    assert orders.offsets.query_offset("h", "orders", 0) == 2  # the group's consumers do not subscribe to the topic
    orders.ask(clone, {**fields, "offline": "true"})
    assert orders.offsets.query_offset("h", "orders", 0) == 3


@pytest.mark.parametrize("topic", ["orders", ""])
@pytest.mark.parametrize(
    ("subscribed", "offline", "is_copied"),
    [
        ({}, "false", True),
        ({"g": ["orders"]}, "false", True),
        ({"g": ["other"]}, "false", False),
        ({"g": ["other"]}, "true", True),
        ({"h": ["other"]}, "false", True),
        ({"g": ["orders"], "h": ["other"]}, "false", True),
        ({"g": ["other"], "h": ["orders"]}, "false", False),
        ({"g": ["other"], "h": ["orders"]}, "true", True),
    ],
)
def test_the_consumers_of_the_first_group_say_which_topics_are_copied(
    orders: BrokerTables, topic: str, subscribed: dict[str, list[str]], offline: str, *, is_copied: bool
) -> None:
    """HA-BT-35 "unless `offline` is set, one to which the consumers of the first group do not subscribe": those of the other
    group, and what it has committed, count for nothing.
    """
    orders.offsets.commit_offset("here", "h", "other", 0, 9)
    orders.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers=subscribed))
    fields = {"srcGroup": "g", "destGroup": "h", "offline": offline, **({"topic": topic} if topic else {})}
    assert orders.ask(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUCCESS
    before = orders.offsets.query_offsets("g", "orders")
    assert orders.offsets.query_offsets("h", "orders") == (before if is_copied else {})
    assert orders.offsets.query_offsets("h", "other") == {0: 9}
    assert orders.offsets.query_offsets("g", "other") == {}


# --- Passed on to a consumer -----------------------------------------------------------------------------------------


def ask_running(tables: BrokerTables, tool: Quiet, client_id: str = "x") -> RemotingCommand | None:
    asked = request(RUNNING, {"consumerGroup": "g", "clientId": client_id, "jstackEnable": "true"})
    return tool.ask(tables.handlers[RUNNING], asked, now_ms=1_000)


def test_a_question_is_passed_on_to_a_consumer(tables: BrokerTables) -> None:
    """HA-BT-67 "MUST be passed on to the consumer that it names, and be answered with its answer"."""
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}))
    tables.channel.sent.clear()
    tool = Quiet(("127.0.0.1", 5000))
    assert ask_running(tables, tool) is None
    [asked] = tables.channel.sent
    assert (asked.code, asked.ext_fields["jstackEnable"]) == (RUNNING, "true")
    assert not asked.is_oneway
    assert tool.sent == []
    tables.channel.on_answer(response_to(asked, 0, None, {"a": "b"}, b"{}"))
    [answer] = tool.sent
    assert (answer.code, answer.ext_fields, answer.body) == (ResponseCode.SUCCESS, {"a": "b"}, b"{}")


@pytest.mark.parametrize("end", ["time", "close"])
def test_a_consumer_that_does_not_answer(tables: BrokerTables, end: str) -> None:
    """HA-BT-67 "CONSUME_MSG_TIMEOUT (207) if it has not answered within 10 s"."""
    tables.ask(RequestCode.HEART_BEAT, body=heartbeat("x", consumers={"g": ["orders"]}))
    tool = Quiet(("127.0.0.1", 5000))
    ask_running(tables, tool)
    tables.channel.on_tick(10_999)
    assert tool.sent == []
    if end == "time":
        tables.channel.on_tick(11_000)
    else:
        tables.channel.close("end of stream")
    [answer] = tool.sent
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (answer.remark or "").startswith("consumer <g> <x>: ")


def test_a_consumer_that_is_not_there(tables: BrokerTables) -> None:
    answer = ask_running(tables, Quiet(), "y")
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <y> not online")


# --- Offsets of consumers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize("stored", [None, -3, 0, 7])
@pytest.mark.parametrize("puts", [0, 3])
@pytest.mark.parametrize("deleted", [0, 2])
@pytest.mark.parametrize("hidden", [0, 1, 3])
def test_the_offset_of_a_group_agrees_with_the_model(
    tables: BrokerTables, memory: int, stored: int | None, puts: int, deleted: int, hidden: int
) -> None:
    """HA-BT-31 "MUST answer the stored offset if it is 0 or more", else 0, or what stands for it, or QUERY_NOT_FOUND."""
    tables.put("orders", 0, puts)
    tables.queues.in_memory = memory
    queue = tables.store.queues.get(b"orders", 0)
    state = model_offsets.QueueState()
    if queue is not None:
        ends = [entry.offset for _, entry in queue.entries()] + [tables.store.max_offset]
        queue.correct_min_offset(ends[deleted])
        queue.hide_before(ends[hidden])
        entry = queue.entry(hidden)
        behind = None if entry is None else tables.store.max_offset - entry.offset
        state = model_offsets.QueueState(max(deleted, hidden), behind, hidden)
    offsets = model_offsets.start(model.Settings(), {}, 0)
    if stored is not None:
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": str(stored)}
        assert tables.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS  # HA-BT-30
        committed = model_offsets.commit(offsets, "orders", "g", 0, stored)
        assert committed is not None
        offsets = committed
    answer = tables.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "orders", "queueId": "0"})
    expected = model_offsets.query(offsets, "orders", "g", 0, state, memory)
    if expected is None:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    else:
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": str(expected)})


def test_the_memory_that_counts_is_40_percent_of_the_machines(tables: BrokerTables) -> None:
    """HA-BT-31 "its first message is in memory": within the bound of HA-R-21."""
    tables.put("orders", 0, 1)
    size = tables.store.max_offset
    for memory, is_on_disk in ((size * 5 // 2 + 3, False), (size * 5 // 2 - 3, True)):
        figures = QueueFigures(tables.store, memory)
        assert figures.check_in_disk_by_consume_offset("orders", 0, 0) == is_on_disk


def test_all_offsets_are_answered(tables: BrokerTables) -> None:
    """HA-MD-23 "MUST have `offsetTable`"."""
    tables.offsets.commit_offset("here", "g", "orders", 0, 7)
    assert tables.json(RequestCode.GET_ALL_CONSUMER_OFFSET) == {"offsetTable": {"orders@g": {"0": 7}}}


# --- Counts ----------------------------------------------------------------------------------------------------------


def test_rates_are_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    stats = BrokerStats(0, 0)
    for second in range(700):
        stats.put.total += 10 if second < 100 else 20
        stats.on_tick(second * 1000, second * 1000)
        stats.on_tick(second * 1000 + 1, second * 1000)
    assert stats.put.tps() == "20.0 20.0 20.0"
    assert stats.got.tps() == "0.0 0.0 0.0"
    short = BrokerStats(0, 0)
    for second in range(21):
        short.put.total += 10 if second <= 10 else 30
        short.on_tick(second * 1000, 0)
    assert short.put.tps() == "30.0 20.0 20.0"


def test_totals_are_kept_at_midnight() -> None:
    day = 86_400_000
    stats = BrokerStats(0, 10 * day + 5, utc_offset_ms=-3_600_000)
    for wall_ms, total in ((10 * day + 3_599_999, 5), (10 * day + 3_600_000, 7), (11 * day + 3_600_000, 11)):
        stats.put.total = total
        stats.on_tick(stats.put.total * 1000, wall_ms)
    assert (stats.put.yesterday_morning, stats.put.today_morning, stats.put.total) == (7, 11, 11)


def test_the_store_of_a_broker_writes_no_topics(tables: BrokerTables, tmp_path: Path) -> None:
    """HA-BT-19 "one writer alone MUST write `topics.json`"; HA-BT-18 "MUST add the topics of its consume queues"."""
    tables.put("orders", 2)
    tables.store.flush()
    tables.store._topics.write()
    assert not (tmp_path / "store" / "config" / "topics.json").exists()
    assert tables.queues.queue_nums() == {"orders": 3}
    assert tables.topics.note_queues(tables.queues.queue_nums())
    assert not tables.topics.note_queues(tables.queues.queue_nums())
    assert tables.topics.select_topic_config("orders") == TopicConfig("orders", 3, 3)
