"""`rocketmq-ha fuzz run|replay|shrink|hunt` and `rocketmq-ha demo-bug`."""

import logging
import math
import re
import shlex
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from rocketmq_ha.fuzz import campaign_file, faults, hunt, limits, logged_run, replay, schedule_file, shrink
from rocketmq_ha.fuzz.errors import FuzzError, check_replaceable
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.progress import STARTING_SPARK, campaign_progress, shrink_progress
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.table import console_for, print_pairs
from rocketmq_ha.impl.store.log.creation import replace_file
from rocketmq_ha.spec.event_log import VERDICT_OK

HUNT_SECONDS = 60.0
DEFAULT_RUNS = 1000


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # newer click has it generic
    """A duration in seconds, written 90s, 30m or 8h."""

    name = "duration"
    UNITS: ClassVar = {"s": 1.0, "m": 60.0, "h": 3600.0}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(value))
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is no duration; expected a number with a unit, such as 90s, 30m or 8h", param, ctx)
        return float(found[1]) * self.UNITS[found[2]]


@click.group()
def fuzz() -> None:
    """Drive the reference model and the implementation in lock-step."""
    # The implementation would tell of what schedules make: cut tails, full disks, damage. The level comes back at the end of
    # the command, for a process that goes on after it, as that of the tests does.
    logger = logging.getLogger("rocketmq_ha.impl")
    click.get_current_context().call_on_close(partial(logger.setLevel, logger.level))
    logger.setLevel(logging.CRITICAL)


WORLD_OPTION = click.option("--world", "worlds", multiple=True, help="Only this world; repeatable.  [default: all]")


