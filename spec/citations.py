"""Find where each clause is cited, and check the citations: `python -m rocketmq_ha.spec.citations [--check] [--root DIR]`.

A *citation* is a clause's id followed by words of the clause in double quotes, in a comment or a docstring:

    HA-M-2 "take the last complete report, and no other"

A citation may be wrapped over lines. Backticks are ignored. Several quotes may follow one id, separated by `,` or `and`. An id
without a quote is a *mention*. The clause must exist, but a mention does not count as a citation.

A citation counts for the column of its folder: reference/ is the model, impl/ the implementation, tests/ the tests (with the
scenarios), spec/tla/ the TLA+. **Every clause is cited in the model, in the implementation and in a test, or
spec/exceptions.toml lists the missing column with a reason.** TLA+ needs no exceptions, because it has no bytes, files or
sockets and so cannot state every clause.

The checker reports as errors, one per line: an id that does not exist; a quote of fewer than three words; a quote that is not
in its clause (any more); a MUST, SHOULD or MAY that no quote of the model, the implementation or TLA+ contains together with
the two words after it; a missing citation without an exception; an exception without a reason; an exception for a clause that
is cited.
"""

import argparse
import os
import re
import shutil
import sys
import tomllib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.spec import clauses, prose
from rocketmq_ha.spec.clauses import Clause

COLUMNS: Final = ("model", "impl", "test")
TLA: Final = "TLA+"
_SOURCES: Final = (("spec/tla", TLA), ("reference", "model"), ("impl", "impl"), ("tests", "test"), ("fuzz", ""))
_MENTIONS_IN: Final = ("spec", "reference", "impl", "fuzz", "analysis", "formal", "bench", "tests")
_MENTIONING: Final = (".py", ".md", ".txt", ".toml", ".tla", ".cfg")
KINDS: Final = ("todo", "exception")
MIN_WORDS: Final = 3

_MENTION: Final = re.compile(r"HA-([A-Z]+)-(\d+)(?: to (?:HA-\1-)?(\d+))?")  # "HA-S-5 to 7" is short for "HA-S-5 to HA-S-7"
_QUOTE: Final = r'"([^"\0]*)"'
_CITATION: Final = re.compile(rf"\b(HA-[A-Z]+-\d+)\s+{_QUOTE}(?:(?:,|\s+and)\s+{_QUOTE})*")
_ANY_QUOTE: Final = re.compile(_QUOTE)
_WORD: Final = re.compile(r"\b(?<!\*\()\w+(?!\)\*)\b")  # without the mark of a profile
_NORMATIVE: Final = re.compile(r"\b(?:(?:MUST|SHOULD)(?: NOT)?|MAY)\b(?:\W+\w+){0,2}")


@dataclass(frozen=True, slots=True)
class Citation:
    """One quote of a clause."""

    clause_id: str
    quote: str
    column: str  # one of COLUMNS, or TLA, or "" if the folder counts for no column
    place: str  # file and line
    name: str  # file and function, or file and line outside of functions


@dataclass(frozen=True, slots=True)
class Exemption:
    """One entry of spec/exceptions.toml."""

    clause_id: str
    kind: str
    columns: tuple[str, ...]
    reason: str


def plain(text: str) -> str:
    """Normalise a text for comparison: one line, without backticks."""
    return " ".join(text.replace("`", "").split())


def spans(quote: str, sentence: str) -> list[tuple[int, int]]:
    """Return the positions at which a sentence contains the quote as whole words.

    >>> spans("end it", "To end it, bend it.")
    [(3, 9)]
    """
    return [found.span() for found in re.finditer(rf"(?<!\w){re.escape(quote)}(?!\w)", sentence)] if quote else []


# --- Reading ---------------------------------------------------------------------------------------------------------


def citations_in(text: str, file: str, column: str) -> Iterator[Citation]:
    """Yield the citations in one source. `file` is its path relative to the root."""
    if "HA-" not in text:
        return
    suffix = Path(file).suffix
    for found in _CITATION.finditer(prose.prose(text, suffix)):
        line = text.count("\n", 0, found.start()) + 1
        name = prose.name_at(text, suffix, found.start())
        for quote in _ANY_QUOTE.findall(found.group()):
            yield Citation(found[1], plain(quote), column, f"{file}:{line}", f"{file}:{name or line}")


def read_citations(root: Path) -> list[Citation]:
    found: list[Citation] = []
    for folder, column in _SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in prose.SUFFIXES:
                found += citations_in(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix(), column)
    return found


