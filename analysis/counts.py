"""Condense events into counts: what the runs of some files did, and in how many of them.

This is the part of the work that grows with the log. Each executor condenses its files, about half a million rows at a time;
what remains is some thousand rows for each, of which Spark makes the tables. It works because all rows of a run are in one
file, so that the number of runs which did something is a sum over files.

numpy counts the codes of the dictionaries that the columns have in Parquet, never strings. What does not work: the same in
Spark SQL. To group 20 million rows by run and by four strings takes it 100 times as much processor time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_ha.analysis import fragmentation
from rocketmq_ha.analysis.count_rows import CASE, CLAUSE, COUNTS, DAMAGE, FAULT, PAIR, RUN, SPLIT, STATE_FAULT, TRANSITION, rows
from rocketmq_ha.analysis.part_files import Ints, codes, numbers
from rocketmq_ha.analysis.row_checks import NO_NUMBER, OTHER_WORLD, Flags, Found, judge_events, judge_steps
from rocketmq_ha.spec.event_log import NO_FAULT, PHASE_GENERATE, PHASE_GUIDED, PHASE_HYPOTHESIS


def ordinal(run_id: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The place of a run in its campaign: a guided run has the negative of its seed, less one, as its number."""
    return np.where(run_id < 0, ~run_id, run_id)


@dataclass(frozen=True, slots=True)
class Source:
    """The events of one file, judged or not."""

    name: str  # as a person finds it
    table: pa.Table


def condense(log: int, sources: Sequence[Source], runs: pa.Table, worlds: frozenset[str], left_out: Flags) -> pa.Table:
    """The counts of some files of one log.

    Args: runs: sound rows of runs/, those of the files' runs among them. worlds: all that exist.
          left_out: for each row of `runs`: do not count its events, because they are counted elsewhere.
    Returns: rows of COUNTS.
    """
    table = pa.concat_tables([source.table for source in sources])
    file_of_row = np.repeat(np.arange(len(sources)), [source.table.num_rows for source in sources])
    judged = judge_events(table, worlds)
    tables = []
    if (lost := judged.reason == NO_NUMBER).any():  # they belong to no run
        tables.append(_lost_rows(log, [source.name for source in sources], file_of_row[lost]))
        judged, file_of_row = Found(judged.table.filter(pa.array(~lost)), judged.reason[~lost]), file_of_row[~lost]
    table = judged.table
    if not table.num_rows:
        return pa.concat_tables([*tables, COUNTS.empty_table()])
    of_rows = _Runs.of(runs, left_out)
    run, order = _numbered(numbers(table["run_id"]), numbers(table["step"]), of_rows)
    if order is not None:
        table, file_of_row = table.take(pa.array(order)), file_of_row[order]
        judged_reason = judged.reason[order]
    else:
        judged_reason = judged.reason
    ids, row_of_run = of_rows.known(run.ids)
    has_row = row_of_run >= 0
    n_steps = _of(of_rows.n_steps, row_of_run, 0)
    step = numbers(table["step"])
    reason = judge_steps(run.of_row, step, len(ids), n_steps, has_row)
    world_code, world_words = codes(table["world"])
    own_world = _of(of_rows.world, row_of_run, -1)
    same = np.array([of_rows.world_words.index(w) if w in of_rows.world_words else -2 for w in world_words])
    other = np.bincount(run.of_row, weights=same[world_code] != own_world[run.of_row], minlength=len(ids)) > 0
    reason[other & (reason == "")] = OTHER_WORLD
    bad_rows = np.flatnonzero(judged_reason != "")
    reason[run.of_row[bad_rows]] = judged_reason[bad_rows]
    skipped = _of(of_rows.left_out, row_of_run, False)
    file_of_run = file_of_row[run.begin]
    count = np.diff(np.append(run.begin, len(step)))
    tables.append(_run_rows(log, ids, count, reason, skipped, [source.name for source in sources], file_of_run))
    good = (reason == "") & ~skipped
    if not good.any():
        return pa.concat_tables(tables)
    kept = good[run.of_row]
    if not kept.all():
        table = table.filter(pa.array(kept))
    renumber = np.cumsum(good) - 1
    chunk = _Chunk(
        log=log,
        run=renumber[run.of_row[kept]],
        ids=ids[good],
        group=of_rows.group[row_of_run[good]],
        groups=of_rows.groups,
        table=table,
    )
    return pa.concat_tables([*tables, *chunk.counts()])


