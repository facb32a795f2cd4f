"""A power cut of a process's machine: what it had not synced is taken from its files, after it was killed.

The loss is exact and the worst of its kind: of each file the bytes of its last fsync or fdatasync, and zeros where it had none.
Names and lengths survive, as a file system with a journal has them soon; tests/crash/pages.py has every other outcome.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("keep_synced.c")
_COMPILE_S: Final = 120


class PowerSwitch:
    """Keeps what the processes that get its environment have synced below `root`. It needs a C compiler and Linux."""

    def __init__(self, root: Path, mirror: Path, library: Path) -> None:
        """library: from `compile_library`."""
        self._root, self._mirror, self._library = root.resolve(), mirror, library
        mirror.mkdir()

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "KEEP_SYNCED_ROOT": str(self._root),
            "KEEP_SYNCED_MIRROR": str(self._mirror),
        }

    def note_all(self, store: Path) -> None:
        """All that a store has is on the disk: nobody writes to it, and its next process begins with it."""
        for file in _files(store):
            (self._mirror / _key(file)).write_bytes(file.read_bytes())

    def cut(self, store: Path) -> int:
        """Take from a store what was not synced. Returns: how many bytes of its commit log changed."""
        changed = 0
        for file in _files(store):
            kept, size = self._mirror / _key(file), file.stat().st_size
            synced = (kept.read_bytes() if kept.exists() else b"")[:size].ljust(size, b"\0")
            before = file.read_bytes()
            if synced != before:
                if file.parent.name == "commitlog":
                    changed += sum(was != now for was, now in zip(before, synced, strict=True))
                with file.open("r+b") as out:
                    out.write(synced)
        return changed


def compile_library(directory: Path) -> Path:
    """Compile keep_synced.c. Raises: subprocess.CalledProcessError, with what the compiler says; FileNotFoundError."""
    library = directory / "keep_synced.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=_COMPILE_S)
    return library


def _files(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.is_file() and not path.is_symlink()]


def _key(file: Path) -> str:
    found = file.stat()
    return f"{found.st_dev}-{found.st_ino}"
