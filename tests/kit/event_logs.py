"""Builds synthetic event logs for the tests of analysis.

They are test data, not a model: random walks over four small machines with known transitions. Only the format is that of
real logs (spec/event_log.py).
"""

# ruff: noqa: C408  (rows read better as keywords)

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_ha.spec.event_log import ADDED, EVENT_COLUMNS, RUN_COLUMNS, SCHEMA_VERSION, TRANSITIONS_VERSION

Row = dict[str, Any]

ARROW_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "list<string>": pa.list_(pa.string())}
PROFILES = ("classic", "hardened")

# actor: its transitions as "from_state event to_state". h: hardened only; r: seldom walked; n: never walked.
MACHINES = {
    "master_connection": """
        await_report reports await_report       | await_report reports caught_up     | await_report reports closed h
        await_report end_of_stream closed       | caught_up transfer caught_up       | caught_up transfer frame_waiting
        caught_up transfer header_partial       | caught_up transfer body_partial    | caught_up tick heartbeat_waiting
        caught_up reports caught_up             | caught_up end_of_stream closed     | frame_waiting transfer caught_up
        frame_waiting transfer header_partial   | frame_waiting transfer body_partial
        header_partial transfer header_partial  | header_partial transfer body_partial
        header_partial transfer caught_up r     | header_partial end_of_stream closed
        body_partial transfer body_partial      | body_partial transfer caught_up    | body_partial end_of_stream closed
        heartbeat_waiting transfer caught_up    | heartbeat_waiting transfer heartbeat_partial r
        heartbeat_partial transfer caught_up    | heartbeat_partial end_of_stream closed n""",
    "slave_client": """
        disconnected connect connected          | disconnected restart disconnected  | connected frames connected
        connected frames header_partial         | connected frames body_partial      | connected frames disconnected n
        connected tick connected                | connected tick disconnected h      | connected restart disconnected r
        connected end_of_stream disconnected    | header_partial frames header_partial
        header_partial frames body_partial      | header_partial frames connected
        header_partial end_of_stream disconnected | body_partial frames body_partial | body_partial frames connected
        body_partial end_of_stream disconnected""",
    "store": """
        empty put holds_data | empty append_data holds_data | holds_data put holds_data | holds_data put file_full
        holds_data recover holds_data r         | file_full put_roll holds_data""",
    "group_transfer": """
        idle put waiting | waiting put waiting  | waiting ack idle | waiting tick idle n | waiting shutdown idle h""",
}
WEIGHTS = {"": 1.0, "r": 0.0008}
MOVES_BYTES = {"reports", "transfer", "frames"}
PHASES = {49: "replay", 7: "guided", 27: "guided"}  # of a run, by its number modulo 50
NEVER_SPLIT_AT = (4, 10)  # header positions at which no frame is split
CLAUSES = {f"HA-{part}-{number}": f"Clause {number} of {part}." for part in "WMSG" for number in range(1, 8)}
NEVER_EXERCISED = tuple(CLAUSES)[-3:]
ELSEWHERE = {
    "HA-X-1": {"sentence": "Clause 1 of X.", "tests": ["tests/net/test_x.py"], "reason": ""},
    "HA-X-2": {"sentence": "Clause 2 of X.", "tests": [], "reason": "it is a wish"},
}
# The world of the store has two of the machines, and exercises the clauses of two chapters.
WORLDS = ("link", "store")
IN_STORE = ("store", "group_transfer")
STORE_CLAUSES = ("HA-S", "HA-G")
WORLDS_OF = {clause: WORLDS if clause.startswith(STORE_CLAUSES) else WORLDS[:1] for clause in CLAUSES}


def _parsed() -> list[tuple[str, str, str, str, tuple[str, ...], str]]:
    """Return (actor, from_state, event, to_state, profiles, mark) for each transition of MACHINES."""
    rows = []
    for actor, text in MACHINES.items():
        for item in text.replace("\n", "|").split("|"):
            if words := item.split():
                from_state, event, to_state, mark = (*words, "")[:4]
                rows.append((actor, from_state, event, to_state, PROFILES[1:] if mark == "h" else PROFILES, mark))
    return rows


def transitions_document() -> Row:
    """MACHINES in the format of spec/transitions.json."""
    machines: dict[str, Row] = {
        actor: {"worlds": [*(WORLDS if actor in IN_STORE else WORLDS[:1])], "states": [], "events": [], "transitions": []}
        for actor in MACHINES
    }
    for actor, from_state, event, to_state, profiles, _ in _parsed():
        machine = machines[actor]
        machine["states"] = list(dict.fromkeys([*machine["states"], from_state, to_state]))
        machine["events"] = list(dict.fromkeys([*machine["events"], event]))
        machine["transitions"].append([from_state, event, to_state, list(profiles)])
    exercised = {clause: {"sentence": sentence, "worlds": [*WORLDS_OF[clause]]} for clause, sentence in CLAUSES.items()}
    return {"version": TRANSITIONS_VERSION, "machines": machines, "clauses": exercised, "elsewhere": ELSEWHERE}


def event_row(run_id: int, step: int, **changes: Any) -> Row:
    """A row of events/ with defaults: a test gives only the fields that it is about."""
    row: Row = dict(
        run_id=run_id, world="link", step=step, op_index=step, actor="store", instance=0, event="put", from_state="empty"
    )
    row |= dict(to_state="holds_data", offset=-1, nbytes=0, fragment_len=-1, split_at=0, fault="none", clauses=[])
    return row | dict(ts_ns=step * 1_000_000, verdict="ok") | changes


