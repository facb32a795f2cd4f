"""A whole broker over loopback: what its parts do together, which the tests of each part cannot show."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.brokers import LiveBroker, pull_fields
from kit.sends import fields_of, item
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app.run_broker import AllPorts
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.topic_config import TopicConfig
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.net.limits import parse_networks
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.store.derived.topic_notes import queue_nums
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.spec.profile import CLASSIC, HARDENED
from rocketmq_ha.spec.role import BrokerRole

Start = Callable[..., LiveBroker]
HOSTS = ("127.0.0.1", 10911), ("127.0.0.1", 10912)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[LiveBroker] = []

    def begin(role: BrokerRole = BrokerRole.ASYNC_MASTER, flush: str = "async", **changed: object) -> LiveBroker:
        settings = BrokerSettings(role, *HOSTS, **changed)  # type: ignore[arg-type]
        started.append(LiveBroker(tmp_path / "store", settings, flush=flush))
        return started[-1]

    yield begin
    for broker in started:
        broker.close()


def test_a_message_that_is_sent_is_pulled(start: Start) -> None:
    broker = start()
    sent = broker.send(b"hello", properties="TAGS\x01new")
    assert sent.code == 0
    broker.await_dispatch(1)
    found = broker.pull()
    message = decode(found.body)
    assert (found.code, message.body, message.topic, message.queue_id) == (0, b"hello", "orders", 1)
    assert message.properties == {"TAGS": "new", "CLUSTER": "DefaultCluster"}
    assert message.born_host[0] == "127.0.0.1" and message.store_host == ("127.0.0.1", 10911)
    assert sent.ext_fields["msgId"] == f"7F00000100002A9F{message.physical_offset:016X}"


def test_a_pull_that_waits_gets_the_message_that_is_sent_next(start: Start) -> None:
    """HA-P-16, HA-P-17: the dispatch wakes the loop."""
    broker = start()
    broker.send(b"first")
    broker.await_dispatch(1)
    told = broker.invoke(request(11, pull_fields(1, 60_000)))
    broker.turn_until(lambda: broker.controller.pulls.hold.count == 1)
    broker.send(b"second")
    broker.turn_until(lambda: told)
    assert isinstance(told[0], RemotingCommand) and decode(told[0].body).body == b"second"


def test_a_delayed_message_comes_when_it_is_due(start: Start) -> None:
    broker = start()
    assert broker.send(b"late", properties="DELAY\x011").ext_fields["queueId"] == "1"
    told = broker.invoke(request(11, pull_fields(0, 60_000)))
    broker.turn_until(lambda: told)
    assert isinstance(told[0], RemotingCommand) and decode(told[0].body).body == b"late"


def test_a_put_that_waits_for_a_slave_is_answered_when_it_has_acknowledged(start: Start) -> None:
    """HA-SE-34 "MUST be answered when its put has ended, and not before", over the HA port and the port of clients."""
    broker = start(BrokerRole.SYNC_MASTER)
    assert broker.send().code == 11  # SLAVE_NOT_AVAILABLE
    host, port = broker.master.address
    with socket.create_connection((host, port), PATIENCE_S) as slave:
        slave.sendall(REPORT.pack(0))
        broker.turn_until(lambda: broker.master.service.count_connected() == 1)
        slave.sendall(REPORT.pack(broker.store.max_offset))
        broker.turn_until(lambda: broker.master.service.count_slaves() == 1)
        told = broker.invoke(request(310, fields_of(310), b"waits"))
        broker.turn_until(lambda: broker.controller.sends.waiting == 1)
        assert broker.send(b"does not", properties="WAIT\x01false").code == 0
        assert not told
        slave.sendall(REPORT.pack(broker.store.max_offset))
        broker.turn_until(lambda: told)
    assert isinstance(told[0], RemotingCommand) and told[0].code == 0


def test_a_put_that_waits_for_the_disk_is_answered_when_it_is_there(start: Start) -> None:
    broker = start(flush="sync")
    answer = broker.send(b"flushed")
    assert answer.code == 0
    assert broker.store.flushed_offset == broker.store.max_offset > 0


def test_sends_that_wait_are_answered_when_the_broker_ends(start: Start) -> None:
    broker = start(BrokerRole.SYNC_MASTER)
    with socket.create_connection(broker.master.address, PATIENCE_S) as slave:
        slave.sendall(REPORT.pack(0))
        broker.turn_until(lambda: broker.master.service.count_connected() == 1)
        broker.send(b"first", properties="WAIT\x01false")
        slave.sendall(REPORT.pack(broker.store.max_offset))
        broker.turn_until(lambda: broker.master.service.count_slaves() == 1)
        told = broker.invoke(request(310, fields_of(310), b"waits"))
        broker.turn_until(lambda: broker.controller.sends.waiting == 1)
        broker.puts.shutdown(0)
        broker.master.close()
        broker.controller.finish()
        wait_for(lambda: told, lambda: broker.client.poll(20))
    assert isinstance(told[0], RemotingCommand) and told[0].code == 12


def test_a_oneway_send_is_stored_and_not_answered(start: Start) -> None:
    broker = start()
    broker.client.send(broker.address, request(310, fields_of(310), b"oneway", oneway=True))
    broker.turn_until(lambda: broker.store.max_offset > 0)
    assert broker.send(b"next").ext_fields["queueOffset"] == "1"
    assert broker.server.pending == 0


def test_a_topic_is_in_its_file_before_its_first_message_is_answered(start: Start, tmp_path: Path) -> None:
    """HA-BT-12, HA-BT-19: the store writes no topics of its own."""
    broker = start()
    assert broker.send(topic="new").code == 0
    table = json.loads((tmp_path / "store" / "config" / "topics.json").read_bytes())["topicConfigTable"]
    assert table["new"]["writeQueueNums"] == 4


def test_everything_goes_on_after_a_restart(start: Start, tmp_path: Path) -> None:
    broker = start()
    broker.send(b"one", topic="orders")
    broker.ask(15, {"consumerGroup": "g", "topic": "orders", "queueId": "1", "commitOffset": "1"})
    broker.close()
    again = LiveBroker(tmp_path / "store")
    assert again.send(b"two").ext_fields["queueOffset"] == "1"
    asked = again.ask(14, {"consumerGroup": "g", "topic": "orders", "queueId": "1"})
    assert asked.ext_fields["offset"] == "1"
    again.await_dispatch(2)
    assert [decode(again.pull(at).body).body for at in (0, 1)] == [b"one", b"two"]
    again.close()


def test_a_master_names_the_topics_that_its_store_has_and_its_table_lacks(start: Start, tmp_path: Path) -> None:
    """HA-BT-18 "MUST add the topics of its consume queues"."""
    broker = start()
    broker.send(queueId="3")
    broker.close()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "store" / "config" / name).unlink(missing_ok=True)
    again = LiveBroker(tmp_path / "store")
    found = again.controller.topics.select_topic_config("orders")
    assert found is not None and found.write_queue_nums == 4
    again.close()


def test_a_deleted_topic_is_gone_for_good(start: Start) -> None:
    """HA-BT-80: a restart does not bring it back, and a topic of its name has its own messages alone, with greater numbers."""
    broker = start()
    broker.send(b"old")
    broker.await_dispatch(1)
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == 0
    broker.close()
    again = start()
    assert again.controller.topics.select_topic_config("orders") is None
    assert again.send(b"new").ext_fields["queueOffset"] == "1"
    again.await_dispatch(2)
    group = {"consumerGroup": "g", "topic": "orders", "queueId": "1"}
    assert again.ask(14, group).ext_fields["offset"] == "1"
    below = again.pull(0)
    assert (below.code, below.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    assert decode(again.pull(1).body).body == b"new"
    again.close()
    for profile, expected in ((HARDENED, {"orders"}), (CLASSIC, set())):  # HA-MD-34: what it knew counts until it is told
        slave = start(BrokerRole.SLAVE, profile=profile)
        assert set(slave.controller.deleted.table.entries) == expected
        slave.close()


@pytest.mark.parametrize("has_messages", [False, True])
def test_what_is_delivered_to_a_deleted_topic_does_not_bring_it_back(start: Start, has_messages: bool) -> None:
    """HA-BT-80 "A restart MUST NOT bring such a topic back": a delayed message, for one, comes after the deletion."""
    broker = start()
    broker.send()
    broker.await_dispatch(1)
    if not has_messages:
        assert broker.controller.topics.update_topic_config(TopicConfig("made", 4, 4))
    topic = "orders" if has_messages else "made"
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    for _ in range(2):  # as a delivery puts it, once before each restart
        broker.store.put(Message(topic, b"late", queue_id=1))
        assert broker.store.wait_for_dispatch()
        broker.close()
        broker = start()
        assert broker.controller.topics.select_topic_config(topic) is None
        assert broker.controller.figures.queue_nums().get(topic) is None


def test_a_deleted_topic_stays_so_when_its_messages_have_expired(tmp_path: Path) -> None:
    """HA-BT-80 "A restart MUST NOT bring such a topic back": its queue's last file stays."""
    for step in range(3):
        options = StoreOptions(file_size=1 << 12, queue_file_size=40, floor_size=0, notes_topics=False)
        with MessageStore.open(tmp_path, options) as store:
            deleted = DeletedTopics(store, ConfigFile(tmp_path / "config" / "deletedTopics.json"))
            deleted.load(topics=())
            if step == 0:
                store.put(Message("t", b""))
                assert store.wait_for_dispatch()
                deleted.delete("t", is_known=True)
                for _ in range(10):
                    store.put(Message("other", bytes(1000)))
                assert store.wait_for_dispatch()
                assert store.delete_expired(1 << 62)
            assert store.min_offset > 0
            assert list(deleted.table.entries) == ["t"]
            assert queue_nums(store.log, store.queues) == {"other": 1}


