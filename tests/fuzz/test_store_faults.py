"""Schedules of the world of a store find each fault that is planted in it (fuzz/faults.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_ha.fuzz import faults
from rocketmq_ha.fuzz.faults import FAULTS, Fault

pytestmark = pytest.mark.xdist_group("planted-faults")

OF_STORE = [fault for fault in FAULTS if fault.world == "store"]
SEEDS = 400
PATIENCE_S = 600  # for a busy machine
HUNT = f"""
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.store import STORE

for seed in range({SEEDS}):
    outcome = lockstep.run(STORE.draw(seed))
    if outcome.verdict != "ok":
        print(seed, outcome.verdict, outcome.last.detail)
        break
"""


@pytest.mark.parametrize("fault", OF_STORE, ids=lambda fault: fault.name)
def test_schedules_of_a_store_find_the_fault(fault: Fault, tmp_path: Path) -> None:
    root = faults.plant(fault, tmp_path)
    found = subprocess.run(
        [sys.executable, "-c", HUNT],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert found.stdout, f"{fault.name}: no schedule of {SEEDS} shows it"


def test_there_are_at_least_eight() -> None:
    assert len(OF_STORE) >= 8
