"""Damage inside of a log goes into quarantine, with its source and reason, and all the rest of the log still counts."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis import row_checks
from rocketmq_ha.analysis.count_rows import COUNTS, DAMAGE, RUN, TRANSITION
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.ingest import LeftOut, Log, condensed_parts, read_logs, run_rows_of
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.outcomes import integrity
from rocketmq_ha.analysis.published import published

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

N_RUNS = 8
STEPS = 5  # of each run
FIRST, SECOND = "part-00000", "part-00001"  # runs 0, 2, 4, 6 and runs 1, 3, 5, 7


def rows_of(run_id: int, **changes: Any) -> list[dict[str, Any]]:
    return [event_logs.event_row(run_id, step, clauses=["HA-W-1"], **changes) for step in range(STEPS)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    events = [row for run_id in range(N_RUNS) for row in rows_of(run_id)]
    return event_logs.write_log(
        tmp_path / "log", events, [event_logs.run_row(n, n_steps=STEPS) for n in range(N_RUNS)], files=2
    )


def read(spark: SparkSession, *logs: Path, **options: Any) -> tuple[list[tuple[Any, ...]], int, int, int]:
    """The rows of quarantine without the place of the log, and how many runs are sound, how many count, how many steps do."""
    found = read_logs(spark, logs, worlds=event_logs.WORLDS, **options)
    try:
        return told(found, *logs)
    finally:
        found.close()


def told(found: Log, *logs: Path) -> tuple[list[tuple[Any, ...]], int, int, int]:
    quarantine = []
    for row in found.quarantine.collect():
        source = str(row["source"]).removeprefix(f"{logs[row['log']]}/")
        quarantine.append((source, row["reason"], row["n"], row["n_runs"], row["example"]))
    taken = found.counts.where(f"kind = '{TRANSITION}'").agg({"n": "sum"}).collect()[0][0]
    return sorted(quarantine, key=repr), found.runs.count(), found.counted.count(), taken or 0


def without_spark(log: Path) -> tuple[list[tuple[Any, ...]], int]:
    """What the executors tell of a log: (file, reason, rows, example) of what is damaged, and how many steps count."""
    found = published(LogFiles.at(log), 0, 2)
    known = frozenset(event_logs.WORLDS)
    parts = [part for part in found.parts if part.events]
    counts = pa.concat_tables([*condensed_parts(parts, (str(log),), known, LeftOut(frozenset(), {})), COUNTS.empty_table()])
    bad = [(d.source, d.reason, d.n, d.example) for d in found.damages]
    for row in counts.to_pylist():
        if row["kind"] == DAMAGE:
            bad.append((row["source"], row["reason"], row["n"], row["example"]))
        elif row["kind"] == RUN and row["reason"]:
            bad.append((row["source"], row["reason"], row["n"], row["first_run"]))
    for part in found.parts:
        for name in part.runs:
            rows = run_rows_of(0, part.place, part.version, name, str(log), known).to_pylist()
            bad += [(row["source"], row["reason"], 1, row["run_id"]) for row in rows if row["reason"]]
    steps = sum(row["n"] for row in counts.to_pylist() if row["kind"] == TRANSITION)
    return sorted(((source.removeprefix(f"{log}/"), *rest) for source, *rest in bad), key=repr), steps


def edit(file: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the rows of a Parquet file, and keep its schema."""
    table = pq.read_table(file)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), file)


