"""Fixtures of tests in more than one folder, and how `make test` deals out the tests.

The tests of a file go to one process, in order, and so do those of all files of a group.

A file names its group: `pytestmark = pytest.mark.xdist_group("name")`, with the reason. Groups take long, and begin first.

`--dist loadgroup` of pytest-xdist 3.8 does not work: it changes the ids of the tests, which pytest 9.2 ignores, and each test
is dealt out by itself. Here the groups are read from the files.
"""

import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kit.golden import RELEASES, VECTORS
from kit.sockets import Net

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
GROUP = re.compile(r'^pytestmark = .*\bxdist_group\("([\w-]+)"\)', re.MULTILINE)


@cache
def group_of(file: str) -> str:
    """The group that a file names, or the file itself."""
    found = GROUP.search((ROOT / file).read_text(encoding="utf-8"))
    return found[1] if found else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    from xdist.scheduler import LoadScopeScheduling

    class ByFileAndGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFileAndGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


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
    with tarfile.open(vectors / "store.tar.xz") as archive:
        archive.extractall(store, filter="data")
    return store


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with ExitStack() as resources:
        yield Net(tmp_path, resources)
