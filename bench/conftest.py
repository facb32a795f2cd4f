"""Fixtures that run a measurement and its comparison by turns, because only results of one machine at one time are comparable.

Each round runs the other side first (a floor, which is the least work that any implementation must do, or RocketMQ's own store)
and then ours, so that other load on the machine affects both. A run ends with one table of all ratios. A run of all benchmarks
also writes the table to bench/results. pytest-benchmark's own table has the seconds of our side only.
"""

import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from . import java_store, outcome
from .ha_kit import Compared, Sides
from .java_store import RELEASE, NoJavaError, Rates, Versus, class_path, java_version
from .outcome import ROUNDS

ROWS = pytest.StashKey[list[outcome.Row]]()
FIGURES = pytest.StashKey[list[outcome.Figure]]()
NOTES = pytest.StashKey[list[str]]()
LOAD = pytest.StashKey[float]()

Pairs = Callable[..., float]
Figures = Callable[[str, str, Sequence[float], float | None], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--catch-up-mib",
        type=int,
        default=512,
        help="size of the log that a slave catches up with in bench_catch_up.py, in MiB",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS], config.stash[NOTES], config.stash[LOAD] = [], [], os.getloadavg()[0]
    config.stash[FIGURES] = []


@pytest.fixture(autouse=True)
def _delete_files(tmp_path: Path) -> Iterator[None]:
    """Delete the files of a benchmark, up to gigabytes, at its end, so that the next one does not wait for their write-back."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def show_progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show the progress on a terminal, in a line that each call replaces."""
    captured = request.config.pluginmanager.getplugin("capturemanager")

    def show(text: str) -> None:
        if captured is None:
            return
        with captured.global_and_fixture_disabled():
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()

    return show


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Add a line about the run under the table."""
    return request.config.stash[NOTES].append


@pytest.fixture
def pairs(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, show_progress: Callable[[str], None]) -> Pairs:
    """Run rounds of (floor, measured) pairs. Each side handles `items` items. `prepare` runs before both and is not timed.

    Returns: the median of floor time divided by measured time; 1.0 means that both are equally fast.
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
        name = request.node.name.removeprefix("test_")

        def before() -> None:
            show_progress(f"{name}: round {len(times) + 1} of {ROUNDS}")
            prepare()
            started = time.perf_counter()
            floor()
            floors.append((time.perf_counter() - started) / (floor_items or items))

        def timed() -> None:
            started = time.perf_counter()
            measured()
            times.append((time.perf_counter() - started) / items)

        benchmark.pedantic(timed, setup=before, rounds=ROUNDS)  # type: ignore[no-untyped-call]
        show_progress("")
        ratio = statistics.median(low / high for low, high in zip(floors, times, strict=True))
        benchmark.extra_info.update(
            per_second=round(1 / statistics.median(times)),
            floor_per_second=round(1 / statistics.median(floors)),
            ratio=round(ratio, 3),
        )
        rates = [1 / took for took in times], [1 / took for took in floors]
        request.config.stash[ROWS].append(outcome.row_of(name, "floor", "/s", *rates))
        return ratio

    return run


@pytest.fixture(scope="session")
def java(note: Callable[[str], None]) -> str:
    """The class path of RocketMQ's own store. Without it the test is skipped, and a line under the table says why."""
    try:
        found = class_path()
    except NoJavaError as error:
        note(f"not compared with Apache RocketMQ's own store: {error}")
        pytest.skip(str(error))
    note(f"java: the DefaultMessageStore of Apache RocketMQ {RELEASE}, {java_version()}")
    return found


@pytest.fixture
def java_if_any(note: Callable[[str], None], request: pytest.FixtureRequest) -> str | None:
    """The class path, for a comparison with more sides. It is None, with a line under the table, if the jars are missing."""
    try:
        return class_path()
    except NoJavaError as error:
        line = f"not compared with Apache RocketMQ's own replication: {error}"
        if line not in request.config.stash[NOTES]:
            note(line)
        return None


