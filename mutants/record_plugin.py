"""A plugin of pytest that notes which lines each test runs, and how long it takes.

`mutants.recording` starts pytest with it. Coverage runs in every process that the variable COVERAGE_PROCESS_START reaches. The
name of the test is the context of the lines: in the process of the test by a call, in a process that the test starts by the
variable MUTANTS_TEST, which the configuration of coverage reads.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import coverage
import pytest

_seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # of each test: of its fixtures, and of the rest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    os.environ["MUTANTS_TEST"] = item.nodeid
    if running := coverage.Coverage.current():
        running.switch_context(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid][report.when != "setup"] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # not one of several processes
        Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(_seconds), encoding="utf-8")
