"""A campaign goes on only if its campaign.json has what one writes there, and says what its manifests say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketmq_ha.analysis import session
from rocketmq_ha.fuzz import campaign, cli
from rocketmq_ha.fuzz.campaign import Plan
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.spec.event_log import SCHEMA_VERSION

SEED, RUNS, SIZE = 1, 300, 11
GONE = "no such field"


def write_manifests(log: Path, *numbers: int, runs: int | None = RUNS) -> None:
    for number in numbers:
        first = number * SIZE
        last = first + SIZE if runs is None else min(first + SIZE, runs)
        manifest = {"partition": number, "n_runs": last - first, "n_steps": 5, "n_failed": 0, "seed": SEED + first, "runs": "x"}
        LogStore(str(log)).write(f"manifest/part-{number:08d}.json", json.dumps(manifest).encode())


def begun(log: Path, runs: int | None = RUNS) -> None:
    plan = Plan(SEED, runs, None if runs else 9.0, ("link",), runs_per_partition=SIZE)
    campaign._begun(LogStore(str(log)), plan)


def edit(file: Path, **changes: Any) -> None:
    """Change fields of a JSON object. PLAN__FIELD is a field of a field."""
    found = json.loads(file.read_text())
    for name, value in changes.items():
        *parents, field = name.split("__")
        values = found
        for parent in parents:
            values = values[parent]
        if value == GONE:
            del values[field]
        else:
            values[field] = value
    file.write_text(json.dumps(found))


def refusal(log: Path, *options: str) -> str:
    """What `--resume` says behind the name of the log. It is one line, and nothing is written."""
    before = {file: file.read_bytes() for file in log.rglob("*") if file.is_file()}
    result = CliRunner().invoke(cli.fuzz, ["run", "--resume", "--out", str(log), *options])
    begin = f"rocketmq-ha: {log}"
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    assert result.stderr.startswith(begin)
    assert {file: file.read_bytes() for file in log.rglob("*") if file.is_file()} == before
    return result.stderr.removeprefix(begin).rstrip("\n")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema_version": 99}, f"schema_version: found 99, expected {SCHEMA_VERSION}"),
        ({"schema_version": True}, f"schema_version: found true, expected {SCHEMA_VERSION}"),
        ({"schema_version": GONE}, f"schema_version: found nothing, expected {SCHEMA_VERSION}"),
        ({"campaign": GONE}, "campaign: found nothing, expected the name of a campaign"),
        ({"campaign": ""}, 'campaign: found "", expected the name of a campaign'),
        ({"campaign": 5}, "campaign: found 5, expected the name of a campaign"),
        ({"plan": None}, "plan: found null, expected the plan of a campaign that was begun"),
        ({"plan__seed": "x"}, 'plan.seed: found "x", expected an integer from 0 to 4611686018427387904'),
        ({"plan__seed": -1}, "plan.seed: found -1, expected an integer from 0 to 4611686018427387904"),
        (
            {"plan__seed": (1 << 62) + 1},
            "plan.seed: found 4611686018427387905, expected an integer from 0 to 4611686018427387904",
        ),
        ({"plan__seed": None}, "plan.seed: found null, expected an integer from 0 to 4611686018427387904"),
        ({"plan__runs": 0}, "plan.runs: found 0, expected an integer of 1 or more, or null"),
        ({"plan__runs": True}, "plan.runs: found true, expected an integer of 1 or more, or null"),
        ({"plan__runs": GONE}, "plan.runs: found nothing, expected an integer of 1 or more, or null"),
        ({"plan__runs_per_partition": 0}, "plan.runs_per_partition: found 0, expected an integer of 1 or more"),
        ({"plan__runs_per_partition": None}, "plan.runs_per_partition: found null, expected an integer of 1 or more"),
        ({"plan__runs_per_partition": 11.0}, "plan.runs_per_partition: found 11.0, expected an integer of 1 or more"),
        ({"plan__worlds": "link"}, 'plan.worlds: found "link", expected a list of link, replicas, reads, '),
        ({"plan__worlds": ["lnik"]}, 'plan.worlds: found ["lnik"], expected a list of link, replicas, reads, '),
        ({"plan__worlds": [["link"]]}, 'plan.worlds: found [["link"]], expected a list of link, replicas, reads, '),
        ({"plan__worlds": ["x" * 99]}, f'plan.worlds: found ["{"x" * 58}..., expected a list of '),
        ({"plan__guided": 1}, "plan.guided: found 1, expected true or false"),
        ({"plan__run_seconds": -1}, "plan.run_seconds: found -1, expected a number from 0.1 to 86400"),
        ({"plan__run_seconds": 0.09}, "plan.run_seconds: found 0.09, expected a number from 0.1 to 86400"),
        ({"plan__run_seconds": 86_401}, "plan.run_seconds: found 86401, expected a number from 0.1 to 86400"),
        ({"plan__run_seconds": float("nan")}, "plan.run_seconds: found NaN, expected a number from 0.1 to 86400"),
        ({"plan__run_seconds": True}, "plan.run_seconds: found true, expected a number from 0.1 to 86400"),
        ({"plan__run_memory": 1}, "plan.run_memory: found 1, expected an integer from 1048576 to 70368744177664"),
        ({"plan__run_memory": 1 << 47}, "plan.run_memory: found 140737488355328, expected an integer from 1048576 to "),
        ({"plan__run_memory": "1"}, 'plan.run_memory: found "1", expected an integer from 1048576 to '),
        ({"plan__runs": 310}, "runs: found 300, expected 310, as plan.runs has it"),
        ({"seed": GONE}, "seed: found nothing, expected plan.seed"),
        ({"seed": True}, "seed: found true, expected 1, as plan.seed has it"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    begun(tmp_path)
    edit(tmp_path / "campaign.json", **changes)
    assert refusal(tmp_path).startswith(f"/campaign.json: {told}")


@pytest.mark.parametrize(
    ("changes", "published", "told"),
    [
        (
            {"plan__runs_per_partition": 7},
            [4],
            "found seed 1, runs 300, runs_per_partition 7, of which partition 4 gets 7 runs from seed 29 on; "
            "expected numbers that give it 11 runs from seed 45 on, as manifest/part-00000004.json says",
        ),
        (
            {"plan__runs": 10, "runs": 10},
            [0],
            "found seed 1, runs 10, runs_per_partition 11, of which partition 0 gets 10 runs from seed 1 on; "
            "expected numbers that give it 11 runs from seed 1 on, as manifest/part-00000000.json says",
        ),
        (
            {"plan__runs": 22, "runs": 22},
            [1, 2],
            "found seed 1, runs 22, runs_per_partition 11, of which partition 2 gets no runs; "
            "expected numbers that give it 11 runs from seed 23 on, as manifest/part-00000002.json says",
        ),
        (
            {"plan__runs": None, "runs": None},
            [27],
            "found seed 1, runs null, runs_per_partition 11, of which partition 27 gets 11 runs from seed 298 on; "
            "expected numbers that give it 3 runs from seed 298 on, as manifest/part-00000027.json says",
        ),
        (
            {"plan__seed": 2, "seed": 2},
            [0, 1],
            "found seed 2, runs 300, runs_per_partition 11, of which partition 0 gets 11 runs from seed 2 on; "
            "expected numbers that give it 11 runs from seed 1 on, as manifest/part-00000000.json says",
        ),
    ],
    ids=str,
)
def test_a_plan_that_the_manifests_contradict_is_refused(
    changes: dict[str, Any], published: list[int], told: str, tmp_path: Path
) -> None:
    begun(tmp_path)
    write_manifests(tmp_path, *published)
    edit(tmp_path / "campaign.json", **changes)
    assert refusal(tmp_path) == f"/campaign.json: plan: {told}"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"partition": 3}, "partition: found 3, expected the number in the name of the file"),
        ({"n_runs": GONE}, "n_runs: found nothing, expected an integer of 0 or more"),
        ({"n_steps": "5"}, 'n_steps: found "5", expected an integer of 0 or more'),
        ({"n_failed": -1}, "n_failed: found -1, expected an integer of 0 or more"),
        ({"seed": 1.5}, "seed: found 1.5, expected an integer of 0 or more"),
        ({"runs": 3}, "runs: found 3, expected the name of a file"),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_manifest_is_named(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    begun(tmp_path)
    write_manifests(tmp_path, 2)
    edit(tmp_path / "manifest" / "part-00000002.json", **changes)
    assert refusal(tmp_path) == f"/manifest/part-00000002.json: {told}"


@pytest.mark.parametrize(
    ("runs", "published", "plan"),
    [
        (RUNS, [], Plan()),
        (RUNS, [1, 5, 27], Plan()),
        (RUNS, [1, 5, 27], Plan(runs=RUNS + 50)),
        (RUNS, [1, 5, 27], Plan(seconds=5.0)),
        (None, [0, 3], Plan(seconds=9.0)),
        (None, [0, 3], Plan(runs=4 * SIZE)),
        (5, [0], Plan()),
    ],
    ids=str,
)
def test_a_campaign_goes_on_wherever_it_ended(runs: int | None, published: list[int], plan: Plan, tmp_path: Path) -> None:
    begun(tmp_path, runs)
    write_manifests(tmp_path, *published, runs=runs)
    campaign.check(plan, str(tmp_path), resumes=True)


def test_a_campaign_of_a_time_does_not_go_on_with_fewer_runs_than_it_has(tmp_path: Path) -> None:
    """Its last partitions would be none of the plan that is written."""
    begun(tmp_path, None)
    write_manifests(tmp_path, 0, 3, runs=None)
    with pytest.raises(FuzzError, match="found a campaign of 44 runs, expected that many or more, not 43"):
        campaign.check(Plan(runs=43), str(tmp_path), resumes=True)


def test_a_campaign_of_a_time_goes_on_for_a_time_or_for_runs_and_not_for_ever(tmp_path: Path) -> None:
    begun(tmp_path, None)
    write_manifests(tmp_path, 0, 3, runs=None)
    with pytest.raises(FuzzError, match="found a campaign with --for and without --runs, expected either beside --resume"):
        campaign.check(Plan(), str(tmp_path), resumes=True)


# --- What an interrupt says ----------------------------------------------------------------------------------------------

NOT_BEGUN = "stopped before the campaign had begun"


def interrupted(monkeypatch: pytest.MonkeyPatch, log: Path, *options: str, begins: bool) -> str:
    """The last line of a campaign that is interrupted, before or after it has begun."""

    def spark_session(*_arguments: object, **_options: object) -> None:
        if not begins:
            raise KeyboardInterrupt

    def run(_spark: object, plan: Plan, place: str, _progress: object, *, resumes: bool) -> None:
        if not resumes:
            campaign._begun(LogStore(place), replace(plan, runs_per_partition=1))
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "spark_session", spark_session)
    monkeypatch.setattr(campaign, "run", run)
    result = CliRunner().invoke(cli.fuzz, ["run", "--out", str(log), *options])
    assert result.exit_code == 1  # click's, for an interrupt
    return next(line for line in result.stderr.splitlines() if line.startswith("stopped"))


def test_an_interrupt_says_how_the_campaign_goes_on_only_if_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "a log"
    assert interrupted(monkeypatch, log, begins=False) == NOT_BEGUN
    assert not (log / "campaign.json").exists()
    goes_on = f"stopped; rocketmq-ha fuzz run --resume --out '{log}' goes on"
    assert interrupted(monkeypatch, log, begins=True) == goes_on
    assert interrupted(monkeypatch, log, "--overwrite", begins=False) == NOT_BEGUN  # what would go on is the older one
    assert interrupted(monkeypatch, log, "--overwrite", begins=True) == goes_on


def test_an_interrupt_names_the_master_that_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun(tmp_path)
    goes_on = f"stopped; rocketmq-ha fuzz run --resume --out {tmp_path} --master 'local[2]' goes on"
    for begins in (False, True):
        assert interrupted(monkeypatch, tmp_path, "--resume", "--master", "local[2]", begins=begins) == goes_on


def test_an_interrupt_names_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    goes_on = f"stopped; rocketmq-ha fuzz run --resume --out {tmp_path} --for 480m goes on"
    assert interrupted(monkeypatch, tmp_path, "--for", "8h", begins=True) == goes_on
