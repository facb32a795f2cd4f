"""The rules of the row check that hold in every world, and what a rule is.

Each rule is a pure function of the rows of whole runs. It says which rows it is about (its premise), and which break it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocketmq_ha.fuzz.second_verdict.columns import Flags, Numbers, Rows
from rocketmq_ha.spec.event_log import VERDICT_DIVERGENCE, VERDICT_ERROR, VERDICT_INVARIANT, VERDICT_OK, VERDICTS

RUN_ITSELF: Final = -1  # the step of a violation that is about a run and not about one of its rows


@dataclass(frozen=True, slots=True)
class Violation:
    """A place of a run that breaks a rule."""

    run: int  # index of the run in its chunk
    rule: str
    step: int
    detail: str


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a rule."""

    premises: int  # rows, or runs, that the rule was about
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. source: its clauses, its property of chapter 9, or the column whose definition it is."""

    name: str
    source: str
    sentence: str
    check: Callable[[Rows, str], Found]
    profile: str = ""  # of the runs that it is about; empty for both
    world: str = ""  # empty for every one


SHOWN: Final = 3  # violations of one rule in one run that are kept


def of_rows(rows: Rows, name: str, premise: Flags, holds: Flags, detail: Callable[[int], str]) -> Found:
    """The result of a rule about rows."""
    broken = np.flatnonzero(premise & ~holds)
    violations, seen = [], dict[int, int]()
    for place in broken.tolist():
        run = int(rows.run[place])
        seen[run] = seen.get(run, 0) + 1
        if seen[run] <= SHOWN:
            violations.append(Violation(run, name, int(rows.step[place]), detail(place)))
    return Found(int(np.count_nonzero(premise)), tuple(violations))


def of_runs(name: str, premise: Flags, holds: Flags, detail: Callable[[int], str]) -> Found:
    """The result of a rule about whole runs."""
    broken = np.flatnonzero(premise & ~holds).tolist()
    return Found(int(np.count_nonzero(premise)), tuple(Violation(run, name, RUN_ITSELF, detail(run)) for run in broken))


def compare(name: str, found: Numbers, sign: str, expected: Numbers) -> Callable[[int], str]:
    """A detail such as "offset 12, expected at most 10"."""
    words = {"==": "", "<=": "at most ", ">=": "at least ", "<": "less than ", ">": "more than "}[sign]
    return lambda place: f"{name} {found[place]}, expected {words}{expected[place]}"


# --- The rows of a run, and its row in runs ---------------------------------------------------------------------------


def run_has_one_row(rows: Rows, name: str) -> Found:
    count = rows.runs.headers
    return of_runs(name, count >= 0, count == 1, lambda run: f"{count[run]} rows in runs, expected 1")


def columns_are_set(rows: Rows, name: str) -> Found:
    return of_rows(rows, name, rows.at >= 0, ~rows.has_null, lambda _: "a column without a value")


def steps_are_consecutive(rows: Rows, name: str) -> Found:
    expected = rows.at - rows.runs.begin[rows.run]
    return of_rows(rows, name, rows.at >= 0, rows.step == expected, compare("step", rows.step, "==", expected))


def n_steps_is_the_number_of_rows(rows: Rows, name: str) -> Found:
    runs = rows.runs
    count = runs.end - runs.begin
    return of_runs(name, runs.headers > 0, runs.n_steps == count, lambda run: f"{count[run]} rows, n_steps {runs.n_steps[run]}")


def operations_are_in_order(rows: Rows, name: str) -> Found:
    op, begins = rows.op_index, rows.at == rows.runs.begin[rows.run]
    least = np.zeros_like(op)
    least[1:] = np.where(begins[1:], 0, op[:-1])
    return of_rows(rows, name, rows.at >= 0, op >= least, compare("op_index", op, ">=", least))


def operations_are_counted(rows: Rows, name: str) -> Found:
    n_ops = rows.runs.n_ops[rows.run]
    premise = (rows.runs.headers > 0)[rows.run]
    return of_rows(rows, name, premise, rows.op_index < n_ops, compare("op_index", rows.op_index, "<", n_ops))


SETS_THE_CLOCK_BACK: Final = ("store",)  # the worlds with such an event


def time_is_in_order(rows: Rows, name: str) -> Found:
    begins = rows.at == rows.runs.begin[rows.run]
    least = np.zeros_like(rows.ts_ns)
    least[1:] = np.where(begins[1:], 0, rows.ts_ns[:-1])
    premise = np.full(rows.size, rows.world not in SETS_THE_CLOCK_BACK)
    return of_rows(rows, name, premise, rows.ts_ns >= least, compare("ts_ns", rows.ts_ns, ">=", least))


def operation_is_one_moment(rows: Rows, name: str) -> Found:
    premise, holds = rows.same_op_as_before, np.ones(rows.size, dtype=np.bool_)
    holds[1:] = (rows.ts_ns[1:] == rows.ts_ns[:-1]) & (rows.fault[1:] == rows.fault[:-1])
    return of_rows(rows, name, premise, holds, lambda _: "another ts_ns or fault than the row before, of the same operation")


def world_is_that_of_the_run(rows: Rows, name: str) -> Found:
    own = np.array([world == rows.world for world in rows.worlds] or [False])
    takes_part = np.zeros(len(rows.vocabulary.texts), dtype=np.bool_)
    for actor, machine in rows.vocabulary.actors.items():
        takes_part[rows.vocabulary.code(actor)] = rows.world in machine["worlds"]
    holds = own[rows.row_world] & takes_part[rows.actor]
    return of_rows(
        rows,
        name,
        rows.at >= 0,
        holds,
        lambda at: f"world {rows.worlds[rows.row_world[at]]}, actor {rows.text(rows.actor[at])}, in a run of {rows.world}",
    )


def transition_is_possible(rows: Rows, name: str) -> Found:
    words, possible = rows.vocabulary, rows.vocabulary.possible_keys
    holds = np.zeros(rows.size, dtype=np.bool_)
    for profile in (0, 1):  # where the profile is not known, either may be it
        asked = words.key(np.full(rows.size, profile), rows.actor, rows.from_state, rows.event, rows.to_state)
        found = possible[np.searchsorted(possible, asked).clip(max=len(possible) - 1)] == asked
        holds |= found & ((rows.profile == profile) | (rows.profile < 0))
    return of_rows(rows, name, rows.at >= 0, holds, lambda at: f"{transition(rows, at)} is not in transitions.json")


def transition(rows: Rows, at: int) -> str:
    codes = (rows.actor[at], rows.from_state[at], rows.event[at], rows.to_state[at])
    actor, before, event, after = (rows.text(code) for code in codes)
    return f"{actor}: {before} {event} {after}"


@dataclass(frozen=True, slots=True)
class Renewed:
    """A machine that begins anew, without a row of its own, in the operation of another machine's row."""

    world: str
    actor: str
    by_actor: str
    by_instance: int
    by_event: str
    reason: str


