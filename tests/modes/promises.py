"""The promises of the articles, and whether a round keeps them."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from figures import Figures, Span
from mode_faults import FAULTS

from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES

FILE: Final = Path(__file__).with_name("promises.toml")
AT_ONCE_S: Final = 1.0  # what is later than this, a person notices
FEW_S: Final = 1.0  # few messages: no more than came in this time; a flush comes every 0.5 s
LAG_S: Final = 0.1  # some milliseconds


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. modes, flushes, faults: the cells in which it is looked at. checks: names in CHECKS."""

    id: str
    article: str
    where: str
    says: str
    modes: tuple[str, ...]
    flushes: tuple[str, ...]
    faults: tuple[str, ...]
    checks: tuple[str, ...]
    also: str = ""

    def is_about(self, mode: str, flush: str, fault: str) -> bool:
        return mode in self.modes and flush in self.flushes and fault in self.faults


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a promise fared in one cell. found: what does not keep it; empty if all rounds do."""

    promise: Promise
    found: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        return not self.found


def _never(span: Span, what: str) -> str:
    return "" if span.in_fault is None else f"{what} after {span.in_fault:.1f} s"


def _at_once(span: Span, what: str) -> str:
    if span.in_fault is None:
        return f"nothing {what} before it was mended"
    return "" if span.in_fault <= AT_ONCE_S else f"{what} after {span.in_fault:.1f} s"


def _at_all(span: Span, what: str) -> str:
    return f"nothing {what} before it was mended" if span.in_fault is None else ""


def _lost_in(seconds: float) -> Callable[[Figures], str]:
    """At most as many messages as this time brought to the group."""

    def check(found: Figures) -> str:
        most = found.acknowledged_hit_per_s * seconds
        return "" if found.lost <= most else f"{found.lost} lost, which is {found.lost / found.acknowledged_hit_per_s:.1f} s"

    return check


def _failed(found: Figures) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found.failed.items())
    return f"of {found.sends} sends {counts}" if found.failed else ""


# name: what is wrong in a round, "" for nothing
CHECKS: Final[dict[str, Callable[[Figures], str]]] = {
    "nobody writes": lambda found: _never(found.writable_any, "a SEND_OK"),
    "somebody writes": lambda found: _at_all(found.writable_any, "written"),
    "nobody reads": lambda found: _never(found.readable_hit, "read"),
    "somebody reads": lambda found: _at_all(found.readable_hit, "read"),
    "reads at once": lambda found: _at_once(found.readable_hit, "read"),
    "the group is not written": lambda found: _never(found.writable_hit, "a SEND_OK of the group"),
    "the group is written at once": lambda found: _at_once(found.writable_hit, "written to the group"),
    "no send fails": _failed,
    "none lost": lambda found: f"{found.lost} lost" if found.lost else "",
    "few lost": _lost_in(FEW_S),
    "lost less than 0.1 s": _lost_in(LAG_S),
    "all readable": lambda found: f"{found.unreadable} cannot be read" if found.unreadable else "",
}


def load(file: Path = FILE) -> list[Promise]:
    """Read the file. Raises: ValueError for a name that is not known, or an id that is there twice."""
    found = []
    for each in tomllib.loads(file.read_text("utf-8"))["promise"]:
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in each.items()}
        promise = Promise(**{"flushes": FLUSHES, **fields})
        for names, known in (
            (promise.modes, MODES),
            (promise.flushes, FLUSHES),
            (promise.faults, FAULTS),
            (promise.checks, CHECKS),
        ):
            if unknown := set(names).difference(known):
                raise ValueError(f"{file}: {promise.id}: {', '.join(sorted(unknown))}: expected some of {', '.join(known)}")
        if promise.id in {other.id for other in found}:
            raise ValueError(f"{file}: {promise.id} is there twice")
        found.append(promise)
    return found


def verdicts(promises: Sequence[Promise], mode: str, flush: str, fault: str, rounds: Sequence[Figures]) -> list[Verdict]:
    """How each promise about a cell fared in its rounds."""
    found = []
    for promise in promises:
        if promise.is_about(mode, flush, fault):
            wrong = [text for figures in rounds for name in promise.checks if (text := CHECKS[name](figures))]
            found.append(Verdict(promise, tuple(dict.fromkeys(wrong))))
    return found
