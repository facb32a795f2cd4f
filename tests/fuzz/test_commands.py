"""The commands of the machinery: their options, last lines and exit statuses, from results that are given to them."""

import logging
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from rocketmq_ha.analysis import session
from rocketmq_ha.fuzz import campaign, faults, hunt, replay, schedule
from rocketmq_ha.fuzz import cli as fuzz_cli
from rocketmq_ha.fuzz import demo as demo_module
from rocketmq_ha.fuzz.campaign import CampaignResult
from rocketmq_ha.fuzz.demo import Replication, demo, make_report, problems_of
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.messaging import Messaging
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.impl.store.log.verify import Comparison, Difference, Summary

Row = dict[str, Any]
LATE = -1  # in the place of an exit status: there was none in time


def row(number: int, verdict: str = "ok") -> Row:
    """A run's row. No two figures are equal."""
    return {
        "run_id": 700 + number,
        "world": "link",
        "verdict": verdict,
        "signature": f"master/put/field{number}",
        "n_ops": 10 + number,
        "n_steps": 100 * number,
        "digest": f"d{number}",
    }


ROWS = (row(1), row(2), row(3))


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is asked of Spark's sessions, none of which is made."""
    asked: list[tuple[object, ...]] = []

    def spark_session(name: str, master: str = "", fast_start: bool = False) -> object:
        asked.append((name, master, fast_start))
        return SimpleNamespace(stop=lambda: asked.append(("stop",)))

    monkeypatch.setattr(session, "spark_session", spark_session)
    return asked


def result_of(rows: tuple[Row, ...], seconds: float) -> CampaignResult:
    failed = tuple(each for each in rows if each["verdict"] != "ok")
    steps = [each["n_steps"] for each in rows]
    digests, operations = {each["digest"] for each in rows}, sum(each["n_ops"] for each in rows)
    return CampaignResult(
        len(rows), len(digests), operations, sum(steps), statistics.median(steps), len(failed), failed, seconds, resumed=0
    )


def campaigns(monkeypatch: pytest.MonkeyPatch, result: CampaignResult) -> list[tuple[object, ...]]:
    """Let every campaign have this result. Returns: what the campaigns were told."""
    told: list[tuple[object, ...]] = []

    def run(spark: object, plan: campaign.Plan, out: str, progress: object, *, resumes: bool = False) -> CampaignResult:
        assert spark is not None and callable(progress)
        told.append((plan, out, *(["resumes"] if resumes else [])))
        return result

    monkeypatch.setattr(campaign, "run", run)
    return told


