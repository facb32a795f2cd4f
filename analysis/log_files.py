"""The files of an event log: in a directory, or under a URI of an object store that pyarrow knows.

A log is named by its place, a text. Executors open files by the same place, so on a cluster all machines must see it.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from rocketmq_ha.analysis.errors import LogInvalid

URI: Final = "://"


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files under one place. Names are relative to it and have forward slashes."""

    given: str  # the place as the user has named it
    place: str  # the same in every working directory
    system: Any  # of pyarrow
    root: str

    @classmethod
    def at(cls, place: Path | str) -> "LogFiles":
        """Raises: LogInvalid, if it is a URI that pyarrow does not know."""
        if URI not in (text := str(place)):
            absolute = str(Path(text).absolute())
            return cls(text, absolute, pafs.LocalFileSystem(), absolute)
        try:
            system, root = pafs.FileSystem.from_uri(text)
        except (pa.ArrowException, OSError) as error:
            raise LogInvalid(text, str(error), "a directory, or a URI such as s3://bucket/prefix") from error
        return cls(text, text, system, root)

    def path(self, name: str) -> str:
        """A file as `system` names it."""
        return str(PurePosixPath(self.root, name)) if name else self.root

    def shown(self, name: str) -> str:
        """A file as a person finds it."""
        return f"{self.given.rstrip('/')}/{name}" if name else self.given

    def kind(self, name: str = "") -> str:
        """What stands there: "file", "directory", or "" for nothing."""
        found = self.system.get_file_info(self.path(name)).type
        return {pafs.FileType.File: "file", pafs.FileType.Directory: "directory"}.get(found, "")

    def sizes(self, folder: str, suffix: str) -> dict[str, int]:
        """The files right in a folder that end in `suffix`, by name, with their bytes; none if there is no such folder."""
        found = self.system.get_file_info(pafs.FileSelector(self.path(folder), allow_not_found=True))
        names = {f"{folder}/{info.base_name}": int(info.size or 0) for info in found if info.type == pafs.FileType.File}
        return {name: names[name] for name in sorted(names) if name.endswith(suffix)}

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none. Raises: OSError."""
        try:
            with self.system.open_input_stream(self.path(name)) as stream:
                data: bytes = stream.readall()
                return data
        except FileNotFoundError:
            return None
