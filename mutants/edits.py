"""Edits: the form in which mistakes are written down, and how one is planted.

A file of edits is TOML with a table `[[edit]]` for each, or a JSON list of objects. The fields are those of Edit.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("edits")
AREAS: Final = (
    "impl/wire",
    "impl/store/log",
    "impl/store/derived",
    "impl/store",
    "impl/ha",
    "impl/net",
    "impl/remoting",
    "impl/app",
    "impl/cli",
    "impl",
    "fuzz",
    "analysis",
    "reference",
)


class EditError(Exception):
    """An edit that cannot be planted, or a file of edits that cannot be read."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old`, which occurs once in `file`, by `new`.

    story: the mistake, and what it breaks. line: where `old` begins, from 1, for a text that occurs more than once.
    equivalent: why no test can notice the edit; such an edit may survive.
    """

    file: str
    old: str
    new: str
    story: str
    line: int = 0
    equivalent: str = ""

    @property
    def area(self) -> str:
        return area(self.file)

    @property
    def key(self) -> str:
        """A name that stays when the rest of the file changes."""
        return hashlib.sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()[:12]

    def start(self, text: str) -> int:
        """The position of `old` in a text. Raises: EditError."""
        places = list(_places(self.old, text))
        if self.line:
            places = [at for at in places if text.count("\n", 0, at) + 1 == self.line]
        if len(places) != 1:
            raise EditError(f"{self.file}: its text stands there {len(places)} times, not once: {self.old.strip()[:80]!r}")
        return places[0]

    def apply(self, text: str) -> str:
        """The text with the edit. Raises: EditError."""
        at = self.start(text)
        return text[:at] + self.new + text[at + len(self.old) :]

    def lines(self, text: str) -> range:
        """The lines of the unedited text, from 1, that the edit changes."""
        at = self.start(text)
        first, last = text.count("\n", 0, at) + 1, text.count("\n", 0, at + len(self.old.rstrip("\n"))) + 1
        old, new = text.splitlines(), self.apply(text).splitlines()
        while first < last and old[first - 1] == new[first - 1]:
            first += 1
        while last > first and old[last - 1] == new[last - 1 - len(old) + len(new)]:
            last -= 1
        return range(first, last + 1)


def _places(part: str, text: str) -> Iterator[int]:
    at = text.find(part) if part else -1
    while at != -1:
        yield at
        at = text.find(part, at + 1)


def area(file: str) -> str:
    """The folder of the table to which a file belongs."""
    return next((name for name in AREAS if file.startswith(f"{name}/")), file.partition("/")[0])


def load(path: Path) -> list[Edit]:
    """Read a file of edits. Raises: EditError."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)["edit"]
        return [_edit(row) for row in rows]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EditError(f"{path}: {error!r}") from error


def _edit(row: dict[str, Any]) -> Edit:
    known = {name: row[name] for name in ("file", "old", "new", "line", "equivalent") if name in row}
    return Edit(**known, story=row.get("story", ""))


def load_all(paths: Iterable[Path] = ()) -> list[Edit]:
    """The edits of the given files; without any, all that are written by hand."""
    return [edit for path in (tuple(paths) or sorted(FOLDER.glob("*.toml"))) for edit in load(path)]
