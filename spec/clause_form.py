"""Check the form of the clauses, and write the index at the head of each chapter.

    python -m rocketmq_ha.spec.clause_form --check   print one line per error; exit status 1 if there are errors
    python -m rocketmq_ha.spec.clause_form --write   write the indexes into the chapters

The form: a clause has either a key word of RFC 2119 (then it binds an endpoint) or the mark *(description)* (then it says what
RocketMQ does), never both. It has a source. Its parts come in a fixed order, each at most once, with an empty line after the
last. A key word is only in the clause's sentences, never in a part. `clauses.py` reads the parts.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from rocketmq_ha.spec import clauses
from rocketmq_ha.spec.clauses import PARTS, Clause

MARKS: Final = ("classic", "hardened", "not observable", "description")  # in their order in a clause
DESCRIPTION: Final = "description"
BEGIN: Final = "<!-- index of clauses -->"
END: Final = "<!-- end of index -->"
_KEY_WORD: Final = re.compile(r"\b(?:MUST|SHOULD|MAY|SHALL|REQUIRED|RECOMMENDED|OPTIONAL)\b")
_WIDTH: Final = 120
_GLUE: Final = "\0"


# --- The form --------------------------------------------------------------------------------------------------------


def form_errors(clause: Clause) -> Iterator[str]:
    """Yield the errors in one clause."""
    where = f"spec/{clause.place}: {clause.clause_id}"
    is_description = DESCRIPTION in clause.marks
    key_words = _KEY_WORD.findall(clause.sentence)
    if key_words and is_description:
        yield f"{where} has both the mark *(description)* and the key word {key_words[0]}: expected one of them"
    if not key_words and not is_description:
        yield f"{where} has neither a key word (MUST, SHOULD, MAY) nor the mark *(description)*"
    if clause.marks != tuple(mark for mark in MARKS if mark in clause.marks) or {"classic", "hardened"} <= {*clause.marks}:
        marks = f"{where} has the marks {', '.join(clause.marks)}"
        yield f"{marks}: expected some of {', '.join(MARKS)}, in this order, and at most one profile"
    words = [word for word, _ in clause.parts]
    if words != [word for word in PARTS if word in words]:
        yield f"{where} has the parts {', '.join(words)}: expected each once, in the order {', '.join(PARTS)}"
    if not clause.part("Source"):
        yield f"{where} has no source"
    for word, text in clause.parts:
        for found in _KEY_WORD.findall(text):
            yield f"{where}: {found} is in the part {word}: a key word belongs in the clause's sentence"


def all_errors(spec_dir: Path) -> list[str]:
    """Return the errors in the clauses and in the indexes of the chapters. Raises: ValueError if two clauses have one id."""
    known = clauses.read(spec_dir)
    found = [error for clause in known.values() for error in form_errors(clause)]
    for chapter in clauses.chapters(spec_dir):
        text = chapter.read_text(encoding="utf-8")
        try:
            if indexed(text, chapter.name) != text:
                found.append(f"spec/{chapter.name}: the index of clauses is not up to date: make transitions writes it")
        except ValueError as error:
            found.append(str(error))
    return found


# --- The index -------------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading.

    >>> anchor("With TLS, and `more`")
    'with-tls-and-more'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def index(found: Iterable[Clause]) -> str:
    """Return the index: the ids in ascending order, with links to their sections. Consecutive ids of a section share a link.

    >>> one, two = (Clause(f"HA-X-{n}", "", "", section="Accept") for n in (1, 2))
    >>> index([two, Clause("HA-X-4", "", "", section="Life"), one])
    'Clauses by id: HA-X-1 and 2 [Accept](#accept); 4 [Life](#life).'
    """
    numbered = sorted(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), clause.section)
        for clause in found
        for name in [clause.clause_id]
    )
    entries = []
    for prefix, group in groupby(numbered, key=lambda item: item[0]):
        runs: list[list[int]] = []
        sections: list[str] = []
        for _, number, section in group:
            if runs and runs[-1][-1] == number - 1 and sections[-1] == section:
                runs[-1].append(number)
            else:
                runs.append([number])
                sections.append(section)
        for place, (run, section) in enumerate(zip(runs, sections, strict=True)):
            first = f"{prefix}-{run[0]}" if place == 0 else str(run[0])
            last = "" if len(run) == 1 else f" and {run[-1]}" if len(run) == 2 else f" to {run[-1]}"
            entries.append(f"{first}{last} [{section}](#{anchor(section)})")
    text = "; ".join(entry.replace(" ", _GLUE) for entry in entries)  # so that no line break is inside a link
    lines = textwrap.wrap(f"Clauses by id: {text}.", _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_GLUE, " ")


def indexed(text: str, name: str) -> str:
    """Return a chapter with an up-to-date index between its markers. A chapter without clauses is returned unchanged.

    Raises: ValueError if a chapter with clauses has no markers.
    """
    found = list(clauses.in_chapter(text, name))
    if not found:
        return text
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"spec/{name}: no line {BEGIN}, or no {END} after it")
    return f"{before}{begin}{index(found)}\n{end}{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rocketmq_ha.spec.clause_form", description="Check the form of the clauses, or write the indexes."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="print the errors")
    what.add_argument("--write", action="store_true", help="write the index at the head of each chapter")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the tree to read")
    options = parser.parse_args(arguments)
    spec_dir = options.root / "spec"
    try:
        if options.write:
            for chapter in clauses.chapters(spec_dir):
                text = chapter.read_text(encoding="utf-8")
                if (new := indexed(text, chapter.name)) != text:
                    chapter.write_text(new, encoding="utf-8")
            return 0
        errors = all_errors(spec_dir)
    except ValueError as error:
        errors = [str(error)]
    sys.stderr.writelines(f"{error}\n" for error in errors)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
