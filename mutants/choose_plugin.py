"""A plugin of pytest that runs chosen tests in a given order, and tells the runner how far they are.

The variable MUTANTS_CHOICE names a JSON file: `order` has the tests to run (all, if it is null), `without` those that are left
out. A name without parameters means the test with all its parameters. The variable MUTANTS_LOG names the file for one JSON
object for each test that begins, and for the first that fails.

Hypothesis draws the same examples each time, and reports the first that fails: here nobody reads the smallest one.
"""

import json
import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase


def _tell(**told: object) -> None:
    with Path(os.environ["MUTANTS_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps(told) + "\n")


def pytest_configure() -> None:
    phases = (Phase.explicit, Phase.generate)
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, phases=phases)
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice: dict[str, Any] = json.loads(Path(os.environ["MUTANTS_CHOICE"]).read_text(encoding="utf-8"))
    without = set(choice["without"])
    chosen = [item for item in items if not {item.nodeid, item.nodeid.partition("[")[0]} & without]
    if choice["order"] is not None:
        places = {name: place for place, name in reversed(list(enumerate(choice["order"])))}
        ranked = [(place_of(item.nodeid, places), item) for item in chosen]
        chosen = [item for place, item in sorted(((p, i) for p, i in ranked if p is not None), key=lambda pair: pair[0])]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def place_of(name: str, places: dict[str, int]) -> int | None:
    """The place of a test: by its name with parameters, else without."""
    return places.get(name, places.get(name.partition("[")[0]))


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(begins=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _tell(fails=report.nodeid, message=_message(report.longrepr))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _tell(fails=report.nodeid, message=_message(report.longrepr))


def _message(longrepr: Any) -> str:
    """The line that says what went wrong."""
    crash = getattr(longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(longrepr)).strip().splitlines() or ["no word"]
    return str(lines[0] if crash else lines[-1])[:300]