def put(
    column: str, value: object, *, run_id: int, step: int | None = None
) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Write a value into the rows of a run, or into one of them."""

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mine = (row | {column: value} if row["run_id"] == run_id and step in (None, row.get("step")) else row for row in rows)
        return list(mine)

    return change


def without(run_id: int, step: int | None = None) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda rows: [row for row in rows if row["run_id"] != run_id or step not in (None, row.get("step"))]


def twice(run_id: int, step: int | None = None) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda rows: [*rows, *(row for row in rows if row["run_id"] == run_id and step in (None, row.get("step")))]


ALL = (N_RUNS, N_RUNS, N_RUNS * STEPS)
EVENTS, RUNS = f"events/{SECOND}.parquet", f"runs/{SECOND}.parquet"


def test_a_sound_log_has_nothing_in_quarantine(spark: SparkSession, log: Path) -> None:
    assert read(spark, log) == ([], *ALL)


BAD_EVENTS = {
    "null": (put("actor", None, run_id=3, step=2), "no value in column actor", STEPS),
    "null number": (put("offset", None, run_id=3, step=4), "no value in column offset", STEPS),
    "null in a list": (put("clauses", ["HA-W-1", None], run_id=3, step=0), "no value in column clauses", STEPS),
    "verdict": (put("verdict", "perhaps", run_id=3, step=2), "unknown verdict", STEPS),
    "world": (put("world", "moon", run_id=3, step=0), "unknown world", STEPS),
    "two worlds": (put("world", "store", run_id=3, step=4), row_checks.OTHER_WORLD, STEPS),
    "first step lost": (without(3, 0), row_checks.GAP, STEPS - 1),
    "step lost": (without(3, 2), row_checks.GAP, STEPS - 1),
    "last step lost": (without(3, 4), row_checks.OTHER_COUNT, STEPS - 1),
    "step twice": (twice(3, 2), row_checks.GAP, STEPS + 1),
    "step instead of another": (put("step", 1, run_id=3, step=2), row_checks.GAP, STEPS),
    "all steps twice": (twice(3), row_checks.GAP, 2 * STEPS),
    "a step too many": (lambda rows: [*rows, event_logs.event_row(3, STEPS)], row_checks.OTHER_COUNT, STEPS + 1),
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_a_run_with_a_bad_row_does_not_count(log: Path, name: str) -> None:
    change, reason, n = BAD_EVENTS[name]
    edit(log / EVENTS, change)
    assert without_spark(log) == ([(EVENTS, reason, n, 3)], (N_RUNS - 1) * STEPS)


def test_a_row_without_a_number_of_a_run_belongs_to_none(log: Path) -> None:
    edit(log / EVENTS, put("run_id", None, run_id=3, step=4))
    found, steps = without_spark(log)
    assert found == [
        (EVENTS, row_checks.OTHER_COUNT, STEPS - 1, 3),
        (EVENTS, row_checks.NO_NUMBER, 1, ""),
    ]
    assert steps == (N_RUNS - 1) * STEPS


def test_a_run_that_ended_before_its_first_step_is_right(spark: SparkSession, log: Path) -> None:
    edit(log / EVENTS, without(5))
    edit(log / RUNS, put("n_steps", 0, run_id=5))
    assert read(spark, log) == ([], N_RUNS, N_RUNS, (N_RUNS - 1) * STEPS)


BAD_RUNS = {
    "null": (put("detail", None, run_id=3), "no value in column detail"),
    "verdict": (put("verdict", "perhaps", run_id=3), "unknown verdict"),
    "phase": (put("phase", "dream", run_id=3), "unknown phase"),
    "profile": (put("profile", "soft", run_id=3), "unknown profile"),
    "world": (put("world", "moon", run_id=3), "unknown world"),
}


@pytest.mark.parametrize("name", BAD_RUNS)
def test_a_bad_row_of_runs_takes_its_events_with_it(log: Path, name: str) -> None:
    change, reason = BAD_RUNS[name]
    edit(log / RUNS, change)
    expected = [(EVENTS, row_checks.NO_ROW, STEPS, 3), (RUNS, reason, 1, 3)]
    assert without_spark(log) == (expected, (N_RUNS - 1) * STEPS)


def test_a_run_that_is_published_twice_counts_once(spark: SparkSession, log: Path) -> None:
    """Its second partition has the same rows, under other names."""
    for folder in ("events", "runs"):
        table = pq.read_table(log / folder / f"{SECOND}.parquet").filter(pa.compute.field("run_id") == 3)
        pq.write_table(table, log / folder / "part-00009.parquet")
    manifest = {"partition": 9, "events": "part-00009.parquet", "runs": "part-00009.parquet", "n_steps": STEPS}
    (log / "manifest" / "part-00009.json").write_text(json.dumps(manifest))
    assert read(spark, log) == ([("runs/part-00009.parquet", row_checks.TWICE, 1, 1, "run 3")], *ALL)
    found = read_logs(spark, [log])
    assert integrity(found.counts, found.all_runs, found.missing).collect()[0]["runs_repeated"] == 1
    found.close()


def test_a_run_with_two_rows_in_one_file_counts_once(spark: SparkSession, log: Path) -> None:
    edit(log / RUNS, twice(3))
    assert read(spark, log) == ([(RUNS, row_checks.TWICE, 1, 1, "run 3")], *ALL)


def test_a_run_with_rows_in_two_files_does_not_count(spark: SparkSession, tmp_path: Path) -> None:
    """A log of version 1 with a copied file of events: the rows are whole in both."""
    events = [row for run_id in range(4) for row in rows_of(run_id)]
    runs = [event_logs.run_row(n, n_steps=STEPS) for n in range(4)]
    log = event_logs.write_log(tmp_path / "log", events, runs, files=2, version=1)
    file = log / "events" / f"{SECOND}.parquet"
    copied = pq.read_table(file).filter(pa.compute.field("run_id") == 3)
    pq.write_table(copied, log / "events" / "part-00009.parquet")
    found, sound, count, steps = read_log_of_version_1(spark, log)
    assert found == [("events/part-00009.parquet", row_checks.SEVERAL_FILES, 2 * STEPS, 1, "run 3")]
    assert (sound, count, steps) == (4, 3, 3 * STEPS)


def read_log_of_version_1(spark: SparkSession, log: Path) -> tuple[list[tuple[Any, ...]], int, int, int]:
    found = read_logs(spark, [log], worlds=event_logs.WORLDS)
    quarantine = [tuple(row)[1:] for row in found.quarantine.collect()]
    shown = [(str(row[0]).removeprefix(f"{log}/"), *row[1:]) for row in quarantine]
    taken = found.counts.where(f"kind = '{TRANSITION}'").agg({"n": "sum"}).collect()[0][0]
    sums = found.runs.count(), found.counted.count(), taken
    found.close()
    return shown, *sums


# --- Files -------------------------------------------------------------------------------------------------------------------


def flip_pages(file: Path) -> None:
    """Damage what stands before the footer, which stays sound."""
    data = bytearray(file.read_bytes())
    end = len(data) - pq.read_metadata(file).serialized_size - 8
    data[4:end] = bytes(byte ^ 0xFF for byte in data[4:end])
    file.write_bytes(data)


def to_int64(file: Path) -> None:
    table = pq.read_table(file)
    at = table.schema.get_field_index("step")
    pq.write_table(table.set_column(at, "step", table["step"].cast(pa.int64())), file)


HALF = N_RUNS // 2
BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "not Parquet": (lambda file: file.write_text('{"json": "lines"}\n'), "a file that is not Parquet"),
    "empty": (lambda file: file.write_bytes(b""), "a file that is not Parquet"),
    "truncated": (lambda file: os.truncate(file, file.stat().st_size // 2), "a file that is not Parquet"),
    "damaged pages": (flip_pages, "pages that cannot be read"),
    "column missing": (
        lambda file: pq.write_table(pq.read_table(file).drop_columns(["actor"]), file),
        "no column actor; expected the 17 columns of events/",
    ),
    "column too many": (
        lambda file: pq.write_table(pq.read_table(file).append_column("x", pq.read_table(file)["step"]), file),
        "column x; expected the 17 columns of events/",
    ),
    "column of another type": (to_int64, "column step of type int64; expected type int32"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_of_events_is_left_out(log: Path, name: str) -> None:
    damage, reason = BAD_FILES[name]
    damage(log / EVENTS)
    assert without_spark(log) == ([(EVENTS, reason, HALF * STEPS, "")], HALF * STEPS)


MANIFEST = f"manifest/{SECOND}.json"
OTHER_HALF = [HALF, HALF, HALF * STEPS]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        ("[]", "JSON that is no object"),
        ('{"events": "a"}', "a manifest without the name of its file of runs"),
        ('{"events": "../a", "runs": "b"}', "a manifest without the name of its file of events"),
    ],
)
def test_a_bad_manifest_leaves_its_partition_out(log: Path, text: str, reason: str) -> None:
    (log / MANIFEST).write_text(text)
    assert without_spark(log) == ([(MANIFEST, reason, None, "")], HALF * STEPS)


def test_a_manifest_that_names_what_is_not_there_is_told(log: Path) -> None:
    (log / EVENTS).unlink()
    assert without_spark(log) == ([(MANIFEST, "names a file that is not there", HALF * STEPS, EVENTS)], HALF * STEPS)
    (log / RUNS).unlink()
    found, steps = without_spark(log)
    assert found == [
        (MANIFEST, "names a file that is not there", HALF * STEPS, EVENTS),
        (MANIFEST, "names a file that is not there", None, RUNS),
    ]
    assert steps == HALF * STEPS


def test_all_kinds_of_damage_at_once_are_told_and_the_rest_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Eight partitions of two runs; the first is sound."""
    n = 16
    events = [row for run_id in range(n) for row in rows_of(run_id)]
    log = event_logs.write_log(tmp_path / "log", events, [event_logs.run_row(k, n_steps=STEPS) for k in range(n)], files=8)

    def file(folder: str, number: int) -> str:
        return f"{folder}/part-{number:05}.{'json' if folder == 'manifest' else 'parquet'}"

    edit(log / file("events", 1), without(1, 2))
    edit(log / file("runs", 2), put("phase", "dream", run_id=2))
    edit(log / file("events", 3), without(3))
    flip_pages(log / file("events", 4))
    (log / file("runs", 5)).write_text("no")
    (log / file("manifest", 6)).write_text("{")
    (log / file("events", 7)).unlink()
    assert read(spark, log) == (
        [
            (file("events", 1), row_checks.GAP, STEPS - 1, 1, "run 1"),
            (file("events", 2), row_checks.NO_ROW, STEPS, 1, "run 2"),
            (file("events", 4), "pages that cannot be read", 2 * STEPS, None, ""),
            (file("events", 5), row_checks.NO_ROW, 2 * STEPS, 2, "run 5"),
            (file("manifest", 6), "no JSON", None, None, ""),
            (file("manifest", 7), "names a file that is not there", 2 * STEPS, None, file("events", 7)),
            (file("runs", 2), "unknown phase", 1, 1, "run 2"),
            (file("runs", 3), row_checks.NO_EVENTS, STEPS, 1, "run 3"),
            (file("runs", 4), row_checks.NO_EVENTS, 2 * STEPS, 2, "run 4"),
            (file("runs", 5), "a file that is not Parquet", None, None, ""),
            (file("runs", 7), row_checks.NO_EVENTS, 2 * STEPS, 2, "run 7"),
        ],
        n - 5,  # without the rows of file 5, of manifest 6, and of run 2
        5,
        5 * STEPS,
    )


