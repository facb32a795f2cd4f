"""How `make test` deals out the tests: those of a file go to one process, in order, and so do those of all files of a group.

A file names its group: `pytestmark = pytest.mark.xdist_group("name")`, with the reason. Groups take long, and begin first.

`--dist loadgroup` of pytest-xdist 3.8 does not work: it changes the ids of the tests, which pytest 9.2 ignores, and each test
is dealt out by itself. Here the groups are read from the files.
"""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
