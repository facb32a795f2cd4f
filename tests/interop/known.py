"""What spec/violations.toml says that real releases show."""

import tomllib
from pathlib import Path
from typing import Final

from results import Results

RECORD: Final = tomllib.loads((Path(__file__).parents[2] / "spec" / "violations.toml").read_text(encoding="utf-8"))


def compare(results: Results, release: str, found: dict[int, str]) -> None:
    """All items are compared before the first that differs fails."""
    recorded = {item["quirk"]: item.get(release, "not recorded of this release") for item in RECORD["shown"]}
    same = [results.note(f"quirk {quirk}", recorded.get(quirk, "not recorded"), told) for quirk, told in found.items()]
    assert all(same), "a real broker does not do what spec/violations.toml says: see the table"
