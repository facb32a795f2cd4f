"""`rocketmq-ha doctor`: why does my slave not sync? One line for each finding, with advice."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from rocketmq_ha.impl.app.doctor.diagnosis import DoctorOptions, diagnose
from rocketmq_ha.impl.app.doctor.findings import Finding, Findings
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.master_options import master_options, settle_option
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.feed import Stopped


@click.command()
@master_options("The HA address that the slave should follow.")
@click.option(
    "--broker",
    "broker",
    metavar="HOST:PORT",
    help="The master's remoting address, whose default port is 10911; it gives the version and settings.",
)
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="The slave's store, to compare with the master.")
@click.option(
    "--patience",
    type=FiniteRange(min=0.1),
    default=8.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to read from the master. Use more than its heartbeat interval, which is 5 s by default.",
)
@settle_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end, instead of lines.")
@click.pass_context
def doctor(
    ctx: click.Context,
    master: MasterEndpoint,
    broker: str | None,
    store: Path | None,
    patience: float,
    settle: float,
    as_json: bool,
) -> None:
    """Find out why a slave does not sync, from outside.

    Is the master reachable, and does it talk HA? Where does it start, where does it end, does it send heartbeats? With --store:
    is the slave's log whole, within the master's range, in files of the master's size, and the same log? With --broker: its
    version, role and settings, and the known faults of that release.

    The doctor changes nothing on either side. It connects to the master once, and with --store some times more, for some
    seconds. It reports 0, or an older offset for which no put can still wait, and so acknowledges nothing that it is sent. A
    master that counts sockets has one slave more in that time.

    Exit status: 0 if nothing is wrong; 1 if there are findings, for example an unreachable master; 2 if it could not look.
    """
    options = DoctorOptions(master, parse_address(broker, "--broker") if broker else None, store, patience, settle)
    findings = Findings() if as_json else Findings(_print)
    stopped = Stop()
    try:
        diagnose(options, findings, stopped)
    except Stopped:
        ctx.exit(stopped.status)
    if as_json:
        click.echo(json.dumps({"healthy": not findings.count, "findings": [asdict(found) for found in findings.all]}))
    elif findings.count:
        click.echo(f"{findings.count} finding{'s' if findings.count > 1 else ''}")
    else:
        click.echo("nothing wrong was found")
    ctx.exit(1 if findings.count else 0)


def _print(found: Finding) -> None:
    level, colour = {"ok": ("ok     ", "green"), "note": ("note   ", "cyan"), "finding": ("FINDING", "red")}[found.level]
    advice = f" -> {found.advice}" if found.advice else ""
    click.echo(f"{click.style(level, fg=colour, bold=True)}  {found.check:<9}  {found.text}{advice}")
    sys.stdout.flush()
