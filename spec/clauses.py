"""Read the clauses from the chapters.

A clause is a paragraph. Each of its parts begins on its own line with a key word. The parts come in this order:

    **HA-M-4.** *(classic)* One or two sentences.
    Why: the reason, if it is not obvious.
    Source: the article or the release.
    Releases: the differences between releases, if there are any (generated).

`clause_form.py` checks the form.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CLAUSE_ID: Final = re.compile(r"HA-(?:W|M|S|G|ST|MD|R|T|RM|BT|SE|P|C)-\d+")
PARTS: Final = ("Why", "Source", "Releases")
_CLAUSE: Final = re.compile(r"^\*\*(HA-[A-Z]+-\d+)\.\*\*\s+(.*?)(?:\n\n|\n?\Z)", re.MULTILINE | re.DOTALL)
_PART: Final = re.compile(rf"^({'|'.join(PARTS)}):\s*", re.MULTILINE)
_MARKS: Final = re.compile(r"\*\(([^)]*)\)\*")
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_CHAPTER: Final = re.compile(r"(\d+)-[a-z0-9-]+\.md")


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause, and its place in the chapters."""

    clause_id: str
    sentence: str  # the sentences on one line, with the marks
    place: str  # chapter and line, such as "2-master.md:57"
    parts: tuple[tuple[str, str], ...] = ()  # (word, text on one line), in their order in the clause
    section: str = ""  # the nearest heading before the clause

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks after the id.

        >>> Clause("HA-M-1", "*(classic, description)* A master waits.", "").marks
        ('classic', 'description')
        """
        found = _MARKS.match(self.sentence)
        return tuple(mark.strip() for mark in found[1].split(",")) if found else ()

    def part(self, word: str) -> str:
        """Return the text of one of PARTS, or the empty string."""
        return next((text for name, text in self.parts if name == word), "")


def chapters(spec_dir: Path) -> list[Path]:
    """Return the files of the chapters in the order of their numbers."""
    numbered = [(int(found[1]), path) for path in spec_dir.glob("*.md") if (found := _CHAPTER.fullmatch(path.name))]
    return [path for _, path in sorted(numbered)]


def in_chapter(text: str, name: str) -> Iterator[Clause]:
    """Yield the clauses of one chapter in their order."""
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(text)]
    for found in _CLAUSE.finditer(text):
        clause_id, body = found.groups()
        sentence, *rest = _PART.split(body)
        parts = tuple((word, " ".join(part.split())) for word, part in zip(rest[::2], rest[1::2], strict=True))
        place = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
        section = next((title for start, title in reversed(headings) if start < found.start()), "")
        yield Clause(clause_id, " ".join(sentence.split()), place, parts, section)


def read(spec_dir: Path) -> dict[str, Clause]:
    """Read the clauses of all chapters in a directory, by id, in their order. Raises: ValueError if two clauses have one id."""
    clauses: dict[str, Clause] = {}
    for chapter in chapters(spec_dir):
        for clause in in_chapter(chapter.read_text(encoding="utf-8"), chapter.name):
            if (other := clauses.get(clause.clause_id)) is not None:
                raise ValueError(f"spec/{clause.place}: {clause.clause_id} is defined in {other.place} too")
            clauses[clause.clause_id] = clause
    return clauses


@cache
def load() -> dict[str, str]:
    """Return all clauses of this tree, id to sentence, in the order of the chapters.

    >>> "heartbeat" in load()["HA-W-3"]
    True
    """
    return {clause_id: clause.sentence for clause_id, clause in read(Path(__file__).parent).items()}
