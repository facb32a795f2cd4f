"""The cursor file of `tail`: the position in the master's log. The file is replaced, never rewritten, so it is always whole."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import ConfigInvalid

_VERSION: Final = 1


class Position(NamedTuple):
    """A position between two records. The record before it is described too, so that a different log is noticed."""

    next_offset: int
    last_offset: int = -1  # where the record before it begins; -1: no record was read
    last_size: int = 0
    last_crc: int = 0  # CRC-32 of all its bytes


def read_cursor(path: Path) -> Position | None:
    """Return the position in a cursor file; None if there is no file. Raises: ConfigInvalid; OSError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        version = fields.pop("version")
        position = Position(**fields)
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ConfigInvalid(f"{path}: found something else, expected a cursor of `rocketmq-ha tail`") from None
    if version != _VERSION or not all(type(value) is int for value in position) or position.next_offset < 0:
        raise ConfigInvalid(f"{path}: found version {version}, {position}, expected version {_VERSION} and offsets")
    return position


def write_cursor(path: Path, position: Position) -> None:
    """Replace the file. After a crash at any moment it holds the old position or the new one. Raises: OSError."""
    data = json.dumps({"version": _VERSION} | position._asdict()).encode() + b"\n"
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
