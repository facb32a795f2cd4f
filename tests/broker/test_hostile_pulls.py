"""Whatever fields a pull or a query has, it is answered or refused: nothing else is raised, and nothing is kept."""

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.broker_tables import BrokerTables
from rocketmq_ha.fuzz.worlds.pull_stand import PlayedChannel, body_of
from rocketmq_ha.impl.broker.pull import PullMessageProcessor, PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings
from rocketmq_ha.impl.broker.query import QueryMessageProcessor, QueueOffsetProcessor
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand, encode
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.impl.wire.message import Message

CODES = [11, 361, 12, 29, 30, 31, 32, 33]
NAMES = [
    *("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis"),
    *("subVersion", "subscription", "expressionType", "key", "maxNum", "beginTimestamp", "endTimestamp", "timestamp"),
    *("offset", "_UNIQUE_KEY_QUERY"),
]
NUMBERS = [-(1 << 63), -(1 << 31), -1, 0, 1, 4, 7, 32, (1 << 31) - 1, (1 << 63) - 1]
numbers = st.sampled_from(NUMBERS).map(str)
texts = st.one_of(
    st.sampled_from(
        ["t", "g", "k", "*", "||", "a||b", "SQL92", "TAG", "true", "", "..", "a/b", "\0", "x" * 300, "\n" * 300, "\u3000"]
    ),
    st.text(max_size=8),
)
# Most requests have all fields, most of them what their code wants.
requests = st.fixed_dictionaries({name: st.one_of(numbers, numbers, texts) for name in NAMES}).flatmap(
    lambda fields: st.sets(st.sampled_from(NAMES), max_size=2).map(
        lambda left_out: {name: value for name, value in fields.items() if name not in left_out}
    )
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path_factory.mktemp("broker") / "store", resources)
        tables.topics.update_topic_config(TopicConfig("t", 4, 4))
        for number in range(50):
            tables.store.put(Message("t", b"%d" % number, properties_string="KEYS\x01k\x02TAGS\x01a"))
        assert tables.store.wait_for_dispatch()
        bounds, hold = PullBounds(1 << 40), HoldSettings(max_parked=20)
        given_tables = (tables.topics, tables.groups, tables.consumers, tables.offsets)
        pulls = PullMessageProcessor.of_store(
            tables.store, lambda: None, *given_tables, PullSettings(), bounds, hold, lambda: False
        )
        handlers = pulls.handlers() | QueryMessageProcessor(tables.store).handlers()
        yield SimpleNamespace(pulls=pulls, handlers=handlers | QueueOffsetProcessor(tables.queues).handlers())


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    code=st.sampled_from(CODES),
    fields=requests,
    usual=st.sets(st.sampled_from(["topic", "queueId", "consumerGroup", "sysFlag"])),
)
def test_any_fields_are_answered_or_refused(
    broker: SimpleNamespace, code: int, fields: dict[str, str], usual: set[str]
) -> None:
    fields |= {name: {"topic": "t", "queueId": "0", "consumerGroup": "g", "sysFlag": "6"}[name] for name in usual}
    channel = PlayedChannel()
    try:
        answer = broker.handlers[code](channel, RemotingCommand(code, 9, ext_fields=fields), 0)
    except RequestInvalid as error:
        assert str(error).startswith("field ")
        assert len(str(error)) < 300
        return
    if answer is None:
        assert broker.pulls.hold.count
    else:
        assert answer.opaque == 9
        assert len(body_of(answer)) < 1 << 20
        assert encode(answer)
        if answer.code:
            assert answer.remark is not None
            assert "\n" not in answer.remark
            assert len(answer.remark) < 1000
    broker.pulls.on_close(channel)
    assert broker.pulls.hold.count == 0
