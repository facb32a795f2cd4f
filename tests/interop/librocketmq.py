"""The client of librocketmq.lock: installed into build/, and run as processes."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from servers import PATIENCE_S

from kit.children import Child
from kit.waiting import LONG_S

HERE = Path(__file__).resolve().parent
LOCK = HERE / "librocketmq.lock"
PROGRAM = (sys.executable, "-P", HERE / "librocketmq_program.py")  # -P: its `rocketmq` is not the file of that name beside it


def install(directory: Path) -> str:
    """Install the pinned package; processes that come at once wait for the first.

    Returns: why it cannot be had here; the empty string if it is there.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".wait").open("w") as wait:
        fcntl.flock(wait, fcntl.LOCK_EX)
        return _install(directory)


def _install(directory: Path) -> str:
    done = directory / "installed.lock"
    if done.exists() and done.read_bytes() == LOCK.read_bytes():
        return ""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", "--no-deps"]
    words = ["--only-binary", ":all:", "--require-hashes", "--upgrade", "--target", directory, "--requirement", LOCK]
    ended = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=LONG_S, check=False)
    if ended.returncode:
        return f"pip: {(ended.stderr.strip().splitlines() or ['without a word'])[-1]}"
    loads = [sys.executable, "-c", "import rocketmq.client"]
    ended = subprocess.run(loads, env=environment(directory), capture_output=True, text=True, timeout=LONG_S, check=False)
    if ended.returncode:
        return f"it does not load: {ended.stderr.strip().splitlines()[-1]}"
    done.write_bytes(LOCK.read_bytes())
    return ""


def environment(package: Path, home: Path | None = None) -> dict[str, str]:
    """Of a process with the package. home: where it keeps its logs and the offsets of broadcasts."""
    return os.environ | {"PYTHONPATH": str(package)} | ({"HOME": str(home)} if home else {})


class Received(NamedTuple):
    """A message as a consumer has found it. line: its description."""

    reconsume_times: int
    queue_id: int
    queue_offset: int
    age_ms: int
    line: str


def received(rows: list[str]) -> list[Received]:
    return [Received(*map(int, row.split("\t", 4)[:4]), row.split("\t", 4)[4]) for row in rows]  # type: ignore[arg-type]


class Librocketmq:
    """The clients of one test. Close it."""

    def __init__(self, package: Path, work: Path) -> None:
        self._work, self._environment = work, environment(package, work)
        self._consumers: dict[str, Child] = {}
        work.mkdir()

    def run(self, command: str, *words: str) -> list[str]:
        """The lines that a command prints. Raises: AssertionError with its error if it does not end well."""
        ended = subprocess.run(
            [*PROGRAM, command, *words],
            env=self._environment,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, (command, words, ended.returncode, ended.stderr)
        return ended.stdout.splitlines()

    def consume(self, name: str, *words: str) -> None:
        """Start a push consumer, which runs until it leaves."""
        command = [*PROGRAM, "push", *words]
        with self._output(name).open("wb") as output, (self._work / f"{name}.err").open("wb") as errors:
            self._consumers[name] = Child(
                command, env=self._environment, stdin=subprocess.PIPE, stdout=output, stderr=errors, limit_s=LONG_S
            )

    def consumed(self, *names: str) -> list[Received]:
        """What these consumers have found until now; of each in the order of its coming."""
        return [each for name in names for each in received(self._rows(name))]

    def lines(self, *names: str) -> list[str]:
        return sorted(each.line for each in self.consumed(*names))

    def leave(self, name: str) -> None:
        """Let a consumer end. Raises: AssertionError if it does not end well."""
        consumer = self._consumers.pop(name)
        assert consumer.stdin is not None
        consumer.stdin.close()
        assert consumer.wait(PATIENCE_S) == 0, (self._work / f"{name}.err").read_text()

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.kill()
            consumer.communicate(timeout=PATIENCE_S)

    def _output(self, name: str) -> Path:
        return self._work / f"{name}.out"

    def _rows(self, name: str) -> list[str]:
        """Whole lines alone."""
        return self._output(name).read_text(encoding="utf-8").split("\n")[:-1]
