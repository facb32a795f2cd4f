"""Show a schedule step by step: a line for each event, a column for each node; a failing line comes last, with both sides."""

import re
import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from rocketmq_ha.fuzz import lockstep, logged_run
from rocketmq_ha.fuzz.lockstep import StepOutcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import START_MS, Schedule
from rocketmq_ha.impl.cli.table import Column, print_table
from rocketmq_ha.spec.event_log import NO_FAULT, VERDICT_OK

LEGEND = """\
ms      model time since the start
event   what the schedule does; a fault is marked !; dim where nothing came of it"""
AGREEMENT = (
    "Every column shows the reference model after the event; the implementation agrees unless the last line says otherwise."
)


def command(row: Mapping[str, Any], log: str) -> str:
    """The command that replays the failed run of a row of runs/, in a log."""
    if row["run_id"] >= 0:
        return f"rocketmq-ha fuzz replay {row['run_id']} --world {row['world']}"
    return f"rocketmq-ha fuzz replay {logged_run.name_of(shlex.quote(log), row['run_id'])}"


def show(schedule: Schedule, console: Console) -> StepOutcome:
    """Run a schedule and print its table. Returns: the last step; if the run fails, the failing one."""
    world = registry.world_of(schedule)
    names = world.columns(schedule)
    columns = [Column("op", is_number=True), Column("ms", is_number=True), Column("event"), *map(Column, (*names, "verdict"))]
    rows: list[list[str]] = []
    styles: list[str] = []
    with lockstep.scratch_directory() as directory:
        both = lockstep.of_schedule(schedule, directory)
        try:
            for event in schedule.events:
                outcome = both.apply(event)
                styles.append("bold red" if outcome.verdict != VERDICT_OK else "" if outcome.transitions else "dim")
                mark = "" if world.fault_of(event) == NO_FAULT else "! "
                begin = [str(outcome.op_index), str(outcome.now_ms - START_MS), mark + world.describe(event)]
                rows.append([*begin, *world.cells(both.reference), outcome.verdict])
                if outcome.verdict != VERDICT_OK:
                    break
        finally:
            both.close()
    _print(console, f"seed {schedule.seed}: world {world.name}, {schedule.profile.name}, {world.headline(schedule)}")
    _print(console, f"{LEGEND}\n{world.legend}\n{AGREEMENT}", "dim")
    print_table(console, columns, rows, styles)
    if outcome.verdict == VERDICT_OK:
        console.print(f"{outcome.op_index + 1} operations, both sides agree after every one")
    else:
        _print(console, f"{outcome.verdict} at operation {outcome.op_index}: {world.describe(outcome.event)}", "bold red")
        for line in outcome.detail.split("; "):
            _print(console, f"  {line}")
    return outcome


def _print(console: Console, text: str, style: str = "") -> None:
    """Print lines as they are. One that is too wide is wrapped between words, and goes on under its own text."""
    for line in text.splitlines():
        begin = re.match(r"\S+ {2,}| *", line)
        assert begin is not None
        indent = " " * begin.end()
        shown = textwrap.wrap(
            line, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, expand_tabs=False
        )
        for one in shown:
            console.print(one, style=style, highlight=False, markup=False, soft_wrap=True)
