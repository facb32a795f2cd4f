"""Apply events to the nodes of a machine, and record the outcomes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from rocketmq_ha.reference.step import Acked, Close, Done, Output, Send, Step, unique
from rocketmq_ha.spec.profile import Profile

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Happening:
    """One event at one node, with its outcome."""

    state: str
    event: str
    variant: str
    possible: bool  # a cluster can produce this event in this state
    after: str  # the state after; "=": unchanged; "assertion": the model refused
    outputs: tuple[str, ...]
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    title: str
    states: tuple[str, ...]
    happenings: Callable[[Profile], list[Happening]]


def kinds(outputs: tuple[Output, ...]) -> tuple[str, ...]:
    """The kinds of outputs without duplicates, in order of first occurrence."""
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
    """Applies events to the nodes of one machine and records the outcomes."""

    def __init__(self, classify: Callable[[State], Enum]) -> None:
        self._classify = classify
        self._found: dict[Happening, None] = {}  # an ordered set

    def do(
        self, state: State, event: str, variant: str, call: Callable[[], Step[State]], possible: bool = True
    ) -> State | None:
        """Apply an event. Returns: the state after; None if the model refused, or if no cluster can produce the event."""
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
        """The records by event, and within an event in the order of first occurrence."""
        variants = list(dict.fromkeys((one.event, one.variant) for one in self._found))
        return sorted(self._found, key=lambda one: (events.index(one.event), variants.index((one.event, one.variant))))