@dataclass(frozen=True, slots=True)
class _Runs:
    """The rows of runs/ as arrays, by run_id."""

    ids: Ints
    n_steps: Ints
    world: Ints
    world_words: tuple[str, ...]
    late: Flags  # no run of a campaign: counted behind all of those
    group: Ints  # its world, profile and phase
    groups: tuple[tuple[str, str, str], ...]
    left_out: Flags

    @classmethod
    def of(cls, runs: pa.Table, left_out: Flags) -> "_Runs":
        order = np.argsort(numbers(runs["run_id"]), kind="stable")
        columns = {name: codes(runs[name]) for name in ("world", "profile", "phase")}
        (world, worlds), (profile, profiles), (phase, phases) = columns.values()
        combined = (world * max(1, len(profiles)) + profile) * max(1, len(phases)) + phase
        found, group = np.unique(combined, return_inverse=True)
        names = [
            (worlds[c // len(phases) // len(profiles)], profiles[c // len(phases) % len(profiles)], phases[c % len(phases)])
            for c in found.tolist()
        ]
        campaign = np.isin(phase, [n for n, name in enumerate(phases) if name in (PHASE_GENERATE, PHASE_GUIDED)])
        return cls(
            numbers(runs["run_id"])[order],
            numbers(runs["n_steps"])[order].astype(np.int64),
            world[order],
            worlds,
            ~campaign[order],
            group[order],
            tuple(names),
            left_out[order],
        )

    def known(self, ids: Ints) -> tuple[Ints, Ints]:
        """The runs, and the row of each; -1 for those without."""
        if not len(self.ids):
            return ids, np.full(len(ids), -1)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return ids, np.where(self.ids[at] == ids, at, -1)


def _of(values: npt.NDArray[Any], row_of_run: Ints, missing: object) -> npt.NDArray[Any]:
    """The value of each run's row; `missing` for those without a row."""
    found = np.full(len(row_of_run), missing, values.dtype)
    has_row = row_of_run >= 0
    found[has_row] = values[row_of_run[has_row]]
    return found


@dataclass(frozen=True, slots=True)
class _Numbered:
    of_row: Ints  # number of the row's run
    ids: Ints  # run_id of each number
    begin: Ints  # its first row


def _numbered(run_id: Ints, step: npt.NDArray[Any], runs: _Runs) -> tuple[_Numbered, Ints | None]:
    """Number the runs in their order. Returns the numbers of the rows in the order of runs and steps, and this order.

    The order is None if the rows have it already, as the recorder writes them.
    """
    begins = np.flatnonzero(np.concatenate(([True], run_id[1:] != run_id[:-1])))
    ids, piece = np.unique(run_id[begins], return_inverse=True)
    _, row = runs.known(ids)
    late = _of(runs.late, row, True)
    by_order = np.lexsort((ids, ordinal(ids), late))
    place = np.empty(len(ids), np.int64)
    place[by_order] = np.arange(len(ids))
    of_row = np.repeat(place[piece], np.diff(np.append(begins, len(run_id))))
    order = None
    if not (np.diff(of_row) >= 0).all() or not (np.diff(step.astype(np.int64))[np.diff(of_row) == 0] >= 0).all():
        order = np.lexsort((step, of_row))
        of_row = of_row[order]
    begin = np.searchsorted(of_row, np.arange(len(ids)))
    return _Numbered(of_row, ids[by_order], begin), order


def _run_rows(
    log: int, ids: Ints, count: Ints, reason: npt.NDArray[Any], skipped: Flags, names: Sequence[str], file_of_run: Ints
) -> pa.Table:
    kept = ~skipped
    files = pa.DictionaryArray.from_arrays(pa.array(file_of_run[kept], pa.int32()), pa.array(names)).cast(pa.string())
    columns = {"first_run": ids[kept], "n": count[kept], "reason": pa.array(reason[kept], pa.string()), "source": files}
    return rows(RUN, log, int(kept.sum()), columns)


def _lost_rows(log: int, names: Sequence[str], file_of_row: Ints) -> pa.Table:
    files, n = np.unique(file_of_row, return_counts=True)
    columns = {"source": [names[f] for f in files.tolist()], "n": n}
    return rows(DAMAGE, log, len(files), columns | {"reason": [NO_NUMBER] * len(files), "example": [""] * len(files)})


@dataclass(frozen=True, slots=True)
class _Grouped:
    """One entry for each (key, group) that occurs."""

    key: Ints
    group: Ints
    n: Ints  # rows
    n_runs: Ints
    first: Ints  # the first row of the first run


def _grouped(key: Ints, run: Ints, group_of_run: Ints, n_groups: int) -> _Grouped:
    """Count rows and runs by key. Rows are in the order of their runs and, within a run, of their steps."""
    if not len(key):
        return _Grouped(key, key, key, key, key)
    # A stable sort of 16 bits is a radix sort.
    by_key = np.argsort(key.astype(np.uint16) if key.max() < 1 << 16 else key, kind="stable")
    keys, run_of = key[by_key], run[by_key]
    new = np.flatnonzero(np.concatenate(([True], (keys[1:] != keys[:-1]) | (run_of[1:] != run_of[:-1]))))
    times = np.diff(np.append(new, len(keys)))
    combined, first, inverse, n_runs = np.unique(
        keys[new] * n_groups + group_of_run[run_of[new]], return_index=True, return_inverse=True, return_counts=True
    )
    n = np.bincount(inverse, weights=times).astype(np.int64)
    return _Grouped(combined // n_groups, combined % n_groups, n, n_runs, by_key[new[first]])


def _dense(key: Ints) -> tuple[Ints, Ints]:
    """Number the values that occur. Returns: the numbers, and the value of each number."""
    if not len(key):
        return key, key
    top = int(key.max()) + 1
    if top > max(1 << 20, 4 * len(key)) or key.min() < 0:
        found, number = np.unique(key, return_inverse=True)
        return number, found
    found = np.flatnonzero(np.bincount(key, minlength=top))
    number = np.empty(top, np.int64)
    number[found] = np.arange(len(found))
    return number[key], found


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Good rows, in the order of their runs and steps."""

    log: int
    run: Ints  # number of the row's run
    ids: Ints  # run_id of each run
    group: Ints  # of each run
    groups: tuple[tuple[str, str, str], ...]
    table: pa.Table

    def counts(self) -> Iterator[pa.Table]:
        actor, actors = codes(self.table["actor"])
        from_state, from_states = codes(self.table["from_state"])
        event, events = codes(self.table["event"])
        to_state, to_states = codes(self.table["to_state"])
        own = self._of_the_model()
        packed = ((actor * len(from_states) + from_state) * len(events) + event) * len(to_states) + to_state
        step, found = _dense(packed)
        names = [
            (
                actors[p // len(to_states) // len(events) // len(from_states)],
                from_states[p // len(to_states) // len(events) % len(from_states)],
                events[p // len(to_states) % len(events)],
                to_states[p % len(to_states)],
            )
            for p in found.tolist()
        ]
        yield self._transitions(TRANSITION, step, names, own)
        if len(own) < len(step):
            others = np.setdiff1d(np.arange(len(step)), own)
            yield self._transitions(CASE, step, names, others)
        yield self._pairs(step, names, actor, own)
        yield self._clauses()
        yield self._splits(actor, actors, event, events, own)
        yield from self._faults(actor, actors, from_state, from_states, own)

    def _of_the_model(self) -> Ints:
        """The rows that a machine of the model made: all but those of Hypothesis, whose events are what its lines say."""
        phase = np.array([phase != PHASE_HYPOTHESIS for _, _, phase in self.groups])
        return np.flatnonzero(phase[self.group[self.run]])

    def _table(self, kind: str, found: _Grouped, **columns: Sequence[str] | Sequence[int]) -> pa.Table:
        """The rows of a kind. A column has a name for each key."""
        world, profile, phase = (
            zip(*(self.groups[g] for g in found.group.tolist()), strict=True) if len(found.key) else ((),) * 3
        )
        named = {name: [values[k] for k in found.key.tolist()] for name, values in columns.items()}
        fixed = {"world": world, "profile": profile, "phase": phase, "n": found.n, "n_runs": found.n_runs}
        return rows(kind, self.log, len(found.key), fixed | named)

    def _transitions(self, kind: str, step: Ints, names: Sequence[tuple[str, str, str, str]], own: Ints) -> pa.Table:
        run = self.run[own]
        found = _grouped(step[own], run, self.group, len(self.groups))
        actor, from_state, event, to_state = zip(*names, strict=True)
        table = self._table(kind, found, actor=actor, from_state=from_state, event=event, to_state=to_state)
        first = {"first_run": self.ids[run[found.first]], "first_step": numbers(self.table["step"])[own[found.first]]}
        for name, values in first.items():
            at = COUNTS.get_field_index(name)
            table = table.set_column(at, COUNTS.field(at), pa.array(values, COUNTS.field(at).type))
        return table

    def _pairs(self, step: Ints, names: Sequence[tuple[str, str, str, str]], actor: Ints, own: Ints) -> pa.Table:
        """Each transition of an instance of a machine with the one before it, if it begins where that ended.

        A machine that begins anew without a row, as a group transfer does when its master restarts, makes no pair.
        """
        instance, _ = _dense(numbers(self.table["instance"])[own].astype(np.int64))
        unit = (self.run[own] * (int(actor.max()) + 1) + actor[own]) * (int(instance.max(initial=0)) + 1) + instance
        by_unit = np.argsort(unit, kind="stable")
        # meets[a, b]: transition b begins in the state in which a ends.
        meets = np.array([one[3] for one in names])[:, None] == np.array([one[1] for one in names])
        follows = unit[by_unit[1:]] == unit[by_unit[:-1]]
        follows &= meets[step[own[by_unit[:-1]]], step[own[by_unit[1:]]]]
        before, after = own[by_unit[:-1][follows]], own[by_unit[1:][follows]]
        in_order = np.argsort(after, kind="stable")
        before, after = before[in_order], after[in_order]
        key, packed = _dense(step[before] * len(names) + step[after])
        found = _grouped(key, self.run[after], self.group, len(self.groups))
        pairs = [(*names[p // len(names)], *names[p % len(names)][2:]) for p in packed.tolist()]
        labels = ("actor", "from_state", "event", "to_state", "next_event", "next_state")
        columns = zip(*pairs, strict=True) if pairs else ((),) * len(labels)
        return self._table(PAIR, found, **dict(zip(labels, columns, strict=True)))

    def _clauses(self) -> pa.Table:
        column = self.table["clauses"].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        lengths = np.diff(np.asarray(column.offsets))
        code, words = codes(column.flatten())
        found = _grouped(code, np.repeat(self.run, lengths), self.group, len(self.groups))
        return self._table(CLAUSE, found, clause=words)

    def _splits(self, actor: Ints, actors: Sequence[str], event: Ints, events: Sequence[str], own: Ints) -> pa.Table:
        moved = own[numbers(self.table["fragment_len"])[own] > 0]
        units = [fragmentation.unit(name) for name in events]
        place = fragmentation.places_of(numbers(self.table["split_at"])[moved].astype(np.int64), units, event[moved])
        place, found_places = _dense(place)
        key, packed = _dense((actor[moved] * len(events) + event[moved]) * len(found_places) + place)
        found = _grouped(key, self.run[moved], self.group, len(self.groups))
        n = max(1, len(found_places))
        kinds = [(p // n // len(events), p // n % len(events), int(found_places[p % n])) for p in packed.tolist()]
        return self._table(
            SPLIT,
            found,
            actor=[actors[a] for a, _, _ in kinds],
            event=[events[e] for _, e, _ in kinds],
            unit=[units[e] for _, e, _ in kinds],
            place=[place for _, _, place in kinds],
        )

    def _faults(
        self, actor: Ints, actors: Sequence[str], from_state: Ints, from_states: Sequence[str], own: Ints
    ) -> Iterator[pa.Table]:
        fault, faults = codes(self.table["fault"])
        none = faults.index(NO_FAULT) if NO_FAULT in faults else -1
        hit = own[fault[own] != none]
        run, op_index = self.run[hit], numbers(self.table["op_index"])[hit]
        found = _grouped(fault[hit], run, self.group, len(self.groups))
        # One operation may have several rows.
        triples = np.lexsort((op_index, run, fault[hit]))
        parts = [column[triples] for column in (fault[hit], run, op_index)]
        new = np.logical_or.reduce([part[1:] != part[:-1] for part in parts])
        once = np.sort(triples[np.concatenate(([True], new))[: len(hit)]])
        ops = _grouped(fault[hit[once]], run[once], self.group, len(self.groups))
        assert np.array_equal(ops.key, found.key) and np.array_equal(ops.group, found.group)
        table = self._table(FAULT, ops, fault=faults)
        at = COUNTS.get_field_index("n_steps")
        yield table.set_column(at, COUNTS.field(at), pa.array(found.n, pa.int64()))
        key, packed = _dense((actor[hit] * len(from_states) + from_state[hit]) * len(faults) + fault[hit])
        both = _grouped(key, run, self.group, len(self.groups))
        yield self._table(
            STATE_FAULT,
            both,
            actor=[actors[p // len(faults) // len(from_states)] for p in packed.tolist()],
            from_state=[from_states[p // len(faults) % len(from_states)] for p in packed.tolist()],
            fault=[faults[p % len(faults)] for p in packed.tolist()],
        )
