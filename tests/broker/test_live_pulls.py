"""Long polls over sockets: a store with its dispatch, a server, the broker's real tables, and a client."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables
from kit.waiting import wait_for
from rocketmq_ha.fuzz.worlds.pull_stand import body_of, pull_request
from rocketmq_ha.impl.broker.pull import PullMessageProcessor, PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings
from rocketmq_ha.impl.broker.query import QueryMessageProcessor, QueueOffsetProcessor
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.impl.wire.message import Message, decode

NEVER_MS = 1 << 60


class Live:
    """A broker that only reads, and a client. `turn` runs both loops once."""

    def __init__(self, directory: Path, resources: ExitStack) -> None:
        self.tables = BrokerTables(directory, resources)
        self.store = self.tables.store
        waker = resources.enter_context(closing(Waker()))
        self.server = resources.enter_context(closing(RemotingServer([listen("127.0.0.1", 0)])))
        self.server.wake_by(waker)
        self.pulls = PullMessageProcessor.of_store(
            self.store,
            waker.wake,
            self.tables.topics,
            self.tables.groups,
            self.tables.consumers,
            self.tables.offsets,
            PullSettings(),
            PullBounds(1 << 40),
            HoldSettings(),
            lambda: False,
        )
        queries, offsets = QueryMessageProcessor(self.store), QueueOffsetProcessor(self.tables.queues)
        for processor in (self.pulls, queries, offsets):
            self.server.handlers.update(processor.handlers())
        self.server.on_close.append(self.pulls.on_close)
        # The dispatch must not tell a waker that is closed.
        resources.callback(setattr, self.store, "on_dispatched", None)
        self.tables.topics.update_topic_config(TopicConfig("t", 4, 4))
        self.client = resources.enter_context(closing(RemotingClient()))
        self.address = f"127.0.0.1:{self.server.addresses[0][1]}"
        self.answers: list[RemotingCommand | RequestFailed] = []

    def turn(self, timeout_ms: int = 20) -> None:
        self.client.turn(0)
        self.server.poll(timeout_ms)
        self.pulls.turn(0)
        self.client.poll(0)

    def ask(self, command: RemotingCommand) -> None:
        self.client.invoke(self.address, command, NEVER_MS, self.answers.append)

    def answer(self) -> RemotingCommand:
        wait_for(lambda: self.answers, self.turn)
        answer = self.answers.pop()
        assert isinstance(answer, RemotingCommand)
        return answer


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with ExitStack() as resources:
        yield Live(tmp_path / "store", resources)


def test_a_message_that_is_put_goes_to_the_consumer_that_waits_for_it(live: Live) -> None:
    """HA-P-17 "When a message of the queue has been dispatched". The time of the loop stands still: no tick finds it."""
    live.ask(pull_request(361, sysFlag=4 | 2, consumerGroup="readers"))
    wait_for(lambda: live.pulls.hold.count, live.turn)
    live.store.put(Message("t", b"other queue", queue_id=1))
    live.store.put(Message("t", b"here", queue_id=0))
    answer = live.answer()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "1")
    assert decode(body_of(answer)).body == b"here"
    assert live.pulls.messages == 1
    assert live.tables.groups.subscription_group_table["readers"].consume_enable


def test_the_dispatch_tells_of_a_queue_when_it_has_the_message(live: Live) -> None:
    """The entries are there before anybody is told, whatever is done for the index afterwards."""
    told: list[tuple[set[tuple[bytes, int]], int]] = []
    index = live.store.index

    def tell(keys: Collection[tuple[bytes, int]]) -> None:
        queue = live.store.queues.get(b"t", 2)
        told.append((set(keys), queue.max_offset if queue is not None else 0))
        assert index.end_phy_offset == 0

    live.store.on_dispatched = tell
    live.store.put_batch([Message("t", b"x", queue_id=2, properties_string="KEYS\x01k")] * 3)
    assert live.store.wait_for_dispatch()
    assert told == [({(b"t", 2)}, 3)]


def test_a_backlog_is_read_in_batches(live: Live) -> None:
    for number in range(100):
        live.store.put(Message("t", b"%d" % number, properties_string="TAGS\x01" + "ab"[number % 2]))
    assert live.store.wait_for_dispatch()
    offset, found = 0, []
    while offset < 100:
        live.ask(pull_request(queueOffset=offset, subscription="b"))
        answer = live.answer()
        offset = int(answer.ext_fields["nextBeginOffset"])
        rest = body_of(answer)
        while rest:
            size = int.from_bytes(rest[:4], "big")
            found.append(int(decode(rest[:size]).body))
            rest = rest[size:]
    assert found == list(range(1, 100, 2))


def test_the_subscription_and_the_offset_go_through_the_tables(live: Live) -> None:
    heartbeat = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": "t",
                        "subString": "b",
                        "tagsSet": ["b"],
                        "codeSet": [98],
                        "subVersion": 7,
                        "expressionType": "TAG",
                    }
                ],
            }
        ],
    }
    live.tables.ask(RequestCode.HEART_BEAT, body=heartbeat)
    for tag in "ab":
        live.store.put(Message("t", tag.encode(), properties_string=f"TAGS\x01{tag}"))
    assert live.store.wait_for_dispatch()
    live.ask(pull_request(sysFlag=1, subscription=None, subVersion=7, commitOffset=2))
    answer = live.answer()
    assert (answer.code, decode(body_of(answer)).body) == (0, b"b")
    assert live.tables.offsets.query_offset("g", "t", 0) == 2
    live.ask(pull_request(sysFlag=0, subscription=None, subVersion=8))
    assert live.answer().code == 25


def test_a_field_that_is_missing_is_answered_and_the_connection_goes_on(live: Live) -> None:
    """HA-P-1 "is answered with SYSTEM_ERROR (1)"."""
    live.ask(pull_request(queueOffset=None))
    answer = live.answer()
    assert answer.code == 1
    assert answer.remark is not None
    assert answer.remark.startswith("field queueOffset: found nothing")
    live.ask(pull_request())
    assert live.answer().code == 19


def test_a_client_that_goes_leaves_no_pull_behind(live: Live) -> None:
    """HA-P-20 "When a connection closes, its parked pulls SHOULD be dropped"."""
    live.ask(pull_request(sysFlag=4 | 2))
    wait_for(lambda: live.pulls.hold.count, live.turn)
    live.client.disconnect(live.address)
    wait_for(lambda: not live.pulls.hold.count, live.turn)
    live.store.put(Message("t", b"x"))
    assert live.store.wait_for_dispatch()
    live.turn()


def test_the_answers_to_other_questions_come_over_the_same_connection(live: Live) -> None:
    put = live.store.put(Message("t", b"x", properties_string="KEYS\x01k"))
    assert live.store.wait_for_dispatch()
    asked = {
        RequestCode.GET_MAX_OFFSET: {"topic": "t", "queueId": "0"},
        RequestCode.GET_MIN_OFFSET: {"topic": "t", "queueId": "0"},
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: {"topic": "t", "queueId": "0", "timestamp": "0"},
        RequestCode.GET_EARLIEST_MSG_STORETIME: {"topic": "t", "queueId": "0"},
        RequestCode.VIEW_MESSAGE_BY_ID: {"offset": str(put.append.offset)},
        RequestCode.QUERY_MESSAGE: {
            "topic": "t",
            "key": "k",
            "maxNum": "9",
            "beginTimestamp": "0",
            "endTimestamp": str((1 << 63) - 1),
        },
    }
    found = {}
    for code, fields in asked.items():
        live.ask(RemotingCommand(code, ext_fields=fields))
        answer = live.answer()
        found[code] = answer.ext_fields.get("offset") or (len(body_of(answer)) or "timestamp" in answer.ext_fields)
    size = put.append.size
    assert list(found.values()) == ["1", "0", "0", True, size, size]
