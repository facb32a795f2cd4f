"""Hold the form of the clauses, and write the index at the head of each chapter.

    python -m rocketmq_ha.spec.clause_form --check   exit status 1, with a line an error
    python -m rocketmq_ha.spec.clause_form --write   write the indexes into the chapters

The form: a clause has a key word of RFC 2119 (it binds an endpoint) or the mark *(description)* (it says what RocketMQ does),
never both. It has a source. Its parts come in their order, each once, with an empty line behind the last. No key word stands in
a part: what binds stands in the sentences. `clauses.py` reads the parts.
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

MARKS: Final = ("classic", "hardened", "not observable", "description")  # in the order in which they stand
DESCRIPTION: Final = "description"
BEGIN: Final = "<!-- index of clauses -->"
END: Final = "<!-- end of index -->"
_KEY_WORD: Final = re.compile(r"\b(?:MUST|SHOULD|MAY|SHALL|REQUIRED|RECOMMENDED|OPTIONAL)\b")
_WIDTH: Final = 120
_GLUE: Final = "\0"


# --- The form --------------------------------------------------------------------------------------------------------


def form_errors(clause: Clause) -> Iterator[str]:
    """What is wrong with one clause."""
    where = f"spec/{clause.place}: {clause.clause_id}"
    is_description = DESCRIPTION in clause.marks
    key_words = _KEY_WORD.findall(clause.sentence)
    if key_words and is_description:
        yield f"{where} is a description, and says {key_words[0]}: it needs one or the other"
    if not key_words and not is_description:
        yield f"{where} has neither a key word (MUST, SHOULD, MAY) nor the mark *(description)*"
    if clause.marks != tuple(mark for mark in MARKS if mark in clause.marks) or {"classic", "hardened"} <= {*clause.marks}:
        told = f"{where} has the marks {', '.join(clause.marks)}"
        yield f"{told}: expected some of {', '.join(MARKS)}, in this order, of one profile"
    words = [word for word, _ in clause.parts]
    if words != [word for word in PARTS if word in words]:
        yield f"{where} has the parts {', '.join(words)}: expected each once, in the order {', '.join(PARTS)}"
    if not clause.part("Source"):
        yield f"{where} has no source"
    for word, text in clause.parts:
        for found in _KEY_WORD.findall(text):
            yield f"{where}: {found} stands behind {word}: what binds belongs into the sentence"


def all_errors(spec_dir: Path) -> list[str]:
    """What is wrong with the clauses and the indexes of the chapters. Raises: ValueError for an id that stands twice."""
    known = clauses.read(spec_dir)
    found = [error for clause in known.values() for error in form_errors(clause)]
    for chapter in clauses.chapters(spec_dir):
        text = chapter.read_text(encoding="utf-8")
        try:
            if indexed(text, chapter.name) != text:
                found.append(f"spec/{chapter.name}: its index of clauses is not what it holds: make transitions writes it")
        except ValueError as error:
            found.append(str(error))
    return found


# --- The index -------------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading.

    >>> anchor("With TLS, and `more`")
    'with-tls-and-more'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def index(found: Iterable[Clause]) -> str:
    """The ids in ascending order, those that follow one another in one section together, each with a link to its section.

    >>> one, two = (Clause(f"HA-X-{n}", "", "", section="Accept") for n in (1, 2))
    >>> index([two, Clause("HA-X-4", "", "", section="Life"), one])
    'Clauses by id: HA-X-1 and 2 [Accept](#accept); 4 [Life](#life).'
    """
    numbered = sorted(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), clause.section)
        for clause in found
        for name in [clause.clause_id]
    )
    told = []
    for prefix, group in groupby(numbered, key=lambda one: one[0]):
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
            told.append(f"{first}{last} [{section}](#{anchor(section)})")
    text = "; ".join(run.replace(" ", _GLUE) for run in told)  # so that no line ends inside a link
    lines = textwrap.wrap(f"Clauses by id: {text}.", _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_GLUE, " ")


def indexed(text: str, name: str) -> str:
    """A chapter with the index between its markers; as it is where it has no clauses. Raises: ValueError without markers."""
    found = list(clauses.in_chapter(text, name))
    if not found:
        return text
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"spec/{name}: no line {BEGIN}, or no {END} behind it")
    return f"{before}{begin}{index(found)}\n{end}{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rocketmq_ha.spec.clause_form", description="The form of the clauses")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="print what is wrong")
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
