"""Write spec/snapshots/*.txt: what every machine of the model does in every state at every event, even at impossible ones.

    python -m formal.snapshots            print all of them
    python -m formal.snapshots --check    exit status 1 and a diff if a file differs from the model
    python -m formal.snapshots --write    rewrite them; review the diff as you review code

Each machine is explored alone (snapshot_machines.py), and every event is applied to every node reached. The files show each
outcome once for all nodes of a state. Events that no cluster produces in a state are applied, too.
"""

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from formal import snapshot_machines as machines
from formal.snapshot_recorder import Happening, Machine
from rocketmq_ha.spec.profile import PROFILES, Profile

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "spec" / "snapshots"

LEGEND: Final = """\
# {title} ({profile} profile)
#
# A line says what becomes of one event in one state: the state after, what goes out, and the clauses that were met; clauses in
# brackets are met in some cases only. Where one event has several lines, it depends on what the state does not say.
#   =           nothing changes and nothing goes out
#   assertion   the model takes the event for a bug of its caller
#   !           no cluster gives this event to a machine in this state; this is what the machine alone would do with it
#
# Written by `python -m formal.snapshots --write` from the model. Review a change of it as you review code.
"""


@dataclass
class Clauses:
    """The clauses of all steps with one outcome: those of every step, and those of at least one."""

    always: tuple[str, ...]
    ever: dict[str, None] = field(default_factory=dict)  # an ordered set

    def add(self, clauses: tuple[str, ...]) -> None:
        self.always = tuple(clause for clause in self.always if clause in clauses)
        self.ever |= dict.fromkeys(clauses)

    def __str__(self) -> str:
        sometimes = sorted(clause for clause in self.ever if clause not in self.always)
        return " ".join([*sorted(self.always), *([f"[{' '.join(sometimes)}]"] if sometimes else [])])


Outcomes = dict[tuple[str, ...], Clauses]  # (state after or a word, outputs...) -> clauses


def collect(happenings: Iterable[Happening]) -> dict[str, dict[str, Outcomes]]:
    """Map state -> event -> outcomes. If an event is possible at a node of a state, outcomes where it is not are left out."""
    found = list(happenings)
    possible = {(one.state, one.event, one.variant) for one in found if one.possible}
    table: dict[str, dict[str, Outcomes]] = {}
    for one in found:
        if one.possible or (one.state, one.event, one.variant) not in possible:
            name = f"{' ' if one.possible else '!'} {one.event}" + (f": {one.variant}" if one.variant else "")
            outcomes = table.setdefault(one.state, {}).setdefault(name, {})
            outcomes.setdefault((one.after, *one.outputs), Clauses(one.clauses)).add(one.clauses)
    return table


Line = tuple[str, str, str]  # state after, outputs, clauses


def told(outcomes: Outcomes) -> list[Line]:
    """One line for each outcome."""
    return [(after, "+".join(outputs) or "-", str(clauses)) for (after, *outputs), clauses in sorted(outcomes.items())]


def joined(events: dict[str, Outcomes]) -> list[tuple[str, list[Line]]]:
    """(event, lines). Neighbouring events that differ only in their room and have the same outcome are joined."""
    lines: list[tuple[str, list[Line]]] = []
    for name, outcomes in events.items():
        now = told(outcomes)
        event, _, room = name.rpartition("room ")
        if event and lines and lines[-1][1] == now and lines[-1][0].rpartition("room ")[0] == event:
            lines[-1] = (f"{lines[-1][0]}/{room}", now)
        else:
            lines.append((name, now))
    return lines


def render(machine: Machine, profile: Profile, happenings: Iterable[Happening]) -> str:
    """The text of one file, from the happenings of the machine in the profile."""
    table = {state: joined(events) for state, events in collect(happenings).items()}
    every = [(name, *line) for lines in table.values() for name, told_lines in lines for line in told_lines]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    text = [LEGEND.format(title=machine.title, profile=profile.name)]
    for state in machine.states:
        text.append(state)
        for name, lines in table.get(state, []):
            for number, line in enumerate(lines):
                cells = (name if number == 0 else "", *line)
                text.append("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
        text += [*([] if state in table else ["    never reached in this profile"]), ""]
    return "\n".join(text)


def texts() -> dict[str, str]:
    """Map file name -> text, for every machine and profile."""
    return {
        f"{name}.{profile.name}.txt": render(machine, profile, machine.happenings(profile))
        for name, machine in machines.MACHINES.items()
        for profile in PROFILES.values()
    }


def difference(name: str, text: str) -> str:
    """A unified diff from the checked-in file to `text`; empty if they are equal."""
    file = DIRECTORY / name
    told = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = difflib.unified_diff(told.splitlines(), text.splitlines(), f"spec/snapshots/{name}", "the model", lineterm="", n=2)
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    status = 0
    for name, text in texts().items():
        if arguments == ["--write"]:
            DIRECTORY.mkdir(exist_ok=True)
            (DIRECTORY / name).write_text(text, encoding="utf-8")
        elif arguments == ["--check"]:
            if diff := difference(name, text):
                sys.stdout.write(diff + "\n")
                status = 1
        else:
            sys.stdout.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
