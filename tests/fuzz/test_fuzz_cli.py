"""What the commands of fuzz print and with which status they end."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocketmq_ha.fuzz import campaign, cli, schedule, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.faults import FAULTS
from rocketmq_ha.fuzz.worlds import registry


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.fuzz, list(arguments))


def test_a_replay_that_agrees_has_status_0() -> None:
    result = run("replay", "12", "--world", "link")
    assert result.exit_code == 0
    drawn = schedule.draw(12)
    lines = result.output.splitlines()
    assert lines[0].startswith(f"seed 12: world link, {drawn.profile.name}, {drawn.slaves} slave(s), files of ")
    assert lines[-1] == f"{len(drawn.events)} operations, both sides agree after every one"
    assert result.stderr == ""


def test_a_hunt_that_finds_nothing_has_status_1() -> None:
    result = run("hunt", "--seconds", "0.01", "--seed", "5")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "no failure in 0 s\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "-1"),
        ("replay",),
        ("run", "--runs", "0", "--out", "x"),
        ("run", "--runs", "1"),
        ("run", "--seed", "-1", "--out", "x"),
        ("hunt", "--seed", "-1"),
        ("hunt", "--seconds", "-5"),
        ("run", "--runs", "1", "--out", "x", "--run-seconds", "nan"),
        ("run", "--runs", "1", "--out", "x", "--run-seconds", "inf"),
        ("run", "--runs", "1", "--out", "x", "--run-memory", str(1 << 50)),
        ("run", "--runs", "1", "--out", "x", "--seed", str(1 << 63)),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_has_status_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def refusal(*arguments: str) -> str:
    """The one line of a command that is refused before anything has begun."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    return result.stderr


@pytest.mark.parametrize("master", ["foo", "local[0]", "local[", "spark://", ""])
def test_what_is_no_master_of_spark_is_refused_before_spark_starts(master: str, tmp_path: Path) -> None:
    told = f"rocketmq-ha: --master {master}: found no master of Spark, expected local[*] or spark://HOST:PORT\n"
    assert refusal("run", "--runs", "1", "--out", str(tmp_path / "log"), "--master", master) == told
    assert not list(tmp_path.iterdir())


CAMPAIGN = {"schema_version": 2, "campaign": "c", "finished": True, "plan": {"runs": 9}}


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        ({"events/mine.txt": "x"}, (), "found events/mine.txt and no campaign.json, expected a new place for the log"),
        ({"corpus/link/mine.json": "x"}, ("--overwrite",), "found corpus/link/mine.json and no campaign.json"),
        ({"campaign.json": '{"hello": 1}'}, ("--overwrite",), "found no schema_version in it, expected a campaign's settings"),
        ({"campaign.json": "{", "runs/x": ""}, ("--overwrite",), "found no JSON"),
        ({"campaign.json": json.dumps(CAMPAIGN)}, (), "found a campaign that has ended; --overwrite deletes it"),
        (
            {"campaign.json": json.dumps(CAMPAIGN | {"finished": False})},
            (),
            "found a campaign that has not ended (0 of 9 runs); --resume goes on with it, --overwrite deletes it",
        ),
        (
            {"campaign.json": json.dumps(CAMPAIGN | {"finished": False, "plan": None})},
            (),
            "found a campaign that has not ended (0 runs); --resume with --for goes on with it",
        ),
        ({"campaign.json": "[" * 100_000}, ("--overwrite",), "campaign.json: found no JSON"),
        ({"campaign.json": json.dumps(CAMPAIGN)}, ("--resume", "--run-seconds", "9"), "found --run-seconds beside it"),
        ({"campaign.json": json.dumps(CAMPAIGN)}, ("--resume", "--overwrite"), "found --overwrite beside it"),
    ],
)
def test_a_campaign_deletes_nothing_that_it_was_not_told_to(
    files: Mapping[str, str], options: Sequence[str], told: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert told in refusal("run", "--out", str(tmp_path), *options)
    assert {file.relative_to(tmp_path).as_posix(): file.read_text() for file in tmp_path.rglob("*") if file.is_file()} == files


BEGUN = {
    "seed": 5,
    "runs": 9,
    "runs_per_partition": 3,
    "worlds": ["link", "store"],
    "guided": True,
    "run_seconds": 60.0,
    "run_memory": 1 << 30,
}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--random"], "found a campaign with guided yes, expected no"),
        (["--seed", "1"], "found a campaign with seed 5, expected 1"),
        (["--seed", "0"], "found a campaign with seed 5, expected 0"),
        (["--world", "link"], "found a campaign with worlds link, store, expected link"),
    ],
    ids=str,
)
def test_a_campaign_does_not_go_on_under_other_settings(options: list[str], told: str, tmp_path: Path) -> None:
    """Also where the other setting is what a new campaign has by default."""
    (tmp_path / "campaign.json").write_text(json.dumps(CAMPAIGN | {"seed": 5, "runs": 9, "plan": BEGUN}))
    refused = refusal("run", "--out", str(tmp_path), "--resume", *options)
    assert refused == f"rocketmq-ha: {tmp_path}: {told}; leave it out to go on\n"


