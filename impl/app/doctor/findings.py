"""The findings of a doctor, passed on one by one as they are found."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """level: ok, note or finding."""

    level: str
    check: str
    text: str
    advice: str = ""


class Findings:
    """All findings so far.

    Args:  on_finding: is called with each, at once.
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
        """The findings of the level finding: what is wrong."""
        return sum(found.level == "finding" for found in self.all)

    def _add(self, found: Finding) -> None:
        self.all.append(found)
        self._on_finding(found)
