"""Fixtures: Apache RocketMQ from Maven Central, as itself, on loopback.

Where Java or Maven is missing the tests are skipped, and one line says so; with CI=true in the environment that is a failure.
`make interop VIOLATIONS=1` runs the files test_known_*.py, and nothing else of these; without it all but those.
RELEASE=4.5.2 runs either on that release alone. `make interop` has two processes, each with the tests of one release at a time.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import jars
import pytest
from our_broker import OurBroker
from releases import PROMOTED, RELEASES, refusal
from results import Results, Row
from rocketmq import Rocketmq
from servers import Servers
from xdist.scheduler import LoadScopeScheduling

from kit.command_line import Start
from rocketmq_ha.impl.app.cluster.ports import FIRST_BASE_PORT

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
SOURCES: Final = HERE / "golden" / "src" / "main" / "java" / "interop"
VIOLATIONS: Final = os.environ.get("VIOLATIONS", "") not in ("", "0")
RESULTS: Final = Results(ROOT / "build" / ("violations.json" if VIOLATIONS else "interop.json"))
TIMEOUT_S: Final = 1500  # of a test on a machine that does much else

collect_ignore = ["golden"]
collect_ignore += [path.name for path in HERE.glob("test_*.py") if path.name.startswith("test_known_") != VIOLATIONS]


# --- What is needed ----------------------------------------------------------------------------------------------------------


def missing() -> str:
    """The first program that is needed and not there, or the empty string. Maven only fetches."""
    needed = ["java", "javac"] + ([] if all(map(jars.are_there, {*RELEASES, *PROMOTED})) else ["mvn"])
    return next((program for program in needed if shutil.which(program) is None), "")


def pytest_configure() -> None:
    if refused := refusal():
        pytest.exit(f"interop: {refused}", returncode=2)
    if (absent := missing()) and os.environ.get("CI") == "true":
        pytest.exit(f"interop: {absent} is not on the PATH, and CI=true: the real RocketMQ must be run", returncode=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = missing()
    for item in items:
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"{absent} is not on the PATH"))


class ByRelease(LoadScopeScheduling):
    """All tests of a release run in one process, which starts the name server and the clients of that release once."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.rpartition("[")[2].rstrip("]").partition("-")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByRelease:
    config.option.loadscopereorder = False
    return ByRelease(config, log)


# Each process sends what it has found to the one that prints the table.
def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["rows"] = [asdict(row) for row in RESULTS.rows]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    RESULTS.rows += [Row(**row) for row in getattr(node, "workeroutput", {}).get("rows", ())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if absent := missing():
        terminalreporter.write_line(f"interop: skipped: {absent} is not on the PATH: the real RocketMQ is not run")
    if RESULTS.rows:
        RESULTS.write()
        terminalreporter.section(f"expected and actual outcomes (also in {RESULTS.path.relative_to(ROOT)})")
        for line in RESULTS.table():
            terminalreporter.write_line(line)


# --- The real RocketMQ -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def classpath(release: str) -> str:
    return jars.classpath_of(release)


def free_base() -> int:
    """A base from which on all ports that a run takes are free; below those that clusters of other tests choose from.

    A broker's ports are free between two tests, and nothing else may take them then.
    """
    tried = range(10_300, FIRST_BASE_PORT - 300, 300)
    first = os.getpid() % len(tried)
    for base in (*tried[first:], *tried[:first]):
        for port in (base, *(base + broker + more for broker in (100, 200, 250) for more in (-2, 0, 1))):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        else:
            return base
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def servers(release: str, classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A name server and our clients, for all tests of a release."""
    started = Servers(release, classpath, tmp_path_factory.mktemp("servers") / "rocketmq", free_base())
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def rocketmq(servers: Servers, tmp_path: Path) -> Iterator[Rocketmq]:
    """Brokers are started by the test; all are stopped, and forgotten by the name server, at the end."""
    started = Rocketmq(servers, tmp_path / "rocketmq")
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def ours(rocketmq: Rocketmq, start: Start, tmp_path: Path) -> OurBroker:
    return OurBroker(rocketmq, start, tmp_path)


@pytest.fixture
def results(request: pytest.FixtureRequest, release: str) -> Results:
    RESULTS.release, RESULTS.scenario = release, request.node.originalname.removeprefix("test_")
    return RESULTS
