"""The life of a store explored in a small scope: files of two records, four messages, a few damages, a few clocks.

The states of a store are too many to visit all. Two stores count as the same here if no event of the scope can tell them apart
as far as the table of transitions is concerned; of each kind the first that is found is visited.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from rocketmq_ha.reference import store_events as events
from rocketmq_ha.reference import store_life
from rocketmq_ha.reference.mapped_file_queue import file_count
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store import max_offset
from rocketmq_ha.reference.store_state import StoreLife, StoreSettings, classify, new_store
from rocketmq_ha.spec.profile import Profile

START_MS: Final = 10_000
FILE_SIZE: Final = 200  # two records of 92 and of 100 bytes, or one and a BLANK
MOST_MESSAGES: Final = 4
ALL_PAGES: Final = (1 << 64) - 1
SETTINGS: Final = StoreSettings(
    FILE_SIZE, 60, 3, 4, file_reserved_ms=2_000, delete_when=(4,), clean_file_forcibly=True, max_log_size=FILE_SIZE
)
# While it is open.
_PUTS: Final = (
    events.Put("T", b"", "", 0),
    events.Put("T", bytes(8), "", 0),
    events.Put("T", b"", "KEYS\1k", 0),
    events.PutBatch("T", (b"",), "", 1),
)
_REFUSED: Final = (events.Put("T", b"", "K\1\0", 0), events.Put("T", bytes(FILE_SIZE), "", 0))
_ROUNDS: Final = (
    events.Flush(0),
    events.Flush(4),
    events.Dispatch(),
    events.FlushDerived(),
    events.Prepare(),
    events.WatchSpace(),
    events.Clean(4, 90, -1),
    events.Clean(5, 90, 1000),
    events.Clean(5, 10, -1),
    events.Tick(4_000),
    events.DiskFull(True),
    events.DiskFull(False),
    events.DiskFails(0),
    events.Close(),
    events.Kill(),
)
_CUTS: Final = (
    events.PowerCut(ALL_PAGES, 9, 0),
    events.PowerCut(0, 9, 0),
    events.PowerCut(0, 0, 0),
    events.PowerCut(0, 9, 89),  # of the first record in the lost sector the topic is missing
    events.PowerCut(0b10_0000_0000_0000, 9, 0),  # of the second file alone all is there
)
# While it is closed.
_HARM: Final = (
    events.Damage(0, 4, 4, 0xFF),  # the first magic
    events.Damage(0, 35, 1, 0xFF),  # a physical offset
    events.Damage(-1, 4, 4, 0xFF),
    events.Damage(0, 96, 4, 0xFF),  # the magic of the second record
    events.Damage(0, 116, 1, 0x40),  # the queue offset of the second record, which no opening checks
    events.Damage(0, 89, 60, 0xFF),  # the end of the first record and the begin of the second
    events.Shorten(0, 100),
)
# The exploration does not find this store: the start after a crash does not read its damaged first file, and the start after a
# clean stop refuses that file.
_ACCEPTED_AND_REFUSED: Final[tuple[events.Event, ...]] = (
    events.Open(),
    events.Put("T", bytes(100), "", 0),
    events.Put("T", b"", "", 0),
    events.Tick(4_000),
    events.Put("T", b"", "", 0),
    events.Flush(0),
    events.Dispatch(),
    events.FlushDerived(),
    events.Kill(),
    events.Damage(0, 4, 4, 0xFF),
    events.Open(),
    events.Close(),
    events.Open(),
)


def transitions(profile: Profile) -> Iterator[Transition]:
    """The rows of all steps from the stores that are visited."""
    yield from explore(SETTINGS, profile, _events, _kind, (_ACCEPTED_AND_REFUSED,))
    yield from explore(replace(SETTINGS, sync_flush=True), profile, _events_of_sync_flush, _kind)


def explore(
    settings: StoreSettings,
    profile: Profile,
    events_of: Callable[[StoreLife], Iterator[events.Event]],
    key: Callable[[StoreLife], Hashable],
    begins: Iterable[Iterable[events.Event]] = (),
) -> Iterator[Transition]:
    """The rows of the stores that are reached from an empty one, and from those behind `begins`. Two with one key are one."""
    frontier = deque([new_store(settings, START_MS)])
    for begin in begins:
        life = frontier[0]
        for event in begin:
            life, rows = store_life.step(life, event, settings, profile)
            yield from rows
        frontier.append(life)
    seen = {key(life) for life in frontier}
    while frontier:
        life = frontier.popleft()
        for event in events_of(life):
            after, rows = store_life.step(life, event, settings, profile)
            yield from rows
            if after != life and (name := key(after)) not in seen:
                seen.add(name)
                frontier.append(after)


def _events(life: StoreLife) -> Iterator[events.Event]:
    if not life.is_open:
        yield events.Open()
        yield events.Heal()
        yield from _CUTS
        if life.healthy is None or life.refused:
            yield from _HARM
        return
    if len(life.messages) < MOST_MESSAGES:
        yield from _PUTS
    yield from (*_REFUSED, *_ROUNDS, *_CUTS)


def _events_of_sync_flush(life: StoreLife) -> Iterator[events.Event]:
    """Puts that wait for the disk, and a disk that fails."""
    if not life.is_open:
        yield events.Open()
    elif len(life.messages) < MOST_MESSAGES:
        yield from (*_PUTS, events.DiskFails(0), events.FlushDerived(), events.Dispatch(), events.Kill())


def _kind(life: StoreLife) -> Hashable:
    """What tells a store apart from others."""
    end = max_offset(life.log)
    told = life.checkpoint_file
    return (
        classify(life),
        life.spare,
        min(file_count(life.log), 3),
        (life.log.base or 0) > 0,
        min(len(life.messages), 3),
        life.abort,
        life.healthy is not None,
        life.is_tainted,
        life.shortened is not None,
        life.is_full,
        life.refuses,
        life.fails_after,
        life.dispatched.reput_from_offset < end,
        told is not None and told.physic_msg_timestamp > 0,
        told is not None and min(told.physic_msg_timestamp, told.logics_msg_timestamp) >= life.last_stored_ms,
        life.now_ms > life.last_stored_ms if life.is_open else len(life.log.data.rstrip(b"\0")),
        life.healthy is not None and life.log.data,
    )
