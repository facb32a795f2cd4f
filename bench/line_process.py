"""Run a program of the benchmarks in its own process. It answers each line of input with a line `name=number name=number`."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[1]


class LineProcess:
    """A process that is started at once and killed by close(), because it has nothing to save.

    Args: stderr_log: the file for its standard error.
    Raises: RuntimeError with the last line of its standard error, if the process ends by itself.
    """

    def __init__(self, command: Sequence[str], stderr_log: Path) -> None:
        self._stderr_log = stderr_log
        with stderr_log.open("wb") as sink:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> dict[str, float]:
        """Wait for the next line of results, and return it. Other lines are skipped."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pairs = [word.partition("=") for word in line.split()]
            if pairs and all(separator for _, separator, _ in pairs):
                return {key: float(value) for key, _, value in pairs}
        last = (self._stderr_log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
        raise RuntimeError(f"{self._stderr_log.name}: the process ended; its last line on standard error is: {last}")

    def send(self, *words: object) -> None:
        """Send a line of words."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def ask(self, *words: object) -> dict[str, float]:
        """Send a line, and wait for the answer."""
        self.send(*words)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def python(program: str, *arguments: object) -> list[str]:
    """Return the command that runs a program of this folder, given by its module name."""
    return [sys.executable, "-m", f"bench.{program}", *map(str, arguments)]


def reply(**numbers: float) -> None:
    """Print a program's answer to standard output."""
    sys.stdout.write(" ".join(f"{name}={value:.6f}" for name, value in numbers.items()) + "\n")
    sys.stdout.flush()
