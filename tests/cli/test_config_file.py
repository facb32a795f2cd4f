"""`--config`: TOML and broker.conf can set what the command line can, and a mistake in them is reported in one line."""

import logging
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from kit.command_line import invoke
from kit.waiting import PATIENCE_S
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.cli import broker_conf, config_file, main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNITS = ("rocketmq-ha-slave.service", "rocketmq-ha-namesrv.service", "rocketmq-ha-broker.service")


def options(command: str, *arguments: object) -> dict[str, Any]:
    """The options with which the command would run."""
    with main.make_context("rocketmq-ha", ["status", "."]) as group:
        found = main.get_command(group, command)
        assert found is not None
        with found.make_context(command, [*map(str, arguments)], parent=group) as ctx:
            return ctx.params


def written(folder: Path, text: str, name: str = "ha.toml") -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def refusal(command: str, file: Path) -> str:
    """The one error line of a command."""
    result = invoke(command, "--config", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


WORDS = {
    "metrics": '"h:2"',
    "listen": '"h:3"',
    "bind": '"127.0.0.1"',
    "tls_listen": '"h:4"',
    "tls_cert": '"cert.pem"',
    "tls_key": '"own.key"',
    "tls_ca": '"ca.pem"',
    "tls_name": '"broker-a"',
    "profile": '"classic"',
    "ack": '"flushed"',
    "allow": '["10.0.0.0/8", "::1/128"]',
    "sync": "0.5",
    "role": '"ASYNC_MASTER"',
    "flush": '"sync"',
    "max_transfer_rate": "4096",
    "delete_when": '"04;16"',
    "clean_file_forcibly": "true",
    "delete_unacknowledged": "true",
}


# --- TOML --------------------------------------------------------------------------------------------------------------------


def test_every_option_is_a_key(tmp_path: Path) -> None:
    with main.make_context("rocketmq-ha", ["status", "."]) as group:
        for name, needed in (("master", 'store = "s"'), ("slave", 'store = "s"\nmaster = "h:1"')):
            command = main.get_command(group, name)
            assert command is not None
            for option in command.params:
                key = max(option.opts, key=len).removeprefix("--").replace("-", "_")
                if key in {"config", "store", "master", "log_level", "log_format"}:  # the last two: test_logs.py
                    continue
                value: object = WORDS.get(key, "7")
                file = written(tmp_path, f"[{name}]\n{needed}\n{key} = {value}\n")
                (given,) = tomllib.loads(f"x = {value}").values()
                found = options(name, "--config", file)[str(option.name)]
                found = str(found) if isinstance(found, Path) else found
                assert (list(found) if option.multiple else found) == given, key


def test_a_table_is_for_its_command_and_wins_over_the_top(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'store = "a"\nfile_size = 5\nin_flight = 3\n[slave]\nmaster = "h:1"\nfile_size = 6\n[master]\nput = 9\n'
    )
    slave, master = options("slave", "--config", file), options("master", "--config", file)
    assert (slave["store"], slave["file_size"], slave["address"]) == (Path("a"), 6, "h:1")
    assert (master["store"], master["file_size"], master["in_flight"], master["count"]) == (Path("a"), 5, 3, 9)


@pytest.mark.parametrize("order", (1, -1))
def test_the_command_line_wins_wherever_it_stands(tmp_path: Path, order: int) -> None:
    file = written(tmp_path, 'store = "a"\n[slave]\nmaster = "h:1"\n')
    arguments = [("--config", file), ("--master", "h:2")][::order]
    found = options("slave", *(word for pair in arguments for word in pair))
    assert (found["address"], found["store"]) == ("h:2", Path("a"))


@pytest.mark.parametrize(
    ("text", "says"),
    (
        ('stor = "a"', "stor: no such option, expected store"),
        ("[slave]\nxyzzy = 1", "[slave] xyzzy: no such option, expected one of those that `rocketmq-ha slave --help` names"),
        ('master = "h:1"', "master = 'h:1': expected a table [master]; a slave's master is the key `master` in [slave]"),
        ("slave = 1", "slave = 1: expected a table [slave]"),
        ("store = ", "Invalid value (at end of document): expected TOML"),
        ('store = "a"\n[slave]\nmaster = "h:1"\nfile_size = "big"', "file_size = 'big': 'big' is not a valid integer range."),
        ('store = "a"\n[slave]\nmaster = "h:1"\nfile_size = 0', "file_size = 0: 0 is not in the range x>=1."),
        ('config = "other.toml"', "config: no such option"),
    ),
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    assert refusal("slave", file).startswith(f"rocketmq-ha: {file}: {says}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none.toml'}: No such file or directory" in refusal("slave", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"store = '\xff'")
    assert "bad.toml: byte 9 is not UTF-8" in refusal("slave", tmp_path / "bad.toml")


def test_a_master_is_served_by_its_file(tmp_path: Path) -> None:
    file = written(tmp_path, f'store = "{tmp_path / "store"}"\nfile_size = 65536\n[master]\nlisten = "127.0.0.1:0"\nput = 10\n')
    node = Node(tmp_path / "master.log", "master", "--config", str(file))
    try:
        assert node.line("listening").startswith("127.0.0.1:")
        assert "put=10 " in "put=" + node.line("put")
        assert sum(1 for _ in (tmp_path / "store" / "commitlog").iterdir()) == 1
    finally:
        node.stop()


# --- broker.conf -------------------------------------------------------------------------------------------------------------

BROKER_CONF = r"""
# as a broker has it
brokerClusterName = DefaultCluster
brokerName=broker\u002da
brokerId : 1
brokerRole=SLAVE
storePathRootDir=/data/rocketmq
storePathCommitLog=/data/rocketmq/commitlog
haMasterAddress=10.0.0.5:10912
mappedFileSizeCommitLog=1048576
haSendHeartbeatInterval=1000
haHousekeepingInterval=4000
haTransferBatchSize=65536
fileReservedTime=48
deleteWhen=02;14;
diskMaxUsedSpaceRatio=80
cleanFileForciblyEnable=false
cleanResourceInterval=5000
flushIntervalCommitLog=200
flushCommitLogLeastPages=8
flushCommitLogThoroughInterval=5000
"""


def test_a_slave_takes_what_a_broker_conf_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(config_file.__name__)
    logger.addHandler(caplog.handler)  # the program's logger does not propagate
    with caplog.at_level("INFO", config_file.__name__):
        found = options("slave", "--config", written(tmp_path, BROKER_CONF, "broker.conf"))
    assert (found["store"], found["address"], found["file_size"]) == (Path("/data/rocketmq"), "10.0.0.5:10912", 1 << 20)
    assert (found["ha_send_heartbeat_interval_ms"], found["ha_housekeeping_interval_ms"]) == (1000, 4000)
    flushes = ("flush_interval_commit_log", "flush_commit_log_least_pages", "flush_commit_log_thorough_interval")
    assert tuple(found[name] for name in flushes) == (200, 8, 5000)
    kept = ("file_reserved_time", "delete_when", "disk_max_used_space_ratio", "clean_file_forcibly", "clean_resource_interval")
    assert tuple(found[name] for name in kept) == (48, "02;14", 80, False, 5000)
    logger.removeHandler(caplog.handler)
    line = caplog.messages[-1]
    assert line.endswith("means nothing here: brokerClusterName, brokerId, brokerName, haTransferBatchSize")


@pytest.mark.parametrize(
    ("lines", "listen", "role", "flush"),
    (
        ("", "127.0.0.1:10912", "ASYNC_MASTER", "async"),
        ("brokerRole=SYNC_MASTER\nlistenPort=20911", "127.0.0.1:20912", "SYNC_MASTER", "async"),
        ("haListenPort=0\nlistenPort=20911\nflushDiskType=SYNC_FLUSH", "127.0.0.1:20912", "ASYNC_MASTER", "sync"),
        ("haListenPort=7000\nlistenPort=20911\nbrokerIP2=10.0.0.7", "10.0.0.7:7000", "ASYNC_MASTER", "async"),
        ("brokerIP2=::1\nhaMasterAddress=10.0.0.1:1\nflushDiskType=ASYNC_FLUSH", "[::1]:10912", "ASYNC_MASTER", "async"),
    ),
)
def test_a_master_takes_what_a_broker_conf_says(tmp_path: Path, lines: str, listen: str, role: str, flush: str) -> None:
    found = options("master", "--config", written(tmp_path, f"storePathRootDir=s\n{lines}\n", "broker.properties"))
    assert (found["listen"], found["role"], found["flush"], found["store"]) == (listen, role, flush, Path("s"))


def test_a_broker_conf_of_4_4_is_understood(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-ST-11 "a store MUST keep the size with which it was begun": mapedFileSizeCommitLog, as it was spelled until 4.5.1.

    Such a broker overwrites haListenPort (HA-R-12).
    """
    lines = "storePathRootDir=s\nmapedFileSizeCommitLog=1048576\nhaListenPort=7000\nlistenPort=20911\n"
    logger = logging.getLogger(config_file.__name__)
    logger.addHandler(caplog.handler)
    with caplog.at_level("INFO", config_file.__name__):
        found = options("master", "--config", written(tmp_path, lines, "broker.conf"))
    logger.removeHandler(caplog.handler)
    assert (found["file_size"], found["listen"]) == (1 << 20, "127.0.0.1:20912")
    assert caplog.messages[-1].endswith("means nothing here: haListenPort")
    both = lines + "mappedFileSizeCommitLog=1048576\n"
    found = options("master", "--config", written(tmp_path, both, "broker.conf"))
    assert (found["file_size"], found["listen"]) == (1 << 20, "127.0.0.1:7000")


@pytest.mark.parametrize(
    ("lines", "replicas"),
    (("", 1), ("inSyncReplicas=1", 1), ("inSyncReplicas=2", 1), ("inSyncReplicas=3", 2), ("minInSyncReplicas=3", 1)),
)
def test_a_broker_counts_itself_among_those_in_sync(tmp_path: Path, lines: str, replicas: int) -> None:
    """HA-G-30: 5.x's `inSyncReplicas` is the master and its slaves."""
    assert (
        options("master", "--config", written(tmp_path, f"storePathRootDir=s\n{lines}\n", "broker.conf"))["replicas"]
        == replicas
    )


@pytest.mark.parametrize(
    ("lines", "says"),
    (
        *(
            (f"inSyncReplicas={value}", f"inSyncReplicas={value}: expected a number of brokers from 1 on, the master counted")
            for value in ("0", "-2", "two", "")
        ),
        ("brokerRole=SLAVE", "brokerRole=SLAVE: expected a master's role for `rocketmq-ha master`"),
        ("brokerRole=BOSS", "brokerRole=BOSS: expected ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        (
            "storePathRootDir=/a\nstorePathCommitLog=/b/log",
            "storePathCommitLog=/b/log: expected /a/commitlog, in storePathRootDir",
        ),
        ("listenPort=port", "listenPort=port: expected a port"),
        ("flushDiskType=SOMETIMES", "flushDiskType=SOMETIMES: expected ASYNC_FLUSH or SYNC_FLUSH"),
        ("haListenPort=65536", "haListenPort=65536: expected a port"),
        (
            "storePathRootDir=/a\nmapedFileSizeCommitLog=4096\nmappedFileSizeCommitLog=8192",
            "mapedFileSizeCommitLog=4096, mappedFileSizeCommitLog=8192: expected one size",
        ),
        (
            "storePathRootDir=/a\nmappedFileSizeCommitLog=1G",
            "mappedFileSizeCommitLog = '1G': '1G' is not a valid integer range.",
        ),
        ("deleteWhen=4am", "deleteWhen = '4am': '4am': expected hours of the day from 00 to 23, with ';' between them"),
        ("deleteWhen=24", "deleteWhen = '24': '24': expected hours of the day from 00 to 23, with ';' between them"),
        ("x=\\u00zz", "Invalid \\u escape sequence"),
        ("[slave]", "found '[slave]', expected a Java properties file: lines of name=value"),
    ),
)
def test_what_a_broker_conf_cannot_mean_is_one_line(tmp_path: Path, lines: str, says: str) -> None:
    file = written(tmp_path, lines + "\n", "broker.conf")
    assert f"{file}: {says}" in refusal("master", file)


def test_the_page_names_every_setting_of_broker_conf_that_is_read() -> None:
    page = (EXAMPLES.parent / "docs" / "configuration.md").read_text("utf-8")
    table = page.partition("| broker.conf | option |\n|---|---|\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == broker_conf._LOOKED_AT | {"flushDiskType"}
    more = page.partition("| broker.conf of `broker` | option |\n|---|---|\n")[2].partition("\n\n")[0]
    named_more = {name for row in more.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named_more == broker_conf._LOOKED_AT_BY_BROKER - broker_conf._LOOKED_AT | {
        "listenPort",
        "brokerIP2",
        "haListenPort",
        "haMasterAddress",
    }


# --- Examples ----------------------------------------------------------------------------------------------------------------


def test_the_examples_are_read() -> None:
    assert options("slave", "--config", EXAMPLES / "slave.toml")["address"] == "127.0.0.1:10912"
    served = options("master", "--config", EXAMPLES / "slave.toml")
    assert (served["listen"], served["role"], served["flush"]) == ("127.0.0.1:10912", "ASYNC_MASTER", "async")


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_calls_what_there_is(unit: str) -> None:
    text = (EXAMPLES / unit).read_text("utf-8")
    (command,) = (line.partition("=")[2].split() for line in text.splitlines() if line.startswith("ExecStart="))
    assert command[2] == "--config"
    with main.make_context("rocketmq-ha", ["status", "."]) as ctx:
        assert isinstance(ctx.command, click.Group)
        assert ctx.command.get_command(ctx, command[1]) is not None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    program = tmp_path / "rocketmq-ha"
    program.symlink_to("/bin/true")
    text = (EXAMPLES / name).read_text("utf-8").replace("/opt/rocketmq-ha/bin/rocketmq-ha", str(program))
    unit = tmp_path / name
    unit.write_text(text, "utf-8")
    verdict = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, env=os.environ, check=False, timeout=PATIENCE_S
    )
    assert name not in verdict.stderr, verdict.stderr
