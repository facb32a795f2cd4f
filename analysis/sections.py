"""The sections whose tables need not be there: comparison, starved, pairs, worlds, faults by state, time, quarantine, trend.

Like view.py, this module uses neither HTML nor Spark. A section is None where one of its tables is missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from rocketmq_ha.analysis import plots
from rocketmq_ha.analysis.schema import Possible

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]

MAX_ROWS: Final = 40  # of a list that can be long; the Parquet table has all
KINDS: Final = ("transition", "clause", "pair")  # of coverage, as the tables of a comparison have them
LOST: Final = "lost"  # the judgement that chance does not explain it; the other one is that the runs were too few


@dataclass(frozen=True, slots=True)
class Shown:
    """The first rows of a table, and how many more it has."""

    rows: tuple[Row, ...]
    more: int

    @property
    def number(self) -> int:
        return len(self.rows) + self.more


def first(rows: Iterable[Row]) -> Shown:
    every = tuple(rows)
    return Shown(every[:MAX_ROWS], max(0, len(every) - MAX_ROWS))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is new since the older campaign."""

    lost: Shown  # that chance hardly explains
    too_few: Shown  # that the newer campaign had too few runs to see
    new_failures: tuple[Row, ...]
    other_failures: tuple[Row, ...]  # still there, or gone
    gained: Shown
    gained_by_kind: tuple[tuple[str, int], ...]
    rates: tuple[Row, ...]


def comparison(tables: Tables) -> Comparison | None:
    if not {"lost_coverage", "failures_compared", "new_coverage", "rates"} <= set(tables):
        return None
    lost, failures = tables["lost_coverage"], tables["failures_compared"]
    gained = sorted(tables["new_coverage"], key=lambda row: KINDS.index(row["kind"]))
    return Comparison(
        lost=first(row for row in lost if row["judgement"] == LOST),
        too_few=first(row for row in lost if row["judgement"] != LOST),
        new_failures=tuple(row for row in failures if row["change"] == "new"),
        other_failures=tuple(row for row in failures if row["change"] != "new"),
        gained=first(gained),
        gained_by_kind=tuple((kind, sum(row["kind"] == kind for row in gained)) for kind in KINDS),
        rates=tuple(tables["rates"]),
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of two dimensions. cells[row, column] is absent where the two cannot meet."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Row]

    @property
    def n_never(self) -> int:
        return sum(cell["n"] == 0 for cell in self.cells.values())


def state_faults(tables: Tables, possible: Possible) -> tuple[Grid, ...] | None:
    """For each machine its states by fault. Machines and states have the order of the model."""
    if "state_faults" not in tables:
        return None
    by_actor: dict[str, list[Row]] = {}
    for row in tables["state_faults"]:
        by_actor.setdefault(row["actor"], []).append(row)
    grids = []
    for actor in [
        *(name for name in possible.machines if name in by_actor),
        *sorted(by_actor.keys() - possible.machines.keys()),
    ]:
        mine = by_actor[actor]
        known = possible.machines[actor].states if actor in possible.machines else ()
        found = {row["state"] for row in mine}
        states = (*(state for state in known if state in found), *sorted(found - set(known)))
        cells = {(row["state"], row["fault"]): row for row in mine}
        grids.append(Grid(actor, states, tuple(sorted({row["fault"] for row in mine})), cells))
    return tuple(grids)


def clause_worlds(tables: Tables, order: Mapping[str, int]) -> Grid | None:
    """Clauses by world. A cell with n = 0 is expected by the specification, and no run filled it."""
    if "clauses_by_world" not in tables:
        return None
    rows = tables["clauses_by_world"]
    clauses = sorted({row["clause"] for row in rows}, key=lambda clause: (order.get(clause, len(order)), clause))
    worlds = tuple(sorted({row["world"] for row in rows}))
    return Grid("clauses", tuple(clauses), worlds, {(row["clause"], row["world"]): row for row in rows})


def held(tables: Tables) -> tuple[tuple[str, int], ...] | None:
    """How many clauses each kind of thing holds, the most first."""
    if "clauses_held" not in tables:
        return None
    kinds = [row["held"] for row in tables["clauses_held"]]
    return tuple(sorted(((kind, kinds.count(kind)) for kind in set(kinds)), key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True, slots=True)
class WorldGrowth:
    """The growth within one world."""

    world: str
    plot: plots.Plot


def growth_by_world(tables: Tables, possible: Possible) -> tuple[WorldGrowth, ...] | None:
    """A plot for each world, if there is more than one. The thin lines are at the transitions of the world's machines."""
    rows = tables.get("growth_by_world", ())
    if len({row["world"] for row in rows}) < 2:
        return None
    found = []
    for number, (world, of_world) in enumerate(groupby(rows, key=lambda row: row["world"])):
        curves = [
            _curve(profile, list(points), _possible_in(possible, world, profile))
            for profile, points in groupby(of_world, key=lambda row: row["profile"])
        ]
        ends = "; ".join(f"{curve.profile}: {curve.transitions[-1]} after {curve.runs[-1]:,} runs" for curve in curves)
        alt = f"Distinct transitions over runs of {world}. {ends}."
        found.append(WorldGrowth(world, plots.growth(curves, alt, f"growth-{number}")))
    return tuple(found)


def _curve(profile: str, points: Sequence[Row], n_possible: int) -> plots.Curve:
    runs, transitions = [point["runs"] for point in points], [point["transitions"] for point in points]
    return plots.Curve(profile, runs, transitions, max(n_possible, transitions[-1]))


def _possible_in(possible: Possible, world: str, profile: str) -> int:
    machines = [machine for machine in possible.machines.values() if world in machine.worlds]
    return sum(profile in profiles for machine in machines for *_, profiles in machine.transitions)


def trend(tables: Tables) -> plots.Plot | None:
    """Transitions and failed runs over campaigns, if there are several."""
    rows = tables.get("trend", ())
    if len(rows) < 2:
        return None
    last = rows[-1]
    alt = (
        f"Transitions seen by {len(rows)} campaigns, from {rows[0]['name']} to {last['name']}: "
        f"{rows[0]['transitions']:,} in the first, {last['transitions']:,} in the last. The table below has the numbers."
    )
    return plots.trend([row["name"] for row in rows], [row["transitions"] for row in rows], alt)
