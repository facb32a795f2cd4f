"""Faults planted in the logs of the other worlds: each is found by the rule that it is about, in the run that it is in."""

from collections.abc import Callable

import pytest

from kit import second_verdicts
from kit.second_verdicts import MemoryLog, Row
from rocketmq_ha.fuzz.second_verdict.rules_worlds import OF_WORLDS

FIRST, LAST = 1, 40
Change = Callable[[MemoryLog], int]  # returns the run


def at(actor: str, event: str, column: str, by: int, **where: str) -> Change:
    """Add to a number in a row of a machine's event: in the first one that is not among the first rows of its run."""

    def change(log: MemoryLog) -> int:
        row = log.find(lambda row: _is(row, actor, event, where))
        row[column] += by
        return int(row["run_id"])

    return change


def _is(row: Row, actor: str, event: str, where: dict[str, str]) -> bool:
    is_of = (row["actor"], row["event"]) == (actor, event) and row["step"] > 8
    return is_of and all(row[name] == value for name, value in where.items())


def behind_a_forged_report(log: MemoryLog) -> int:
    """A report of an earlier run is far beyond any log. It covers nothing of this run."""
    far = log.find(lambda row: _is(row, "replica_connection", "report", {}))
    far["offset"] = 1 << 50
    row = log.find(lambda row: row["run_id"] > far["run_id"] and _is(row, "group_transfer", "ack", {}))
    row["offset"] += 100_000
    return int(row["run_id"])


def flushed_too_little(log: MemoryLog) -> int:
    """In hardened: classic ends such a put with PUT_OK whatever the flush did (HA-G-46)."""
    hardened = {run["run_id"] for run in log.runs if run["profile"] == "hardened"}
    put = log.find(lambda row: row["run_id"] in hardened and _is(row, "put", "flush", {"to_state": "put_ok"}))
    mine = log.of(put["run_id"])
    flush = next(row for row in mine if row["op_index"] == put["op_index"] and row["actor"] == "group_commit")
    flush["offset"] = put["offset"] - 1
    return int(put["run_id"])


def no_dispatch(log: MemoryLog) -> int:
    entry = log.find(lambda row: (row["actor"], row["event"]) == ("consume_queue", "append"))
    row = next(row for row in log.of(entry["run_id"]) if row["op_index"] == entry["op_index"] and row["actor"] == "store_life")
    row["event"] = "flush"
    return int(row["run_id"])


def no_hold(log: MemoryLog) -> int:
    row = log.find(lambda row: (row["actor"], row["event"], row["to_state"]) == ("hold", "park", "holding"))
    row["to_state"] = "empty"
    return int(row["run_id"])


def too_early(log: MemoryLog) -> int:
    """A registration comes again 999 ms after the failure."""
    row = log.find(lambda row: row["from_state"] == "later" and row["event"] == "tick" and "HA-R-58" in row["clauses"])
    mine = log.of(row["run_id"])
    failure = [
        one for one in mine if one["event"] == "failure" and one["instance"] == row["instance"] and one["step"] < row["step"]
    ]
    for one in mine:
        if one["op_index"] == row["op_index"]:
            one["ts_ns"] = failure[-1]["ts_ns"] + 999_000_000
    return int(row["run_id"])


FAULTS: dict[str, tuple[Change, ...]] = {
    "a_stored_put_moves_the_end": (
        at("store_life", "put", "nbytes", 1),
        at("store_life", "put_roll", "nbytes", -8),
        at("store_life", "put_batch", "offset", -1),
    ),
    "the_end_stays": (at("store_life", "flush", "offset", 1), at("store_life", "put_refused", "nbytes", 100)),
    "entries_come_by_a_dispatch": (no_dispatch,),
    "push2_was_acknowledged": (
        at("group_transfer", "ack", "offset", 100_000),
        at("replicas", "report", "offset", 100_000),
        behind_a_forged_report,
    ),
    "a_put_ok_is_acknowledged": (at("put", "ack", "offset", 100_000, to_state="put_ok"),),
    "a_put_ok_is_flushed": (flushed_too_little,),
    "the_hold_holds_what_is_parked": (no_hold,),
    "output_is_what_was_not_taken": (
        at("remoting_output", "take", "nbytes", -1, to_state="empty"),
        at("remoting_output", "take", "nbytes", 1, to_state="empty"),
        at("remoting_output", "serve", "nbytes", 1),
    ),
    "a_registration_waits_a_second": (too_early,),
}
CASES = [
    pytest.param(rule.name, rule.world, change, id=f"{rule.name}-{number}")
    for rule in OF_WORLDS
    for number, change in enumerate(FAULTS[rule.name])
]


@pytest.mark.parametrize(("rule", "world", "change"), CASES)
def test_a_fault_in_the_log_of_a_world_is_found(rule: str, world: str, change: Change) -> None:
    log = second_verdicts.sound(FIRST, LAST, world).copy()
    run_id = change(log)
    judgement = second_verdicts.judged(log)
    assert rule in judgement.broken, judgement.broken
    assert {run.run_id for run in judgement.runs if run.first} == {run_id}, "it blames another run"
