"""The lock-step finds every planted fault by random schedules alone, and finds none in the correct implementation.

Each hunt is a process that runs a faulty copy of the implementation (fuzz/faults.py): the harness must not know the fault.
"""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import rocketmq_ha.impl
from rocketmq_ha.fuzz import faults
from rocketmq_ha.fuzz.cli import fuzz
from rocketmq_ha.fuzz.faults import FAULTS, Fault

pytestmark = pytest.mark.xdist_group("planted-faults")  # it takes long: it begins first

IMPL = Path(rocketmq_ha.impl.__file__).parent
# A few seeds before the first one that shows the fault: from seed 0 these hunts take seconds, or more than a minute.
FIRST_SEEDS = {
    "ack-too-early": 640,
    "offset-checked-with-body": 100,
    "one-slave-is-two": 40,
    "any-blank-is-ours": 80,
    "half-a-head": 147,
    "only-the-last-file-stays": 250,
    "greater-stays": 284,
    "zeros-are-not-synced": 112,
    "on-disk-at-the-bound": 74,
    "last-connection-speaks": 490,
    "latest-progress-waits": 106,
}
MORE = 3  # seeds after the first failure; the usual 50 cost more than the search itself
PATIENCE_S = 600  # for a busy machine


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_hunt_finds_the_fault(fault: Fault, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seed = FIRST_SEEDS.get(fault.name, 0)
    limits = ["--seed", str(seed), "--seconds", str(PATIENCE_S), "--more", str(MORE)]
    status = faults.run_with(fault, tmp_path, ["hunt", "--world", fault.world, *limits])
    printed = capfd.readouterr()
    assert status == 0, printed.err
    found = printed.out.splitlines()[-1]
    told = re.fullmatch(r"found=(\d+) runs=(\d+) seconds=\d+\.\d", found)
    assert told, printed.out
    best, runs = int(told[1]), int(told[2])
    assert seed <= best < seed + runs
    assert runs > MORE
    assert f"seed {best}: " in printed.out  # the replay is that of the run that was found
    # The replay comes before it. Its last line shows both sides, or the place of the implementation's error.
    assert "divergence at operation" in printed.out or "error at operation" in printed.out, printed.out


def test_a_hunt_finds_nothing_in_the_implementation_as_it_is() -> None:
    result = CliRunner().invoke(fuzz, ["hunt", "--seconds", "3"])
    assert result.exit_code == 1, result.output
    assert "found=" not in result.output
    assert "no failure" in result.output


def test_every_edit_applies_once_and_changes_one_file_of_the_copy(tmp_path: Path) -> None:
    for fault in FAULTS:
        root = faults.plant(fault, tmp_path)
        copy = root / "rocketmq_ha" / "impl"
        changed = [
            file.relative_to(IMPL).as_posix()
            for file in IMPL.rglob("*.py")
            if file.read_bytes() != (copy / file.relative_to(IMPL)).read_bytes()
        ]
        assert changed == [fault.file], fault.name


def test_a_replay_of_the_found_seed_shows_the_fault_and_without_the_fault_agrees(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = faults.find("heartbeat-on-time")
    assert faults.run_with(fault, tmp_path, ["hunt", "--world", "link"]) == 0
    seed = capfd.readouterr().out.splitlines()[-1].split()[0].removeprefix("found=")
    assert faults.run_with(fault, tmp_path, ["replay", seed, "--world", "link"]) == 1
    assert "divergence at operation" in capfd.readouterr().out
    assert CliRunner().invoke(fuzz, ["replay", seed, "--world", "link"]).exit_code == 0


def test_there_are_at_least_five_and_their_names_differ() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 5
