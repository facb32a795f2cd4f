"""Tables and pairs, character by character, at widths below, at and above the one that they need."""

import io

import pytest
from rich.console import Console

from rocketmq_ha.impl.cli.table import Column, console_for, print_pairs, print_table

COLUMNS = (Column("n", is_number=True), Column("name"), Column("text", least=6))
WIDE = "\u65e5\u672c\u8a9e"  # three characters that take six cells
ROWS = (("1", "a", "0123456789"), ("12345", "bcd", "xyz"), ("7", "", "p"))  # 5 + 2 + 4 + 2 + 10 = 23 wide, 19 at least


def shown(width: int, rows: tuple[tuple[str, ...], ...] = ROWS) -> list[str]:
    file = io.StringIO()
    print_table(Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None), COLUMNS, rows)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def shown_pairs(width: int, pairs: tuple[tuple[str, str], ...]) -> list[str]:
    file = io.StringIO()
    print_pairs(Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None), pairs)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (30, ["    n  name  text", "    1  a     0123456789", "12345  bcd   xyz", "    7        p"]),
        (23, ["    n  name  text", "    1  a     0123456789", "12345  bcd   xyz", "    7        p"]),
        (22, ["    n  name  text", "    1  a     01234567…", "12345  bcd   xyz", "    7        p"]),
        (19, ["    n  name  text", "    1  a     01234…", "12345  bcd   xyz", "    7        p"]),
        (18, ["1  name a", "  text 0123456789", "12345  name bcd", "  text xyz", "7  text p"]),
        (14, ["1  name a", "  text 012345…", "12345", "  name bcd", "  text xyz", "7  text p"]),
    ],
)
def test_a_table_is_shortened_to_its_least_and_then_becomes_lines(width: int, expected: list[str]) -> None:
    assert shown(width) == expected


def test_the_names_of_the_columns_have_room() -> None:
    assert shown(30, ()) == ["n  name  text"]
    assert shown(30, (("1", "a", "b"),)) == ["n  name  text", "1  a     b"]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (40, ["a    one two three", "bcd  four"]),
        (18, ["a    one two three", "bcd  four"]),
        (17, ["a    one two", "     three", "bcd  four"]),
        (10, ["a    one", "     two", "     three", "bcd  four"]),
        (1, ["a    one", "     two", "     three", "bcd  four"]),
    ],
)
def test_a_value_is_wrapped_under_its_beginning(width: int, expected: list[str]) -> None:
    assert shown_pairs(width, (("a", "one two three"), ("bcd", "four"))) == expected


AT = " " * 34  # where the values of names of up to 32 cells begin


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (60, ["a" * 32 + "  one two three", "b" * 33 + "  1 2", "c" * 40 + "  0.5678901", "d" + AT[1:] + "e"]),
        (51, ["a" * 32 + "  one two three", "b" * 33 + "  1 2", "c" * 40 + "  0.5678901", "d" + AT[1:] + "e"]),
        (50, ["a" * 32 + "  one two three", "b" * 33 + "  1 2", "c" * 40, AT + "0.5678901", "d" + AT[1:] + "e"]),
        (
            38,
            ["a" * 32 + "  one", AT + "two", AT + "three", "b" * 33 + "  1 2", "c" * 40, AT + "0.5678901", "d" + AT[1:] + "e"],
        ),
    ],
)
def test_a_name_of_more_than_32_cells_moves_its_own_value_alone(width: int, expected: list[str]) -> None:
    pairs = (("a" * 32, "one two three"), ("b" * 33, "1 2"), ("c" * 40, "0.5678901"), ("d", "e"))
    assert shown_pairs(width, pairs) == expected


def test_the_name_of_a_pair_is_padded_by_cells() -> None:
    assert shown_pairs(30, (("abcdefgh", "1"), (WIDE, "2"))) == ["abcdefgh  1", WIDE + "    2"]


def test_a_pipe_has_no_width() -> None:
    file = io.StringIO()
    console = console_for(file)
    assert console.width == 10_000
    print_table(console, COLUMNS, (("1", "a", "x" * 500),))
    assert "x" * 500 in file.getvalue()


# --- Wide characters, several columns that may be shortened, styles ------------------------------------------------------


def test_a_wide_character_takes_two_cells() -> None:
    rows = (("1", WIDE, "x"), ("2", "abc", "y"))
    assert shown(30, rows) == ["n  name    text", f"1  {WIDE}  x", "2  abc     y"]
    assert shown(15, rows) == ["n  name    text", f"1  {WIDE}  x", "2  abc     y"]
    assert shown(14, rows) == ["1", f"  name {WIDE}", "  text x", "2  name abc", "  text y"]


@pytest.mark.parametrize(("width", "text"), [(15, f"text {WIDE}ab"), (14, f"text {WIDE}\u2026")])
def test_a_line_is_cut_by_cells(width: int, text: str) -> None:
    """A line has two cells less, for its indent. Without them, "text", a space, six cells and "ab" are thirteen wide."""
    assert shown(width, (("1" * 12, "a" * 4, WIDE + "ab"),))[-1] == f"  {text}"


TWO = (Column("a", least=3), Column("n", is_number=True), Column("b", least=4))


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (21, "0123456789 1 abcdef"),
        (20, "01234567… 1 abcdef"),
        (17, "01234… 1 abcdef"),
        (16, "0123… 1 abcdef"),  # of two that are as wide, the first
        (15, "0123… 1 abcd…"),
        (14, "012… 1 abcd…"),
        (13, "012… 1 abc…"),
        (12, "01… 1 abc…"),
    ],
)
def test_the_widest_of_the_columns_that_may_be_shortened_goes_first_and_none_below_its_least(width: int, expected: str) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None)
    print_table(console, TWO, [("0123456789", "1", "abcdef")])
    assert file.getvalue().splitlines()[1].split() == expected.split()


@pytest.mark.parametrize("width", [40, 8], ids=["a table", "lines"])
def test_each_row_has_its_own_style(width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, soft_wrap=True, color_system="standard", force_terminal=True)
    print_table(console, COLUMNS, (("1", "a", "b"), ("2", "c", "d")), ("", "red"))
    lines = [line for line in file.getvalue().splitlines() if not line.startswith("\x1b[1m")]  # without the header
    assert ["\x1b[31m" in line for line in lines] == [False] * (len(lines) // 2) + [True] * (len(lines) // 2)
    assert len(lines) == (2 if width == 40 else 6)
