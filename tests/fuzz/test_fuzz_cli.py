"""What the commands of fuzz print and with which status they end."""

import logging

import pytest
from click.testing import CliRunner, Result

from rocketmq_ha.fuzz import cli, schedule
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.faults import FAULTS


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
    ],
    ids=" ".join,
)
def test_a_wrong_argument_has_status_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


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
    assert levels == [logging.ERROR, logging.INFO]


def test_an_error_of_fuzz_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    error = FuzzError("it is so")
    error.show()
    captured = capsys.readouterr()
    assert (captured.out, captured.err, error.exit_code) == ("", "rocketmq-ha: it is so\n", 2)
