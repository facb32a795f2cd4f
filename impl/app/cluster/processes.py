"""Processes of a cluster: how one is started, and how one is found again by a number that the system may give anew."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rocketmq_ha.impl.app.cluster import child_of

POLL_S: Final = 0.02
STOP_S: Final = 20.0  # a broker flushes, and tells the name server that it goes
_STARTED: Final = 19  # of the fields of /proc/PID/stat behind the name: ticks from the boot to the start


@dataclass(frozen=True, slots=True)
class Identity:
    """A process. started: tells it from another one of the same pid; "" where the system does not say when it started."""

    pid: int
    started: str


def identity_of(pid: int) -> Identity | None:
    """The process of this pid; None if there is none, or one that has ended and is not collected yet."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _exists(pid) else Identity(pid, "")
    state, *fields = text.rpartition(")")[2].split()  # a name may have blanks and brackets
    return None if state in "ZX" else Identity(pid, f"{boot}/{fields[_STARTED - 1]}")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def is_running(process: Identity) -> bool:
    """Whether this very process runs. Where the system does not say when one started, none is taken for it."""
    return process.started != "" and identity_of(process.pid) == process


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Signal this very process, and no other that has its pid by now. Returns: whether it ran."""
    if not hasattr(os, "pidfd_open"):
        if is_running(process):
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
                return True
        return False
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_running(process):  # the descriptor holds the process, so that what is found here is what it stands for
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def end_all(processes: Sequence[Identity]) -> list[Identity]:
    """SIGTERM to those that run, and SIGKILL to those that do not end by it. Returns: those that ran."""
    found = [process for process in processes if send_signal(process, signal.SIGTERM)]
    until = time.monotonic() + STOP_S
    while any(map(is_running, found)) and time.monotonic() < until:
        time.sleep(POLL_S)
    for process in found:
        send_signal(process, signal.SIGKILL)
    return found


def start(
    command: Sequence[str],
    log: IO[bytes],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a command that ends when this thread does, and gets no signals of this terminal. Its errors go to `log`."""
    program = [sys.executable, "-I", "-S", child_of.__file__, str(os.getpid()), *command]
    return subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=log if stdout is None else stdout,
        stderr=log,
        env=None if environment is None else {**os.environ, **environment},
        start_new_session=True,
    )


def our_command(*arguments: str) -> list[str]:
    """The command line of `rocketmq-ha` with these arguments."""
    return [sys.executable, "-m", "rocketmq_ha.impl.cli", *arguments]
