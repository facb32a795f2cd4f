"""One table in spec/README.md lists the parts of RocketMQ 4.5.2 that the classic profile leaves out."""

import re
import tomllib
from pathlib import Path

from rocketmq_ha.spec import clauses

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
HEADING = "## What classic leaves out\n"


def rows() -> list[list[str]]:
    """The cells of the table."""
    section = (SPEC / "README.md").read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def ids(cell: str) -> set[str]:
    return set(re.findall(r"HA-[A-Z]+-\d+", cell))


def test_each_clause_of_classic_that_the_implementation_does_not_meet_stands_in_the_table() -> None:
    exceptions = tomllib.loads((SPEC / "exceptions.toml").read_text(encoding="utf-8"))["exception"]
    excused = {entry["clause"] for entry in exceptions if "impl" in entry.get("columns", ["impl"])}
    of_classic = {clause.clause_id for clause in clauses.read(SPEC).values() if "classic" in clause.marks}
    told = set().union(*(ids(row[0]) for row in rows()))
    assert len(excused & of_classic) > 5
    assert excused & of_classic <= told


def test_each_row_names_a_clause_and_says_what_both_do_and_why() -> None:
    for row in rows():
        assert len(row) == 4, row
        assert ids(row[0]), row
        assert all(row), row


def test_no_clause_stands_in_two_rows() -> None:
    every = [clause_id for row in rows() for clause_id in sorted(ids(row[0]))]
    assert len(every) == len(set(every))


def test_the_texts_that_promise_classic_name_the_table() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert '"What classic leaves out" in [spec/README.md](../spec/README.md#what-classic-leaves-out)' in page
    assert "README.md#what-classic-leaves-out" in (SPEC / "0-terms.md").read_text(encoding="utf-8")
