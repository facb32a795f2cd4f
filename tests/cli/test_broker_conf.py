"""A broker.conf as options: each setting at a value of its own, and the ports at their limits."""

from pathlib import Path

import pytest

from kit.option_tables import KEPT, received
from rocketmq_ha.impl.app.cleaning import HOUR_MS
from rocketmq_ha.impl.app.endpoints import Listening, MasterEndpoint
from rocketmq_ha.impl.app.flushing import FlushIntervals
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_master import MasterOptions
from rocketmq_ha.impl.app.run_slave import SlaveOptions
from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.cli.broker_conf import options_of
from rocketmq_ha.impl.cli.config_file import read_config
from rocketmq_ha.impl.errors import ConfigInvalid
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
    if port is None:
        with pytest.raises(ConfigInvalid, match=f"f: {lines}: expected a port"):
            listens(lines)
    else:
        assert listens(lines) == f"127.0.0.1:{port}"


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
