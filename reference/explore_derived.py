"""The transitions of consume queues and index, found by exploring a store in small scopes (store_exploration.py).

A scope is about the queue 0 of a topic or about the index, and about expiry or about crashes. Its key has what an opening, a
dispatch and a deletion do to the files that it is about; two stores with the same key count as one.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rocketmq_ha.reference import checkpoint, consume_queue, index_file
from rocketmq_ha.reference import store_events as events
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store import max_offset, min_offset
from rocketmq_ha.reference.store_derived import classify_index, classify_queue
from rocketmq_ha.reference.store_exploration import ALL_PAGES, explore
from rocketmq_ha.reference.store_state import StoreLife, StoreSettings, classify, queue_images
from rocketmq_ha.spec.profile import Profile

FILE_SIZE: Final = 240  # two records, and room for no third
QUEUE: Final = ("T", 0)
SETTINGS: Final = StoreSettings(FILE_SIZE, 40, 3, 4, file_reserved_ms=2_000, delete_when=(4,))


@dataclass(frozen=True, slots=True)
class Scope:
    """messages: the log has at most so many; they come by `puts`. begins: the exploration begins behind each of them, too."""

    messages: int
    puts: tuple[events.Event, ...]
    while_open: tuple[events.Event, ...]
    while_closed: tuple[events.Event, ...]
    key: Callable[[StoreLife], Hashable]
    begins: tuple[tuple[events.Event, ...], ...] = ()
    settings: StoreSettings = SETTINGS


# --- What tells stores apart -----------------------------------------------------------------------------------------


def _key_of_queue(life: StoreLife) -> Hashable:
    queue = life.dispatched.queues.get(QUEUE)
    shape: Hashable = ()
    following = life.queue_offsets.get(QUEUE, 0)
    # How many entries the queue lacks; without a file, where in a file the next one would be.
    lacks = min(3, following - consume_queue.max_offset_in_queue(queue)) if queue else (min(3, following), following % 2)
    if queue is not None:
        files, images = queue.mapped_file_queue, queue_images(life)
        shape = (
            tuple(map(consume_queue.is_entry, consume_queue.entries(files.data))),
            (files.base or 0) > 0,
            consume_queue.min_offset_in_queue(queue) > 0,
            tuple(_synced(data, life.synced_queues.get(path)) for path, data in images.items() if path[:2] == QUEUE),
        )
    return _key(life), classify_queue(life, QUEUE), shape, lacks


def _key_of_index(life: StoreLife) -> Hashable:
    index = life.dispatched.index
    synced = (*life.synced_index, *[None] * len(index))
    told = life.checkpoint_file
    headers = [index_file.header(file) for file in index]
    shape = tuple((headers[number].index_count, _synced(file.data, synced[number])) for number, file in enumerate(index))
    in_a_ms = tuple(earlier.end_timestamp == later.end_timestamp for earlier, later in pairwise(headers))
    is_expired = bool(index) and headers[0].end_phy_offset < min_offset(life.log)
    return _key(life), classify_index(life), shape, in_a_ms, is_expired, told is not None and told.index_msg_timestamp > 0


def _synced(now: bytes, synced: bytes | None) -> str:
    """How the bytes of a file's last sync compare to its present ones."""
    if synced is None or not any(synced):
        return "nothing"
    return "all" if now == synced else "other"


def _key(life: StoreLife) -> Hashable:
    """What every scope depends on: the log, what is on its disk, how far the dispatch is, and what the checkpoint says."""
    end, told = max_offset(life.log), life.checkpoint_file
    vouched = checkpoint.min_timestamp(told) if told else 0
    return (
        classify(life),
        min_offset(life.log) > 0,
        end - min_offset(life.log),
        life.abort,
        None if life.healthy is None else _first_difference(life.healthy.log.data, life.log.data),
        life.fails_after,
        life.flushed_where < end,
        end - life.dispatched.reput_from_offset,
        life.now_ms - life.last_stored_ms > checkpoint.MARGIN_MS,
        sum(stored_ms <= vouched for _, stored_ms in life.messages),
    )


def _first_difference(healthy: bytes, damaged: bytes) -> int:
    return next((place for place, (was, now) in enumerate(zip(healthy, damaged, strict=False)) if was != now), -1)


# --- Scopes ----------------------------------------------------------------------------------------------------------

