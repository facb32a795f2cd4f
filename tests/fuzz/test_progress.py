"""Progress on stderr: a line every five seconds, with the rate and the time left; on a terminal a bar."""

from collections.abc import Callable

import pytest

from rocketmq_ha.fuzz.progress import LINE_EVERY_S, LogProgress, campaign_progress, run_progress


def at(times: list[float]) -> Callable[[], float]:
    return lambda: times[-1]


@pytest.fixture(autouse=True)
def no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_line_comes_every_five_seconds_and_tells_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    times = [1000.0]
    told = []
    with run_progress("schedules", 300, at(times)) as progress:
        for now, done in ((1000.0, 0), (1004.9, 40), (1005.0, 50), (1009.9, 90), (1010.0, 120), (1020.0, 300), (1030.0, 0)):
            times.append(now)
            progress(done)
            told.append(capsys.readouterr().err)
    assert LINE_EVERY_S == 5.0
    assert told == [
        "",
        "",
        "schedules: 50 of 300, 10/s, 25 s left\n",
        "",  # five seconds from the last line, not from the start
        "schedules: 120 of 300, 12/s, 15 s left\n",
        "",  # all is done
        "",  # nothing is done: no rate
    ]


def test_a_terminal_shows_a_bar_with_count_and_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    times = [1000.0]
    with run_progress("schedules", 300, at(times)) as progress:
        times.append(1004.0)
        progress(100)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "schedules" in captured.err
    assert "100/300" in captured.err
    assert "25/s" in captured.err


def test_a_campaign_that_goes_on_tells_that_no_partition_is_complete_until_it_has_more_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = [1000.0]
    told = []
    with campaign_progress(at(times)) as progress:
        for now, runs in ((1000.0, 800), (1004.9, 800), (1005.0, 800), (1010.0, 900), (1011.0, 1000), (1020.0, 1000)):
            times.append(now)
            progress(LogProgress(runs, runs * 100, 0, 1000))
            told.append(capsys.readouterr().err)
    assert told == [
        "",
        "",
        "runs: 800 of 1,000; no partition of this sitting is complete yet\n",
        "runs: 900 of 1,000, 10.0/s, 90,000 steps, 0 failed, 10 s left\n",
        "",
        "runs: 1,000 of 1,000, 10.0/s, 100,000 steps, 0 failed, 0 s left\n",
    ]


def test_a_campaign_that_has_nothing_to_add_waits_for_no_partition(capsys: pytest.CaptureFixture[str]) -> None:
    times = [1000.0]
    with campaign_progress(at(times)) as progress:
        for now in (1000.0, 1006.0):
            times.append(now)
            progress(LogProgress(1000, 100_000, 0, 1000))
    assert capsys.readouterr().err == "runs: 1,000 of 1,000, 0.0/s, 100,000 steps, 0 failed\n"


@pytest.mark.parametrize(("runs", "shown"), [(8_000, "8,000/1,000,000 no partition yet"), (9_000, "9,000/1,000,000 100.0/s")])
def test_a_terminal_of_80_columns_shows_that_no_partition_is_complete_and_then_the_rate(
    runs: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    times = [1000.0]
    with campaign_progress(at(times)) as progress:
        progress(LogProgress(8_000, 800_000, 0, 1_000_000))
        times.append(1010.0)
        progress(LogProgress(runs, 100 * runs, 1_234, 1_000_000))
    last = capsys.readouterr().err.rpartition("runs")[2]
    assert f"{shown} 1,234 failed" in last
