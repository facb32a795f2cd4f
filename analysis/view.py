"""The content of the page as data, in the order of the page. This module uses neither HTML nor Spark.

A table that is not there leaves its section out, so that a page can also be made of the tables of another version.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from rocketmq_ha.analysis import clause_texts, plots, requirements, sections
from rocketmq_ha.analysis.clause_texts import ClauseText
from rocketmq_ha.analysis.glossary import TERMS, Term
from rocketmq_ha.analysis.requirements import Measure, Requirement, Result, found
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import VERDICT_OK

Row = Mapping[str, Any]

MAX_RAREST: Final = 10  # transitions in the list of those seen in the fewest runs
MAX_SIGNATURES: Final = 50  # signatures shown; the Parquet table has all
MAX_STEPS: Final = 30  # steps shown of a failed run; failing_steps.parquet has more, and a replay has all

_IS_ID: Final = re.compile(r"[A-Z][A-Z0-9-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers at the top of the page and in the command's summary line."""

    runs: int
    failed_runs: int
    steps: int
    nbytes: int
    messages: int
    median_steps: float | None
    median_ops: float | None
    seen: int
    possible: int
    clauses_exercised: int
    clauses: int
    signatures: int
    impossible: int
    runs_without_row: int
    runs_short: int
    runs_repeated: int
    runs_missing: int

    @property
    def is_consistent(self) -> bool:
        return not self.inconsistent

    @property
    def inconsistent(self) -> int:
        return self.runs_without_row + self.runs_short + self.runs_repeated + self.runs_missing

    def measures(self) -> dict[str, Measure]:
        """Return what `--require` can bound in every report, by name."""
        return {
            "transitions": Measure(self.seen, self.possible),
            "never_seen": Measure(self.possible - self.seen, self.possible),
            "impossible": Measure(self.impossible),
            "clauses": Measure(self.clauses_exercised, self.clauses),
            "divergences": Measure(self.failed_runs, self.runs),
            "signatures": Measure(self.signatures),
            "inconsistent": Measure(self.inconsistent, self.runs + self.runs_missing),
            "runs": Measure(self.runs),
            "steps": Measure(self.steps),
            "messages": Measure(self.messages),
            "bytes": Measure(self.nbytes),
        }


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the verdict is what it is: words with numbers, and the term that defines them."""

    words: str
    term: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The failed runs of one signature, and the last steps of the smallest of them."""

    row: Row
    steps: tuple[Row, ...]
    n_steps_before: int  # steps of the run that are not among these


@dataclass(frozen=True, slots=True)
class NamedTransition:
    """A transition, and the profiles for which a table lists it."""

    actor: str
    from_state: str
    event: str
    to_state: str
    profiles: tuple[str, ...]
    rows: tuple[Row, ...]  # the table's row for each profile


@dataclass(frozen=True, slots=True)
class Matrix:
    """One machine's state-by-event matrix. cells[state, event] is absent if the cell is impossible and was not seen."""

    actor: str
    states: tuple[str, ...]
    events: tuple[str, ...]
    cells: Mapping[tuple[str, str], Row]
    seen: int
    possible: int


@dataclass(frozen=True, slots=True)
class Splits:
    """The splits of one kind of transfer, and the bytes at which it was never split."""

    actor: str
    event: str
    unit: str
    never: tuple[int, ...]
    rows: tuple[Row, ...]
    plot: plots.Plot


