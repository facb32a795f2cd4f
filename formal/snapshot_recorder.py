"""Doing events to the nodes of a machine, and keeping what came of each."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from rocketmq_ha.reference.step import Acked, Close, Done, Output, Send, Step, unique
from rocketmq_ha.spec.profile import Profile

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Happening:
    """One event at one node, and what came of it."""

    state: str
    event: str
    variant: str
    possible: bool  # whether a cluster may do this to the machine in this state
    after: str  # the state after; "=" where nothing changed, "assertion" where the model refused
    outputs: tuple[str, ...]
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    title: str
    states: tuple[str, ...]
    happenings: Callable[[Profile], list[Happening]]


def kinds(outputs: tuple[Output, ...]) -> tuple[str, ...]:
    """What went out, each kind once, in the order of the first."""
    named = []
    for output in outputs:
        match output:
            case Send():
                named.append("Send")
            case Acked():
                named.append("Acked")
            case Close():
                named.append(f"Close({output.reason})")
            case Done():
                named.append(output.status)
    return unique(named)


class Recorder(Generic[State]):
    """Does events to the nodes of one machine, and keeps what came of them."""

    def __init__(self, classify: Callable[[State], Enum]) -> None:
        self._classify = classify
        self._found: dict[Happening, None] = {}  # a set that keeps its order

    def do(
        self, state: State, event: str, variant: str, call: Callable[[], Step[State]], possible: bool = True
    ) -> State | None:
        """The state after; None where the model refused, or where no cluster would have done it."""
        after, made = "assertion", None
        outputs: tuple[str, ...] = ()
        clauses: tuple[str, ...] = ()
        try:
            step = call()
        except AssertionError:
            pass
        else:
            made, outputs, clauses = step.state, kinds(step.outputs), step.clauses
            after = "=" if step.state == state and not outputs else self._classify(step.state).value
        self._found[Happening(self._classify(state).value, event, variant, possible, after, outputs, clauses)] = None
        return made if possible else None

    def sorted(self, events: tuple[str, ...]) -> list[Happening]:
        """In the order of the events, and of one event in the order in which its variants first came."""
        variants = list(dict.fromkeys((one.event, one.variant) for one in self._found))
        return sorted(self._found, key=lambda one: (events.index(one.event), variants.index((one.event, one.variant))))
