"""spec/versions.toml is of its form: each row says who does what, and where that is known from."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.store.index_keys import KEY_SETS
from rocketmq_ha.spec import clauses

SPEC = Path(__file__).parents[2] / "spec"
NEEDED = {"behaviour", "releases", "value", "source", "where"}
OPTIONAL = {"implementation", "clause"}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((SPEC / "versions.toml").read_text(encoding="utf-8"))["row"]
    return found


def number(release: str) -> tuple[int, ...]:
    assert re.fullmatch(r"\d+\.\d+\.\d+", release), release
    return tuple(map(int, release.split(".")))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['behaviour']} {row['releases'][0]}")
def test_a_row_has_its_fields(row: dict[str, Any]) -> None:
    assert set(row) >= NEEDED
    assert set(row) <= NEEDED | OPTIONAL
    assert all(isinstance(value, str) and value for name, value in row.items() if name != "releases")
    first, last = row["releases"]
    assert number(first) <= number(last)
    assert row["source"] in ("source", "run")
    if "clause" in row:
        assert f"**{row['clause']}.**" in "".join(path.read_text(encoding="utf-8") for path in clauses.chapters(SPEC))


def test_no_release_does_two_things() -> None:
    every = rows()
    for one in every:
        for other in every:
            if (
                one is other
                or one["behaviour"] != other["behaviour"]
                or one.get("implementation") != other.get("implementation")
            ):
                continue
            (first, last), (other_first, other_last) = one["releases"], other["releases"]
            assert number(last) < number(other_first) or number(other_last) < number(first), (one, other)


def test_the_key_sets_of_verify_are_those_of_the_table() -> None:
    """HA-ST-47 "MUST all be of one of these sets": what `verify` prints names the releases of such a row."""
    told = set()
    for row in rows():
        if row["behaviour"] == "keys of the index":
            first, last = row["releases"]
            span = first if first == last else f"{first}-{last}"
            prefix = f"{row['implementation']}-" if "implementation" in row else ""
            told.add((f"{prefix}{span}", "#T#" in row["value"], "#U#" in row["value"]))
    assert {(key_set.releases, key_set.has_tags, key_set.marks_unique) for key_set in KEY_SETS} <= told