def run_row(run_id: int, **changes: Any) -> Row:
    """A row of runs/ with defaults: a test gives only the fields that it is about."""
    row: Row = dict(
        run_id=run_id, world="link", phase="generate", profile="classic", n_ops=5, n_steps=5, nbytes=100, n_messages=2
    )
    row |= dict(verdict="ok", failing_op=-1, signature="", detail="", digest=run_id, recipe="", elapsed_us=1000)
    return row | changes


def arrow(rows: Sequence[Row], columns: Sequence[tuple[str, str, str]]) -> pa.Table:
    schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind, _ in columns])
    return pa.table({name: [row[name] for row in rows] for name, _, _ in columns}, schema=schema)


def write_log(path: Path, events: Sequence[Row], runs: Sequence[Row], files: int = 1, version: int = SCHEMA_VERSION) -> Path:
    """Write a log directory of `files` partitions, each with whole runs. In version 1 all runs are in one file."""
    for folder in ("events", "runs", *(("manifest",) if version > 1 else ())):
        (path / folder).mkdir(parents=True)
    forms = [[column for column in form if version > 1 or column[0] not in ADDED] for form in (EVENT_COLUMNS, RUN_COLUMNS)]
    for number in range(files):
        name = f"part-{number:05}.parquet"
        mine, own = ([row for row in rows if row["run_id"] % files == number] for rows in (events, runs))
        pq.write_table(arrow(mine, forms[0]), path / "events" / name)
        if version > 1:
            pq.write_table(arrow(own, forms[1]), path / "runs" / name)
            manifest = dict(partition=number, events=name, runs=name, n_runs=len(own), n_steps=len(mine))
            (path / "manifest" / f"part-{number:05}.json").write_text(json.dumps(manifest), encoding="utf-8")
    if version == 1:
        pq.write_table(arrow(runs, forms[1]), path / "runs" / "runs.parquet")
    campaign = dict(schema_version=version, seed=1, runs=len(runs), profiles=PROFILES, versions={"spark": "4.3.0"})
    (path / "campaign.json").write_text(json.dumps(campaign), encoding="utf-8")
    return path


def _split(draw: random.Random, event: str) -> int:
    if event == "reports":
        return draw.choice((0, 0, draw.randrange(8)))
    header = draw.choice([at for at in range(1, 13) if at not in NEVER_SPLIT_AT])
    return draw.choice((0, header, 12 + int(draw.expovariate(1 / 60))))


def random_rows(
    seed: int, n_runs: int, mean_steps: int, *, failing: bool, worlds: Sequence[str] = WORLDS[:1]
) -> tuple[list[Row], list[Row]]:
    """Random walks over MACHINES. `failing`: some runs diverge, and the last one takes one impossible step.

    Of fifty runs one is a replay, and some are guided; both have negative numbers.
    """
    draw = random.Random(seed)
    walks: dict[tuple[str, str, str], list[tuple[str, str, float]]] = {}
    for actor, from_state, event, to_state, profiles, mark in _parsed():
        for profile in profiles if mark != "n" else ():
            walks.setdefault((profile, actor, from_state), []).append((event, to_state, WEIGHTS[mark.replace("h", "")]))
    clauses = [clause for clause in CLAUSES if clause not in NEVER_EXERCISED]
    start = {actor: text.split()[0] for actor, text in MACHINES.items()}
    events: list[Row] = []
    runs: list[Row] = []
    for index in range(n_runs):
        run_id, profile, state = seed * 1_000_000 + index, PROFILES[index % 2], dict[tuple[str, int], str]()
        world, phase = worlds[index % 3 % len(worlds)], PHASES.get(index % 50, "generate")
        run_id = run_id if phase == "generate" else -run_id - 1
        actors = tuple(MACHINES) if world == "link" else IN_STORE
        known = [clause for clause in clauses if world in WORLDS_OF[clause]]
        n_steps = max(1, round(draw.gauss(mean_steps, mean_steps / 4)))
        for step in range(n_steps):
            actor, instance = draw.choice(actors), draw.randrange(2)
            now = state.get((actor, instance), start[actor])
            now = now if (profile, actor, now) in walks else start[actor]
            possible = walks[profile, actor, now]
            event, to_state, _ = draw.choices(possible, [weight for *_, weight in possible])[0]
            row = event_row(run_id, step, world=world, op_index=step // 2, actor=actor, event=event, from_state=now)
            row |= dict(instance=instance, to_state=to_state, offset=draw.randrange(1 << 40), nbytes=draw.randrange(200))
            if event in MOVES_BYTES:
                row |= dict(fragment_len=draw.randrange(64), split_at=_split(draw, event))
            row["fault"] = draw.choices(("none", "cut", "short_write", "restart_slave"), (90, 5, 4, 1))[0]
            row["clauses"] = draw.sample(known, draw.randrange(4))
            events.append(row)
            state[actor, instance] = to_state
        run = run_row(run_id, profile=profile, n_ops=n_steps // 2 + 1, n_steps=n_steps, nbytes=draw.randrange(50_000))
        run |= dict(n_messages=draw.randrange(30), phase=phase, world=world, digest=(-1) ** index * (run_id + 7))
        run["elapsed_us"] = draw.choice((-1, draw.randrange(5000), draw.randrange(5000)))
        if failing and (index % 97 == 13 or (len(worlds) > 1 and phase == "guided" and index % 3 == 0)):
            field = draw.choice(("slave_ack_offset", "dispatch_position"))
            run |= dict(verdict="divergence", signature=f"master_connection/reports/{field}", failing_op=n_steps // 3)
            run["detail"] = f"{field}: the reference says 4096, the implementation says 4088"
        runs.append(run)
    if failing:
        events[-1] |= dict(actor="store", event="put_roll", from_state="empty", to_state="file_full", fragment_len=-1)
    return events, runs
