"""The state diagrams of chapters 2 to 5, drawn from spec/transitions.json: what the model can do, and nothing else.

Each stands between two markers in its chapter: a matrix, to be read as plain text, and a picture, where Mermaid is rendered.

    python -m rocketmq_ha.reference.diagram           print them
    python -m rocketmq_ha.reference.diagram --check   exit status 1 if a chapter differs
    python -m rocketmq_ha.reference.diagram --write   write them into the chapters
"""

import json
import sys
from collections.abc import Iterable
from importlib import resources
from typing import Final

from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAITS
from rocketmq_ha.spec.event_log import TRANSITIONS_FILE
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

Row = tuple[str, str, str, frozenset[str]]  # state before, event, state after, profiles

CHAPTERS: Final = {
    "master_connection": "2-master.md",
    "slave_client": "3-slave.md",
    "group_transfer": "4-group-transfer.md",
    "store": "5-store.md",
}
BOTH: Final = frozenset({CLASSIC.name, HARDENED.name})

# Of states whose names say too little.
MEANINGS: Final = {
    "store": "*phantom* is a file with nothing in it (quirk 17); *open* has room in its last file, *file_full* has none.",
}

# What the picture draws as one: states that only tell how far the socket has come with a frame, or the service with a put.
TOGETHER: Final = {
    "frame_waiting": "frame",
    "header_partial": "frame",
    "body_partial": "frame",
    "heartbeat_waiting": "heartbeat",
    "heartbeat_partial": "heartbeat",
    **{f"wait_{number}": "wait" for number in range(1, GROUP_TRANSFER_WAITS + 1)},
}


def letters(events: Iterable[str]) -> dict[str, str]:
    """A letter an event: its first, or where that is taken its next.

    >>> letters(["put", "put_roll", "recover"])
    {'put': 'p', 'put_roll': 'u', 'recover': 'r'}
    """
    found: dict[str, str] = {}
    for event in events:
        found[event] = next(letter for letter in event if letter not in found.values())
    return found


def mark(profiles: Iterable[str]) -> str:
    """Behind the letter of a transition: nothing where both profiles have it."""
    return {BOTH: "", frozenset({CLASSIC.name}): "-", frozenset({HARDENED.name}): "+"}[frozenset(profiles)]


def matrix(states: list[str], rows: list[Row]) -> list[str]:
    """Lines: a row for each state before, a column for each state after, in the cells the events that lead there.

    >>> matrix(["up", "down"], [("up", "cut", "down", BOTH), ("down", "mend", "up", frozenset({"hardened"}))])
    ['    from \\\\ to  1   2', '    1 up       .   c', '    2 down     m+  .', '', '    c cut, m mend']
    """
    letter = letters(sorted({event for _, event, _, _ in rows}))
    numbered = [f"{number} {state}" for number, state in enumerate(states, 1)]
    cells = {(before, after): "" for before in states for after in states}
    for before, event, after, profiles in rows:
        cells[before, after] += letter[event] + mark(profiles)
    widths = [max(1, *(len(cells[before, after]) for before in states)) for after in states]
    first = max(len("from \\ to"), *map(len, numbered))

    def line(head: str, columns: Iterable[str]) -> str:
        return f"    {head:<{first}}  " + "  ".join(f"{column:<{width}}" for column, width in zip(columns, widths, strict=True))

    lines = [line("from \\ to", map(str, range(1, len(states) + 1)))]
    for state, head in zip(states, numbered, strict=True):
        lines.append(line(head, (cells[state, after] or "." for after in states)))
    return [one.rstrip() for one in (*lines, "", "    " + ", ".join(f"{key} {event}" for event, key in letter.items()))]


def picture(states: list[str], rows: list[Row]) -> list[str]:
    """Lines of a Mermaid state diagram, with an arrow for each pair of states and on it the events.

    >>> picture(["up", "down"], [("up", "cut", "down", frozenset({"classic"}))])[1:]
    ['    [*] --> up', '    up --> down: cut (classic)']
    """
    arrows: dict[tuple[str, str], dict[str, set[str]]] = {}
    for before, event, after, profiles in rows:
        pair = TOGETHER.get(before, before), TOGETHER.get(after, after)
        arrows.setdefault(pair, {}).setdefault(event, set()).update(profiles)
    places = {TOGETHER.get(state, state): number for number, state in reversed(tuple(enumerate(states)))}
    lines = ["stateDiagram-v2", f"    [*] --> {states[0]}"]
    for (before, after), events in sorted(arrows.items(), key=lambda arrow: (places[arrow[0][0]], places[arrow[0][1]])):
        labels = (
            event + ("" if profiles == BOTH else f" ({', '.join(sorted(profiles))})") for event, profiles in events.items()
        )
        lines.append(f"    {before} --> {after}: {', '.join(labels)}")
    return lines


def block(states: list[str], rows: list[Row], meaning: str) -> str:
    """The text between the markers."""
    profiles = {mark(profiles) for *_, profiles in rows}
    only = [
        text
        for key, text in (("-", "`-` behind one: in classic only"), ("+", "`+` behind one: in hardened only"))
        if key in profiles
    ]
    legend = "; ".join(["The events that lead from one state to another", *only])
    merged = {name: [state for state in states if TOGETHER.get(state) == name] for name in dict.fromkeys(TOGETHER.values())}
    told = "; ".join(f"*{name}* is {', '.join(group)}" for name, group in merged.items() if group)
    lines = [*([meaning, ""] if meaning else []), f"{legend}.", "", *matrix(states, rows), ""]
    lines += [f"In the picture {told}.", ""] if told else []
    return "\n".join([*lines, "```mermaid", *picture(states, rows), "```"])


def blocks() -> dict[str, str]:
    """Machine -> the text between its markers."""
    machines = json.loads((resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE).read_text(encoding="utf-8"))["machines"]
    found = {}
    for name in CHAPTERS:
        rows = [(before, event, after, frozenset(by)) for before, event, after, by in machines[name]["transitions"]]
        found[name] = block(machines[name]["states"], rows, MEANINGS.get(name, ""))
    return found


def drawn(chapter: str, name: str, text: str) -> str:
    """The chapter with `text` between the markers of a machine.

    >>> drawn("a <!-- diagram: up --> old <!-- end of diagram --> z", "up", "new")
    'a <!-- diagram: up -->\\nnew\\n<!-- end of diagram --> z'
    """
    begin, end = f"<!-- diagram: {name} -->", "<!-- end of diagram -->"
    before, found, rest = chapter.partition(begin)
    assert found, f"no line {begin}"
    _, found, after = rest.partition(end)
    assert found, f"no line {end} behind {begin}"
    return f"{before}{begin}\n{text}\n{end}{after}"


def main(arguments: list[str]) -> int:
    status = 0
    for name, text in blocks().items():
        file = resources.files("rocketmq_ha.spec") / CHAPTERS[name]
        chapter = file.read_text(encoding="utf-8")
        if arguments == ["--write"]:
            with resources.as_file(file) as path:
                path.write_text(drawn(chapter, name, text), encoding="utf-8")
        elif arguments == ["--check"]:
            if drawn(chapter, name, text) != chapter:
                sys.stderr.write(f"{file}: its diagram differs from {TRANSITIONS_FILE}: see reference/diagram.py --write\n")
                status = 1
        else:
            sys.stdout.write(f"{name}\n\n{text}\n\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
