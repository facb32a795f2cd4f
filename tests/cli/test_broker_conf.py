"""A broker.conf as options: each setting at a value of its own, and the ports at their limits."""

from pathlib import Path

import pytest

from kit.command_line import invoke
from kit.option_tables import KEPT, KEPT_BY_DEFAULT, received
from rocketmq_ha.impl.app.cleaning import HOUR_MS
from rocketmq_ha.impl.app.endpoints import Listening, MasterEndpoint
from rocketmq_ha.impl.app.remoting_tls import RemotingTlsFiles
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_broker import BrokerOptions
from rocketmq_ha.impl.app.run_master import MasterOptions
from rocketmq_ha.impl.app.run_slave import SlaveOptions
from rocketmq_ha.impl.broker.transaction_check import CheckSettings
from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.cli.broker_conf import options_of
from rocketmq_ha.impl.cli.config_file import read_config
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting.tls import TlsMode
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.spec.role import BrokerRole

SETTINGS = """\
storePathRootDir=/s
storePathCommitLog=/s/commitlog
mappedFileSizeCommitLog=5
haSendHeartbeatInterval=31
haHousekeepingInterval=32
haTransferBatchSize=33
haSlaveFallbehindMax=34
syncFlushTimeout=35
inSyncReplicas=37
fileReservedTime=14
deleteWhen=01;16
diskMaxUsedSpaceRatio=17
cleanFileForciblyEnable=false
cleanResourceInterval=19000
flushIntervalCommitLog=11000
flushCommitLogLeastPages=12
flushCommitLogThoroughInterval=13000
"""
BROKER_SETTINGS = """\
brokerIP1=10.0.0.6
listenPort=7000
brokerIP2=10.0.0.7
haListenPort=7001
namesrvAddr=a:1;b:2
brokerName=n
brokerClusterName=c
brokerId=3
brokerPermission=4
defaultTopicQueueNums=7
maxMessageSize=5000
regionId=r
registerNameServerPeriod=15000
mappedFileSizeConsumeQueue=6000
maxHashSlotNum=1000
maxIndexNum=4000
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=false
traceOn=false
slaveReadEnable=true
accessMessageInMemoryMaxRatio=51
rejectTransactionMessage=true
transactionTimeOut=21
transactionCheckMax=22
transactionCheckInterval=23
"""
KEEPS = Retention(14 * HOUR_MS, frozenset({1, 16}), 17, False, None)
FLUSHES = FlushIntervals(11.0, 12, 13.0)


def test_each_setting_of_a_master_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(SETTINGS + "brokerRole=SYNC_MASTER\nflushDiskType=SYNC_FLUSH\nbrokerIP2=10.0.0.7\nhaListenPort=7001\n")
    found = received(monkeypatch, "master", "--config", file)
    assert isinstance(found, MasterOptions)
    assert (found.store, found.file_size) == (Path("/s"), 5)
    assert found.listening == Listening(("10.0.0.7", 7001))
    assert found.roles == RoleSettings(BrokerRole.SYNC_MASTER, "sync")
    assert (found.retention.retention, found.retention.interval_s) == (KEEPS, KEPT.interval_s)
    assert found.flush_intervals == FLUSHES
    settings = found.settings
    assert (settings.ha_send_heartbeat_interval_ms, settings.ha_housekeeping_interval_ms) == (31, 32)
    assert (settings.ha_transfer_batch_size, settings.ha_slave_fallbehind_max) == (33, 34)
    assert (settings.sync_flush_timeout_ms, settings.replicas) == (35, 36)


def test_each_setting_of_a_slave_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(SETTINGS + "brokerRole=SLAVE\nhaMasterAddress=10.0.0.5:7002\n")
    found = received(monkeypatch, "slave", "--config", file)
    assert isinstance(found, SlaveOptions)
    assert (found.store, found.start.file_size, found.master) == (Path("/s"), 5, MasterEndpoint("10.0.0.5", 7002))
    assert (found.retention.retention, found.retention.interval_s) == (KEEPS, KEPT.interval_s)
    assert found.flush_intervals == FLUSHES
    assert (found.settings.ha_send_heartbeat_interval_ms, found.settings.ha_housekeeping_interval_ms) == (31, 32)


def test_each_setting_of_a_broker_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(SETTINGS + BROKER_SETTINGS)
    found = received(monkeypatch, "broker", "--config", file)
    assert isinstance(found, BrokerOptions)
    assert (found.store, found.file_size, found.roles) == (Path("/s"), 5, RoleSettings(BrokerRole.ASYNC_MASTER, "async"))
    assert (found.listen, found.announce, found.ha) == (("10.0.0.6", 7000), None, Listening(("10.0.0.7", 7001)))
    assert (found.retention.retention, found.settings.sync_flush_timeout_ms) == (KEEPS, 35)
    assert (found.retention.interval_s, found.flush_intervals) == (KEPT.interval_s, FLUSHES)
    assert (found.queue_file_size, found.index_geometry) == (6000, Geometry(1000, 4000))
    broker = found.broker
    assert broker.name_servers == ("a:1", "b:2")
    assert (broker.broker_id, broker.broker_permission, broker.region_id, broker.trace_on) == (3, 4, "r", False)
    assert (broker.max_message_size, broker.register_name_server_period) == (5000, 15_000)
    tables = broker.tables
    assert (tables.broker_name, tables.broker_cluster_name, tables.default_topic_queue_nums) == ("n", "c", 7)
    assert (tables.auto_create_topic_enable, tables.auto_create_subscription_group) == (False, False)
    assert (broker.slave_read_enable, broker.reject_transaction_message) == (True, True)
    assert broker.access_message_in_memory_max_ratio == 51
    assert broker.checks == CheckSettings(21, 22, 23, file_reserved_time=14)


