"""What the schedules of a store reach: the model runs those of fixed seeds, and no possible transition is missed but for those
that are named as seldom.
"""

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.fuzz import lockstep, schedule_file
from rocketmq_ha.fuzz.worlds.store import STORE
from rocketmq_ha.fuzz.worlds.store_schedule import draw, draw_event, fault_of
from rocketmq_ha.fuzz.worlds.store_sides import ReferenceStore
from rocketmq_ha.fuzz.worlds.synced import Synced
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import store_events as events
from rocketmq_ha.spec.event_log import NO_FAULT, VERDICT_OK

TABLE = Path(__file__).parents[2] / "spec" / "transitions.json"
ACTORS = ("store_life", "consume_queue", "index")
RUNS = 1000
DIGEST = "92176051af04859a"
FAULTS = {"kill", "power_cut", "fail_flush", "fill_disk", "damage", "shorten", "clock_back"}
# Possible, and not certain to be seen in so few runs. A campaign sees each of them.
SELDOM = {
    ("settled", "put_batch"): "classic with a flush for each put, and all was on the disk before the batch",
    ("settled", "put_batch_roll"): "the same, and the batch does not fit the file",
    ("empty", "put_batch_refused"): "the disk is full before the first message",
    ("flushed", "close"): "all is dispatched and on the disk, and the checkpoint does not say so",
    ("stopped", "heal"): "damage after a clean stop that no opening has met",
    ("refused", "damage"): "an opening accepts damage that it does not read, a later one reads it, and more is damaged",
    ("refused", "shorten"): "the same, and a file is shortened",
    ("refused", "power_cut"): "the same, and the power goes",
    ("refused", "recover_abnormally"): "the same, and the new damage hides what was refused",
    ("refused", "recover_normally"): "the same after a clean stop",
}
DAMAGED = "the dispatch of an opening ends at damage before the start of recovery"
LAST_SYNC = "the file gets back the very bytes of its last sync"
MADE_AGAIN = "the index is made again, and the keys of expired messages go"
ROOM = "a message is lost, and the last file that is kept is full without it"
# The same of consume queues and of the index: (actor, from, event, to).
SELDOM_OF_DERIVED = {
    ("consume_queue", "left", "refuse", "left"): DAMAGED,
    ("consume_queue", "left", "refuse", "left_unsynced"): DAMAGED,
    ("consume_queue", "left", "refuse", "none"): DAMAGED,
    ("consume_queue", "left_unsynced", "refuse", "left"): DAMAGED,
    ("consume_queue", "left_unsynced", "refuse", "left_unsynced"): DAMAGED,
    ("consume_queue", "none", "refuse", "left_unsynced"): DAMAGED,
    ("consume_queue", "expired", "append", "synced"): LAST_SYNC,
    ("consume_queue", "unsynced", "append", "synced"): LAST_SYNC,
    ("consume_queue", "left_unsynced", "grown", "synced"): LAST_SYNC,
    ("consume_queue", "left_unsynced", "anew", "synced"): LAST_SYNC,
    (
        "consume_queue",
        "left_unsynced",
        "anew",
        "unsynced",
    ): "of a queue the one message before the start of recovery is damaged",
    ("consume_queue", "left", "anew", "expired"): "all its messages have expired, and a power cut takes a sector of it",
    ("index", "left", "refuse", "left"): DAMAGED,
    ("index", "left", "refuse", "left_unsynced"): DAMAGED,
    ("index", "left", "refuse", "none"): DAMAGED,
    ("index", "left_unsynced", "refuse", "left"): DAMAGED,
    ("index", "left_unsynced", "refuse", "left_unsynced"): DAMAGED,
    ("index", "left_unsynced", "refuse", "none"): DAMAGED,
    ("index", "none", "refuse", "left_unsynced"): DAMAGED,
    ("index", "left_unsynced", "anew", "unsynced"): MADE_AGAIN,
    ("index", "left_unsynced", "anew", "full_unsynced"): MADE_AGAIN,
    ("index", "left", "cut", "full"): ROOM,
    ("index", "left", "cut", "full_unsynced"): ROOM,
    ("index", "left_unsynced", "cut", "full"): ROOM,
    ("index", "left_unsynced", "cut", "full_unsynced"): ROOM,
    ("index", "left_unsynced", "kept", "full"): "all messages of its full file have expired, and none is left to dispatch",
    ("index", "full_unsynced", "roll", "full_unsynced"): "the keys of one dispatch fill a whole new file",
    ("index", "full_unsynced", "expire", "full_unsynced"): "the last file is full, and the first one goes",
}


