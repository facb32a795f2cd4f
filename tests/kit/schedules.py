"""Schedules written by hand, where a test gives only what it is about; and those of the first seeds, for a census."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from rocketmq_ha.fuzz import schedule
from rocketmq_ha.fuzz.lockstep import RunOutcome, StepOutcome
from rocketmq_ha.fuzz.schedule import LinkSchedule
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.events import Event, Put, Tick
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import HARDENED, Profile, Settings

ALL = 1 << 18  # bytes: more than any schedule here moves
# Three files of ten frames; a report buffer of two reports.
SETTINGS = Settings(
    mapped_file_size=1000,
    ha_transfer_batch_size=100,
    ha_slave_fallbehind_max=1 << 28,
    master_read_buffer_size=16,
    slave_read_buffer_size=4000,
)
DRAWN = 800  # schedules of a census
RECORD = 92  # bytes of a record of topic T without body and properties


def put(nbytes: int, *, wait: bool = False, pauses: bool = False) -> Put:
    """A put of `nbytes` bytes; its record has RECORD more."""
    return Put("T", bytes(at % 251 + 1 for at in range(nbytes)), "", 0, wait, pauses)


def schedule_of(
    *events: Event, profile: Profile = HARDENED, settings: Settings = SETTINGS, slaves: int = 1, seed: int = 7
) -> LinkSchedule:
    return LinkSchedule(seed, profile, settings, slaves, events)


@cache
def drawn_schedules() -> tuple[LinkSchedule, ...]:
    """The schedules of the seeds from 0 on."""
    return tuple(schedule.draw(seed) for seed in range(DRAWN))


def all_of(kind: type) -> Iterator[tuple[LinkSchedule, Any]]:
    """Each drawn event of a kind, with its schedule."""
    for drawn in drawn_schedules():
        for event in drawn.events:
            if isinstance(event, kind):
                yield drawn, event


def values(kind: type, name: str) -> set[Any]:
    """All values of a field of the drawn events of a kind."""
    return {getattr(event, name) for _, event in all_of(kind)}


def share(counted: int, whole: int) -> float:
    assert whole > 0
    return counted / whole


def frame_size(drawn: LinkSchedule, limit: int = 1 << 30) -> int:
    """The size of a full frame of a schedule; of larger batches as if they were `limit`."""
    return TRANSFER_HEADER_SIZE + min(drawn.settings.ha_transfer_batch_size, limit)


def outcome_of(seed: int, n_ops: int, verdict: str = VERDICT_OK) -> RunOutcome:
    """The outcome of a run of `n_ops` operations without transitions; the last one has the verdict."""
    verdicts = [*[VERDICT_OK] * (n_ops - 1), verdict]
    steps = tuple(StepOutcome(at, Tick(1), START_MS, (), one) for at, one in enumerate(verdicts))
    return RunOutcome(schedule_of(seed=seed), steps)
