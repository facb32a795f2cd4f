"""What a heartbeat may make a broker keep: the length of each name, and of all together."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables, heartbeat
from kit.remoting import Quiet
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.reference import broker_clients as model

BEAT = RequestCode.HEART_BEAT


def subscribed(**fields: object) -> dict[str, object]:
    """A heartbeat of one consumer with one subscription."""
    subscription = {"topic": "orders", "subString": "*", "subVersion": 1} | fields
    return {"clientID": "x", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [subscription]}]}


def groups(producers: int, consumers: int) -> dict[str, object]:
    """A heartbeat that names the same group again and again."""
    names = [{"groupName": "g"}]
    return {"clientID": "x", "producerDataSet": names * producers, "consumerDataSet": names * consumers}


@pytest.mark.parametrize(
    ("body", "most", "remark"),
    [
        (lambda size: {"clientID": "c" * size}, 255, "clientID: found 256 characters, expected at most 255"),
        (lambda size: {"clientID": "ü" * size}, 255, "clientID: found 256 characters, expected at most 255"),
        (lambda size: subscribed(topic="t" * size), 262, "topic: found 263 characters, expected at most 262"),
        (lambda size: subscribed(subString="s" * size), 65_536, "subString: found 65537 characters, expected at most 65536"),
        (
            lambda size: subscribed(tagsSet=["a" * 65_000, "b" * (size - 65_000)]),
            65_536,
            "tagsSet: found 65537 characters, expected at most 65536",
        ),
        (lambda size: subscribed(tagsSet=[f"{n:04}" for n in range(size)]), 10_000, "tagsSet: found 10001 tags, expected at"),
        (lambda size: subscribed(codeSet=list(range(size))), 10_000, "codeSet: found 10001 hash codes, expected at most 10000"),
        (lambda size: subscribed(expressionType="e" * size), 255, "expressionType: found 256 characters, expected at most 255"),
        (lambda size: groups(size - 400, 400), 1_000, "heartbeat: found 1001 groups, expected at most 1000"),
        (lambda size: groups(0, size), 1_000, "heartbeat: found 1001 groups, expected at most 1000"),
        (
            lambda size: heartbeat("x", consumers={"g": [str(number) for number in range(size)]}),
            10_000,
            "subscriptionDataSet: found 10001 topics, expected at most 10000",
        ),
    ],
)
def test_what_is_longer_than_its_kind_is_refused(
    tables: BrokerTables, body: Callable[[int], dict[str, object]], most: int, remark: str
) -> None:
    """HA-BT-49 "MUST be refused with SYSTEM_ERROR if it has anything that is longer": that changes nothing."""
    before = tables.topics.encode(), tables.groups.encode()
    answer = tables.ask(BEAT, body=body(most + 1))
    assert (answer.code, (answer.remark or "")[: len(remark)]) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (tables.topics.encode(), tables.groups.encode()) == before
    assert not tables.consumers.consumer_table
    assert tables.ask(BEAT, body=body(most)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("kind", [*model.LONGEST, "codeSet"])
def test_the_bounds_are_those_of_the_model(tables: BrokerTables, kind: str, beyond: int) -> None:
    """HA-BT-49 "that is longer than the table below allows"."""
    text = "n" * (model.LONGEST.get(kind, 0) + beyond)
    client_id, language = (text if kind == name else "x" for name in ("clientID", "language"))
    found = model.Subscription(
        1,
        text if kind == "subString" else "*",
        frozenset([text] if kind == "tagsSet" else []),
        frozenset(range(model.MOST_TAGS + beyond) if kind == "codeSet" else []),
        text if kind == "expressionType" else "TAG",
    )
    topic = text if kind == "topic" else "t"
    body = subscribed(
        topic=topic,
        subString=found.expression,
        tagsSet=list(found.tags),
        codeSet=list(found.codes),
        expressionType=found.expression_type,
    )
    command = replace(request(BEAT, body=json.dumps({**body, "clientID": client_id}).encode()), language=language)
    assert (code_of(tables, command) == ResponseCode.SUCCESS) == (not beyond)
    assert model.is_within_lengths(client_id, language, {topic: found}) == (not beyond)


def code_of(tables: BrokerTables, command: RemotingCommand) -> int:
    try:
        answer = tables.channel.ask(tables.handlers[BEAT], command)
    except RequestInvalid:
        return ResponseCode.SYSTEM_ERROR
    assert answer is not None
    return answer.code


def test_all_connections_together_have_a_bound(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-75 "A heartbeat beyond it is refused with SYSTEM_ERROR, and the registrations before it stay"."""
    expression = 500 + len("orders") + 2_000 + len("TAG")
    tables = BrokerTables(tmp_path, resources, TableSettings(max_clients_size=3 * 2_500 + expression))
    first, second = Quiet(("127.0.0.1", 4000)), Quiet(("127.0.0.1", 4001))

    def beat(channel: Quiet, body: dict[str, object]) -> str | None:
        return tables.ask(BEAT, body=body, channel=channel).remark

    assert beat(first, subscribed(subString="s" * 2_000)) is None
    assert beat(second, heartbeat("y", producers=["p", "q"])) is None
    groups_before = tables.groups.encode()
    refused = "heartbeat: found {} bytes of names and subscriptions with those of all clients, expected at most 10009"
    assert beat(second, heartbeat("y", producers=["r"])) == refused.format(12_509)
    assert beat(second, heartbeat("y", consumers={"h": []})) == refused.format(12_509)
    assert beat(first, subscribed(subString="s" * 2_001, subVersion=2)) == refused.format(10_010)
    assert tables.groups.encode() == groups_before
    found = tables.consumers.find_subscription_data("g", "orders")
    assert found is not None
    assert found.sub_version == 1
    for _ in range(3):  # what is there already needs no more room
        assert beat(first, subscribed(subString="s" * 2_000)) is None
        assert beat(second, heartbeat("y", producers=["p", "q"])) is None
    second.close("end of stream")
    tables.housekeeping.on_channel_close(second)
    assert beat(first, {**subscribed(subString="s" * 2_000), "producerDataSet": [{"groupName": "r"}]}) is None
    tables.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "x", "consumerGroup": "g", "producerGroup": "r"}, channel=first)
    assert beat(first, heartbeat("x", producers=["a", "b", "c", "d"])) is None


