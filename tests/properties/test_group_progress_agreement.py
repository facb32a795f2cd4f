"""How far groups have come, and where a reset puts them, equals the model: requests 208 and 222 over any offsets.

HA-BT-63, HA-BT-66.
"""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kit.broker_tables import heartbeat
from kit.remoting import Quiet
from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.admin_stats import AdminStatsProcessor
from rocketmq_ha.impl.broker.client_manage import ClientManageProcessor
from rocketmq_ha.impl.broker.clients import ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.reset_offset import Broker2Client
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.reference import broker_tables as model_tables
from rocketmq_ha.reference import consumer_offsets as model

NOWHERE = Path("/nowhere")
TOPICS = ["a", "b", "gone"]
topics = st.sampled_from(TOPICS)


class Queues:
    """Queues whose max offsets the test chooses; a time is its own offset, and none is stored."""

    def __init__(self, max_offsets: dict[str, list[int]]) -> None:
        self._max_offsets = max_offsets

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self._max_offsets[topic][queue_id]

    def min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 0

    def message_store_timestamp(self, _topic: str, _queue_id: int, queue_offset: int) -> int:
        return 1000 + queue_offset

    def offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return min(timestamp, self._max_offsets[topic][queue_id])


@given(
    max_offsets=st.fixed_dictionaries(
        {"a": st.lists(st.integers(0, 9), max_size=3), "b": st.lists(st.integers(0, 9), max_size=2)}
    ),
    commits=st.lists(st.tuples(topics, st.sampled_from(["g", "h"]), st.integers(0, 3), st.integers(-2, 12)), max_size=8),
    asked=st.sampled_from(["", *TOPICS]),
    listed=st.one_of(st.none(), st.lists(st.sampled_from(["", " ", *TOPICS]), max_size=4).map(";".join)),
    subscribed=st.sets(topics),
    timestamp=st.integers(-1, 9),
    is_force=st.booleans(),
)
def test_progress_and_reset_equal_the_models(
    max_offsets: dict[str, list[int]], commits: list[tuple[str, str, int, int]], asked: str, listed: str | None,
    subscribed: set[str], timestamp: int, is_force: bool,
) -> None:  # fmt: skip
    """HA-BT-63 "MUST answer for each read queue"; HA-BT-66 "MUST compute an offset for each write queue of the topic"."""
    settings = TableSettings(broker_name="b")
    table = TopicConfigManager(NOWHERE, settings, lambda: 0, MemoryFile())
    for name, found in max_offsets.items():
        table.update_topic_config(TopicConfig(name, len(found), len(found)))
    offsets = ConsumerOffsetManager(NOWHERE, settings, 0, MemoryFile())
    state = model.start(model_tables.Settings(), {}, 0)
    for topic, group, queue_id, offset in commits:
        offsets.commit_offset("here", group, topic, queue_id, offset)
        after = model.commit(state, topic, group, queue_id, offset)
        assert after is not None
        state = after
    consumers, producers, queues = ConsumerManager(lambda _channel, _group: None), ProducerManager(), Queues(max_offsets)
    channel = Quiet()
    if subscribed:
        groups = SubscriptionGroupManager(NOWHERE, settings, lambda: 0, MemoryFile())
        beat = json.dumps(heartbeat("x", consumers={"g": sorted(subscribed)})).encode()
        clients = ClientManageProcessor(settings, table, groups, producers, consumers)
        channel.ask(clients.heart_beat, request(RequestCode.HEART_BEAT, body=beat))
    stats = AdminStatsProcessor(settings, table, offsets, producers, consumers, queues)

    named = {"topic": asked} | ({} if listed is None else {"topicList": listed})
    answer = channel.ask(stats.get_consume_stats, request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **named}))
    assert answer is not None
    got = {}
    for key, wrapper in json.loads(answer.body)["offsetTable"].items():
        mq = json.loads(key)
        got[mq["topic"], mq["queueId"]] = [wrapper["brokerOffset"], wrapper["consumerOffset"]]
        before = wrapper["consumerOffset"] - 1
        assert wrapper["lastTimestamp"] == (1000 + before if before >= 0 else 0)
    assert got == model.progress(state, "g", max_offsets, asked, listed or "", subscribed)

    fields = {"topic": "a", "group": "g", "timestamp": str(timestamp), "isForce": str(is_force)}
    handler = Broker2Client(settings, table, offsets, consumers, queues).reset_offset
    reset = channel.ask(handler, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields))
    assert reset is not None
    at_time = [last if timestamp == -1 else min(timestamp, last) for last in max_offsets["a"]]
    expected = model.reset(state, "g", "a", at_time, is_force)
    if expected is None:
        assert reset.code == ResponseCode.SYSTEM_ERROR
    elif not subscribed:
        assert reset.code == ResponseCode.CONSUMER_NOT_ONLINE
    else:
        moved = {json.loads(key)["queueId"]: offset for key, offset in json.loads(reset.body)["offsetTable"].items()}
        assert moved == dict(enumerate(expected))


@given(
    max_offsets=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    commits=st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 12)), max_size=4),
    timestamp=st.integers(-1, 9),
    queue_id=st.integers(0, 3),
    named=st.integers(-2, 10),
)
def test_a_reset_of_one_queue_equals_the_model(
    max_offsets: list[int], commits: list[tuple[int, int]], timestamp: int, queue_id: int, named: int
) -> None:
    """HA-BT-79 "MUST move this queue alone"; "An offset that the queue does not have is refused"."""
    settings, nums = TableSettings(broker_name="b"), len(max_offsets)
    table = TopicConfigManager(NOWHERE, settings, lambda: 0, MemoryFile())
    table.update_topic_config(TopicConfig("a", nums, nums))
    offsets = ConsumerOffsetManager(NOWHERE, settings, 0, MemoryFile())
    state = model.start(model_tables.Settings(), {}, 0)
    for committed, offset in commits:
        offsets.commit_offset("here", "g", "a", committed, offset)
        after = model.commit(state, "a", "g", committed, offset)
        assert after is not None
        state = after
    consumers, queues, channel = ConsumerManager(lambda _channel, _group: None), Queues({"a": max_offsets}), Quiet()
    groups = SubscriptionGroupManager(NOWHERE, settings, lambda: 0, MemoryFile())
    clients = ClientManageProcessor(settings, table, groups, ProducerManager(), consumers)
    beat = json.dumps(heartbeat("x", consumers={"g": ["a"]})).encode()
    channel.ask(clients.heart_beat, request(RequestCode.HEART_BEAT, body=beat))
    expected = None
    if queue_id < nums:
        last = max_offsets[queue_id]
        at_time = last if timestamp == -1 else min(timestamp, last)
        expected = model.reset_queue(state, "g", "a", queue_id, at_time, named, 0, last)
    fields = {"topic": "a", "group": "g", "timestamp": str(timestamp), "isForce": "false"}
    fields |= {"queueId": str(queue_id), "offset": str(named)}
    handler = Broker2Client(settings, table, offsets, consumers, queues).reset_offset
    try:
        answer = channel.ask(handler, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields))
    except RequestInvalid:
        assert expected is None
        return
    assert answer is not None
    if expected is None:
        assert answer.code == ResponseCode.SYSTEM_ERROR
    else:
        [(key, offset)] = json.loads(answer.body)["offsetTable"].items()
        assert (json.loads(key)["queueId"], offset) == (queue_id, expected)
