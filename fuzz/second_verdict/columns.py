"""The rows of whole runs as columns of numbers, and what a rule can ask of them. All in order of (run, step).

A text is a code: its place in `Vocabulary.texts`, or UNKNOWN. A *place* is the index of a row in this chunk; -1 is none.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_ha.spec.event_log import TRANSITIONS_FILE

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN: Final = 0
HEADER: Final = ""  # the actor of the row that stands for a run's row in runs, before its rows of events
PROFILES: Final = ("classic", "hardened")

# The columns of a chunk. In the row of a run's header they hold columns of runs, as RUN_AS_EVENT says.
CHUNK_SCHEMA: Final = pa.schema(
    [
        ("log", pa.int32()),
        ("run_id", pa.int64()),
        ("world", pa.string()),
        ("step", pa.int32()),
        ("op_index", pa.int32()),
        ("actor", pa.string()),
        ("instance", pa.int32()),
        ("event", pa.string()),
        ("from_state", pa.string()),
        ("to_state", pa.string()),
        ("offset", pa.int64()),
        ("nbytes", pa.int64()),
        ("fragment_len", pa.int32()),
        ("split_at", pa.int32()),
        ("fault", pa.string()),
        ("clauses", pa.list_(pa.string())),
        ("ts_ns", pa.int64()),
        ("verdict", pa.string()),
    ]
)
# In one table the rows of a run stand together; a join would carry each run's columns on every row of it.
HEADER_STEP: Final = -(1 << 31)
RUN_AS_EVENT: Final = {
    "world": "world",
    "op_index": "n_ops",
    "instance": "n_steps",
    "event": "phase",
    "from_state": "profile",
    "to_state": "signature",
    "offset": "n_messages",
    "nbytes": "nbytes",
    "fragment_len": "failing_op",
    "fault": "detail",
    "ts_ns": "digest",
    "verdict": "verdict",
}  # and clauses has `recipe` and `observed`


@dataclass(frozen=True)
class Vocabulary:
    """spec/transitions.json: what is possible, by code."""

    texts: tuple[str, ...]  # of actors, events, states and clauses
    codes: dict[str, int]
    actors: dict[str, Any]  # machine: as in the file
    clauses: dict[str, tuple[str, ...]]  # clause: the worlds whose schedules exercise it
    possible: frozenset[tuple[int, int, int, int, int]]  # profile, actor, from_state, event, to_state

    def code(self, text: str) -> int:
        return self.codes.get(text, UNKNOWN)

    def key(self, profile: Numbers, actor: Numbers, from_state: Numbers, event: Numbers, to_state: Numbers) -> Numbers:
        """One number for a transition in a profile."""
        size = len(self.texts)
        return (((profile * size + actor) * size + from_state) * size + event) * size + to_state

    @cached_property
    def possible_keys(self) -> Numbers:
        columns = np.array(sorted(self.possible), dtype=np.int64).T
        return np.sort(self.key(*columns))


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The vocabulary of the installed specification."""
    document = json.loads((resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE).read_text(encoding="utf-8"))
    machines = document["machines"]
    words = [word for machine in machines.values() for word in (*machine["states"], *machine["events"])]
    texts = tuple(dict.fromkeys(("?", *machines, *words, *document["clauses"])))
    codes = {text: code for code, text in enumerate(texts)}
    possible = frozenset(
        (PROFILES.index(profile), codes[actor], codes[before], codes[event], codes[after])
        for actor, machine in machines.items()
        for before, event, after, profiles in machine["transitions"]
        for profile in profiles
    )
    clauses = {clause: tuple(found["worlds"]) for clause, found in document["clauses"].items()}
    return Vocabulary(texts, codes, machines, clauses, possible)


class Groups:
    """The rows by a key: within a group they keep their order. Rows with a negative key are in no group."""

    def __init__(self, key: Numbers) -> None:
        self._order = np.argsort(key, kind="stable")
        by_key = key[self._order]
        starts = np.ones(len(key), dtype=np.bool_)
        starts[1:] = by_key[1:] != by_key[:-1]
        self._start = np.maximum.accumulate(np.where(starts, np.arange(len(key)), 0))
        self._member = by_key >= 0

    def previous(self, where: Flags) -> Numbers:
        """For each row the place of the last row of its group before it for which `where` holds, or -1."""
        size = len(where)
        marked = np.where(where[self._order], np.arange(size), -1)
        last = np.full(size, -1)
        np.maximum.accumulate(marked[:-1], out=last[1:])
        found = np.full(size, -1)
        valid = (last >= self._start) & self._member
        found[self._order] = np.where(valid, self._order[last], -1)
        return found

    def running(self, values: Numbers) -> Numbers:
        """For each row the sum of the values of its group up to and with it."""
        total = np.cumsum(values[self._order])
        before = np.where(self._start > 0, total[self._start - 1], 0)
        found = np.empty(len(values), dtype=np.int64)
        found[self._order] = total - before
        return found


