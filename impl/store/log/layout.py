"""The commit log: HA-ST-1 "MUST be a sequence of files of one fixed size, each named by the 20-digit offset of its first byte".

This module only lists, checks and syncs; it never creates, changes or locks anything.

Source: article 003 section 1.1; 4.9.8 MappedFileQueue.load; quirk 39.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, END_FILE_MIN_BLANK_SIZE, FILE_NAME_DIGITS, INDEX_DIR

# Java keeps the size of a file in an i32, and so does a BLANK record with the rest of a file.
MAX_FILE_SIZE: Final = 2**31 - 1
_PARTS: Final = frozenset((COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, INDEX_DIR, "config"))  # of a store
# A file under creation. We no longer create such names in commitlog/, but older stores may contain one.
CREATING_SUFFIX: Final = ".creating"
_NAME: Final = re.compile(rf"[0-9]{{{FILE_NAME_DIGITS}}}")
_CREATING_NAME: Final = re.compile(rf"[0-9]{{{FILE_NAME_DIGITS}}}{re.escape(CREATING_SUFFIX)}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of a commit-log directory. The files are adjacent: file i starts at min_offset + i * file_size."""

    directory: Path  # STORE/commitlog
    file_size: int | None  # bytes; None without files
    bases: tuple[int, ...]  # start offsets, ascending
    leftovers: tuple[Path, ...]  # remains of interrupted creations


def file_name(base: int) -> str:
    """The name of the file that starts at a commit-log offset."""
    return f"{base:0{FILE_NAME_DIGITS}d}"


def check_is_no_part(store_dir: Path) -> None:
    """Refuse a directory inside of a store. HA-ST-93 "that is a part of a store MUST be refused as a store, unchanged".

    Raises: ConfigInvalid; OSError.
    """
    if (name := _name_of_log(store_dir)) is not None:
        found = f"the file {name} in it: a log's files are in STORE/{COMMIT_LOG_DIR}"
        raise ConfigInvalid(f"{store_dir}: found {found}, expected STORE itself")
    if store_dir.absolute().name not in _PARTS:
        return
    beside = store_dir.absolute().parent / COMMIT_LOG_DIR
    if _name_of_log(beside) is not None:
        raise ConfigInvalid(f"{store_dir}: found a part of the store {beside.parent}, expected that store itself")


def _name_of_log(directory: Path) -> str | None:
    """A name in a directory that a file of a log has, if there is any."""
    if not directory.is_dir():
        return None
    with os.scandir(directory) as entries:
        return next((entry.name for entry in entries if _NAME.fullmatch(entry.name)), None)


def check_file_size(file_size: int) -> None:
    """Refuse a size that no commit-log file can have.

    Raises: ConfigInvalid.
    """
    if not END_FILE_MIN_BLANK_SIZE <= file_size <= MAX_FILE_SIZE:
        raise ConfigInvalid(f"file size {file_size}: expected {END_FILE_MIN_BLANK_SIZE} to {MAX_FILE_SIZE} bytes")


def read_layout(store_dir: Path) -> Layout | None:
    """List and check the commit-log files of a store.

    The size is the distance of the first two names; with one file, its length.

    Returns: None if there is no store yet: no directory, or no commitlog in it.
    Raises: ConfigInvalid, if a path is not a directory; StoreCorrupt, if a name is no offset or no multiple of the size, if a
    length differs, or if there is a gap; OSError.
    Spec: HA-ST-21 "of another length than the others MUST be refused".
    """
    directory = store_dir / COMMIT_LOG_DIR
    for path, expected in ((store_dir, "the root of a RocketMQ store"), (directory, "the directory of commit-log files")):
        if path.exists() and not path.is_dir():
            raise ConfigInvalid(f"{path}: not a directory, expected {expected}")
    if not directory.is_dir():
        return None
    bases, leftovers = _list_names(directory)
    if not bases:
        return Layout(directory, None, (), tuple(leftovers))
    first_length = (directory / file_name(bases[0])).stat().st_size
    file_size = bases[1] - bases[0] if len(bases) > 1 else first_length
    _check_files(directory, bases, file_size)
    return Layout(directory, file_size, tuple(bases), tuple(leftovers))


def list_files(directory: Path, file_size: int) -> tuple[tuple[int, ...], tuple[Path, ...]]:
    """List and check the files of a directory whose size is known.

    Returns: the start offsets, ascending, and the remains of interrupted creations; none if there is no directory.
    Raises: StoreCorrupt as `read_layout` does; OSError.
    """
    if not directory.is_dir():
        return (), ()
    bases, leftovers = _list_names(directory)
    _check_files(directory, bases, file_size)
    return tuple(bases), tuple(leftovers)


def _list_names(directory: Path) -> tuple[list[int], list[Path]]:
    bases, leftovers = [], []
    with os.scandir(directory) as entries:  # of an entry the system says whether it is a file, without a call for each
        for entry in sorted(entries, key=lambda entry: entry.name):
            if _NAME.fullmatch(entry.name) and entry.is_file():
                bases.append(int(entry.name))
            elif _CREATING_NAME.fullmatch(entry.name):
                leftovers.append(directory / entry.name)
            else:
                expected = f"a file named by {FILE_NAME_DIGITS} digits"
                raise StoreCorrupt(directory / entry.name, 0, f"the name {entry.name!r}", expected)
    return bases, leftovers


def _check_files(directory: Path, bases: list[int], file_size: int) -> None:
    """HA-ST-1, HA-ST-21."""
    for index, base in enumerate(bases):
        path = directory / file_name(base)
        length = path.stat().st_size
        if length != file_size:
            raise StoreCorrupt(path, base, f"a length of {length} bytes", f"{file_size}, as the file names say")
        if not END_FILE_MIN_BLANK_SIZE <= length <= MAX_FILE_SIZE:
            raise StoreCorrupt(path, base, f"a length of {length} bytes", f"{END_FILE_MIN_BLANK_SIZE} to {MAX_FILE_SIZE}")
        expected_base = bases[0] + index * file_size
        if base != expected_base or base % file_size:
            expected = file_name(expected_base - expected_base % file_size)
            raise StoreCorrupt(path, base, f"the name {path.name}", f"{expected}: files of {file_size} bytes, no gap")


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk: without it, one that was made can go with the next power cut, one that was
    removed come back. Raises: OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        error.filename = error.filename or str(directory)
        raise
    finally:
        os.close(fd)
