"""Start commands as processes through the command line."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from rocketmq_ha.fuzz.errors import FuzzError

STOP_SECONDS: Final = 20
LINE_SECONDS: Final = 120.0


class Node:
    """One `rocketmq-ha` process. Its log lines go to `log`; its results are read line by line. The caller must stop it.

    `behind`: a command in front of it that starts the process in its place, such as nsenter. `source`: a file for its standard
    input. `out`: a file for its results, in place of `line`.
    """

    def __init__(
        self, log: Path, *arguments: str, behind: Sequence[str] = (), source: Path | None = None, out: Path | None = None
    ) -> None:
        self.log = log
        self._log_file: IO[bytes] = log.open("ab")
        with ExitStack() as files:
            self._process = subprocess.Popen(
                [*behind, sys.executable, "-m", "rocketmq_ha.impl.cli", *arguments],
                stdin=files.enter_context(source.open("rb")) if source else subprocess.DEVNULL,
                stdout=files.enter_context(out.open("wb")) if out else subprocess.PIPE,
                stderr=self._log_file,
                text=True,
            )

    def line(self, key: str, within_s: float | None = None) -> str:
        """The next line of results, without `key=` at its start.

        Raises: FuzzError, if the process ends first. It is killed if no line comes within within_s, or LINE_SECONDS.
        """
        assert self._process.stdout is not None
        late = threading.Timer(LINE_SECONDS if within_s is None else within_s, self._process.kill)
        late.daemon = True
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line.startswith(f"{key}="):
            last = (self.log.read_text(encoding="utf-8").splitlines() or ["nothing"])[-1]
            raise FuzzError(f"{self.log}: expected a line {key}=..., found {line.strip() or 'the end'}; it said: {last}")
        return line.strip().removeprefix(f"{key}=")

    def check(self) -> None:
        """Raises: FuzzError if the process has ended by itself."""
        if self._process.poll() is not None:
            raise FuzzError(f"{self.log}: the process ended with status {self._process.returncode}")

    @property
    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def join(self, within_s: float) -> None:
        """Wait until it has ended by itself. Raises: FuzzError, if it does not, or with an error."""
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise FuzzError(f"{self.log}: the process has not ended within {within_s:g} s") from None
        if status:
            raise FuzzError(f"{self.log}: the process ended with status {status}")

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._end()

    def terminate(self) -> None:
        """SIGTERM. It may still run when this returns."""
        self._process.terminate()

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        self.terminate()
        return self._end()

    def _end(self) -> int:
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait(LINE_SECONDS)
        if self._process.stdout:
            self._process.stdout.close()
        self._log_file.close()
        return status