def test_two_manifests_of_one_file_count_it_once(log: Path) -> None:
    (log / "manifest" / "part-00009.json").write_text((log / MANIFEST).read_text())
    expected = [("manifest/part-00009.json", "names a file that another manifest names", HALF * STEPS, EVENTS)]
    assert without_spark(log) == (expected, N_RUNS * STEPS)


def test_only_what_a_manifest_names_counts(spark: SparkSession, log: Path) -> None:
    """A campaign that has not finished: its second partition is written, and not published."""
    (log / MANIFEST).unlink()
    assert read(spark, log) == ([], *OTHER_HALF)
    (log / "manifest" / f"{FIRST}.json").unlink()
    assert read(spark, log) == ([], 0, 0, 0)


def test_a_log_of_version_1_has_what_it_lacks_filled_in(spark: SparkSession, tmp_path: Path) -> None:
    log = event_logs.write_log(tmp_path / "log", rows_of(1), [event_logs.run_row(1, n_steps=STEPS, world="store")], version=1)
    found = read_logs(spark, [log], worlds=event_logs.WORLDS)
    (run,) = found.runs.collect()
    assert (run["world"], run["digest"], run["recipe"], run["elapsed_us"]) == ("link", 0, "", -1)
    assert {row["world"] for row in found.counts.where(f"kind = '{TRANSITION}'").collect()} == {"link"}
    found.close()