_OF_QUEUE: Final = events.Put("T", b"", "", 0)
_OF_ANOTHER: Final = events.Put("T", b"", "TAGS\1a", 1)
_OF_INDEX: Final = (events.Put("T", b"", "KEYS\1k", 0), events.Put("T", b"", "KEYS\1k l", 0))
_ROUNDS: Final = (events.Dispatch(), events.FlushDerived())
_EXPIRY: Final = (events.Clean(4, 90, -1), events.Tick(4_000))
_ENDS: Final = (events.DiskFails(0), events.Close(), events.Kill())
_CUTS: Final = (
    events.PowerCut(ALL_PAGES, 9, 0),
    events.PowerCut(0, 9, 0),
    events.PowerCut(1 << 8 | 1 << 49, 9, 0),  # of the queue and of the index the second file alone is there
)
# While the store is closed.
_TORN: Final = events.Damage(-1, 84, 1, 0xFF)  # the length of the body of the last file's first record
_IMPOSSIBLE: Final = events.Damage(0, 118, 1, 0x40)  # the queue offset of the first file's second record
_LOST_BEFORE_THE_START: Final = (
    events.Open(),
    _OF_ANOTHER,
    _OF_QUEUE,
    _OF_QUEUE,
    events.Tick(4_000),
    _OF_ANOTHER,
    *_ROUNDS,
    events.Flush(0),
    events.FlushDerived(),
    events.Kill(),
    events.Damage(0, 182, 1, 0xFF),  # the length of the body of the second record, which no recovery reads
)
_TWO_LOST_BEFORE_THE_START: Final = (
    events.Open(),
    *(_OF_QUEUE,) * 5,
    events.Tick(4_000),
    _OF_ANOTHER,
    *_ROUNDS,
    events.Flush(0),
    events.FlushDerived(),
    events.Kill(),
    events.Damage(1, 84, 140, 0xFF),  # both records of the second file
)
_WITH_AN_UNSYNCED_ENTRY: Final = (*_LOST_BEFORE_THE_START[:-2], _OF_QUEUE, events.Dispatch(), *_LOST_BEFORE_THE_START[-2:])
_KEY_BEHIND_DAMAGE: Final = (events.Open(), _OF_QUEUE, _OF_INDEX[0], *_ROUNDS, events.Kill(), _IMPOSSIBLE)
# All messages of the queue expire, and of its file the first sector is lost: fillers come into it (HA-ST-97).
_HOLE_IN_AN_EXPIRED_QUEUE: Final = (
    events.Open(),
    *(_OF_QUEUE,) * 40,
    events.Put("T", bytes(500), "", 1),  # in the second file of the log
    events.Flush(0),
    events.Dispatch(),
    *reversed(_EXPIRY),
    events.PowerCut(ALL_PAGES ^ 1 << 5, 9, 0),
    events.Open(),
)
# A store opens over damage, and is damaged twice more: the last opening removes the file of a queue, and is then refused.
_REFUSED_WITHOUT_A_FILE: Final = (
    events.Open(),
    events.Put("T", bytes(386), "", 0),
    events.Put("T", bytes(24), "", 0),
    events.Tick(3_000),
    events.Put("T", b"", "", 1),
    events.Dispatch(),
    events.Close(),
    events.Damage(0, 20, 2, 128),
    events.Open(),
    events.Put("T", b"", "", 1),
    events.Put("U", bytes(30), "", 0),
    events.Put("U", b"", "", 0),
    events.Put("T", bytes(21), "", 0),
    events.Close(),
    events.Damage(2, 83, 9_000, 1),
    events.Open(),
    events.Close(),
    events.Damage(1, 8, 512, 0),
    events.Open(),
)
# Damage is healed, and more comes: the opening makes the queue's file anew, with the very bytes of its last sync.
_MADE_ANEW_AS_SYNCED: Final = (
    events.Open(),
    events.Put("T", bytes(82), "", 0),
    events.Dispatch(),
    events.FlushDerived(),
    events.Put("T", bytes(382), "", 0),
    events.Flush(0),
    events.Put("T", bytes(57), "", 0),
    events.Clean(5, 86, 633),
    events.PowerCut(0, 0, 0),
    events.Open(),
    events.PutBatch("T", (bytes(147), bytes(147)), "", 0),
    events.Close(),
    events.Damage(1, 20, 2, 128),
    events.Damage(0, 27, 1, 255),
    events.Open(),
    events.Heal(),
    events.Damage(1, 42, 60, 255),
    events.Open(),
)
_CLOSED: Final = (events.Open(), _CUTS[1], _TORN, _IMPOSSIBLE)
_SCOPES: Final = (
    Scope(3, (_OF_QUEUE, _OF_ANOTHER), (*_ROUNDS, *_EXPIRY, *_ENDS), (events.Open(), _TORN), _key_of_queue),
    Scope(
        4,
        (_OF_QUEUE,),
        (*_ROUNDS, events.Flush(0), *_ENDS, *_CUTS),
        _CLOSED,
        _key_of_queue,
        (_LOST_BEFORE_THE_START, _TWO_LOST_BEFORE_THE_START, _WITH_AN_UNSYNCED_ENTRY),
    ),
    Scope(3, _OF_INDEX, (*_ROUNDS, *_EXPIRY, *_ENDS), (events.Open(), _TORN), _key_of_index),
    Scope(
        4,
        _OF_INDEX,
        (*_ROUNDS, events.Flush(0), events.Tick(4_000), *_ENDS, *_CUTS),
        _CLOSED,
        _key_of_index,
        (_KEY_BEHIND_DAMAGE,),
    ),
    Scope(  # what is behind its begin alone
        0,
        (),
        (),
        (),
        _key_of_queue,
        (_HOLE_IN_AN_EXPIRED_QUEUE,),
        replace(SETTINGS, mapped_file_size=4096, queue_file_size=1280),
    ),
    *(
        Scope(
            0, (), (), (), _key_of_queue, (begin,), StoreSettings(600, 1280, 20, 5, max_log_size=most, clean_file_forcibly=True)
        )
        for begin, most in ((_REFUSED_WITHOUT_A_FILE, 1_801), (_MADE_ANEW_AS_SYNCED, 1_200))
    ),
)


def transitions(profile: Profile) -> Iterator[Transition]:
    """The rows of all steps from the stores that are visited."""
    for scope in _SCOPES:
        yield from _explore(scope, profile)


def _explore(scope: Scope, profile: Profile) -> Iterator[Transition]:
    def events_of(life: StoreLife) -> Iterator[events.Event]:
        if life.is_open and len(life.messages) < scope.messages:
            yield from scope.puts
        yield from scope.while_open if life.is_open else scope.while_closed

    yield from explore(scope.settings, profile, events_of, scope.key, scope.begins)