# --- fuzz run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "status", "failed", "line"),
    [
        pytest.param(ROWS, 0, [], "log=o schedules=3 distinct=3 operations=36 steps=600 failed=0 seconds=12.3", id="all agree"),
        pytest.param(
            (*ROWS, row(4) | {"digest": "d1"}, row(5, "divergence")),
            1,
            ["divergence: master/put/field5: rocketmq-ha fuzz replay 705 --world link"],
            "log=o schedules=5 distinct=4 operations=65 steps=1500 failed=1 seconds=12.3",
            id="one failed, two equal",
        ),
        pytest.param(
            tuple(row(number, "error") for number in range(1, 8)),
            1,
            [f"error: master/put/field{number}: rocketmq-ha fuzz replay {700 + number} --world link" for number in range(1, 6)],
            "log=o schedules=7 distinct=7 operations=98 steps=2800 failed=7 seconds=12.3",
            id="many failed, five are named",
        ),
    ],
)
def test_a_campaign_ends_with_its_counts(
    rows: tuple[Row, ...],
    status: int,
    failed: list[str],
    line: str,
    sessions: list[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    told = campaigns(monkeypatch, result_of(rows, 12.34))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(fuzz_cli.fuzz, ["run", "--runs", "5", "--seed", "6", "--out", "o", "--master", "local[3]"])
    assert (result.exit_code, result.stdout) == (status, line + "\n")
    assert result.stderr.splitlines() == ["starting Spark, which takes some seconds", *failed]
    assert told == [(campaign.Plan(6, 5), "o")]
    assert sessions == [("rocketmq-ha fuzz", "local[3,4]", True)]


def test_the_defaults_of_a_campaign(
    sessions: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = campaigns(monkeypatch, result_of(ROWS, 1.0))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(fuzz_cli.fuzz, ["run", "--out", "o"]).exit_code == 0
    assert (told, sessions) == ([(campaign.Plan(runs=1000), "o")], [("rocketmq-ha fuzz", "local[*,4]", True)])


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        (["--for", "1.5h"], campaign.Plan(seconds=5400.0)),
        (["--for", "90s", "--runs", "7"], campaign.Plan(runs=7, seconds=90.0)),
        (
            ["--guided", "--world", "link", "--partition-runs", "3"],
            campaign.Plan(None, 1000, None, ("link",), True, runs_per_partition=3),
        ),
        (["--seed", "0", "--random"], campaign.Plan(0, 1000, is_guided=False)),
        (["--run-seconds", "2.5", "--run-memory", "2000000"], campaign.Plan(runs=1000, limits=Limits(2.5, 2_000_000))),
    ],
)
def test_each_option_of_a_campaign_reaches_its_plan(
    arguments: list[str],
    plan: campaign.Plan,
    sessions: list[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    told = campaigns(monkeypatch, result_of(ROWS, 1.0))
    out = str(tmp_path / "o")
    result = CliRunner().invoke(fuzz_cli.fuzz, ["run", "--out", out, *arguments])
    assert (result.exit_code, told) == (0, [(plan, out)]), result.stderr
    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--world", "lnik"], "world 'lnik': expected one of link"),
        (["--resume"], "campaign.json: found nothing, expected a campaign that was begun"),
        (["--resume", "--overwrite"], "--resume: found --overwrite beside it"),
        (["--corpus", "c"], "--corpus c: expected --guided beside it"),
        (["--guided", "--corpus", "nowhere"], "nowhere: found no corpus/ with schedules"),
        (["--for", "8"], "'8' is no duration; expected a number with a unit"),
        (["--for", "0h"], "'0h' is no duration"),
    ],
)
def test_a_wrong_option_of_a_campaign_is_named_before_spark_starts(
    arguments: list[str], told: str, sessions: list[tuple[object, ...]], tmp_path: Path
) -> None:
    result = CliRunner().invoke(fuzz_cli.fuzz, ["run", "--out", str(tmp_path / "o"), *arguments])
    assert (result.exit_code, sessions) == (2, [])
    assert told in result.stderr
    assert not (tmp_path / "o" / "campaign.json").exists()


@pytest.mark.usefixtures("sessions")
def test_a_campaign_without_a_run_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    campaigns(monkeypatch, replace(result_of(ROWS, 2.5), runs=0))
    result = CliRunner().invoke(fuzz_cli.fuzz, ["run", "--for", "2s", "--out", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--for: found the time over before a run was made, expected more" in result.stderr


# --- fuzz replay, hunt and demo-bug --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("divergence", 1), ("error", 1)])
def test_a_replay_fails_if_the_two_sides_disagree(verdict: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    def show(found: schedule.LinkSchedule, _: Console) -> object:
        shown.append(found)
        return SimpleNamespace(verdict=verdict)

    monkeypatch.setattr(replay, "show", show)
    assert CliRunner().invoke(fuzz_cli.fuzz, ["replay", "42"]).exit_code == status
    assert shown == [registry.draw(42)]


@pytest.mark.parametrize("status", [0, 1, 3])
def test_a_replay_over_a_fault_has_the_status_of_its_process(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def run_with(fault: faults.Fault, directory: Path, arguments: list[str]) -> int:
        assert directory.is_dir()
        asked.append((fault.name, arguments))
        return status

    monkeypatch.setattr(faults, "run_with", run_with)
    name = faults.FAULTS[1].name
    assert CliRunner().invoke(fuzz_cli.fuzz, ["replay", "42", "--fault", name]).exit_code == status
    assert asked == [(name, ["replay", "42"])]


def test_a_hunt_shows_the_schedule_that_it_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float, int]] = []
    shown: list[object] = []
    drawn = registry.draw(9)
    outcome: Any = SimpleNamespace(schedule=drawn)

    def found(seed: int, seconds: float, run: Any, *, go_on: int) -> hunt.Found:
        assert run.args == (tuple(registry.WORLDS.values()),)
        asked.append((seed, seconds, go_on))
        return hunt.Found(outcome, runs=31, seconds=4.56)

    monkeypatch.setattr(hunt, "hunt", found)
    monkeypatch.setattr(replay, "show", lambda what, _: shown.append(what))
    result = CliRunner().invoke(fuzz_cli.fuzz, ["hunt", "--seed", "5", "--seconds", "7.5", "--more", "3"])
    assert (result.exit_code, result.stdout) == (0, "found=9 runs=31 seconds=4.6\n")
    CliRunner().invoke(fuzz_cli.fuzz, ["hunt"])
    assert (asked, shown) == ([(5, 7.5, 3), (0, 60.0, 50)], [drawn, drawn])


def test_a_hunt_that_finds_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunt, "hunt", lambda *_, **__: None)
    result = CliRunner().invoke(fuzz_cli.fuzz, ["hunt", "--seconds", "7"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "no failure in 7 s\n")


@pytest.mark.parametrize("status", [0, 1, 2])
def test_demo_bug_succeeds_if_the_fault_is_found(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(faults, "run_with", lambda fault, _, words: asked.append((fault.name, words)) or status)
    fault = faults.FAULTS[0]
    result = CliRunner().invoke(fuzz_cli.demo_bug, [fault.name])
    lines = [f"{fault.name}: {fault.description}", f"planted in a copy of {fault.file}; looking for it"]
    again = f"again: rocketmq-ha fuzz replay SEED --fault {fault.name}, with the seed that found= names"
    assert result.stdout.splitlines() == (lines if status else [*lines, again])
    if status:
        assert (result.exit_code, f"fault {fault.name!r} was not found in 60 s" in result.stderr) == (2, True)
    else:
        assert result.exit_code == 0
    assert asked == [(fault.name, ["hunt", "--world", fault.world])]


def test_demo_bug_without_a_name_lists_the_faults() -> None:
    result = CliRunner().invoke(fuzz_cli.demo_bug, [])
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert all(f"{fault.name} {fault.description}" in words for fault in faults.FAULTS)


def test_a_fault_that_there_is_not_is_refused_with_a_similar_name() -> None:
    name = faults.FAULTS[0].name
    with pytest.raises(FuzzError, match=f"fault '{name}x': there is none of that name. Did you mean .*'{name}'"):
        faults.find(f"{name}x")
    with pytest.raises(FuzzError, match=f"fault 'qqqq': there is none of that name. Expected one of {name}, "):
        faults.find("qqqq")


def test_the_log_level_of_the_implementation_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("rocketmq_ha.impl")
    before = logger.level
    monkeypatch.setattr(hunt, "hunt", lambda *_, **__: (logger.level == logging.CRITICAL) or pytest.fail("lines are shown"))
    monkeypatch.setattr(replay, "show", lambda *_: None)
    CliRunner().invoke(fuzz_cli.fuzz, ["hunt"])
    assert logger.level == before


# --- demo ----------------------------------------------------------------------------------------------------------------

MESSAGING = Messaging(sent=3_501, consumed=3_502, from_slave=3_503, problems=())
REPLICATION = Replication(
    messages=1_001,
    nbytes=12_345_678,
    seconds=2.5,
    cuts_in_header=3,
    cuts_in_body=4,
    outstanding=5,
    statuses="PUT_OK=1000",
    problems=(),
)
LONG = tuple(row(number) for number in (1, 2, 3, 4))  # 1,000 steps
SUMMARY = {"runs": "4", "steps": "9999", "transitions": "268/280", "divergences": "0", "impossible": "0"}
OF_MESSAGES = "sent=3501 consumed=3502 from_slave=3503"
LAST = (
    f"{OF_MESSAGES} messages=1001 bytes=12345678 mb_per_s=4.9 cuts=7 schedules=4 steps=1000 transitions=268/280 divergences=0"
)


def shown(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    messaging: Messaging = MESSAGING,
    replication: Replication = REPLICATION,
    rows: tuple[Row, ...] = LONG,
    summary: dict[str, str] = SUMMARY,
    runs: int = 4,
) -> tuple[Result, list[tuple[object, ...]]]:
    """Run the demo over these results. Returns: its result, and what its parts were told."""
    told = campaigns(monkeypatch, result_of(rows, 6.78))

    def exchange(where: Path, messages: int, _: Console) -> Messaging:
        told.append((where, messages))
        return messaging

    def replicate(where: Path, messages: int, _: Console) -> Replication:
        told.append((where, messages))
        return replication

    def report(log: Path, page: Path) -> dict[str, str]:
        told.append((log, page))
        return summary

    monkeypatch.setattr(demo_module, "exchange", exchange)
    monkeypatch.setattr(demo_module, "replicate", replicate)
    monkeypatch.setattr(demo_module, "make_report", report)
    monkeypatch.setattr(demo_module.pictures, "take", lambda *_: [])
    return CliRunner().invoke(demo, ["--out", str(out), "--messages", "1000", "--runs", str(runs)]), told


def test_the_demo_ends_with_what_was_seen(
    tmp_path: Path, sessions: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o"
    result, told = shown(out, monkeypatch)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, f"{LAST} verdict=PASS")
    assert "   4 distinct schedules, 1000 steps, median 250 a schedule, 0 failed, 6.8 s" in result.stdout.splitlines()
    assert told == [(out, 3000), (out, 1000), (campaign.Plan(1, 4), str(out / "fuzz")), (out / "fuzz", out / "report.html")]
    assert sessions == [("rocketmq-ha demo", "", True), ("stop",)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"messaging": replace(MESSAGING, problems=("read: 1 lost",))}, "read: 1 lost", id="messages"),
        pytest.param(
            {"replication": replace(REPLICATION, problems=("no cut in a body",))}, "no cut in a body", id="replication"
        ),
        pytest.param({"rows": (*LONG[:3], row(4, "error"))}, "1 schedules failed", id="a failed schedule"),
        pytest.param({"rows": (*LONG[:3], row(4) | {"digest": "d1"})}, "only 3 distinct schedules of 4", id="equal schedules"),
        pytest.param({"runs": 5}, "only 4 distinct schedules of 5", id="too few schedules"),
        pytest.param({"rows": tuple(each | {"n_steps": 49} for each in LONG)}, "a median of only 49 steps", id="short"),
        pytest.param({"summary": SUMMARY | {"divergences": "2"}}, "report: divergences=2", id="divergences"),
        pytest.param({"summary": SUMMARY | {"impossible": "3"}}, "report: impossible=3", id="impossible transitions"),
    ],
)
def test_the_demo_fails_for_each_problem(
    change: dict[str, Any], problem: str, tmp_path: Path, sessions: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sessions == []
    result, _ = shown(tmp_path / "o", monkeypatch, **change)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[-2], lines[-1].split()[-1]) == (1, f"   {problem}", "verdict=FAIL")


def test_a_median_of_fifty_steps_is_enough(tmp_path: Path, sessions: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions == []
    rows = tuple(each | {"n_steps": steps} for each, steps in zip(LONG, (1, 50, 50, 99), strict=True))
    assert shown(tmp_path / "o", monkeypatch, rows=rows)[0].exit_code == 0


def test_the_demo_replaces_only_what_a_demo_has_made(
    tmp_path: Path, sessions: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sessions == []
    out = tmp_path / "o"
    out.mkdir()
    assert shown(out, monkeypatch)[0].exit_code == 0  # an empty directory
    (out / "old").touch()
    assert shown(out, monkeypatch)[0].exit_code == 0
    assert [path.name for path in out.iterdir()] == ["demo"]
    (out / "demo").unlink()
    (out / "mine").touch()
    result, _ = shown(out, monkeypatch)
    told = f"{out}: is not empty and not made by an earlier demo, expected a new directory"
    assert (result.exit_code, told in result.stderr) == (2, True)
    assert [path.name for path in out.iterdir()] == ["mine"]


OURS = Summary(Path("m"), files=1, messages=2, blanks=3, min_offset=4, max_offset=9_000, tail_size=0)
THEIRS = Summary(Path("s"), files=5, messages=1_001, blanks=6, min_offset=7, max_offset=9_000, tail_size=0)
AT = Difference(77, Path("m"), 1, Path("s"), 2)
GOOD: dict[str, Any] = {
    "messages": 1_000,
    "decoded": 1_001,
    "ours": OURS,
    "theirs": THEIRS,
    "comparison": Comparison(7, 9_000, None, 0),
    "cuts": (1, 2),
    "outstanding": 1,
    "statuses": "1000 seconds=3.0 per_second=4 PUT_OK=1000",
}


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({}, []),
        ({"comparison": Comparison(7, 77, AT, 0)}, [f"the logs differ: {AT}"]),
        ({"theirs": replace(THEIRS, max_offset=8_999)}, ["the slave ends at 8999, not 9000"]),
        ({"theirs": replace(THEIRS, max_offset=9_001)}, ["the slave ends at 9001, not 9000"]),
        ({"decoded": 1_000}, ["1000 messages decoded of 1001"]),
        ({"decoded": 999, "theirs": replace(THEIRS, messages=999)}, ["only 999 messages on the slave"]),
        ({"decoded": 1_000, "theirs": replace(THEIRS, messages=1_000)}, []),
        ({"cuts": (0, 2)}, ["no cut in a header"]),
        ({"cuts": (1, 0)}, ["no cut in a body"]),
        ({"outstanding": 0}, ["nothing outstanding when the slave was killed"]),
        (
            {"statuses": "1000 PUT_OK=999 FLUSH_SLAVE_TIMEOUT=1"},
            ["not every put ended with PUT_OK: 1000 PUT_OK=999 FLUSH_SLAVE_TIMEOUT=1"],
        ),
        ({"statuses": "PUT_OK=10000"}, ["not every put ended with PUT_OK: PUT_OK=10000"]),
    ],
)
def test_what_is_wrong_with_a_replication(change: dict[str, Any], problems: list[str]) -> None:
    assert problems_of(**GOOD | change) == problems


@pytest.mark.parametrize(
    ("status", "printed", "expected"),
    [
        (0, "a\nreport=r.html runs=5 transitions=2/3\n", {"report": "r.html", "runs": "5", "transitions": "2/3"}),
        (1, "report=r.html runs=5\n", "r.html: the report command ended with status 1"),
        (0, " \n", "r.html: the report command ended with status 0"),
        (LATE, "", "r.html: the report command has not ended within 1800 s"),
    ],
)
def test_the_summary_of_a_report_is_its_last_line(
    status: int, printed: str, expected: dict[str, str] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], *, timeout: float, **_: object) -> object:
        commands.append(command[1:])
        if status == LATE:
            raise subprocess.TimeoutExpired(command, timeout)
        return SimpleNamespace(returncode=status, stdout=printed)

    monkeypatch.setattr(demo_module.subprocess, "run", run)
    if isinstance(expected, str):
        with pytest.raises(FuzzError, match=expected):
            make_report(Path("l"), Path("r.html"))
    else:
        assert make_report(Path("l"), Path("r.html")) == expected
    assert commands == [["-m", "rocketmq_ha.analysis", "report", "l", "--out", "r.html"]]
