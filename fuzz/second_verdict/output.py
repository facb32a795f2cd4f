"""The tables runs/ and rules/ of a second verdict. Both get their names when both are complete, or neither does.

Two tables of an older second verdict are replaced. No other file is ever deleted: what lies in runs/ or rules/ and is no part
of such a table is found before the work, and again before the tables get their names.
"""

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.impl.errors import NO_ROOM
from rocketmq_ha.spec.event_log import CAMPAIGN_FILE

RUNS: Final = "runs"
RULES: Final = "rules"
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    RUNS: ("check", "log", "run_id", "verdict", "rule", "step", "detail", "n_rows", "n_violations"),
    RULES: ("rule", "premises", "violations"),
}
UNFINISHED: Final = ".second-verdict-"  # before the name of the folder in which the tables are made

_PART: Final = re.compile(
    r"\.?(part-\d{5,}-[-0-9a-f]{36}-c\d{3,}\.\w+\.parquet)(\.crc)?"
)  # as Spark names the files of a table
_ENDS: Final = ("_SUCCESS", "._SUCCESS.crc")  # which Spark writes last
# What a disk can do to a write. Java tells it with the words of the operating system, and without the number.
_OF_WRITES: Final = (*NO_ROOM, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)


def check(out: Path) -> None:
    """Look at what the tables would replace. Raises: FuzzError, for a log, and for a file that no second verdict has made."""
    if (out / CAMPAIGN_FILE).exists():
        raise FuzzError(f"--out {out}: found {CAMPAIGN_FILE}, so a log, expected a directory for the tables alone")
    for table in COLUMNS:
        if (found := _foreign(out / table, COLUMNS[table])) is not None:
            raise FuzzError(f"--out {found}: found a file of no second verdict, expected none where {table}/ is to be")


def _foreign(folder: Path, columns: Sequence[str]) -> Path | None:
    """What would be lost if the table got its folder's name; None if that is a table of a second verdict alone, or nothing."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return folder
    files = sorted(folder.iterdir()) if folder.exists() else []
    return next((file for file in files if not _is_of_table(file, columns)), None)


def _is_of_table(file: Path, columns: Sequence[str]) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    if file.name in _ENDS:
        return True
    name = _PART.fullmatch(file.name)
    if name is None:
        return False
    try:
        return tuple(pq.read_schema(file.with_name(name[1])).names) == tuple(columns)
    except (pa.ArrowException, OSError):
        return False


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield the folder in which the tables are to be made. Afterwards they get their names, or if that failed are deleted.

    Raises: FuzzError as `check`; OSError with a path, where they cannot be written.
    """
    unfinished = out / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        with naming(out, _OF_WRITES):
            unfinished.mkdir()  # no folder of tempfile's: the executors may be another user's
            yield unfinished
        check(out)
        for table in COLUMNS:
            with contextlib.suppress(FileNotFoundError):
                (out / table).rename(unfinished / f"older-{table}")
        for table in COLUMNS:
            (unfinished / table).rename(out / table)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def naming(place: Path | str, numbers: Sequence[int] = NO_ROOM) -> Iterator[None]:
    """Raise OSError with the place for what Spark tells in pages of traces: that a disk is full, say."""
    try:
        yield
    except (OSError, FuzzError):
        raise
    except Exception as error:
        text = str(error)
        found = next((number for number in numbers if os.strerror(number) in text), None)
        if found is None:
            raise
        raise OSError(found, os.strerror(found), str(place)) from error
