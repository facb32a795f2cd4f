"""The result of a transition: the new state, the outputs, and the exercised clauses."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State_co = TypeVar("State_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes that the socket took."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Acked:
    """A report that the master uses, as `slave_ack_offset` of its connection."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """This side closes the connection."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """A waiting put ends."""

    request_id: int
    next_offset: int  # the offset after its message
    status: str


Output = Send | Acked | Close | Done


@dataclass(frozen=True, slots=True)
class Step(Generic[State_co]):
    """One transition. `clauses` are ids of spec/, each at most once, in the order in which they were met."""

    state: State_co
    outputs: tuple[Output, ...] = ()
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: what one machine did in a step. Columns as in spec/event_log.py."""

    actor: str
    instance: int
    event: str
    from_state: str
    to_state: str
    offset: int
    nbytes: int
    fragment_len: int
    split_at: int
    clauses: tuple[str, ...]


def sent(step: Step[State_co]) -> bytes:
    """All bytes that a step sent, in order."""
    return b"".join(output.data for output in step.outputs if isinstance(output, Send))


def unique(clauses: Iterable[str]) -> tuple[str, ...]:
    """The clauses without duplicates, in order of first occurrence."""
    return tuple(dict.fromkeys(clauses))
