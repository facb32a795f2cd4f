"""The form of an edit, what is drawn from the syntax, and the table at the end of a run."""

import ast
import json
from pathlib import Path

import pytest

from formal.tree_copy import ROOT
from mutants import drawn, table
from mutants.edits import Edit, EditError, area, load
from mutants.results import KILLED, STALE, SURVIVED, UNDECIDED, Result

TEXT = "a = 1\nb = 2\na = 1\nc = 3\n"


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        pytest.param(Edit("f", "b = 2", "b = 3", ""), "a = 1\nb = 3\na = 1\nc = 3\n", id="once"),
        pytest.param(Edit("f", "a = 1", "a = 0", "", line=3), "a = 1\nb = 2\na = 0\nc = 3\n", id="the line decides"),
        pytest.param(Edit("f", "b = 2\n", "", ""), "a = 1\na = 1\nc = 3\n", id="a line less"),
    ],
)
def test_an_edit_changes_its_place_alone(edit: Edit, after: str) -> None:
    assert edit.apply(TEXT) == after


@pytest.mark.parametrize(("old", "line", "times"), [("a = 1", 0, 2), ("a = 1", 2, 0), ("d", 0, 0), ("", 0, 0)])
def test_an_edit_without_one_place_is_refused(old: str, line: int, times: int) -> None:
    with pytest.raises(EditError, match=f"stands there {times} times"):
        Edit("f", old, "x", "", line).apply(TEXT)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        pytest.param("b = 2", "b = 3", [2], id="one line"),
        pytest.param("a = 1\nb = 2\na = 1", "a = 1\nb = 3\na = 1", [2], id="in the midst of three"),
        pytest.param("a = 1\nb = 2", "b = 2", [1], id="the first of two goes"),
        pytest.param("b = 2\na = 1\nc = 3\n", "b = 3\na = 1\nc = 4\n", [2, 3, 4], id="from the first to the last that differs"),
    ],
)
def test_the_lines_of_an_edit_are_those_that_differ(old: str, new: str, lines: list[int]) -> None:
    assert list(Edit("f", old, new, "").lines(TEXT)) == lines


def test_files_of_edits_are_toml_or_json(tmp_path: Path) -> None:
    toml, other = tmp_path / "a.toml", tmp_path / "b.json"
    toml.write_text('[[edit]]\nfile = "f"\nold = "a"\nnew = "b"\nstory = "s"\nequivalent = "e"\n', encoding="utf-8")
    other.write_text(json.dumps([{"file": "f", "old": "a", "new": "b", "line": 3, "other": 1}]), encoding="utf-8")
    assert load(toml) == [Edit("f", "a", "b", "s", equivalent="e")]
    assert load(other) == [Edit("f", "a", "b", "", line=3)]


@pytest.mark.parametrize("text", ["", "[[edit]]\nold = 1", "edit = [", '[[edit]]\nfile = "f"\nold = "a"\n'])
def test_a_file_that_holds_no_edits_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(EditError, match=r"a\.toml"):
        load(file)


def test_the_area_of_a_file_is_the_longest_folder_of_the_table() -> None:
    files = {"impl/store/log/scan.py": "impl/store/log", "impl/store/get.py": "impl/store", "impl/errors.py": "impl"}
    assert {file: area(file) for file in files} == files


SOURCE = '''"""Text."""
def f(self, a, b):
    self.total += a
    g(a, b)
    log.info("said %d", 1)
    if a < 5 and not b:
        return None
    return f"{a + 1}" if a else str(a - 2)
'''


def changed(kind: str) -> set[str]:
    """What the edits of a kind make of the lines of SOURCE."""
    tree = ast.parse(SOURCE)
    edits = [drawn.edit_of("f.py", SOURCE, change) for change in drawn.changes(tree) if change.kind == kind]
    return {edit.new.strip() for edit in edits if edit}


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("a statement dropped", {"pass"}),
        ("arguments in another order", {"g(b, a)"}),
        ("a negated condition", {"if a < 5 and b:", 'return f"{a + 1}" if not a else str(a - 2)'}),
        ("another return", {"return None"}),
        (
            "another comparison",
            {"if a <= 5 and not b:", "if a >= 5 and not b:", "if a < 6 and not b:", "if a < 4 and not b:"},
        ),
        ("another boolean operator, or an operand less", {"if a < 5 or not b:", "if not b:", "if a < 5:"}),
        ("one arm of a condition always", {"return f'{a + 1}'", "return str(a - 2)"}),
        (
            "another sum",
            {
                'return f"{a + 1}" if a else str(a + 2)',
                'return f"{a + 1}" if a else str(a - 3)',
                'return f"{a + 1}" if a else str(a - 1)',
            },
        ),
    ],
)
def test_what_is_drawn_of_each_kind(kind: str, lines: set[str]) -> None:
    assert changed(kind) == lines


def test_what_is_logged_is_not_dropped_and_of_a_text_nothing_is_changed() -> None:
    edits = [drawn.edit_of("f.py", SOURCE, change) for change in drawn.changes(ast.parse(SOURCE))]
    news = {edit.new for edit in edits if edit}
    assert not any("log" not in new and "said" in new for new in news)
    assert not any("{a - 1}" in new or "{a + 2}" in new for new in news)


def test_a_seed_draws_the_same_edits_each_at_a_line_of_its_own() -> None:
    first, again, other = (drawn.draw(20, seed, ["impl/ha"]) for seed in (1, 1, 2))
    assert first == again != other
    assert len({(edit.file, edit.line) for edit in first}) == len(first) == 20
    for edit in first:
        assert edit.file.startswith("impl/ha/")
        ast.parse(edit.apply((ROOT / edit.file).read_text(encoding="utf-8")))


def result(verdict: str, equivalent: str = "") -> Result:
    return Result(Edit("impl/ha/slave.py", "a", "b", "a story", equivalent=equivalent), verdict, seconds=2.0)


@pytest.mark.parametrize(
    ("results", "total", "own", "status", "line"),
    [
        pytest.param([result(KILLED)] * 2, 2, True, 0, "edits=2 killed=2 survived=0", id="all are caught"),
        pytest.param([result(KILLED), result(SURVIVED, "no reason")], 2, True, 0, "equivalent=1 undecided=0", id="explained"),
        pytest.param([result(KILLED)] * 99 + [result(SURVIVED)], 100, True, 1, "caught=99.0%", id="of ours one survives"),
        pytest.param([result(KILLED)] * 9 + [result(SURVIVED)], 10, False, 0, "caught=90.0%", id="of others one in ten may"),
        pytest.param([result(KILLED)] * 8 + [result(UNDECIDED)] * 2, 10, False, 1, "undecided=2", id="too few of others"),
        pytest.param([result(KILLED)] * 9 + [result(STALE)], 10, False, 1, "stale=1", id="one fits no more"),
        pytest.param([result(KILLED)], 2, False, 1, "edits=1", id="stopped before the end"),
    ],
)
def test_the_exit_status_and_the_last_line_of_a_run(
    results: list[Result], total: int, own: bool, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table.show(results, total, 0.9, own) == status
    assert line in capsys.readouterr().out.splitlines()[-1]


def test_a_survivor_is_shown_with_its_story_and_its_change(capsys: pytest.CaptureFixture[str]) -> None:
    table.show([result(SURVIVED)], 1, 0.9, own=True)
    out = capsys.readouterr().out
    assert "survived: impl/ha/slave.py: a story\n    - a\n    + b\n    not explained\n" in out
