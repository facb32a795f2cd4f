"""Tables and pairs, character by character, at widths below, at and above the one that they need."""

import io

import pytest
from rich.console import Console

from rocketmq_ha.impl.cli.table import Column, console_for, print_pairs, print_table

COLUMNS = (Column("n", is_number=True), Column("name"), Column("text", least=6))
ROWS = (("1", "a", "0123456789"), ("12345", "bcd", "xyz"), ("7", "", "p"))  # 5 + 2 + 4 + 2 + 10 = 23 wide, 19 at least


def shown(width: int, rows: tuple[tuple[str, ...], ...] = ROWS) -> list[str]:
    file = io.StringIO()
    print_table(Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None), COLUMNS, rows)
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
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None)
    print_pairs(console, (("a", "one two three"), ("bcd", "four")))
    assert [line.rstrip() for line in file.getvalue().splitlines()] == expected


def test_a_pipe_has_no_width() -> None:
    file = io.StringIO()
    console = console_for(file)
    assert console.width == 10_000
    print_table(console, COLUMNS, (("1", "a", "x" * 500),))
    assert "x" * 500 in file.getvalue()
