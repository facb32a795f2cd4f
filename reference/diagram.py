"""Generate the state diagrams of chapters 2 to 5 from spec/transitions.json, so that they show exactly the model.

Each diagram stands between two markers in its chapter: a picture in Mermaid, and below it the states that the picture merges.

    python -m rocketmq_ha.reference.diagram           print them
    python -m rocketmq_ha.reference.diagram --check   exit status 1 if a chapter differs
    python -m rocketmq_ha.reference.diagram --write   write them into the chapters
"""

import json
import sys
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

# Explanations of states whose names are not plain.
MEANINGS: Final = {
    "store": "*phantom* is a file with nothing in it (quirk 17); *open* has room in its last file, *file_full* has none.",
}

# Groups of states that the picture merges: they only differ in how far a frame is written, or how often a put has waited.
TOGETHER: Final = {
    "frame_waiting": "frame",
    "header_partial": "frame",
    "body_partial": "frame",
    "heartbeat_waiting": "heartbeat",
    "heartbeat_partial": "heartbeat",
    **{f"wait_{number}": "wait" for number in range(1, GROUP_TRANSFER_WAITS + 1)},
}


def picture(states: list[str], rows: list[Row]) -> list[str]:
    """Lines of a Mermaid state diagram, with an arrow for each pair of states and on it the events.

    >>> picture(["up", "down"], [("up", "cut", "down", frozenset({"classic"}))])[1:]
    ['    [*] --> up', '    up --> down: cut (classic)']
    """
    arrows: dict[tuple[str, str], dict[str, set[str]]] = {}
    for before, event, after, profiles in rows:
        pair = drawn_as(before), drawn_as(after)
        arrows.setdefault(pair, {}).setdefault(event, set()).update(profiles)
    places = {TOGETHER.get(state, state): number for number, state in reversed(tuple(enumerate(states)))}
    lines = ["stateDiagram-v2", f"    [*] --> {states[0]}"]
    for (before, after), events in sorted(arrows.items(), key=lambda arrow: (places[arrow[0][0]], places[arrow[0][1]])):
        labels = (
            event + ("" if profiles == BOTH else f" ({', '.join(sorted(profiles))})") for event, profiles in events.items()
        )
        lines.append(f"    {before} --> {after}: {', '.join(labels)}")
    return lines


def exceptions(states: list[str], rows: list[Row]) -> list[str]:
    """Lines, one for each arrow that does not hold between every two of the states that the picture draws as one.

    >>> rows = [("wait_1", "tick", "wait_2", BOTH), ("wait_1", "put", "wait_1", BOTH), ("wait_2", "put", "wait_2", BOTH)]
    >>> exceptions(["wait_1", "wait_2"], rows)
    ['- wait to wait on put: each to itself', '- wait to wait on tick: only wait_1 to wait_2']
    """
    members = {name: [state for state in states if TOGETHER.get(state, state) == name] for name in map(drawn_as, states)}
    arrows: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for before, event, after, _ in rows:
        arrows.setdefault((drawn_as(before), drawn_as(after), event), set()).add((before, after))
    lines = []
    for (before, after, event), found in sorted(
        arrows.items(), key=lambda arrow: (states.index(members[arrow[0][0]][0]), arrow)
    ):
        every = {(one, other) for one in members[before] for other in members[after]}
        if found == every:
            continue
        few, word = (every - found, "not") if len(every - found) < len(found) else (found, "only")
        pairs = ", ".join(f"{one} to {other}" for one, other in sorted(few))
        told = "each to itself" if found == {(one, one) for one in members[before]} else f"{word} {pairs}"
        lines.append(f"- {before} to {after} on {event}: {told}")
    return lines


def drawn_as(state: str) -> str:
    return TOGETHER.get(state, state)


def block(states: list[str], rows: list[Row], meaning: str) -> str:
    """The text between the markers."""
    lines = [*([meaning, ""] if meaning else []), "```mermaid", *picture(states, rows), "```"]
    merged = {name: [state for state in states if TOGETHER.get(state) == name] for name in dict.fromkeys(TOGETHER.values())}
    told = "; ".join(f"*{name}* is {', '.join(group)}" for name, group in merged.items() if group)
    if told:
        lines += ["", f"In the picture {told}."]
    if found := exceptions(states, rows):
        lines += ["An arrow from or to a merged state stands for every pair of its states, except:", "", *found]
    return "\n".join(lines)


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
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"no {begin}, or no {end} behind it")
    return f"{before}{begin}\n{text}\n{end}{after}"


def main(arguments: list[str]) -> int:
    status = 0
    for name, text in blocks().items():
        if not arguments:
            sys.stdout.write(f"{name}\n\n{text}\n\n")
            continue
        file = resources.files("rocketmq_ha.spec") / CHAPTERS[name]
        try:
            chapter = file.read_text(encoding="utf-8")
            new = drawn(chapter, name, text)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{file}: its diagram cannot be drawn: {error}\n")
            status = 1
            continue
        if arguments == ["--write"]:
            with resources.as_file(file) as path:
                path.write_text(new, encoding="utf-8")
        elif new != chapter:
            sys.stderr.write(f"{file}: its diagram differs from {TRANSITIONS_FILE}: see reference/diagram.py --write\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