RENEWED: Final = (
    Renewed("link", "group_transfer", "store", 0, "recover", "a master that restarts has forgotten its waiting puts"),
)


def state_continues(rows: Rows, name: str) -> Found:
    before = rows.by_machine.previous(rows.at >= 0)
    start = np.zeros(len(rows.vocabulary.texts), dtype=np.int64)
    for actor, machine in rows.vocabulary.actors.items():
        start[rows.vocabulary.code(actor)] = rows.vocabulary.code(machine["states"][0])
    expected = np.where(before >= 0, rows.value(rows.to_state, before, 0), start[rows.actor])
    for renewed in RENEWED:
        if renewed.world == rows.world:
            by = rows.of(renewed.by_actor, renewed.by_event) & (rows.instance == renewed.by_instance)
            anew = is_new_since(rows, by, before) & rows.of(renewed.actor)
            expected = np.where(anew, start[rows.actor], expected)
    return of_rows(
        rows,
        name,
        rows.at >= 0,
        rows.from_state == expected,
        lambda at: f"{transition(rows, at)}, but its state was {rows.text(expected[at])}",
    )


def is_new_since(rows: Rows, by: Flags, before: Numbers) -> Flags:
    """True where a row of `by` lies in an operation after that of `before`, or with it, and before the row's own one."""
    last = last_earlier_op(rows, by)
    before_op = rows.value(rows.op_index, before, -1)
    return (last >= 0) & (before_op <= rows.value(rows.op_index, last, -1))


def last_earlier_op(rows: Rows, by: Flags) -> Numbers:
    """For each row the place of the last row of `by` in an earlier operation of its run, or -1."""
    latest = np.maximum.accumulate(np.where(by, rows.at, -1)) if rows.size else rows.at
    found = np.where(rows.op_begin > 0, latest[rows.op_begin - 1], -1)
    return np.where(found >= rows.runs.begin[rows.run], found, -1)


# The parts of the specification that a machine meets: the letters of its clauses.
CHAPTERS: Final = {
    "store": ("ST", "S"),  # an append of a slave, by its own chapter too
    "master_connection": ("M", "W", "T"),
    "slave_client": ("S", "W", "T", "ST"),
    "group_transfer": ("G", "T"),
    "network": (),
}


def clauses_can_be_exercised(rows: Rows, name: str) -> Found:
    words = rows.vocabulary
    is_right = np.zeros((max(1, len(rows.clause_texts)), len(words.texts)), dtype=np.bool_)
    for index, clause in enumerate(rows.clause_texts):
        if rows.world in words.clauses.get(clause, ()):
            letters = clause.split("-")[1]
            for actor in words.actors:
                is_right[index, words.code(actor)] = letters in CHAPTERS.get(actor, (letters,))
    holds = np.ones(rows.size, dtype=np.bool_)
    holds[rows.clause_flags(is_right, rows.actor)] = False
    return of_rows(
        rows, name, rows.has_clauses, holds, lambda at: f"{rows.text(rows.actor[at])} names a clause that it cannot exercise"
    )


