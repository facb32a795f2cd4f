"""The rules of the row check for the other worlds: what the clauses demand between the rows of a run.

Columns by machine (reference/*_state.py names them; here they are only read):

    store_life       offset = max offset of the log; nbytes = bytes that a put appended
    group_transfer   offset = push2_slave_max_offset
    group_commit     offset = where the flushed part of the log ends
    put              offset = where its message ends
    replica_connection   reports: offset = slave_ack_offset
    remoting_output  nbytes = by how much the bytes changed that a client has not taken
    pull, hold, registering   states alone
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from rocketmq_ha.fuzz.second_verdict.columns import Flags, Groups, Numbers, Rows
from rocketmq_ha.fuzz.second_verdict.rules import Found, Rule, of_rows
from rocketmq_ha.spec.constants import MESSAGE_FIXED_SIZE

STORED: Final = ("put", "put_roll", "put_batch", "put_batch_roll")
# Not among them are recoveries, damage and power cuts, which may move the end of the log.
ENDS_STAY: Final = (
    *("put_refused", "put_batch_refused", "flush", "flush_failed", "dispatch", "flush_derived", "prepare", "prepare_failed"),
    *("watch_space", "keep", "expire", "kill", "close", "close_behind", "close_failed"),
)
DISPATCHES: Final = ("dispatch", "recover_normally", "recover_abnormally")
ADDS_OUTPUT: Final = ("invoke", "notify", "read", "resume", "serve")
AGAIN_NS: Final = 1_000_000_000  # HA-R-58
_FAR: Final = (1 << 40) - 1  # every offset beyond it, which a forged report may have, counts as this one


def _end_before(rows: Rows) -> Numbers:
    """For a row of store_life: the max offset before it, -1 for the first row."""
    return rows.value(rows.offset, rows.by_machine.previous(rows.of("store_life")), -1)


def _moved(rows: Rows, before: Numbers) -> Callable[[int], str]:
    return lambda at: f"max offset {rows.offset[at]}, before {before[at]}, {rows.nbytes[at]} bytes"


def a_stored_put_moves_the_end(rows: Rows, name: str) -> Found:
    before = _end_before(rows)
    premise = rows.of("store_life", *STORED) & (before >= 0)
    holds = (rows.offset == before + rows.nbytes) & (rows.nbytes > MESSAGE_FIXED_SIZE)
    return of_rows(rows, name, premise, holds, _moved(rows, before))


def the_end_stays(rows: Rows, name: str) -> Found:
    before = _end_before(rows)
    premise = rows.of("store_life", *ENDS_STAY) & (before >= 0)
    holds = (rows.offset == before) & (rows.nbytes == 0)
    return of_rows(rows, name, premise, holds, _moved(rows, before))


def entries_come_by_a_dispatch(rows: Rows, name: str) -> Found:
    premise = rows.of("consume_queue", "append") | rows.of("index", "append")
    holds = rows.of("store_life", *DISPATCHES)[rows.op_begin]
    return of_rows(rows, name, premise, holds, lambda at: f"the operation is a {rows.text(rows.event[rows.op_begin[at]])}")


def _greatest_before(rows: Rows, where: Flags) -> Numbers:
    """For each row the greatest offset of the marked rows of its run, up to and with it; 0 without any."""
    value = np.where(where, rows.offset.clip(0, _FAR), 0)
    of_run = rows.run * (_FAR + 1)  # a later run's numbers are greater than all of an earlier one
    return np.asarray(np.maximum.accumulate(of_run + value) - of_run)


def push2_was_acknowledged(rows: Rows, name: str) -> Found:
    greatest = _greatest_before(rows, rows.of("replica_connection", "report"))
    premise = rows.of("group_transfer", "ack") | rows.of("replicas", "report")
    holds = rows.offset.clip(0, _FAR) <= greatest
    return of_rows(rows, name, premise, holds, lambda at: f"push2 {rows.offset[at]}, greatest report {greatest[at]}")


def _in_operation(rows: Rows, where: Flags) -> Numbers:
    """For each row the offset of the last marked row of its operation before it, or -1."""
    return rows.value(rows.offset, Groups(rows.op_begin).previous(where), -1)


def a_put_ok_is_acknowledged(rows: Rows, name: str) -> Found:
    push2 = _in_operation(rows, rows.of("group_transfer", "ack"))
    premise = rows.of("put", "ack") & rows.to_in("put_ok")
    return of_rows(rows, name, premise, rows.offset <= push2, lambda at: f"ends at {rows.offset[at]}, push2 {push2[at]}")


def a_put_ok_is_flushed(rows: Rows, name: str) -> Found:
    flushed = _in_operation(rows, rows.of("group_commit", "flush"))
    premise = rows.of("put", "flush") & rows.to_in("put_ok") & rows.hardened  # classic: HA-G-46
    return of_rows(rows, name, premise, rows.offset <= flushed, lambda at: f"ends at {rows.offset[at]}, flushed {flushed[at]}")


def the_hold_holds_what_is_parked(rows: Rows, name: str) -> Found:
    """The rows of an operation are of one moment, so the hold is looked at behind the last of them."""
    pull = rows.of("pull")
    change = np.where(pull & rows.to_in("parked"), 1, 0) - np.where(pull & rows.from_in("parked"), 1, 0)
    parked = rows.by_run.running(change)
    last = np.ones(rows.size, dtype=np.bool_)
    last[:-1] = ~rows.same_op_as_before[1:]
    hold = rows.of("hold")
    place = np.where(hold, rows.at, rows.by_run.previous(hold))
    is_holding = np.where(place >= 0, rows.to_in("holding", "full")[place], False)
    return of_rows(rows, name, last, is_holding == (parked > 0), lambda at: f"{parked[at]} pulls are parked")


def output_is_what_was_not_taken(rows: Rows, name: str) -> Found:
    premise = rows.of("remoting_output")
    adds = rows.event_in(*ADDS_OUTPUT) & ~rows.to_in("lost")
    left = rows.by_machine.running(np.where(premise, np.where(adds, rows.nbytes, -rows.nbytes), 0))
    holds = np.where(rows.to_in("empty", "lost"), left == 0, left > 0)
    return of_rows(rows, name, premise, holds, lambda at: f"{left[at]} bytes are left")


def a_registration_waits_a_second(rows: Rows, name: str) -> Found:
    failed = rows.by_machine.previous(rows.of("registering", "failure"))
    premise = rows.of("registering", "tick") & rows.from_in("later") & rows.has_clause("HA-R-58") & (failed >= 0)
    since = rows.ts_ns - rows.value(rows.ts_ns, failed, 0)
    return of_rows(rows, name, premise, since >= AGAIN_NS, lambda at: f"{since[at] // 1_000_000} ms after the failure")


OF_WORLDS: Final = (
    Rule(
        "a_stored_put_moves_the_end",
        "HA-ST-2, HA-ST-12",
        "a put moves the end of the log by its bytes",
        a_stored_put_moves_the_end,
        world="store",
    ),
    Rule("the_end_stays", "HA-ST-12", "what stores nothing leaves the end of an open log", the_end_stays, world="store"),
    Rule(
        "entries_come_by_a_dispatch",
        "HA-ST-35, HA-ST-73",
        "queues and index grow where messages are dispatched",
        entries_come_by_a_dispatch,
        world="store",
    ),
    Rule(
        "push2_was_acknowledged",
        "HA-G-4, HA-G-5, HA-G-30",
        "push2_slave_max_offset is no more than was acknowledged",
        push2_was_acknowledged,
        world="replicas",
    ),
    Rule(
        "a_put_ok_is_acknowledged", "HA-G-1", "a report ends a put that it covers", a_put_ok_is_acknowledged, world="replicas"
    ),
    Rule("a_put_ok_is_flushed", "HA-G-44", "a flush ends a put that it covers", a_put_ok_is_flushed, "hardened", "replicas"),
    Rule(
        "the_hold_holds_what_is_parked",
        "HA-P-16, HA-P-20",
        "the hold is empty when no pull is parked",
        the_hold_holds_what_is_parked,
        world="reads",
    ),
    Rule(
        "output_is_what_was_not_taken",
        "HA-RM-24",
        "what waits for a client is what it has not taken",
        output_is_what_was_not_taken,
        world="remoting",
    ),
    Rule(
        "a_registration_waits_a_second",
        "HA-R-58",
        "a broker registers again a second after a failure",
        a_registration_waits_a_second,
        world="routes",
    ),
)
