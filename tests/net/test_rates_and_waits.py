"""The numbers of the loops: token buckets, the turns of slaves, the back-off, each below, at and above its boundary."""

from types import SimpleNamespace

import pytest

from rocketmq_ha.impl.net import back_off as back_off_module
from rocketmq_ha.impl.net.back_off import BackOff, sleep_unless_stopped
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.token_bucket import TokenBucket, first_bytes

# --- A token bucket ------------------------------------------------------------------------------------------------------


def test_a_bucket_is_empty_at_first_and_gives_out_no_small_change() -> None:
    """100,000 bytes a second are 100 in a millisecond: 4,096 bytes are there after 41 ms."""
    bucket = TokenBucket(100_000, 1000)
    assert [bucket.left(now_ms) for now_ms in (1000, 1040, 1041, 1041, 1099, 1100, 1101, 9000)] == [
        *(0, 0, 4100, 4100, 9900, 10_000, 10_000, 10_000),
    ]


def test_a_bucket_of_a_small_rate_gives_out_its_whole_burst() -> None:
    """A tenth of a second of 1,024 bytes a second is less than 4,096 bytes: 102.4 bytes, and never more."""
    bucket = TokenBucket(1024, 0)
    assert [bucket.left(now_ms) for now_ms in (99, 100, 5000)] == [0, 102, 102]
    bucket.spend(102)
    assert [bucket.left(now_ms) for now_ms in (5000, 5098, 5099, 5100)] == [0, 0, 0, 102]


def test_what_is_spent_comes_back_with_time_and_a_debt_is_paid_first() -> None:
    bucket = TokenBucket(100_000, 0)
    assert bucket.left(100) == 10_000
    bucket.spend(4000)
    assert bucket.left(100) == 6000
    bucket.spend(7000)
    assert [bucket.left(now_ms) for now_ms in (100, 110, 150, 151)] == [0, 0, 0, 4100]


def test_a_clock_that_steps_back_gives_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(100_000, 1000)
    assert [bucket.left(now_ms) for now_ms in (1050, 1000, 1050, 1060)] == [5000, 5000, 5000, 6000]


@pytest.mark.parametrize("nbytes", range(1, 12))
def test_the_first_bytes_are_views_of_the_buffers(nbytes: int) -> None:
    buffers = [memoryview(bytes(range(at, at + size))) for at, size in ((0, 3), (3, 5), (8, 2))]
    found = first_bytes(buffers, nbytes)
    assert b"".join(found) == bytes(range(10))[:nbytes]
    assert all(found)
    assert all(view.obj is buffer.obj for view, buffer in zip(found, buffers, strict=False))


# --- Back-off --------------------------------------------------------------------------------------------------------------


class Time:
    """A clock that moves by sleeps alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 50.0, []  # type: tuple[float, list[float]]
        self.drawn: list[tuple[float, float]] = []
        self.part, self.looks = 1.0, 0
        monkeypatch.setattr(back_off_module, "time", SimpleNamespace(monotonic=self._monotonic, sleep=self._sleep))
        monkeypatch.setattr(back_off_module, "random", SimpleNamespace(uniform=self._uniform))

    def _monotonic(self) -> float:
        self.looks += 1
        assert self.looks < 50_000, "the wait does not end"
        return self.now

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        assert len(self.slept) < 5000, "the sleep does not end"

    def _uniform(self, least: float, most: float) -> float:
        self.drawn.append((least, most))
        return self.part


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def never() -> bool:
    return False


def test_a_delay_doubles_up_to_five_seconds_and_begins_anew(time: Time) -> None:
    """HA-S-25 "longer after each one that brought nothing, with jitter, and 5 s at most"."""
    back_off = BackOff()
    waited = []
    for _ in range(9):
        began = time.now
        back_off.wait(never)
        waited.append(round(time.now - began, 6))
    assert waited == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    back_off.reset()
    assert back_off.next_s == 0.05
    back_off.wait(never)
    assert back_off.next_s == 0.1
    back_off.use_longest()
    assert back_off.next_s == 5.0
    back_off.wait(never)
    assert back_off.next_s == 5.0
    assert set(time.drawn) == {(0.5, 1)}


def test_jitter_makes_the_wait_shorter_and_not_the_next_delay(time: Time) -> None:
    time.part = 0.5
    back_off = BackOff()
    back_off.wait(never)
    assert (round(time.now - 50.0, 6), back_off.next_s) == (0.025, 0.1)


def test_a_wait_is_cut_short_by_a_stop_and_doubles_all_the_same(time: Time) -> None:
    back_off = BackOff()
    back_off.use_longest()
    asked = iter((False, False, True))
    back_off.wait(lambda: next(asked))
    assert (round(time.now - 50.0, 6), back_off.next_s) == (0.04, 5.0)
    back_off.reset()
    back_off.wait(lambda: True)
    assert (round(time.now - 50.0, 6), back_off.next_s) == (0.04, 0.1)


def test_a_sleep_says_whether_its_time_is_over_and_what_is_left(time: Time) -> None:
    left: list[float] = []
    assert sleep_unless_stopped(0.05, never, left.append)
    assert [round(each, 6) for each in left] == [0.05, 0.03, 0.01]
    assert [round(each, 6) for each in time.slept] == [0.02, 0.02, 0.01]
    assert not sleep_unless_stopped(0.05, lambda: len(time.slept) == 5, left.append)
    assert (len(left), len(time.slept)) == (5, 5)
    assert sleep_unless_stopped(0, lambda: True)
    assert sleep_unless_stopped(-1, lambda: True)


def test_time_that_passes_between_two_looks_is_slept_no_longer(time: Time) -> None:
    def meanwhile(_: float) -> None:
        time.now += 0.045  # what is done meanwhile takes longer than what is left

    assert sleep_unless_stopped(0.05, never, meanwhile)
    assert [round(each, 6) for each in time.slept] == [0.005]
    time.slept.clear()
    assert sleep_unless_stopped(0.04, never, meanwhile)
    assert time.slept == [0.0]


def test_limits_are_none_unless_they_are_given() -> None:
    assert Limits() == Limits(None, None, None, None, None, None)
