"""Schedules written by hand, and events with defaults: a test gives only the fields that it is about."""

from rocketmq_ha.fuzz.schedule import Schedule
from rocketmq_ha.reference.events import Event, Put
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
RECORD = 92  # bytes of a record of topic T without body and properties


def put(nbytes: int, *, wait: bool = False, pauses: bool = False) -> Put:
    """A put of `nbytes` bytes; its record has RECORD more."""
    return Put("T", bytes(at % 251 + 1 for at in range(nbytes)), "", 0, wait, pauses)


def schedule_of(
    *events: Event, profile: Profile = HARDENED, settings: Settings = SETTINGS, slaves: int = 1, seed: int = 7
) -> Schedule:
    return Schedule(seed, profile, settings, slaves, events)
