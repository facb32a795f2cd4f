"""The ledger of sources: each statement of the articles is built, excused or told, and everything else is an error."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.spec import citations, ledger
from rocketmq_ha.spec.citations import Citation, Coverage, Exemption
from rocketmq_ha.spec.clauses import Clause

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
CLAUSE_IDS = ("HA-W-1", "HA-W-2", "HA-W-3", "HA-W-4")


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    """W-1 is cited in the implementation, W-2 in a test alone, W-3 is excused, and W-4 is still to be built."""
    clauses = {each: citations.clauses.read(ROOT / "spec")[each] for each in CLAUSE_IDS}
    assert all(isinstance(each, Clause) for each in clauses.values())
    cited = {
        ("HA-W-1", "impl"): [Citation("HA-W-1", "q", "impl", "impl/a.py:1", "impl/a.py:f")],
        ("HA-W-2", "test"): [Citation("HA-W-2", "q", "test", "tests/a.py:1", "tests/a.py:f")],
    }
    exempt = {
        ("HA-W-3", "impl"): Exemption("HA-W-3", "exception", ("impl",), "Nobody sees it."),
        ("HA-W-4", "impl"): Exemption("HA-W-4", "todo", ("impl",), "Later."),
    }
    return Coverage(clauses, cited, exempt, [])


def entry(**fields: Any) -> dict[str, Any]:
    return {"id": "000-1", "article": "000", "text": "It is so.", **fields}


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        ({"clause": ["HA-W-1"]}, "built", ""),
        ({"clause": ["HA-W-3", "HA-W-1"]}, "built", ""),
        ({"clause": ["HA-W-3"]}, "excused", "HA-W-3: Nobody sees it."),
        ({"reason": "a comparison"}, "told", "a comparison"),
        ({"clause": ["HA-W-2"]}, "", "HA-W-2 is not built"),
        ({"clause": ["HA-W-4"]}, "", "HA-W-4 is not built"),
        ({"clause": ["HA-W-3", "HA-W-2"]}, "", "HA-W-2 is not built"),
        ({"clause": ["HA-W-1", "HA-X-1"]}, "", "HA-X-1 is no clause"),
        ({}, "", "has no clause and no reason"),
        ({"clause": [], "reason": " "}, "", "has no clause and no reason"),
        ({"clause": ["HA-W-1"], "reason": "too"}, "", "has clauses and a reason, expected one of the two"),
        ({"clause": ["HA-W-1"], "article": "005"}, "", "has article '005' and text 'It is so.', expected one of"),
        ({"clause": ["HA-W-1"], "article": "001"}, "", "has article '001' and text 'It is so.', expected one of"),
        ({"clause": ["HA-W-1"], "text": ""}, "", "has article '000' and text '', expected one of"),
    ],
)
def test_what_became_of_a_statement(coverage: Coverage, fields: dict[str, Any], state: str, reason: str) -> None:
    [found] = ledger.read([entry(**fields)], coverage)
    assert found.state == state
    assert found.reason.startswith(reason) and bool(found.reason) == bool(reason)


def test_an_id_that_stands_twice_is_an_error(coverage: Coverage) -> None:
    first, second = ledger.read([entry(clause=["HA-W-1"]), entry(reason="too")], coverage)
    assert (first.state, second.state, second.reason) == ("built", "", "has two entries")


def test_the_table_counts_by_article_and_shows_what_is_not_built(coverage: Coverage) -> None:
    entries = [entry(clause=["HA-W-1"]), entry(id="004-1", article="004", reason="a comparison"), entry(id="000-2", clause=[])]
    lines = list(ledger.table(ledger.read(entries, coverage)))
    rows = [line.split() for line in lines[1:7]]
    assert rows[0] == ["all", "3", "1", "0", "1"]
    assert rows[1] == ["000", "2", "1", "0", "0"]
    assert rows[5] == ["004", "1", "0", "0", "1"]
    assert lines[7:] == [
        *("", "004-1 (told): It is so.", "  a comparison"),
        *("", "000-2 (ERROR): It is so.", "  has no clause and no reason"),
    ]


def test_the_command_fails_with_a_line_an_error(tmp_path: Path) -> None:
    """A copy of the tree without the implementation: the statements whose clauses it built are not built."""
    for folder in ("spec", "tests", "impl"):
        (tmp_path / folder).mkdir()
    for file in (*(ROOT / "spec").glob("*.md"), *(ROOT / "spec").glob("*.toml")):
        (tmp_path / "spec" / file.name).write_bytes(file.read_bytes())
    done = _run("--check", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "spec/sources.toml: 000-2 HA-R-2 is not built" in done.stderr.splitlines()
    (tmp_path / "spec" / "sources.toml").write_text("", "utf-8")
    assert "has no statement" in _run("--check", "--root", tmp_path).stderr
    (tmp_path / "spec" / "sources.toml").write_text("[", "utf-8")
    done = _run("--root", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "sources.toml: " in done.stderr


def test_no_statement_of_the_articles_is_left() -> None:
    done = _run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "ERROR" not in done.stdout
    assert int(done.stdout.splitlines()[1].split()[2]) > 390  # of 432 that are built


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocketmq_ha.spec.ledger", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
