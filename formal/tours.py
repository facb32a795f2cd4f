"""Tours: a few walks through the byte-level machine that cover every transition between classes of states, as test vectors.

    python -m formal.tours            count them
    python -m formal.tours --check    exit status 1 if a file of spec/vectors/tours/ is out of date
    python -m formal.tours --write    rewrite them

A scope's graph is explored breadth-first from empty logs over a fixed set of actions. Only the first few states of each class
are kept, and only the first of several states that differ in nothing that matters (`alike`). A view gives each state a class. A
triple is (class before, action, class after) of an edge that changes the state, in one view. Together the walks contain every
triple of the graph. Nothing is random: the same model gives the same files.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from formal import tour_lines
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import cluster, events, master, slave, store
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.spec.profile import PROFILES, Profile, Settings

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "spec" / "vectors" / "tours"

ALL: Final = 1 << 18  # bytes
FILE_SIZE: Final = 200  # two records of 92 bytes and a BLANK of 16
MAX_FILES: Final = 3
MAX_STEPS: Final = 200  # steps after which a walk ends at the next opportunity
MAX_PLAN: Final = 5  # steps to the next missing triple; a new walk needs about as many
SETTINGS: Final = Settings(FILE_SIZE, ha_transfer_batch_size=100, master_read_buffer_size=16, slave_read_buffer_size=160)
PUT: Final = events.Put("T", b"", "", 0, False)

View = Callable[[Cluster], tuple[str, ...]]
Triple = tuple[str, tuple[str, ...], str, tuple[str, ...]]  # view, class before, action, class after


@dataclass(frozen=True)
class Scope:
    """The bounds of one tour."""

    slaves: int
    kept: int  # number of states kept of one class
    actions: dict[str, events.Event]
    views: dict[str, View]
    label: Callable[[Cluster, str], str]  # the label of an action in a triple


# --- Views --------------------------------------------------------------------------------------------------------------------


def own_link(now: Cluster, index: int) -> Link | None:
    return next((link for link in now.links if link.slave == index and link.slave_open), None)


def connection(now: Cluster, index: int) -> str:
    """The state of the master's end of a slave's connection: none, stale, or its phase."""
    own = own_link(now, index)
    if own is None:
        return "stale" if any(link.slave == index for link in now.links) else "none"
    return "severed" if own.severed else master.classify(own.conn).value


def phase(now: Cluster, index: int) -> str:
    """The phase of a slave."""
    own, node = own_link(now, index), now.slaves[index]
    if own is None or own.severed:
        return "away"
    if own.conn.slave_request_offset == -1:
        return "fresh"
    held, there = store.max_offset(node.log), store.max_offset(now.log)
    return "level" if held == there else "behind" if held < there else "ahead"


def waiting(now: Cluster) -> str:
    return "waiting" if now.group.requests else "nobody_waits"


VIEWS_OF_ONE: Final[dict[str, View]] = {
    "link": lambda now: (connection(now, 0), slave.classify(now.slaves[0]).value),
    "stores": lambda now: (store.classify(now.log).value, store.classify(now.slaves[0].log).value),
    "puts": lambda now: (waiting(now), phase(now, 0)),
}
# The two slaves are interchangeable: each needs to act alone only once.
VIEWS_OF_TWO: Final[dict[str, View]] = {"pair": lambda now: (*sorted((phase(now, 0), phase(now, 1))), waiting(now))}


def of_one(_: Cluster, action: str) -> str:
    return action


def of_either(now: Cluster, action: str) -> str:
    name, _, index = action.partition(" ")
    return f"{name} {phase(now, int(index))}" if index else name


# --- Scopes -------------------------------------------------------------------------------------------------------------------

COMMON: Final[dict[str, events.Event]] = {
    "put": PUT,
    "put_and_wait": replace(PUT, wait=True),
    "tick": events.Tick(5001),
    "kill_master": events.RestartMaster(False),
    "stop_master": events.RestartMaster(True),
}
ONE: Final = COMMON | {
    "long_tick": events.Tick(15_000),
    "connect": events.Connect(0, ALL, ALL),
    "connect_blocked": events.Connect(0, 0, ALL),
    "grant_5": events.Grant(0, 5),
    "grant": events.Grant(0, ALL),
    "frames_5": events.DeliverFrames(0, 5),
    "frames_12": events.DeliverFrames(0, 12),
    "frames": events.DeliverFrames(0, ALL),
    "reports_4": events.DeliverReports(0, 4),
    "reports": events.DeliverReports(0, ALL),
    "forge_report": events.ForgeReport(0, -5),
    "forge_header": events.ForgeHeader(0, -1),
    "clog": events.Clog(0, 3),
    "cut": events.Cut(0, "both"),
    "cut_told_to_slave": events.Cut(0, "slave"),
    "cut_told_to_master": events.Cut(0, "master"),
    "restart_slave": events.RestartSlave(0),
}


def of_each(index: int) -> dict[str, events.Event]:
    return {
        f"connect {index}": events.Connect(index, ALL, ALL),
        f"frames {index}": events.DeliverFrames(index, ALL),
        f"reports {index}": events.DeliverReports(index, ALL),
        f"cut {index}": events.Cut(index, "both"),
        f"cut_told_to_slave {index}": events.Cut(index, "slave"),
        f"restart_slave {index}": events.RestartSlave(index),
    }


SCOPES: Final = {
    "one": Scope(1, 8, ONE, VIEWS_OF_ONE, of_one),
    "two": Scope(2, 20, COMMON | of_each(0) | of_each(1), VIEWS_OF_TWO, of_either),
}


# --- The graph ----------------------------------------------------------------------------------------------------------------


def classes(now: Cluster, scope: Scope) -> tuple[tuple[str, ...], ...]:
    return tuple(view(now) for view in scope.views.values())


def alike(now: Cluster) -> tuple[object, ...]:
    """The key of a state in the graph: lengths and offsets, not bytes; and whether a link's time-out is near."""
    links = tuple(
        (
            link.slave,
            link.slave_open,
            link.severed,
            master.classify(link.conn),
            link.conn.next_transfer_from_where,
            link.conn.slave_request_offset,
            len(link.to_slave),
            len(link.to_master),
            link.room > FILE_SIZE,
            now.now_ms - link.conn.last_read_timestamp > 10_000,
        )
        for link in now.links
    )
    nodes = tuple((slave.classify(node), node.log.base, len(node.log.data)) for node in now.slaves)
    return links, nodes, len(now.log.data), now.push2_slave_max_offset, len(now.group.requests)


