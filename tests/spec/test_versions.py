"""spec/versions.toml is well-formed and complete, and agrees with the catalogue of quirks and the record of runs."""

import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.app.doctor.known_quirks import parse_version, quirks_of
from rocketmq_ha.impl.store.derived.index_keys import KEY_SETS
from rocketmq_ha.spec import clauses, release_table, release_texts
from rocketmq_ha.spec.release_table import RELEASES, ROCKETMQ, Behaviour, Range, number

SPEC = Path(__file__).parents[2] / "spec"
RAW: dict[str, Any] = tomllib.loads((SPEC / "versions.toml").read_text(encoding="utf-8"))
BEHAVIOURS = release_table.load()
of_each = pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.name)
CATALOGUE = (SPEC / "violations.md").read_text(encoding="utf-8")


def ranges() -> Iterator[tuple[Behaviour, Range]]:
    for behaviour in BEHAVIOURS:
        for found in behaviour.ranges:
            yield behaviour, found


# --- The form ----------------------------------------------------------------------------------------------------------------


def test_nothing_stands_in_a_row_that_nobody_reads() -> None:
    assert set(RAW) == {"files", "behaviour"}
    for row in RAW["behaviour"]:
        assert set(row) >= {"name", "table", "classic", "hardened", "releases"}, row["name"]
        assert set(row) <= {"name", "table", "classic", "hardened", "releases", "clauses", "quirks"}, row["name"]
        for found in row["releases"]:
            assert set(found) <= {"from", "to", "value", "source", "run", "without", "implementation"}, (row["name"], found)
    assert len({behaviour.name for behaviour in BEHAVIOURS}) == len(BEHAVIOURS)


@of_each
def test_each_release_stands_in_exactly_one_range(behaviour: Behaviour) -> None:
    for release in RELEASES:
        assert sum(release in found for found in behaviour.of()) == 1, release


@of_each
def test_ranges_ascend_and_do_not_overlap(behaviour: Behaviour) -> None:
    for implementation in {found.implementation for found in behaviour.ranges}:
        told = behaviour.of(implementation)
        assert all(number(found.first) <= number(found.last) for found in told)
        assert all(number(one.last) < number(other.first) for one, other in itertools.pairwise(told))


@of_each
def test_nothing_is_open(behaviour: Behaviour) -> None:
    """Each value is a fact: no question mark, no "unknown", and no bar, which would break a table."""
    for text in (behaviour.name, behaviour.classic, behaviour.hardened, *(found.value for found in behaviour.ranges)):
        assert text
        assert not re.search(r"\?|\bunknown\b|\|", text), text
    assert all("; " not in found.value for found in behaviour.ranges), "spans are parted so"


def test_each_range_says_where_it_is_known_from() -> None:
    """A source names a class of [files], where each class has one file; a run names releases of the range."""
    for behaviour, found in ranges():
        assert found.source or found.run, behaviour.name
        if found.source and found.implementation == ROCKETMQ:
            assert re.fullmatch(r"[A-Z]\w+(\.\w+)+", found.source), found.source
            assert found.source.partition(".")[0] in RAW["files"], found.source
        assert all(release in found for release in found.run), (behaviour.name, found.run)
    named = {found.source.partition(".")[0] for _, found in ranges()}
    assert named >= set(RAW["files"]), "a file that no row names"
    for name, paths in RAW["files"].items():
        assert all(path.endswith(f"/src/main/java/org/apache/rocketmq/{path.split('/rocketmq/')[1]}") for path in paths)
        assert all(path.endswith(f"/{name}.java") for path in paths), name


def test_a_method_is_spelt_alike_wherever_it_is_named() -> None:
    """No two methods of a class differ in case alone, and none is named both with and without its class."""
    spelt: dict[tuple[str, str], str] = {}
    for _, found in ranges():
        if found.source and found.implementation == ROCKETMQ:
            outer, *_, method = found.source.split(".")
            inner = found.source.removeprefix(outer)
            if method not in {"run", "processReadEvent"}:  # names that several inner classes have
                assert spelt.setdefault((outer, method.lower()), inner) == inner, found.source


def test_the_clauses_are_there() -> None:
    known = clauses.load()
    for behaviour in BEHAVIOURS:
        told = [*behaviour.clauses, *re.findall(r"HA-[A-Z]+-\d+", behaviour.classic + behaviour.hardened)]
        assert all(clause in known for clause in told), (behaviour.name, told)


# --- The catalogue -----------------------------------------------------------------------------------------------------------


def catalogued() -> set[int]:
    return {int(row[2] or row[3]) for row in release_texts.ROW.finditer(CATALOGUE)}


def test_each_quirk_has_a_row_and_each_number_is_a_quirk() -> None:
    assert catalogued() == set(release_table.quirks())
    for behaviour, found in ranges():
        assert found.without <= set(behaviour.quirks), (behaviour.name, found.without)


