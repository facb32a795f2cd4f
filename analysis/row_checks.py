"""The rows of a log that cannot be right, and why.

A row of runs/ is judged alone. Of events/ a whole run is judged: one bad row means that nobody knows what the run did.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_ha.analysis.part_files import Ints, codes, has_nulls, same_type
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, PHASES, RUN_COLUMNS, VERDICTS
from rocketmq_ha.spec.profile import PROFILES

Flags = npt.NDArray[np.bool_]

NO_NUMBER: Final = "no value in column run_id"
NO_ROW: Final = "events of a run that has no row"
GAP: Final = "the steps of a run are not 0 to n - 1, each once"
OTHER_COUNT: Final = "a run with more or fewer rows than its n_steps"
OTHER_WORLD: Final = "a run whose rows name two worlds"
TWICE: Final = "a run that is in the log twice"
NO_EVENTS: Final = "a run without its rows in events/"
SEVERAL_FILES: Final = "a run with rows in several files"

NO_PROFILE: Final = ""  # of a test case of Hypothesis
_FILLERS: Final = {"int32": 0, "int64": 0, "string": ""}


@dataclass(frozen=True, slots=True)
class Found:
    """A table without the rows that have nothing to judge, and the reason of each row that is bad; "" for the others."""

    table: pa.Table
    reason: npt.NDArray[np.object_]


def judge_runs(table: pa.Table, worlds: Iterable[str]) -> Found:
    """The reasons of the rows of a file of runs. Nulls are filled, so that the rest of a row can be shown."""
    known: dict[str, frozenset[str]] = {"world": frozenset(worlds), "phase": frozenset(PHASES)}
    known |= {"profile": frozenset((*PROFILES, NO_PROFILE)), "verdict": frozenset(VERDICTS)}
    return _judge(table, RUN_COLUMNS, known)


def judge_events(table: pa.Table, worlds: Iterable[str]) -> Found:
    """The reasons of the single rows of a file of events, nulls filled. `judge_steps` says what whole runs lack."""
    return _judge(table, EVENT_COLUMNS, {"world": frozenset(worlds), "verdict": frozenset(VERDICTS)})


def _judge(table: pa.Table, form: Iterable[tuple[str, str, str]], known: dict[str, frozenset[str]]) -> Found:
    reason = np.full(table.num_rows, "", object)

    def mark(rows: Flags, text: str) -> None:
        reason[rows & (reason == "")] = text

    for number, (name, kind, _) in enumerate(form):
        column = table[name]
        if _has_null(column):
            mark(has_nulls(column), f"no value in column {name}")
            table = table.set_column(number, name, _filled(column, kind))
        if name in known:
            code, words = codes(table[name])
            for unknown in (n for n, word in enumerate(words) if word not in known[name]):
                if (rows := code == unknown).any():
                    mark(rows, f"unknown {name}")
    return Found(table, reason)


def _has_null(column: pa.ChunkedArray) -> bool:
    if column.null_count:
        return True
    return pa.types.is_list(column.type) and any(chunk.flatten().null_count for chunk in column.chunks)


def _filled(column: pa.ChunkedArray, kind: str) -> pa.Array:
    """The column with 0, "" or no elements where it has nulls. Rare, so it may be slow."""
    values: list[Any] = column.to_pylist()
    if kind == "list<string>":
        return same_type(pa.array([[word or "" for word in value or ()] for value in values], pa.list_(pa.string())), kind)
    return same_type(pa.array([_FILLERS[kind] if value is None else value for value in values]), kind)


def judge_steps(run: Ints, step: npt.NDArray[Any], n_runs: int, n_steps: Ints, has_row: Flags) -> npt.NDArray[np.object_]:
    """The reason of each run that is bad as a whole; "" for the others.

    Args: run, step: of each row, in the order of both. n_steps, has_row: of each run; a run without a row has n_steps 0.
    """
    count = np.bincount(run, minlength=n_runs)
    begin = np.cumsum(count) - count
    wrong = np.bincount(run, weights=step != np.arange(len(run)) - begin[run], minlength=n_runs) > 0
    reason = np.full(n_runs, "", object)
    reason[count != n_steps] = OTHER_COUNT
    reason[wrong] = GAP
    reason[~has_row] = NO_ROW
    return reason