def test_what_a_broker_has_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = received(monkeypatch, "broker", "--store", "s")
    assert isinstance(found, BrokerOptions)
    assert (found.flush_intervals, found.retention) == (FlushIntervals(0.5, 4, 10.0), KEPT_BY_DEFAULT)
    assert (found.broker.slave_read_enable, found.broker.reject_transaction_message) == (False, False)
    assert found.broker.checks == CheckSettings(6_000, 15, 60_000, 72)


def test_the_store_of_a_broker_runs_at_the_intervals_of_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `taken over` says has an effect: the file's intervals are those of the store that the broker opens."""
    file = tmp_path / "broker.conf"
    file.write_text(f"listenPort=7000\n{SETTINGS}".replace("/s", str(tmp_path / "s")).replace("Batch", "X"))
    opened: list[StoreOptions] = []

    def opens(_: Path, options: StoreOptions) -> None:
        opened.append(options)
        raise ConfigInvalid("enough")

    monkeypatch.setattr(MessageStore, "open", opens)
    arguments = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0", "--replicas", 1)
    assert "enough" in invoke("broker", "--config", file, *arguments).stderr
    (options,) = opened
    assert (options.expiry_interval_s, options.flush_intervals, options.retention) == (19.0, FLUSHES, KEEPS)


def test_what_means_nothing_to_a_broker_is_named(tmp_path: Path) -> None:
    """Settings without an effect are in the second half of the line."""
    file = tmp_path / "broker.conf"
    file.write_text("cleanResourceInterval=7\nflushIntervalCommitLog=8\nmessageDelayLevel=1s\nslaveReadEnable=true\n")
    with main.make_context("rocketmq-ha", ["status", "."]) as group:
        command = main.get_command(group, "broker")
        assert command is not None
        with command.make_context("broker", ["--store", "s"], parent=group) as ctx:
            taken, _, left = read_config(ctx, file)[1].partition("; means nothing here: ")
    assert left == "messageDelayLevel"
    assert {"cleanResourceInterval", "flushIntervalCommitLog", "slaveReadEnable"} <= set(taken.replace(",", "").split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--listen", "0.0.0.0:10911"), "expected --announce"),
        (("--listen", "127.0.0.1:2"), "expected a port from 3 to 65534"),
        (("--listen", "127.0.0.1:65535"), "expected a port from 3 to 65534"),
        (("--namesrv", "h"), "expected HOST:PORT"),
        (("--namesrv", "h:0"), "expected a port, not 0"),
        (("--tls-listen", "h:1"), "expected --tls-cert, --tls-key and --tls-ca"),
        (("--tls-mode", "enforcing"), "expected --tls-cert and --tls-key"),
        (("--tls-cert", "c"), "expected --tls-cert and --tls-key"),
        (("--tls-listen", "h:1", "--tls-cert", "c", "--tls-key", "k"), "expected --tls-cert, --tls-key and --tls-ca"),
        (("--role", "SLAVE"), "broker id 0 of a SLAVE: expected a greater one"),
    ],
)
def test_what_a_broker_cannot_be_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    """HA-R-2 "a slave with another id MUST NOT start"."""
    result = invoke("broker", "--store", "s", *arguments)
    assert result.exit_code == 2 and says in result.stderr, result.stderr


def test_the_ports_of_a_broker_follow_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for listen, ha in (("10.0.0.6:7000", 7001), ("10.0.0.6:0", 0)):
        found = received(monkeypatch, "broker", "--store", "s", "--listen", listen)
        assert isinstance(found, BrokerOptions)
        assert found.ha == Listening(("10.0.0.6", ha))
    found = received(monkeypatch, "broker", "--store", "s", "--listen", "0.0.0.0:7000", "--announce", "me")
    assert isinstance(found, BrokerOptions)
    assert (found.listen, found.announce, found.tls) == (("0.0.0.0", 7000), "me", None)
    found = received(monkeypatch, "broker", "--store", "s", "--tls-cert", "c", "--tls-key", "k", "--tls-mode", "enforcing")
    assert isinstance(found, BrokerOptions) and found.ha.tls is None
    assert found.tls == RemotingTlsFiles(TlsMode.ENFORCING, Path("c"), Path("k"), None)


def listens(lines: str) -> str:
    return options_of(Path("f"), lines, "master")[0]["listen"][1]


