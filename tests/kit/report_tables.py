"""The tables of a report, written by hand: no two figures are equal, so that an exchange of two shows."""

from typing import Any, Final

import pyarrow as pa

from rocketmq_ha.analysis.schema import Elsewhere, Machine, Possible

Rows = list[dict[str, Any]]

POSSIBLE: Final = Possible(
    machines={
        "store": Machine(
            states=("open", "empty"),
            events=("recover", "put"),
            transitions=(
                ("empty", "put", "open", ("classic", "hardened")),
                ("open", "put", "open", ("classic", "hardened", "third")),
                ("open", "recover", "empty", ("classic",)),
            ),
        ),
        "link": Machine(states=("up",), events=("cut",), transitions=(("up", "cut", "up", ("classic",)),)),
    },
    clauses={"HA-S-4": "Four.", "HA-S-14": "Fourteen.", "HA-M-2": "Two of `M`.", "HA-G-1": "*One*."},
    worlds_of={"HA-M-2": ("link", "store")},
    elsewhere={
        "HA-R-2": Elsewhere("Nowhere.", (), "it is late"),
        "HA-R-1": Elsewhere("Elsewhere.", ("tests/a.py", "tests/b.py"), ""),
    },
)


def transition(profile: str, actor: str, from_state: str, event: str, to_state: str, **figures: Any) -> dict[str, Any]:
    named = {"profile": profile, "actor": actor, "from_state": from_state, "event": event, "to_state": to_state}
    return named | figures


def seen(profile: str, actor: str, names: str, n: int, n_runs: int, first_run: int, first_step: int) -> dict[str, Any]:
    figures = {"n": n, "n_runs": n_runs, "first_run": first_run, "first_step": first_step}
    return transition(profile, actor, *names.split(), **figures)


IMPOSSIBLE: Final = seen("hardened", "store", "empty recover gone", 1, 1, 601, 602)


def cell(actor: str, from_state: str, event: str, n: int, n_seen: int, n_possible: int, status: str) -> dict[str, Any]:
    figures = {"n": n, "n_seen": n_seen, "n_possible": n_possible, "status": status}
    return {"actor": actor, "from_state": from_state, "event": event} | figures


def split(actor: str, event: str, unit: str, place: int, bucket: str, part: str, n: int, n_runs: int) -> dict[str, Any]:
    placed = {"place": place, "bucket": bucket, "part": part}
    return {"actor": actor, "event": event, "unit": unit} | placed | {"n": n, "n_runs": n_runs}


def tables() -> dict[str, Rows]:
    """The rows of each table of a report in which something has failed."""
    return {
        "integrity": [
            {"events": 7001, "runs": 71, "runs_without_row": 0, "runs_short": 0, "runs_repeated": 0, "runs_missing": 0}
        ],
        "summary": [
            summary("classic", "generate", "divergence", 3, 301, 3072, 31),
            summary("classic", "generate", "ok", 40, 4001, 50_001, 41),
            summary("hardened", "replay", "ok", 27, 2600, 60_001, 29),
            summary("hardened", "generate", "error", 1, 99, 1023, 7),
        ],
        "run_sizes": [{"runs": 71, "median_steps": 98.5, "median_ops": 61.0, "max_steps": 300}],
        "divergences": [
            failure("divergence", "b/x/y", 2, 55, 17, 16, "classic", "two of it", "replay 55"),
            failure("divergence", "a/x/y", 1, 56, 18, 13, "hardened", "one of a", "replay 56"),
            failure("error", "c/x/y", 1, 57, 19, 12, "classic", "one of c", "replay 57"),
        ],
        "transitions_seen": [
            seen("classic", "store", "empty put open", 900, 43, 501, 502),
            seen("hardened", "store", "empty put open", 800, 28, 503, 504),
            seen("classic", "store", "open put open", 1, 1, 505, 506),
            IMPOSSIBLE,
        ],
        "transitions_never_seen": [
            transition("classic", "link", "up", "cut", "up"),
            transition("hardened", "store", "open", "put", "open"),
            transition("third", "store", "open", "put", "open"),
            transition("classic", "store", "open", "recover", "empty"),
        ],
        "transitions_impossible": [IMPOSSIBLE],
        "matrix": [
            cell("link", "up", "cut", 0, 0, 1, "never"),
            cell("store", "empty", "put", 1700, 2, 2, "seen"),
            cell("store", "empty", "recover", 12_345, 0, 0, "impossible"),
            cell("store", "open", "put", 11, 1, 3, "partly"),
            cell("store", "open", "recover", 0, 0, 1, "never"),
        ],
        "clauses": [
            {"clause": "HA-G-1", "sentence": "*One*.", "n": 0, "n_runs": 0},
            {"clause": "HA-M-2", "sentence": "Two of `M`.", "n": 21, "n_runs": 6},
            {"clause": "HA-S-14", "sentence": "Fourteen.", "n": 22, "n_runs": 8},
            {"clause": "HA-S-4", "sentence": "Four.", "n": 23, "n_runs": 9},
            {"clause": "HA-X-1", "sentence": "", "n": 24, "n_runs": 10},
        ],
        "fragmentation": [
            split("master", "reports", "report", 1, "1", "report", 0, 0),
            split("master", "reports", "report", 2, "2", "report", 1500, 33),
            split("slave", "frames", "frame", 1, "1", "header", 4, 2),
            split("slave", "frames", "frame", 12, "12", "after header", 6, 3),
            split("slave", "frames", "frame", 13, "body 1-3", "body", 0, 0),
        ],
        "never_split": [
            {"actor": "master", "event": "reports", "unit": "report", "n_never": 1, "never": [1]},
            {"actor": "slave", "event": "frames", "unit": "frame", "n_never": 0, "never": []},
        ],
        "growth": [
            growth("classic", 1, 4),
            growth("classic", 5, 5),
            growth("classic", 1030, 9),
            growth("classic", 2043, 9),
            growth("hardened", 2, 3),
        ],
        "estimates": [
            estimate("all", 70, 60, 5, 0, 0.0714, 65.5),
            estimate("classic", 43, 40, 4, 2, 0.093, 44.25),
            estimate("hardened", 27, 20, 1, 3, 0.037, None),
        ],
        "faults": [{"fault": "cut_both", "n": 1234, "n_runs": 35, "n_steps": 5678}],
        "failing_steps": [
            *(step(55, at, clauses=["HA-M-2"]) for at in range(31)),
            step(
                55, 31, clauses=["HA-M-2", "HA-X-1"], verdict="divergence", instance=4, offset=77, split_at=6, fault="cut_both"
            ),
            step(57, 9, event="recover", fragment_len=8, nbytes=80),
        ],
    }


