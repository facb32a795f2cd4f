"""`rocketmq-ha fuzz run|replay|hunt` and `rocketmq-ha demo-bug`."""

import logging
import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from rocketmq_ha.fuzz import faults, hunt, replay, schedule
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.progress import STARTING_SPARK, run_progress
from rocketmq_ha.impl.cli.table import console_for, print_pairs
from rocketmq_ha.spec.event_log import VERDICT_OK

HUNT_SECONDS = 60.0


@click.group()
def fuzz() -> None:
    """Drive the reference model and the implementation in lock-step."""
    # A campaign kills slaves by the thousand: that each has cut its tail off is no news. The level comes back at the end of the
    # command, for a process that goes on after it, as that of the tests does.
    logger = logging.getLogger("rocketmq_ha.impl")
    click.get_current_context().call_on_close(partial(logger.setLevel, logger.level))
    logger.setLevel(logging.ERROR)


@fuzz.command()
@click.option("--runs", type=click.IntRange(min=1), default=1000, show_default=True, help="Schedules, one a seed.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The first seed.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of the event log.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
def run(runs: int, seed: int, out: Path, master: str) -> None:
    """Run a campaign on Spark and write its event log.

    Exit status 1 if the two sides ever disagreed. `rocketmq-ha report` makes a page of the log.
    """
    from rocketmq_ha.analysis.session import spark_session
    from rocketmq_ha.fuzz import campaign

    click.echo(STARTING_SPARK, err=True)
    # The work is done by Python: the JVM's optimising compiler costs more time than it saves.
    spark = spark_session("rocketmq-ha fuzz", master=master, fast_start=True)
    with run_progress("schedules", runs) as progress:
        result = campaign.run(spark, runs, seed, out, progress)
    for row in result.failed[:5]:
        click.echo(f"{row['verdict']}: {row['signature']}: rocketmq-ha fuzz replay {row['run_id']}", err=True)
    operations, steps = (sum(row[name] for row in result.rows) for name in ("n_ops", "n_steps"))
    click.echo(
        f"log={out} schedules={len(result.rows)} distinct={result.distinct} operations={operations} steps={steps} "
        f"failed={len(result.failed)} seconds={result.seconds:.1f}"
    )
    sys.exit(1 if result.failed else 0)


@fuzz.command(name="replay")
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--fault", "fault_name", help="Replay over a copy of the implementation with this planted fault.")
def replay_command(seed: int, fault_name: str | None) -> None:
    """Show the schedule of SEED step by step, a column a node. Exit status 1 if the two sides disagree."""
    if fault_name:
        with tempfile.TemporaryDirectory(prefix="rocketmq-ha-") as directory:
            sys.exit(faults.run_with(faults.find(fault_name), Path(directory), ["replay", str(seed)]))
    sys.exit(0 if replay.show(schedule.draw(seed), console_for()).verdict == VERDICT_OK else 1)


@fuzz.command(name="hunt")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--seconds", type=float, default=HUNT_SECONDS, show_default=True, help="Give up after this long.")
@click.option(
    "--more",
    type=click.IntRange(min=0),
    default=hunt.GO_ON,
    show_default=True,
    help="Seeds to try after the first failure, in search of a shorter one.",
)
def hunt_command(seed: int, seconds: float, more: int) -> None:
    """Look for a failing schedule without Spark, and replay the shortest. Exit status 0 if one was found, 1 if not."""
    found = hunt.hunt(seed, seconds, go_on=more)
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
        status = faults.run_with(fault, Path(directory), ["hunt"])
    if status != 0:
        raise FuzzError(f"fault {fault.name!r} was not found in {HUNT_SECONDS:.0f} s")
    click.echo(f"again: rocketmq-ha fuzz replay SEED --fault {fault.name}, with the seed that found= names")
