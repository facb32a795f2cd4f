"""Where an event log is written: a directory, or a prefix of an object store, by one small interface.

`write` makes a file whole or not at all: by a rename in a directory, by one request on an object store. Nothing here renames or
appends otherwise, because object stores cannot.

A place is a path, or a URI that pyarrow knows, such as s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http .
"""

import os
from collections.abc import Iterator
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
        """Raises: FuzzError, where nothing can be written to such a place."""
        self.place = place
        self.is_local = "://" not in place
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
        written = target
        if self.is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            written = f"{target}.{os.getpid()}{PARTIAL}"
        with self._files.open_output_stream(written) as stream:
            stream.write(data)
        if self.is_local:
            Path(written).replace(target)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a Parquet file."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.write(name, sink.getvalue())

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        try:
            with self._files.open_input_stream(self._path(name)) as stream:
                data: bytes = stream.readall()
                return data
        except FileNotFoundError:
            return None

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        return pq.read_table(self._path(name), columns=columns, filesystem=self._files)

    def names(self, folder: str) -> Iterator[str]:
        """The names of the files in a folder, with the folder, in order; none if there is no such folder."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        found: list[Any] = [info for info in self._files.get_file_info(selector) if info.type == pafs.FileType.File]
        for path in sorted(info.path for info in found):
            name = PurePosixPath(path).relative_to(self._root).as_posix()
            if not name.endswith(PARTIAL):
                yield name

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its files, if it is there."""
        kind = self._files.get_file_info(self._path(name)).type
        if kind == pafs.FileType.Directory:
            self._files.delete_dir(self._path(name))
        elif kind == pafs.FileType.File:
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return str(self._root / name)
