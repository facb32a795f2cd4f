"""What became of each statement of the articles: `python -m rocketmq_ha.spec.ledger [--check] [--root DIR]`.

Each statement of spec/sources.toml is one of these:

    built    the implementation cites one of its clauses
    excused  it has clauses, and spec/exceptions.toml says of each why the implementation has nothing of it
    told     it has no clause, and gives the reason itself

Anything else is an error: a clause that does not exist or that nobody builds, no clause and no reason, or both.
"""

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.spec.citations import Coverage, check_tree

STATES: Final = ("built", "excused", "told")
ARTICLES: Final = ("000", "001", "002", "003", "004")


@dataclass(frozen=True, slots=True)
class Statement:
    """state: one of STATES, or "" for an error. reason: why it is not built, or what is wrong; "" for one that is built."""

    statement_id: str
    article: str
    text: str
    state: str
    reason: str


def read(entries: Iterable[Mapping[str, Any]], coverage: Coverage) -> Iterator[Statement]:
    """Judge the statements of spec/sources.toml."""
    seen: set[str] = set()
    for entry in entries:
        statement_id, article, text = (str(entry.get(key, "")) for key in ("id", "article", "text"))
        state, reason = _judge(entry, coverage)
        if statement_id in seen:
            state, reason = "", "has two entries"
        elif article not in ARTICLES or not statement_id.startswith(f"{article}-") or not text:
            state, reason = "", f"has article {article!r} and text {text!r}, expected one of {', '.join(ARTICLES)}, and a text"
        seen.add(statement_id)
        yield Statement(statement_id, article, text, state, reason)


def _judge(entry: Mapping[str, Any], coverage: Coverage) -> tuple[str, str]:
    """Returns: the state, and the reason."""
    clause_ids, reason = entry.get("clause", ()), str(entry.get("reason", "")).strip()
    if bool(clause_ids) == bool(reason):
        return "", "has clauses and a reason, expected one of the two" if reason else "has no clause and no reason"
    if reason:
        return "told", reason
    if unknown := [clause_id for clause_id in clause_ids if clause_id not in coverage.clauses]:
        return "", f"{', '.join(unknown)} is no clause"
    if any((clause_id, "impl") in coverage.cited for clause_id in clause_ids):
        return "built", ""
    excuses = {clause_id: coverage.exempt.get((clause_id, "impl")) for clause_id in clause_ids}
    if missing := [clause_id for clause_id, excuse in excuses.items() if excuse is None or excuse.kind == "todo"]:
        return "", f"{', '.join(missing)} is not built"
    return "excused", " ".join(f"{clause_id}: {excuse.reason}" for clause_id, excuse in excuses.items() if excuse)


def table(statements: Iterable[Statement]) -> Iterator[str]:
    """Yield the lines: a row for each article, and each statement that is not built, with its reason."""
    found = list(statements)
    yield "  ".join(f"{title:>10}" for title in ("article", "statements", *STATES))
    for article in ("", *ARTICLES):
        states = Counter(each.state for each in found if article in ("", each.article))
        counts = (article or "all", states.total(), *(states[state] for state in STATES))
        yield "  ".join(f"{count:>10}" for count in counts)
    for each in found:
        if each.state != "built":
            yield ""
            yield f"{each.statement_id} ({each.state or 'ERROR'}): {each.text}"
            yield f"  {each.reason}"


def main(arguments: list[str] | None = None) -> int:
    """Print the ledger and the errors, or with --check only the errors. Returns: exit status 1 if there are errors."""
    parser = argparse.ArgumentParser(
        prog="python -m rocketmq_ha.spec.ledger", description="Show what became of each statement of the articles."
    )
    parser.add_argument("--check", action="store_true", help="print errors only")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the tree to read")
    options = parser.parse_args(arguments)
    sources = options.root / "spec" / "sources.toml"
    try:
        entries = tomllib.loads(sources.read_text(encoding="utf-8")).get("statement", [])
        statements = list(read(entries, check_tree(options.root)))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{sources}: {error}\n")
        return 1
    if not options.check:
        sys.stdout.writelines(f"{line}\n" for line in table(statements))
    errors = [f"spec/sources.toml: {each.statement_id} {each.reason}" for each in statements if not each.state]
    if not statements:
        errors.append("spec/sources.toml: has no statement")
    sys.stderr.writelines(f"{error}\n" for error in errors)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
