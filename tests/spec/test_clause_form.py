"""Each clause has the required form; the check names each missing part; the indexes match the chapters."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_ha.spec import clause_form, clauses

ROOT = Path(__file__).parents[2]
INDEX = "<!-- index of clauses -->\n<!-- end of index -->\n"
GOOD = """# 1. Wire

<!-- index of clauses -->
<!-- end of index -->

## Reports

**HA-W-1.** *(classic)* A slave MUST report,
again and again.
Why: the master
waits for it.
Source: 001 `run`.

Prose between.

**HA-W-2.** *(classic, description)* A slave of RocketMQ is late.
Source: 000.
Releases: 4.3.0 to 4.5.2.
"""

Errors = Callable[[str, str], list[str]]


@pytest.fixture
def errors_after(tmp_path: Path) -> Errors:
    """Edit a correct chapter. Returns: the errors that the check finds."""

    def errors(old: str, new: str) -> list[str]:
        assert old in GOOD
        text = clause_form.indexed(GOOD.replace(old, new), "1-wire.md")
        (tmp_path / "1-wire.md").write_text(text, encoding="utf-8")
        return clause_form.all_errors(tmp_path)

    return errors


def test_the_clauses_and_indexes_of_this_tree_have_the_form() -> None:
    assert clause_form.all_errors(ROOT / "spec") == []


def test_the_parts_of_a_clause_are_read_on_one_line_each() -> None:
    first, second = clauses.in_chapter(GOOD, "1-wire.md")
    assert first.sentence == "*(classic)* A slave MUST report, again and again."
    assert first.parts == (("Why", "the master waits for it."), ("Source", "001 `run`."))
    assert (first.place, first.section) == ("1-wire.md:8", "Reports")
    assert second.marks == ("classic", "description")
    assert second.part("Releases") == "4.3.0 to 4.5.2."


def test_chapters_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10-limits.md", "2-master.md", "1-wire.md", "README.md", "protocol.md"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert [path.name for path in clauses.chapters(tmp_path)] == ["1-wire.md", "2-master.md", "10-limits.md"]


def test_a_chapter_of_the_form_has_no_error(errors_after: Errors) -> None:
    assert errors_after("again and again", "for ever") == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("MUST report", "reports", "HA-W-1 has neither a key word"),
        ("is late", "MAY be late", "HA-W-2 has both the mark *(description)* and the key word MAY"),
        ("Source: 001 `run`.", "", "HA-W-1 has no source"),
        ("Source: 001 `run`.", "Source:", "HA-W-1 has no source"),
        ("Source: 001 `run`.", "Source: 001, which MUST be so.", "MUST is in the part Source"),
        ("waits for it", "SHOULD wait for it", "SHOULD is in the part Why"),
        ("Source: 000.\nReleases: 4.3.0 to 4.5.2.", "Releases: 4.3.0.\nSource: 000.", "has the parts Releases, Source"),
        ("Source: 000.", "Source: 000.\nSource: 001.", "has the parts Source, Source, Releases"),
        ("*(classic, description)*", "*(description, classic)*", "has the marks description, classic"),
        ("*(classic, description)*", "*(classic, hardened, description)*", "at most one profile"),
        ("*(classic)*", "*(modern)*", "has the marks modern"),
    ],
)
def test_what_a_clause_lacks_is_named(errors_after: Errors, old: str, new: str, told: str) -> None:
    found = errors_after(old, new)
    assert len(found) == 1
    assert told in found[0]
    assert found[0].startswith("spec/1-wire.md:")


def test_an_index_that_is_not_what_the_chapter_holds_is_an_error_and_is_written(tmp_path: Path) -> None:
    spec = tmp_path / "spec"
    spec.mkdir()
    chapter = spec / "1-wire.md"
    chapter.write_text(GOOD, encoding="utf-8")
    assert clause_form.all_errors(spec) == [
        "spec/1-wire.md: the index of clauses is not up to date: make transitions writes it"
    ]
    assert clause_form.main(["--check", "--root", str(tmp_path)]) == 1
    assert clause_form.main(["--write", "--root", str(tmp_path)]) == 0
    assert "\nClauses by id: HA-W-1 and 2 [Reports](#reports).\n" in chapter.read_text(encoding="utf-8")
    assert clause_form.main(["--check", "--root", str(tmp_path)]) == 0


def test_a_chapter_with_clauses_needs_the_markers_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "1-wire.md").write_text(GOOD.replace(INDEX, ""), encoding="utf-8")
    assert clause_form.all_errors(tmp_path) == [
        "spec/1-wire.md: no line <!-- index of clauses -->, or no <!-- end of index --> after it"
    ]


def test_every_anchor_of_an_index_is_a_heading_of_its_chapter() -> None:
    for chapter in clauses.chapters(ROOT / "spec"):
        text = chapter.read_text(encoding="utf-8")
        headings = {clause_form.anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
        for clause in clauses.in_chapter(text, chapter.name):
            assert clause_form.anchor(clause.section) in headings, clause.place
