"""Expected and actual outcomes of every scenario: checked at once, kept for a table and for a JSON file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

Statuses = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Among:
    """Statuses that time decides between: their sum is known, and how few may have ended well."""

    total: int
    allowed: tuple[str, ...]
    good: str
    at_least: int

    def holds(self, actual: Statuses) -> bool:
        return (
            sum(actual.values()) == self.total
            and set(actual) <= set(self.allowed)
            and actual.get(self.good, 0) >= self.at_least
        )

    def __str__(self) -> str:
        return f"{self.total} of {', '.join(self.allowed)}; {self.good} >= {self.at_least}"


@dataclass(frozen=True, slots=True)
class Row:
    release: str
    scenario: str
    step: str
    expected: str
    actual: str
    ok: bool


@dataclass(slots=True)
class Results:
    """The rows of a session, and of the test that runs."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    release: str = ""
    scenario: str = ""

    def note(self, step: str, expected: object, actual: object) -> bool:
        """Note a step's outcome. Returns: whether it is what was expected."""
        ok = expected.holds(actual) if isinstance(expected, Among) and isinstance(actual, Mapping) else expected == actual
        self.rows.append(Row(self.release, self.scenario, step, text_of(expected), text_of(actual), ok))
        return ok

    def check(self, step: str, expected: object, actual: object) -> None:
        """Raises: AssertionError if a step's outcome is not what was expected."""
        assert self.note(step, expected, actual), f"{step}: expected {text_of(expected)}, found {text_of(actual)}"

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(
            json.dumps([asdict(row) for row in self.rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    def table(self) -> list[str]:
        return table(
            ("release", "scenario", "step", "expected", "actual", ""),
            [(row.release, row.scenario, row.step, row.expected, row.actual, "" if row.ok else "WRONG") for row in self.rows],
        )


WIDTHS: Final = 60  # of a column; what is longer goes on beyond it


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned columns."""
    widths = [min(WIDTHS, max(len(row[column]) for row in (head, *rows))) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)]


def text_of(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={count}" for name, count in sorted(value.items())) or "nothing"
    return str(value)
