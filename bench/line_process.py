"""A program of the benchmarks in a process of its own: told lines, it answers each with one, `name=number name=number`."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[1]


class LineProcess:
    """Started at once. Close it: it is killed, as it has nothing to save. What it says on standard error is kept in `said`.

    Raises: RuntimeError with what it said last, if it ends by itself.
    """

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as sink:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )

    def answer(self) -> dict[str, float]:
        """Its next line of results; other lines are passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pairs = [word.partition("=") for word in line.split()]
            if pairs and all(separator for _, separator, _ in pairs):
                return {key: float(value) for key, _, value in pairs}
        said = (self._said.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
        raise RuntimeError(f"{self._said.name}: the process ended: it said {said}")

    def tell(self, *words: object) -> None:
        """A line of words."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def ask(self, *words: object) -> dict[str, float]:
        """Tell it a line, and wait for its answer."""
        self.tell(*words)
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
    """The command that runs a program of this folder, by its module's name."""
    return [sys.executable, "-m", f"bench.{program}", *map(str, arguments)]


def reply(**numbers: float) -> None:
    """Such a program's answer, on its standard output."""
    sys.stdout.write(" ".join(f"{name}={value:.6f}" for name, value in numbers.items()) + "\n")
    sys.stdout.flush()
