"""Which master a slave broker follows, and what it stays when that master is gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.brokers import FILE_SIZE, LiveBroker
from kit.option_tables import received
from kit.sends import topic
from kit.waiting import accepted, wait_for
from rocketmq_ha.impl.app.endpoints import HaTls, TlsIdentity
from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.app.run_broker import BrokerOptions, _master_of
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.tls_files import TlsFiles
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

IDENTITY = TlsIdentity(TlsFiles(Path("cert"), Path("key"), Path("ca")))
HOSTS = ("127.0.0.1", 10921), ("127.0.0.1", 10922)


def test_a_new_address_is_taken_by_the_next_connect(tmp_path: Path) -> None:
    """HA-S-15 "MUST leave its client idle", HA-S-18 "A new address MUST NOT end the live connection", HA-R-8."""
    master = LiveBroker(tmp_path / "master")
    slave = LiveBroker(tmp_path / "slave", BrokerSettings(BrokerRole.SLAVE, *HOSTS, broker_id=1))
    following = Following(slave.store, lambda log, address: Follower(log, *address, Settings(FILE_SIZE), HARDENED))
    other = listen("127.0.0.1", 0)
    try:
        following.start()
        assert (following.master, following.follower) == (None, None)
        first, second = master.master.address, other.getsockname()[:2]
        following.follow(first)
        for body in (b"before", b"after"):  # it is told of the other master between the two
            assert master.send(body).code == ResponseCode.SUCCESS
            master.turn_until(lambda: slave.store.log.max_offset == master.store.log.max_offset)
            following.follow(second)
        follower = following.follower
        assert follower is not None
        assert (follower.client.peer, follower.connects) == (format_address(*first), 1)
        master.close()
        with accepted(other) as connection:
            (reported,) = REPORT.unpack(connection.recv(REPORT.size))
            assert 0 < reported < slave.store.log.max_offset  # HA-S-61: where the second message begins
        slave.controller.topics.update_topic_config(topic("orders", 4, 4))
        assert slave.send().code == ResponseCode.SERVICE_NOT_AVAILABLE  # HA-R-8 "MUST NOT become a master"
        following.check()
    finally:
        following.shutdown()
        other.close()
        slave.close()
        master.close()


def test_whatever_ends_the_thread_is_raised_in_the_loop(tmp_path: Path) -> None:
    """A slave that follows nobody any more, and says nothing, is worse than one that has ended."""

    def make(*_: object) -> Follower:
        raise ValueError("a fault of our own")

    slave = LiveBroker(tmp_path / "slave", BrokerSettings(BrokerRole.SLAVE, *HOSTS, broker_id=1))
    following = Following(slave.store, make)
    try:
        following.follow(("127.0.0.1", 1))
        following.start()
        with pytest.raises(ValueError, match="a fault of our own"):
            wait_for(following.check)
    finally:
        following.shutdown()
        slave.close()


def test_a_configured_address_comes_before_that_of_the_name_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-16 "uses it and takes no other"; a slave does not follow itself.

    HA-S-100 "MUST connect to that port of its master's host, whoever has told the host".
    """
    slave = LiveBroker(tmp_path / "slave", BrokerSettings(BrokerRole.SLAVE, *HOSTS, broker_id=1))
    found = [received(monkeypatch, "broker", "--store", "s", *words) for words in (("--master", "10.0.0.1:7000"), ())]
    try:
        for told, expected in (("", None), ("10.0.0.2:7001", ("10.0.0.2", 7001)), ("127.0.0.1:10922", None)):
            slave.controller.ha_server_addr = told
            for options, master in zip(found, (("10.0.0.1", 7000), expected), strict=True):
                assert isinstance(options, BrokerOptions)
                assert _master_of(options, slave.controller) == master
                of_tls = None if master is None else (master[0], 7002)
                assert _master_of(replace(options, ha_tls=HaTls(7002, IDENTITY)), slave.controller) == of_tls
    finally:
        slave.close()