@dataclass(frozen=True)
class Edge:
    action: str
    triples: tuple[Triple, ...]  # one for each view
    target: int | None  # the kept state that equals the result; None if none was kept


@dataclass
class Graph:
    """A bounded graph. Each state but the first was reached from its parent by its action."""

    scope: Scope
    profile: Profile
    states: list[Cluster]
    parents: list[tuple[int, str]]
    edges: list[list[Edge]]  # the outgoing edges of each state
    triples: dict[Triple, int]  # each with the first state from which it can be made

    def path(self, index: int) -> list[str]:
        found: list[str] = []
        while index:
            index, action = self.parents[index]
            found.append(action)
        return found[::-1]

    def nearest(self, index: int, missing: dict[Triple, int]) -> list[str]:
        """The shortest plan that ends with a missing triple, or an empty one. It assumes that alike states behave alike."""
        plans: dict[int, list[str]] = {index: []}
        queue = [index]
        for at in queue:  # the list grows while it is walked
            for edge in self.edges[at]:
                if any(triple in missing for triple in edge.triples):
                    return [*plans[at], edge.action]
                if edge.target is not None and edge.target not in plans and len(plans[at]) < MAX_PLAN:
                    plans[edge.target] = [*plans[at], edge.action]
                    queue.append(edge.target)
        return []


def step(now: Cluster, action: str, scope: Scope, profile: Profile) -> Cluster | None:
    """The state after an action; None if nothing changes, or if the scope's bounds are exceeded."""
    after, _ = cluster.step(now, scope.actions[action], SETTINGS, profile)
    if replace(after, done=()) == replace(now, done=()) and not after.done:
        return None
    if len(after.log.data) > MAX_FILES * FILE_SIZE or len(after.links) > scope.slaves + 1 or len(after.group.requests) > 2:
        return None
    return after


def triples_of(before: Cluster, action: str, after: Cluster, scope: Scope) -> tuple[Triple, ...]:
    return tuple((name, view(before), scope.label(before, action), view(after)) for name, view in scope.views.items())