def more_tables() -> dict[str, Rows]:
    """The rows of the tables that need not be there: two worlds, and an older campaign."""
    return {
        "lost_coverage": [
            lost("transition", "classic", "", "link up cut up", 40, 100, 71, 1e-9, 10, "lost"),
            lost("clause", "", "store", "HA-S-4", 7, 101, 72, 0.005, 64, "lost"),
            lost("pair", "hardened", "", "store open put open put open", 1, 102, 73, 0.48, 468, "too few runs to tell"),
        ],
        "failures_compared": [
            compared("new", "error", "c/x/y", 0, 1, "replay 57"),
            compared("new", "divergence", "zz/x/y", 0, 5, ""),
            compared("still", "divergence", "b/x/y", 6, 2, "replay 55"),
            compared("gone", "invariant", "d/x/y", 3, 0, "replay 3"),
        ],
        "new_coverage": [
            gained("clause", "", "link", "HA-M-2", 6, 74),
            gained("pair", "classic", "", "store empty put open put open", 8, 75),
            gained("transition", "hardened", "", "store empty put open", 9, 76),
        ],
        "rates": [
            {"measure": "runs", "before": 100.0, "now": 71.0, "ratio": 0.71},
            {"measure": "failures_per_million_steps", "before": 0.0, "now": 571.4, "ratio": None},
        ],
        "starved": [
            transition("classic", "store", "open", "put", "open")
            | {"n": 1, "n_runs": 2, "m": 43, "miss_probability": 0.1293, "runs_needed": 97},
        ],
        "pairs_by_machine": [
            {"profile": "classic", "actor": "store", "n_possible": 19, "n_seen": 12, "n_never": 7, "n_impossible": 0},
            {"profile": "hardened", "actor": "store", "n_possible": 11, "n_seen": 3, "n_never": 8, "n_impossible": 4},
        ],
        "clauses_by_world": [
            {"clause": "HA-M-2", "world": "link", "n": 20, "n_runs": 5, "is_expected": True},
            {"clause": "HA-M-2", "world": "store", "n": 1, "n_runs": 1, "is_expected": False},
            {"clause": "HA-G-1", "world": "store", "n": 0, "n_runs": 0, "is_expected": True},
        ],
        "clauses_held": [
            *(
                {"clause": f"c{at}", "held": kind, "tests": [], "reason": ""}
                for at, kind in enumerate(["tests", "schedule", "tests", "schedule, never"])
            ),
        ],
        "state_faults": [
            {"actor": "store", "state": "empty", "fault": "crash", "n": 0, "n_runs": 0},
            {"actor": "store", "state": "open", "fault": "crash", "n": 44, "n_runs": 4},
            {"actor": "store", "state": "open", "fault": "alarm", "n": 5555, "n_runs": 5},
            {"actor": "other", "state": "on", "fault": "crash", "n": 3, "n_runs": 3},
        ],
        "growth_by_world": [
            {"world": "link", "profile": "classic", "runs": 9, "transitions": 1},
            {"world": "store", "profile": "classic", "runs": 1, "transitions": 2},
            {"world": "store", "profile": "classic", "runs": 34, "transitions": 3},
            {"world": "store", "profile": "hardened", "runs": 28, "transitions": 1},
        ],
        "estimates_by_world": [
            {"world": "link"} | estimate("all", 9, 1, 0, 1, 0.0, 1.0),
            {"world": "store"} | estimate("all", 62, 4, 2, 0, 0.0323, None),
        ],
        "run_durations": [
            quantiles("link", "elapsed_us", 12, 999, 1500, 2000, 950_000, 61_000_000, 125_000_000),
            quantiles("store", "n_steps", 1, 2, 3, 4, 5, 6, 1234),
        ],
        "worlds": [{"world": "link", "runs": 70}, {"world": "store", "runs": 1}],
        "slowest_runs": [
            {"world": "link", "place": 1, "log": 0, "run_id": 5, "profile": "classic", "verdict": "timeout"}
            | {"elapsed_us": 125_000_000, "n_ops": 17, "n_steps": 18, "replay": "replay 5 --world link"},
        ],
        "quarantine": [
            {
                "log": 0,
                "source": "a/events/x.parquet",
                "reason": "pages that cannot be read",
                "n": None,
                "n_runs": None,
                "example": "",
            },
            {"log": 0, "source": "a/runs/y.parquet", "reason": "twice", "n": 3, "n_runs": 2, "example": "run 17"},
        ],
        "trend": [
            campaign("monday", 100, 9000, 5, 2, 0, 0, 5321.5, 0),
            campaign("tuesday", 71, 7001, 3, 3, 4, 3, None, 2),
        ],
    }


