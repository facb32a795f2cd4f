"""What a premise is: a predicate on states, or on the edges of some actions; premises.py counts them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# A scope and a state are those of the level.
OfState = Callable[[Any, Any], bool]  # (state, scope)
OfEdge = Callable[[Any, Any, Any], bool]  # (state before, state after, scope)


def always(_scope: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class StatePremise:
    """A state that must be reached before a property can fail.

    told: its name in the table; empty for the first premise of a property.
    possible: returns True if a scope's constants allow the premise.
    """

    met: OfState
    told: str = ""
    possible: Callable[[Any], bool] = always


@dataclass(frozen=True, slots=True)
class EdgePremise:
    """An edge of one of `actions` that must be taken before a property can fail. `told`, `possible`: as in StatePremise."""

    met: OfEdge
    actions: tuple[str, ...]
    told: str = ""
    possible: Callable[[Any], bool] = always


Premise = StatePremise | EdgePremise