@dataclass
class Reached:
    transitions: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)  # actor, profile, from, event, to
    clauses: Counter[str] = field(default_factory=Counter)
    faults: set[str] = field(default_factory=set)
    unbroken: int = 0


@pytest.fixture(scope="module")
def reached() -> Reached:
    found = Reached()
    for seed in range(RUNS):
        drawn = draw(seed)
        world = ReferenceStore(drawn.settings, drawn.profile, START_MS)
        for event in drawn.events:
            found.faults.add(fault_of(event))
            for row in world.apply(event):
                found.transitions[row.actor, drawn.profile.name, row.from_state, row.event, row.to_state] += 1
                found.clauses.update(row.clauses)
            assert world.broken() == (), (seed, event)
    return found


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def possible(table: dict[str, Any]) -> set[tuple[str, str, str, str, str]]:
    return {
        (actor, profile, before, event, after)
        for actor in ACTORS
        for before, event, after, profiles in table["machines"][actor]["transitions"]
        for profile in profiles
    }


def is_seldom(row: tuple[str, str, str, str, str]) -> bool:
    actor, _, before, event, after = row
    return (before, event) in SELDOM if actor == "store_life" else (actor, before, event, after) in SELDOM_OF_DERIVED


def test_schedules_make_no_transition_that_is_not_in_the_table(reached: Reached, table: dict[str, Any]) -> None:
    assert reached.transitions.keys() <= possible(table), sorted(reached.transitions.keys() - possible(table))


def test_schedules_make_every_possible_transition_but_seldom_ones(reached: Reached, table: dict[str, Any]) -> None:
    missing = {row for row in possible(table) - reached.transitions.keys() if not is_seldom(row)}
    assert not missing, sorted(missing)


def test_what_is_named_as_seldom_is_possible(table: dict[str, Any]) -> None:
    assert {row[2:4] for row in possible(table) if row[0] == "store_life"} >= SELDOM.keys()
    assert {(row[0], *row[2:]) for row in possible(table)} >= SELDOM_OF_DERIVED.keys()


def test_schedules_exercise_every_clause_of_the_world(reached: Reached, table: dict[str, Any]) -> None:
    of_world = {clause for clause, where in table["clauses"].items() if "store" in where["worlds"]}
    assert of_world == reached.clauses.keys()


def test_every_fault_is_drawn(reached: Reached) -> None:
    assert reached.faults == {NO_FAULT, *FAULTS}


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_schedule_is_the_same_after_a_round_trip_through_a_file(seed: int) -> None:
    drawn = draw(seed)
    assert schedule_file.from_json(schedule_file.to_json(drawn)) == drawn


def test_an_event_is_drawn_for_a_schedule_that_exists() -> None:
    drawn, rng = draw(1), random.Random(1)
    kinds = {type(draw_event(rng, drawn)) for _ in range(1000)}
    assert kinds == set(STORE.event_types)
    assert all(STORE.describe(event) for event in drawn.events)


def test_a_seed_draws_the_schedule_that_it_has_always_drawn() -> None:
    """Replays name a schedule by its seed. A deliberate change of the drawing changes the digest; say so in CHANGELOG.md."""
    digest = hashlib.blake2b(digest_size=8)
    for seed in range(50):
        digest.update(schedule_file.to_json(draw(seed)).encode())
    assert digest.hexdigest() == DIGEST


def test_events_of_mutations_can_stand_in_their_schedule() -> None:
    """Both sides take each event of a run that is made of nothing else."""
    rng = random.Random(1)
    for seed in range(20):
        drawn = draw(seed)
        made = tuple(STORE.draw_event(rng, drawn) for _ in range(60))
        outcome = lockstep.run(replace(drawn, events=(events.Open(), *made)))
        assert outcome.verdict == VERDICT_OK, (seed, outcome.last.signature, outcome.last.detail)


def test_a_new_file_is_not_synced_because_a_removed_one_had_its_inode(tmp_path: Path) -> None:
    """ext4 gives the number of a removed file to the next one."""
    disk = Synced(tmp_path)
    for number in range(20):
        file = tmp_path / "00"
        file.write_bytes(b"%02d" % number)
        assert disk.bytes_of(str(file), 2) == b"\0\0"
        disk.note(str(file), b"%02d" % number)
        assert disk.bytes_of(str(file), 2) == b"%02d" % number
        file.unlink()
    disk.close()
    disk.close()