def verdicts_agree(rows: Rows, name: str) -> Found:
    """A row that is not ok has the run's verdict, and ends the run."""
    runs = rows.runs
    ok = np.array([verdict == VERDICT_OK for verdict in rows.verdicts] or [True])[rows.verdict]
    same = np.array([[verdict == other for other in VERDICTS] for verdict in rows.verdicts] or [[False] * len(VERDICTS)])
    of_run = np.array([VERDICTS.index(verdict) if verdict in VERDICTS else 0 for verdict in runs.verdict], dtype=np.int64)
    last = rows.at == rows.runs.end[rows.run] - 1
    failing = rows.op_index == runs.failing_op[rows.run]
    expected_ok = (of_run == 0)[rows.run] | ~(last & failing)
    holds = np.where(expected_ok, ok, same[rows.verdict, of_run[rows.run]])
    return of_rows(
        rows,
        name,
        (runs.headers > 0)[rows.run],
        holds,
        lambda at: f"verdict {rows.verdicts[rows.verdict[at]]} in a run of {runs.verdict[rows.run[at]] or 'none'}",
    )


STOPS_THE_RUN: Final = (VERDICT_DIVERGENCE, VERDICT_INVARIANT, VERDICT_ERROR)


def verdict_is_described(rows: Rows, name: str) -> Found:
    """A run that is ok has no failing operation and no signature; another has a signature, and fails in its last operation."""
    runs = rows.runs
    has_signature, has_detail = (
        np.array([bool(text) for text in texts], dtype=np.bool_) for texts in (runs.signature, runs.detail)
    )
    ok = np.array([verdict == VERDICT_OK for verdict in runs.verdict], dtype=np.bool_)
    known = np.array([verdict in VERDICTS for verdict in runs.verdict], dtype=np.bool_)
    stopped = np.array([verdict in STOPS_THE_RUN for verdict in runs.verdict], dtype=np.bool_)
    as_ok = (runs.failing_op == -1) & ~has_signature & ~has_detail
    as_failed = has_signature & ((runs.failing_op == runs.n_ops - 1) | ~stopped)
    return of_runs(
        name,
        runs.headers > 0,
        known & np.where(ok, as_ok, as_failed),
        lambda run: (
            f"verdict {runs.verdict[run]}, failing_op {runs.failing_op[run]} of {runs.n_ops[run]} operations, "
            f"signature {runs.signature[run]!r}"
        ),
    )


def bytes_fit_their_fragment(rows: Rows, name: str) -> Found:
    premise = rows.fragment_len != -1
    return of_rows(
        rows,
        name,
        premise,
        (rows.fragment_len >= 0) & (rows.nbytes <= rows.fragment_len),
        compare("nbytes", rows.nbytes, "<=", rows.fragment_len),
    )


GENERAL: Final = (
    Rule("run_has_one_row", "runs.run_id", "a run has one row in runs", run_has_one_row),
    Rule("columns_are_set", "events", "no column is null", columns_are_set),
    Rule("steps_are_consecutive", "events.step", "the steps of a run are 0, 1, 2, ...", steps_are_consecutive),
    Rule("n_steps_is_the_number_of_rows", "runs.n_steps", "n_steps is the number of its rows", n_steps_is_the_number_of_rows),
    Rule("operations_are_in_order", "events.op_index", "op_index never goes back", operations_are_in_order),
    Rule("operations_are_counted", "runs.n_ops", "every op_index is less than n_ops", operations_are_counted),
    Rule("time_is_in_order", "HA-T-2, events.ts_ns", "ts_ns goes back nowhere but in the store", time_is_in_order),
    Rule("operation_is_one_moment", "events.ts_ns, fault", "an operation has one time and one fault", operation_is_one_moment),
    Rule(
        "world_is_that_of_the_run", "runs.world", "a row is of its run's world, and its machine too", world_is_that_of_the_run
    ),
    Rule("transition_is_possible", "transitions.json", "a transition is possible in its profile", transition_is_possible),
    Rule("state_continues", "events.from_state", "a machine goes on in the state in which it was", state_continues),
    Rule(
        "clauses_can_be_exercised",
        "events.clauses, transitions.json",
        "a clause is one that the world and the machine can exercise",
        clauses_can_be_exercised,
    ),
    Rule("verdicts_agree", "events.verdict", "only the last row of a failed run has its verdict", verdicts_agree),
    Rule("verdict_is_described", "runs.failing_op, signature", "a failure has a place and a signature", verdict_is_described),
    Rule("bytes_fit_their_fragment", "events.fragment_len", "nbytes is at most fragment_len", bytes_fit_their_fragment),
)


def apply(rules: Sequence[Rule], rows: Rows) -> Iterator[tuple[Rule, Found]]:
    """The result of each rule that is about these rows."""
    for rule in rules:
        if rule.world in ("", rows.world):
            yield rule, rule.check(rows, rule.name)