def explore(scope: Scope, profile: Profile) -> Graph:
    start = cluster.new_cluster(scope.slaves, SETTINGS, profile, START_MS)
    graph = Graph(scope, profile, [start], [(0, "")], [], {})
    index_of, kept = {alike(start): 0}, {classes(start, scope): 1}
    for index, now in enumerate(graph.states):  # the list grows while it is walked
        graph.edges.append([])
        for action in scope.actions:
            after = step(now, action, scope, profile)
            if after is None:
                continue
            found, triples = classes(after, scope), triples_of(now, action, after, scope)
            if alike(after) not in index_of and kept.get(found, 0) < scope.kept:
                index_of[alike(after)] = len(graph.states)
                kept[found] = kept.get(found, 0) + 1
                graph.states.append(after)
                graph.parents.append((index, action))
            graph.edges[index].append(Edge(action, triples, index_of.get(alike(after))))
            for triple in triples:
                graph.triples.setdefault(triple, index)
    return graph


# --- The walks ----------------------------------------------------------------------------------------------------------------


def walks(graph: Graph) -> list[list[str]]:
    """Greedy walks: go to the deepest missing triple by its shortest path, then always to the nearest missing one."""
    scope, profile = graph.scope, graph.profile
    index_of = {alike(state): index for index, state in enumerate(graph.states)}
    missing = dict(graph.triples)
    found: list[list[str]] = []

    def gain(before: Cluster, action: str) -> int:
        after = step(before, action, scope, profile)
        return 0 if after is None else sum(triple in missing for triple in triples_of(before, action, after, scope))

    while missing:
        wanted, index = next(reversed(missing.items()))
        plan = [*graph.path(index), next(edge.action for edge in graph.edges[index] if wanted in edge.triples)]
        walk: list[str] = []
        now = graph.states[0]
        while plan:
            left = len(missing)
            for action in plan:
                after = step(now, action, scope, profile)
                if after is None:  # alike states may behave differently: plan again
                    break
                for triple in triples_of(now, action, after, scope):
                    missing.pop(triple, None)
                walk.append(action)
                now = after
            plan = []
            if len(missing) < left and len(walk) < MAX_STEPS:
                gains = {action: gain(now, action) for action in scope.actions}
                best = max(scope.actions, key=lambda action: gains[action])
                at = index_of.get(alike(now))
                plan = [best] if gains[best] else graph.nearest(at, missing) if at is not None else []
        assert wanted not in missing, "a walk that follows the tree of the graph makes what the graph has"
        found.append(walk)
    return found


# --- The files ----------------------------------------------------------------------------------------------------------------


def event_fields(event: events.Event) -> dict[str, Any]:
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(event).items()}
    return {"event": type(event).__name__, **fields}


def told(scope: Scope, profile: Profile, found: list[list[str]]) -> Iterator[str]:
    """The lines of the walks, made by the model."""
    for number, walk in enumerate(found, 1):
        world, teller = ReferenceWorld(scope.slaves, SETTINGS, profile, START_MS), tour_lines.Teller()
        yield tour_lines.line({"walk": number, **teller.tell(None, world.observe())})
        for action in walk:
            world.apply(scope.actions[action])
            yield tour_lines.line({"do": action, **teller.tell(scope.actions[action], world.observe())})


def generate(name: str, profile: Profile) -> tuple[str, Graph, list[list[str]]]:
    """The text of a tour's file, with its graph."""
    scope = SCOPES[name]
    graph = explore(scope, profile)
    found = walks(graph)
    head = {
        "format": 1,
        "profile": profile.name,
        "slaves": scope.slaves,
        "start_ms": START_MS,
        "settings": asdict(SETTINGS),
        "states": len(graph.states),
        "triples": len(graph.triples),
        "walks": len(found),
        "steps": sum(map(len, found)),
        "actions": {action: event_fields(event) for action, event in scope.actions.items()},
    }
    return "\n".join([tour_lines.line(head), *told(scope, profile, found), ""]), graph, found


def main(arguments: list[str]) -> int:
    status = 0
    for name in SCOPES:
        for profile in PROFILES.values():
            file = DIRECTORY / f"{name}-{profile.name}.jsonl"
            text, graph, found = generate(name, profile)
            counts = (
                f"{len(graph.states)} states, {len(graph.triples)} triples, {len(found)} walks, {sum(map(len, found))} steps"
            )
            sys.stdout.write(f"{file.name}: {counts}, {len(text)} bytes\n")
            sys.stdout.flush()
            if arguments == ["--write"]:
                file.write_text(text, encoding="utf-8")
            elif arguments == ["--check"] and (not file.is_file() or file.read_text(encoding="utf-8") != text):
                sys.stdout.write(f"{file.name} differs: python -m formal.tours --write, and look at the diff\n")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
