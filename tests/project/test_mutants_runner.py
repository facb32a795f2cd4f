"""The order in which tests look at an edit, and the runs themselves on a tree of two files."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from coverage.numbits import nums_to_numbits

from mutants import recording
from mutants.edits import Edit
from mutants.order import STAGES, Order, Stage, around, lines_before
from mutants.results import KILLED, STALE, SURVIVED, UNDECIDED, Result, Store
from mutants.shard import Shard

SOURCE = """\
LIMIT = 3


class Counter:
    step = 1

    def add(self, value):
        total = (
            value
            + self.step
        )
        if total > LIMIT:
            return LIMIT
        match total:
            case 0:
                return 1
        return total
"""


@pytest.mark.parametrize(
    ("line", "statement", "function"),
    [
        pytest.param(1, [], [], id="run on import"),
        pytest.param(5, [], [], id="of a class"),
        pytest.param(10, [8, 9, 10, 11], range(8, 18), id="a statement of several lines"),
        pytest.param(12, [12], range(8, 18), id="the head of a condition"),
        pytest.param(13, [13], range(8, 18), id="inside a condition"),
        pytest.param(14, [14], range(8, 18), id="the head of a match"),
        pytest.param(15, [15], range(8, 18), id="a case"),
        pytest.param(16, [16], range(8, 18), id="inside a case"),
    ],
)
def test_the_statement_around_a_line_and_its_function(line: int, statement: list[int], function: Sequence[int]) -> None:
    assert tuple(map(list, around(SOURCE, [line]))) == (statement, list(function))


@pytest.mark.parametrize(
    ("then", "now", "lines", "found"),
    [
        ("a\nb\n", "a\nb\n", [2], {2}),
        ("a\nb\n", "new\na\nb\n", [1, 2, 3], {1, 2}),
        ("a\nb\nc\n", "a\nc\n", [1, 2], {1, 3}),
        ("a\nb\n", "a\nother\n", [2], set()),
    ],
)
def test_a_line_is_looked_up_where_it_stood(then: str, now: str, lines: list[int], found: set[int]) -> None:
    assert lines_before(then, now, lines) == found


FILES = (
    "tests/cli/test_a.py",
    "tests/ha/test_counter.py",
    "tests/ha/test_other.py",
    "tests/net/test_b.py",
    "tests/spec/test_c.py",
)
EDIT = Edit("impl/ha/counter.py", "return total", "return 0", "")
TIMES = {  # of each test: seconds of its fixtures, and its own
    "tests/ha/test_other.py::test_slow": (0.0, 30.0),
    "tests/ha/test_other.py::test_quick": (0.0, 0.01),
    "tests/ha/test_other.py::test_beside": (0.0, 0.01),
    "tests/cli/test_a.py::test_heavy": (7.0, 0.01),
    "tests/gone/test_c.py::test_gone": (0.0, 0.01),
}


@pytest.fixture
def recorded() -> Iterator[sqlite3.Connection]:
    connection = recording.open_map(Path(":memory:"))
    recording.keep_times(connection, TIMES)
    connection.execute("insert into versions values ('1', ?)", (SOURCE,))
    yield connection
    connection.close()


def touch(recorded: sqlite3.Connection, test: str, *lines: int) -> None:
    recording.keep(recorded, EDIT.file, "1", test, nums_to_numbits(lines))


def names(stages: Sequence[Stage]) -> list[str]:
    return [stage.name for stage in stages]


def test_the_tests_that_run_the_line_come_first_and_the_cheap_ones_before_the_others(recorded: sqlite3.Connection) -> None:
    touch(recorded, "tests/ha/test_other.py::test_slow", 17)
    touch(recorded, "tests/cli/test_a.py::test_heavy", 17)
    touch(recorded, "tests/ha/test_other.py::test_quick", 12)
    touch(recorded, "tests/ha/test_other.py::test_quick", 17)
    touch(recorded, "tests/ha/test_other.py::test_beside", 12)
    touch(recorded, "tests/gone/test_c.py::test_gone", 17)
    stages = Order(FILES, recorded, {}).stages(EDIT, SOURCE)
    assert names(stages)[:4] == ["touching, quick", "not recorded", "touching", "siblings"]
    assert names(stages) == [name for name in STAGES if name in names(stages)]
    assert stages[0].tests == ("tests/ha/test_other.py::test_quick", "tests/cli/test_a.py::test_heavy")
    assert stages[1] == Stage("not recorded", ("tests/ha/test_counter.py", "tests/net/test_b.py"))
    assert stages[2].tests == (*stages[0].tests, "tests/ha/test_other.py::test_slow")
    assert stages[3].tests is not None and "tests/ha/test_other.py::test_beside" in stages[3].tests


def test_where_no_test_runs_the_line_those_of_its_function_come_first(recorded: sqlite3.Connection) -> None:
    touch(recorded, "tests/ha/test_other.py::test_quick", 8)
    assert Order(FILES, recorded, {}).stages(EDIT, SOURCE)[0].tests == ("tests/ha/test_other.py::test_quick",)


def test_a_line_that_runs_on_import_is_left_to_all_tests_of_its_file(recorded: sqlite3.Connection) -> None:
    touch(recorded, "tests/ha/test_other.py::test_quick", 8)
    edit = Edit(EDIT.file, "LIMIT = 3", "LIMIT = 4", "")
    assert Order(FILES, recorded, {}).stages(edit, SOURCE)[0].tests == ("tests/ha/test_other.py::test_quick",)


def test_without_a_map_the_names_of_files_and_folders_decide_and_all_tests_come_at_last(recorded: sqlite3.Connection) -> None:
    stages = Order(FILES, recorded, {}).stages(EDIT, SOURCE)
    assert [(stage.name, stage.tests) for stage in stages] == [("by name", None), ("by folder", None), ("all others", None)]
    assert stages[0].files == ("tests/ha/test_counter.py",)
    assert {file for stage in stages for file in stage.files} == set(FILES)


@pytest.mark.parametrize(
    ("killer", "stage"),
    [
        ("tests/net/test_b.py::test_x", Stage("known", ("tests/net/test_b.py",), ("tests/net/test_b.py::test_x",))),
        ("tests/net/test_b.py", Stage("known", ("tests/net/test_b.py",), None)),
    ],
)
def test_the_test_that_caught_the_edit_before_is_the_first(recorded: sqlite3.Connection, killer: str, stage: Stage) -> None:
    assert Order(FILES, recorded, {EDIT.key: killer}).stages(EDIT, SOURCE)[0] == stage


def test_a_known_test_whose_file_has_gone_is_passed_over(recorded: sqlite3.Connection) -> None:
    assert names(Order(FILES, recorded, {EDIT.key: "tests/gone.py::test_x"}).stages(EDIT, SOURCE))[0] == "by name"


def test_what_a_file_has_recorded_goes_with_it(recorded: sqlite3.Connection) -> None:
    touch(recorded, "tests/ha/test_other.py::test_quick", 17)
    touch(recorded, "tests/cli/test_a.py::test_heavy", 17)
    recording.forget(recorded, ["tests/ha/test_other.py"])
    assert recorded.execute("select test from touched").fetchall() == [("tests/cli/test_a.py::test_heavy",)]
    assert recorded.execute("select count(*) from tests where file = 'tests/ha/test_other.py'").fetchone() == (0,)


# --- Runs on a small tree ----------------------------------------------------------------------------------------------------

TREE = {
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\npythonpath = ["."]\n',
    "impl/add.py": """