@pytest.mark.parametrize("worlds", [("link", "store"), ("store", "link"), ("store", "link", "store")], ids=str)
def test_a_campaign_goes_on_with_its_worlds_in_any_order(worlds: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text(json.dumps(CAMPAIGN | {"seed": 5, "runs": 9, "plan": BEGUN}))
    campaign.check(campaign.Plan(worlds=worlds), str(tmp_path), resumes=True)


@pytest.mark.parametrize("options", [[], ["--overwrite"], ["--resume"]], ids=str)
def test_a_place_that_is_a_file_is_refused(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("mine")
    told = f"rocketmq-ha: {file}: found a file, expected the directory of a log\n"
    assert refusal("run", "--runs", "1", "--out", str(file), *options) == told
    assert file.read_text() == "mine"


def test_a_corpus_of_other_worlds_is_refused_before_spark_starts(tmp_path: Path) -> None:
    for world in ("link", "store"):
        file = tmp_path / "old" / "corpus" / world / "00.json"
        file.parent.mkdir(parents=True)
        file.write_text(schedule_file.to_json(registry.WORLDS[world].draw(1)))
    arguments = ["run", "--runs", "1", "--out", str(tmp_path / "log"), "--guided", "--corpus", str(tmp_path / "old")]
    assert refusal(*arguments, "--world", "remoting", "--world", "reads") == (
        f"rocketmq-ha: {tmp_path}/old: found a corpus of link, store, expected one of remoting or reads\n"
    )
    assert not (tmp_path / "log").exists()
    campaign.check(
        campaign.Plan(worlds=("remoting", "link"), is_guided=True, corpus=str(tmp_path / "old")),
        str(tmp_path / "l"),
        resumes=False,
    )


def test_a_place_without_a_name_is_refused() -> None:
    assert "--out '': expected a directory" in refusal("run", "--runs", "1", "--out", "")


def test_a_place_that_shrink_cannot_write_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert "cannot be written" in refusal("shrink", "12", "--world", "link", "--out", str(tmp_path / "s.json"))


@pytest.mark.parametrize("arguments", [["replay", "3", "--fault", "zzz"]])
def test_an_unknown_fault_is_one_line_and_status_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("rocketmq-ha: fault 'zzz': there is none of that name. Expected one of report-rounds-up, ")
    assert result.stderr.count("\n") == 1


def test_the_list_of_faults_names_each_with_its_description() -> None:
    result = CliRunner().invoke(cli.demo_bug, [])
    assert result.exit_code == 0
    told = " ".join(result.output.split())
    for fault in FAULTS:
        assert f"{fault.name} {' '.join(fault.description.split())}" in told


def test_the_level_of_the_log_comes_back_when_the_command_ends() -> None:
    logger = logging.getLogger("rocketmq_ha.impl")
    before = logger.level
    logger.setLevel(logging.INFO)
    levels = []
    try:
        with cli.fuzz.make_context("fuzz", ["replay", "3"]) as context:
            context.invoke(cli.fuzz.callback)
            levels.append(logger.level)
        levels.append(logger.level)
    finally:
        logger.setLevel(before)
    assert levels == [logging.CRITICAL, logging.INFO]


def test_an_error_of_fuzz_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    error = FuzzError("it is so")
    error.show()
    captured = capsys.readouterr()
    assert (captured.out, captured.err, error.exit_code) == ("", "rocketmq-ha: it is so\n", 2)