def test_a_deletion_that_could_not_be_saved_is_saved_later(start: Start, tmp_path: Path) -> None:
    """HA-BT-6 "MUST try again"."""
    broker = start()
    file = tmp_path / "store" / "config" / "deletedTopics.json"
    in_the_way = file.with_name("deletedTopics.json.tmp")
    ends = []
    for is_last in (False, True):
        broker.send()
        in_the_way.mkdir()
        assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == 0
        in_the_way.rmdir()
        ends.append(broker.store.max_offset)
        if is_last:
            broker.close()
        else:
            broker.turn_until(file.exists)
        assert json.loads(file.read_bytes())["deletedTopicTable"] == {"orders": {"logOffset": ends[-1]}}
    assert ends[0] < ends[1]


def test_a_client_that_goes_leaves_nothing_behind(start: Start) -> None:
    broker = start()
    broker.send()
    heartbeat = {"clientID": "c1", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    assert broker.ask(34, body=json.dumps(heartbeat).encode()).code == 0
    broker.await_dispatch(1)
    told = broker.invoke(request(11, pull_fields(1, 60_000)))
    broker.turn_until(lambda: broker.controller.pulls.hold.count == 1)
    assert broker.controller.producers.group_channel_table
    broker.client.disconnect(broker.address)
    broker.turn_until(lambda: told and not broker.controller.pulls.hold.count)
    broker.turn_until(lambda: not broker.controller.producers.group_channel_table.get("p"))


@pytest.mark.parametrize("ratio", [0, 40])
@pytest.mark.parametrize("slave_read_enable", [False, True])
def test_a_consumer_that_is_far_behind_is_sent_to_a_slave(start: Start, ratio: int, slave_read_enable: bool) -> None:
    """HA-R-21 "The bound MUST be the machine's memory times `accessMessageInMemoryMaxRatio`": with 0 all is far behind."""
    broker = start(slave_read_enable=slave_read_enable, access_message_in_memory_max_ratio=ratio)
    broker.send()
    broker.await_dispatch(1)
    assert broker.pull().ext_fields["suggestWhichBrokerId"] == ("1" if slave_read_enable and not ratio else "0")


@pytest.mark.parametrize(
    "code", [RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG]
)
def test_the_broker_says_how_it_is(start: Start, code: int) -> None:
    broker = start(config={"brokerName": "broker-a"})
    broker.send()
    answer = broker.ask(code)
    assert answer.code == 0 and answer.body


def test_a_broker_whose_dispatch_has_ended_ends(start: Start) -> None:
    """It would take messages that nobody gets."""
    broker = start()
    broker.store.dispatcher.error = StoreCorrupt("file", 7, "bytes", "a record")
    with pytest.raises(StoreCorrupt, match="at commit-log offset 7"):
        broker.turn()
    broker.store.dispatcher.error = None


def test_a_new_list_of_networks_holds_on_all_ports(start: Start) -> None:
    """HA-M-80 "MUST close the connections from outside of them"."""
    broker = start()
    broker.send()
    AllPorts(broker.master, broker.server).allow(parse_networks(["10.0.0.0/8"]))
    assert broker.server.channels == []
    assert not broker.master.limiter.admits("127.0.0.1") and not broker.server.limiter.admits("127.0.0.1")


def test_a_large_batch_is_answered_with_all_its_ids(start: Start) -> None:
    """The header of this answer is longer than that of any request may be. HA-RM-20, HA-SE-32."""
    broker = start()
    answer = broker.send(item(b"x") * 9_000, 320, batch="true")
    assert answer.code == 0
    ids = answer.ext_fields["msgId"].split(",")
    assert len(ids) == len(set(ids)) == 9_000
    assert len(answer.ext_fields["msgId"]) > 256 * 1024
