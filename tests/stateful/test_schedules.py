"""Every schedule in schedules/ agrees: the shortest ones that showed a mistake, each named after it (`fuzz shrink`).

The first three showed mistakes that were planted (fuzz/faults.py).
"""

from pathlib import Path

import pytest

from rocketmq_ha.fuzz import lockstep, schedule_file
from rocketmq_ha.spec.event_log import VERDICT_OK

FILES = sorted((Path(__file__).parent / "schedules").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_two_sides_agree(file: Path) -> None:
    outcome = lockstep.run(schedule_file.read(file))
    assert outcome.verdict == VERDICT_OK, outcome.last
    assert len(outcome.steps) == len(outcome.schedule.events)
