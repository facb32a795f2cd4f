"""Chapter 6, Changes: a slave broker and its master over sockets; what the slave knows, also when it is promoted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.brokers import FILE_SIZE, LiveBroker
from kit.waiting import wait_for
from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

GROUP = {"consumerGroup": "group", "topic": "orders", "queueId": "1"}


class Pair:
    """A master and a slave, which follows its log. The slave asks for tables from `tell` on."""

    def __init__(self, directory: Path, profile: Profile) -> None:
        self.directory, self.profile = directory, profile
        hosts = ("127.0.0.1", 10921), ("127.0.0.1", 10922)
        self.master = LiveBroker(directory / "master", self.settings(BrokerRole.ASYNC_MASTER))
        self.slave = LiveBroker(directory / "slave", BrokerSettings(BrokerRole.SLAVE, *hosts, broker_id=1, profile=profile))
        self.following = Following(
            self.slave.store, lambda log, address: Follower(log, *address, Settings(FILE_SIZE), HARDENED)
        )
        self.following.start()
        self.following.follow(self.master.master.address)

    def settings(self, role: BrokerRole) -> BrokerSettings:
        return BrokerSettings(role, ("127.0.0.1", 10911), ("127.0.0.1", 10912), profile=self.profile)

    def tell(self) -> None:
        assert self.slave.controller.synchronize is not None
        self.slave.controller.synchronize.master_addr = self.master.address

    def turn(self) -> None:
        self.master.turn()
        self.slave.turn()

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, self.turn)

    def await_log(self) -> None:
        self.until(lambda: self.slave.store.log.max_offset == self.master.store.log.max_offset)
        self.until(lambda: self.slave.controller.figures.max_offset_in_queue("orders", 1))

    def promote(self) -> LiveBroker:
        """End both, and start the slave's directory as a master."""
        self.close()
        self.slave = LiveBroker(self.directory / "slave", self.settings(BrokerRole.ASYNC_MASTER))
        return self.slave

    def close(self) -> None:
        self.following.shutdown()
        self.slave.close()
        self.master.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    started = Pair(tmp_path, HARDENED)
    yield started
    started.close()


def test_changes_reach_the_slave_over_the_network(pair: Pair) -> None:
    """HA-MD-27 "MUST ask its master for the changes of its tables", HA-MD-32, HA-MD-33."""
    pair.tell()
    pair.master.send()
    pair.master.ask(15, GROUP | {"commitOffset": "1"})
    slave, offsets = pair.slave.controller, pair.slave.controller.offsets
    pair.until(lambda: "orders" in slave.topics.topic_config_table)
    pair.until(lambda: offsets.query_offset("group", "orders", 1) == 1)
    pair.master.send()
    pair.slave.ask(15, GROUP | {"commitOffset": "2"})
    pair.until(lambda: pair.master.controller.offsets.query_offset("group", "orders", 1) == 2)
    rounds = slave.synchronize
    assert rounds is not None
    pair.until(lambda: (rounds.taken_by, rounds.error) == ("changes", ""))


def test_a_slave_serves_a_topic_that_its_master_has_just_created(pair: Pair) -> None:
    """HA-MD-35 "MUST answer as for a topic with the perm 6": its master has not told it of any topic. HA-BT-18."""
    pair.master.send(b"new")
    pair.await_log()
    assert decode(pair.slave.pull(0).body).body == b"new"
    assert "orders" not in pair.slave.controller.topics.topic_config_table
    assert pair.slave.pull(0, topic="unknown").code == ResponseCode.TOPIC_NOT_EXIST
    promoted = pair.promote()
    assert promoted.controller.topics.topic_config_table["orders"].write_queue_nums == 2
    assert promoted.send(b"next").code == ResponseCode.SUCCESS


def test_a_topic_that_was_deleted_at_the_master_stays_so_when_the_slave_is_promoted(pair: Pair) -> None:
    """HA-MD-34 "MUST take the deleted topics that its master tells in place of its own"."""
    pair.tell()
    pair.master.send(b"old")
    pair.await_log()
    pair.until(lambda: "orders" in pair.slave.controller.topics.topic_config_table)
    assert pair.master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == ResponseCode.SUCCESS
    pair.until(lambda: "orders" not in pair.slave.controller.topics.topic_config_table)
    assert pair.slave.pull(0).code == ResponseCode.TOPIC_NOT_EXIST
    promoted = pair.promote()
    assert "orders" not in promoted.controller.topics.topic_config_table
    assert promoted.send(b"new").ext_fields["queueOffset"] == "1"


def test_a_pair_of_classic_does_as_rocketmq(tmp_path: Path) -> None:
    """HA-MD-30 "answers 30043 with REQUEST_CODE_NOT_SUPPORTED (3)": so does a master of classic; a slave of classic knows no
    topic of its log. HA-BT-81 "MUST be answered with REQUEST_CODE_NOT_SUPPORTED"."""
    pair = Pair(tmp_path, CLASSIC)
    try:
        for code in (RequestCode.GET_METADATA_CHANGES, RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
            assert pair.master.ask(code).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        pair.master.send()
        pair.await_log()
        assert pair.slave.pull(0).code == ResponseCode.TOPIC_NOT_EXIST
    finally:
        pair.close()
