"""A corpus keeps what reached something new, in files for other processes; what is made of it comes from its recipe alone."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.schedules import put, schedule_of
from rocketmq_ha.fuzz import corpus, lockstep, mutate, recorder, schedule_file
from rocketmq_ha.fuzz.corpus import Corpus
from rocketmq_ha.fuzz.differences import Difference
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, ForgeHeader, ForgeReport, Put, Tick
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

LINK = registry.WORLDS["link"]
SPLIT = schedule_of(
    put(10),
    Connect(0, 1 << 18, 1 << 18),
    DeliverReports(0, 1 << 18),
    DeliverFrames(0, 5),
    DeliverFrames(0, 20),
    profile=HARDENED,
)


# One transition, which no later run of it can show anew.
NOTHING_NEW = lockstep.run(schedule_of(put(10), profile=CLASSIC))


def outcome_with(number: int) -> RunOutcome:
    """An outcome with a transition that no other number has."""
    step = NOTHING_NEW.last
    new = replace(step, transitions=(replace(step.transitions[0], event=f"e{number}"),))
    return replace(NOTHING_NEW, steps=(new,))


def learn(into: Corpus, outcome: RunOutcome) -> bool:
    return into.learn(outcome, recorder.digest(outcome.schedule))


def test_features_are_transitions_pairs_clauses_and_splits() -> None:
    found = list(corpus.features(lockstep.run(schedule_of(put(10), Tick(1), put(20), profile=CLASSIC))))
    first, second = ("classic", "store", "no_files", "put", "open"), ("classic", "store", "open", "put", "open")
    clauses = [
        ("clause", "classic", "store", state, clause) for state in ("no_files", "open") for clause in ("HA-ST-2", "HA-ST-4")
    ]
    assert found == [first, *clauses[:2], second, ("pair", *first, "put", "open"), *clauses[2:]]
    splits = [feature for feature in corpus.features(lockstep.run(SPLIT)) if feature[0] == "split"]
    assert splits == [
        ("split", "hardened", "slave_client", "connected", "5"),
        ("split", "hardened", "slave_client", "header_partial", "2^5"),
    ]


def test_only_what_is_new_is_kept_and_other_processes_learn_of_it(tmp_path: Path) -> None:
    one, other = Corpus(str(tmp_path)), Corpus(str(tmp_path))
    outcome = lockstep.run(SPLIT)
    assert learn(one, outcome)
    assert not learn(one, outcome)
    name = recorder.digest_name(recorder.digest(SPLIT))
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")) == [
        f"corpus/link/{name}.json",
        f"features/{name}.txt",
    ]
    assert schedule_file.read(tmp_path / "corpus" / "link" / f"{name}.json") == SPLIT
    other.read()
    assert not learn(other, outcome)
    assert learn(other, lockstep.run(schedule_of(put(10), profile=CLASSIC)))


def test_an_entry_that_another_process_wrote_is_read_once(tmp_path: Path) -> None:
    assert learn(Corpus(str(tmp_path)), lockstep.run(SPLIT))
    other = Corpus(str(tmp_path))
    for _ in range(3):
        other.read()
    assert [schedule for _, schedule in other._entries["link"]] == [SPLIT]


def test_half_of_the_parents_are_of_the_newest_entries(tmp_path: Path) -> None:
    kept = Corpus(str(tmp_path))
    count = 10 * corpus.NEWEST
    kept._entries["link"] = [(f"{number:016x}", SPLIT) for number in range(count)]
    parents = [digest for seed in range(400) if (one := kept.make(LINK.draw(seed))) for digest in one[0].split()[2:]]
    newest = sum(int(digest, 16) >= count - corpus.NEWEST for digest in parents)
    assert len(parents) > 400
    assert 0.4 < newest / len(parents) < 0.7


def test_a_failed_run_has_no_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "differences", lambda *_: [Difference("master", "log", "a", "b")])
    outcome = lockstep.run(schedule_of(put(10)))
    assert outcome.verdict != "ok"
    assert not learn(Corpus(str(tmp_path)), outcome)
    assert not list(tmp_path.iterdir())


def test_an_empty_corpus_makes_nothing_and_a_full_one_what_its_recipe_says(tmp_path: Path) -> None:
    kept = Corpus(str(tmp_path))
    assert all(kept.make(LINK.draw(seed)) is None for seed in range(20))
    for seed in range(6):
        learn(kept, lockstep.run(LINK.draw(seed)))
    made = {seed: kept.make(LINK.draw(seed)) for seed in range(5, 65)}
    texts, makers = set(), Counter[str]()
    for seed, one in made.items():
        if one is None:
            makers["draw"] += 1
            continue
        recipe, schedule = one
        maker, number, *digests = recipe.split()
        makers[maker] += 1
        assert (number, len(digests), schedule.seed) == (str(seed), corpus.PARENTS[maker], -seed - 1)
        assert corpus.from_recipe(recipe, partial(corpus.parent_of, LogStore(str(tmp_path)), "link")) == schedule
        texts.add(schedule_file.to_json(schedule))
    assert len(texts) == 60 - makers["draw"]
    assert set(makers) == {"draw", "mutate", "weave"}


def test_the_maker_that_reaches_more_makes_more(tmp_path: Path) -> None:
    """And each of the others makes some, because it may come to reach more."""
    shares = {}
    for best in ("", "mutate 1 a b", "weave 1 a b c d"):
        kept = Corpus(str(tmp_path / (best[:5] or "draw")))
        for seed in range(3000):
            for recipe in ("", "mutate 1 a b", "weave 1 a b c d"):
                kept.learn(outcome_with(seed) if recipe == best and seed % 3 == 0 else NOTHING_NEW, 1, recipe)
        made = [kept.make(LINK.draw(seed)) for seed in range(300)]
        shares[best] = Counter((one[0] if one else "draw").partition(" ")[0] for one in made)
    for best, found in shares.items():
        name = best.partition(" ")[0] or "draw"
        assert found[name] > 180, (best, found)
        assert min(found.values()) > 10 and len(found) == 3, found


def looked_at(place: str) -> None:
    corpus.check(place, corpus.files_of(LogStore(place)), ())


def test_the_corpus_of_another_log_can_be_taken_over(tmp_path: Path) -> None:
    learn(Corpus(str(tmp_path / "old")), lockstep.run(SPLIT))
    found = corpus.files_of(LogStore(str(tmp_path / "old")))
    name = recorder.digest_name(recorder.digest(SPLIT))
    assert set(found) == {f"corpus/link/{name}.json", f"features/{name}.txt"}
    file = tmp_path / "old" / "corpus" / "link" / f"{name}.json"
    with file.open("r+b") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(
        FuzzError, match=r"corpus/link/\w+\.json: found more than 16,777,216 bytes, expected at most that number"
    ):
        looked_at(str(tmp_path / "old"))
    file.write_text("{")
    with pytest.raises(FuzzError, match=r"corpus/link/\w+\.json: found no JSON"):
        looked_at(str(tmp_path / "old"))
    with pytest.raises(FuzzError, match="found no corpus/ with schedules"):
        looked_at(str(tmp_path / "new"))


@pytest.mark.parametrize("folder", ["corpus/link", "features"])
def test_a_file_of_another_corpus_that_is_no_text_is_named(tmp_path: Path, folder: str) -> None:
    learn(Corpus(str(tmp_path)), lockstep.run(SPLIT))
    (file,) = (tmp_path / folder).iterdir()
    file.write_bytes(b"{}\xff")
    with pytest.raises(FuzzError) as caught:
        looked_at(str(tmp_path))
    assert caught.value.message.endswith(f"/{folder}/{file.name}: found no UTF-8 at byte 2, expected a text")


@pytest.mark.parametrize("recipe", ["", "mutate", "mutate x a b", "splice 1 a b", "mutate 1 a b c", "weave 1 a b"])
def test_a_recipe_of_another_form_is_refused(recipe: str) -> None:
    with pytest.raises(FuzzError, match="expected mutate SEED DIGEST DIGEST or weave SEED DIGEST DIGEST DIGEST DIGEST"):
        corpus.from_recipe(recipe, lambda _: SPLIT)


@pytest.mark.parametrize("there", ["00ff", "00fe", ""])
def test_a_recipe_whose_parent_is_gone_is_refused(there: str) -> None:
    with pytest.raises(FuzzError, match=r"recipe 'mutate 1 00ff 00fe': found no schedule of such a digest in the corpus"):
        corpus.from_recipe("mutate 1 00ff 00fe", lambda digest: SPLIT if digest == there else None)


# --- Mutations -----------------------------------------------------------------------------------------------------------


def test_each_mutation_changes_a_schedule_and_none_makes_it_longer_than_it_may_be() -> None:
    parent, other = LINK.draw(1), LINK.draw(2)
    for mutation in dict.fromkeys(mutate._MUTATIONS):
        made = [mutation(random.Random(seed), LINK, parent, other, list(parent.events)) for seed in range(20)]
        assert sum(tuple(events) != parent.events for events in made) >= 15, mutation.__name__
    for seed in range(300):
        assert 0 < len(mutate.mutate(seed, parent, other, 1).events) <= mutate.MOST_EVENTS


def test_events_that_move_are_the_same_events() -> None:
    parent, other = LINK.draw(1), LINK.draw(2)
    for seed in range(20):
        moved = mutate._move(random.Random(seed), LINK, parent, other, list(parent.events))
        assert sorted(map(repr, moved)) == sorted(map(repr, parent.events))


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=list(registry.WORLDS))
def test_a_woven_schedule_has_the_sizes_of_the_drawn_one_and_events_of_the_others(world: World[Any]) -> None:
    ours = 0
    for seed in range(20):
        drawn, others = world.draw(seed), [world.draw(seed + 100 * n) for n in range(1, 5)]
        made = mutate.weave(drawn, others, -seed - 1)
        assert replace(made, seed=seed, events=()) == replace(drawn, events=())
        assert mutate.WOVEN_EVENTS <= len(made.events) < mutate.WOVEN_EVENTS + mutate.LONGEST_SLICE
        theirs = {event for other in others for event in other.events}
        assert all(event in theirs and world.fits(drawn, event) for event in made.events if event not in drawn.events)
        ours += sum(event in theirs for event in made.events)
        outcome = lockstep.run(made)
        assert outcome.verdict == "ok", (seed, outcome.last)
    assert ours > 20 * mutate.WOVEN_EVENTS / 2


def test_mutated_schedules_of_hardened_break_no_invariant() -> None:
    """An event of a classic schedule may be one that hardened cannot detect: a forged report of a possible offset."""
    hardened = [drawn for seed in range(60) if (drawn := LINK.draw(seed)).profile is HARDENED]
    classic = [drawn for seed in range(60) if (drawn := LINK.draw(seed)).profile is CLASSIC]
    for seed in range(40):
        made = mutate.mutate(seed, hardened[seed % len(hardened)], classic[seed % len(classic)], 1)
        outcome = lockstep.run(made)
        assert outcome.verdict == "ok", (seed, outcome.last)


@pytest.mark.parametrize(
    ("event", "fits"),
    [
        (Connect(0, 1, 1), True),
        (Connect(1, 1, 1), False),
        (Tick(7), True),
        (Put("orders", bytes(1000 - 8 - 91 - 6 - 8), "K\x01v", 0, wait=True), True),
        (Put("orders", bytes(1000 - 8 - 91 - 6 - 7), "K\x01v", 0, wait=True), False),
        (ForgeReport(0, -5), True),
        (ForgeReport(0, 50), False),
        (ForgeHeader(0, -1), True),
        (ForgeHeader(0, 0), False),
        (ForgeHeader(0, 3988), False),
        (ForgeHeader(0, 3989), True),
    ],
)
def test_an_event_fits_a_schedule_in_which_it_may_happen(event: object, fits: bool) -> None:
    assert LINK.fits(schedule_of(profile=HARDENED), event) is fits
    assert LINK.fits(schedule_of(profile=CLASSIC), event) is (fits or isinstance(event, ForgeHeader | ForgeReport))
