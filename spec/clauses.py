"""Read the normative clauses out of the chapters.

A clause is a paragraph that opens with its id in bold: `**HA-M-4.** Sentence.`; a line that opens with `Source:` ends it.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CLAUSE_ID: Final = re.compile(r"HA-(?:W|M|S|G|ST|MD|R|T)-\d+")
_CLAUSE: Final = re.compile(r"^\*\*(HA-[A-Z]+-\d+)\.\*\*\s+(.*?)(?=^Source:|\n\n)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause, and where it stands."""

    clause_id: str
    sentence: str  # on one line, with the mark of its profile
    place: str  # chapter and line, as "2-master.md:57"


def read(spec_dir: Path) -> dict[str, Clause]:
    """The clauses of the chapters in a directory, by id, in their order. Raises: ValueError for an id that stands twice."""
    clauses: dict[str, Clause] = {}
    for chapter in sorted(spec_dir.glob("[0-9]-*.md")):
        text = chapter.read_text(encoding="utf-8")
        for found in _CLAUSE.finditer(text):
            clause_id, sentence = found.groups()
            place = f"{chapter.name}:{text.count(chr(10), 0, found.start()) + 1}"
            if clause_id in clauses:
                raise ValueError(f"spec/{place}: {clause_id} stands in {clauses[clause_id].place} too")
            clauses[clause_id] = Clause(clause_id, " ".join(sentence.split()), place)
    return clauses


@cache
def load() -> dict[str, str]:
    """All clauses of this tree, id to sentence, in the order of the chapters.

    >>> load()["HA-W-3"].startswith("A frame with a body size of 0 is a heartbeat")
    True
    """
    return {clause_id: clause.sentence for clause_id, clause in read(Path(__file__).parent).items()}
