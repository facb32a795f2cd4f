"""`rocketmq-ha second-verdict`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketmq_ha.fuzz.errors import check_writable
from rocketmq_ha.fuzz.progress import STARTING_SPARK, run_progress
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.table import Column, console_for, print_table

if TYPE_CHECKING:
    from rocketmq_ha.fuzz.second_verdict.spark import SecondVerdict


@click.command(name="second-verdict")
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory for the tables runs/ and rules/ as Parquet."
)
@click.option(
    "--share",
    type=FiniteRange(0, 1),
    default=0.0,
    show_default=True,
    help="Part of the runs that the model goes through again, by a hash of run_id.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--unreached-ok", is_flag=True, help="Do not count a rule whose premise no row reached, as in a small log.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def second_verdict(
    logs: tuple[str, ...], out: Path | None, share: float, master: str, unreached_ok: bool, as_json: bool
) -> None:
    """Judge the runs of LOGS again, from the logs alone. A log is a directory, or the URI of one on an object store.

    Every run is checked row by row against the clauses; with --share, the model goes through some runs again. Exit status 1 if
    a run breaks a rule, or if a rule was never reached and so has shown nothing.
    """
    from rocketmq_ha.analysis.session import check_master, spark_session, starting
    from rocketmq_ha.fuzz.second_verdict import log_files, output, spark

    check_master(master)
    if out is not None:
        output.check(out)
        out.mkdir(parents=True, exist_ok=True)
        check_writable("--out", out)
    found_logs = [log_files.find(path, number) for number, path in enumerate(logs)]
    click.echo(STARTING_SPARK, err=True)
    with starting(master):
        session = spark_session("rocketmq-ha second-verdict", master=master)
    # The manifests of version 2 tell the rows; of version 1 only the sizes of files are known.
    total = sum(log_files.weight_of(log.parts) for log in found_logs)
    with run_progress("bytes" if any(log.is_old for log in found_logs) else "rows", total) as progress:
        found = spark.judge(session, found_logs, share=share, out=out, progress=lambda done: progress(int(total * done)))
    unreached = list(unreached_rules(found, with_rerun=share > 0))
    if as_json:
        click.echo(json.dumps(_as_json(found, unreached), indent=1))
    else:
        _print(found, logs)
        for rule in unreached:
            click.echo(f"never reached: {rule}", err=True)
        click.echo(
            f"runs={found.runs} rows={found.rows} rerun={found.rerun} without_schedule={found.not_rerun} wrong={found.wrong} "
            f"rules={len(found.premises)} unreached={len(unreached)} seconds={found.seconds:.1f}"
        )
    sys.exit(1 if found.wrong or (unreached and not unreached_ok) else 0)


def unreached_rules(found: "SecondVerdict", *, with_rerun: bool) -> Iterator[str]:
    """The rules that are about the worlds and profiles of the log, and whose premise nothing reached."""
    from rocketmq_ha.fuzz.second_verdict import monitor, rerun

    for rule in monitor.RULES:
        is_about = rule.world in ("", *found.worlds) and rule.profile in ("", *found.profiles)
        if is_about and not found.premises.get(rule.name):
            yield rule.name
    if with_rerun:
        yield from (
            rule
            for rule in rerun.RULES
            if rule != rerun.INVARIANTS or "hardened" in found.profiles
            if not found.premises.get(rule)
        )


def _sources() -> dict[str, tuple[str, str]]:
    from rocketmq_ha.fuzz.second_verdict import monitor, rerun

    return {rule.name: (rule.source, rule.sentence) for rule in monitor.RULES} | dict(rerun.RULES)


def _as_json(found: "SecondVerdict", unreached: list[str]) -> dict[str, Any]:
    names = ("runs", "rows", "rerun", "not_rerun", "wrong", "examples")
    rules = {
        name: {
            "source": source,
            "sentence": sentence,
            "premises": found.premises[name],
            "violations": found.broken.get(name, 0),
        }
        for name, (source, sentence) in _sources().items()
        if name in found.premises
    }
    seconds = round(found.seconds, 3)
    return {name: getattr(found, name) for name in names} | {"seconds": seconds, "unreached": unreached, "rules": rules}


def _print(found: "SecondVerdict", logs: tuple[str, ...]) -> None:
    console = console_for()
    columns = [Column("rule"), Column("source"), Column("premises", is_number=True), Column("violations", is_number=True)]
    rows = [
        [name, source, f"{found.premises[name]:,}", f"{found.broken.get(name, 0):,}"]
        for name, (source, _) in _sources().items()
        if name in found.premises
    ]
    print_table(console, columns, rows, ["bold red" if found.broken.get(row[0]) else "" for row in rows])
    for row in found.examples:
        where = "" if row["step"] < 0 else f", step {row['step']}"
        console.print(
            f"{logs[row['log']]}: run {row['run_id']}{where}: {row['rule']}: {row['detail']}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
