"""Make the texts from versions.toml: versions.md, the releases in violations.md, and the `Releases:` lines of the clauses.

python -m rocketmq_ha.spec.release_texts --check   exit status 1 if a text is not up to date
python -m rocketmq_ha.spec.release_texts --write   write all texts; review the diff
"""

import itertools
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rocketmq_ha.spec import clauses, release_table
from rocketmq_ha.spec.clause_form import anchor
from rocketmq_ha.spec.release_table import ROCKETMQ, Behaviour, number

SPEC: Final = Path(__file__).parent
WIDTH: Final = 120
SECTION: Final = re.compile(r"^### (\d+)\. (.+)$", re.MULTILINE)
# The row of a quirk in the overview: number and what happens (group 1), then two cells: the releases, and R (reproduced) or C
# (read in the code).
ROW: Final = re.compile(r"^(\| (?:\[(\d+)\]\([^)]*\)|(\d+)) \| [^|]* \|)[^|]*\|[^|]*\|", re.MULTILINE)
VERSIONS: Final = re.compile(r"(<!-- versions (\d\d) -->\n).*?(<!-- end of versions -->\n)", re.DOTALL)
CLAUSE: Final = re.compile(r"^\*\*(HA-[A-Z]+-\d+)\.\*\*.*?(?=\n\n|\n*\Z)", re.MULTILINE | re.DOTALL)
RELEASES: Final = re.compile(r"\nReleases:.*", re.DOTALL)

HEAD: Final = """# Versions

What each release does. This file is generated from [versions.toml](versions.toml) (`make transitions`), which says for every
line below in which method of which tag it was read, or on which release it was seen. A span names the first and the last
release that were read and behave so. Each row covers {releases}.

The frames and reports of the wire are the same in all of these releases (chapter 1). So are the strict `>` in comparisons of
intervals, 5 s between heartbeats, 20 s of silence, batches of 32 KiB, and read buffers of 4 MiB and 1 MiB. In all of them a
slave acknowledges before it flushes, and a master sends before it flushes. The columns *classic* and *hardened* say what this
project does, or, for a clause that `exceptions.toml` marks as `todo`, what the chapter requires.
"""
TABLE_HEAD: Final = "| | releases | classic | hardened | quirks, clauses |\n|---|---|---|---|---|\n"


def span(first: str, last: str) -> str:
    """Format a span of releases.

    >>> span("4.9.3", "4.9.8"), span("5.0.0", "5.0.0")
    ('4.9.3 to 4.9.8', '5.0.0')
    """
    return first if first == last else f"{first} to {last}"


