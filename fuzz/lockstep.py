"""Lock-step: run one schedule in both worlds, and compare them after every event.

A divergence does not raise, since a campaign must keep its results. The outcome says what happened and where the run stopped.
"""

import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketmq_ha.fuzz import observe
from rocketmq_ha.fuzz.schedule import START_MS, Schedule
from rocketmq_ha.fuzz.world import ImplementationWorld, ReferenceWorld
from rocketmq_ha.reference.cluster import Transition
from rocketmq_ha.reference.events import Event, Put, Tick
from rocketmq_ha.spec.event_log import VERDICT_DIVERGENCE, VERDICT_ERROR, VERDICT_INVARIANT, VERDICT_OK
from rocketmq_ha.spec.profile import Profile, Settings


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one event in both worlds."""

    op_index: int
    event: Event
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

    @property
    def last(self) -> StepOutcome:
        return self.steps[-1]

    @property
    def verdict(self) -> str:
        return self.last.verdict

    @property
    def n_messages(self) -> int:
        return sum(isinstance(step.event, Put) for step in self.steps)


class Lockstep:
    """Both worlds side by side. The caller must close it."""

    def __init__(self, slaves: int, settings: Settings, profile: Profile, directory: Path) -> None:
        self._profile, self._settings = profile, settings
        self._now_ms, self._op_index = START_MS, 0
        self.reference = ReferenceWorld(slaves, settings, profile, START_MS)
        self.implementation = ImplementationWorld(slaves, settings, profile, START_MS, directory)

    def apply(self, event: Event) -> StepOutcome:
        """Apply one event. After a verdict other than ok the worlds differ, so the run must end."""
        if isinstance(event, Tick):
            self._now_ms += event.ms
        transitions = self.reference.apply(event)
        verdict, signature, detail = self._judge(event)
        outcome = StepOutcome(self._op_index, event, self._now_ms, transitions, verdict, signature, detail)
        self._op_index += 1
        return outcome

    def _judge(self, event: Event) -> tuple[str, str, str]:
        name = type(event).__name__
        try:
            self.implementation.apply(event)
            found = observe.differences(self.reference.observe(), self.implementation.observe())
        except Exception as error:  # an exception of the implementation is a finding: a verdict, not the end of the campaign
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).parent.name}/{Path(where.filename).name}:{where.lineno}"
            kind = type(error).__name__
            told = str(error).partition("\n")[0] or kind  # a bare assert has no text
            return VERDICT_ERROR, f"{kind}/{name}/{place}", f"{place}: {told}"
        if found:
            actor = found[0].actor.split()[0]
            return VERDICT_DIVERGENCE, f"{actor}/{name}/{found[0].field}", "; ".join(map(str, found[:3]))
        if broken := self.reference.broken():
            return VERDICT_INVARIANT, f"cluster/{name}/{broken[0]}", ", ".join(broken)
        return VERDICT_OK, "", ""

    def close(self) -> None:
        self.implementation.close()


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for the files of one run, in memory if possible, since they live for milliseconds."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="rocketmq-ha-", dir=memory if memory.is_dir() else None))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def run(schedule: Schedule) -> RunOutcome:
    """Run a schedule up to the first verdict that is not ok."""
    with scratch_directory() as directory:
        lockstep = Lockstep(schedule.slaves, schedule.settings, schedule.profile, directory)
        steps = []
        try:
            for event in schedule.events:
                steps.append(lockstep.apply(event))
                if steps[-1].verdict != VERDICT_OK:
                    break
        finally:
            lockstep.close()
    return RunOutcome(schedule, tuple(steps))