def lost(
    kind: str, profile: str, world: str, name: str, n_runs: int, before: int, now: int, miss: float, needed: int, judged: str
) -> dict[str, Any]:
    named = {"kind": kind, "profile": profile, "world": world, "name": name}
    figures = {"n_runs": n_runs, "runs_before": before, "runs_now": now, "miss_probability": miss, "runs_needed": needed}
    return named | figures | {"judgement": judged}


def compared(change: str, verdict: str, signature: str, before: int, now: int, replay: str) -> dict[str, Any]:
    named = {"change": change, "verdict": verdict, "signature": signature}
    return named | {"n_before": before, "n_now": now, "replay": replay, "detail": "of it"}


def gained(kind: str, profile: str, world: str, name: str, n_runs: int, now: int) -> dict[str, Any]:
    return {"kind": kind, "profile": profile, "world": world, "name": name, "n_runs": n_runs, "runs_now": now}


def quantiles(world: str, measure: str, *values: float) -> dict[str, Any]:
    names = ("least", "q25", "median", "q75", "q95", "q99", "most")
    return {"world": world, "measure": measure, "runs": 43} | dict(zip(names, map(float, values[-7:]), strict=True))


def campaign(
    name: str,
    runs: int,
    steps: int,
    transitions: int,
    clauses: int,
    failed: int,
    signatures: int,
    speed: float | None,
    bad: int,
) -> dict[str, Any]:
    figures = {"runs": runs, "steps": steps, "transitions": transitions, "clauses": clauses, "failed_runs": failed}
    return {"log": 0, "name": name} | figures | {"signatures": signatures, "steps_per_second": speed, "quarantined": bad}


def step(run_id: int, number: int, **changes: Any) -> dict[str, Any]:
    named = transition("", "store", "empty", "put", "open") | {"log": 0, "run_id": run_id}
    named |= {"step": number, "op_index": number // 2}
    moved = {"instance": 0, "offset": -1, "nbytes": 0, "fragment_len": -1, "split_at": 0, "fault": "none", "clauses": []}
    del named["profile"]
    return named | moved | {"verdict": "ok"} | changes


def summary(profile: str, phase: str, verdict: str, runs: int, steps: int, nbytes: int, messages: int) -> dict[str, Any]:
    figures = {"runs": runs, "steps": steps, "nbytes": nbytes, "messages": messages}
    return {"profile": profile, "phase": phase, "verdict": verdict} | figures


def failure(
    verdict: str, signature: str, n: int, smallest: int, n_ops: int, failing: int, profile: str, detail: str, replay: str
) -> dict[str, Any]:
    figures = {"n": n, "smallest_run": smallest, "n_ops": n_ops, "failing_op": failing}
    told = {"profile": profile, "detail": detail, "replay": replay, "log": 0}
    return {"verdict": verdict, "signature": signature} | figures | told


def growth(profile: str, runs: int, transitions: int) -> dict[str, Any]:
    return {"profile": profile, "runs": runs, "transitions": transitions}


def estimate(profile: str, m: int, count: int, q1: int, q2: int, unseen: float, chao2: float | None) -> dict[str, Any]:
    figures = {"m": m, "seen": count, "q1": q1, "q2": q2}
    return {"profile": profile} | figures | {"unseen_probability": unseen, "chao2": chao2}


def arrow(rows: dict[str, Rows]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pylist(some) for name, some in rows.items()}