@pytest.fixture
def figure(request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> Figures:
    """Record a measurement without a comparison: its title, unit, one value per round, and its upper target."""

    def keep(what: str, unit: str, values: Sequence[float], at_most: float | None) -> None:
        found = outcome.figure_of(what, unit, values, at_most)
        request.config.stash[FIGURES].append(found)
        benchmark.extra_info[what] = found.value

    return keep


@pytest.fixture
def sides(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, show_progress: Callable[[str], None]) -> Sides:
    """See Sides."""

    def run(
        rows: Sequence[Compared],
        sides: Sequence[Callable[[], Rates]],
        *,
        rounds: int = java_store.ROUNDS,
        warm_up_rounds: int = 0,
    ) -> list[Rates]:
        found: list[Rates] = []

        def before() -> None:
            show_progress(f"{request.node.name.removeprefix('test_')}: round {len(found) + 1} of {warm_up_rounds + rounds}")
            found.append({})
            for side in sides[:-1]:
                found[-1] |= side()

        benchmark.pedantic(lambda: found[-1].update(sides[-1]()), setup=before, rounds=rounds, warmup_rounds=warm_up_rounds)
        show_progress("")
        kept = found[warm_up_rounds:]
        for row in rows:
            if row.other in kept[0]:
                both = [rates[row.ours] for rates in kept], [rates[row.other] for rates in kept]
                busy = outcome.busy_of(kept, row.ours.split()[0], row.other.split()[0])
                stashed = outcome.row_of(row.what, row.beside, row.unit, *both, busy)
                request.config.stash[ROWS].append(stashed)
                benchmark.extra_info[f"{row.what}, beside {row.beside}"] = stashed.ratio
        return kept

    return run


@pytest.fixture
def versus(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, show_progress: Callable[[str], None]) -> Versus:
    """See Versus."""

    def run(
        rows: Mapping[str, tuple[str, str]],
        ours: Callable[[], Rates],
        theirs: Callable[[], Rates],
        *,
        unit: str = "/s",
        warm_up_rounds: int = java_store.WARM_UP_ROUNDS,
    ) -> None:
        our_rates: list[Rates] = []
        their_rates: list[Rates] = []

        def before() -> None:
            done, total = len(our_rates), warm_up_rounds + java_store.ROUNDS
            show_progress(f"{request.node.name.removeprefix('test_')}: round {done + 1} of {total}")
            their_rates.append(theirs())

        benchmark.pedantic(
            lambda: our_rates.append(ours()), setup=before, rounds=java_store.ROUNDS, warmup_rounds=warm_up_rounds
        )
        show_progress("")
        for name, (our, their) in rows.items():
            both = ([rates[our] for rates in our_rates], [rates[their] for rates in their_rates])
            row = outcome.row_of(name, "java", unit, *(rates[warm_up_rounds:] for rates in both))
            request.config.stash[ROWS].append(row)
            benchmark.extra_info[name] = row.ratio

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table. Write it to bench/results if all benchmarks ran."""
    rows, figures, notes = config.stash[ROWS], config.stash[FIGURES], config.stash[NOTES]
    if not rows and not figures and not notes:
        return
    notes.append(f"ours: {platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}")
    notes.append(f"{os.cpu_count()} processors; load before {config.stash[LOAD]:.1f}, after {os.getloadavg()[0]:.1f}")
    terminalreporter.section("ratios: more than 1 means that ours is faster; medians of pairs")
    for line in [*outcome.table(rows), *outcome.figure_lines(figures), *notes]:
        terminalreporter.write_line(line)
    is_complete = not any(terminalreporter.stats.get(kind) for kind in ("failed", "error", "skipped", "deselected"))
    if rows and is_complete and config.args in (["bench"], [str(config.rootpath / "bench")]):
        outcome.write(rows, figures, notes)
        terminalreporter.write_line(f"written to {outcome.RESULTS.relative_to(config.rootpath)}")