@pytest.mark.parametrize(
    ("lines", "port"),
    [
        ("haListenPort=1", 1),
        ("haListenPort=65534", 65_534),
        ("haListenPort=65535", None),
        ("haListenPort=-1", None),
        ("listenPort=1", 2),
        ("listenPort=65534", 65_535),
        ("listenPort=65535", None),
        ("listenPort=0", None),
        ("listenPort=-1", None),
    ],
)
def test_a_port_has_its_limits(lines: str, port: int | None) -> None:
    """HA-R-12 "The HA port MUST be `haListenPort`"."""
    if port is None:
        with pytest.raises(ConfigInvalid, match=f"f: {lines}: expected a port"):
            listens(lines)
    else:
        assert listens(lines) == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("lines", "master", "broker"),
    [
        ("", ("127.0.0.1:10912",), ("127.0.0.1:10911", "127.0.0.1:10912")),
        ("brokerIP1=a", ("127.0.0.1:10912",), ("a:10911", "a:10912")),
        ("brokerIP2=b", ("b:10912",), ("127.0.0.1:10911", "b:10912")),
        ("brokerIP1=a\nbrokerIP2=b", ("b:10912",), ("a:10911", "b:10912")),
        ("brokerIP1=a\nbrokerIP2=", ("127.0.0.1:10912",), ("a:10911", "a:10912")),
        ("brokerIP1=\nbrokerIP2=b", ("b:10912",), ("127.0.0.1:10911", "b:10912")),
        ("brokerIP1=a\nlistenPort=7000", ("127.0.0.1:7001",), ("a:7000", "a:7001")),
        ("brokerIP1=a\nhaListenPort=7009", ("127.0.0.1:7009",), ("a:10911", "a:7009")),
        ("brokerIP1=a\nhaListenPort=0\nlistenPort=7000", ("127.0.0.1:7001",), ("a:7000", "a:7001")),
        ("mapedFileSizeCommitLog=5\nbrokerIP1=a\nhaListenPort=7009", ("127.0.0.1:10912",), ("a:10911", "a:10912")),
    ],
)
def test_the_hosts_and_ports_of_a_file(lines: str, master: tuple[str], broker: tuple[str, str]) -> None:
    """HA-R-13 "MUST be `brokerIP2:haListenPort`": a host that the file does not name is that of the other port, which clients
    reach; the HA port of a `master` has nothing to do with where clients are told to connect.
    """
    found = options_of(Path("f"), lines, "broker")[0]
    assert (listens(lines),) == master
    assert (found["listen"][1], found["ha_listen"][1]) == broker


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("", []),
        ("brokerName=b\nbrokerId=0", ["brokerId", "brokerName"]),
        ("haListenPort=7000", []),
        ("mapedFileSizeCommitLog=5\nhaListenPort=7000", ["haListenPort"]),
        ("mapedFileSizeCommitLog=5\nmappedFileSizeCommitLog=5\nhaListenPort=7000", []),
        ("mapedFileSizeCommitLog= 5\nmappedFileSizeCommitLog=5 ", []),
        ("brokerIP2=h\nlistenPort=1\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\ninSyncReplicas=2", []),
    ],
)
def test_settings_without_a_meaning_here_are_named(lines: str, left: list[str]) -> None:
    assert options_of(Path("f"), lines, "master")[1] == left


def test_settings_of_a_master_mean_nothing_to_a_slave() -> None:
    found, left = options_of(Path("f"), "brokerRole=SLAVE\nflushDiskType=SYNC_FLUSH\nhaListenPort=7000\nbrokerName=b", "slave")
    assert (found, left) == ({}, ["brokerName", "flushDiskType"])


def test_the_note_names_what_is_taken_over_and_what_is_not(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for lines, note in (
        ("storePathRootDir=s\nbrokerRole=SLAVE\n", ""),
        (
            "storePathRootDir=s\nbrokerRole=SLAVE\nhaTransferBatchSize=7\nbrokerName=b\nhaMasterAddress=h:1\n",
            f"{file}: taken over: storePathRootDir, haMasterAddress; means nothing here: brokerName, haTransferBatchSize",
        ),
    ):
        file.write_text(lines)
        with main.make_context("rocketmq-ha", ["status", "."]) as group:
            command = main.get_command(group, "slave")
            assert command is not None
            with command.make_context("slave", ["--store", "s", "--master", "h:1"], parent=group) as ctx:
                assert read_config(ctx, file)[1] == note


@pytest.mark.parametrize("command", ["master", "slave"])
def test_each_role_is_one_of_its_command(command: str) -> None:
    for role, own in (("ASYNC_MASTER", "master"), ("SYNC_MASTER", "master"), ("SLAVE", "slave")):
        if own == command:
            options_of(Path("f"), f"brokerRole={role}", command)
            continue
        with pytest.raises(ConfigInvalid) as found:
            options_of(Path("f"), f"brokerRole={role}", command)
        assert str(found.value) == f"f: brokerRole={role}: expected a {command}'s role for `rocketmq-ha {command}`"