def joined(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> joined(["4.9.8", "5.1.4", "5.3.3"])
    '4.9.8, 5.1.4 and 5.3.3'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def spans(behaviour: Behaviour, implementation: str = ROCKETMQ) -> list[tuple[str, str]]:
    """Return each span of releases and what they do."""
    prefix = "" if implementation == ROCKETMQ else f"{implementation} "
    merged = release_table.merge_ranges(behaviour.of(implementation))
    return [(prefix + span(first, last), value) for first, last, value in merged]


def sentence(behaviour: Behaviour) -> str:
    """Describe in one sentence what the releases do.

    >>> sentence(next(each for each in release_table.load() if each.name == "two connections of one slave"))
    '*Two connections of one slave*: count as one, and one is enough (4.3.0 to 4.9.8); count as two replicas (5.0.0 to 5.4.0).'
    """
    name = behaviour.name[:1].upper() + behaviour.name[1:]
    return f"*{name}*: {'; '.join(f'{value} ({releases})' for releases, value in spans(behaviour))}."


# --- versions.md -------------------------------------------------------------------------------------------------------------


def versions_md(spec_dir: Path) -> str:
    """Return the document: a table for each subject, then the changes of each release."""
    chapters = {clause_id: clause.place.partition(":")[0] for clause_id, clause in clauses.read(spec_dir).items()}
    anchors = {
        int(quirk): "#" + anchor(f"{quirk}. {title}") for quirk, title in SECTION.findall(_text(spec_dir / "violations.md"))
    }
    parts = [HEAD.format(releases=joined(release_table.RELEASES))]
    for table in dict.fromkeys(behaviour.table for behaviour in release_table.load()):
        rows = [behaviour for behaviour in release_table.load() if behaviour.table == table]
        parts.append(f"## {table}\n\n{TABLE_HEAD}{_rows(rows, chapters, anchors)}")
    parts.append("## What a release changed\n\n" + _changes())
    return "\n".join(parts)


def _rows(rows: Iterable[Behaviour], chapters: dict[str, str], anchors: dict[int, str]) -> str:
    lines = []
    for row in rows:
        others = dict.fromkeys(found.implementation for found in row.ranges if found.implementation != ROCKETMQ)
        values = "<br>".join(
            f"**{releases}**: {value}"
            for implementation in (ROCKETMQ, *others)
            for releases, value in spans(row, implementation)
        )
        links = [f"[{quirk}](violations.md{anchors.get(quirk, '#quirks-and-violations')})" for quirk in row.quirks]
        links += [f"[{clause}]({chapters[clause]})" for clause in row.clauses]
        lines.append(f"| {row.name} | {values} | {row.classic} | {row.hardened} | {', '.join(links)} |\n")
    return "".join(lines)


def _changes() -> str:
    """Return the changes of each release compared with the one before it."""
    changes: dict[str, list[str]] = {}
    for behaviour in release_table.load():
        merged = release_table.merge_ranges(behaviour.of())
        for (_, _, before), (first, _, value) in itertools.pairwise(merged):
            changes.setdefault(first, []).append(f"- {behaviour.name}: {value}. Before: {before}.\n")
    return "\n".join(f"### {release}\n\n{''.join(changes[release])}" for release in sorted(changes, key=number))


# --- violations.md -----------------------------------------------------------------------------------------------------------


def violations_md(text: str) -> str:
    """Return the catalogue with up-to-date releases: two cells for each quirk in the overview, and a paragraph per section."""
    text = ROW.sub(lambda row: f"{row[1]} {_cells(int(row[2] or row[3]))} |", text)
    return VERSIONS.sub(lambda block: f"{block[1]}{_paragraph(int(block[2]))}\n{block[3]}", text)


def _cells(quirk: int) -> str:
    return f"{_spans_with(quirk)} | {'R' if release_table.runs_of(quirk) else 'C'}"


def _spans_with(quirk: int) -> str:
    return ", ".join(span(first, last) for first, last in release_table.releases_with(quirk))


def _paragraph(quirk: int) -> str:
    runs = release_table.runs_of(quirk)
    head = f"**Versions.** {_spans_with(quirk)}{f' [R in {joined(runs)}]' if runs else ' [C]'}."
    items: list[str] = []
    for behaviour in release_table.load():
        if quirk in behaviour.quirks:
            items.append(f"- {sentence(behaviour)}")
            items += [f"  Seen on {release}: {seen}." for found in behaviour.of() for release, seen in found.run.items()]
    return "\n".join([head, "", *("\n".join(_wrapped(item)) for item in items)])


def _wrapped(text: str) -> list[str]:
    indent = "  " if text.startswith(("- ", "  ")) else ""
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


# --- The chapters ------------------------------------------------------------------------------------------------------------


def chapter(text: str) -> str:
    """Return a chapter with up-to-date `Releases:` lines."""
    return CLAUSE.sub(lambda clause: RELEASES.sub("", clause[0]) + releases_line(clause[1]), text)


def releases_line(clause_id: str) -> str:
    """Return the `Releases:` line of a clause, with the newline before it.

    It is empty if no behaviour names the clause first, or if all releases do the same.
    """
    rows = [
        sentence(behaviour)
        for behaviour in release_table.load()
        if behaviour.clauses[:1] == (clause_id,) and len(release_table.merge_ranges(behaviour.of())) > 1
    ]
    return "\n" + "\n".join(_wrapped(f"Releases: {' '.join(rows)}")) if rows else ""


# --- The command -------------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def texts(spec_dir: Path = SPEC) -> dict[Path, str]:
    """Return each document that contains releases, with its up-to-date text."""
    catalogue = spec_dir / "violations.md"
    found = {spec_dir / "versions.md": versions_md(spec_dir), catalogue: violations_md(_text(catalogue))}
    return found | {path: chapter(_text(path)) for path in clauses.chapters(spec_dir)}


def main(arguments: Sequence[str]) -> int:
    differing = [path for path, text in texts().items() if not path.exists() or _text(path) != text]
    if list(arguments) == ["--write"]:
        for path in differing:
            path.write_text(texts()[path], encoding="utf-8")
        return 0
    for path in differing:
        sys.stderr.write(f"{path}: is not up to date with versions.toml; make transitions writes it\n")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
