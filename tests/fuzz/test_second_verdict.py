"""The second verdict without Spark: which files it reads, how it cuts a partition into runs, and what its rules reach."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click import ClickException

from kit import second_verdicts
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.published import shared
from rocketmq_ha.fuzz import lockstep, recorder, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.fingerprint import fingerprint
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.second_verdict import chunk, log_files, monitor, rerun
from rocketmq_ha.fuzz.second_verdict.spark import check_rows, is_chosen, table_of, whole_runs
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import PHASE_GUIDED, VERDICT_OK

SEEDS = (1, 30)


def write(log: Path, name: str = "part-0") -> Path:
    """Write the sound log of SEEDS as a partition of this name."""
    events, runs = second_verdicts.sound(*SEEDS).tables()
    store = LogStore(str(log))
    store.write_table(f"events/{name}.parquet", events)
    store.write_table(f"runs/{name}.parquet", runs)
    manifest = {"events": f"{name}.parquet", "runs": f"{name}.parquet", "n_steps": len(events)}
    store.write(f"manifest/{name}.json", json.dumps(manifest).encode())
    (log / "campaign.json").write_text(json.dumps({"schema_version": 2}), encoding="utf-8")
    return log


def test_each_partition_is_a_unit_and_a_file_that_no_manifest_names_is_no_part_of_the_log(tmp_path: Path) -> None:
    write(write(write(tmp_path), "part-1"), "lost-attempt")
    (tmp_path / "manifest" / "lost-attempt.json").unlink()
    log = log_files.find(str(tmp_path), 3)
    units = [[(part.events, *part.runs) for part in unit] for unit in log.units]
    assert units == [[(f"events/part-{n}.parquet", f"runs/part-{n}.parquet")] for n in (0, 1)]
    table = table_of(log.units[1], ["a", "b", "c", str(tmp_path)])
    assert set(table.column("log").to_pylist()) == {3}
    assert table.drop_columns("log").equals(chunk.of_tables(*second_verdicts.sound(*SEEDS).tables()).drop_columns("log"))


def test_a_log_of_version_1_is_one_unit_of_all_files_and_lacks_the_added_columns(tmp_path: Path) -> None:
    write(write(tmp_path), "part-1")
    shutil.rmtree(tmp_path / "manifest")
    for name in ("part-0", "part-1"):
        for folder, dropped in (("events", ["world"]), ("runs", ["world", "digest", "recipe", "observed", "elapsed_us"])):
            file = tmp_path / folder / f"{name}.parquet"
            pq.write_table(pq.read_table(file).drop_columns(dropped), file)
    (tmp_path / "campaign.json").write_text('{"schema_version": 1}')
    (unit,) = log_files.find(str(tmp_path)).units
    assert [part.events for part in unit] == ["events/part-0.parquet", "events/part-1.parquet"]
    table = table_of(unit, [str(tmp_path)])
    headers = table.filter(pc.equal(table.column("actor"), "")).to_pylist()
    assert len(headers) == 60
    assert {(row["world"], row["ts_ns"], *row["clauses"]) for row in headers} == {("link", 0, "", "")}


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_is_some_of_the_runs_wherever_they_are(share: float) -> None:
    run_ids = np.arange(-4000, 4000)
    chosen = is_chosen(run_ids, share)
    assert abs(int(chosen.sum()) - share * 8000) <= 8000 * 0.02
    assert (is_chosen(run_ids[5:50], share) == chosen[5:50]).all()


@pytest.mark.parametrize("tasks", [1, 3, 20])
def test_units_are_shared_out_whole_and_evenly(tmp_path: Path, tasks: int) -> None:
    for number in range(7):
        write(tmp_path, f"part-{number}")
    log = log_files.find(str(tmp_path))
    groups = shared(log.units, [log_files.weight_of(unit) for unit in log.units], tasks)
    assert sorted(unit[0].events for group in groups for unit in group) == [part.events for part in log.parts]
    assert len(groups) == min(tasks, 7)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def no_events(log: Path) -> None:
    (log / "events" / "part-0.parquet").unlink()


def not_parquet(log: Path) -> None:
    (log / "runs" / "part-0.parquet").write_bytes(b"no Parquet")


def no_column(log: Path) -> None:
    file = log / "events" / "part-0.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["offset"]), file)


def other_type(log: Path) -> None:
    file = log / "events" / "part-0.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(3, "op_index", table.column("op_index").cast(pa.string())), file)


def later_version(log: Path) -> None:
    (log / "campaign.json").write_text('{"schema_version": 9}', encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            no_events,
            "manifest/part-0.json: found names a file that is not there (events/part-0.parquet), expected a manifest of files "
            "that are there",
        ),
        (later_version, "campaign.json: found schema_version 9, expected schema_version 1 or 2"),
    ],
)
def test_what_is_no_log_is_one_line_before_spark_starts(tmp_path: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(write(tmp_path))
    with pytest.raises(ClickException) as raised:
        log_files.find(str(tmp_path))
    assert raised.value.format_message() == f"{tmp_path}/{told}"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (not_parquet, "runs/part-0.parquet: found a file that is not Parquet"),
        (no_column, "events/part-0.parquet: found no column offset; expected the 17 columns of events/"),
        (other_type, "events/part-0.parquet: found column op_index of type string; expected type int32"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(write(tmp_path))
    (unit,) = log_files.find(str(tmp_path)).units
    with pytest.raises(FuzzError) as raised:
        table_of(unit, [str(tmp_path)])
    assert raised.value.message == f"{tmp_path}/{told}, expected a sound Parquet file"


def test_a_path_without_a_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LogInvalid, match=r"nowhere: found nothing, expected the directory of an event log"):
        log_files.find(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("size", [1, 7, 100, 1_000_000])
@pytest.mark.parametrize("batch", [1, 64, 5_000])
def test_a_run_is_never_cut_by_a_batch(size: int, batch: int) -> None:
    if batch == 1 and size > 100:
        pytest.skip("the same as one batch, in minutes")
    table = chunk.of_tables(*second_verdicts.sound(*SEEDS).tables())
    part = table.slice(0, 400 if batch == 1 else len(table))
    tables = list(whole_runs(iter(part.to_batches(max_chunksize=batch)), size))
    assert pa.concat_tables(tables).equals(part)
    runs = [set(table.column("run_id").to_pylist()) for table in tables]
    assert sum(map(len, runs)) == len(set.union(*runs)), "a run is in two of them"
    assert len(tables) > 1 or size >= 100


def test_judged_in_parts_or_at_once_the_result_is_the_same() -> None:
    log = second_verdicts.sound(*SEEDS).copy()
    log.find(lambda row: row["actor"] == "store" and row["event"] == "put" and row["step"] > 9)["nbytes"] += 1
    table = chunk.of_tables(*log.tables())
    whole = monitor.judge(table)
    parts = whole_runs(iter(table.to_batches(max_chunksize=100)), 100)
    found = [row for part in parts for batch in check_rows(part) for row in batch.to_pylist()]
    rules = dict[str, tuple[int, int]]()
    for row in (row for row in found if row["kind"] == "rule"):
        before = rules.get(row["rule"], (0, 0))
        rules[row["rule"]] = before[0] + row["n_rows"], before[1] + row["n_violations"]
    assert rules == {rule: (n, whole.broken.get(rule, 0)) for rule, n in whole.premises.items()}
    wrong = [(row["run_id"], row["rule"], row["step"]) for row in found if row["verdict"] == "violation"]
    assert wrong == [(run.run_id, run.first.rule, run.first.step) for run in whole.runs if run.first] != []


def test_every_rule_is_reached_by_some_hundred_runs() -> None:
    """A rule that no row reaches shows nothing: the command counts it as a finding."""
    reached: set[str] = set()
    for world in ("link", *sorted({rule.world for rule in monitor.RULES} - {"", "link"})):
        judgement = second_verdicts.judged(second_verdicts.sound(1, 100, world))
        assert judgement.broken == {}, world
        reached |= {rule for rule, n in judgement.premises.items() if n}
    assert [rule.name for rule in monitor.RULES if rule.name not in reached] == []


def test_a_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in monitor.RULES] + list(rerun.RULES)
    assert len(set(names)) == len(names)


def test_a_null_is_found_and_the_other_rules_go_on() -> None:
    table = chunk.of_tables(*second_verdicts.sound(*SEEDS).tables())
    step = table.column("split_at").to_pylist()
    step[40] = None
    clauses = table.column("clauses").to_pylist()
    clauses[60] = None
    spoilt = table.set_column(table.schema.get_field_index("split_at"), "split_at", pa.array(step, pa.int32()))
    spoilt = spoilt.set_column(table.schema.get_field_index("clauses"), "clauses", pa.array(clauses, pa.list_(pa.string())))
    assert monitor.judge(spoilt).broken["columns_are_set"] == 2


def test_runs_of_an_unknown_world_keep_the_rules_of_every_world() -> None:
    events, runs = second_verdicts.sound(*SEEDS).tables()
    other = pa.array(["moon"] * len(events)), pa.array(["moon"] * len(runs))
    table = chunk.of_tables(events.set_column(1, "world", other[0]), runs.set_column(1, "world", other[1]))
    both = pa.concat_tables([table, chunk.of_tables(events, runs, log=1)])
    judgement = monitor.judge(both)
    # Nothing says of such a world where a machine begins anew.
    assert set(judgement.broken) == {"world_is_that_of_the_run", "clauses_can_be_exercised", "state_continues"}
    assert {run.log for run in judgement.runs if run.first} == {0}
    assert len(judgement.runs) == 60


# --- The re-run -----------------------------------------------------------------------------------------------------------


def test_a_guided_run_takes_its_schedule_from_the_corpus(tmp_path: Path) -> None:
    schedule = registry.WORLDS["link"].draw(5)
    run, rows = rerun_input(5)
    run |= {"phase": PHASE_GUIDED, "run_id": -5}
    assert rerun.rerun(run, rows, {}) is None, "no file, no schedule"
    file = tmp_path / "corpus" / "link" / "x.json"
    file.parent.mkdir(parents=True)
    file.write_text(schedule_file.to_json(schedule), encoding="utf-8")
    (file.parent / "torn.json").write_text('{"world": "li', encoding="utf-8")
    kept = rerun.kept_schedules((str(tmp_path),))
    assert list(kept) == [recorder.digest(schedule)]
    result = rerun.rerun(run, rows, kept)
    assert result is not None and (result.rule, result.reached[-1]) == ("", rerun.OBSERVED)


def test_a_log_without_what_was_observed_is_compared_in_all_else() -> None:
    run, rows = rerun_input(5)
    result = rerun.rerun(run | {"observed": None}, rows, {})
    assert result is not None and rerun.OBSERVED not in result.reached and rerun.ROWS in result.reached


@pytest.mark.parametrize("verdict", ["timeout", "memory", "crash"])
def test_a_verdict_about_the_machine_is_not_run_again(verdict: str) -> None:
    run, rows = rerun_input(5)
    assert rerun.rerun(run | {"verdict": verdict}, rows, {}) is None


def rerun_input(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    log = second_verdicts.sound(*SEEDS)
    table = chunk.of_tables(*log.tables())
    one = table.filter(pc.equal(table.column("run_id"), seed))
    ((_, run, rows),) = rerun.runs_of(one)
    return run, rows


@pytest.mark.parametrize("seed", [3, 4])
def test_a_run_keeps_what_the_implementation_showed(seed: int) -> None:
    outcome = lockstep.run(registry.draw(seed))
    assert outcome.verdict == VERDICT_OK
    world = registry.world_of(outcome.schedule)
    model = world.open_reference(outcome.schedule)
    for event in outcome.schedule.events:
        model.apply(event)
    assert outcome.observed == fingerprint(model.observe()) != fingerprint(world.open_reference(outcome.schedule).observe())


def test_a_world_without_a_way_of_its_own_opens_its_model_all_the_same() -> None:
    world = registry.WORLDS["link"]
    schedule = world.draw(3)
    by_default = super(type(world), world).open_reference(schedule)
    assert by_default.observe() == world.open_reference(schedule).observe()
