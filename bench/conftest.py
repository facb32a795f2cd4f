"""A measurement and what it stands beside by turns: what one machine does at one time is all that can be compared.

Each round runs the other side first (a floor that no implementation could go below, or RocketMQ's own store) and then ours, so
whatever else the machine is doing hits both. A run ends with one table of all ratios; a whole one also writes it to
bench/results. pytest-benchmark's table has the seconds of our half.
"""

import os
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
    parser.addoption("--catch-up-mib", type=int, default=512, help="of how much a slave catches up in bench_catch_up.py; MiB")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS], config.stash[NOTES], config.stash[LOAD] = [], [], os.getloadavg()[0]
    config.stash[FIGURES] = []


@pytest.fixture(autouse=True)
def _is_swept(tmp_path: Path) -> Iterator[None]:
    """What a benchmark writes, up to gigabytes, goes with it: the next one is not to wait until it is on the disk."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show how far it is, in one line that the next one replaces, where somebody looks."""
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
    """Say something of a run that its numbers do not."""
    return request.config.stash[NOTES].append


@pytest.fixture
def pairs(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, say: Callable[[str], None]) -> Pairs:
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
        name = request.node.name.removeprefix("test_")

        def before() -> None:
            say(f"{name}: round {len(times) + 1} of {ROUNDS}")
            prepare()
            started = time.perf_counter()
            floor()
            floors.append((time.perf_counter() - started) / (floor_items or items))

        def timed() -> None:
            started = time.perf_counter()
            measured()
            times.append((time.perf_counter() - started) / items)

        benchmark.pedantic(timed, setup=before, rounds=ROUNDS)  # type: ignore[no-untyped-call]
        say("")
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
    """The class path of RocketMQ's own store. Without it the test is skipped, and the table says why in one line."""
    try:
        found = class_path()
    except NoJavaError as error:
        note(f"not compared with Apache RocketMQ's own store: {error}")
        pytest.skip(str(error))
    note(f"java: the DefaultMessageStore of Apache RocketMQ {RELEASE}, {java_version()}")
    return found


@pytest.fixture
def java_if_any(note: Callable[[str], None], request: pytest.FixtureRequest) -> str | None:
    """The class path, for a comparison that has other sides too; None where RocketMQ's jars cannot be had, said in one line."""
    try:
        return class_path()
    except NoJavaError as error:
        line = f"not compared with Apache RocketMQ's own replication: {error}"
        if line not in request.config.stash[NOTES]:
            note(line)
        return None


@pytest.fixture
def figure(request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> Figures:
    """Keep a measure of its own: what, unit, one value a round, at most which it should be."""

    def keep(what: str, unit: str, values: Sequence[float], at_most: float | None) -> None:
        found = outcome.figure_of(what, unit, values, at_most)
        request.config.stash[FIGURES].append(found)
        benchmark.extra_info[what] = found.value

    return keep


@pytest.fixture
def sides(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, say: Callable[[str], None]) -> Sides:
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
            say(f"{request.node.name.removeprefix('test_')}: round {len(found) + 1} of {warm_up_rounds + rounds}")
            found.append({})
            for side in sides[:-1]:
                found[-1] |= side()

        benchmark.pedantic(lambda: found[-1].update(sides[-1]()), setup=before, rounds=rounds, warmup_rounds=warm_up_rounds)
        say("")
        kept = found[warm_up_rounds:]
        for row in rows:
            if row.other in kept[0]:
                both = [rates[row.ours] for rates in kept], [rates[row.other] for rates in kept]
                stashed = outcome.row_of(row.what, row.beside, row.unit, *both)
                request.config.stash[ROWS].append(stashed)
                benchmark.extra_info[f"{row.what}, beside {row.beside}"] = stashed.ratio
        return kept

    return run


@pytest.fixture
def versus(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, say: Callable[[str], None]) -> Versus:
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
            done, whole = len(our_rates), warm_up_rounds + java_store.ROUNDS
            say(f"{request.node.name.removeprefix('test_')}: round {done + 1} of {whole}")
            their_rates.append(theirs())

        benchmark.pedantic(
            lambda: our_rates.append(ours()), setup=before, rounds=java_store.ROUNDS, warmup_rounds=warm_up_rounds
        )
        say("")
        for name, (our, their) in rows.items():
            both = ([rates[our] for rates in our_rates], [rates[their] for rates in their_rates])
            row = outcome.row_of(name, "java", unit, *(rates[warm_up_rounds:] for rates in both))
            request.config.stash[ROWS].append(row)
            benchmark.extra_info[name] = row.ratio

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table, and where it is kept."""
    rows, figures, notes = config.stash[ROWS], config.stash[FIGURES], config.stash[NOTES]
    if not rows and not figures and not notes:
        return
    notes.append(f"{os.cpu_count()} processors; load before {config.stash[LOAD]:.1f}, after {os.getloadavg()[0]:.1f}")
    terminalreporter.section("ratios: more than 1 is quicker than what it stands beside; medians of pairs")
    for line in [*outcome.table(rows), *outcome.figure_lines(figures), *notes]:
        terminalreporter.write_line(line)
    is_whole = not any(terminalreporter.stats.get(kind) for kind in ("failed", "error", "skipped", "deselected"))
    if rows and is_whole and config.args in (["bench"], [str(config.rootpath / "bench")]):
        outcome.write(rows, figures, notes)
        terminalreporter.write_line(f"kept in {outcome.RESULTS.relative_to(config.rootpath)}")