@fuzz.command()
@click.option("--runs", type=click.IntRange(min=1), help="Schedules.  [default: 1000, or as many as --for allows]")
@click.option("--for", "seconds", type=Duration(), help="Go on for so long: 90s, 30m, 8h.")
@click.option("--seed", type=click.IntRange(0, campaign_file.MOST_SEED), help="The first seed.  [default: 1]")
@click.option("--out", required=True, help="Directory of the event log, or a URI such as s3://bucket/prefix.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@WORLD_OPTION
@click.option(
    "--guided/--random",
    "is_guided",
    default=None,
    help="Also make schedules from those that reached something new.  [default: random]",
)
@click.option("--corpus", help="A log whose corpus a guided campaign begins with.")
@click.option("--resume", is_flag=True, help="Go on with the campaign in --out; --runs or --for may ask for more.")
@click.option("--overwrite", is_flag=True, help="Delete the campaign in --out.")
@click.option(
    "--run-seconds",
    type=FiniteRange(limits.LEAST_SECONDS, limits.MOST_SECONDS),
    default=limits.RUN_SECONDS,
    show_default=True,
    help="The most of one run.",
)
@click.option(
    "--run-memory",
    type=click.IntRange(limits.LEAST_MEMORY, limits.MOST_MEMORY),
    default=limits.RUN_MEMORY,
    show_default=True,
    help="Bytes: the most of one run.",
)
@click.option(
    "--partition-runs", type=click.IntRange(min=1), help="Runs of a partition.  [default: as many as take some seconds]"
)
def run(
    runs: int | None,
    seconds: float | None,
    seed: int | None,
    out: str,
    master: str,
    worlds: tuple[str, ...],
    is_guided: bool | None,
    corpus: str | None,
    resume: bool,
    overwrite: bool,
    run_seconds: float,
    run_memory: int,
    partition_runs: int | None,
) -> None:
    """Run a campaign on Spark and write its event log.

    A campaign may be ended at any moment; --resume makes what its log lacks. Exit status 1 if the two sides ever disagreed.
    `rocketmq-ha report` makes a page of the log.
    """
    from rocketmq_ha.analysis.session import check_master, spark_session, starting
    from rocketmq_ha.fuzz import campaign
    from rocketmq_ha.fuzz.log_store import LogStore

    check_master(master)
    if not out.strip():
        raise FuzzError("--out '': expected a directory, or a URI such as s3://bucket/prefix")
    if runs is None and seconds is None and not resume:
        runs = DEFAULT_RUNS
    if resume and (given := _given("overwrite", "corpus", "partition_runs", "run_seconds", "run_memory")):
        raise FuzzError(f"--resume: found {', '.join(given)} beside it, but the campaign keeps what it was begun with")
    if corpus is not None and not is_guided:
        raise FuzzError(f"--corpus {corpus}: expected --guided beside it")
    if not resume:
        campaign.check_free(LogStore(out), overwrites=overwrite)
    plan = campaign.Plan(seed, runs, seconds, worlds, is_guided, Limits(run_seconds, run_memory), corpus, partition_runs)
    campaign.check(plan, out, resumes=resume)
    if resume and campaign.has_other_code(out):
        click.echo(f"{out}: its runs were made by other code than this; what is added is of this", err=True)
    older = None if resume else campaign.name_to_resume(out)  # with --overwrite
    began = time.monotonic()
    click.echo(STARTING_SPARK, err=True)
    try:
        with starting(master):
            # The work is done by Python: the JVM's optimising compiler costs more time than it saves.
            spark = spark_session("rocketmq-ha fuzz", master=campaign.retrying(master), fast_start=True)
        with campaign_progress() as progress:
            result = campaign.run(spark, plan, out, progress, resumes=resume)
    except (KeyboardInterrupt, SystemExit):  # SIGINT, SIGTERM
        if campaign.name_to_resume(out) in (None, older):
            click.echo("stopped before the campaign had begun", err=True)
        else:
            options = ["--out", out, *(["--master", master] if _given("master") else [])]
            if seconds is not None:
                left_s = seconds - (time.monotonic() - began)
                options += ["--for", f"{max(1, math.ceil(left_s / 60))}m"]
            click.echo(f"stopped; rocketmq-ha fuzz run --resume {shlex.join(options)} goes on", err=True)
        raise
    if not result.runs:
        raise FuzzError("--for: found the time over before a run was made, expected more: Spark's workers start within it")
    for row in result.failed[:5]:
        click.echo(f"{row['verdict']}: {row['signature']}: {replay.command(row, out)}", err=True)
    click.echo(
        f"log={out} schedules={result.runs} distinct={result.distinct} operations={result.operations} steps={result.steps} "
        f"failed={result.n_failed} seconds={result.seconds:.1f}"
    )
    sys.exit(1 if result.n_failed else 0)


def _given(*names: str) -> list[str]:
    """The options of these parameters that the command line has."""
    ctx = click.get_current_context()
    return [f"--{name.replace('_', '-')}" for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]


@fuzz.command(name="replay")
@click.argument("what")
@click.option("--world", "world_name", help="Draw the schedule of this world.  [default: the world that the seed draws]")
@click.option("--fault", "fault_name", help="Replay over a copy of the implementation with this planted fault.")
def replay_command(what: str, world_name: str | None, fault_name: str | None) -> None:
    """Show a schedule step by step, a column a node.

    WHAT is a seed, the file of a schedule, or a run of a log, LOG:NUMBER: build/night:-18 is a guided one. Exit status 1 if the
    two sides disagree. A replay has no limit of time or memory: a run that a campaign ended for one of these goes on.
    """
    schedule = _schedule_of(what, world_name)
    if fault_name:
        again = ["replay", what, *(["--world", world_name] if world_name else [])]
        with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as directory:
            sys.exit(faults.run_with(faults.find(fault_name), Path(directory), again))
    sys.exit(0 if replay.show(schedule, console_for()).verdict == VERDICT_OK else 1)


def _schedule_of(what: str, world_name: str | None) -> Schedule:
    """The schedule of a seed, of a run of a log, or in a file. Raises: FuzzError."""
    if what.isdecimal() and what.isascii():
        return registry.draw(int(what), registry.find([world_name] if world_name else []))
    if world_name is not None:
        raise FuzzError(f"--world {world_name}: {what} has a world already; expected no --world beside it")
    of_log = re.fullmatch(r"(.+):(-?\d+)", what, re.ASCII)
    if of_log is not None and not Path(what).exists():
        return logged_run.schedule_of(of_log[1], int(of_log[2]))
    return schedule_file.read(Path(what))


@fuzz.command(name="shrink")
@click.argument("what")
@click.option("--world", "world_name", help="Draw the schedule of this world.  [default: the world that the seed draws]")
@click.option("--fault", "fault_name", help="Shrink over a copy of the implementation with this planted fault.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
def shrink_command(what: str, world_name: str | None, fault_name: str | None, out: Path) -> None:
    """Make the failing schedule WHAT as short as it goes, show it, and write it to a file.

    WHAT is a seed, the file of a schedule, or a run of a log, LOG:NUMBER. What is written replays with `fuzz replay`. Put into
    tests/stateful/schedules/, `make test` replays it. Exit status 1 if the schedule does not fail.
    """
    schedule = _schedule_of(what, world_name)
    check_replaceable("--out", out)
    if fault_name:
        again = ["shrink", what, "--out", str(out.absolute()), *(["--world", world_name] if world_name else [])]
        with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as directory:
            sys.exit(faults.run_with(faults.find(fault_name), Path(directory), again))
    with shrink_progress() as progress:
        found = shrink.shrink(schedule, progress=progress)
    if found is None:
        click.echo(f"{what}: its {len(schedule.events)} events do not fail without a limit of time and memory", err=True)
        sys.exit(1)
    shortest = found.outcome.schedule
    replace_file(out, schedule_file.to_json(shortest).encode())
    replay.show(shortest, console_for())
    click.echo(f"events={len(shortest.events)} of={len(schedule.events)} tries={found.tries} file={out}")


@fuzz.command(name="hunt")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@WORLD_OPTION
@click.option("--seconds", type=FiniteRange(0), default=HUNT_SECONDS, show_default=True, help="Give up after this long.")
@click.option(
    "--more",
    type=click.IntRange(min=0),
    default=hunt.GO_ON,
    show_default=True,
    help="Seeds to try after the first failure, in search of a shorter one.",
)
def hunt_command(seed: int, worlds: tuple[str, ...], seconds: float, more: int) -> None:
    """Look for a failing schedule without Spark, and replay the shortest. Exit status 0 if one was found, 1 if not."""
    found = hunt.hunt(seed, seconds, partial(hunt.run_seed, registry.find(worlds)), go_on=more)
    if found is None:
        click.echo(f"no failure in {seconds:.0f} s", err=True)
        sys.exit(1)
    replay.show(found.outcome.schedule, console_for())
    click.echo(f"found={found.outcome.schedule.seed} runs={found.runs} seconds={found.seconds:.1f}")


@click.command(name="demo-bug")
@click.argument("name", required=False)
def demo_bug(name: str | None) -> None:
    """Plant the fault NAME in a copy of the implementation and find it. Without NAME, list the faults.

    Exit status 0 if the fault was found.
    """
    if name is None:
        print_pairs(console_for(), ((fault.name, fault.description) for fault in faults.FAULTS))
        return
    fault = faults.find(name)
    click.echo(f"{fault.name}: {fault.description}\nplanted in a copy of {fault.file}; looking for it")
    with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as directory:
        status = faults.run_with(fault, Path(directory), ["hunt", "--world", fault.world])
    if status != 0:
        raise FuzzError(f"fault {fault.name!r} was not found in {HUNT_SECONDS:.0f} s")
    world = "" if fault.world == "link" else f" --world {fault.world}"
    click.echo(f"again: rocketmq-ha fuzz replay SEED{world} --fault {fault.name}, with the seed that found= names")
