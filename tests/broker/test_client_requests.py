"""Heartbeats and locks as clients send them, and as nobody should: a body that is refused changes nothing."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kit.broker_tables import BrokerTables, heartbeat
from kit.remoting import Quiet, Stand
from rocketmq_ha.impl.broker.clients import (
    ClientChannelInfo,
    ClientHousekeepingService,
    ConsumerManager,
    ProducerManager,
)
from rocketmq_ha.impl.broker.rebalance_lock import MessageQueue, RebalanceLockManager
from rocketmq_ha.impl.broker.subscription import SubscriptionData
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.reference import broker_clients as model

BEAT, LOCK, UNLOCK = RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def test_a_heartbeat_of_a_java_consumer(tables: BrokerTables) -> None:
    """HA-BT-40 "MUST register its connection with each of its producer groups and consumer groups": all fields are taken."""
    body = {
        "clientID": "10.0.0.1@42",
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_ACTIVELY",
                "groupName": "g",
                "messageModel": "BROADCASTING",
                "subscriptionDataSet": [
                    {
                        "classFilterMode": False,
                        "codeSet": [2598919, -1808614382],
                        "expressionType": "TAG",
                        "subString": "a||b",
                        "subVersion": 1795168636155,
                        "tagsSet": ["a", "b"],
                        "topic": "orders",
                    }
                ],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    assert tables.ask(BEAT, body=body).code == ResponseCode.SUCCESS
    info = tables.consumers.get_consumer_group_info("g")
    assert info is not None
    assert (info.consume_type, info.message_model, info.consume_from_where) == (
        "CONSUME_ACTIVELY",
        "BROADCASTING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    assert tables.consumers.find_subscription_data("g", "orders") == SubscriptionData(
        "orders", "a||b", frozenset("ab"), frozenset((2598919, -1808614382)), 1795168636155
    )
    assert tables.consumers.find_subscription_data("g", "other") is None
    assert tables.consumers.find_subscription_data_count("g") == 1
    assert list(tables.producers.group_channel_table) == ["CLIENT_INNER_PRODUCER"]
    assert "g" in tables.groups.subscription_group_table


def test_a_heartbeat_of_a_client_that_sends_ordinals_and_texts(tables: BrokerTables) -> None:
    """HA-BT-40: the client in C++ sends enums as ordinals and a version as text."""
    consumer = {
        "groupName": "g",
        "consumeType": 0,
        "messageModel": 0,
        "consumeFromWhere": 4,
        "unitMode": "true",
        "subscriptionDataSet": [{"topic": "orders", "subVersion": "17", "codeSet": ["5"], "tagsSet": None, "subString": "*"}],
    }
    assert tables.ask(BEAT, body={"clientID": "x", "consumerDataSet": [consumer]}).code == ResponseCode.SUCCESS
    info = tables.consumers.get_consumer_group_info("g")
    assert info is not None
    assert (info.consume_type, info.message_model) == ("CONSUME_ACTIVELY", "BROADCASTING")
    assert info.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    found = info.subscription_table["orders"]
    assert (found.sub_version, found.code_set) == (17, {5})


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"clientID": None}, "clientID: found nothing, expected text"),
        ({"clientID": 5}, "clientID: found 5, expected text"),
        ({"consumerDataSet": {}}, "consumerDataSet: found {}, expected an array"),
        ({"consumerDataSet": [5]}, "consumerDataSet: found 5, expected an object"),
        ({"consumerDataSet": [{}]}, "groupName: found nothing, expected text"),
        ({"consumerDataSet": [{"groupName": "../g"}]}, "groupName: found '../g', expected 1 to 255"),
        ({"producerDataSet": [{"groupName": "p p"}]}, "groupName: found 'p p', expected 1 to 255"),
        ({"consumerDataSet": [{"groupName": "g", "consumeType": 9}]}, "consumeType: found 9, expected one of CONSUME_ACTIVELY"),
        ({"consumerDataSet": [{"groupName": "g", "consumeType": True}]}, "consumeType: found true, expected one of"),
        (
            {"consumerDataSet": [{"groupName": "g", "messageModel": "x"}]},
            "messageModel: found 'x', expected one of BROADCASTING",
        ),
        ({"consumerDataSet": [{"groupName": "g", "unitMode": {}}]}, "unitMode: found {}, expected true or false"),
        ({"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{}]}]}, "topic: found nothing, expected text"),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subVersion": 1 << 63}]}]},
            "subVersion: found 9223372036854775808, expected an i64",
        ),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t", "codeSet": [1 << 31]}]}]},
            "codeSet: found 2147483648, expected an i32",
        ),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t", "tagsSet": [1]}]}]},
            "tagsSet: found [1], expected texts",
        ),
    ],
)
def test_a_heartbeat_that_is_refused_changes_nothing(tables: BrokerTables, change: dict[str, object], remark: str) -> None:
    """HA-BT-40: the body is read as a whole first; HA-BT-22 "MUST be refused with SYSTEM_ERROR"."""
    before = tables.topics.encode(), tables.groups.encode()
    body = {**heartbeat("x", consumers={"first": ["orders"]}, producers=["p"]), **change}
    consumers = body["consumerDataSet"]
    if isinstance(consumers, list) and change.keys() == {"consumerDataSet"}:
        body["consumerDataSet"] = [{"groupName": "first"}, *consumers]
    answer = tables.ask(BEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(remark)
    assert (tables.topics.encode(), tables.groups.encode()) == before
    assert dict(tables.consumers.consumer_table) == {}
    assert dict(tables.producers.group_channel_table) == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("code", [BEAT, LOCK, UNLOCK])
def test_a_body_that_is_no_object_is_refused(tables: BrokerTables, code: int, body: bytes) -> None:
    assert tables.ask(code, body=body).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("name", ["", "a b", "g" * 256, "../g", "g@h"])
def test_a_group_with_a_name_that_is_none_is_not_created(tables: BrokerTables, name: str) -> None:
    """HA-BT-22 "MUST be refused with SYSTEM_ERROR": also where a pull or a message that is sent back would create it."""
    before = tables.groups.encode()
    with pytest.raises(RequestInvalid, match="expected 1 to 255 of the characters"):
        tables.groups.find_subscription_group_config(name)
    assert tables.groups.encode() == before


def test_one_connection_has_a_bounded_number_of_groups(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-60 "MUST bound each of its tables": also over several heartbeats."""
    tables = BrokerTables(tmp_path, resources, TableSettings(max_client_groups=3, max_subscriptions=2))
    assert tables.ask(BEAT, body=heartbeat("x", consumers={"g": [], "h": []}, producers=["p"])).code == ResponseCode.SUCCESS
    assert tables.ask(BEAT, body=heartbeat("x", producers=["p"])).code == ResponseCode.SUCCESS
    answer = tables.ask(BEAT, body=heartbeat("x", producers=["q"]))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "heartbeat: found 4 groups of one connection, expected at most 3",
    )
    answer = tables.ask(BEAT, body=heartbeat("x", consumers={"g": ["a", "b", "c"]}))
    assert answer.remark == "subscriptionDataSet: found 3 topics, expected at most 2"