def test_no_release_stands_in_the_overview_by_hand() -> None:
    for row in release_texts.ROW.finditer(CATALOGUE):
        assert not re.search(r"\b\d\.\d+(\.\d+|\.x)?\b|\b[45]\.x\b", row[1].split(" | ", 1)[1]), row[1]


def test_each_section_has_its_paragraph_between_the_markers() -> None:
    sections = [int(number_) for number_, _ in release_texts.SECTION.findall(CATALOGUE)]
    assert [int(block[2]) for block in release_texts.VERSIONS.finditer(CATALOGUE)] == sections
    assert CATALOGUE.count("**Versions.**") == len(sections)


def test_what_ran_is_in_the_record_of_runs_and_in_a_row() -> None:
    """spec/violations.toml: a release that showed a quirk is listed as having it, and a row with the quirk names that run."""
    for item in tomllib.loads((SPEC / "violations.toml").read_text(encoding="utf-8"))["shown"]:
        ran = {
            release
            for behaviour in BEHAVIOURS
            if item["quirk"] in behaviour.quirks
            for found in behaviour.of()
            for release in found.run
        }
        assert set(item) - {"quirk"} <= ran, item["quirk"]


@pytest.mark.parametrize(
    ("quirk", "with_it", "without_it"), [(2, "4.9.8", "5.3.3"), (3, "4.9.2", "5.4.0"), (22, "5.3.3", "5.4.0")]
)
def test_a_run_that_did_not_show_a_quirk_is_no_run_of_it(quirk: int, with_it: str, without_it: str) -> None:
    ran = {release for row in BEHAVIOURS if quirk in row.quirks for found in row.of() for release in found.run}
    assert {with_it, without_it} <= ran
    assert with_it in release_table.runs_of(quirk)
    assert without_it not in release_table.runs_of(quirk)


def test_a_quirk_of_two_behaviours_is_in_both_rows() -> None:
    """If one of the two rows lacked the number, the quirk would still be catalogued, but with the releases of one row only."""
    rows = {quirk: [row.name for row in BEHAVIOURS if quirk in row.quirks] for quirk in release_table.quirks()}
    assert {quirk: names for quirk, names in rows.items() if len(names) > 1} == {
        1: ["a first report beyond the log", "a later report beyond the log"],
        6: ["`lastWriteTimestamp` is set by", "heartbeats of the master, at least as often as the slave's reports are due"],
        28: ["a slave is closed after a silence of", "a clock that steps back"],
        36: ["a put whose flush fails", "the flushed position, after a flush that failed"],
    }


def test_every_text_is_what_the_table_makes_of_it() -> None:
    for path, text in release_texts.texts().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: make transitions"


# --- Other documents that name releases
# ---------------------------------------------------------------------------------------------


def test_the_key_sets_of_verify_are_those_of_the_table() -> None:
    """HA-ST-47 "MUST all be of one of these sets": `verify` prints the releases of the matching row."""
    (behaviour,) = (each for each in BEHAVIOURS if each.name == "keys of the index")
    told = set()
    for found in behaviour.ranges:
        span = found.first if found.first == found.last else f"{found.first}-{found.last}"
        prefix = "" if found.implementation == ROCKETMQ else f"{found.implementation}-"
        told.add((f"{prefix}{span}", "#T#" in found.value, "#U#" in found.value))
    assert {(key_set.releases, key_set.has_tags, key_set.marks_unique) for key_set in KEY_SETS} <= told


@pytest.mark.parametrize(
    ("words", "behaviour", "value"),
    [
        ("reports can starve", "heartbeats of the master, at least as often as the slave's reports are due", "keep the slave"),
        ("never notices a master", "a silent master", "is never noticed"),
        ("says nothing for 5 s", "the first report of a connection", "comes after more than 5 s"),
        ("closes the connection, from the second", "a later report beyond the log", "closes"),
        ("each connection counts as a slave", "a socket that never reports", "counts as a slave"),
        ("connections that ended while they began", "a connection that ends while it starts", "stays listed for ever, and"),
        ("does not wait for a slave", "whose acknowledgement counts", "with `inSyncReplicas` of 1"),
        ("flow control", "flow control", "`haFlowControlEnable`"),
        ("may make nothing of haMasterAddress", "a slave with `haMasterAddress`", "loses it"),
    ],
)
def test_doctor_tells_of_the_releases_that_the_table_has(words: str, behaviour: str, value: str) -> None:
    """Doctor prints the line for exactly those releases for which the table has this value."""
    (row,) = (each for each in BEHAVIOURS if each.name == behaviour)
    begun = {found.first for each in BEHAVIOURS for found in each.of()} | {
        found.last for each in BEHAVIOURS for found in each.of()
    }
    for release in begun | set(RELEASES):
        for found in row.of():
            if release in found:
                version = parse_version("V" + release.replace(".", "_"))
                assert version is not None
                told = any(words in line for line in quirks_of(version))
                assert told == found.value.startswith(value), release
