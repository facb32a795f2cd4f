"""Every clause is cited where it is met, by its current words; the checker finds each kind of error."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from kit.waiting import PATIENCE_S
from rocketmq_ha.spec import citations, clauses, prose

ROOT = Path(__file__).parents[2]
NO_CLAUSE = "HA-W-" + "99"  # in two parts, for the checker reads this file too

CHAPTER = """
# 1. Wire

**HA-W-1.** A master MUST NOT send anything before the first report: while `slave_request_offset` is -1 the write side
waits.
Source: 001.

**HA-W-2.** A report is 8 bytes, and comes first.
Source: 000.
"""
MODEL = '''
def send():
    """Nothing yet: {id} "MUST NOT send anything before the first report"; {other} "A report is 8 bytes"."""
'''.replace("{id}", "HA-W-1").replace("{other}", "HA-W-2")
OTHERS = '# {id} "send anything before"; {other} "is 8 bytes, and comes first".\n'.replace("{id}", "HA-W-1").replace(
    "{other}", "HA-W-2"
)

Tree = Callable[[dict[str, str]], list[str]]


@pytest.fixture
def errors_of(tmp_path: Path) -> Tree:
    """Replace files of a correct tree. Returns: the errors that the checker finds."""

    def errors(changes: dict[str, str]) -> list[str]:
        files = {
            "spec/1-wire.md": CHAPTER,
            "spec/exceptions.toml": "",
            "reference/master.py": MODEL,
            "impl/ha/master.py": OTHERS,
            "tests/test_master.py": OTHERS,
        }
        for name, text in (files | changes).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return citations.check_tree(tmp_path).errors

    return errors


def exception(clause: str, columns: str = "", kind: str = "exception", reason: str = "It is so.") -> str:
    told = f"columns = [{columns}]\n" if columns else ""
    return f'[[exception]]\nclause = "{clause}"\nkind = "{kind}"\n{told}reason = "{reason}"\n'


# --- This tree -------------------------------------------------------------------------------------------------------


def test_every_clause_of_this_tree_is_cited_or_excused() -> None:
    assert citations.check_tree(ROOT).errors == []


def test_the_clauses_of_the_built_chapters_are_cited_in_all_columns_or_say_why_not() -> None:
    """The checker counts citations in every column."""
    coverage = citations.check_tree(ROOT)
    assert coverage.clauses.keys() == clauses.load().keys()
    for column in citations.COLUMNS:
        assert sum((clause_id, column) in coverage.cited for clause_id in coverage.clauses) > 100, column
    assert sum((clause_id, citations.TLA) in coverage.cited for clause_id in coverage.clauses) > 30


# --- Small trees -----------------------------------------------------------------------------------------------------


def test_a_tree_in_which_all_is_cited_has_no_error(errors_of: Tree) -> None:
    assert errors_of({}) == []


def test_a_quote_that_is_not_in_its_clause_is_named_with_the_clause_as_it_is_now(errors_of: Tree) -> None:
    """The clause was changed, and the code was not."""
    changed = CHAPTER.replace("is 8 bytes", "is 9 bytes")
    short, long = "A report is 8 bytes", "is 8 bytes, and comes first"
    now = "is not in the clause, which is: A report is 9 bytes, and comes first."
    reason = "and spec/exceptions.toml gives no reason"
    assert errors_of({"spec/1-wire.md": changed}) == [
        f'reference/master.py:3: HA-W-2 "{short}" {now}',
        f'impl/ha/master.py:1: HA-W-2 "{long}" {now}',
        f'tests/test_master.py:1: HA-W-2 "{long}" {now}',
        *(f"spec/1-wire.md:8: HA-W-2 is not cited in {column}, {reason}" for column in ("model", "impl", "test")),
    ]


@pytest.mark.parametrize(
    "edit",
    [
        ("MUST NOT send", "MUST send"),
        ("MUST NOT send", "MAY send"),
        ("MUST NOT send anything", "MUST NOT send frames"),
        ("MUST NOT send", "must not send"),
    ],
)
def test_no_normative_word_and_no_object_changes_unnoticed(errors_of: Tree, edit: tuple[str, str]) -> None:
    assert any("is not in the clause" in error for error in errors_of({"spec/1-wire.md": CHAPTER.replace(*edit)}))


@pytest.mark.parametrize("quote", ["send anything before the first report", "A master MUST NOT", "MUST NOT send"])
def test_a_normative_word_must_be_quoted_with_two_words_behind_it(errors_of: Tree, quote: str) -> None:
    """Else a quoted "MUST" would still match after the clause says "MUST NOT"."""
    found = errors_of({"reference/master.py": MODEL.replace("MUST NOT send anything before the first report", quote)})
    assert found == ['spec/1-wire.md:4: HA-W-1: no model, implementation or TLA+ quotes "MUST NOT send anything"']


def test_any_implementation_may_quote_the_normative_word_and_a_test_may_not(errors_of: Tree) -> None:
    short, whole = '# HA-W-1 "before the first report"; HA-W-2 "A report is"\n', OTHERS.replace("send", "MUST NOT send")
    assert errors_of({"reference/master.py": short, "impl/ha/master.py": whole}) == []
    assert errors_of({"reference/master.py": short, "impl/ha/master.py": OTHERS, "spec/tla/HA.tla": f"\\* {whole[2:]}"}) == []
    found = errors_of({"reference/master.py": short, "spec/tla/HA.tla": "", "tests/test_master.py": whole})
    assert len(found) == 1


def test_a_quote_has_three_words_and_whole_ones(errors_of: Tree) -> None:
    two = errors_of({"tests/test_master.py": OTHERS + '# HA-W-2 "comes first"\n'})
    assert two == ['tests/test_master.py:2: HA-W-2 "comes first": a quote has at least 3 words']
    part = errors_of({"tests/test_master.py": OTHERS + '# HA-W-2 "port is 8"\n'})
    assert len(part) == 1
    assert part[0].startswith('tests/test_master.py:2: HA-W-2 "port is 8" is not in the clause')


def test_an_id_of_no_clause_is_an_error_wherever_it_stands(errors_of: Tree) -> None:
    found = errors_of(
        {"README.md": f"see\n{NO_CLAUSE}\n", "fuzz/faults.py": f'X = "{NO_CLAUSE}"\n', "spec/a.toml": "# HA-W-1 to 3"}
    )
    assert found == [
        f"README.md:2: {NO_CLAUSE} is no clause",
        f"fuzz/faults.py:1: {NO_CLAUSE} is no clause",
        "spec/a.toml:1: HA-W-" + "3 is no clause",
    ]


@pytest.mark.parametrize(
    ("file", "column"), [("reference/master.py", "model"), ("impl/ha/master.py", "impl"), ("tests/test_master.py", "test")]
)
def test_a_blank_needs_a_reason_and_a_mention_does_not_fill_it(errors_of: Tree, file: str, column: str) -> None:
    mention = "# HA-W-1, HA-W-2\n"
    only_the_test = {"impl/ha/master.py": MODEL} if column == "model" else {}  # one other column must quote the normative words
    found = errors_of({**only_the_test, file: mention})
    assert found == [
        f"spec/1-wire.md:4: HA-W-1 is not cited in {column}, and spec/exceptions.toml gives no reason",
        f"spec/1-wire.md:8: HA-W-2 is not cited in {column}, and spec/exceptions.toml gives no reason",
    ]
    reasons = exception("HA-W-1", f'"{column}"') + exception("HA-W-2", f'"{column}"', "todo")
    assert errors_of({**only_the_test, file: mention, "spec/exceptions.toml": reasons}) == []


def test_a_clause_that_nothing_cites_is_excused_without_columns(errors_of: Tree) -> None:
    chapter = CHAPTER + "\n**HA-W-3.** A master SHOULD be kind.\nSource: none.\n"
    assert len(errors_of({"spec/1-wire.md": chapter})) == 3
    assert errors_of({"spec/1-wire.md": chapter, "spec/exceptions.toml": exception("HA-W-" + "3")}) == []


def test_an_exception_for_what_is_cited_is_stale(errors_of: Tree) -> None:
    assert errors_of({"spec/exceptions.toml": exception("HA-W-2", '"impl"')}) == [
        "spec/exceptions.toml: HA-W-2 is excused in impl, but impl/ha/master.py:1 cites it"
    ]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (exception("HA-W-1", '"impl"', reason=" "), "HA-W-1 has no reason"),
        (exception("HA-W-1", '"impl"', kind="later"), "HA-W-1 has kind 'later', expected todo or exception"),
        (exception("HA-W-1", '"impl", "docs"'), "HA-W-1 has columns ['impl', 'docs'], expected some of model, impl, test"),
        (exception("HA-W-1", '"impl"') * 2, "HA-W-1 has two entries for impl"),
        (exception(NO_CLAUSE), f"{NO_CLAUSE} is no clause"),
    ],
)
def test_an_exception_is_of_a_clause_and_says_why(errors_of: Tree, entry: str, what: str) -> None:
    found = errors_of({"spec/exceptions.toml": entry, "impl/ha/master.py": '# HA-W-2 "is 8 bytes, and"\n'})
    assert f"spec/exceptions.toml: {what}" in found


# --- What is read as a citation --------------------------------------------------------------------------------------


def quotes(text: str, file: str) -> list[tuple[str, str, str, str]]:
    return [(c.clause_id, c.quote, c.place, c.name) for c in citations.citations_in(dedent(text), file, "model")]


def test_a_quote_may_be_wrapped_and_has_no_backticks() -> None:
    text = '''
    class Master:
        def send(self):
            """Wait.

            Spec: HA-W-1 "MUST NOT send
            anything before", and HA-W-2
            "A report is 8 bytes".
            """
            pass  # HA-W-1 "while `slave_request_offset`
            #      is -1"

    # HA-W-2 "and
    #     comes first"
    '''
    assert quotes(text, "reference/a.py") == [
        ("HA-W-1", "MUST NOT send anything before", "reference/a.py:6", "reference/a.py:Master.send"),
        ("HA-W-2", "A report is 8 bytes", "reference/a.py:7", "reference/a.py:Master.send"),
        ("HA-W-1", "while slave_request_offset is -1", "reference/a.py:10", "reference/a.py:Master.send"),
        ("HA-W-2", "and comes first", "reference/a.py:13", "reference/a.py:13"),
    ]


def test_several_quotes_may_follow_one_id() -> None:
    found = quotes('# HA-W-1 "MUST NOT send anything", "the write side waits" and "the first report"; "not this"', "a.py")
    assert [quote for _, quote, _, _ in found] == ["MUST NOT send anything", "the write side waits", "the first report"]


def test_strings_and_code_cite_nothing() -> None:
    text = '''
    CLAUSES = ("HA-W-1", "HA-W-2 ", "three more words")
    TEXT = """
    HA-W-1 "MUST NOT send anything"
    """
    f(
        """HA-W-1 "MUST NOT send anything" """,
    )
    x = 1  # HA-W-1
    y = "MUST NOT send anything"
    '''
    assert quotes(text, "impl/a.py") == []


def test_tla_is_read_in_both_of_its_comments() -> None:
    text = r"""
    (* HA-W-1 "MUST NOT    *)
    (* send anything"      *)
    Send(s, k) == x = "HA-W-1 no"  \* HA-W-2 "A report is 8 bytes"

    \* HA-W-2 "and comes
    \* first"
    Report == TRUE
    """
    assert quotes(text, "spec/tla/HA.tla") == [
        ("HA-W-1", "MUST NOT send anything", "spec/tla/HA.tla:2", "spec/tla/HA.tla:Send"),
        ("HA-W-2", "A report is 8 bytes", "spec/tla/HA.tla:4", "spec/tla/HA.tla:Send"),
        ("HA-W-2", "and comes first", "spec/tla/HA.tla:6", "spec/tla/HA.tla:Report"),
    ]


def test_the_story_of_a_scenario_cites_and_its_steps_do_not() -> None:
    text = '# HA-W-2 "A report\n# is 8 bytes".\nput 8\n    link 0: closed  HA-W-1 "MUST NOT send anything"\n'
    assert [found[:3] for found in quotes(text, "tests/s.txt")] == [("HA-W-2", "A report is 8 bytes", "tests/s.txt:1")]


@pytest.mark.parametrize("suffix", prose.SUFFIXES)
def test_prose_is_as_long_as_its_source(suffix: str) -> None:
    for path in sorted(ROOT.glob(f"[sit][pem]*/**/*{suffix}")):
        text = path.read_text(encoding="utf-8")
        assert len(prose.prose(text, suffix)) == len(text), path


# --- The command -----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocketmq_ha.spec.citations", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_the_command_fails_with_a_line_an_error_and_is_silent_without(errors_of: Tree, tmp_path: Path) -> None:
    errors_of({})
    done = run("--check", "--root", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    errors = errors_of({"tests/test_master.py": ""})
    done = run("--check", "--root", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", errors)


def test_an_id_that_stands_twice_is_named(errors_of: Tree, tmp_path: Path) -> None:
    errors_of({})
    (tmp_path / "spec" / "2-master.md").write_text("**HA-W-1.** Another.\nSource: 002.\n", encoding="utf-8")
    done = run("--check", "--root", tmp_path)
    assert (done.returncode, done.stderr) == (1, "spec/2-master.md:1: HA-W-1 is defined in 1-wire.md:4 too\n")


def test_a_directory_that_is_no_checkout_is_a_usage_error(tmp_path: Path) -> None:
    done = run("--check", "--root", tmp_path)
    assert done.returncode == 2
    assert "expected the root of a checkout" in done.stderr


def test_the_table_names_the_places_and_counts_by_chapter(errors_of: Tree, tmp_path: Path) -> None:
    chapter = CHAPTER + "\n**HA-W-3.** A master SHOULD be kind.\nSource: none.\n"
    told = {"spec/1-wire.md": chapter, "spec/exceptions.toml": exception("HA-W-" + "3", kind="todo")}
    errors_of({**told, "spec/tla/HA.tla": '\\* HA-W-2 "A report is 8"\nReport == TRUE\n'})
    done = run("--root", tmp_path)
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1] == ["HA-W-1", "-", "master:send", "ha/master:1", "test_master:1"]
    assert rows[2] == ["HA-W-2", "HA.tla:Report", "master:send", "ha/master:1", "test_master:1"]
    assert rows[3] == ["HA-W-" + "3", "-", "(todo)", "(todo)", "(todo)"]
    assert rows[-1] == ["HA-W", "3", "1", "2", "2", "2", "0", "1", "62%"]  # 8 words of 18, and 8 of 8
