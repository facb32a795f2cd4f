"""A copy of the tree in which one edit after the other is planted, and tests are run until one fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from formal.tree_copy import ROOT, copy_tree, environment
from mutants.edits import Edit, EditError
from mutants.order import STAGES, Order, Stage
from mutants.results import KILLED, STALE, SURVIVED, UNDECIDED, Result

TEST_BOUND_S: Final = 400.0  # a test's own limits are shorter
START_BOUND_S: Final = 600.0  # pytest may take so long to its first test
TIMES: Final = 20  # a test may take so many times as long as when it was recorded
HANGS: Final = 2  # so many tests that the bound ends make an edit undecided
POLL_S: Final = 0.05
NO_TESTS: Final = 5  # exit status of pytest that has found none


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of pytest. failed: the test that failed, "" if none. hung: the test that the bound has ended."""

    status: int
    tests: tuple[str, ...]
    failed: str = ""
    message: str = ""
    hung: str = ""


class Shard:
    """One copy. `controls` is shared by all shards: whether a test passes without an edit."""

    def __init__(self, order: Order, controls: dict[str, bool], bound_s: float = TEST_BOUND_S, tree: Path = ROOT) -> None:
        self._order = order
        self._controls = controls
        self._bound_s = bound_s
        self._directory = tempfile.TemporaryDirectory(prefix="mut-")
        self._folder = Path(self._directory.name)
        self.root = copy_tree(self._folder, tree)
        self._clock = time.time()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._directory.cleanup()

    def stop(self) -> None:
        """End the running tests soon."""
        self._stopping.set()

    def judge(self, edit: Edit, stop_after: str = "") -> Result:
        """Plant an edit, and run the tests in their order until one fails. `stop_after` names the last stage to run."""
        began = time.monotonic()
        try:
            text = (self.root / edit.file).read_text(encoding="utf-8")
            edited = edit.apply(text)
            compile(edited, edit.file, "exec")
        except (EditError, OSError, SyntaxError) as error:
            return Result(edit, STALE, message=str(error))
        done: set[str] = set()
        hung: list[str] = []
        ran = Ran(0, ())
        stages = self._order.stages(edit, text)
        for stage in stages:
            while len(hung) < HANGS and not self._stopping.is_set():
                with self._planted(edit.file, edited):
                    ran = self._run(stage, done)
                done |= {*ran.tests}
                if ran.failed and self._passes_without(ran.failed):
                    return Result(edit, KILLED, ran.failed, ran.message, stage.name, len(done), time.monotonic() - began)
                hung += [ran.hung] if ran.hung else []
                done |= {*filter(None, [ran.failed])}
                if not ran.hung and "::" not in ran.failed:  # all have passed, or a file fails without the edit too
                    break
            if stop_after and STAGES.index(stage.name) >= STAGES.index(stop_after):
                break
        seconds = time.monotonic() - began
        if stage is not stages[-1] and not hung:
            return Result(edit, UNDECIDED, "", f"not all tests have run, only those to {stage.name!r}", "", len(done), seconds)
        if hung or self._stopping.is_set():
            return Result(edit, UNDECIDED, ", ".join(hung), "no word", "", len(done), seconds)
        return Result(edit, SURVIVED, "", "", stage.name, len(done), seconds)

    def _passes_without(self, test: str) -> bool:
        if test not in self._controls:
            stage = Stage("control", (test.partition("::")[0],), (test,) if "::" in test else None)
            ran = self._run(stage, set())
            self._controls[test] = not ran.failed and not ran.hung
        return self._controls[test]

    @contextmanager
    def _planted(self, file: str, text: str) -> Iterator[None]:
        path = self.root / file
        original = path.read_text(encoding="utf-8")
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, original)

    def _write(self, path: Path, text: str) -> None:
        """Write a source with a time of its own: Python takes compiled code by the second and the size of its source."""
        path.write_text(text, encoding="utf-8")
        self._clock -= 10
        os.utime(path, (self._clock, self._clock))

    def _run(self, stage: Stage, without: set[str]) -> Ran:
        """Run the tests of a stage, except those that have run."""
        if stage.tests is not None and without.issuperset(stage.tests):
            return Ran(NO_TESTS, ())
        choice, log, output = (self._folder / name for name in ("choice.json", "log.jsonl", "output"))
        choice.write_text(json.dumps({"order": stage.tests, "without": sorted(without)}), encoding="utf-8")
        log.write_text("")
        for left in (self.root / ".hypothesis", self._folder / "t"):
            shutil.rmtree(left, ignore_errors=True)
        options = ("-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "mutants.choose_plugin")
        command = [sys.executable, "-m", "pytest", *options, "--basetemp", str(self._folder / "t"), *stage.files]
        env = environment(self.root) | {"MUTANTS_CHOICE": str(choice), "MUTANTS_LOG": str(log)}
        env |= {"PYTHONPYCACHEPREFIX": str(self._folder / "compiled")}  # what pytest rewrites, too: half of the time
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with output.open("wb") as told:
            process = subprocess.Popen(
                command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True
            )
            try:
                hung = self._wait(process, log)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it, or what it has left behind
                process.wait()
        rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        begun = tuple(row["begins"] for row in rows if "begins" in row)
        if hung:
            return Ran(-1, begun, hung=begun[-1] if begun else stage.files[0])
        fails = next((row for row in rows if "fails" in row), None)
        if fails:
            return Ran(process.returncode, begun, fails["fails"], fails["message"])
        if process.returncode in (0, NO_TESTS):
            return Ran(process.returncode, begun)
        last = (output.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no word"])[-1]
        return Ran(
            process.returncode, begun, begun[-1] if begun else stage.files[0], f"status {process.returncode}: {last}"[:300]
        )

    def _wait(self, process: subprocess.Popen[bytes], log: Path) -> bool:
        """Wait for the end of pytest. Returns: True if a test has taken longer than the bound."""
        size, since, bound = 0, time.monotonic(), START_BOUND_S
        while not self._stopping.is_set():
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                return False
            if log.stat().st_size != size:
                size, since = log.stat().st_size, time.monotonic()
                bound = self._bound_of(log)
            if time.monotonic() - since > bound:
                return True
        return False

    def _bound_of(self, log: Path) -> float:
        *_, last = ["", *log.read_text(encoding="utf-8").splitlines()]
        with suppress(ValueError):
            seconds: float = self._order.seconds.get(json.loads(last).get("begins"), 0.0)
            return max(self._bound_s, TIMES * seconds)
        return self._bound_s