def test_runs_of_several_logs_are_told_apart_by_log_and_number(spark: SparkSession, tmp_path: Path) -> None:
    """Seed 1 of the link is in all, and counts once; seed 2 is in two worlds; -1 is another schedule in each log."""
    logs = []
    for digest, (name, world) in enumerate((("a", "link"), ("b", "store"), ("c", "link")), start=1):
        runs = [event_logs.run_row(1, n_steps=STEPS), event_logs.run_row(2, n_steps=STEPS, world=world)]
        runs.append(event_logs.run_row(-1, n_steps=STEPS, phase="guided", digest=digest))
        events = [*rows_of(1), *rows_of(2, world=world), *rows_of(-1)]
        logs.append(event_logs.write_log(tmp_path / name, events, runs))
    assert read(spark, *logs[:2]) == ([], 5, 5, 5 * STEPS)
    assert read(spark, *logs) == ([], 6, 6, 6 * STEPS)
    assert read(spark, *logs, each_alone=True) == ([], 9, 9, 9 * STEPS)
    assert read(spark, logs[0], logs[0]) == ([], 3, 3, 3 * STEPS)


@pytest.mark.parametrize("phase", ["generate", "guided"])
def test_a_run_that_failed_in_one_log_has_failed_in_any_order_of_logs(spark: SparkSession, tmp_path: Path, phase: str) -> None:
    """The first run fails in the second log, the second run in the second and in the third log."""
    failed, logs = {"verdict": "divergence", "signature": "s"}, []
    for name, fails in (("a", ()), ("b", (1, 2)), ("c", (2,))):
        runs = [
            event_logs.run_row(n, n_steps=STEPS, phase=phase, digest=9, **(failed if n in fails else {})) for n in (1, 2, 3)
        ]
        logs.append(event_logs.write_log(tmp_path / name, [row for n in (1, 2, 3) for row in rows_of(n)], runs))
    for order in itertools.permutations(logs):
        found = read_logs(spark, order, worlds=event_logs.WORLDS)
        verdicts = {row["run_id"]: (row["verdict"], order[row["log"]]) for row in found.runs.collect()}
        found.close()
        failing = order[min(order.index(logs[1]), order.index(logs[2]))]
        assert verdicts == {1: ("divergence", logs[1]), 2: ("divergence", failing), 3: ("ok", order[0])}


