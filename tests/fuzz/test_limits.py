"""A run that hangs, eats memory or kills its process is noticed by its limits, and leaves none of them behind."""

import os
import resource
import signal
import sys
import time

import pytest

from rocketmq_ha.fuzz import limits
from rocketmq_ha.fuzz.limits import Limits, RunDied, RunTimeout, in_child, limited


def state() -> tuple[object, ...]:
    """The limits of this process, to the minute: the timer of a test goes on."""
    rest, interval = signal.getitimer(signal.ITIMER_REAL)
    return resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM), round(rest / 60), interval


def test_a_run_within_its_limits_leaves_nothing_behind() -> None:
    before = state()
    with limited(Limits(5.0, 1 << 28)):
        assert state() != before
        assert len(bytearray(1 << 20)) == 1 << 20
    assert state() == before


def test_a_run_that_does_not_end_is_broken_off_though_it_catches_every_exception() -> None:
    before = state()
    began = time.monotonic()
    with pytest.raises(RunTimeout), limited(Limits(0.05, 1 << 28)):
        while time.monotonic() < began + 60:
            try:
                time.sleep(0.001)
            except Exception:  # the lock-step does this
                continue
    assert time.monotonic() < began + 30
    assert state() == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep the limit")
def test_a_run_that_asks_for_much_memory_gets_an_error() -> None:
    before = state()
    with pytest.raises(MemoryError), limited(Limits(60.0, 1 << 26)):
        held = [bytearray(1 << 20) for _ in range(4096)]
        assert not held
    assert state() == before
    assert len(bytearray(1 << 26)) == 1 << 26


def test_a_child_gives_its_result() -> None:
    assert in_child(lambda: (os.getpid(), "result"))[1] == "result"
    assert in_child(os.getpid) != os.getpid()
    assert len(in_child(lambda: b"x" * 5_000_000)) == 5_000_000


@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGSEGV, "killed by SIGSEGV"), (signal.SIGKILL, "killed by SIGKILL"), (0, "exit status 3")]
)
def test_a_child_that_dies_says_how(number: int, told: str) -> None:
    def die() -> None:
        if number:
            os.kill(os.getpid(), number)
        os._exit(3)

    with pytest.raises(RunDied) as caught:
        in_child(die)
    assert str(caught.value) == told


def test_the_limits_of_a_run_are_far_from_what_one_takes() -> None:
    assert Limits() == Limits(60.0, 1 << 30) == Limits(limits.RUN_SECONDS, limits.RUN_MEMORY)
