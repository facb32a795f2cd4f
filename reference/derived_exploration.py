"""Every transition that queues and index can make, found by visiting lives of a small store.

Files hold two records, two entries and two keys. There are too many such lives: of those that have the same discrete states, and
the same few facts besides, one is visited, and from it a walk goes on, drawn by hashes. What a walk meets first is visited, too.
A census of drawn schedules compares (tests/fuzz/test_queues_reach.py).
"""

import zlib
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Final

from rocketmq_ha.reference import derived_states
from rocketmq_ha.reference.derived_events import (
    Damage,
    DeleteTopic,
    Dispatch,
    Event,
    Expire,
    Flush,
    Get,
    Kill,
    PowerCut,
    Put,
    Query,
    Seek,
    Start,
    Stop,
)
from rocketmq_ha.reference.derived_life import Life, Phase, Sizes
from rocketmq_ha.reference.derived_states import States
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store import Log, max_offset
from rocketmq_ha.spec.profile import Profile

SIZES: Final = Sizes(log_file_size=250, queue_file_size=40, hash_slot_num=1, index_num=3)
KEYS: Final = (("T", 0), ("o", 0))
MOST: Final = 9  # messages that the log has, and files that it ever had
LATER_MS: Final = 4000  # a checkpoint vouches for what was stored so long before it
WALK: Final = 20  # events from each life that was visited

Node = tuple[Life, States]

OF_A_PROCESS: Final = (
    Put("T", 0, 0, "KEYS\x01a"),
    Put("T", 0, 60, ""),
    Put("o", 0, 0, "KEYS\x01a b"),
    Put("T", 0, 0, "KEYS\x01a", sys_flag=4),
    Put("T", 0, 0, "", sys_flag=12),
    Put("T", 0, 60, "", skips=1, missing=60),
    Put("T", 0, 0, "", skips=90),
    Dispatch(1),
    Dispatch(0),
    Flush("log"),
    Flush("all"),
    Flush("full_files"),
    Expire(1, True),
    Expire(1, False),
    Expire(2, True),
    Expire(2, False),
    Expire(0, True),
    DeleteTopic("T"),
    Get("T", 0, 1, 1),
    Seek("T", 0, 0, False),
    Seek("T", 0, 0, True),
    Query("T", "a", 9, 1 << 40, -1),
    Stop(),
    Kill(),
    *(PowerCut(lost, choice, 44) for lost in (0, 2) for choice in range(3)),
)
OF_NOBODY: Final = (
    *(Damage("entry", *KEYS[0], at) for at in (0, 1, 5)),
    Damage("last_file", *KEYS[0]),
    Damage("queue", *KEYS[0]),
    Damage("index_entry"),
    Damage("index_file"),
    *(Start(is_master, most) for is_master in (True, False) for most in (0, 1)),
)


def start(profile: Profile) -> Node:
    life = Life(1_000_000, Log(SIZES.log_file_size))
    return step((life, derived_states.classify(life, KEYS)), Start(True, 0), profile)[0]


def step(node: Node, event: Event, profile: Profile) -> tuple[Node, tuple[Transition, ...]]:
    life, states, transitions = derived_states.step(*node, event, SIZES, profile, KEYS)
    return (life, states), transitions


def told_apart(node: Node) -> Hashable:
    """By what two lives differ here."""
    life, states = node
    is_behind = life.dispatched.reput_from_offset < max_offset(life.log)
    return (
        *(states, life.is_master, life.abort, life.refused, bool(life.injured), is_behind),
        *(life.derived_where >= max_offset(life.log), bool(life.missing)),
    )


def events(life: Life) -> tuple[Event, ...]:
    """The events that a life is offered."""
    if life.phase is Phase.DOWN:
        return OF_NOBODY
    is_full = len(life.known) >= MOST or max_offset(life.log) >= MOST * SIZES.log_file_size
    return tuple(event for event in OF_A_PROCESS if not (is_full and isinstance(event, Put)))


def on_event(node: Node, event: Event, profile: Profile) -> tuple[Node, tuple[Transition, ...]]:
    """A step; before a put so much time passes that a checkpoint vouches for the messages before it."""
    life, states = node
    return step((replace(life, now_ms=life.now_ms + LATER_MS), states) if isinstance(event, Put) else node, event, profile)


def explore(profile: Profile) -> Iterator[Transition]:
    """All transitions, most of them often."""
    begin = start(profile)
    visited, seen, frontier, number = {told_apart(begin)}, set[Hashable](), deque([begin]), 0
    while frontier:
        node = frontier.popleft()
        reached = [on_event(node, event, profile) for event in events(node[0])]
        for at in range(WALK):
            chosen = zlib.crc32(b"%d %d" % (number, at))
            walker, _ = reached[-1]
            reached.append(on_event(walker, _drawn(events(walker[0]), chosen), profile))
        number += 1
        for after, transitions in reached:
            yield from transitions
            found = {(row.actor, row.from_state, row.event, row.to_state) for row in transitions}
            is_new = not found <= seen
            seen |= found
            if told_apart(after) not in visited or is_new:
                visited.add(told_apart(after))
                frontier.append(after)


def _drawn(offered: tuple[Event, ...], chosen: int) -> Event:
    """One of the events: as often one that puts or dispatches as any other."""
    plain = [event for event in offered if isinstance(event, Put | Dispatch)]
    pool = plain if plain and chosen % 5 < 3 else list(offered)
    return pool[chosen // 5 % len(pool)]
