"""Functions that find, read, change and compare files of stores."""

import contextlib
from pathlib import Path

from rocketmq_ha.impl.store.log.reader import LogReader


def log_file(store: Path, base: int = 0) -> Path:
    """The commit-log file that begins at an offset."""
    return store / "commitlog" / f"{base:020d}"


def log_files(store: Path) -> dict[str, bytes]:
    """The commit-log files by name."""
    return {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}


def delete_log_files(store: Path, before: int) -> None:
    """Delete the commit-log files that begin before an offset."""
    for path in (store / "commitlog").iterdir():
        if int(path.name) < before:
            path.unlink()


def end_of(store: Path) -> int:
    """The max offset of a store, read beside its writer; 0 if there is no log yet."""
    if not (store / "commitlog").is_dir() or not any((store / "commitlog").iterdir()):
        return 0
    with LogReader(store) as reader:
        reader.walk()
        return reader.max_offset


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a directory, by its path: mode, time of the last change, contents."""
    return {
        str(entry.relative_to(directory)): (
            entry.lstat().st_mode,
            entry.lstat().st_mtime_ns,
            entry.read_bytes() if entry.is_file() else b"",
        )
        for entry in sorted(directory.rglob("*"))
    }


def descriptors_below(directory: Path) -> list[str]:
    """The files below a directory of which this process holds descriptors, one for each. A mapping has one of its own."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(str(entry.readlink()))
    return [path for path in found if path.startswith(f"{directory}/")]
