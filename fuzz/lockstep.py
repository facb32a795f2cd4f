"""Lock-step: run one schedule on both sides of its world, and compare them after every event.

A divergence does not raise, since a campaign must keep its results. The outcome says what happened and where the run stopped.
"""

import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rocketmq_ha.fuzz.differences import differences
from rocketmq_ha.fuzz.fingerprint import NOBODY_LOOKED, fingerprint
from rocketmq_ha.fuzz.world import ImplementationWorld, ReferenceWorld
from rocketmq_ha.fuzz.worlds import link, registry
from rocketmq_ha.fuzz.worlds.world import START_MS, Implementation, Reference, Schedule, World
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.event_log import VERDICT_DIVERGENCE, VERDICT_ERROR, VERDICT_INVARIANT, VERDICT_OK
from rocketmq_ha.spec.profile import Profile, Settings

R = TypeVar("R", bound=Reference)
I = TypeVar("I", bound=Implementation)  # noqa: E741  (the other side)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one event in both worlds."""

    op_index: int
    event: Any
    now_ms: int
    transitions: tuple[Transition, ...]
    verdict: str
    signature: str = ""  # actor/event/field of the failure
    detail: str = ""  # one line about it


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a schedule, up to its end or its first failure."""

    schedule: Schedule
    steps: tuple[StepOutcome, ...]
    observed: int = NOBODY_LOOKED  # fingerprint of the implementation's last observation, for the second verdict

    @property
    def last(self) -> StepOutcome:
        return self.steps[-1]

    @property
    def verdict(self) -> str:
        return self.last.verdict

    @property
    def n_messages(self) -> int:
        world = registry.world_of(self.schedule)
        return sum(world.messages(step.event) for step in self.steps)


class Lockstep(Generic[R, I]):
    """Both sides of a world, side by side. The caller must close it."""

    def __init__(self, world: World[Any], profile: Profile, reference: R, implementation: I) -> None:
        self._world, self._keeps_invariants = world, profile.keeps_invariants
        self._now_ms, self._op_index = START_MS, 0
        self.reference, self.implementation = reference, implementation

    def apply(self, event: Any) -> StepOutcome:
        """Apply one event. After a verdict other than ok the sides differ, so the run must end."""
        self._now_ms += self._world.milliseconds(event)
        transitions: tuple[Transition, ...] = ()
        try:
            transitions = self.reference.apply(event)
            verdict, signature, detail = self._judge(event)
        except MemoryError:
            raise  # of a limit: fuzz/runner.py
        except Exception as error:  # an exception of a side is a finding: a verdict, not the end of the campaign
            verdict, signature, detail = _of_error(error, event)
        outcome = StepOutcome(self._op_index, event, self._now_ms, transitions, verdict, signature, detail)
        self._op_index += 1
        return outcome

    def _judge(self, event: Any) -> tuple[str, str, str]:
        name = type(event).__name__
        self.implementation.apply(event)
        found = differences(self.reference.observe(), self.implementation.observe())
        if found:
            actor = found[0].actor.split()[0]
            return VERDICT_DIVERGENCE, f"{actor}/{name}/{found[0].field}", "; ".join(map(str, found[:3]))
        if self._keeps_invariants and (broken := self.reference.broken()):
            return VERDICT_INVARIANT, f"{self._world.whole}/{name}/{broken[0]}", ", ".join(broken)
        return VERDICT_OK, "", ""

    def close(self) -> None:
        self.implementation.close()


def _of_error(error: Exception, event: Any) -> tuple[str, str, str]:
    """The verdict, signature and detail of an exception that a side has raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).parent.name}/{Path(where.filename).name}:{where.lineno}"
    kind = type(error).__name__
    told = str(error).partition("\n")[0] or kind  # a bare assert has no text
    return VERDICT_ERROR, f"{kind}/{type(event).__name__}/{place}", f"{place}: {told}"


LinkLockstep = Lockstep[ReferenceWorld, ImplementationWorld]


def of_link(slaves: int, settings: Settings, profile: Profile, directory: Path) -> LinkLockstep:
    """A new cluster in lock-step, for a test or a replay that looks into it. The caller must close it."""
    return Lockstep(link.LINK, profile, *link.open_sides(slaves, settings, profile, directory))


def of_schedule(schedule: Schedule, directory: Path) -> Lockstep[Reference, Implementation]:
    """Both sides at the start of a schedule. The caller must close them."""
    world = registry.world_of(schedule)
    return Lockstep(world, schedule.profile, *world.open(schedule, directory))


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for the files of one run, in memory if possible, since they live for milliseconds."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="rocketmq-ha-", dir=memory if memory.is_dir() else None))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def run(schedule: Schedule, steps: list[StepOutcome] | None = None) -> RunOutcome:
    """Run a schedule up to the first verdict that is not ok.

    Args: steps: where to keep the steps, for a caller that wants those of a run that is broken off.
    """
    steps = [] if steps is None else steps
    with scratch_directory() as directory:
        lockstep = of_schedule(schedule, directory)
        observed = NOBODY_LOOKED
        try:
            for event in schedule.events:
                steps.append(lockstep.apply(event))
                if steps[-1].verdict != VERDICT_OK:
                    break
            if steps and steps[-1].verdict in (VERDICT_OK, VERDICT_INVARIANT):  # after the others it need not be in any state
                observed = fingerprint(lockstep.implementation.observe())
        finally:
            lockstep.close()
    return RunOutcome(schedule, tuple(steps), observed)