@dataclass(frozen=True, slots=True)
class View:
    """The content of the page."""

    figures: Figures
    verdict: str  # PASS or FAIL
    reasons: tuple[Reason, ...]
    requirements: tuple[Result, ...]
    measures: Mapping[str, Measure]  # by the names that --require takes
    terms: tuple[Term, ...]  # those whose table is there
    profiles: tuple[str, ...]  # the profiles that were run
    profiles_not_run: tuple[str, ...]  # their transitions could not be seen, and are not listed
    verdicts: tuple[Row, ...]
    failures: tuple[Failure, ...]
    impossible: tuple[NamedTransition, ...]
    never_seen: tuple[tuple[str, tuple[NamedTransition, ...]], ...]  # by machine
    n_never_seen: int
    rarest: tuple[Row, ...]
    clauses_never: tuple[Row, ...]
    clauses_unknown: tuple[Row, ...]
    clauses: tuple[Row, ...]
    clause_texts: tuple[ClauseText, ...]  # of every clause of the specification, and every other that the page names
    matrices: tuple[Matrix, ...]
    splits: tuple[Splits, ...]
    growth: plots.Plot | None
    growth_notes: tuple[str, ...]
    estimates: tuple[Row, ...]
    faults: tuple[Row, ...]
    provenance: tuple[tuple[tuple[str, str], ...], ...]  # for each log its campaign.json, flattened
    # What follows is None where its table is missing.
    worlds_measured: tuple[str, ...] | None
    worlds_not_measured: tuple[str, ...] | None  # their transitions and clauses are not listed
    comparison: sections.Comparison | None
    starved: sections.Shown | None
    pairs: tuple[Row, ...] | None
    clause_worlds: sections.Grid | None
    held: tuple[tuple[str, int], ...] | None
    state_faults: tuple[sections.Grid, ...] | None
    growth_by_world: tuple[sections.WorldGrowth, ...] | None
    estimates_by_world: tuple[Row, ...] | None
    durations: tuple[Row, ...] | None
    slowest: tuple[Row, ...] | None
    quarantine: sections.Shown | None
    trend: tuple[Row, ...] | None
    trend_plot: plots.Plot | None

    @property
    def failure_numbers(self) -> dict[str, int]:
        """The number on the page of each signature that it shows, from 1."""
        return {failure.row["signature"]: number for number, failure in reversed(list(enumerate(self.failures, start=1)))}

    @property
    def worlds(self) -> tuple[str, ...]:
        """The worlds that have a column in the table of clauses."""
        return self.clause_worlds.columns if self.clause_worlds else ()

    @property
    def named_clauses(self) -> frozenset[str]:
        """The clauses that have an id on the page, which is their name."""
        return frozenset(text.clause for text in self.clause_texts if _IS_ID.fullmatch(text.clause))


def build(
    tables: Mapping[str, pa.Table],
    possible: Possible,
    campaigns: Sequence[Mapping[str, Any]],
    required: Sequence[Requirement] = (),
) -> View:
    """Make the content of the page from the tables of analysis.tables, and of analysis.steps if they are there."""
    rows = {name: table.to_pylist() for name, table in tables.items()}
    clauses = sorted(rows["clauses"], key=lambda row: _clause_order(row["clause"]))
    texts = clause_texts.build(possible, [row["clause"] for row in clauses])
    place = {text.clause: number for number, text in enumerate(texts)}
    profiles = tuple(sorted({row["profile"] for row in rows["summary"]}))
    declared = {p for machine in possible.machines.values() for *_, ps in machine.transitions for p in ps}
    never = _named(rows["transitions_never_seen"])
    figures = _figures(rows)
    compared = sections.comparison(rows)
    measures = figures.measures() | _measures(rows, compared)
    results = requirements.judge(required, measures)
    measured = {row["world"] for row in rows["worlds"]} if "worlds" in rows else None
    return View(
        figures=figures,
        verdict=requirements.verdict(results),
        reasons=_reasons(figures, results),
        requirements=results,
        measures=measures,
        terms=tuple(term for term in TERMS.values() if term.table in tables),
        profiles=profiles,
        profiles_not_run=tuple(sorted(declared - set(profiles))),
        verdicts=tuple(rows["summary"]),
        failures=_failures(rows["divergences"], rows.get("failing_steps", [])),
        impossible=_named(rows["transitions_impossible"]),
        never_seen=tuple((actor, tuple(group)) for actor, group in groupby(never, key=lambda named: named.actor)),
        n_never_seen=len(rows["transitions_never_seen"]),
        rarest=tuple(sorted(rows["transitions_seen"], key=lambda row: (row["n_runs"], row["n"]))[:MAX_RAREST]),
        clauses_never=tuple(row for row in clauses if row["n"] == 0),
        clauses_unknown=tuple(row for row in clauses if row["clause"] not in possible.clauses),
        clauses=tuple(clauses),
        clause_texts=texts,
        matrices=_matrices(rows["matrix"], possible),
        splits=_splits(rows["fragmentation"], rows["never_split"]),
        growth=_growth(rows["growth"], rows["transitions_never_seen"]),
        growth_notes=tuple(_growth_note(profile, points) for profile, points in _by_profile(rows["growth"])),
        estimates=tuple(rows["estimates"] if len(rows["estimates"]) > 2 else rows["estimates"][-1:]),
        faults=tuple(rows["faults"]),
        provenance=tuple(tuple(_flattened(campaign)) for campaign in campaigns),
        worlds_measured=None if measured is None else tuple(world for world in possible.worlds if world in measured),
        worlds_not_measured=None if measured is None else tuple(world for world in possible.worlds if world not in measured),
        comparison=compared,
        starved=sections.first(rows["starved"]) if "starved" in rows else None,
        pairs=_optional(rows, "pairs_by_machine"),
        clause_worlds=sections.clause_worlds(rows, place),
        held=sections.held(rows),
        state_faults=sections.state_faults(rows, possible),
        growth_by_world=sections.growth_by_world(rows, possible),
        estimates_by_world=_optional(rows, "estimates_by_world"),
        durations=_optional(rows, "run_durations"),
        slowest=_optional(rows, "slowest_runs"),
        quarantine=sections.first(rows["quarantine"]) if "quarantine" in rows else None,
        trend=_optional(rows, "trend"),
        trend_plot=sections.trend(rows),
    )


