"""Claims by clause: each is a function that says whether the clause holds of one specimen, or does not apply to it.

A claim quotes the words of the clause that it holds; `words.py` compares the quotes with the clause.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from specimens import Golden, specimens

from rocketmq_ha.spec import clauses

Verdict = bool | None  # None: the premise does not apply
Function = TypeVar("Function", bound=Callable[[Any], Verdict])
OTHER_KINDS: Final = ("behaviour", "time", "configuration", "consumer", "ours")
CHAPTERS: Final = ("HA-W-", "HA-ST-", "HA-MD-", "HA-R-")
LISTS: Final = Path(__file__).with_name("not_held.toml")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one function claims of each specimen of a kind."""

    quotes: Mapping[str, tuple[str, ...]]  # by clause: its words that the claim holds
    kind: type
    holds: Callable[[Any], Verdict]

    @property
    def clause_ids(self) -> tuple[str, ...]:
        return tuple(self.quotes)

    @property
    def name(self) -> str:
        return self.holds.__name__


CLAIMS: list[Claim] = []


def claim(*words: str) -> Callable[[Function], Function]:
    """Register a function under its clauses; the annotation of its one parameter says what it is about.

    Args:  words: the id of a clause, then the quotes of it; and again for each further clause.
    """

    def take(function: Function) -> Function:
        CLAIMS.append(claim_of(function, *words))
        return function

    return take


def claim_of(function: Callable[[Any], Verdict], *words: str) -> Claim:
    kinds = [kind for name, kind in get_type_hints(function).items() if name != "return"]
    assert len(kinds) == 1, function
    quotes: dict[str, tuple[str, ...]] = {}
    clause_id = ""
    for word in words:
        if clauses.CLAUSE_ID.fullmatch(word):
            clause_id = word
            quotes[clause_id] = ()
        else:
            quotes[clause_id] += (word,)
    return Claim(quotes, kinds[0], function)


@dataclass
class Held:
    """How many specimens a clause was held against, of which release, and of which it does not hold."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (clause, release) -> specimens
    met: Counter[str] = field(default_factory=Counter)  # claim's name -> specimens whose premise applies
    refuted: list[tuple[str, str, str, str]] = field(default_factory=list)  # clause, claim, store, specimen

    def of(self, clause_id: str) -> int:
        return sum(count for (held, _), count in self.counts.items() if held == clause_id)


def hold(goldens: Iterable[Golden], claims: Iterable[Claim]) -> Held:
    """Give every specimen to every claim of its kind."""
    by_kind: dict[type, list[Claim]] = {}
    for each in claims:
        by_kind.setdefault(each.kind, []).append(each)
    held = Held()
    for golden in goldens:
        for specimen in specimens(golden):
            for each in by_kind.get(type(specimen), ()):
                verdict = each.holds(specimen)
                if verdict is None:
                    continue
                held.met[each.name] += 1
                for clause_id in each.clause_ids:
                    held.counts[clause_id, golden.release] += 1
                    if not verdict:
                        held.refuted.append((clause_id, each.name, specimen.store.name, str(specimen)))
    return held


@dataclass(frozen=True)
class Lists:
    """The clauses that are held against no bytes."""

    other: Mapping[str, str]  # of another kind, in a word
    unseen: Mapping[str, str]  # of this kind, and why no golden byte exercises it
    # Of clauses with a claim: the words that no claim holds, and why.
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_lists(file: Path = LISTS) -> Lists:
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    return Lists(found["of_another_kind"], found["unseen"], found["words"])


def clause_ids() -> list[str]:
    """Of the four chapters, in their order."""
    return [clause_id for clause_id in clauses.load() if clause_id.startswith(CHAPTERS)]


def errors(held: Held, claims: Iterable[Claim], lists: Lists, known: Iterable[str]) -> Iterator[str]:
    """What is wrong with the claims, the lists, or RocketMQ's bytes."""
    known = list(known)
    claimed = {clause_id for each in claims for clause_id in each.clause_ids}
    for clause_id, name, store, specimen in held.refuted:
        yield f"{clause_id} ({name}) does not hold in {store}: {specimen}"
    for each in claims:
        if not held.met[each.name] and not all(clause_id in lists.unseen for clause_id in each.clause_ids):
            yield f"{each.clause_ids[0]} ({each.name}): no golden byte meets its premise"
    for clause_id, kind in lists.other.items():
        if kind not in OTHER_KINDS:
            yield f"{clause_id} stands in {LISTS.name} as {kind!r}, expected one of {', '.join(OTHER_KINDS)}"
    for clause_id in sorted(claimed | set(lists.other) | set(lists.unseen)):
        if clause_id not in known:
            yield f"{clause_id} is no clause of chapters 1, 5, 6 and 7"
        if clause_id in lists.other and (clause_id in claimed or clause_id in lists.unseen):
            yield f"{clause_id} stands in not_held.toml as of another kind, and has a claim or stands there twice"
        if clause_id in lists.unseen and held.of(clause_id):
            yield f"{clause_id} stands in not_held.toml as unseen, but {held.of(clause_id)} specimens exercise it"
    for clause_id in known:
        if clause_id not in claimed and clause_id not in lists.other and clause_id not in lists.unseen:
            yield f"{clause_id} has no claim, and does not stand in {LISTS.name}"


def table(held: Held, claims: Iterable[Claim], lists: Lists, releases: Iterable[str]) -> Iterator[str]:
    """A line for each clause: how many specimens of each release, by which claims; or why none."""
    releases = list(releases)
    claims = list(claims)
    yield f"{'clause':<10}" + "".join(f"{release:>8}" for release in releases) + "  held by"
    total = 0
    for clause_id in clause_ids():
        here = [each for each in claims if clause_id in each.clause_ids]
        if here and clause_id not in lists.unseen:
            counts = [held.counts[clause_id, release] for release in releases]
            total += sum(counts)
            wrong = sum(refuted[0] == clause_id for refuted in held.refuted)
            names = ", ".join(f"{each.name} ({each.kind.__name__})" for each in here)
            numbers = "".join(f"{count:>8}" for count in counts)
            yield f"{clause_id:<10}{numbers}  {names}" + (f"  REFUTED by {wrong}" if wrong else "")
        else:
            why = lists.other.get(clause_id) or f"unseen: {lists.unseen.get(clause_id, '?')}"
            yield f"{clause_id:<10}{'-' * 8 * len(releases)}  {why}"
    ids = clause_ids()
    held_ids = [clause_id for clause_id in ids if held.of(clause_id)]
    unseen = sum(clause_id in lists.unseen for clause_id in ids)
    yield ""
    yield (
        f"{len(held_ids)} of {len(ids)} clauses are held against {total} specimens; {len(lists.other)} say nothing of bytes, "
        f"{unseen} no golden byte exercises; {len(held.refuted)} specimens refute a claim"
    )
