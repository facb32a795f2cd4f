"""The files of a report: the page, the folder of its tables, and those for other programs. All are written, or none is."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_ha.analysis.errors import OutputInvalid

if TYPE_CHECKING:
    import pyarrow as pa

STDOUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """Where a report goes. The tables go to a folder beside the page."""

    page: Path
    json: Path | None = None  # STDOUT is no file
    junit: Path | None = None

    @property
    def tables(self) -> Path:
        """The folder of the tables.

        >>> Output(Path("build/report.html")).tables.as_posix()
        'build/report-tables'
        """
        return self.page.with_name(f"{self.page.stem}-tables")

    def files(self) -> list[Path]:
        return [file for file in (self.page, self.json, self.junit) if file not in (None, STDOUT)]

    def check(self) -> None:
        """Check that each file and the folder can be written, before anything is computed.

        Raises: OutputInvalid.
        """
        if STDOUT in (self.page, self.junit):
            raise OutputInvalid("-: found the sign of stdout, which --json alone takes, expected the name of a file to write")
        files = self.files()
        for number, file in enumerate(files):
            if file.absolute() in [other.absolute() for other in files[:number]]:
                raise OutputInvalid(f"{file}: found the name of two outputs, expected a file for each")
            _check_file(file, "report" if number == 0 else "file")
        if self.tables.exists() and not self.tables.is_dir():
            raise OutputInvalid(f"{self.tables}: found a file, expected a directory for the tables")

    def write(self, tables: "Mapping[str, pa.Table]", texts: Mapping[Path, str]) -> None:
        """Write the tables and the texts beside their places, and then give each its name.

        The page gets its name last, and so stands for a complete report.

        Raises: OSError with the file or folder that cannot be written. No output has its name then.
        """
        from rocketmq_ha.analysis import tables as made

        with ExitStack() as stack:
            with _naming(self.tables):
                unfinished_tables = _unfinished(stack, self.tables)
                made.write(tables, unfinished_tables)
            unfinished_files = {}
            for file in reversed(self.files()):
                with _naming(file):
                    unfinished_files[file] = _unfinished(stack, file) / file.name
                    unfinished_files[file].write_text(texts[file], encoding="utf-8")
            self.tables.mkdir(exist_ok=True)
            for table in sorted(unfinished_tables.iterdir()):
                table.replace(self.tables / table.name)
            for name in made.OPTIONAL - set(tables):  # of an older report, with other options
                (self.tables / f"{name}.parquet").unlink(missing_ok=True)
            for file, unfinished in unfinished_files.items():
                unfinished.replace(file)


def _unfinished(stack: ExitStack, place: Path) -> Path:
    """Make a folder beside a place, until the stack ends: a move from there is a rename, on whatever file system it lies."""
    place.parent.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place.parent, prefix=".report-")))


@contextmanager
def _naming(place: Path) -> Iterator[None]:
    """Raise OSError with the place for one that has the name of an unfinished file, or none: that the disk is full, say."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(place)) from error


def _check_file(file: Path, what: str) -> None:
    if file.is_dir():
        raise OutputInvalid(f"{file}: found a directory, expected the name of a file to write")
    parent = file.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise OutputInvalid(f"{parent}: found a file, expected a directory for the {what}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputInvalid(f"{parent}: found a directory without write permission, expected one for the {what}")