def unknown_mentions(root: Path, known: Mapping[str, Clause]) -> Iterator[str]:
    """Yield an error for each id that is no clause. HA-X-n is allowed as an example of an id."""
    files = [path for folder in _MENTIONS_IN for path in (root / folder).rglob("*") if path.suffix in _MENTIONING]
    for path in sorted([*files, *root.glob("*.md")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for chapter, first, last in _MENTION.findall(line) if "HA-" in line else ():
                for clause_id in (f"HA-{chapter}-{n}" for n in range(int(first), int(last or first) + 1)):
                    if clause_id not in known and chapter != "X":
                        yield f"{path.relative_to(root)}:{number}: {clause_id} is no clause"


def read_exemptions(entries: Iterable[Mapping[str, Any]], known: Mapping[str, Clause]) -> tuple[list[Exemption], list[str]]:
    """Read the entries of spec/exceptions.toml. Returns: (exemptions, errors)."""
    exemptions, errors = [], []
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        clause_id, kind = str(entry.get("clause", "")), str(entry.get("kind", ""))
        columns, reason = tuple(entry.get("columns", COLUMNS)), str(entry.get("reason", "")).strip()
        wrong = [column for column in columns if column not in COLUMNS]
        repeated = [column for column in columns if (clause_id, column) in seen]
        for is_wrong, what in (
            (clause_id not in known, "is no clause"),
            (kind not in KINDS, f"has kind {kind!r}, expected {' or '.join(KINDS)}"),
            (not reason, "has no reason"),
            (not columns or wrong, f"has columns {list(columns)}, expected some of {', '.join(COLUMNS)}"),
            (repeated, f"has two entries for {', '.join(repeated)}"),
        ):
            if is_wrong:
                errors.append(f"spec/exceptions.toml: {clause_id} {what}")
        seen.update((clause_id, column) for column in columns)
        exemptions.append(Exemption(clause_id, kind, columns, reason))
    return exemptions, errors


# --- Checking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coverage:
    """All clauses, their citations and exemptions, and the errors."""

    clauses: dict[str, Clause]
    cited: dict[tuple[str, str], list[Citation]]  # (clause, column)
    exempt: dict[tuple[str, str], Exemption]  # (clause, column)
    errors: list[str]


def check_tree(root: Path) -> Coverage:
    """Read the tree at `root` and find all errors. Raises: ValueError if a chapter or exceptions.toml cannot be read."""
    known = clauses.read(root / "spec")
    entries = tomllib.loads((root / "spec" / "exceptions.toml").read_text(encoding="utf-8")).get("exception", [])
    exemptions, errors = read_exemptions(entries, known)
    errors += unknown_mentions(root, known)
    cited: dict[tuple[str, str], list[Citation]] = defaultdict(list)
    for citation in read_citations(root):
        if error := quote_error(citation, known):
            errors.append(error)
        elif citation.column:
            cited[citation.clause_id, citation.column].append(citation)
    exempt = {(exemption.clause_id, column): exemption for exemption in exemptions for column in exemption.columns}
    for clause in known.values():
        implementing = [citation for column in (TLA, "model", "impl") for citation in cited.get((clause.clause_id, column), ())]
        if implementing:
            errors += unquoted_errors(clause, [citation.quote for citation in implementing])
        for column in COLUMNS:
            here, exemption = cited.get((clause.clause_id, column)), exempt.get((clause.clause_id, column))
            if here and exemption:
                errors.append(f"spec/exceptions.toml: {clause.clause_id} is excused in {column}, but {here[0].place} cites it")
            if not here and not exemption:
                where = f"spec/{clause.place}: {clause.clause_id} is not cited in {column}"
                errors.append(f"{where}, and spec/exceptions.toml gives no reason")
    return Coverage(known, dict(cited), exempt, errors)


def elsewhere(exercised: Container[str]) -> dict[str, dict[str, object]]:
    """What holds each clause that no schedule exercises: the files of the tests that quote it, or the reason why none does.

    Raises: FileNotFoundError outside of a checkout, which alone has the tests.
    """
    coverage = check_tree(Path(__file__).resolve().parent.parent)
    found: dict[str, dict[str, object]] = {}
    for clause_id, clause in coverage.clauses.items():
        if clause_id not in exercised:
            tests = sorted({citation.place.partition(":")[0] for citation in coverage.cited.get((clause_id, "test"), ())})
            exemption = coverage.exempt.get((clause_id, "test"))
            found[clause_id] = {
                "sentence": clause.sentence,
                "tests": tests,
                "reason": exemption.reason if exemption else "",
            }
    return found


def quote_error(citation: Citation, known: Mapping[str, Clause]) -> str:
    """Return the error of a quote, or the empty string. unknown_mentions() reports ids that do not exist."""
    clause = known.get(citation.clause_id)
    if clause is None:
        return ""
    if len(citation.quote.split()) < MIN_WORDS:
        return f'{citation.place}: {citation.clause_id} "{citation.quote}": a quote has at least {MIN_WORDS} words'
    if not spans(citation.quote, plain(clause.sentence)):
        return f'{citation.place}: {citation.clause_id} "{citation.quote}" is not in the clause, which is: {clause.sentence}'
    return ""


def unquoted_errors(clause: Clause, quotes: Iterable[str]) -> Iterator[str]:
    """Yield an error for each normative word that no quote contains together with the two words after it.

    A quote of MUST alone would also match MUST NOT.
    """
    sentence = plain(clause.sentence)
    quoted = [span for quote in quotes for span in spans(quote, sentence)]
    for needed in _NORMATIVE.finditer(sentence):
        if not any(start <= needed.start() and needed.end() <= end for start, end in quoted):
            yield f'spec/{clause.place}: {clause.clause_id}: no model, implementation or TLA+ quotes "{needed.group()}"'


# --- Printing --------------------------------------------------------------------------------------------------------


def cell(coverage: Coverage, clause_id: str, column: str) -> str:
    """Return the first place that cites the clause and the number of others, or the kind of the exemption."""
    here = coverage.cited.get((clause_id, column), [])
    names = list(dict.fromkeys(citation.name for citation in here))
    if names:
        first = names[0].partition("/")[2].removeprefix("tla/").removeprefix("properties/").removeprefix("stateful/")
        return first.replace(".py:", ":") + (f" +{len(names) - 1}" if names[1:] else "")
    exemption = coverage.exempt.get((clause_id, column))
    return f"({exemption.kind})" if exemption else "-" if column == TLA else "MISSING"


def quoted_share(coverage: Coverage, ids: Iterable[str]) -> str:
    """Return the share of words of the cited clauses that are in a quote. The other words can change unnoticed."""
    words = quoted = 0
    for clause_id in ids:
        here = [citation for column in (TLA, *COLUMNS) for citation in coverage.cited.get((clause_id, column), ())]
        sentence = plain(coverage.clauses[clause_id].sentence)
        found = {span for citation in here for span in spans(citation.quote, sentence)}
        for word in _WORD.finditer(sentence) if here else ():
            words += 1
            quoted += any(start <= word.start() < end for start, end in found)
    return f"{quoted / words:.0%}" if words else "-"


def table(coverage: Coverage, screen_width: int | None = None) -> Iterator[str]:
    """Yield the lines of the table clause, TLA+, model, implementation, tests, and of the totals per chapter.

    Args:  screen_width: columns of the terminal. If the table needs more, each place is printed on its own line.
    """
    columns = (TLA, *COLUMNS)
    rows: list[tuple[str, ...]] = [("clause", *columns)]
    rows += [(clause_id, *(cell(coverage, clause_id, column) for column in columns)) for clause_id in coverage.clauses]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if screen_width is None or sum(widths) + 2 * len(columns) <= screen_width:
        yield from ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    else:
        for clause_id, *places in rows[1:]:
            yield clause_id
            yield from (f"  {column:<5}  {place}" for column, place in zip(columns, places, strict=True))
    yield ""
    head: tuple[str, ...] = ("chapter", "clauses", *columns, "exceptions", "todo", "words cited")
    if screen_width is not None and 12 * len(head) > screen_width:
        head = tuple(title.removesuffix("eptions").removesuffix(" cited") for title in head)
    min_width = 10 if screen_width is None or 12 * len(head) <= screen_width else 5
    yield "  ".join(f"{title:>{min_width}}" for title in head)
    for chapter in ("", *dict.fromkeys(clause_id.rpartition("-")[0] for clause_id in coverage.clauses)):
        ids = [clause_id for clause_id in coverage.clauses if clause_id.startswith(f"{chapter}-" if chapter else "")]
        kinds = [{e.kind for column in COLUMNS if (e := coverage.exempt.get((clause_id, column)))} for clause_id in ids]
        counts = [len(ids), *(sum((clause_id, column) in coverage.cited for clause_id in ids) for column in columns)]
        counts += [sum("exception" in kind for kind in kinds), sum("todo" in kind for kind in kinds)]
        values = (chapter or "all", *counts, quoted_share(coverage, ids))
        yield "  ".join(f"{value:>{max(min_width, len(title))}}" for value, title in zip(values, head, strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Print the table and the errors, or with --check only the errors. Returns: exit status 1 if there are errors."""
    parser = argparse.ArgumentParser(
        prog="python -m rocketmq_ha.spec.citations", description="Show where the code and the tests cite each clause."
    )
    parser.add_argument("--check", action="store_true", help="print errors only")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the tree to read")
    options = parser.parse_args(arguments)
    if not (options.root / "spec" / "exceptions.toml").is_file() or not (options.root / "tests").is_dir():
        parser.error(f"{options.root}: no spec/exceptions.toml or no tests/: expected the root of a checkout")
    try:
        coverage = check_tree(options.root)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not options.check:
        try:
            screen_width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            sys.stdout.writelines(f"{line}\n" for line in table(coverage, screen_width))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader (`head`, for example) has ended; buffered output goes to /dev/null
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.writelines(f"{error}\n" for error in coverage.errors)
    return 1 if coverage.errors else 0


if __name__ == "__main__":
    sys.exit(main())
