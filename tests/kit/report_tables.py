"""The tables of a report, written by hand: no two figures are equal, so that an exchange of two shows."""

from typing import Any, Final

import pyarrow as pa

from rocketmq_ha.analysis.schema import Machine, Possible

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
        "integrity": [{"events": 7001, "runs": 71, "runs_without_row": 0, "runs_short": 0, "runs_repeated": 0}],
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
    }


def summary(profile: str, phase: str, verdict: str, runs: int, steps: int, nbytes: int, messages: int) -> dict[str, Any]:
    figures = {"runs": runs, "steps": steps, "nbytes": nbytes, "messages": messages}
    return {"profile": profile, "phase": phase, "verdict": verdict} | figures


def failure(
    verdict: str, signature: str, n: int, smallest: int, n_ops: int, failing: int, profile: str, detail: str, replay: str
) -> dict[str, Any]:
    figures = {"n": n, "smallest_run": smallest, "n_ops": n_ops, "failing_op": failing}
    return {"verdict": verdict, "signature": signature} | figures | {"profile": profile, "detail": detail, "replay": replay}


def growth(profile: str, runs: int, transitions: int) -> dict[str, Any]:
    return {"profile": profile, "runs": runs, "transitions": transitions}


def estimate(profile: str, m: int, count: int, q1: int, q2: int, unseen: float, chao2: float | None) -> dict[str, Any]:
    figures = {"m": m, "seen": count, "q1": q1, "q2": q2}
    return {"profile": profile} | figures | {"unseen_probability": unseen, "chao2": chao2}


def arrow(rows: dict[str, Rows]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pylist(some) for name, some in rows.items()}
