"""Compare the graph that TLC dumped with that of the Python model: the same states, the same edges, the same labels.

python -m formal.equality SCOPE GRAPH.dot            exit status 1 where they differ, and the shortest path to it in both
python -m formal.equality SCOPE GRAPH.dot --write    where they are equal, put states, edges and hash into scopes.toml
"""

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from formal import dump, graph
from formal.level import Level

Successors = dict[str, set[tuple[str, str]]]  # state -> (label, state after it); states are canonical lines


def successors(edges: Iterable[str]) -> Successors:
    """The outgoing edges of each state, from canonical lines."""
    found: Successors = {}
    for line in edges:
        label, before, after = line.split("\t")
        found.setdefault(before, set()).add((label, after))
    return found


def path_to(goal: str, initial: str, edges: Successors) -> list[tuple[str, str]]:
    """A shortest path in the form of graph.Graph.path. Equal graphs give equal paths."""
    parents: dict[str, tuple[str, str] | None] = {initial: None}
    queue = [initial]
    for before in queue:  # the list grows during the loop: it is the queue
        if before == goal:
            break
        for label, after in sorted(edges.get(before, ())):
            if after not in parents:
                parents[after] = (label, before)
                queue.append(after)
    found, at = [], goal
    while (step := parents[at]) is not None:
        found.append((step[0], at))
        at = step[1]
    return [("", initial), *found[::-1]]


def difference(python: graph.Graph, tlc: dump.Graph) -> str:
    """The first difference and a shortest path to it, as text; empty if the graphs are equal."""
    initial = python.canonical(0)
    if initial != tlc.initial:
        return f"the initial states differ\n  Python {initial}\n  TLC    {tlc.initial}"
    if len(python.states) == len(tlc.states) and len(python.edges) == len(tlc.edges) and python.hash() == tlc.hash:
        return ""
    ours, theirs = successors(python.edge_lines()), successors(tlc.edges)
    seen, queue = {initial}, [initial]
    for before in queue:  # follow common edges: both graphs reach the first state whose edges differ
        mine, other = ours.get(before, set()), theirs.get(before, set())
        if mine != other:
            return _tell(python.level, before, (initial, mine, other), ours, theirs)
        for _, after in sorted(mine):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    raise AssertionError("the hashes differ and no edge does")


def _tell(
    level: Level,
    state: str,
    found: tuple[str, set[tuple[str, str]], set[tuple[str, str]]],
    ours: Successors,
    theirs: Successors,
) -> str:
    initial, mine, other = found
    total = [sum(map(len, side.values())) for side in (ours, theirs)]
    lines = [f"{total[0]} edges in Python, {total[1]} in TLC; the first state whose edges differ:", f"  {state}"]
    paths = [graph.show(level, path_to(state, initial, side)) for side in (ours, theirs)]
    if paths[0] == paths[1]:
        lines += ["a shortest path to it, in both:", paths[0]]
    else:
        lines += ["a shortest path to it in Python:", paths[0], "and in TLC:", paths[1]]
    for name, only in (("Python", mine - other), ("TLC", other - mine)):
        lines += (f"only in {name}:\n{graph.show(level, [('', state), edge])}\n  {edge[1]}" for edge in sorted(only))
    return "\n".join(lines)


def with_results(text: str, name: str, states: int, edges: int, digest: str) -> str:
    """The text of scopes.toml with one scope's results written into its table."""
    found = re.search(rf"^\[scope\.{re.escape(name)}\]\n(?:(?!\[).*\n?)*", text, re.MULTILINE)
    assert found, f"no table of scope {name}"
    body = found[0].rstrip("\n")
    kept = [line for line in body.split("\n") if not re.match(r"(states|edges|hash) *=", line)]
    block = "\n".join([*kept, f"states = {states}", f"edges = {edges}", f'hash = "{digest}"'])
    return text[: found.start()] + block + text[found.start() + len(body) :]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scopes = graph.load_scopes()
    parser.add_argument("scope", choices=scopes)
    parser.add_argument("dot", type=Path, help="what TLC wrote with -dump dot,actionlabels")
    parser.add_argument("--write", action="store_true", help="write the results into scopes.toml if the graphs are equal")
    options = parser.parse_args(arguments)
    named = scopes[options.scope]
    tlc = dump.read_file(options.dot)
    python = graph.explore_named(named, limit=2 * len(tlc.states))
    if told := difference(python, tlc):
        graph.say(f"{named.name}: the graphs differ: {told}")
        return 1
    results = (len(python.states), len(python.edges), tlc.hash)
    graph.say(f"{named.name}: equal, {results[0]} states, {results[1]} edges, {tlc.hash}")
    if options.write:
        text = graph.SCOPES_FILE.read_text(encoding="utf-8")
        graph.SCOPES_FILE.write_text(with_results(text, named.name, *results), encoding="utf-8")
    elif results != named.results:
        graph.say(f"{named.name}: scopes.toml has other results: {named.states} states, {named.edges} edges, {named.hash}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
