"""Throughput of a master with one thread and a hundred slaves, compared with one slave.

All slaves run in one process and do little work, so that the master is the bottleneck (ha_crowd.py).
The row `by processor time` compares the bytes sent per second of the master's own processor time.
"""

from pathlib import Path

import pytest

from .ha_kit import Compared, OurMaster, Sides, fill
from .java_store import Rates
from .line_process import LineProcess, python

SLAVES = 100
SIZE = 512 << 20  # bytes of the log; a single slave reads all of it, each of the hundred reads one hundredth


@pytest.mark.benchmark(group="crowd")
def test_crowd(sides: Sides, tmp_path: Path) -> None:
    end = fill(tmp_path / "master", SIZE)
    with (
        OurMaster(tmp_path / "master") as master,
        LineProcess(python("ha_crowd", master.port), tmp_path / "crowd.log") as crowd,
    ):
        crowd.answer()

        def run(slaves: int) -> tuple[float, float]:
            """Return bytes per second, and bytes per second of the master's processor time."""
            each = end // slaves
            start = max(1, end - each)  # 0 would be the start of the last file
            before = master.ask("cpu")["seconds"]
            seconds = crowd.ask("follow", slaves, start, end)["seconds"]
            nbytes = slaves * (end - start)
            return nbytes / seconds, nbytes / (master.ask("cpu")["seconds"] - before)

        def one() -> Rates:
            rate, of_cpu = run(1)
            return {"one": rate, "one cpu": of_cpu}

        def many() -> Rates:
            rate, of_cpu = run(SLAVES)
            return {"many": rate, "many cpu": of_cpu}

        rows = [
            Compared(f"{SLAVES} slaves together", "one slave", "many", "one", "B/s"),
            Compared(f"{SLAVES} slaves, by processor time", "one slave", "many cpu", "one cpu", "B/s"),
        ]
        sides(rows, [one, many], warm_up_rounds=1)
