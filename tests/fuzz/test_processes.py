"""A node is read line by line, checked and ended; a script of the test stands in front of it, and in its place."""

import re
import sys
from pathlib import Path

import pytest

from rocketmq_ha.fuzz import processes
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.processes import Node


def node(log: Path, script: str) -> Node:
    return Node(log, "slave", "--store", "x", behind=("sh", "-c", script))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "node.log"


def test_results_are_read_line_by_line_without_their_key(log: Path) -> None:
    found = node(log, "echo told >&2; echo listening=127.0.0.1:1; echo put=PUT_OK=3 x=2; exec sleep 60")
    assert found.line("listening") == "127.0.0.1:1"
    assert found.line("put") == "PUT_OK=3 x=2"
    assert found.status is None
    found.check()
    assert found.stop() == -15
    assert found.status == -15
    assert log.read_text() == "told\n"


def test_another_line_and_the_end_are_errors_with_the_last_line_of_the_log(log: Path) -> None:
    found = node(log, "echo one >&2; echo two >&2; echo listening=1")
    with pytest.raises(FuzzError, match=re.escape(f"{log}: expected a line put=..., found listening=1; it said: two")):
        found.line("put")
    with pytest.raises(FuzzError, match=re.escape("expected a line put=..., found the end; it said: two")):
        found.line("put")
    assert found.stop() == 0
    silent = node(log.with_name("silent.log"), "exit 3")
    with pytest.raises(FuzzError, match=re.escape("found the end; it said: nothing")):
        silent.line("listening")
    assert silent.stop() == 3
    with pytest.raises(FuzzError, match=re.escape("silent.log: the process ended with status 3")):
        silent.check()


def test_a_key_is_compared_as_a_whole(log: Path) -> None:
    found = node(log, "echo putter=1")
    with pytest.raises(FuzzError, match="found putter=1"):
        found.line("put")
    found.stop()


def test_a_node_that_says_nothing_is_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.LINE_SECONDS == 120
    for within_s in (0.05, None):
        found = node(log, "exec sleep 10")
        with pytest.raises(FuzzError, match=re.escape("expected a line put=..., found the end; it said: nothing")):
            found.line("put", within_s)
        assert found.stop() == -9
        monkeypatch.setattr(processes, "LINE_SECONDS", 0.05)


def test_a_killed_node_has_no_time_to_end(log: Path) -> None:
    found = node(log, "trap '' TERM; echo ready=1; while :; do sleep 1; done")
    assert found.line("ready") == "1"
    found.kill()
    assert found.status == -9


def test_a_node_that_does_not_stop_is_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.STOP_SECONDS == 20
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.05)
    found = node(log, "trap '' TERM; echo ready=1; while :; do sleep 1; done")
    assert found.line("ready") == "1"
    assert found.stop() == -9


def test_the_log_of_a_node_that_starts_again_goes_on(log: Path) -> None:
    for text in ("first", "second"):
        found = node(log, f"echo {text} >&2; echo done=1")
        found.line("done")
        found.stop()
    assert log.read_text() == "first\nsecond\n"


def test_the_arguments_are_those_of_the_command_line(log: Path) -> None:
    found = node(log, 'echo "args=$0 $*"')
    assert found.line("args") == f"{sys.executable} -m rocketmq_ha.impl.cli slave --store x"
    found.stop()
