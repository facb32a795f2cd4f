"""`rocketmq-ha ARGUMENTS`: within this process, or as a separate process."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kit.children import Child
from kit.waiting import PATIENCE_S, limited
from rocketmq_ha.impl.cli import main

COMMAND = (sys.executable, "-m", "rocketmq_ha.impl.cli")


def invoke(*arguments: object) -> Result:
    """Run a command within this process. The test fails if the command serves although it should have ended."""
    words = [str(argument) for argument in arguments]
    with limited(f"rocketmq-ha {' '.join(words)}", PATIENCE_S):
        return CliRunner().invoke(main, words)


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a command as a process until it ends."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def status_of(store: Path) -> dict[str, Any]:
    """The status of the master or slave that runs over a store."""
    result = invoke("status", store, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class Process:
    """A command as a process. Its standard error goes to a file; its output can still be read after a signal.

    limit_s: after which it is killed.
    """

    def __init__(self, log: Path, *arguments: object, limit_s: float = 2 * PATIENCE_S) -> None:
        self.log, command = log, [*COMMAND, *map(str, arguments)]
        with log.open("ab") as errors:
            self.process = Child(command, limit_s=limit_s, stdout=subprocess.PIPE, stderr=errors, text=True)

    def line(self, key: str) -> str:
        """The next line of the output, without `key=` at its start."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(f"{key}="), (line, self.log.read_text())
        return line.strip().removeprefix(f"{key}=")

    def words(self, key: str) -> dict[str, str]:
        """The words `a=b` of the next line of the output, which begins with `key=`."""
        return dict(word.split("=", 1) for word in f"{key}={self.line(key)}".split())

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, unless the process has ended. Returns: its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


Start = Callable[..., Process]  # the fixture of conftest.py: starts a command, and ends it after the test
