"""In which order the tests look at an edit: first the one that caught it last time, then those that run its lines, then all.

A map of the tests (`mutants.recording`) says which tests run a line. Without one, or where no test runs the line, the tests
with the name of the file come first, then those of its folder.
"""

import ast
import difflib
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from coverage.numbits import num_in_numbits

from mutants.edits import Edit

QUICK_S: Final = 10.0  # processor time of the tests that are tried first
STAGES: Final = (  # in their order; an edit has some of them
    *("known", "touching, quick", "near, quick", "not recorded", "touching", "near", "siblings", "by name", "by folder"),
    "all others",
)
UNKNOWN_S: Final = 1.0  # for a test that the map does not have
FOLDERS: Final = {
    "impl/wire": ("tests/store", "tests/ha", "tests/properties", "tests/cli"),
    "impl/store": ("tests/store", "tests/properties", "tests/stateful", "tests/crash", "tests/cli"),
    "impl/ha": ("tests/ha", "tests/net", "tests/properties", "tests/stateful", "tests/cli"),
    "impl/net": ("tests/net", "tests/cli", "tests/ha"),
    "impl/remoting": ("tests/remoting", "tests/properties", "tests/stateful"),
    "impl/client": ("tests/client", "tests/properties", "tests/cli"),
    "impl/namesrv": ("tests/namesrv", "tests/properties", "tests/stateful", "tests/cli"),
    "impl/broker": ("tests/broker", "tests/properties", "tests/stateful", "tests/cli"),
    "impl/app": ("tests/cli", "tests/net", "tests/store"),
    "impl/cli": ("tests/cli",),
    "impl": ("tests/cli", "tests/store", "tests/ha", "tests/net"),
    "fuzz": ("tests/fuzz", "tests/stateful", "tests/analysis", "tests/spec", "tests/cli"),
    "analysis": ("tests/analysis", "tests/fuzz"),
    "reference": ("tests/spec", "tests/properties", "tests/stateful", "tests/ha", "tests/store"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that run in one go. `tests` names them in order, or is None for all tests of the files."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...] | None = None


class Order:
    """The stages of each edit."""

    def __init__(self, files: Sequence[str], recorded: sqlite3.Connection, killers: Mapping[str, str]) -> None:
        self._files = files
        self._known = frozenset(files)
        self._killers = killers
        self._touched: dict[str, list[tuple[str, str, bytes]]] = defaultdict(list)
        self._texts = dict(recorded.execute("select version, text from versions"))
        # What a file sets up once counts for each of its tests: any of them may be the only one that runs.
        rows = recorded.execute(
            "select name, file, seconds + (select max(setup) from tests of_file where of_file.file = tests.file) from tests"
        ).fetchall()
        self.seconds = {name: seconds for name, file, seconds in rows if file in self._known}
        self._tests_of: dict[str, list[str]] = defaultdict(list)
        for name in self.seconds:
            self._tests_of[name.partition("::")[0]].append(name)
        for source, version, test, lines in recorded.execute("select source, version, test, lines from touched"):
            if test in self.seconds:
                self._touched[source].append((version, test, lines))

    def touching(self, source: str, text: str, lines: Iterable[int]) -> set[str]:
        """The tests that ran one of the lines, where it stood when they were recorded."""
        found, numbers = set(), frozenset(lines)
        moved: dict[str, frozenset[int]] = {}
        for version, test, touched in self._touched[source]:
            if version not in moved:
                moved[version] = frozenset(lines_before(self._texts[version], text, numbers))
            if any(num_in_numbits(line, touched) for line in moved[version]):
                found.add(test)
        return found

    def stages(self, edit: Edit, text: str) -> list[Stage]:
        """The stages for an edit of a file with this text. They overlap: who runs them leaves out what has run."""
        stages = []
        if killer := self._killers.get(edit.key):
            stages.append(Stage("known", (killer.partition("::")[0],), (killer,) if "::" in killer else None))
        statement, function = around(text, edit.lines(text))
        touching = self.touching(edit.file, text, statement)
        nearby = set() if touching else self.touching(edit.file, text, function)
        nearby = nearby or (set() if touching else {test for _, test, _ in self._touched[edit.file]})
        first = sorted(touching or nearby, key=self._rank)
        if touching:
            stages.append(_stage("touching, quick", self._quick(first)))
        elif first:
            stages.append(_stage("near, quick", self._quick(first)))
        named = [file for file in self._files if _is_named_after(file, edit.file)]
        folders = FOLDERS.get(edit.area, FOLDERS.get("/".join(edit.area.split("/")[:2]), ()))
        in_folders = [file for folder in folders for file in self._cheapest(self._of_folder(folder))]
        if first:
            stages.append(Stage("not recorded", tuple(file for file in in_folders if file not in self._tests_of)))
        siblings = [test for file in {test.partition("::")[0] for test in first} for test in self._tests_of.get(file, ())]
        stages.append(_stage("touching" if touching else "near", first))
        stages.append(_stage("siblings", sorted(siblings, key=self._rank)))
        stages.append(Stage("by name", tuple(named)))
        stages.append(Stage("by folder", tuple(in_folders)))
        stages.append(Stage("all others", self._cheapest(set(self._files) - {*named, *in_folders})))
        return [stage for stage in stages if stage.files and set(stage.files) <= self._known]

    def _rank(self, test: str) -> tuple[int, str]:
        """Cheap tests first; those of about the same cost by file, so that they share what the file sets up."""
        return int(self.seconds[test] * 1000).bit_length() // 2, test

    def _quick(self, tests: Sequence[str]) -> list[str]:
        total, found = 0.0, list[str]()
        for test in tests:
            total += self.seconds[test] + 0.002
            if total > QUICK_S and found:
                break
            found.append(test)
        return found

    def _of_folder(self, folder: str) -> list[str]:
        return [file for file in self._files if file.startswith(f"{folder}/")]

    def _cheapest(self, files: Iterable[str]) -> tuple[str, ...]:
        cost = {file: sum(self.seconds[test] for test in self._tests_of.get(file, ())) or UNKNOWN_S for file in self._known}
        return tuple(sorted(files, key=lambda file: cost[file]))


def _stage(name: str, tests: Sequence[str]) -> Stage:
    return Stage(name, tuple(dict.fromkeys(test.partition("::")[0] for test in tests)), tuple(tests))


def _is_named_after(test_file: str, file: str) -> bool:
    stem = PurePosixPath(file).stem.strip("_")
    return stem in PurePosixPath(test_file).stem


@cache
def _matching(then: str, now: str) -> tuple[difflib.Match, ...]:
    return tuple(difflib.SequenceMatcher(None, then.splitlines(), now.splitlines(), autojunk=False).get_matching_blocks())


def lines_before(then: str, now: str, lines: Iterable[int]) -> set[int]:
    """Where lines of a text stood in an older one, from 1; lines that it did not have are left out."""
    if then == now:
        return set(lines)
    blocks = _matching(then, now)
    return {block.a + line - block.b for line in lines for block in blocks if block.b < line <= block.b + block.size}


def around(text: str, lines: Iterable[int]) -> tuple[range, range]:
    """The lines of the statement that holds the first of the lines, and those of its function; of a compound one, its head.

    A line outside all functions runs on import: no test touches it. It has empty ranges.
    """
    first = min(lines)
    function, statement = range(0), range(0)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt) or not node.lineno <= first <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, ast.FunctionDef):
            function = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        body: Sequence[ast.stmt | ast.match_case] | None = (
            node.cases if isinstance(node, ast.Match) else getattr(node, "body", None)
        )
        if body is None:
            statement = range(node.lineno, (node.end_lineno or 0) + 1)
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
            begin = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
            head = range(node.lineno, begin.lineno)
            statement = head if first in head else range(first, first + 1)
    return (statement, function) if function and first in function else (range(0), function)
