"""A ledger of the puts that wait for a slave, kept from the rows of one run after the other.

The log has no row for a put's end. But the rows say when a put came (`put` of the store and, right behind it, of the group
transfer), at which offset it ends (the store's max offset), what has been acknowledged (`offset` of the group transfer's rows)
and what time it is. With these, chapter 4 says which puts end in which row.

One pass over the rows of store 0, of the reports and ends of master connections, and of the group transfer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rocketmq_ha.fuzz.second_verdict.columns import Rows
from rocketmq_ha.spec.constants import SYNC_FLUSH_TIMEOUT_MS

TIMEOUT_NS: Final = SYNC_FLUSH_TIMEOUT_MS * 1_000_000

# The rules, which rules_link.py lists.
ACKNOWLEDGED: Final = "push2_is_acknowledged"
MOVES: Final = "an_ack_moves_push2"
ENDS_OK: Final = "a_put_ends_ok_when_acknowledged"
IN_TIME: Final = "a_wait_ends_in_time"
STORED: Final = "a_put_waits_once_it_is_stored"
STATE: Final = "it_waits_while_puts_do"


class Entry(NamedTuple):
    """One row of the pass: a tuple, since a frozen dataclass takes four times as long to make."""

    at: int
    run: int
    op_index: int
    ts_ns: int
    actor: str
    event: str
    instance: int
    offset: int
    to_state: str
    stored: int  # max offset after the put of the store right before, or -1
    least_stored: int  # that after the first put of this life of the master, or -1: no put ends earlier
    behind_a_report: bool  # the row right before is a report's, or an ack
    ends_ok: bool  # HA-G-1 is exercised: some put has ended with PUT_OK
    gave_up: bool  # HA-G-2
    refused: bool  # HA-G-3


def entries(rows: Rows) -> Iterator[Entry]:
    """The rows that the ledger needs, in order."""
    of_store = rows.of("store") & (rows.instance == 0)
    restart = of_store & rows.event_in("recover")
    of_master = rows.of("master_connection", "reports") | (rows.of("master_connection") & rows.to_in("closed"))
    wanted = restart | of_master | rows.of("group_transfer") | rows.of("network", "forge_report")
    places = np.flatnonzero(wanted)
    stored = of_store & rows.event_in("put", "put_roll")
    reported = rows.of("master_connection", "reports") | rows.of("group_transfer", "ack")
    before = np.maximum(places - 1, 0)
    same_op = rows.same_op_as_before[places]
    put = stored[before] & same_op
    # The first put at or behind the master's start, if it lies before the row.
    next_put = np.minimum.accumulate(np.where(stored, rows.at, rows.size)[::-1])[::-1] if rows.size else rows.at
    started = rows.by_run.previous(restart)
    first_put = next_put[np.where(started >= 0, started, rows.runs.begin[rows.run])]
    least = np.where(first_put < rows.at, rows.offset[np.minimum(first_put, rows.size - 1)], -1)
    columns = (
        places,
        *(column[places] for column in (rows.run, rows.op_index, rows.ts_ns, rows.actor, rows.event)),
        *(column[places] for column in (rows.instance, rows.offset, rows.to_state)),
        np.where(put, rows.offset[before], -1),
        least[places],
        reported[before] & same_op,
        *(rows.has_clause(clause)[places] for clause in ("HA-G-1", "HA-G-2", "HA-G-3")),
    )
    texts = rows.vocabulary.texts
    for at, run, op, ts, actor, event, instance, offset, to_state, *flags in zip(*map(np.ndarray.tolist, columns), strict=True):
        yield Entry(at, run, op, ts, texts[actor], texts[event], instance, offset, texts[to_state], *flags)


@dataclass
class Ledger:
    """What the pass found: for each rule how often its premise was reached, and the rows that broke it."""

    premises: dict[str, int] = field(default_factory=dict)
    broken: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def breaks(self, rule: str, holds: bool) -> bool:
        self.premises[rule] = self.premises.get(rule, 0) + 1
        return not holds

    def note(self, rule: str, at: int, detail: str) -> None:
        self.broken.setdefault(rule, []).append((at, detail))


class _Life:
    """The present life of a master: from its start to its restart."""

    def __init__(self, hardened: bool) -> None:
        self.hardened = hardened
        self.acks: dict[int, int] = {}  # link: its last report, while it is open at the master
        self.greatest = 0  # the greatest report of this life
        self.push2 = 0  # as the last row of the group transfer said
        self.has_lost = False  # a connection has ended since then
        self.waiting: list[tuple[int, int]] = []  # hardened: (offset behind the message, time of the put)


def keep(rows: Rows) -> Ledger:
    """Go through the runs. Spec: HA-G-1 to HA-G-7, HA-G-17, HA-G-30."""
    ledger = Ledger()
    run, op, last = -1, -1, None
    life, restarted, forged = _Life(hardened=False), False, False
    closing: list[int] = []
    for entry in entries(rows):
        if entry.run != run or entry.op_index != op:
            if entry.run != run:
                life, forged = _Life(bool(rows.hardened[entry.at])), False
            elif restarted:
                life = _Life(life.hardened)
            elif life.waiting and last is not None:
                late = [offset for offset, since in life.waiting if last.ts_ns - since > TIMEOUT_NS]
                if ledger.breaks(IN_TIME, not late):
                    ledger.note(IN_TIME, last.at, f"the put that ends at {late[0]} waits for longer than 5 s")
            for link in closing:
                life.acks.pop(link, None)
            run, op, restarted, closing = entry.run, entry.op_index, False, []
        last = entry
        match entry.actor, entry.event:
            case "network", _:
                forged = True
            case "store", _:
                restarted = True
            case "master_connection", _:
                if entry.event == "reports":
                    life.acks[entry.instance] = entry.offset
                    life.greatest = max(life.greatest, entry.offset)
                if entry.to_state == "closed":
                    closing.append(entry.instance)
                    life.has_lost = True
            case "group_transfer", _:
                _of_group(ledger, life, entry, forged)
    return ledger


def _of_group(ledger: Ledger, life: _Life, entry: Entry, forged: bool) -> None:
    at, push2 = entry.at, entry.offset
    most = max(0, max(life.acks.values(), default=0) if life.hardened else life.greatest)
    # A forged report that classic has used, and another one behind it in the same row, would be missing in `most`.
    if (life.hardened or not forged) and ledger.breaks(ACKNOWLEDGED, push2 <= most):
        ledger.note(ACKNOWLEDGED, at, f"offset {push2}, but no more than {most} was acknowledged")
    if entry.event == "ack":
        grows = push2 > life.push2 or (life.hardened and life.has_lost)
        if ledger.breaks(MOVES, grows and entry.behind_a_report):
            ledger.note(MOVES, at, f"offset {push2} after {life.push2}, and behind a report: {entry.behind_a_report}")
    if entry.ends_ok and entry.event != "put":
        least = min((offset for offset, _ in life.waiting), default=-1) if life.hardened else entry.least_stored
        if ledger.breaks(ENDS_OK, -1 < least <= push2):
            ledger.note(ENDS_OK, at, f"a put ended with PUT_OK at {push2}; the first that waits ends at {least}")
    life.push2, life.has_lost = push2, False
    if life.hardened:
        _of_hardened(ledger, life, entry)


def _of_hardened(ledger: Ledger, life: _Life, entry: Entry) -> None:
    """In hardened a put waits from its append on (`joins_at_append`), so the rows say all that the group transfer knows."""
    at, push2 = entry.at, entry.offset
    if entry.event == "put":
        if ledger.breaks(STORED, entry.stored >= 0):
            ledger.note(STORED, at, "no put of the store right before it")
        if not entry.refused:
            if ledger.breaks(ENDS_OK, entry.ends_ok == (entry.stored <= push2)):
                ledger.note(ENDS_OK, at, f"offset {push2}, and the put ends at {entry.stored}")
            if not entry.ends_ok:
                life.waiting.append((entry.stored, entry.ts_ns))
    elif entry.event == "shutdown":
        life.waiting = []
    elif entry.event == "ack":
        done = [waits for waits in life.waiting if waits[0] <= push2]
        life.waiting = [waits for waits in life.waiting if waits[0] > push2]
        if ledger.breaks(ENDS_OK, entry.ends_ok == bool(done)):
            ledger.note(ENDS_OK, at, f"{len(done)} puts end at {push2} or before; PUT_OK was given: {entry.ends_ok}")
    elif entry.event == "tick":
        done = [waits for waits in life.waiting if entry.ts_ns - waits[1] > TIMEOUT_NS]
        life.waiting = [waits for waits in life.waiting if entry.ts_ns - waits[1] <= TIMEOUT_NS]
        if ledger.breaks(IN_TIME, entry.gave_up == bool(done)):
            ledger.note(IN_TIME, at, f"{len(done)} puts have waited for longer than 5 s; the row ended some: {entry.gave_up}")
    # Whoever waits, waits for more than is acknowledged: an acknowledgement that ended no put has no row of its own.
    if ledger.breaks(ENDS_OK, all(next_offset > push2 for next_offset, _ in life.waiting)):
        ledger.note(ENDS_OK, at, f"offset {push2}, and the put that ends at {life.waiting[0][0]} waits on")
    if ledger.breaks(STATE, (entry.to_state == "waiting") == bool(life.waiting)):
        ledger.note(STATE, at, f"to_state {entry.to_state}, and {len(life.waiting)} puts wait")
