"""Hypothesis's observability lines as runs: one run for each test case.

HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY=1 makes Hypothesis write .hypothesis/observed/DATE_testcases.jsonl. A line tells the
property, the status, the steps of a state machine as text, and features: what `event()` and `target()` said, once each. It does
not tell what the machines of the model did, so these runs count for no transition.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.fuzz.errors import FuzzError

RULE: Final = "rule"
FEATURE: Final = "feature"
CASE: Final = "case"
RETRIED: Final = "Retried draw from"  # a feature of Hypothesis's own; it holds addresses of objects
LONGEST: Final = 200  # characters of a name
# A step of a state machine: "v1 = state.put(size=3)".
_STEP: Final = re.compile(r"^(?:[\w, ()]+ = )?state\.(\w+)\(")


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test case. steps: (kind, name) in order: rules of a state machine, then features, then the case itself."""

    __test__ = False  # pytest would collect it

    property: str
    status: str  # passed, failed, gave_up
    detail: str
    steps: tuple[tuple[str, str], ...]
    elapsed_us: int
    text: str  # what was drawn


def is_observed(line: dict[str, Any]) -> bool:
    return "property" in line and "type" in line


def cases_of(file: Path, lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[TestCase]:
    """The test cases of a file, without lines of other types. Raises: FuzzError, with the line."""
    for number, line in lines:
        if line.get("type") == "test_case":
            try:
                yield _case(line)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                shown = json.dumps(line)[:80]
                raise FuzzError(f"{file}:{number}: expected a test case of Hypothesis, found {shown} ({error!r})") from error


def _case(line: dict[str, Any]) -> TestCase:
    features = [_feature(name, value) for name, value in line["features"].items() if not name.startswith(RETRIED)]
    rules = [(RULE, found[1]) for text in line["representation"].splitlines() if (found := _STEP.match(text))]
    seconds = sum(float(value) for value in line["timing"].values())
    name, status = str(line["property"]), str(line["status"])
    steps = (*rules, *((FEATURE, text) for text in features), (CASE, status))
    return TestCase(name, status, str(line["status_reason"]), steps, round(seconds * 1e6), str(line["representation"]))


def _feature(name: str, value: object) -> str:
    text = name if value in ("", None) else f"{name}: {value}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
