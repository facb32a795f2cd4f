"""A release that a clause names as a border is a border of a row of versions.toml that the clause has."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
import registry

from rocketmq_ha.spec import clauses, release_table
from rocketmq_ha.spec.clauses import Clause
from rocketmq_ha.spec.release_table import Behaviour

SPEC = Path(clauses.__file__).parent
RELEASE = r"(\d+\.\d+\.\d+)"
# What begins, or what ends, with the release. "4.3.0 to 4.9.8" is a border in a Why; in a Source it says what was read.
BEGINS = (re.compile(rf"\bfrom {RELEASE} on\b", re.IGNORECASE), re.compile(rf"{RELEASE} and later\b"))
ENDS = (re.compile(rf"\b(?:until|up to) {RELEASE}", re.IGNORECASE), re.compile(rf"{RELEASE} and earlier\b"))
SPAN = re.compile(rf"{RELEASE} to {RELEASE}")


def wrong_borders(
    known: Mapping[str, Clause], rows: Iterable[Behaviour], excused: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """An error for each border of which no row of the clause knows. A clause without a row is not looked at."""
    found: dict[str, list[Behaviour]] = {}
    for row in rows:
        for clause_id in row.clauses:
            found.setdefault(clause_id, []).append(row)
    for clause_id, its_rows in found.items():
        ranges = [(first, last) for row in its_rows for first, last, _ in release_table.merge_ranges(row.of())]
        firsts, lasts = ({each[at] for each in ranges} for at in (0, 1))
        its_excuses = dict(excused.get(clause_id, {}))
        for part in ("Why", "Source"):
            text = known[clause_id].part(part)
            named = [(words[0], words[1] in firsts) for pattern in BEGINS for words in pattern.finditer(text)]
            named += [(words[0], words[1] in lasts) for pattern in ENDS for words in pattern.finditer(text)]
            if part == "Why":
                named += [(words[0], words[1] in firsts and words[2] in lasts) for words in SPAN.finditer(text)]
            for words, is_border in named:
                if not is_border and not its_excuses.pop(words, None):
                    told = ", ".join(f"{first} to {last}" for first, last in ranges)
                    yield f'{clause_id}: its {part} says "{words}", its rows of versions.toml have {told}'
        for words in its_excuses:
            yield f'{registry.LISTS.name}: {clause_id} has no border "{words}" that its rows do not have'
    for clause_id in sorted(set(excused) - set(found)):
        yield f"{registry.LISTS.name}: {clause_id} has no row in versions.toml"


@pytest.fixture(scope="module")
def excused() -> dict[str, dict[str, str]]:
    lists: dict[str, dict[str, dict[str, str]]] = tomllib.loads(registry.LISTS.read_text(encoding="utf-8"))
    return lists["borders"]


def test_the_borders_that_clauses_name_are_those_of_versions_toml(excused: dict[str, dict[str, str]]) -> None:
    assert list(wrong_borders(clauses.read(SPEC), release_table.load(), excused)) == []


def test_a_border_that_moves_in_versions_toml_is_noticed(excused: dict[str, dict[str, str]]) -> None:
    text = release_table.TABLE.read_text(encoding="utf-8")
    name = 'name = "records are written as"'
    head, _, tail = text.partition(name)
    moved = release_table.read(head + name + tail.replace('"5.0.0"', '"5.1.3"', 1).replace('"5.1.0"', '"5.1.4"', 1))
    told = list(wrong_borders(clauses.read(SPEC), moved, excused))
    assert len(told) == 1 and told[0].startswith('HA-ST-2: its Source says "5.1.0 and later"'), told
