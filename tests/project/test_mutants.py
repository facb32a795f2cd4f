"""The edits of `make mutants` fit the tree: an edit that no longer does would check nothing."""

import ast
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from formal.tree_copy import ROOT
from mutants import __main__ as command
from mutants.__main__ import read_killers
from mutants.edits import AREAS, Edit, load_all
from mutants.results import KILLED, Result, Store

EDITS = load_all()
IDS = [f"{edit.file}-{edit.key}" for edit in EDITS]


@cache
def _source(file: str) -> tuple[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return text, ast.dump(ast.parse(text))


@pytest.mark.parametrize("edit", EDITS, ids=IDS)
def test_each_edit_has_one_place_a_story_and_another_meaning(edit: Edit) -> None:
    text, syntax = _source(edit.file)
    assert ast.dump(ast.parse(edit.apply(text))) != syntax, "only the layout or a comment differs"
    assert len(edit.story.split()) >= 4
    assert edit.area in AREAS


def test_no_two_edits_are_the_same() -> None:
    assert [key for key, times in Counter(edit.key for edit in EDITS).items() if times > 1] == []


def test_each_known_killer_is_of_an_edit_and_is_a_test_that_exists() -> None:
    """A sample begins with these tests; `python -m mutants --write-killers` notes them."""
    killers = read_killers()
    assert killers.keys() <= {edit.key for edit in EDITS}
    assert sorted({test.partition("[")[0] for test in killers.values() if not is_there(test)}) == []


@cache
def defined_in(file: str) -> set[str]:
    """What the top level of a file defines."""
    body = ast.parse((ROOT / file).read_text("utf-8")).body if (ROOT / file).is_file() else []
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return named | {ast.unparse(target) for node in body if isinstance(node, ast.Assign) for target in node.targets}


def is_there(test: str) -> bool:
    file, name, *_ = test.partition("[")[0].split("::")
    return name in defined_in(file)


def test_the_killers_of_other_edits_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--only FILE --write-killers` is about the edits of a file; an edit that is no longer there is dropped."""
    judged, other = EDITS[:2]
    monkeypatch.setattr(command, "KILLERS", tmp_path / "killers.json")
    command.KILLERS.write_text(json.dumps({other.key: "tests/a.py::test", "of no edit": "tests/b.py::test"}), encoding="utf-8")
    store = Store(tmp_path / "results.jsonl")
    store.add(Result(judged, KILLED, "tests/project/test_mutants.py::test"))
    command.write_killers([judged], store)
    assert read_killers() == {judged.key: "tests/project/test_mutants.py::test", other.key: "tests/a.py::test"}
