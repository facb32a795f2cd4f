"""The processes of `make test`: all tests of a file, and of the files of a group, run in order in the same process.

There are three for two processors, because half of the time a test waits for a socket or a process that it has started.

A file names its group: `pytestmark = pytest.mark.xdist_group("name")`, with the reason. Groups take long, so they begin first.

`--dist loadgroup` of pytest-xdist 3.8 does not work: it changes the ids of the tests, which pytest 9.2 ignores, and each test
is sent to a process by itself. Here the groups are read from the files.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
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


def share_bytecode() -> None:
    """Let the processes that tests start keep their compiled modules, where this process was told to write none.

    Each would compile the whole package again, which takes as long as the rest of its start. They go into a folder that is
    removed at the end.
    """
    if sys.dont_write_bytecode and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tempfile.mkdtemp(prefix="rocketmq-ha-bytecode-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["PYTHONPYCACHEPREFIX"] = folder


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_xdist_auto_num_workers() -> int:
    return (processors() * 3 + 1) // 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileAndGroup:
    config.option.loadscopereorder = False
    return ByFileAndGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
