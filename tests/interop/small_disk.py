"""A file system of a few pages, that is soon full: a tmpfs in a mount namespace of its own, so that it needs no root.

A process sees it if it is started behind `enter`. Everybody else reads it below `outside`.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from kit.children import Child
from kit.waiting import PATIENCE_S

# In this order: a user namespace needs no rights, where the kernel lets people make one; the other needs those of root.
HELD_S: Final = 1500.0  # as long as a test may take
WAYS: Final = (("--user", "--map-root-user", "--mount"), ("--mount",))
MOUNT: Final = 'mount -t tmpfs -o "size=$1" none "$2" && echo ready && exec cat'


class SmallDisk:
    """It lasts as long as the process that holds the namespace, which ends with us: `cat` ends when its input does."""

    def __init__(self, place: Path, size: int) -> None:
        place.mkdir()
        self.inside: Final = place
        self._holder, self._ways = _hold(place, size)

    @property
    def outside(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self.inside}")

    @property
    def enter(self) -> list[str]:
        """The command's beginning that starts a program on this disk, in the same process."""
        ways = ["--user", "--preserve-credentials"] if "--user" in self._ways else []
        return ["nsenter", "--target", str(self._holder.pid), *ways, "--mount"]

    def sparse_file(self, base: int, size: int, begins: bytes) -> None:
        """A file of a log: its length is there, and no space but for what it begins with."""
        folder = self.outside / "commitlog"
        folder.mkdir(exist_ok=True)
        with (folder / f"{base:020}").open("wb") as file:
            file.write(begins)
            file.truncate(size)

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._holder.communicate(timeout=PATIENCE_S)


def _hold(place: Path, size: int) -> "tuple[subprocess.Popen[str], tuple[str, ...]]":
    """A process in a namespace with the tmpfs. Skips the test where the kernel allows none of the ways."""
    said = []
    for ways in WAYS:
        command = ["unshare", *ways, "sh", "-c", MOUNT, "sh", str(size), str(place)]
        pipe = subprocess.PIPE
        holder = Child(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, limit_s=HELD_S)
        assert holder.stdout is not None
        if holder.stdout.readline() == "ready\n":
            return holder, ways
        said.append(f"unshare {' '.join(ways)}: {holder.communicate(timeout=PATIENCE_S)[1].strip()}")
    pytest.skip(f"no small disk can be had for quirk 42, here or with CI=true: {'; '.join(said)}")
