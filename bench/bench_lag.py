"""Lag of an asynchronous slave at 5,000 messages per second: the time from the start of a put until the slave's log has it.

Master and slave are two processes on loopback. Both use the same clock, CLOCK_MONOTONIC. A round takes two seconds.
"""

import statistics
from bisect import bisect_left
from pathlib import Path

import pytest

from .conftest import Figures
from .ha_kit import OurMaster, OurSlave, Sides
from .java_store import Rates

RATE = 5_000  # messages per second
COUNT = 2 * RATE
ROUNDS = 7


@pytest.mark.benchmark(group="lag")
def test_lag(sides: Sides, figure: Figures, tmp_path: Path) -> None:
    notes, puts = tmp_path / "notes", tmp_path / "puts"
    with OurMaster(tmp_path / "master") as master:
        master.ask("append", 1)
        record_size = 0
        end = 0

        def ours() -> Rates:
            nonlocal record_size, end
            store = tmp_path / f"slave-{len(list(tmp_path.glob('slave-*')))}"
            end = int(master.ask("end")["offset"])
            record_size = record_size or end
            with OurSlave(store, master.port, end + COUNT * record_size, notes) as slave:
                slave.start()
                master.ask("slaves", 1)
                rate = master.ask("paced", RATE, COUNT, puts)["per_second"]
                slave.answer()
            lags = lags_ms(read(puts), read(notes))
            return {"p50": statistics.median(lags), "p99": statistics.quantiles(lags, n=100)[-1], "per_second": rate}

        found = sides([], [ours], rounds=ROUNDS)
    figure(f"async lag at {RATE:,} messages/s, p50", "ms", [rates["p50"] for rates in found], 1)
    figure(f"async lag at {RATE:,} messages/s, p99", "ms", [rates["p99"] for rates in found], 5)
    assert min(rates["per_second"] for rates in found) > 0


def read(notes: Path) -> list[tuple[int, int]]:
    """Read (nanoseconds, offset) pairs, in the order of the file."""
    pairs = (line.split() for line in notes.read_text(encoding="ascii").splitlines())
    return [(int(at_ns), int(offset)) for at_ns, offset in pairs]


def lags_ms(puts: list[tuple[int, int]], appends: list[tuple[int, int]]) -> list[float]:
    """Return, for each put, the milliseconds until the first append that reached its end."""
    ends = [offset for _, offset in appends]
    return [(appends[bisect_left(ends, offset)][0] - put_ns) / 1e6 for put_ns, offset in puts]
