"""Synthetic event logs of any size: random walks over the machines of a table of possible transitions.

They have the format of real logs (spec/event_log.py) and about their proportions (84 rows a run, two clauses a row, a fault in
a fifth of the rows), but no model has made them: they are for tests of the tables and for measurements. numpy draws the runs of
one file side by side, a million rows in about three seconds.

    python -m rocketmq_ha.analysis.synthetic --rows 20000000 --out build/synthetic
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_ha.analysis.schema import Possible, load_possible
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    EVENT_COLUMNS,
    EVENTS_DIR,
    MANIFEST_DIR,
    NO_FAULT,
    PHASE_GENERATE,
    PHASE_REPLAY,
    RUN_COLUMNS,
    RUNS_DIR,
    SCHEMA_VERSION,
    VERDICT_DIVERGENCE,
    VERDICT_OK,
)

Ints = npt.NDArray[np.int64]

MEAN_STEPS: Final = 84  # of a run of a campaign in the world of the link
RUNS_PER_FILE: Final = 4000
FAULTS: Final = (NO_FAULT, "restart_slave", "cut_both", "stop_master", "clog", "cut_slave", "lose_tail", "forge_report")
FAULT_SHARES: Final = (0.79, 0.08, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01)
INSTANCES: Final = 2  # of each machine in a run
SKEW: Final = 3.0  # greater: the later transitions of a state are rarer
MOVES_BYTES: Final = ("reports", "transfer", "frames")
SIGNATURES: Final = ("slave_client/DeliverFrames/log", "master_connection/DeliverReports/slave_ack_offset")
_TYPES: Final = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "list<string>": pa.list_(pa.string())}


@dataclass(frozen=True, slots=True)
class _Table:
    """The possible transitions as arrays. A state has one number over all machines."""

    profiles: tuple[str, ...]
    worlds: tuple[str, ...]
    units: dict[str, Ints]  # world: (machine number, instance) of each machine in it
    actors: tuple[str, ...]
    states: tuple[str, ...]
    events: tuple[str, ...]
    first_state: Ints  # of each machine
    begin: Ints  # [profile, state]: its first transition in `order`
    count: Ints  # [profile, state]: how many it has
    order: Ints  # transitions
    event: Ints  # of a transition
    to_state: Ints
    clauses: tuple[str, ...]
    clause_begin: Ints  # of a transition, in clause_list
    clause_count: Ints
    clause_list: Ints


def write(
    out: Path, rows: int, *, seed: int = 1, possible: Possible | None = None, runs_per_file: int = RUNS_PER_FILE,
    mean_steps: int = MEAN_STEPS, failing: float = 0.0005, first_run: int = 0,
) -> int:  # fmt: skip
    """Write a log of version 2 of at least `rows` rows. Returns: the number of rows. The same arguments give the same log.

    failing: the share of failing runs. first_run: the first seed. Every 50th run is a replay, with a negative number.
    """
    table = _table(possible or load_possible(), np.random.default_rng(seed))
    for name in (EVENTS_DIR, RUNS_DIR, MANIFEST_DIR):
        (out / name).mkdir(parents=True, exist_ok=True)
    written = number = 0
    while written < rows:
        runs_left = max(1, round((rows - written) / mean_steps * 1.02))
        n_runs = min(runs_per_file, runs_left)
        rng = np.random.default_rng((seed, number))
        events, runs = _file(rng, table, first_run, n_runs, mean_steps, failing)
        name = f"part-{number:06}"
        for folder, content in ((EVENTS_DIR, events), (RUNS_DIR, runs)):
            # Without Arrow's own schema a column of a dictionary is a plain column of strings, as the recorder writes it.
            pq.write_table(content, out / folder / f"{name}.parquet", compression="zstd", store_schema=False)
        manifest = {"partition": number, "events": f"{name}.parquet", "runs": f"{name}.parquet", "n_runs": n_runs}
        manifest |= {"n_steps": events.num_rows, "n_failed": 0, "first_run": first_run, "last_run": first_run + n_runs - 1}
        text = json.dumps(manifest | {"seconds": 1.0})
        (out / MANIFEST_DIR / f"{name}.json").write_text(text, encoding="utf-8")
        written, number, first_run = written + events.num_rows, number + 1, first_run + n_runs
    campaign = {"schema_version": SCHEMA_VERSION, "seed": seed, "runs": first_run, "versions": {"synthetic": "1"}}
    (out / CAMPAIGN_FILE).write_text(json.dumps(campaign), encoding="utf-8")
    return written


def _table(possible: Possible, rng: np.random.Generator) -> _Table:
    machines = possible.machines
    actors = tuple(machines)
    state_of = {key: n for n, key in enumerate((a, s) for a in actors for s in machines[a].states)}
    events = tuple(dict.fromkeys(event for a in actors for event in machines[a].events))
    profiles = tuple(sorted({p for m in machines.values() for *_, ps in m.transitions for p in ps}))
    worlds = tuple(dict.fromkeys(world for m in machines.values() for world in m.worlds)) or ("link",)
    units = {
        world: np.array(
            [(n, i) for n, a in enumerate(actors) if world in (machines[a].worlds or worlds) for i in range(INSTANCES)]
        )
        for world in worlds
    }
    flat = [(a, f, e, t, ps) for a in actors for f, e, t, ps in machines[a].transitions]
    rng.shuffle(flat)  # which ones are rare
    begin, count = np.zeros((len(profiles), len(state_of)), np.int64), np.zeros((len(profiles), len(state_of)), np.int64)
    order: list[int] = []
    for p, profile in enumerate(profiles):
        for (actor, state), s in state_of.items():
            mine = [n for n, (a, f, _, _, ps) in enumerate(flat) if (a, f) == (actor, state) and profile in ps]
            begin[p, s], count[p, s] = len(order), len(mine)
            order += mine
    clauses = tuple(possible.clauses)
    per = [rng.choice(len(clauses), min(len(clauses), int(k)), replace=False) for k in rng.integers(0, 5, len(flat))]
    return _Table(
        profiles=profiles,
        worlds=worlds,
        units=units,
        actors=actors,
        states=tuple(state for _, state in state_of),
        events=events,
        first_state=np.array([state_of[a, machines[a].states[0]] for a in actors]),
        begin=begin,
        count=count,
        order=np.array(order),
        event=np.array([events.index(e) for _, _, e, _, _ in flat]),
        to_state=np.array([state_of[a, t] for a, _, _, t, _ in flat]),
        clauses=clauses,
        clause_begin=np.cumsum([0, *(len(one) for one in per[:-1])]),
        clause_count=np.array([len(one) for one in per]),
        clause_list=np.concatenate(per),
    )


def _file(
    rng: np.random.Generator, table: _Table, first_run: int, n_runs: int, mean_steps: int, failing: float
) -> tuple[pa.Table, pa.Table]:
    """The events and the runs of one file."""
    number = first_run + np.arange(n_runs)
    replay = number % 50 == 49
    run_id = np.where(replay, -number - 1, number)
    world = rng.integers(0, len(table.worlds), n_runs)
    profile = rng.integers(0, len(table.profiles), n_runs)
    length = np.maximum(1, rng.normal(mean_steps, mean_steps / 4, n_runs).round().astype(np.int64))
    columns = {name: np.zeros((n_runs, int(length.max())), np.int64) for name in ("actor", "instance", "from", "take")}
    for w, name in enumerate(table.worlds):
        mine = np.flatnonzero(world == w)
        _walk(rng, table, table.units[name], mine, profile[mine], int(length.max()), columns)
    kept = np.arange(int(length.max())) < length[:, None]
    actor, instance, from_state, take = (columns[name][kept] for name in ("actor", "instance", "from", "take"))
    rows = len(actor)
    step = np.broadcast_to(np.arange(int(length.max())), kept.shape)[kept]
    row_run = np.repeat(np.arange(n_runs), length)
    event = table.event[take]
    moves = np.isin(event, [n for n, name in enumerate(table.events) if name in MOVES_BYTES])
    split = np.where(rng.random(rows) < 0.6, 0, np.minimum(rng.geometric(0.08, rows), 300))
    split = np.where(np.array(table.events)[event] == "reports", split % 8, split)
    failed = rng.random(n_runs) < failing
    verdict = np.where(failed[row_run] & (step == length[row_run] - 1), 1, 0)
    # All rows of an operation have its fault.
    op_index = step // 2
    fault = rng.choice(len(FAULTS), size=(n_runs, int(length.max()) // 2 + 1), p=FAULT_SHARES)[row_run, op_index]
    events: dict[str, Any] = {
        "run_id": run_id[row_run],
        "world": _words(world[row_run], table.worlds),
        "step": step,
        "op_index": op_index,
        "actor": _words(actor, table.actors),
        "instance": instance,
        "event": _words(event, table.events),
        "from_state": _words(from_state, table.states),
        "to_state": _words(table.to_state[take], table.states),
        "offset": np.where(moves, rng.integers(0, 1 << 20, rows), -1),
        "nbytes": np.where(moves, rng.integers(0, 500, rows), 0),
        "fragment_len": np.where(moves, rng.integers(0, 64, rows), -1),
        "split_at": np.where(moves, split, 0),
        "fault": _words(fault, FAULTS),
        "clauses": _clauses(table, take),
        "ts_ns": step * 1_000_000,
        "verdict": _words(verdict, (VERDICT_OK, VERDICT_DIVERGENCE)),
    }
    signature = rng.integers(0, len(SIGNATURES), n_runs)
    runs: dict[str, Any] = {
        "run_id": run_id,
        "world": _words(world, table.worlds),
        "phase": _words(replay.astype(np.int64), (PHASE_GENERATE, PHASE_REPLAY)),
        "profile": _words(profile, table.profiles),
        "n_ops": length // 2 + 1,
        "n_steps": length,
        "nbytes": rng.integers(0, 50_000, n_runs),
        "n_messages": rng.integers(0, 30, n_runs),
        "verdict": _words(failed.astype(np.int64), (VERDICT_OK, VERDICT_DIVERGENCE)),
        "failing_op": np.where(failed, length // 3, -1),
        "signature": [SIGNATURES[n] if bad else "" for n, bad in zip(signature, failed, strict=True)],
        "detail": ["the reference has 4096, the implementation 4088" if bad else "" for bad in failed],
        "digest": rng.integers(-(1 << 62), 1 << 62, n_runs),
        "recipe": pa.repeat("", n_runs),
        "elapsed_us": (length * rng.integers(40, 70, n_runs)).astype(np.int64),
    }
    return _arrow(events, EVENT_COLUMNS), _arrow(runs, RUN_COLUMNS)


def _walk(
    rng: np.random.Generator, table: _Table, units: Ints, mine: Ints, profile: Ints, steps: int, columns: dict[str, Ints]
) -> None:
    """Draw the steps of the runs `mine`, one step of all of them at a time. A machine that has ended begins anew."""
    at = np.arange(len(mine))
    state = np.broadcast_to(table.first_state[units[:, 0]], (len(mine), len(units))).copy()
    begun = np.broadcast_to(units[:, 1], state.shape).copy()
    for step in range(steps):
        unit = rng.integers(0, len(units), len(mine))
        now = state[at, unit]
        ended = table.count[profile, now] == 0
        begun[at, unit] += np.where(ended, INSTANCES, 0)
        now = np.where(ended, table.first_state[units[unit, 0]], now)
        count = table.count[profile, now]
        nth = np.minimum((count * rng.random(len(mine)) ** SKEW).astype(np.int64), count - 1)
        take = table.order[table.begin[profile, now] + nth]
        columns["actor"][mine, step], columns["instance"][mine, step] = units[unit, 0], begun[at, unit]
        columns["from"][mine, step], columns["take"][mine, step] = now, take
        state[at, unit] = table.to_state[take]


def _clauses(table: _Table, take: Ints) -> pa.Array:
    count = table.clause_count[take]
    ends = np.cumsum(count)
    at = np.repeat(table.clause_begin[take] - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pa.ListArray.from_arrays(offsets, _words(table.clause_list[at], table.clauses))


def _words(codes: npt.NDArray[Any], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words))


def _arrow(columns: dict[str, Any], form: tuple[tuple[str, str, str], ...]) -> pa.Table:
    arrays, fields = [], []
    for name, kind, _ in form:
        value = columns[name]
        if not isinstance(value, pa.Array):
            value = pa.array(value, _TYPES[kind])
        arrays.append(value)
        fields.append(pa.field(name, value.type, nullable=False))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def main() -> int:
    parser = argparse.ArgumentParser(prog="synthetic", description="Write a synthetic event log.")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = write(options.out, options.rows, seed=options.seed)
    sys.stdout.write(f"log={options.out} rows={rows}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
