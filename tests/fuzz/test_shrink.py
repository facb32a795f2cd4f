"""A failing schedule becomes as short as its failure allows, and fails in the same way."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kit.schedules import put, schedule_of
from rocketmq_ha.fuzz import cli, faults, schedule_file, shrink
from rocketmq_ha.fuzz.lockstep import RunOutcome, StepOutcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.events import Connect, Cut, Put, Tick

LINK = registry.WORLDS["link"]


def run(schedule: Any) -> RunOutcome:
    """Fails at the first tick of 5 ms or more behind a put of 3 bytes or more and a cut, in this order."""
    steps, seen = [], 0
    for index, event in enumerate(schedule.events):
        seen = max(seen, 1) if isinstance(event, Put) and len(event.body) >= 3 else seen
        seen = 2 if seen == 1 and isinstance(event, Cut) else seen
        fails = seen == 2 and isinstance(event, Tick) and event.ms >= 5
        other = isinstance(event, Tick) and event.ms == 999
        verdict = ("divergence", "link/Tick/room") if fails else ("error", "x") if other else ("ok", "")
        steps.append(StepOutcome(index, event, START_MS, (), *verdict))
        if verdict[0] != "ok":
            break
    return RunOutcome(schedule, tuple(steps))


NOISE = (Tick(1), Connect(0, 5, 5), put(1))


def test_what_a_failure_does_not_need_is_removed_and_the_rest_is_simple() -> None:
    schedule = schedule_of(*NOISE, put(40, wait=True), *NOISE, Cut(0, "both"), *NOISE * 5, Tick(20_000), *NOISE)
    told: list[tuple[int, int]] = []
    found = shrink.shrink(schedule, run, lambda events, tries: told.append((events, tries)))
    assert found is not None
    assert [type(event) for event in found.outcome.schedule.events] == [Put, Cut, Tick]
    first, _, last = found.outcome.schedule.events
    assert (first.body, first.wait) == (b"x" * 40, False)  # bodies keep their length where the empty one does not fail
    assert last.ms == 5
    assert found.outcome.verdict == "divergence"
    assert told == sorted(told, key=lambda one: (-one[0], one[1]))
    assert found.tries < 300


def test_a_failure_of_another_kind_is_not_taken_for_it() -> None:
    schedule = schedule_of(put(3), Cut(0, "both"), Tick(6), Tick(999))
    found = shrink.shrink(schedule, run)
    assert found is not None
    assert found.outcome.last.signature == "link/Tick/room"


def test_a_failure_before_the_first_event_keeps_an_event() -> None:
    def cannot_open(schedule: Any) -> RunOutcome:
        return RunOutcome(schedule, (StepOutcome(-1, schedule.events[0], START_MS, (), "crash", "link/process"),))

    found = shrink.shrink(schedule_of(*NOISE), cannot_open)
    assert found is not None
    assert len(found.outcome.schedule.events) == 1


def test_a_schedule_that_does_not_fail_is_not_shrunk() -> None:
    assert shrink.shrink(schedule_of(*NOISE), run) is None


def test_the_shortest_run_of_a_planted_fault_is_a_file_that_replays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fault = faults.find("report-rounds-up")
    out = tmp_path / "shortest.json"
    seed = 4
    assert faults.run_with(fault, tmp_path, ["shrink", str(seed), "--world", "link", "--out", str(out)]) == 0
    last = capfd.readouterr().out.splitlines()[-1]
    shortest = schedule_file.read(out)
    assert last.startswith(f"events={len(shortest.events)} of={len(LINK.draw(seed).events)} tries=")
    assert len(shortest.events) <= 6, shortest.events
    assert faults.run_with(fault, tmp_path, ["replay", str(out)]) == 1
    assert CliRunner().invoke(cli.fuzz, ["replay", str(out)]).exit_code == 0  # without the fault both sides agree
    assert replace(shortest, events=()) == replace(LINK.draw(seed), events=())


def test_a_file_that_cannot_be_written_in_the_end_is_one_line_and_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The disk has taken something else for the new file's name meanwhile; a full disk takes this way, too."""
    out = tmp_path / "shortest.json"
    (tmp_path / "shortest.json.tmp").mkdir()
    status = faults.run_with(faults.find("report-rounds-up"), tmp_path, ["shrink", "4", "--world", "link", "--out", str(out)])
    told = capfd.readouterr().err.splitlines()
    assert (status, told[-1]) == (2, f"rocketmq-ha: {out}: Is a directory")
    assert not out.exists()
    assert not [line for line in told if "Traceback" in line]


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("file/x", "found Not a directory (file/x), expected a folder with room"),
        ("n" * 300, f"found File name too long ({'n' * 300}), expected a folder with room"),
        ("pipe", "found something that is no file, expected a file or a new name"),
        ("link", "found something that is no file, expected a file or a new name"),
    ],
)
def test_a_place_that_takes_no_file_is_told_before_the_work_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, told: str
) -> None:
    """A pipe stands for /dev/null and /dev/full, which root may replace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shrink, "shrink", lambda *_, **__: pytest.fail("the work has begun"))
    Path("file").write_text("kept")
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    result = CliRunner().invoke(cli.fuzz, ["shrink", "4", "--world", "link", "--out", out])
    assert (result.exit_code, result.stderr) == (2, f"rocketmq-ha: --out {out}: {told}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]
    assert Path("pipe").is_fifo()


def test_a_file_in_a_folder_that_takes_no_new_one_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is written beside the old one, so that the folder must take it."""
    out = tmp_path / "x.json"
    out.write_text("kept")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may write into every folder
    monkeypatch.setattr(shrink, "shrink", lambda *_, **__: pytest.fail("the work has begun"))
    result = CliRunner().invoke(cli.fuzz, ["shrink", "4", "--world", "link", "--out", str(out)])
    told = f"rocketmq-ha: --out {tmp_path}: found a place that cannot be written, expected one that can\n"
    assert (result.exit_code, result.stderr) == (2, told)
    assert out.read_text() == "kept"


def test_shrinking_what_does_not_fail_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.fuzz, ["shrink", "4", "--world", "link", "--out", str(tmp_path / "x")])
    assert (result.exit_code, (tmp_path / "x").exists()) == (1, False)
    assert "events do not fail" in result.stderr
