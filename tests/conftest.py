"""Fixtures of tests in more than one folder."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest

from kit.certificates import Certificates
from kit.command_line import Process, Start
from kit.golden import RELEASES, VECTORS
from kit.hangs import pytest_itemcollected  # noqa: F401  (a hook)
from kit.processes import (  # noqa: F401  (hooks)
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
    share_bytecode,
)
from kit.sockets import Net
from kit.waiting import PATIENCE_S
from kit.worlds import FILE_SIZE, MakeWorlds, Worlds
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.golden import extract
from rocketmq_ha.fuzz.lockstep import of_link
from rocketmq_ha.spec.profile import Profile, Settings

# A time zone of its own, so that a mistake of local time for UTC is seen wherever the tests run. Child processes inherit it.
os.environ["TZ"] = "TEST+4:45"
time.tzset()
share_bytecode()

# On a loaded machine an example may take any time; a test that hangs is ended by its own limit.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")


@pytest.fixture
def nodes() -> Iterator[ExitStack]:
    """Processes of a test; stopped at its end, the last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each release of RocketMQ that wrote a golden store."""
    return str(request.param)


@pytest.fixture(scope="session")
def vectors(release: str) -> Path:
    """The folder of what a release wrote, and of what its client reported."""
    return VECTORS / f"rocketmq-{release}"


@pytest.fixture(scope="session")
def golden(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden store of a release, unpacked. No test changes it."""
    store = tmp_path_factory.mktemp("golden") / "store"
    extract(vectors / "store.tar.xz", store)
    return store


@pytest.fixture
def worlds() -> Iterator[MakeWorlds]:
    """Makes a cluster of empty stores with files of 1000 bytes."""
    with ExitStack() as resources:

        def make(profile: Profile, slaves: int = 1, **settings: int) -> Worlds:
            directory = resources.enter_context(lockstep.scratch_directory())
            both = of_link(slaves, replace(Settings(mapped_file_size=FILE_SIZE), **settings), profile, directory)
            resources.callback(both.close)
            return Worlds(both)

        yield make


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with ExitStack() as resources:
        yield Net(tmp_path, resources)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands as processes; those that still run at the end of the test are killed."""
    running: list[Process] = []

    def run(*arguments: object, limit_s: float = 2 * PATIENCE_S) -> Process:
        running.append(Process(tmp_path / f"{len(running)}.log", *arguments, limit_s=limit_s))
        return running[-1]

    yield run
    for process in running:
        process.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
