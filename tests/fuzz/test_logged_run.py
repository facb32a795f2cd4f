"""A run of a log is replayed by its number, whichever way its schedule was made, and wherever it is kept."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from rocketmq_ha.fuzz import cli, logged_run, recorder, replay, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.runner import Task, run_partition
from rocketmq_ha.fuzz.worlds import registry

FIRST, RUNS = 7, 100
Row = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a guided campaign of two partitions, in which everything was ok."""
    place = tmp_path_factory.mktemp("guided") / "a log"
    place.mkdir()
    (place / "campaign.json").write_text(json.dumps({"campaign": "of test_logged_run"}), encoding="utf-8")
    task = Task("of test_logged_run", str(place), FIRST, RUNS, RUNS // 2, ("link",), is_guided=True)
    run_partition(task, 0)
    run_partition(task, 1)
    return place


def rows(log: Path) -> list[Row]:
    found: list[Row] = pa.concat_tables([pq.read_table(file) for file in sorted((log / "runs").iterdir())]).to_pylist()
    return found


def of_kind(log: Path, is_guided: bool, has_file: bool) -> Row:
    """A run of the log. has_file: its schedule is in the corpus."""
    names = {file.stem for file in (log / "corpus" / "link").iterdir()}
    return next(
        row for row in rows(log) if (row["run_id"] < 0, recorder.digest_name(row["digest"]) in names) == (is_guided, has_file)
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.fuzz, list(arguments))


def test_every_run_has_its_schedule(log: Path) -> None:
    kinds = Counter[tuple[bool, bool]]()
    for row in rows(log):
        schedule = logged_run.schedule_of(str(log), row["run_id"])
        assert (schedule.seed, recorder.digest(schedule)) == (row["run_id"], row["digest"])
        name = f"{recorder.digest_name(row['digest'])}.json"
        kinds[row["run_id"] < 0, (log / "corpus" / "link" / name).exists()] += 1
    assert set(kinds) >= {(False, True), (True, True), (True, False)}
    assert sum(kinds.values()) == RUNS
    assert not (log / "failures").exists()


def test_the_line_that_names_a_guided_run_replays_it(log: Path) -> None:
    row = of_kind(log, is_guided=True, has_file=False)
    line = replay.command(row, str(log))
    assert line == f"rocketmq-ha fuzz replay '{log}':{row['run_id']}"
    result = invoke("replay", f"{log}:{row['run_id']}")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith(f"seed {row['run_id']}: world link, {row['profile']}, ")
    assert lines[-1] == f"{row['n_ops']} operations, both sides agree after every one"


def test_a_run_of_an_object_store_is_found_too(log: Path) -> None:
    row = of_kind(log, is_guided=True, has_file=False)
    place = log.as_uri()
    assert recorder.digest(logged_run.schedule_of(place, row["run_id"])) == row["digest"]


def test_the_schedule_of_a_failed_run_is_that_of_its_file(log: Path, tmp_path: Path) -> None:
    """Its parents need not be there any more."""
    row = of_kind(log, is_guided=True, has_file=False)
    schedule = logged_run.schedule_of(str(log), row["run_id"])
    copy = shutil.copytree(log, tmp_path / "copy")
    shutil.rmtree(copy / "corpus")
    (copy / "failures").mkdir()
    (copy / "failures" / f"{recorder.digest_name(row['digest'])}.json").write_text(schedule_file.to_json(schedule))
    assert logged_run.schedule_of(str(copy), row["run_id"]) == schedule


def test_shrink_takes_a_run_of_a_log(log: Path, tmp_path: Path) -> None:
    row = of_kind(log, is_guided=True, has_file=False)
    result = invoke("shrink", f"{log}:{row['run_id']}", "--out", str(tmp_path / "s.json"))
    told = f"{log}:{row['run_id']}: its {row['n_ops']} events do not fail without a limit of time and memory\n"
    assert (result.exit_code, result.stderr) == (1, told)


def test_a_file_with_such_a_name_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a:7"
    drawn = registry.WORLDS["link"].draw(3)
    file.write_text(schedule_file.to_json(drawn))
    assert cli._schedule_of(str(file), None) == drawn


def without_corpus(log: Path, _row: Row) -> None:
    shutil.rmtree(log / "corpus")


def with_another_schedule(log: Path, row: Row) -> None:
    other = replace(registry.WORLDS["link"].draw(3), seed=row["run_id"])
    (log / "corpus" / "link" / f"{recorder.digest_name(row['digest'])}.json").write_text(schedule_file.to_json(other))


def without_a_manifest(log: Path, _row: Row) -> None:
    shutil.rmtree(log / "manifest")


def with_a_bad_manifest(log: Path, _row: Row) -> None:
    (log / "manifest" / "part-00000000.json").write_text("{}")


def without_settings(log: Path, _row: Row) -> None:
    (log / "campaign.json").unlink()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_corpus, r":-\d+: recipe '.*': found no schedule of such a digest in the corpus"),
        (with_another_schedule, r":-\d+: found the schedule \w+, expected \w+: other code than this has made the run"),
        (without_a_manifest, r":-\d+: found no such run, expected the number of a run that the campaign has drawn or made"),
        (with_a_bad_manifest, r"/manifest/part-00000000\.json: found no manifest, expected what a campaign writes there"),
        (without_settings, r": found no campaign\.json, expected the log of a campaign before :-\d+"),
    ],
)
def test_a_run_that_the_log_does_not_give_is_one_line(
    log: Path, tmp_path: Path, change: Callable[[Path, Row], None], told: str
) -> None:
    row = of_kind(log, is_guided=True, has_file=False)
    copy = shutil.copytree(log, tmp_path / "copy")
    change(copy, row)
    with pytest.raises(FuzzError, match=told):
        logged_run.schedule_of(str(copy), row["run_id"])


@pytest.mark.parametrize("number", [FIRST - 1, FIRST + RUNS, -FIRST, ~(FIRST + RUNS)])
def test_a_number_outside_of_the_campaign_is_refused(log: Path, number: int) -> None:
    with pytest.raises(FuzzError, match=f":{number}: found no such run"):
        logged_run.schedule_of(str(log), number)


@pytest.mark.parametrize("is_guided", [False, True])
def test_a_partition_of_one_run_has_its_first_and_its_last_seed(log: Path, tmp_path: Path, is_guided: bool) -> None:
    row = of_kind(log, is_guided=is_guided, has_file=is_guided)
    copy = shutil.copytree(log, tmp_path / "copy")
    seed = ~row["run_id"] if is_guided else row["run_id"]
    manifests = sorted((copy / "manifest").iterdir())
    own = manifests.pop((seed - FIRST) // (RUNS // 2))
    manifests[0].unlink()
    own.write_text(json.dumps(json.loads(own.read_text()) | {"seed": seed, "n_runs": 1}), encoding="utf-8")
    assert recorder.digest(logged_run.schedule_of(str(copy), row["run_id"])) == row["digest"]


def test_a_seed_whose_run_was_guided_is_no_drawn_run(log: Path) -> None:
    row = of_kind(log, is_guided=True, has_file=False)
    with pytest.raises(FuzzError, match="found no such run"):
        logged_run.schedule_of(str(log), ~row["run_id"])


def test_a_run_of_a_log_has_its_world() -> None:
    result = invoke("replay", "l:3", "--world", "link")
    assert result.stderr == "rocketmq-ha: --world link: l:3 has a world already; expected no --world beside it\n"
