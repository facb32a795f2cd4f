"""The steps of failed runs: what the machines did before reference and implementation parted.

pyarrow reads them in this process. The footers of the files tell which parts of them hold a run, and few runs are asked for; so
this costs a look at each footer, also for a log of many files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.published import Part

MAX_RUNS: Final = 50  # as many as the page has signatures
MAX_STEPS: Final = 200  # of one run, the last ones
READERS: Final = 8  # threads: on an object store the time goes into waiting

FORM: Final = pa.schema(
    [
        pa.field("log", pa.int32()),
        pa.field("run_id", pa.int64()),
        pa.field("step", pa.int32()),
        pa.field("op_index", pa.int32()),
        pa.field("actor", pa.string()),
        pa.field("instance", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("event", "from_state", "to_state")),
        *(pa.field(name, pa.int64()) for name in ("offset", "nbytes")),
        *(pa.field(name, pa.int32()) for name in ("fragment_len", "split_at")),
        pa.field("fault", pa.string()),
        pa.field("clauses", pa.list_(pa.string())),
        pa.field("verdict", pa.string()),
    ]
)

Run = tuple[int, int]  # log, run_id


def failing_runs(divergences: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return the smallest run of each of the first MAX_RUNS signatures, those with the most failed runs first."""
    ordered = sorted(divergences, key=lambda row: (-row["n"], row["signature"]))
    return list(dict.fromkeys((row["log"], row["smallest_run"]) for row in ordered[:MAX_RUNS]))


def failing_steps(parts: Sequence[Part], runs: Iterable[Run]) -> pa.Table:
    """The last MAX_STEPS steps of each of the runs, in order. Columns: FORM.

    A file that cannot be read gives none; it stands in quarantine.
    """
    wanted: dict[int, set[int]] = {}
    for log, run_id in runs:
        wanted.setdefault(log, set()).add(run_id)
    there = [part for part in parts if part.events and part.log in wanted]
    with ThreadPoolExecutor(READERS) as pool:
        found = pa.concat_tables([FORM.empty_table(), *pool.map(partial(_steps_in, wanted), there)])
    found = found.sort_by([("log", "ascending"), ("run_id", "ascending"), ("step", "descending")])
    n_rows = Counter[Run]()
    kept = []
    for run in zip(found["log"].to_pylist(), found["run_id"].to_pylist(), strict=True):
        n_rows[run] += 1
        kept.append(n_rows[run] <= MAX_STEPS)
    return found.filter(pa.array(kept, pa.bool_())).sort_by([(name, "ascending") for name in ("log", "run_id", "step")])


def _steps_in(wanted: Mapping[int, set[int]], part: Part) -> pa.Table:
    ids = wanted[part.log]
    files = LogFiles.at(part.place)
    try:
        with files.system.open_input_file(files.path(part.events)) as source:
            file = pq.ParquetFile(source)
            groups = [number for number in range(file.num_row_groups) if _may_hold(file.metadata.row_group(number), ids)]
            table = file.read_row_groups(groups, columns=list(FORM.names[1:])) if groups else FORM.empty_table()
    except (pa.ArrowException, OSError, KeyError):
        return FORM.empty_table()
    if not groups:
        return table
    table = table.filter(pc.is_in(table["run_id"], pa.array(sorted(ids), pa.int64())))
    columns = [
        pa.repeat(pa.scalar(part.log, pa.int32()), table.num_rows),
        *(table[name].cast(FORM.field(name).type) for name in FORM.names[1:]),
    ]
    return pa.table(columns, schema=FORM)


def _may_hold(group: Any, ids: set[int]) -> bool:
    """Tell by the footer whether a row group may hold one of the runs. Without statistics it may."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "run_id":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            return any(statistics.min <= run_id <= statistics.max for run_id in ids)
    return False