def test_a_group_that_may_not_be_created_still_consumes(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-21 "unless `autoCreateSubscriptionGroup` is off": it is registered, and has no retry topic (HA-BT-41)."""
    tables = BrokerTables(tmp_path, resources, TableSettings(auto_create_subscription_group=False))
    assert tables.ask(BEAT, body=heartbeat("x", consumers={"g": ["orders"]})).code == ResponseCode.SUCCESS
    assert tables.consumers.get_consumer_group_info("g") is not None
    assert tables.topics.select_topic_config("%RETRY%g") is None
    assert "g" not in tables.groups.subscription_group_table


def test_a_consumer_that_leaves_creates_no_group(tables: BrokerTables) -> None:
    """HA-BT-21: ours does not create a group for request 35."""
    answer = tables.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "x", "consumerGroup": "g", "producerGroup": "p"})
    assert answer.code == ResponseCode.SUCCESS
    assert "g" not in tables.groups.subscription_group_table


def test_a_producers_id_is_its_first_and_a_consumers_its_last(tables: BrokerTables) -> None:
    """HA-BT-47 "that of its first heartbeat, while a consumer's is that of its last"."""
    for client_id in ("x", "y"):
        tables.ask(BEAT, body=heartbeat(client_id, consumers={"g": ["orders"]}, producers=["p"]))
    assert [info.client_id for info in tables.producers.group_channel_table["p"].values()] == ["x"]
    info = tables.consumers.get_consumer_group_info("g")
    assert info is not None
    assert info.all_client_ids() == ["y"]
    assert tables.consumers.find_channel("g", "y") is not None
    assert tables.consumers.find_channel("g", "x") is None


@pytest.mark.parametrize(
    ("body", "is_taken"),
    [
        (b"", True),
        (b"{}", True),
        (b'{"subscriptionData":null}', True),
        (b'{"subscriptionData":{"topic":"t"}}', True),
        (b'{"subscriptionData":{"topic":"t","expressionType":"TAG"}}', True),
        (b'{"subscriptionData":{"topic":"t","expressionType":"SQL92","subString":"a > 1"}}', False),
    ],
)
def test_only_tags_are_filters(tables: BrokerTables, body: bytes, is_taken: bool) -> None:
    """HA-BT-48 "MUST answer SYSTEM_ERROR while `enablePropertyFilter` is off"."""
    answer = tables.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == (ResponseCode.SUCCESS if is_taken else ResponseCode.SYSTEM_ERROR)


def test_producers_are_asked_in_turn() -> None:
    """The check of a transaction goes to another producer of the group each time, and to none that has gone."""
    producers = ProducerManager()
    channels = [Quiet(("127.0.0.1", 4000 + number)) for number in range(3)]
    for channel in channels:
        producers.register_producer("p", ClientChannelInfo(channel, "x", "JAVA", 409, 0))
    assert {producers.get_available_channel("p") for _ in range(3)} == set(channels)
    channels[1].close("gone")
    assert {producers.get_available_channel("p") for _ in range(4)} == {channels[0], channels[2]}
    assert producers.get_available_channel("q") is None


def test_a_lock_is_of_its_queue_its_group_and_its_client(tables: BrokerTables) -> None:
    """HA-BT-50 "MUST lock each queue of its `mqSet`": the object that is answered is the one that came."""

    def lock(group: str, client_id: str, queue_id: int) -> object:
        body = {
            "consumerGroup": group,
            "clientId": client_id,
            "mqSet": [{"topic": "t", "brokerName": "b", "queueId": queue_id}],
        }
        return json.loads(tables.ask(LOCK, body=body).body)["lockOKMQSet"]

    queue = {"topic": "t", "brokerName": "b", "queueId": 0}
    assert lock("g", "x", 0) == [queue]
    assert lock("g", "x", 0) == [queue]
    assert lock("g", "y", 0) == []
    assert lock("g", "y", 1) == [{**queue, "queueId": 1}]
    assert lock("h", "y", 0) == [queue]
    tables.ask(UNLOCK, body={"consumerGroup": "g", "clientId": "x", "mqSet": [queue]})
    assert lock("g", "y", 0) == [queue]
    long = {"consumerGroup": "g", "clientId": "x" * 256, "mqSet": [queue]}
    assert tables.ask(LOCK, body=long).remark == "clientId: found 256 characters, expected at most 255"


def test_the_server_closes_what_has_no_heartbeat(resources: ExitStack) -> None:
    """HA-BT-45 "takes them off these groups and closes them": over a socket, and `on_close` comes once."""
    stand = Stand(resources)
    client = stand.connect()
    stand.turns()
    [channel] = stand.server.channels
    consumers = ConsumerManager(lambda _channel, _group: None)
    told: list[object] = []
    stand.server.on_close.append(told.append)
    consumers.register_consumer(
        "g", ClientChannelInfo(channel, "x", "JAVA", 409, 0), "CONSUME_PASSIVELY", "CLUSTERING", "", [], is_notify=True
    )
    assert consumers.scan_not_active_channel(120_000) == []
    assert consumers.scan_not_active_channel(120_001) == [channel]
    stand.server.drop(channel, "no heartbeat for 120 s")
    client.await_close()
    stand.turns()
    assert told == [channel]
    stand.server.drop(channel, "again")
    assert stand.server.channels == []


def test_a_question_for_the_consumers_of_no_group(tables: BrokerTables) -> None:
    """HA-BT-46 "SYSTEM_ERROR if it has none"."""
    answer = tables.handlers[RequestCode.GET_CONSUMER_LIST_BY_GROUP](
        tables.channel, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}), 0
    )
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")


def joined(tables: BrokerTables, count: int, group: str = "g") -> list[Quiet]:
    """So many consumers of a group, each at a connection of its own, with all requests 40 of their coming taken off."""
    channels = [Quiet(("127.0.0.1", 4000 + number)) for number in range(count)]
    for number, channel in enumerate(channels):
        tables.ask(BEAT, body=heartbeat(f"x{number}", consumers={group: ["orders"]}), channel=channel)
    for channel in channels:
        channel.sent.clear()
    return channels


def told(channels: list[Quiet]) -> list[int]:
    """How many requests 40 each has got."""
    return [sum(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for command in channel.sent) for channel in channels]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_those_that_remain_are_told_when_one_dies(tables: BrokerTables, is_wanted: bool) -> None:
    """HA-BT-44 "MUST be told, whatever their group's settings"."""
    tables.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body={"groupName": "g", "notifyConsumerIdsChangedEnable": is_wanted},
    )
    channels = joined(tables, 3)
    channels[0].close("end of stream")
    tables.housekeeping.on_channel_close(channels[0])
    assert told(channels) == [0, 1, 1]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_all_are_told_when_one_comes_or_leaves(tables: BrokerTables, is_wanted: bool) -> None:
    """HA-BT-43 "unless `notifyConsumerIdsChangedEnable` is off for the broker or for the group"."""
    tables.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body={"groupName": "g", "notifyConsumerIdsChangedEnable": is_wanted},
    )
    channels = joined(tables, 2)
    newcomer = Quiet(("127.0.0.1", 5000))
    tables.ask(BEAT, body=heartbeat("new", consumers={"g": ["orders"]}), channel=newcomer)
    assert told([*channels, newcomer]) == [is_wanted] * 3
    tables.ask(BEAT, body=heartbeat("new", consumers={"g": ["orders"]}), channel=newcomer)
    assert told([*channels, newcomer]) == [is_wanted] * 3  # nothing is new
    tables.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "new", "consumerGroup": "g"}, channel=newcomer)
    assert told([*channels, newcomer]) == [2 * is_wanted, 2 * is_wanted, is_wanted]


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize(
    ("topics", "is_change"),
    [(["orders"], False), (["orders", "more"], True), (["more"], True), ([], True), (["orders", "orders"], False)],
)
def test_all_are_told_when_a_topic_comes_or_goes(
    tables: BrokerTables, topics: list[str], is_change: bool, is_wanted: bool
) -> None:
    """HA-BT-43 "or a topic comes to the group's subscriptions": they share the queues anew."""
    tables.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body={"groupName": "g", "notifyConsumerIdsChangedEnable": is_wanted},
    )
    channels = joined(tables, 2)
    tables.ask(BEAT, body=heartbeat("x0", consumers={"g": topics}), channel=channels[0])
    assert told(channels) == [is_change and is_wanted] * 2


@pytest.mark.parametrize(("version", "expected"), [(2, "old"), (3, "old"), (4, "new")])
def test_a_subscription_is_replaced_by_a_newer_one(tables: BrokerTables, version: int, expected: str) -> None:
    """HA-BT-42 "if its `subVersion` is greater"; a topic that is not named any more is gone."""

    def beat(topics: dict[str, int], text: str) -> None:
        data = [{"topic": topic, "subString": text, "subVersion": found} for topic, found in topics.items()]
        tables.ask(BEAT, body={"clientID": "x", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": data}]})

    beat({"a": 3, "b": 3}, "old")
    beat({"a": version}, "new")
    found = tables.consumers.find_subscription_data("g", "a")
    assert found is not None
    assert found.sub_string == expected
    assert tables.consumers.find_subscription_data("g", "b") is None


@pytest.mark.parametrize("is_producer", [True, False])
def test_a_client_without_a_heartbeat_is_closed_at_the_next_look(tables: BrokerTables, is_producer: bool) -> None:
    """HA-BT-45 "from which no heartbeat has come for more than 120 s"; "tells nobody"."""
    gone, other = Quiet(("127.0.0.1", 4000)), Quiet(("127.0.0.1", 4001))
    body = heartbeat("x", producers=["p"]) if is_producer else heartbeat("x", consumers={"g": ["orders"]})
    data = request(BEAT, body=json.dumps(body).encode())
    gone.ask(tables.handlers[BEAT], data, now_ms=0)
    other.ask(tables.handlers[BEAT], data, now_ms=1)
    other.sent.clear()
    tables.housekeeping.on_tick(119_999)
    tables.housekeeping.on_tick(120_001)  # 2 ms after a look, there is none
    assert gone.is_open
    tables.housekeeping.on_tick(129_999)
    assert not gone.is_open
    assert not other.is_open
    assert gone.close_reason == "no heartbeat for 120 s"
    assert told([other]) == [0]


def test_a_client_of_120_s_is_not(tables: BrokerTables) -> None:
    channel = Quiet()
    channel.ask(tables.handlers[BEAT], request(BEAT, body=json.dumps(heartbeat("x", producers=["p"])).encode()), now_ms=0)
    tables.housekeeping.on_tick(120_000)
    assert channel.is_open


@pytest.mark.parametrize(("age", "is_free"), [(60_000, False), (60_001, True)])
def test_a_lock_is_free_after_60_s(tables: BrokerTables, age: int, is_free: bool) -> None:
    """HA-BT-51 "not renewed for more than 60 s"; HA-BT-52 "MUST free none that another client holds"."""
    queue = {"topic": "t", "brokerName": "b", "queueId": 0}

    def locks(code: int, client_id: str, now_ms: int) -> bool:
        body = json.dumps({"consumerGroup": "g", "clientId": client_id, "mqSet": [queue]}).encode()
        answer = tables.channel.ask(tables.handlers[code], request(code, body=body), now_ms)
        assert answer is not None
        return b"queueId" in answer.body

    assert locks(LOCK, "x", 0)
    locks(UNLOCK, "y", 1)
    assert locks(LOCK, "y", age) == is_free
    assert locks(LOCK, "x", age) != is_free


PRODUCER, CONSUMER = {"producers": ["p"]}, {"consumers": {"g": ["orders"]}}
BOTH = {"producers": ["p"], "consumers": {"g": ["orders"]}}


@pytest.mark.parametrize(
    ("beats", "last_open", "first_closed"),
    [
        pytest.param([(0, PRODUCER)], 120_000, 120_001, id="a producer once"),
        pytest.param([(0, CONSUMER)], 120_000, 120_001, id="a consumer once"),
        pytest.param([(at, PRODUCER) for at in range(0, 600_000, 30_000)], 690_000, 690_001, id="a producer every 30 s"),
        pytest.param([(at, CONSUMER) for at in range(0, 600_000, 30_000)], 690_000, 690_001, id="a consumer every 30 s"),
        pytest.param([(0, BOTH), (60_000, BOTH)], 180_000, 180_001, id="both, twice"),
        pytest.param([(0, CONSUMER), (110_000, CONSUMER), (220_000, CONSUMER)], 340_000, 340_001, id="a slow consumer"),
        pytest.param([(0, BOTH), (60_000, PRODUCER)], 120_000, 120_001, id="one that no longer beats for its consumer"),
        pytest.param([(0, BOTH), (60_000, CONSUMER)], 120_000, 120_001, id="one that no longer beats for its producer"),
        pytest.param(
            [(0, CONSUMER), (60_000, {"consumers": {"g": ["other"]}})], 180_000, 180_001, id="a consumer of another topic now"
        ),
    ],
)
def test_each_heartbeat_keeps_its_groups_for_120_s(
    tables: BrokerTables, beats: list[tuple[int, dict[str, object]]], last_open: int, first_closed: int
) -> None:
    """HA-BT-45 "from which no heartbeat has come for more than 120 s": the last one counts, for the groups that it names. The
    model says the same.
    """
    clients = model.Clients()
    for beat_ms, named in beats:
        groups = cast(dict[str, list[str]], named.get("consumers", {}))
        consumers = [(group, dict.fromkeys(topics, model.Subscription(1)), False) for group, topics in groups.items()]
        producers = cast(list[str], named.get("producers", []))
        step = model.on_heartbeat(clients, 1, model.Client("x", beat_ms), consumers, producers, 1 << 28)
        assert step is not None
        clients = step.clients
    assert [model.on_scan(clients, at_ms).closed for at_ms in (last_open, first_closed)] == [(), (1,)]
    for at_ms, is_open in ((last_open, True), (first_closed, False)):
        channel = Quiet(("127.0.0.1", 4000 + is_open))
        housekeeping = ClientHousekeepingService(
            tables.producers, tables.consumers, lambda channel, reason: channel.close(reason), -1_000_000
        )
        for beat_ms, named in beats:
            body = json.dumps(heartbeat("x", **named)).encode()  # type: ignore[arg-type]
            channel.ask(tables.handlers[BEAT], request(BEAT, body=body), now_ms=beat_ms)
        housekeeping.on_tick(at_ms)
        assert channel.is_open is is_open, at_ms
        housekeeping.on_channel_close(channel)
        assert not tables.producers.group_channel_table
        assert not tables.consumers.consumer_table


def test_a_client_of_many_groups_is_closed_once_and_looked_for_every_10_s(tables: BrokerTables) -> None:
    """HA-BT-45 "MUST look every 10 s"."""
    closed: list[object] = []
    housekeeping = ClientHousekeepingService(
        tables.producers, tables.consumers, lambda channel, _reason: closed.append(channel), 0
    )
    channels = [Quiet(("127.0.0.1", port)) for port in (4000, 4001)]
    names = {"producers": ["p", "q"], "consumers": {"g": ["orders"], "h": ["orders"]}}
    body = json.dumps(heartbeat("x", **names)).encode()  # type: ignore[arg-type]
    for number, channel in enumerate(channels):
        channel.ask(tables.handlers[BEAT], request(BEAT, body=body), now_ms=number * 1_000)
    for at_ms, expected in ((120_001, 1), (121_001, 1), (130_000, 1), (130_001, 2), (140_001, 2)):
        housekeeping.on_tick(at_ms)
        assert closed == channels[:expected], at_ms


@pytest.mark.parametrize(
    ("renewed", "free_ms"),
    [((), 60_001), ((60_000,), 120_001), ((20_000, 40_000, 60_000, 80_000), 140_001), ((59_999, 60_000), 120_001)],
)
def test_a_lock_that_is_renewed_is_kept(tables: BrokerTables, renewed: tuple[int, ...], free_ms: int) -> None:
    """HA-BT-51 "not renewed for more than 60 s": the last renewal counts."""
    queue = {"topic": "t", "brokerName": "b", "queueId": 0}

    def holds(client_id: str, now_ms: int) -> bool:
        body = json.dumps({"consumerGroup": "g", "clientId": client_id, "mqSet": [queue]}).encode()
        answer = tables.channel.ask(tables.handlers[LOCK], request(LOCK, body=body), now_ms)
        assert answer is not None
        return b"queueId" in answer.body

    clients = model.Clients()
    story = [*(("x", now_ms, True) for now_ms in (0, *renewed)), ("y", free_ms - 1, False), ("y", free_ms, True)]
    for client_id, now_ms, is_held in (*story, ("x", free_ms + 60_000, False)):
        clients, got = model.lock(clients, "g", ["t"], client_id, now_ms, 9)
        assert holds(client_id, now_ms) is is_held is bool(got), now_ms


@pytest.mark.parametrize("most", [1, 2])
def test_a_full_table_of_locks_renews_and_forgets(most: int) -> None:
    """HA-BT-60 "MUST bound each of its tables": what is held is renewed, and what has expired makes room."""
    locks = RebalanceLockManager(replace(TableSettings(), max_locks=most))
    queues = [MessageQueue("t", "b", queue_id) for queue_id in range(3)]
    clients = model.Clients()
    for group, now_ms, count in (("g", 0, most), ("g", 30_000, most), ("h", 90_000, 0), ("h", 90_001, most)):
        clients, got = model.lock(clients, group, ["0", "1", "2"], group, now_ms, most)
        assert locks.try_lock_batch(group, queues, {"g": "x", "h": "y"}[group], now_ms) == queues[:count], now_ms
        assert len(got) == count
    assert locks.count == most
    locks.unlock_batch("h", queues, "x")
    assert locks.count == most
    locks.unlock_batch("h", queues, "y")
    assert locks.count == 0