def add(a, b):
    return a + b

def wait(seconds):
    return seconds

def unused():
    return 1
""",
    "tests/test_add.py": """
import time
from impl.add import add, wait

def test_add():
    assert add(1, 2) == 3

def test_broken():
    assert add(1, 2) == 4

def test_wait():
    time.sleep(wait(0))
""",
    "tests/test_other.py": """
from impl.add import wait

def test_no_wait():
    assert wait(0) == 0
""",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with one test that always fails. The runner's plugin stands in it, as in the tree of the project."""
    root = tmp_path_factory.mktemp("tree")
    plugin = Path(recording.__file__).with_name("choose_plugin.py")
    for name, text in {
        **TREE,
        "mutants/__init__.py": "",
        "mutants/choose_plugin.py": plugin.read_text(encoding="utf-8"),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_an_edit_is_killed_survives_or_is_undecided(tree: Path, recorded: sqlite3.Connection) -> None:
    killed = Edit("impl/add.py", "return a + b", "return a - b", "")
    survives = Edit("impl/add.py", "return 1", "return 2", "")
    hangs = Edit("impl/add.py", "return seconds", "return 3600", "")
    stale = Edit("impl/add.py", "no such text", "", "")
    controls: dict[str, bool] = {}
    with Shard(Order(["tests/test_add.py"], recorded, {}), controls, bound_s=10.0, tree=tree) as shard:
        found = [shard.judge(edit) for edit in (killed, survives, hangs, stale)]
        assert (shard.root / "impl/add.py").read_text(encoding="utf-8") == TREE["impl/add.py"]
    assert [result.verdict for result in found] == [KILLED, SURVIVED, UNDECIDED, STALE]
    assert (found[0].test, found[0].message) == ("tests/test_add.py::test_add", "assert -1 == 3")
    assert found[2].test == "tests/test_add.py::test_wait"
    assert controls == {"tests/test_add.py::test_add": True, "tests/test_add.py::test_broken": False}


def test_an_edit_ends_with_the_last_stage_or_where_it_lacks_that_with_the_next(
    tree: Path, recorded: sqlite3.Connection
) -> None:
    survives = Edit("impl/add.py", "return 1", "return 2", "")
    with Shard(Order(["tests/test_add.py", "tests/test_other.py"], recorded, {}), {}, tree=tree) as shard:
        found = shard.judge(survives, "near")
    assert (found.verdict, found.message) == (UNDECIDED, "not all tests have run, only those to 'by name'")


def test_a_result_holds_while_its_files_are_as_they_were(tree: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    killed = Result(Edit("impl/add.py", "a + b", "a - b", ""), KILLED, "tests/test_add.py::test_add")
    survived = Result(Edit("impl/add.py", "return 1", "return 2", ""), SURVIVED)
    undecided = Result(Edit("impl/add.py", "seconds", "0", ""), UNDECIDED)
    for result in (killed, survived, undecided):
        Store(results, tree).add(result)
    with results.open("a", encoding="utf-8") as lines:
        lines.write('{"a line that was not')
    assert set(Store(results, tree).read().values()) == {killed, survived}
    (tree / "impl/other.py").write_text("", encoding="utf-8")
    assert list(Store(results, tree).read().values()) == [killed]
    with (tree / "tests/test_add.py").open("a", encoding="utf-8") as tests:
        tests.write("\n")
    assert Store(results, tree).read() == {}
