"""The files of a report: the page, the folder of its tables, and those for other programs. All are written, or none is."""

import os
import tempfile
from collections.abc import Mapping
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
        files = self.files()
        for number, file in enumerate(files):
            if file.absolute() in [other.absolute() for other in files[:number]]:
                raise OutputInvalid(f"{file}: found the name of two outputs, expected a file for each")
            _check_file(file, "report" if number == 0 else "file")
        if self.tables.exists() and not self.tables.is_dir():
            raise OutputInvalid(f"{self.tables}: found a file, expected a directory for the tables")

    def write(self, tables: "Mapping[str, pa.Table]", texts: Mapping[Path, str]) -> None:
        """Write the tables, then the texts, each file whole. The page comes last, and so stands for a complete report."""
        from rocketmq_ha.analysis import tables as made

        for file in self.files():
            file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.page.parent, prefix=".report-") as name:
            unfinished = Path(name)
            made.write(tables, unfinished)
            self.tables.mkdir(exist_ok=True)
            for file in sorted(unfinished.iterdir()):
                file.replace(self.tables / file.name)
        for file in reversed(self.files()):
            _write_whole(file, texts[file])


def _write_whole(file: Path, text: str) -> None:
    """Write beside the file first, so that its name never stands for half of it, on whatever file system it lies."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".report-") as name:
        unfinished = Path(name) / file.name
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)


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