def test_a_text_that_is_not_ascii_counts_as_four_times_as_long(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-75 "or 4 in a text that is not all ASCII": one wide character makes all of Python's wide."""
    tables = BrokerTables(tmp_path, resources, TableSettings(max_clients_size=2_500 + 500 + 4 * 100 + len("ordersTAG")))
    assert tables.ask(BEAT, body=subscribed(subString="s" * 100 + "\U0001f600")).code == ResponseCode.SYSTEM_ERROR
    assert tables.ask(BEAT, body=subscribed(subString="s" * 99 + "\U0001f600")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("length", "has_topic"), [(120, True), (121, False), (255, False)])
def test_a_group_with_too_long_a_name_has_no_retry_topic(tables: BrokerTables, length: int, has_topic: bool) -> None:
    """HA-BT-78 "whose name breaks HA-BT-14 MUST NOT be created": the group consumes all the same, also its retry topic."""
    group = "g" * length
    assert tables.ask(BEAT, body=heartbeat("x", consumers={group: ["orders", "%RETRY%" + group]})).code == ResponseCode.SUCCESS
    assert (tables.topics.select_topic_config("%RETRY%" + group) is not None) == has_topic
    info = tables.consumers.get_consumer_group_info(group)
    assert info is not None
    assert info.all_client_ids() == ["x"]


def test_a_negative_number_of_retry_queues_is_none(tmp_path: Path, resources: ExitStack) -> None:
    """HA-BT-41 "with `retryQueueNums` queues": of a group in a file, and the next start reads the topic (HA-BT-77)."""
    tables = BrokerTables(tmp_path, resources)
    tables.groups.update_subscription_group_config(SubscriptionGroupConfig("g", retry_queue_nums=-1))
    assert tables.ask(BEAT, body=heartbeat("x", consumers={"g": ["orders"]})).code == ResponseCode.SUCCESS
    again = TopicConfigManager(tmp_path, tables.settings, lambda: 0)
    assert again.load()
    found = again.select_topic_config("%RETRY%g")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums) == (0, 0)
