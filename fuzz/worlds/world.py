"""What a world is: a part of the system that a schedule drives, with its model, its implementation and one observation of both.

A campaign draws a world for each run. Everything else (lock-step, event log, replay, corpus, shrinking) is the same for all of
them and knows only what stands here.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import Profile

START_MS: Final = 1_000_000  # model time at which every schedule begins


class Schedule(Protocol):
    """The complete input of a run: a frozen dataclass. Its other fields are the sizes that its world needs."""

    @property
    def seed(self) -> int: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def events(self) -> tuple[Any, ...]: ...


class Reference(Protocol):
    """The model's side of a world."""

    def apply(self, event: Any, /) -> tuple[Transition, ...]:
        """Apply an event and all that it triggers. An event that does not apply to the present state does nothing."""

    def observe(self) -> Any:
        """The state as a dataclass; the implementation's side returns one of the same class."""

    def broken(self) -> tuple[str, ...]:
        """The names of the invariants that do not hold. Asked after each event in a profile that keeps them."""


class Implementation(Protocol):
    """The implementation's side of a world."""

    def apply(self, event: Any, /) -> None: ...

    def observe(self) -> Any: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=Schedule)


class World(ABC, Generic[S]):
    """One world. It has no state; `open` makes both sides of a run."""

    name: ClassVar[str]
    whole: ClassVar[str]  # the actor of a broken invariant, as a signature names it
    schedule_type: type[S]
    event_types: tuple[type, ...]  # dataclasses; a schedule file names them
    legend: str  # of the columns of a replay

    @abstractmethod
    def draw(self, seed: int) -> S:
        """Draw the schedule of a seed: the same one on every machine."""

    @abstractmethod
    def draw_event(self, rng: Random, schedule: S) -> Any:
        """Draw one event that could stand in a schedule, with its sizes. For mutations."""

    @abstractmethod
    def open(self, schedule: S, directory: Path) -> tuple[Reference, Implementation]:
        """Both sides at the start of a run; the implementation's files go to `directory`. The caller closes it."""

    def open_reference(self, schedule: S) -> Reference:
        """The model's side alone. A world overrides this where it can do without making and closing the other side."""
        with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as directory:
            reference, implementation = self.open(schedule, Path(directory))
            implementation.close()
        return reference

    @abstractmethod
    def describe(self, event: Any) -> str:
        """An event in a few words, for replays."""

    @abstractmethod
    def headline(self, schedule: S) -> str:
        """The sizes of a schedule on one line, for replays."""

    @abstractmethod
    def columns(self, schedule: S) -> tuple[str, ...]:
        """The names of the columns of a replay."""

    @abstractmethod
    def cells(self, reference: Any) -> list[str]:
        """The texts of these columns, from the model's side."""

    def fits(self, schedule: S, event: Any) -> bool:  # noqa: ARG002
        """Return True if an event of another schedule may stand in this one. For mutations."""
        return False

    def fitting(self, event: Any) -> str:  # noqa: ARG002
        """What `fits` asks of an event of this class, for the message about one that does not fit."""
        return "an event of another kind"

    def bounds(self, schedule: S) -> Mapping[tuple[type, str], tuple[int, int]]:  # noqa: ARG002
        """The numbers that a mutation may change: (event type, field) to (least, greatest)."""
        return {}

    def fault_of(self, event: Any) -> str:  # noqa: ARG002
        """The name under which the event log counts an event as an injected fault, or NO_FAULT."""
        return NO_FAULT

    def milliseconds(self, event: Any) -> int:  # noqa: ARG002
        """How much model time passes in an event."""
        return 0

    def messages(self, event: Any) -> int:  # noqa: ARG002
        """How many messages a producer puts by an event."""
        return 0
