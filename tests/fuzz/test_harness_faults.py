"""Mistakes planted in the harness itself: for each, a test of the harness fails, and with none of them no test does.

`fuzz/faults.py` plants mistakes in the implementation, which the harness must find. A harness that finds nothing would pass.
"""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from kit.planted import copy_of, first_failure, planted
from rocketmq_ha.fuzz import differences, hunt, lockstep, recorder, schedule

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mistake:
    name: str
    module: ModuleType
    old: str
    new: str
    tests: str  # the file that must notice it


MISTAKES = (
    Mistake(
        "the comparator forgets a field",
        differences,
        "if name not in skip and ours != theirs:",
        'if name not in (*skip, "unparsed_report") and ours != theirs:',
        "test_observe.py",
    ),
    Mistake(
        "the comparator looks at the master alone",
        differences,
        'found += _of(f"{_singular(name)} {number}", our_part, their_part)',
        "pass",
        "test_observe.py",
    ),
    Mistake(
        "a scheduler never cuts",
        schedule,
        '        (3, True, lambda: events.Cut(slave(), rng.choice(("both", "both", "slave", "master")))),\n',
        "",
        "test_schedule_events.py",
    ),
    Mistake(
        "few bytes are drawn from 12 on only",
        schedule,
        "return rng.randint(1, TRANSFER_HEADER_SIZE + 1)",
        "return rng.randint(TRANSFER_HEADER_SIZE, TRANSFER_HEADER_SIZE + 1)",
        "test_schedule_events.py",
    ),
    Mistake(
        "a kind of fault has no name",
        schedule,
        '            return "clog"\n',
        "            return NO_FAULT\n",
        "test_schedule_faults.py",
    ),
    Mistake(
        "a failing verdict does not end a run",
        lockstep,
        "                if steps[-1].verdict != VERDICT_OK:\n",
        "                if steps[-1].verdict == VERDICT_DIVERGENCE:\n",
        "test_lockstep.py",
    ),
    Mistake(
        "a verdict is dropped on its way into the log",
        recorder,
        "verdict = step.verdict if index == last else VERDICT_OK",
        "verdict = VERDICT_OK",
        "test_recorder.py",
    ),
    Mistake(
        "a row of the log is lost",
        recorder,
        "            column.extend(values)\n",
        "            column.extend(values[:-1])\n",
        "test_recorder.py",
    ),
    Mistake(
        "the bytes of reports are not counted",
        recorder,
        'if row.event in ("frames", "reports"))',
        'if row.event in ("frames",))',
        "test_recorder.py",
    ),
    Mistake(
        "a hunt keeps the longest",
        hunt,
        "len(outcome.steps) < len(best.steps)",
        "len(outcome.steps) > len(best.steps)",
        "test_hunt.py",
    ),
    Mistake(
        "a hunt ends with its first failure",
        hunt,
        "GO_ON: Final = 50 ",
        "GO_ON: Final = 0 ",
        "test_hunt.py",
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_of_the_harness_is_noticed(mistake: Mistake) -> None:
    assert first_failure(HERE / mistake.tests, planted(mistake.module, mistake.old, mistake.new))


# Those of the schedules take seconds, and are the tests of the suite itself.
WATCHED = {(one.module.__name__, one.tests): one.module for one in MISTAKES if one.module is not schedule}


@pytest.mark.parametrize(("name", "tests"), WATCHED)
def test_a_copy_without_a_mistake_passes(name: str, tests: str) -> None:
    assert first_failure(HERE / tests, copy_of(WATCHED[name, tests])) == ""