def _measures(rows: Mapping[str, Sequence[Row]], compared: sections.Comparison | None) -> dict[str, Measure]:
    """Return what `--require` can bound if the tables are there, by name."""
    found: dict[str, Measure] = {}
    if "pairs_by_machine" in rows:
        machines = rows["pairs_by_machine"]
        found["pairs"] = Measure(sum(row["n_seen"] for row in machines), sum(row["n_possible"] for row in machines))
    for name in ("starved", "quarantine"):
        if name in rows:
            found[name] = Measure(len(rows[name]))
    if compared is not None:
        found["lost"] = Measure(compared.lost.number)
        found["new_failures"] = Measure(len(compared.new_failures))
        found["new_coverage"] = Measure(compared.gained.number)
    return found


def _optional(rows: Mapping[str, Sequence[Row]], name: str) -> tuple[Row, ...] | None:
    return tuple(rows[name]) if name in rows else None


def _figures(rows: Mapping[str, Sequence[Row]]) -> Figures:
    summary, integrity = rows["summary"], rows["integrity"][0]
    known = [row for row in rows["clauses"] if row["sentence"]]
    return Figures(
        runs=sum(row["runs"] for row in summary),
        failed_runs=sum(row["runs"] for row in summary if row["verdict"] != VERDICT_OK),
        steps=integrity["events"],
        nbytes=sum(row["nbytes"] for row in summary),
        messages=sum(row["messages"] for row in summary),
        median_steps=rows["run_sizes"][0]["median_steps"],
        median_ops=rows["run_sizes"][0]["median_ops"],
        seen=len(rows["transitions_seen"]) - len(rows["transitions_impossible"]),
        possible=len(rows["transitions_seen"]) - len(rows["transitions_impossible"]) + len(rows["transitions_never_seen"]),
        clauses_exercised=sum(row["n"] > 0 for row in known),
        clauses=len(known),
        signatures=len(rows["divergences"]),
        impossible=len(rows["transitions_impossible"]),
        runs_without_row=integrity["runs_without_row"],
        runs_short=integrity["runs_short"],
        runs_repeated=integrity["runs_repeated"],
        runs_missing=integrity["runs_missing"],
    )


def _reasons(figures: Figures, results: Sequence[Result]) -> tuple[Reason, ...]:
    unmet = [_unmet(figures, result) for result in results if not result.is_met]
    if unmet:
        return tuple(unmet)
    agreed = f"reference and implementation agreed in every step of {_counted(figures.runs, 'run')}"
    failed = f"{figures.failed_runs:,} of {_counted(figures.runs, 'run')} failed, as a requirement allows"
    reasons = [Reason(failed if figures.failed_runs else agreed, "divergences")]
    given = sum(result.is_given for result in results)
    if given:
        met = "the requirement is met" if given == 1 else f"all {given} requirements are met"
        reasons.append(Reason(met, "requirement"))
    return tuple(reasons)


def _unmet(figures: Figures, result: Result) -> Reason:
    name = result.requirement.name
    if result.is_given:
        return Reason(f"{result.requirement} is not met: found {found(result.measure)}", name)
    told = {
        "runs": "the log holds no runs",
        "inconsistent": f"the log is inconsistent in {_counted(figures.inconsistent, 'run')}",
        "divergences": f"{figures.failed_runs:,} of {_counted(figures.runs, 'run')} failed, "
        f"with {_counted(figures.signatures, 'signature')}",
        "impossible": f"{_counted(figures.impossible, 'impossible transition')} "
        f"{'was' if figures.impossible == 1 else 'were'} seen",
    }
    return Reason(told[name], name)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _failures(rows: Sequence[Row], steps: Sequence[Row]) -> tuple[Failure, ...]:
    of_run = {run: tuple(group) for run, group in groupby(steps, key=lambda row: (row["log"], row["run_id"]))}
    failures = []
    for row in sorted(rows, key=lambda row: (-row["n"], row["signature"]))[:MAX_SIGNATURES]:
        shown = of_run.get((row["log"], row["smallest_run"]), ())[-MAX_STEPS:]
        failures.append(Failure(row, shown, shown[0]["step"] if shown else 0))
    return tuple(failures)


