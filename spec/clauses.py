"""Read the normative clauses out of the chapters.

A clause is a paragraph that opens with its id in bold: `**HA-M-4.** Sentence.`; a line that opens with `Source:` ends it.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

CLAUSE_ID: Final = re.compile(r"HA-(?:W|M|S|G|ST|MD|R|T)-\d+")
_CLAUSE: Final = re.compile(r"^\*\*(HA-[A-Z]+-\d+)\.\*\*\s+(.*?)(?=^Source:|\n\n)", re.MULTILINE | re.DOTALL)


@cache
def load() -> dict[str, str]:
    """All clauses, id to sentence, in the order of the chapters.

    >>> load()["HA-W-3"].startswith("A frame with a body size of 0 is a heartbeat")
    True
    """
    clauses: dict[str, str] = {}
    for chapter in sorted(Path(__file__).parent.glob("[0-9]-*.md")):
        for clause_id, sentence in _CLAUSE.findall(chapter.read_text(encoding="utf-8")):
            assert clause_id not in clauses, f"{chapter.name}: {clause_id} stands twice"
            clauses[clause_id] = " ".join(sentence.split())
    return clauses
