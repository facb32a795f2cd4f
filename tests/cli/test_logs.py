"""Log lines: their format, their fields, and the places of their options."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pythonjsonlogger.json import JsonFormatter

from kit.command_line import invoke
from kit.nodes import serving
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app import logs
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 1 << 16


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The program's logger, restored after the test."""
    found = logging.getLogger("rocketmq_ha")
    before = found.handlers[:], found.level, found.propagate
    logs.configure("text", "info")
    yield found
    found.handlers[:], found.level, found.propagate = before


def record(**fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "rocketmq_ha.x", "levelname": "INFO", "msg": "%s: closed", "args": ("a:1",), **fields}
    )
    made.created = 1700000000.0079
    return made


def test_a_json_line_has_milliseconds_and_the_fields_that_its_line_has(logger: logging.Logger) -> None:
    logs.set_format("json")
    formatter = logger.handlers[0].formatter
    assert isinstance(formatter, JsonFormatter)
    found = json.loads(formatter.format(record(peer="a:1", offset=4711, reason="housekeeping")))
    assert found == {
        "time": "2023-11-14T22:13:20.007Z",
        "level": "INFO",
        "logger": "rocketmq_ha.x",
        "message": "a:1: closed",
        "peer": "a:1",
        "offset": 4711,
        "reason": "housekeeping",
    }
    assert json.loads(formatter.format(record())).keys() == {"time", "level", "logger", "message"}


def test_a_text_line_has_the_same_time(logger: logging.Logger) -> None:
    formatter = logger.handlers[0].formatter
    assert formatter is not None
    assert formatter.format(record(peer="a:1")) == "2023-11-14T22:13:20.007Z INFO    rocketmq_ha.x: a:1: closed"


@pytest.mark.parametrize(
    ("before", "file", "behind", "expected"),
    [
        ([], "", [], logging.INFO),
        (["--log-level", "debug"], "", [], logging.DEBUG),
        ([], "", ["--log-level", "debug"], logging.DEBUG),
        (["--log-level", "error"], "", ["--log-level", "debug"], logging.DEBUG),
        ([], 'log_level = "warning"', [], logging.WARNING),
        ([], 'log_level = "warning"', ["--log-level", "debug"], logging.DEBUG),
        (["--log-level", "debug"], 'log_level = "warning"', [], logging.DEBUG),
        (["--log-level", "DEBUG"], "", [], logging.DEBUG),
        ([], "", ["--log-level", "Error"], logging.ERROR),
        ([], 'log_level = "WARNING"', [], logging.WARNING),
    ],
)
def test_the_level_may_stand_before_the_command_behind_it_and_in_its_file(
    before: list[str], file: str, behind: list[str], expected: int, logger: logging.Logger, tmp_path: Path
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'{file}\nstore = "{tmp_path}/s"\n[slave]\nmaster = "nowhere"\n')
    result = invoke(*before, "slave", "--config", str(config), *behind)
    assert (result.exit_code, "address 'nowhere'" in result.stderr) == (2, True)
    assert logger.level == expected


def test_the_format_may_stand_there_too(logger: logging.Logger, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'store = "{tmp_path}/s"\nlog_format = "json"\n[slave]\nmaster = "nowhere"\n')

    def is_json(*arguments: str) -> bool:
        invoke(*arguments)
        return isinstance(logger.handlers[0].formatter, JsonFormatter)

    command = ("slave", "--config", str(config))
    assert is_json(*command)
    assert not is_json("--log-format", "text", *command)
    assert not is_json(*command, "--log-format", "text")
    assert is_json("status", str(tmp_path / "none"), "--log-format", "json")
    assert not is_json("status", str(tmp_path / "none"))
    assert is_json("fuzz", "replay", "--log-format", "json", "no seed")


@pytest.mark.parametrize("arguments", [("no seed",), ("--help",), ("1",)])
@pytest.mark.usefixtures("logger")
def test_fuzz_leaves_the_log_level_as_it_was(arguments: tuple[str, ...]) -> None:
    implementation = logging.getLogger("rocketmq_ha.impl")
    implementation.setLevel(logging.NOTSET)
    invoke("fuzz", "replay", *arguments)
    assert implementation.level == logging.NOTSET


def test_a_wrong_level_in_a_file_is_one_line(logger: logging.Logger, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('log_level = "loud"\n')
    result = invoke("slave", "--config", str(config))
    assert result.exit_code == 2
    assert re.fullmatch(r"rocketmq-ha: .*c.toml: log_level = 'loud': 'loud' is not one of .*\n", result.stderr)
    assert logger.level == logging.INFO


def test_lines_about_a_connection_name_peer_offset_and_reason(
    logger: logging.Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger.handlers[:] = [caplog.handler]
    caplog.set_level(logging.INFO, "rocketmq_ha.impl")  # a campaign silences it
    with serving(tmp_path / "a", FILE_SIZE) as master, CommitLog.open(tmp_path / "b", file_size=FILE_SIZE) as log:
        with socket.create_connection(master.address, timeout=PATIENCE_S) as sock:
            sock.sendall(REPORT.pack(0))
            peer = "{}:{}".format(*sock.getsockname())
            wait_for(master.service.count_connected)
        wait_for(lambda: any("disconnected" in line.getMessage() for line in caplog.records))
        address = master.address
        follower = Follower(log, *master.address, Settings(FILE_SIZE), HARDENED)
        follower.run(lambda: follower.connects > 0)
    ended = next(vars(line) for line in caplog.records if "disconnected" in line.getMessage())
    assert (ended["peer"], ended["offset"], ended["reason"]) == (peer, 0, "end_of_stream")
    slaves = [vars(line) for line in caplog.records if line.name.endswith("client")]
    assert (slaves[0]["peer"], slaves[0]["offset"]) == ("{}:{}".format(*address), 0)
