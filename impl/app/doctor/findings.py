"""The findings of a doctor. Each is passed on at once."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. level: ok, note or finding."""

    level: str
    check: str
    text: str
    advice: str = ""


class Findings:
    """A list of findings.

    Args:  on_finding: called with each finding as it is added.
    """

    def __init__(self, on_finding: Callable[[Finding], object] = lambda _: None) -> None:
        self.all: list[Finding] = []
        self._on_finding = on_finding

    def ok(self, check: str, text: str) -> None:
        self._add(Finding("ok", check, text))

    def note(self, check: str, text: str) -> None:
        self._add(Finding("note", check, text))

    def finding(self, check: str, text: str, advice: str) -> None:
        self._add(Finding("finding", check, text, advice))

    @property
    def count(self) -> int:
        """The number of things that are wrong: the entries of the level finding."""
        return sum(found.level == "finding" for found in self.all)

    def _add(self, found: Finding) -> None:
        self.all.append(found)
        self._on_finding(found)
