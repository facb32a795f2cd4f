"""The corpus of a guided campaign: the schedules that reached something that no run before them had reached.

A *feature* is a transition of a machine, a clause exercised in a state, a split at a byte in a state, or two transitions of one
machine that follow each other, each in its profile. A run with a feature that its executor does not know becomes a file,
corpus/WORLD/DIGEST.json, so that all executors learn of it at the begin of their next partition. The file is a schedule
(schedule_file.py): it can be replayed, shrunk, or copied into the corpus of another campaign.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final

from rocketmq_ha.fuzz import mutate, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.recorder import digest_name
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.event_log import CORPUS_DIR, FEATURES_DIR, VERDICT_OK

Feature = tuple[str, ...]
RECIPE: Final = "mutate"
LONGEST_NEWEST: Final = 50  # entries that count as new, and are chosen half of the time


def features(outcome: RunOutcome) -> Iterator[Feature]:
    """The features of a run, with repetitions."""
    profile = outcome.schedule.profile.name
    last: dict[tuple[str, int], Feature] = {}
    for step in outcome.steps:
        for row in step.transitions:
            transition = (profile, row.actor, row.from_state, row.event, row.to_state)
            yield transition
            before = last.get((row.actor, row.instance))
            if before is not None:
                yield ("pair", *before, *transition[3:])
            last[row.actor, row.instance] = transition
            for clause in row.clauses:
                yield ("clause", profile, row.actor, row.from_state, clause)
            if row.split_at:
                # Each byte of a header is a place of its own; bodies are told apart by the size of what is held.
                at = row.split_at
                place = str(at) if at <= TRANSFER_HEADER_SIZE else f"2^{at.bit_length()}"
                yield ("split", profile, row.actor, row.from_state, place)


class Corpus:
    """What one process knows of the corpus of a campaign."""

    def __init__(self, place: str) -> None:
        self._store = LogStore(place)
        self._known: set[Feature] = set()
        self._read: set[str] = set()  # names of files
        self._entries: dict[str, list[tuple[str, Schedule]]] = {}  # by world: (digest, schedule)

    def read(self) -> None:
        """Read what other processes have added since the last call."""
        for name in self._store.names(CORPUS_DIR):
            if name not in self._read and (data := self._store.read(name)) is not None:
                self._read.add(name)
                schedule = schedule_file.from_json(data.decode(), name)
                world = registry.world_of(schedule).name
                self._entries.setdefault(world, []).append((name.rpartition("/")[2].removesuffix(".json"), schedule))
        for name in self._store.names(FEATURES_DIR):
            if name not in self._read and (data := self._store.read(name)) is not None:
                self._read.add(name)
                self._known.update(tuple(line.split("|")) for line in data.decode().splitlines())

    def learn(self, outcome: RunOutcome, digest: int) -> bool:
        """Add the schedule of a run that reached something new. Returns: True if it did."""
        new = {feature for feature in features(outcome) if feature not in self._known}
        if not new or outcome.verdict != VERDICT_OK:  # a failed run stands in failures/ already; its children would fail alike
            return False
        self._known |= new
        world, name = registry.world_of(outcome.schedule).name, digest_name(digest)
        # The features come first: a schedule without them would be found anew by everyone.
        self._write(f"{FEATURES_DIR}/{name}.txt", "".join(f"{'|'.join(feature)}\n" for feature in sorted(new)))
        self._write(f"{CORPUS_DIR}/{world}/{name}.json", schedule_file.to_json(outcome.schedule))
        self._entries.setdefault(world, []).append((name, outcome.schedule))
        return True

    def _write(self, name: str, text: str) -> None:
        self._store.write(name, text.encode())
        self._read.add(name)

    def make(self, seed: int, drawn: Schedule) -> tuple[str, Schedule] | None:
        """A new schedule of the drawn one's world: (its recipe, the schedule); None while the corpus has none of that world.

        Which parents are chosen depends on what the corpus holds at this moment; the recipe names them.
        """
        entries = self._entries.get(registry.world_of(drawn).name)
        if not entries:
            return None
        rng = random.Random(f"guided {seed}")
        (first, parent), (second, other) = _choose(rng, entries), _choose(rng, entries)
        return f"{RECIPE} {seed} {first} {second}", mutate.mutate(seed, parent, other, -seed - 1)


def _choose(rng: random.Random, entries: list[tuple[str, Schedule]]) -> tuple[str, Schedule]:
    newest = entries[-LONGEST_NEWEST:]
    return rng.choice(newest if rng.random() < 0.5 else entries)


def files_of(store: LogStore) -> dict[str, bytes]:
    """The files of a log's corpus, by name, for another campaign to begin with. Raises: FuzzError, for a wrong or empty one."""
    found = {}
    for folder in (CORPUS_DIR, FEATURES_DIR):
        for name in store.names(folder):
            data = store.read(name)
            assert data is not None
            if folder == CORPUS_DIR:
                schedule_file.from_json(data.decode(), f"{store.place}/{name}")
            found[name] = data
    if not any(name.startswith(CORPUS_DIR) for name in found):
        raise FuzzError(f"{store.place}: found no {CORPUS_DIR}/ with schedules, expected the log of a guided campaign")
    return found


def from_recipe(recipe: str, find: Callable[[str], Schedule | None]) -> Schedule:
    """The schedule of a guided run. Args: find: gives a parent by its digest's name. Raises: FuzzError, for a wrong recipe."""
    words = recipe.split()
    if len(words) != 4 or words[0] != RECIPE or not words[1].isdigit():
        raise FuzzError(f"recipe {recipe!r}: expected {RECIPE} SEED DIGEST DIGEST")
    parents = [find(digest) for digest in words[2:]]
    if parents[0] is None or parents[1] is None:
        raise FuzzError(f"recipe {recipe!r}: found no schedule of such a digest in the corpus")
    seed = int(words[1])
    return mutate.mutate(seed, parents[0], parents[1], -seed - 1)


def parent_of(store: LogStore, world: str, digest: str) -> Schedule | None:
    """A schedule of the corpus of a log, by its digest's name."""
    name = f"{CORPUS_DIR}/{world}/{digest}.json"
    data = store.read(name)
    return None if data is None else schedule_file.from_json(data.decode(), f"{store.place}/{name}")
