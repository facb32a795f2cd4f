"""What each number of the page means, and from which columns of which table it comes: templates/glossary.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final


@dataclass(frozen=True, slots=True)
class Term:
    """One number. Its id on the page is def-NAME."""

    name: str
    words: str  # what the page calls it
    meaning: str  # with Markdown for code and italics
    table: str  # the Parquet file, without its suffix
    columns: tuple[str, ...]
    whole: str  # what it is a part of, so that a percentage can be required; empty if it is no part
    is_required_by_name: bool  # `--require NAME>=...` takes it
    needs: str  # the option without which there is no such table


def _read() -> dict[str, Term]:
    text = (resources.files("rocketmq_ha.analysis.templates") / "glossary.toml").read_text(encoding="utf-8")
    return {
        name: Term(
            name=name,
            words=term["words"],
            meaning=term["meaning"],
            table=term["table"],
            columns=tuple(term["columns"]),
            whole=term.get("whole", ""),
            is_required_by_name=term.get("required", False),
            needs=term.get("needs", ""),
        )
        for name, term in tomllib.loads(text).items()
    }


TERMS: Final[Mapping[str, Term]] = _read()
