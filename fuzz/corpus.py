"""The corpus of a guided campaign: the schedules that reached something that no run before them had reached.

A *feature* is a transition of a machine, a clause exercised in a state, a split at a byte in a state, or two transitions of one
machine that follow each other, each in its profile. A run with a feature that its executor does not know becomes a file,
corpus/WORLD/DIGEST.json, so that all executors learn of it at the begin of their next partition. The file is a schedule
(schedule_file.py): it can be replayed, shrunk, or copied into the corpus of another campaign.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
DRAW, MUTATE, WEAVE = "draw", "mutate", "weave"  # the makers of a guided campaign; the latter two begin a recipe
PARENTS: Final = {MUTATE: 2, WEAVE: 4}
NEWEST: Final = 50  # entries that count as new, and are chosen half of the time
LEAST_SHARE: Final = 0.1  # of the runs, that each maker gets
MEMORY: Final = 0.995  # of an older run's result, against that of the next run of its maker


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


@dataclass(slots=True)
class Yield:
    """What the last runs of a maker have reached. It begins with a guess, so that no maker is given up for its first runs.

    The work of a run is the number of its events: its time would say something else on every machine.
    """

    events: float = 2_000.0
    features: float = 20.0

    def add(self, features: int, events: int) -> None:
        self.events = self.events * MEMORY + events
        self.features = self.features * MEMORY + features


class Corpus:
    """What one process knows of the corpus of a campaign."""

    def __init__(self, place: str) -> None:
        self._store = LogStore(place)
        self._known: set[Feature] = set()
        self._read: set[str] = set()  # names of files
        self._entries: dict[str, list[tuple[str, Schedule]]] = {}  # by world: (digest, schedule)
        self._yields: dict[tuple[str, str], Yield] = {}  # by world and maker

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

    def learn(self, outcome: RunOutcome, digest: int, recipe: str = "") -> bool:
        """Add the schedule of a run that reached something new. Returns: True if it did."""
        new = {feature for feature in features(outcome) if feature not in self._known}
        world, name = registry.world_of(outcome.schedule).name, digest_name(digest)
        self._yields.setdefault((world, recipe.partition(" ")[0] or DRAW), Yield()).add(len(new), len(outcome.steps))
        if not new or outcome.verdict != VERDICT_OK:  # a failed run stands in failures/ already; its children would fail alike
            return False
        self._known |= new
        # The features come first: a schedule without them would be found anew by everyone.
        self._write(f"{FEATURES_DIR}/{name}.txt", "".join(f"{'|'.join(feature)}\n" for feature in sorted(new)))
        self._write(f"{CORPUS_DIR}/{world}/{name}.json", schedule_file.to_json(outcome.schedule))
        self._entries.setdefault(world, []).append((name, outcome.schedule))
        return True

    def _write(self, name: str, text: str) -> None:
        self._store.write(name, text.encode())
        self._read.add(name)

    def make(self, drawn: Schedule) -> tuple[str, Schedule] | None:
        """A new schedule in place of a drawn one, of its world: (its recipe, the schedule). None: the drawn one shall run.

        The maker that reached more in its last runs is chosen more often. Which one, and which parents, depends on what the
        corpus holds at this moment; the recipe names them.
        """
        world, seed = registry.world_of(drawn).name, drawn.seed
        entries = self._entries.get(world)
        rng = random.Random(f"guided {seed}")
        maker = self._maker(rng, world)
        if not entries or maker == DRAW:
            return None
        parents = [_choose(rng, entries) for _ in range(PARENTS[maker])]
        recipe = " ".join((maker, str(seed), *(digest for digest, _ in parents)))
        return recipe, _made(maker, seed, [schedule for _, schedule in parents])

    def _maker(self, rng: random.Random, world: str) -> str:
        makers = (DRAW, *PARENTS)
        found = [self._yields.get((world, maker), Yield()) for maker in makers]
        rates = [one.features / one.events for one in found]
        least = LEAST_SHARE * sum(rates)
        return rng.choices(makers, [max(rate, least) for rate in rates])[0]


def _choose(rng: random.Random, entries: list[tuple[str, Schedule]]) -> tuple[str, Schedule]:
    return rng.choice(entries[-NEWEST:] if rng.random() < 0.5 else entries)


def _made(maker: str, seed: int, parents: Sequence[Schedule]) -> Schedule:
    """A guided run has the negative of its seed, less one, as its number."""
    if maker == MUTATE:
        return mutate.mutate(seed, parents[0], parents[1], -seed - 1)
    return mutate.weave(registry.world_of(parents[0]).draw(seed), parents, -seed - 1)


def files_of(store: LogStore) -> dict[str, bytes]:
    """The files of a log's corpus, by name, for another campaign to begin with, as they are; `check` refuses a cut one."""
    found = {}
    for folder in (CORPUS_DIR, FEATURES_DIR):
        for name in store.names(folder):
            data = store.read(name, schedule_file.MOST_SIZE + 1)
            assert data is not None
            found[name] = data
    return found


def check(
    place: str, files: Mapping[str, bytes], worlds: Sequence[str], progress: Callable[[int], None] = lambda _: None
) -> None:
    """See that a campaign can begin with the corpus of a log, or go on with its own. Thousands of schedules take some seconds.

    Args: place: of the log. files: see files_of. worlds: of the campaign; all, if empty. progress: is called with the number of
          files that are done.
    Raises: FuzzError, for a wrong or empty corpus, and for one that has nothing for any of the worlds.
    """
    of_worlds: set[str] = set()
    for number, (name, data) in enumerate(files.items(), 1):
        text = schedule_file.decoded(data, f"{place}/{name}")
        if name.startswith(CORPUS_DIR):
            of_worlds.add(registry.world_of(schedule_file.from_user(text, f"{place}/{name}")).name)
        progress(number)
    if not of_worlds:
        raise FuzzError(f"{place}: found no {CORPUS_DIR}/ with schedules, expected the log of a guided campaign")
    if worlds and of_worlds.isdisjoint(worlds):
        held = ", ".join(sorted(of_worlds))
        raise FuzzError(f"{place}: found a corpus of {held}, expected one of {' or '.join(worlds)}")


def from_recipe(recipe: str, find: Callable[[str], Schedule | None]) -> Schedule:
    """The schedule of a guided run. Args: find: gives a parent by its digest's name. Raises: FuzzError, for a wrong recipe."""
    maker, *words = recipe.split() or [""]
    if maker not in PARENTS or len(words) != 1 + PARENTS[maker] or not words[0].isdigit():
        forms = " or ".join(f"{maker} SEED{' DIGEST' * n}" for maker, n in PARENTS.items())
        raise FuzzError(f"recipe {recipe!r}: expected {forms}")
    parents = [found for digest in words[1:] if (found := find(digest)) is not None]
    if len(parents) < PARENTS[maker]:
        raise FuzzError(f"recipe {recipe!r}: found no schedule of such a digest in the corpus")
    return _made(maker, int(words[0]), parents)


def parent_of(store: LogStore, world: str, digest: str) -> Schedule | None:
    """A schedule of the corpus of a log, by its digest's name."""
    name = f"{CORPUS_DIR}/{world}/{digest}.json"
    data = store.read(name)
    return None if data is None else schedule_file.from_json(data.decode(), f"{store.place}/{name}")
