"""The jobs of `make formal`, one process each: check a scope by TLC and by the Python model, or find one violation by TLC."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from formal import dump, equality, graph, premises, scopes, tlc
from formal.scopes import Properties, Scope, Unfair, Violation

Results = tuple[int, int, str]  # states, edges and hash of a graph
Counts = dict[str, list[premises.Count]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one job.

    surprise: what differs from scopes.toml; empty if nothing does.
    trace: labels of a violation's trace; the trace of a liveness violation ends where it repeats.
    results: states, edges and hash of the graph, on which TLC and Python agree, or which Python alone explored.
    counts: how often each premise of the claimed properties was reached.
    """

    job: Scope | Violation | Unfair
    states: int
    transitions: int
    depth: int
    seconds: float
    verdict: str
    surprise: str = ""
    trace: tuple[str, ...] = ()
    results: Results | None = None
    counts: Counts | None = None


def check_scope(scope: Scope, properties: Properties) -> Outcome:
    """Check that every claimed property holds and has cases, and that the graph equals Python's and the checked-in one."""
    began = time.monotonic()
    names = scopes.claimed(scope, properties)
    dot = tlc.BUILD / scope.name / "graph.dot"
    dumped = ["-dump", "dot,actionlabels", str(dot)] if scope.graph else []
    text = scopes.configuration(scope, names, properties)
    ran = tlc.run(scope.name, text, *dumped, module=scope.module, edges=scope.edges or 0)
    if ran.status != tlc.HOLDS:
        verdict, surprise = "TLC failed", f"TLC failed, see {ran.log}"
        if ran.status in tlc.VIOLATED:
            verdict = surprise = f"{ran.violated()} is violated, after {' '.join(ran.trace())}"
        return Outcome(scope, *ran.numbers(), time.monotonic() - began, verdict, surprise)
    told, surprise, results, python = compare(scope, ran.numbers()[0], dot)
    outcome = Outcome(scope, *ran.numbers(), time.monotonic() - began, told, surprise, results=results)
    if python is None:
        return outcome
    outcome = with_premises(outcome, scope, names, python)
    assert outcome.counts is not None
    return replace(outcome, verdict=", ".join(filter(None, [held(names, outcome.counts), told])))


def compare(scope: Scope, states: int, dot: Path) -> tuple[str, str, Results | None, graph.Graph | None]:
    """Compare TLC's graph with Python's.

    TLC does not dump the graph of a liveness scope; there only the number of states is compared.
    Returns: a verdict, a surprise, the results if the graphs are equal, and Python's graph if it has TLC's states.
    """
    named = graph.load_scopes()[scope.name]
    dumped = dump.read_file(dot) if scope.graph else None
    try:
        python = graph.explore_named(named, limit=2 * states)
    except graph.GraphTooLargeError as error:
        return "Python's graph is ANOTHER", f"Python's graph has {error}; TLC's has {states}", None, None
    if dumped is None:
        surprise = "" if len(python.states) == states else f"Python's graph has {len(python.states)} states, TLC's {states}"
        return "", surprise, None, python
    if told := equality.difference(python, dumped):
        return "Python's graph is ANOTHER", f"Python's graph is another than TLC's: {told}", None, None
    dot.unlink()
    results = (len(python.states), len(python.edges), dumped.hash)
    verdict = f"graph {dumped.hash[:8]} = Python's"
    if surprise := other_results(named, results):
        return f"{verdict}, NOT AS CHECKED IN", surprise, results, python
    if scope.min_edges:
        told, surprise = check_labels(scope, Counter(dump.labels(dumped)))
        verdict += f"; {told}"
    return verdict, surprise, results, python


def with_premises(outcome: Outcome, scope: Scope, names: Sequence[str], python: graph.Graph) -> Outcome:
    """Add the counts of the premises to an outcome. Too few for a property that the scope is for is a surprise."""
    counts = premises.counted(python, names)
    vacuous = "; ".join(premises.too_few(counts, scope.least))
    return replace(outcome, surprise=outcome.surprise or vacuous, counts=counts)


