"""Count how often a scope reaches the premise of each property: a property that holds without a case says nothing.

A premise is a predicate on states, or on the edges of some actions. It is counted on the Python graph, which equals TLC's.
A scope names the properties that it is for. Each of their premises must be reached at least `least` times, and in a scope with
faults at least `least` times after a fault. `possible` says whether a scope's constants allow a premise at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from formal import premises_protocol, premises_reading
from formal.graph import Graph
from formal.premise import EdgePremise, Premise, StatePremise

# Properties that need no premise, each with the reason.
UNCONDITIONAL: Final = {"TypeOK": "it speaks of every state"}
# The premises of each property, of all levels.
PREMISES: Final[dict[str, tuple[Premise, ...]]] = premises_protocol.PREMISES | premises_reading.PREMISES


@dataclass(frozen=True, slots=True)
class Count:
    """How often a scope reaches a premise, and how often after a fault; None if the scope has no faults."""

    told: str
    reached: int
    after_fault: int | None

    def __str__(self) -> str:
        words = f"{self.reached} {self.told}".rstrip()
        return words if self.after_fault is None else f"{words} ({self.after_fault})"


def counted(found: Graph, names: Sequence[str]) -> dict[str, list[Count]]:
    """Count how often the graph reaches each possible premise of these properties."""
    scope, level = found.scope, found.level
    by_action: dict[str, list[tuple[Any, Any]]] = {}
    for label, before, after in found.edges:
        by_action.setdefault(label.partition("(")[0], []).append((found.states[before], found.states[after]))
    counts: dict[Premise, Count] = {}

    def states_that_meet(premise: Premise) -> list[Any]:
        """The states that meet a premise; for an edge premise, the states before the edge."""
        match premise:
            case StatePremise():
                return [state for state in found.states if premise.met(state, scope)]
            case EdgePremise():
                edges = (edge for action in premise.actions for edge in by_action.get(action, ()))
                return [before for before, after in edges if premise.met(before, after, scope)]

    def count(premise: Premise) -> Count:
        if premise not in counts:
            met = states_that_meet(premise)
            after_fault = sum(map(bool, map(level.faults, met))) if level.has_faults(scope) else None
            counts[premise] = Count(premise.told, len(met), after_fault)
        return counts[premise]

    return {name: [count(premise) for premise in PREMISES.get(name, ()) if premise.possible(scope)] for name in names}


def too_few(counts: dict[str, list[Count]], least: dict[str, int]) -> list[str]:
    """Name the premises reached too seldom. least: the required count of each property."""
    found = []
    for name, enough in least.items():
        if name in UNCONDITIONAL:
            continue
        if not counts[name]:
            found.append(f"{name} has a premise that the constants of the scope rule out")
        for count in counts[name]:
            words = f"{name}{f', {count.told},' if count.told else ''} is reached"
            if count.reached < enough:
                found.append(f"{words} {count.reached} times, not {enough}")
            elif count.after_fault is not None and count.after_fault < enough:
                found.append(f"{words} {count.after_fault} times after a fault, not {enough}")
    return found