def _named(rows: Sequence[Row]) -> tuple[NamedTransition, ...]:
    """Return one entry for each transition. The rows must be sorted by name, so that its profiles follow one another."""
    named = []
    for key, group in groupby(rows, key=lambda row: (row["actor"], row["from_state"], row["event"], row["to_state"])):
        members = tuple(group)
        named.append(NamedTransition(*key, profiles=tuple(row["profile"] for row in members), rows=members))
    return tuple(named)


def _clause_order(clause: str) -> tuple[str, int]:
    """Return the sort key of a clause, which puts HA-S-4 before HA-S-14."""
    chapter, _, number = clause.rpartition("-")
    return chapter, int(number) if number.isdigit() else 0


def _matrices(rows: Sequence[Row], possible: Possible) -> tuple[Matrix, ...]:
    """Put machines, states and events in the model's order, followed by those that appear only in the log.

    A machine of no world that is measured has no rows, and no matrix.
    """
    matrices = []
    found = {row["actor"] for row in rows}
    for actor in _in_order([actor for actor in possible.machines if actor in found], found):
        mine = [row for row in rows if row["actor"] == actor]
        machine = possible.machines.get(actor)
        matrices.append(
            Matrix(
                actor=actor,
                states=_in_order(machine.states if machine else (), (row["from_state"] for row in mine)),
                events=_in_order(machine.events if machine else (), (row["event"] for row in mine)),
                cells={(row["from_state"], row["event"]): row for row in mine},
                seen=sum(row["n_seen"] for row in mine),
                possible=sum(row["n_possible"] for row in mine),
            )
        )
    return tuple(matrices)


def _in_order(known: Iterable[str], found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*known, *sorted(found)]))


def _splits(rows: Sequence[Row], never: Sequence[Row]) -> tuple[Splits, ...]:
    missing = {(row["actor"], row["event"], row["unit"]): tuple(row["never"]) for row in never}
    kinds = []
    for number, (key, group) in enumerate(groupby(rows, key=lambda row: (row["actor"], row["event"], row["unit"]))):
        members = tuple(group)
        actor, event, unit = key
        most = max(members, key=lambda row: row["n"])
        alt = (
            f"Splits of a {unit} by byte, {actor}, {event}: {sum(row['n'] for row in members):,} in all, "
            f"most at {most['bucket']} ({most['n']:,}), none at {len([row for row in members if row['n'] == 0])} "
            f"of {len(members)} places. The table below has the numbers."
        )
        parts = (members[0]["part"], members[-1]["part"])
        bars = plots.Bars([row["bucket"] for row in members], [row["n"] for row in members], parts)
        kinds.append(Splits(actor, event, unit, missing[key], members, plots.splits(bars, f"splits-{number}", alt)))
    return tuple(kinds)


def _by_profile(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(profile, list(group)) for profile, group in groupby(rows, key=lambda row: row["profile"])]


def _growth(rows: Sequence[Row], never: Sequence[Row]) -> plots.Plot | None:
    curves = [
        plots.Curve(
            profile=profile,
            runs=[point["runs"] for point in points],
            transitions=[point["transitions"] for point in points],
            possible=points[-1]["transitions"] + sum(row["profile"] == profile for row in never),
        )
        for profile, points in _by_profile(rows)
    ]
    if not curves:
        return None
    ends = "; ".join(f"{curve.profile}: {curve.transitions[-1]} after {curve.runs[-1]:,} runs" for curve in curves)
    return plots.growth(curves, f"Distinct transitions over runs. {ends}.")


def _growth_note(profile: str, points: Sequence[Row]) -> str:
    """Describe in words when the curve became flat: the first run with half of the final count, and with all of it."""
    last, total = points[-1]["runs"], points[-1]["transitions"]
    half = next(point["runs"] for point in points if point["transitions"] * 2 >= total)
    full = next(point["runs"] for point in points if point["transitions"] == total)
    return f"{profile}: half of its {total:,} transitions by run {half:,}, the last new one in run {full:,} of {last:,}."


def _flattened(document: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(document, Mapping):
        for key, value in sorted(document.items()):
            yield from _flattened(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(document, list):
        yield prefix, ", ".join(str(value) for value in document)
    else:
        yield prefix, str(document)
