"""What one run may use, so that a run that hangs or eats memory is a verdict, and never the end of its partition.

time     an interval timer raises in the run; `RunTimeout` is no Exception, so that nothing on its way takes it for a finding
memory   the process may map so many bytes more than at the start of the run; then Python raises MemoryError
process  after a partition has killed its process, each of its runs is made in a child, and a child that dies is a verdict
"""

import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")

# A run takes 10 to 100 ms. On a busy machine it may wait for seconds; in one that hangs a minute is lost.
RUN_SECONDS: Final = 60.0
# The largest runs take some MiB.
RUN_MEMORY: Final = 1 << 30
LEAST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 86_400
LEAST_MEMORY: Final = 1 << 20  # bytes
MOST_MEMORY: Final = 1 << 46
_PAGE: Final = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float = RUN_SECONDS
    memory: int = RUN_MEMORY  # bytes


class RunTimeout(BaseException):
    """A run took too long."""


class RunDied(Exception):  # noqa: N818
    """A run ended the process in which it was made."""


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Limit what is done within. Only in the main thread, since only there Python handles signals.

    Raises: RunTimeout, MemoryError.
    """

    def on_alarm(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise RunTimeout

    before = signal.signal(signal.SIGALRM, on_alarm)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    mapped = _mapped()
    if mapped:
        resource.setrlimit(resource.RLIMIT_AS, (_lower(mapped + limits.memory, soft), hard))
    began = time.monotonic()
    rest, interval = signal.setitimer(signal.ITIMER_REAL, limits.seconds)  # of somebody else's timer, such as that of a test
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if rest:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, rest - (time.monotonic() - began)), interval)
        if mapped:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _mapped() -> int:
    """The bytes that this process has mapped; 0 where the system does not tell or does not keep the limit (macOS)."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  (a Path costs more than the read, once a run)
        return int(file.read().split()[0]) * _PAGE


def _lower(limit: int, present: int) -> int:
    return limit if present == resource.RLIM_INFINITY else min(limit, present)


def in_child(work: Callable[[], T]) -> T:
    """The result of `work`, done in a child of this process.

    Raises: RunDied, with how the child ended, if it ended without a result.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            with os.fdopen(write_end, "wb") as sink:
                pickle.dump(work(), sink)
            status = 0
        finally:
            os._exit(status)  # not sys.exit: what this process holds (Spark's sockets) is its parent's
    os.close(write_end)
    with os.fdopen(read_end, "rb") as source:
        data = source.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RunDied(_how(status))
    result: Any = pickle.loads(data)
    return result  # type: ignore[no-any-return]


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.waitstatus_to_exitcode(status)}"
