"""The processes of `make test`: all tests of a file, and of the files of a group, run in order in the same process.

A file names its group: `pytestmark = pytest.mark.xdist_group("name")`, with the reason. Groups take long, so they begin first.

`--dist loadgroup` of pytest-xdist 3.8 does not work: it changes the ids of the tests, which pytest 9.2 ignores, and each test
is sent to a process by itself. Here the groups are read from the files.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

GROUP: Final = re.compile(r'^pytestmark = .*\bxdist_group\("([\w-]+)"\)', re.MULTILINE)


@cache
def group_of(root: Path, file: str) -> str:
    """The group that a file names, or the file itself."""
    found = GROUP.search((root / file).read_text(encoding="utf-8"))
    return found[1] if found else file


class ByFileAndGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath, nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileAndGroup:
    config.option.loadscopereorder = False
    return ByFileAndGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