@dataclass(frozen=True)
class Runs:
    """The rows of runs, one a run; a run of which runs has no row has zeros, and `headers` says so."""

    log: Numbers
    run_id: Numbers
    headers: Numbers  # how many rows runs has of it
    begin: Numbers  # place of its first row; that of the next run where it has none
    end: Numbers
    profile: Numbers  # index in PROFILES, or -1
    n_ops: Numbers
    n_steps: Numbers
    nbytes: Numbers
    n_messages: Numbers
    failing_op: Numbers
    world: list[str]
    phase: list[str]
    verdict: list[str]
    signature: list[str]
    detail: list[str]


class Rows:
    """The rows of whole runs of one world."""

    def __init__(self, table: pa.Table, world: str) -> None:
        """Args: table: CHUNK_SCHEMA, in order of (log, run_id, step)."""
        self.vocabulary = vocabulary()
        self._asked: dict[tuple[str, tuple[str, ...]], Flags] = {}
        self.has_null = _any_null(table)
        table = _filled(table) if bool(self.has_null.any()) else table
        header = _is(table.column("actor"), HEADER)
        events = table.filter(pa.array(~header))
        self.has_null = self.has_null[~header]
        log, run_id = _numbers(table.column("log")), _numbers(table.column("run_id"))
        first = np.ones(len(log), dtype=np.bool_)
        first[1:] = (log[1:] != log[:-1]) | (run_id[1:] != run_id[:-1])
        number = np.cumsum(first) - 1
        self.world = world
        self.run = number[~header]
        self.runs = self._runs(table.filter(pa.array(header)), number[header], log[first], run_id[first])
        self.size = len(self.run)
        self.at = np.arange(self.size)
        for name in ("step", "op_index", "instance", "offset", "nbytes", "fragment_len", "split_at", "ts_ns"):
            setattr(self, name, _numbers(events.column(name)))
        for name in ("actor", "event", "from_state", "to_state"):
            setattr(self, name, self._coded(events.column(name)))
        self.faults, self.fault = _dictionary(events.column("fault"))
        self.verdicts, self.verdict = _dictionary(events.column("verdict"))
        self.worlds, self.row_world = _dictionary(events.column("world"))
        clauses = events.column("clauses").combine_chunks()
        self._clause_row = _numbers(pc.list_parent_indices(clauses))
        self.clause_texts, self._clause_text = _dictionary(pc.list_flatten(clauses))
        self.profile = self.runs.profile[self.run]
        self.hardened, self.classic = self.profile == 1, self.profile == 0

    step: Numbers
    op_index: Numbers
    instance: Numbers
    offset: Numbers
    nbytes: Numbers
    fragment_len: Numbers
    split_at: Numbers
    ts_ns: Numbers
    actor: Numbers
    event: Numbers
    from_state: Numbers
    to_state: Numbers

    def _runs(self, headers: pa.Table, number: Numbers, log: Numbers, run_id: Numbers) -> Runs:
        size = len(run_id)
        count = np.bincount(number, minlength=size)

        def numbers(name: str) -> Numbers:
            found = np.zeros(size, dtype=np.int64)
            found[number] = _numbers(headers.column(name))
            return found

        def texts(name: str) -> list[str]:
            found = [""] * size
            for run, text in zip(number.tolist(), headers.column(name).to_pylist(), strict=True):
                found[run] = text
            return found

        profile = np.array([PROFILES.index(name) if name in PROFILES else -1 for name in texts("from_state")], dtype=np.int64)
        begin = np.searchsorted(self.run, np.arange(size + 1))
        return Runs(
            log,
            run_id,
            count,
            begin[:-1],
            begin[1:],
            profile,
            numbers("op_index"),
            numbers("instance"),
            numbers("nbytes"),
            numbers("offset"),
            numbers("fragment_len"),
            texts("world"),
            texts("event"),
            texts("verdict"),
            texts("to_state"),
            texts("fault"),
        )

    def _coded(self, column: Any) -> Numbers:
        texts, indices = _dictionary(column)
        return np.array([self.vocabulary.code(text) for text in texts] or [UNKNOWN], dtype=np.int64)[indices]

    # --- What the rules ask ------------------------------------------------------------------------------------------

    def of(self, actor: str, *events: str) -> Flags:
        """The rows of a machine, or those of some of its events."""
        mine = self._in("actor", actor)
        return mine & self.event_in(*events) if events else mine

    def event_in(self, *events: str) -> Flags:
        return self._in("event", *events)

    def to_in(self, *states: str) -> Flags:
        return self._in("to_state", *states)

    def from_in(self, *states: str) -> Flags:
        return self._in("from_state", *states)

    def _in(self, column: str, *texts: str) -> Flags:
        """The rows with one of a few texts in a column. Many rules ask the same; np.isin is slower for so few."""
        found = self._asked.get((column, texts))
        if found is None:
            codes = getattr(self, column)
            found = reduce(np.logical_or, (codes == self.vocabulary.code(text) for text in texts))
            self._asked[column, texts] = found
        return found

    def fault_in(self, names: Iterable[str]) -> Flags:
        wanted = set(names)
        return np.array([name in wanted for name in self.faults] or [False])[self.fault]

    def has_clause(self, clause: str) -> Flags:
        """The rows that name a clause."""
        found = np.zeros(self.size, dtype=np.bool_)
        if clause in self.clause_texts:
            found[self._clause_row[self._clause_text == self.clause_texts.index(clause)]] = True
        return found

    def clause_flags(self, is_right: npt.NDArray[np.bool_], actors: Numbers) -> Numbers:
        """Places of the rows with a clause that is not right. is_right: by (text of a clause, actor as in `actors`)."""
        bad = ~is_right[self._clause_text, actors[self._clause_row]]
        return np.unique(self._clause_row[bad])

    @cached_property
    def has_clauses(self) -> Flags:
        found = np.zeros(self.size, dtype=np.bool_)
        found[self._clause_row] = True
        return found

    @cached_property
    def same_op_as_before(self) -> Flags:
        """True where the row before is of the same run and operation."""
        found = np.zeros(self.size, dtype=np.bool_)
        found[1:] = (self.run[1:] == self.run[:-1]) & (self.op_index[1:] == self.op_index[:-1])
        return found

    @cached_property
    def op_begin(self) -> Numbers:
        """Place of the first row of the row's operation."""
        return np.maximum.accumulate(np.where(self.same_op_as_before, 0, self.at)) if self.size else self.at

    @cached_property
    def by_run(self) -> Groups:
        return Groups(self.run)

    @cached_property
    def by_machine(self) -> Groups:
        """By run, actor and instance."""
        return Groups(((self.run << 8) + self.actor.clip(0, 255) << 32) + (self.instance & 0xFFFFFFFF))

    def value(self, column: Numbers, places: Numbers, default: int) -> Numbers:
        """The column at these places, or the default where there is none."""
        return np.where(places >= 0, column[places], default) if self.size else places

    def text(self, code: int) -> str:
        return self.vocabulary.texts[code]


def _is(column: Any, text: str) -> Flags:
    return np.asarray(pc.equal(column, text).combine_chunks().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _numbers(column: Any) -> Numbers:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _dictionary(column: Any) -> tuple[list[str], Numbers]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _any_null(table: pa.Table) -> Flags:
    found = np.zeros(len(table), dtype=np.bool_)
    for column in table.columns:
        if column.null_count:
            found |= np.asarray(column.is_null().combine_chunks().to_numpy(zero_copy_only=False), dtype=np.bool_)
    return found


def _filled(table: pa.Table) -> pa.Table:
    """The table with 0, "?" or [] in place of nulls, so that the other rules can go on."""
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_list(field.type):
            values = [[] if value is None else [text or "?" for text in value] for value in column.to_pylist()]
            columns.append(pa.array(values, field.type))
        else:
            columns.append(column.fill_null("?" if pa.types.is_string(field.type) else 0))
    return pa.table(columns, schema=table.schema)