def held(names: Sequence[str], counts: Counts) -> str:
    """Count the properties that hold with at least one case, and those without any. TLC found that all hold."""
    reached = [name for name in names if name in premises.UNCONDITIONAL or (counts[name] and counts[name][0].reached)]
    without = len(names) - len(reached)
    return f"{len(reached)} hold" + (f", {without} without a case" if without else "")


def other_results(named: graph.NamedScope, results: Results) -> str:
    """Return a surprise if the results differ from the checked-in ones; else ""."""
    if results == named.results:
        return ""
    return "the graph has {} states, {} edges, hash {}; scopes.toml has {} states, {} edges, hash {}".format(
        *results, *named.results
    )


def check_labels(scope: Scope, counts: Counter[str]) -> tuple[str, str]:
    """Check that each label of the scope has enough edges, or none if the scope excludes it. Returns: verdict, surprise."""
    if found := [label for label in scope.never if counts[label]]:
        return "a label that must have no edge", f"labels that should have no edge: {', '.join(found)}"
    edges = {label: counts[label] for label in scope.labels() if label not in (*scope.rare, *scope.never)}
    rarest = min(edges, key=lambda label: edges[label])
    few = [f"{label} {count}" for label, count in edges.items() if count < (scope.min_edges or 0)]
    surprise = f"labels with fewer than {scope.min_edges} edges: {', '.join(few)}" if few else ""
    return f"{len(edges)} labels, the rarest {rarest} with {edges[rarest]}", surprise


def find_violation(violation: Violation, scope: Scope, properties: Properties) -> Outcome:
    """Check that TLC finds a catalogued violation, with a trace of the expected length."""
    began = time.monotonic()
    name = violation.property
    ran = tlc.run(f"{scope.name}.{name}", scopes.configuration(scope, [name], properties), module=scope.module)
    steps, length = ran.trace(), ran.length()
    verdict, surprise = f"found, {length} states", ""
    if ran.status == tlc.HOLDS:
        verdict = surprise = "NOT FOUND"
    elif ran.status not in tlc.VIOLATED or (not (scope.fair or scope.patient) and ran.violated() != name):
        verdict, surprise = "TLC failed", f"TLC failed, see {ran.log}"
    elif violation.length not in {None, length}:
        surprise = f"found after {length} states, not {violation.length}: {' '.join(steps)}"
    return Outcome(violation, *ran.numbers(), time.monotonic() - began, verdict, surprise, steps)


def find_unfair(unfair: Unfair, scope: Scope, properties: Properties) -> Outcome:
    """Check that a property fails without one part of the fairness, although it holds with it."""
    began = time.monotonic()
    text = scopes.configuration(scope, [unfair.property], properties, f"Without{unfair.without}")
    ran = tlc.run(f"{scope.name}.without.{unfair.without}", text)
    verdict, surprise = f"found, {ran.length()} states", ""
    if ran.status == tlc.HOLDS:
        verdict, surprise = "NOT FOUND", f"{unfair.property} holds without it"
    elif ran.status not in tlc.VIOLATED:
        verdict, surprise = "TLC failed", f"TLC failed, see {ran.log}"
    return Outcome(unfair, *ran.numbers(), time.monotonic() - began, verdict, surprise, ran.trace())


def check_python(scope: Scope, properties: Properties) -> Outcome:
    """Check the Python model alone: its graph equals the checked-in one, which was TLC's too, and reaches the premises."""
    began = time.monotonic()
    named = graph.load_scopes()[scope.name]
    try:
        python = graph.explore_named(named, limit=2 * (named.states or 1))
    except graph.GraphTooLargeError as error:
        return Outcome(scope, 0, 0, 0, time.monotonic() - began, "ANOTHER GRAPH", f"the graph has {error}, not {named.states}")
    results = (len(python.states), len(python.edges), python.hash())
    other = other_results(named, results)
    verdict = "ANOTHER GRAPH" if other else f"graph {results[2][:8]}, as checked in"
    numbers = (results[0], results[1], python.depth + 1)
    outcome = Outcome(scope, *numbers, time.monotonic() - began, verdict, other, results=results)
    return with_premises(outcome, scope, scopes.claimed(scope, properties), python)
