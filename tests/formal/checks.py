"""What one process of `make formal` does: a scope by TLC and by the Python model, or one violation by TLC."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import dump
import equality
import graph
import scopes
import tlc
from scopes import Properties, Scope, Violation

Results = tuple[int, int, str]  # states, edges and hash of a graph


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, and what is to be said of it.

    surprise: empty where everything is as scopes.toml has it.
    trace: the labels of a violation's trace; of a liveness violation, up to where it repeats.
    results: of the graph that TLC and Python agree on, or that Python alone found.
    """

    job: Scope | Violation
    states: int
    transitions: int
    depth: int
    seconds: float
    verdict: str
    surprise: str = ""
    trace: tuple[str, ...] = ()
    results: Results | None = None


def check_scope(scope: Scope, properties: Properties) -> Outcome:
    """Everything claimed of a scope holds, its graph is Python's too, and is the one checked in."""
    began = time.monotonic()
    names = scopes.claimed(scope, properties)
    dot = tlc.BUILD / scope.name / "graph.dot"
    dumped = ["-dump", "dot,actionlabels", str(dot)] if scope.graph else []
    ran = tlc.run(scope.name, scopes.configuration(scope, names, properties), *dumped, edges=scope.edges or 0)
    verdict, surprise, results = f"{len(names)} hold", "", None
    if ran.status in tlc.VIOLATED:
        verdict = surprise = f"{ran.violated()} is violated, after {' '.join(ran.trace())}"
    elif ran.status != tlc.HOLDS:
        verdict, surprise = "TLC failed", f"TLC failed, see {ran.log}"
    elif scope.graph:
        told, surprise, results = compare_graphs(scope, dot)
        verdict += f", {told}"
    return Outcome(scope, *ran.numbers(), time.monotonic() - began, verdict, surprise, results=results)


def compare_graphs(scope: Scope, dot: Path) -> tuple[str, str, Results | None]:
    """A verdict, a surprise, and the results where TLC's graph is Python's: the same states, edges and labels."""
    named = graph.load_scopes()[scope.name]
    dumped = dump.read_file(dot)
    try:
        python = graph.explore_named(named, limit=2 * len(dumped.states))
    except graph.GraphTooLargeError as error:
        return "Python's graph is ANOTHER", f"Python's graph has {error}; TLC's has {len(dumped.states)}", None
    if told := equality.difference(python, dumped):
        return "Python's graph is ANOTHER", f"Python's graph is another than TLC's: {told}", None
    dot.unlink()
    results = (len(python.states), len(python.edges), dumped.hash)
    verdict = f"graph {dumped.hash[:8]} = Python's"
    if surprise := other_results(named, results):
        return f"{verdict}, NOT AS CHECKED IN", surprise, results
    if scope.min_edges:
        told, surprise = check_labels(scope, Counter(dump.labels(dumped)))
        verdict += f"; {told}"
    return verdict, surprise, results


def other_results(named: graph.NamedScope, results: Results) -> str:
    """A surprise, unless these are the results that are checked in."""
    if results == named.results:
        return ""
    return "the graph has {} states, {} edges, hash {}; scopes.toml has {} states, {} edges, hash {}".format(
        *results, *named.results
    )


def check_labels(scope: Scope, counts: Counter[str]) -> tuple[str, str]:
    """A verdict and a surprise: whether each label of the scope has edges enough, or none if it can have none."""
    if found := [label for label in scope.never if counts[label]]:
        return "a label that must have no edge", f"labels that should have no edge: {', '.join(found)}"
    edges = {label: counts[label] for label in scope.labels() if label not in (*scope.rare, *scope.never)}
    rarest = min(edges, key=lambda label: edges[label])
    few = [f"{label} {count}" for label, count in edges.items() if count < (scope.min_edges or 0)]
    surprise = f"labels with fewer than {scope.min_edges} edges: {', '.join(few)}" if few else ""
    return f"{len(edges)} labels, the rarest {rarest} with {edges[rarest]}", surprise


def find_violation(violation: Violation, scope: Scope, properties: Properties) -> Outcome:
    """A catalogued violation is found, by a trace of the expected length."""
    began = time.monotonic()
    name = violation.property
    ran = tlc.run(f"{scope.name}.{name}", scopes.configuration(scope, [name], properties))
    steps, length = ran.trace(), ran.length()
    verdict, surprise = f"found, {length} states", ""
    if ran.status == tlc.HOLDS:
        verdict = surprise = "NOT FOUND"
    elif ran.status not in tlc.VIOLATED or (not scope.fair and ran.violated() != name):
        verdict, surprise = "TLC failed", f"TLC failed, see {ran.log}"
    elif violation.length not in {None, length}:
        surprise = f"found after {length} states, not {violation.length}: {' '.join(steps)}"
    return Outcome(violation, *ran.numbers(), time.monotonic() - began, verdict, surprise, steps)


def check_python(scope: Scope) -> Outcome:
    """The graph of the Python model alone is the one checked in, which was TLC's too."""
    began = time.monotonic()
    named = graph.load_scopes()[scope.name]
    try:
        python = graph.explore_named(named, limit=2 * (named.states or 1))
    except graph.GraphTooLargeError as error:
        return Outcome(scope, 0, 0, 0, time.monotonic() - began, "ANOTHER GRAPH", f"the graph has {error}, not {named.states}")
    results = (len(python.states), len(python.edges), python.hash())
    surprise = other_results(named, results)
    verdict = "ANOTHER GRAPH" if surprise else f"graph {results[2][:8]}, as checked in"
    numbers = (results[0], results[1], python.depth + 1)
    return Outcome(scope, *numbers, time.monotonic() - began, verdict, surprise, results=results)
