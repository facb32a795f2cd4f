"""A measurement and its floor by turns: what one machine does at one time is all that can be compared.

Each round runs the floor first and then what is measured, so whatever else the machine is doing hits both. The table shows the
seconds of the measured half; `extra_info` has the medians and the ratio, and each test prints them with `pytest -s`.
"""

import statistics
import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS = 9

Pairs = Callable[..., float]


@pytest.fixture
def pairs(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Pairs:
    """Run (measured, floor) pairs; `items` of each; `prepare` comes before both, and is not timed.

    Returns: the median of floor time by measured time, 1.0 being as quick.
    """

    def run(
        measured: Callable[[], object],
        floor: Callable[[], object],
        *,
        items: int,
        floor_items: int | None = None,
        prepare: Callable[[], object] = bool,
    ) -> float:
        floors: list[float] = []
        times: list[float] = []

        def before() -> None:
            prepare()
            started = time.perf_counter()
            floor()
            floors.append((time.perf_counter() - started) / (floor_items or items))

        def timed() -> None:
            started = time.perf_counter()
            measured()
            times.append((time.perf_counter() - started) / items)

        benchmark.pedantic(timed, setup=before, rounds=ROUNDS)
        ratio = statistics.median(low / high for low, high in zip(floors, times, strict=True))
        benchmark.extra_info.update(
            per_second=round(1 / statistics.median(times)),
            floor_per_second=round(1 / statistics.median(floors)),
            ratio=round(ratio, 3),
        )
        print(f"\n{request.node.name}: {benchmark.extra_info}")  # noqa: T201
        return ratio

    return run
