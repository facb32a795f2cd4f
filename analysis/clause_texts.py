"""The text of each clause for the page: its sentence, the file of spec/ that has it, and what holds it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec import clauses


@dataclass(frozen=True, slots=True)
class ClauseText:
    """A clause. `worlds` exercise it in schedules; else `tests` hold it, or there is a `reason` why nothing does."""

    clause: str
    sentence: str  # empty if neither the table of possible transitions nor spec/ has the clause
    file: str  # such as "spec/2-master.md"; empty if spec/ does not have it
    worlds: tuple[str, ...]
    tests: tuple[str, ...]
    reason: str


def build(possible: Possible, named: Iterable[str]) -> tuple[ClauseText, ...]:
    """Return the clauses of `possible` and those that a table names, in the order of spec/; clauses that it lacks come last."""
    known = _in_spec()
    order = {clause: number for number, clause in enumerate(known)}
    found = {*possible.clauses, *possible.elsewhere, *named}
    return tuple(
        _text(clause, possible, known) for clause in sorted(found, key=lambda clause: (order.get(clause, len(order)), clause))
    )


def _text(clause: str, possible: Possible, known: dict[str, clauses.Clause]) -> ClauseText:
    elsewhere = possible.elsewhere.get(clause)
    in_spec = known.get(clause)
    sentence = possible.clauses.get(clause) or (elsewhere.sentence if elsewhere else "")
    return ClauseText(
        clause,
        sentence or (in_spec.sentence if in_spec else ""),
        f"spec/{in_spec.place.partition(':')[0]}" if in_spec else "",
        possible.worlds_of.get(clause, ()),
        elsewhere.tests if elsewhere else (),
        elsewhere.reason if elsewhere else "",
    )


@cache
def _in_spec() -> dict[str, clauses.Clause]:
    return clauses.read(Path(str(resources.files("rocketmq_ha.spec"))))
