"""Where an event log is written: a directory, or a prefix of an object store, by one small interface.

`write` makes a file whole or not at all: by a rename in a directory, by one request on an object store. Nothing here renames or
appends otherwise, because object stores cannot. In a directory a file is on the disk before `write` returns, so that a power
cut takes no file that a later one names.

A place is a path, or a URI that pyarrow knows, such as s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http .
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from rocketmq_ha.fuzz.errors import FuzzError

PARTIAL: Final = ".partial"


class LogStore:
    """The files of one log. Names are relative and have forward slashes."""

    def __init__(self, place: str) -> None:
        """Raises: FuzzError, where no log can be at such a place."""
        self.place = place
        self.is_local = "://" not in place
        if self.is_local and Path(place).is_file():
            raise FuzzError(f"{place}: found a file, expected the directory of a log")
        try:
            self._files, root = (
                (pafs.LocalFileSystem(), str(Path(place).absolute())) if self.is_local else pafs.FileSystem.from_uri(place)
            )
        except (pa.ArrowException, OSError) as error:
            raise FuzzError(f"{place}: {error}; expected a directory, or a URI such as s3://bucket/prefix") from error
        self._root = PurePosixPath(root)

    @property
    def absolute(self) -> str:
        """The place, independent of the working directory of a process."""
        return str(Path(self.place).absolute()) if self.is_local else self.place

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file: whole, or not at all. An older file of that name is replaced."""
        target = self._path(name)
        if self.is_local:
            _write_whole(Path(target), data)
            return
        with self._naming(name), self._files.open_output_stream(target) as stream:
            stream.write(data)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a Parquet file."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.write(name, sink.getvalue())

    def read(self, name: str, most: int | None = None) -> bytes | None:
        """The bytes of a file, or the first ones, `most` at most; None if there is none."""
        try:
            with self._naming(name), self._files.open_input_stream(self._path(name)) as stream:
                data: bytes = stream.read(most)
                return data
        except FileNotFoundError:
            return None

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """The rows of a Parquet file. Raises: FuzzError, if there is none, or one that cannot be read."""
        try:
            with self._naming(name):
                return pq.read_table(self._path(name), columns=columns, filesystem=self._files)
        except FileNotFoundError:
            raise FuzzError(f"{self.place}/{name}: found nothing, expected the file that a manifest names") from None
        except pa.ArrowException as error:
            raise FuzzError(f"{self.place}/{name}: found {_first_line(error)}, expected a Parquet file") from error

    def names(self, folder: str) -> Iterator[str]:
        """The names of the files in a folder, with the folder, in order; none if there is no such folder."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        with self._naming(folder):
            found: list[Any] = [info for info in self._files.get_file_info(selector) if info.type == pafs.FileType.File]
        for path in sorted(info.path for info in found):
            name = PurePosixPath(path).relative_to(self._root).as_posix()
            if not name.endswith(PARTIAL):
                yield name

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its files, if it is there."""
        with self._naming(name):
            kind = self._files.get_file_info(self._path(name)).type
            if kind == pafs.FileType.Directory:
                self._files.delete_dir(self._path(name))
            elif kind == pafs.FileType.File:
                self._files.delete_file(self._path(name))

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Name the place and the file in an error of an object store, which has no error number."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno is not None:
                raise
            raise FuzzError(f"{self.place}: {name}: {_first_line(error)}") from error

    def _path(self, name: str) -> str:
        return str(self._root / name)


def _write_whole(target: Path, data: bytes | pa.Buffer) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{target}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
