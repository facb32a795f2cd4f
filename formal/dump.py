"""Read a state graph that TLC dumped, and write it in the canonical form, in which it is compared with Python's graph.

canonical.md in this folder defines the form; in short:

- A state is JSON without spaces. Its keys are the variables of the level, in the order of `Level.forms`; a record is a list of
  its values in a fixed order, a set a list in ascending order.
- A label is the action's name with its parameters, `Transfer(1,2)`; TLC's dump writes `Transfer_1_2`; spec/tla/HA.tla says why.
- An edge is `label TAB state TAB state`. Edges from a state to itself are left out. The hash is the sha256 of the edge lines,
  sorted by code point and joined by newlines.

    python -m formal.dump GRAPH.dot            prints the hash and the counts
    python -m formal.dump GRAPH.dot --lines    prints the edges themselves, sorted
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from formal.level import Level
from formal.levels import LEVELS

# A node's line is `6049604134999566072 [label="/\\ epoch = 0\n/\\ slave = ...",style = filled]`, where `\n` means a newline
# and `\\` a backslash. Only the initial state is filled.
_NODE: Final = re.compile(r'^(-?\d+) \[label="(.*?)"(,style = filled)?\];?$')
_EDGE: Final = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)"')

# TLA+ to JSON: the brackets distinguish records, sequences and sets, and names get quotes. No value is a string.
_FIELD: Final = re.compile(r"(\w+) \|->")
_BRACKETS: Final = (("{", "("), ("}", ")"), ("[", "{"), ("]", "}"), ("<<", "["), (">>", "]"), ("(", "["), (")", "]"))
_WORDS: Final = (("NONE", "null"), ("TRUE", "true"), ("FALSE", "false"))


@dataclass(frozen=True, slots=True)
class Graph:
    """A labelled state graph in the canonical form.

    edges: lines of the edges, sorted, without duplicates.
    """

    initial: str
    states: frozenset[str]
    edges: tuple[str, ...]

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join(self.edges).encode("ascii")).hexdigest()


def label(name: str) -> str:
    """The canonical label: its parameters in parentheses.

    >>> label("Put"), label("Timeout_2"), label("Transfer_1_2")
    ('Put', 'Timeout(2)', 'Transfer(1,2)')
    """
    action, *parameters = name.split("_")
    return f"{action}({','.join(parameters)})" if parameters else action


def state(text: str) -> str:
    r"""The canonical line of a state, from TLC's text with one conjunct for each variable.

    >>> text = "/\\ epoch = 0\n/\\ waiting = {2, 1}\n/\\ log = <<0, 0>>\n/\\ conn = << << NONE, NONE >> >>\n"
    >>> text += "/\\ slave = <<[slot |-> 0, units |-> <<>>, base |-> -1, reported |-> 0, flushed |-> 0]>>\n"
    >>> text += "/\\ min = 0\n/\\ push2 = 0\n"
    >>> text += "/\\ flushed = 0\n/\\ used = [ puts |-> 2, cuts |-> 0,\n  mcrashes |-> 0, scrashes |-> 0,\n  deletes |-> 0,\n"
    >>> text += "  forgeries |-> 0 ]"
    >>> print(state(text)[:81], state(text)[81:], sep="\n")
    {"log":[0,0],"flushed":0,"min":0,"epoch":0,"push2":0,"waiting":[1,2],"conn":[[nul
    l,null]],"slave":[[-1,[],0,0,0]],"used":[2,0,0,0,0,0]}
    """
    conjuncts = [conjunct.partition(" = ") for conjunct in text.split("/\\ ")[1:]]
    names = frozenset(name for name, _, _ in conjuncts)
    level = _level_of(names)
    values = {name: _variable(level.name, name, text) for name, _, text in conjuncts}
    return "{" + ",".join([f'"{key}":{values[key]}' for key in level.forms if key in names]) + "}"


@lru_cache
def _level_of(names: frozenset[str]) -> Level:
    """The level that has these variables."""
    found = [level for level in LEVELS.values() if names | level.ghosts == frozenset(level.forms)]
    assert len(found) == 1, sorted(names)
    return found[0]


@lru_cache(maxsize=1 << 16)
def _variable(level: str, name: str, text: str) -> str:
    """The canonical value of a variable from TLC's. Cached, since most variables keep their value in a step."""
    for tla, plain in _BRACKETS + _WORDS:
        text = text.replace(tla, plain)
    value: Any = json.loads(_FIELD.sub(r'"\1":', text))
    return json.dumps(LEVELS[level].forms[name](value), separators=(",", ":"))


def read(lines: Iterable[str]) -> Graph:
    """Read the lines of a file that TLC wrote with `-dump dot,actionlabels`."""
    states: dict[str, str] = {}
    arrows: set[tuple[str, str, str]] = set()
    initial: list[str] = []
    for line in lines:
        if match := _EDGE.match(line):
            arrows.add((match[3], match[1], match[2]))
        elif match := _NODE.match(line):
            states[match[1]] = state(match[2].replace("\\n", "\n").replace("\\\\", "\\"))
            if match[3]:
                initial.append(states[match[1]])
    assert len(initial) == 1, f"{len(initial)} initial states"
    assert len(set(states.values())) == len(states), "two nodes of one state"
    names = {name: label(name) for name in {name for name, _, _ in arrows}}
    edges = sorted(f"{names[name]}\t{states[start]}\t{states[end]}" for name, start, end in arrows if start != end)
    return Graph(initial[0], frozenset(states.values()), tuple(edges))


def read_file(path: Path) -> Graph:
    with path.open(encoding="ascii") as lines:
        return read(lines)


def labels(graph: Graph) -> Iterator[str]:
    return (edge.partition("\t")[0] for edge in graph.edges)


def main() -> None:
    parser = argparse.ArgumentParser(description="The canonical form of a state graph that TLC dumped.")
    parser.add_argument("graph", type=Path)
    parser.add_argument("--lines", action="store_true", help="print the edges")
    arguments = parser.parse_args()
    graph = read_file(arguments.graph)
    if arguments.lines:
        sys.stdout.writelines(f"{edge}\n" for edge in graph.edges)
    else:
        sys.stdout.write(f"{graph.hash}  {len(graph.states)} states  {len(graph.edges)} edges\n")


if __name__ == "__main__":
    main()
