"""What `doctor` has found, one line each, told as it is found."""

import sys
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Finding:
    """level: ok, note or finding."""

    level: str
    check: str
    text: str
    advice: str = ""


class Findings:
    """What was found, told as it is found."""

    def __init__(self, quiet: bool) -> None:
        self.all: list[Finding] = []
        self._quiet = quiet

    def ok(self, check: str, text: str) -> None:
        self._add(Finding("ok", check, text))

    def note(self, check: str, text: str) -> None:
        self._add(Finding("note", check, text))

    def finding(self, check: str, text: str, advice: str) -> None:
        self._add(Finding("finding", check, text, advice))

    @property
    def count(self) -> int:
        return sum(found.level == "finding" for found in self.all)

    def _add(self, found: Finding) -> None:
        self.all.append(found)
        if self._quiet:
            return
        level, colour = {"ok": ("ok     ", "green"), "note": ("note   ", "cyan"), "finding": ("FINDING", "red")}[found.level]
        advice = f" -> {found.advice}" if found.advice else ""
        click.echo(f"{click.style(level, fg=colour, bold=True)}  {found.check:<9}  {found.text}{advice}")
        sys.stdout.flush()