def with_made(log: Path, **values: Any) -> Path:
    """The log with other values in its campaign.json."""
    file = log / "campaign.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values), encoding="utf-8")
    return log


def without_second_part(log: Path) -> Path:
    """The log without the runs 1, 3, 5 and 7."""
    (log / "manifest" / f"{SECOND}.json").unlink()
    return log


def runs_of_logs(spark: SparkSession, *logs: Path) -> tuple[int, int]:
    """How many runs count, and how many are missing."""
    found = read_logs(spark, logs, worlds=event_logs.WORLDS)
    try:
        (row,) = integrity(found.counts, found.all_runs, found.missing).collect()
        return found.runs.count(), row["runs_missing"]
    finally:
        found.close()


def test_a_log_and_its_copy_count_once_and_lack_nothing(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    with_made(log, finished=True, made=N_RUNS)
    assert runs_of_logs(spark, log, shutil.copytree(log, tmp_path / "copy")) == (N_RUNS, 0)


def test_the_runs_that_one_log_lacks_are_missing_though_another_holds_copies(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    """The log has made ten runs, its copy twelve; four of the copy's files are gone."""
    copy = without_second_part(with_made(shutil.copytree(log, tmp_path / "copy"), finished=True, made=N_RUNS + 4))
    assert runs_of_logs(spark, with_made(log, finished=True, made=N_RUNS + 2), copy) == (N_RUNS, 2 + 8)


def test_a_run_without_its_row_is_not_also_missing(spark: SparkSession, log: Path) -> None:
    """A file of runs/ cannot be read: its four runs have events, and the campaign has made one run that the log lacks."""
    with_made(log, finished=True, made=N_RUNS + 1)
    (log / "runs" / f"{SECOND}.parquet").write_bytes(b"damaged")
    found = read_logs(spark, [log], worlds=event_logs.WORLDS)
    (row,) = integrity(found.counts, found.all_runs, found.missing).collect()
    found.close()
    assert (row["runs"], row["runs_without_row"], row["runs_missing"]) == (N_RUNS - 4, 4, 1)


@pytest.mark.parametrize(
    ("campaign", "missing"),
    [
        ({"finished": True, "made": N_RUNS}, 0),
        ({"finished": True, "made": N_RUNS + 2}, 2),
        ({"finished": True, "made": N_RUNS - 1}, 0),
        ({"finished": False, "made": N_RUNS + 2}, 0),
        ({"finished": False, "made": None}, 0),
        ({"finished": True}, 0),
        ({"finished": True, "made": True}, 0),
    ],
    ids=str,
)
def test_runs_that_a_finished_campaign_has_made_must_be_in_its_log(
    spark: SparkSession, log: Path, tmp_path: Path, campaign: dict[str, Any], missing: int
) -> None:
    """Of a campaign that has not ended nobody knows how many there were; what is beside it is judged all the same."""
    ended = with_made(shutil.copytree(log, tmp_path / "ended"), finished=True, made=N_RUNS + 1)
    assert runs_of_logs(spark, with_made(log, **campaign), ended) == (N_RUNS, missing + 1)


def test_a_guided_run_in_two_logs_counts_once_if_both_made_it_of_one_schedule(spark: SparkSession, tmp_path: Path) -> None:
    """Another corpus makes another schedule under the same number; 0 is none. What is recorded is told by its log."""
    logs = []
    for name, digest in (("1", 7), ("2", 7), ("3", 8), ("4", 0), ("5", 0)):
        runs = [
            event_logs.run_row(-3, n_steps=STEPS, phase="guided", digest=digest),
            event_logs.run_row(-4, n_steps=STEPS, phase="recorded", digest=digest),
        ]
        logs.append(event_logs.write_log(tmp_path / name, [*rows_of(-4), *rows_of(-3)], runs))
    found = read_logs(spark, logs, worlds=event_logs.WORLDS)
    assert sorted((row["run_id"], row["log"]) for row in found.runs.collect()) == [
        *((-4, log) for log in range(5)),
        *((-3, log) for log in (0, 2, 3, 4)),
    ]
    found.close()


def test_rows_in_another_order_count_the_same(log: Path) -> None:
    edit(log / EVENTS, lambda rows: rows[::-1])
    assert without_spark(log) == ([], N_RUNS * STEPS)


def test_a_log_of_which_nothing_can_be_read_is_an_error(spark: SparkSession, log: Path) -> None:
    for name in (FIRST, SECOND):
        (log / "runs" / f"{name}.parquet").write_text("no")
    with pytest.raises(LogInvalid) as caught:
        read_logs(spark, [log])
    assert caught.value.path == log
    assert caught.value.message == (
        f"{log}: found nothing that can be read ({log}/events/part-00000.parquet: {row_checks.NO_ROW}), "
        "expected a log with at least one sound run"
    )


def test_failed_runs_are_told_even_if_their_rows_are_damaged(spark: SparkSession, log: Path) -> None:
    edit(log / RUNS, put("verdict", "divergence", run_id=3))
    edit(log / EVENTS, without(3, 2))
    found = read_logs(spark, [log])
    assert [row["run_id"] for row in found.runs.where("verdict <> 'ok'").collect()] == [3]
    assert found.counted.count() == N_RUNS - 1
    found.close()
