"""`rocketmq-ha cluster`: start a whole cluster on this machine, look at it, and break parts of it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.app.cluster.control import end, give_order, run_cluster
from rocketmq_ha.impl.app.cluster.directory import NoCluster, find_directory, new_directory, plan_for, read_state
from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES, Plan
from rocketmq_ha.impl.app.cluster.ports import LAST_BASE_PORT
from rocketmq_ha.impl.app.cluster.processes import our_command
from rocketmq_ha.impl.app.cluster.status import cluster_status
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.cli.cluster_screen import show
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.status import clear
from rocketmq_ha.impl.cli.table import console_for
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.spec.role import BrokerRole

_POLL_S: Final = 0.05
_LOWEST_PORT: Final = 1024

_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The directory of the cluster. [default: this one, or the only one below it that has a cluster]",
)


@click.group()
def cluster() -> None:
    """Run a cluster on this machine, and break parts of it.

    `up` starts a name server and brokers, each as a process of its own. All their connections go through a process that can cut
    them, so that clients, brokers and the name server can be parted from each other without any rights. The other commands act
    on a running cluster from another terminal.

    \b
        rocketmq-ha cluster up --mode sync-2m-2s
        rocketmq-ha cluster status --watch
        rocketmq-ha cluster kill broker-a
        rocketmq-ha cluster start broker-a
        rocketmq-ha cluster cut broker-b broker-b-s
        rocketmq-ha cluster heal broker-b broker-b-s
        rocketmq-ha cluster down
    """


@cluster.command()
@click.option(
    "--mode",
    type=click.Choice(list(MODES)),
    help="1m: one master. 2m: two masters. async-2m-2s: a slave for each, and no put waits for it. sync-2m-2s: each put waits"
    " for the slave. [default: that of the cluster which ran in DIR]",
)
@click.option(
    "--flush",
    type=click.Choice(FLUSHES),
    help="With sync, puts also wait for the master's disk. [default: async, or that of the cluster which ran in DIR]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where its stores, logs and settings are. One that has them starts again. [default: a new one, cluster-MODE]",
)
@click.option(
    "--base-port",
    type=click.IntRange(_LOWEST_PORT, LAST_BASE_PORT),
    metavar="PORT",
    help="The port of the name server; the brokers take ports above it. [default: ports that are free]",
)
@click.option("--detach", is_flag=True, help="Return when all are up; `cluster down` stops them.")
def up(mode: str | None, flush: str | None, directory: Path | None, base_port: int | None, detach: bool) -> None:
    """Start a cluster, and keep it until SIGINT, SIGTERM or `cluster down`.

    DIR gets a folder `conf` with namesrv.conf and a broker.conf for each broker, a folder `logs`, and a folder `store` with a
    store for each broker. The files of their logs have 16 MiB. All listen on 127.0.0.1 alone.

    The first lines of standard output name the directory and the addresses for clients:

    \b
        directory=/home/me/cluster-sync-2m-2s
        namesrv=127.0.0.1:20000
        broker-a=127.0.0.1:20012

    When it ends, all its processes end. If it is killed, the system stops them (on Linux; elsewhere `cluster down` does).
    """
    if directory is None:
        if mode is None:
            raise ConfigInvalid("cluster up: expected --mode for a new cluster, or --dir with that of one that is down")
        directory = new_directory(Path.cwd(), mode)
    directory = directory.absolute()
    with plan_for(directory, mode, flush, base_port) as plan:
        if not detach:
            _print_addresses(directory, plan)
            run_cluster(
                directory,
                plan,
                Stop(),
                told=lambda name: click.echo(f"{name} is up", err=True),
                ready=lambda: click.echo(_next_commands(directory, plan), err=True),
            )
            return
    # The process that stays chooses and reserves ports of its own.
    _detach(directory, plan.mode, plan.flush, base_port)


def _print_addresses(directory: Path, plan: Plan) -> None:
    click.echo(f"directory={directory}")
    for node in plan.nodes:
        click.echo(f"{node.name}={format_address(*node.address)}")
    sys.stdout.flush()


def _count(plan: Plan) -> str:
    masters = sum(not node.broker_id for node in plan.brokers)
    slaves = len(plan.brokers) - masters
    return f"a name server, {masters} master{'s' * (masters > 1)}" + (f" and {slaves} slaves" if slaves else "")


def _next_commands(directory: Path, plan: Plan) -> str:
    name_server = format_address(*plan.name_server.address)
    shown = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    note = ""
    if any(node.role is BrokerRole.SYNC_MASTER for node in plan.brokers):
        note = "The first messages end with SLAVE_NOT_AVAILABLE: a slave counts when it has acknowledged one.\n"
    return (
        f"{_count(plan)} are up. {note}To try in another terminal:\n"
        f"    rocketmq-ha send --namesrv {name_server} --topic orders --body 'the first one'\n"
        f"    rocketmq-ha consume --namesrv {name_server} --topic orders --from first --stop-at-end\n"
        f"    rocketmq-ha cluster status --dir {shown}\n"
        f"    rocketmq-ha cluster kill broker-a --dir {shown}"
    )


def _detach(directory: Path, mode: str, flush: str, base_port: int | None) -> None:
    """Run `cluster up` as a process without a terminal, and wait until all nodes are up. Raises: ConfigInvalid."""
    (directory / "logs").mkdir(parents=True, exist_ok=True)
    log = directory / "logs" / "cluster.log"
    size = log.stat().st_size if log.exists() else 0
    arguments = ["--mode", mode, "--flush", flush, "--dir", str(directory)]
    if base_port is not None:
        arguments += ["--base-port", str(base_port)]
    with log.open("ab") as errors:
        null = subprocess.DEVNULL
        command = our_command("cluster", "up", *arguments)
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=errors, start_new_session=True)
    try:
        while not _is_ready(directory, process.pid):
            if process.poll() is not None:
                said = log.read_bytes()[size:].decode("utf-8", "replace").split("\n")
                last = next((line for line in reversed(said) if line.strip()), "it said nothing").removeprefix("rocketmq-ha: ")
                raise ConfigInvalid(f"{directory}: the cluster ended with status {process.returncode}: {last}")
            time.sleep(_POLL_S)
    except BaseException:
        process.terminate()
        raise
    plan = read_state(directory).plan
    _print_addresses(directory, plan)
    click.echo(_next_commands(directory, plan), err=True)


def _is_ready(directory: Path, pid: int) -> bool:
    try:
        kept = read_state(directory)
    except NoCluster:
        return False
    return kept.is_ready and kept.pid == pid


@cluster.command()
@_directory_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: bytes, milliseconds.")
@click.option("--watch", is_flag=True, help="Show it repeatedly, until interrupted.")
@click.option(
    "--every",
    type=FiniteRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks, with --watch.",
)
def status(directory: Path | None, as_json: bool, watch: bool, every: float) -> None:
    """Show the nodes of a cluster and the links between them.

    A node is up; killed or stopped by a command; or ended by itself. `listed` says whether the name server lists a broker. The
    lag of a slave is what its log lacks of its master's; a dash stands for what nobody can say, since the node does not answer.

    Exit status 2, with one line, if no cluster runs. With --watch this holds only for the first look.
    """
    directory = _found(directory)
    _print(cluster_status(directory), as_json)
    while watch:
        time.sleep(every)
        try:
            found: dict[str, Any] | NoCluster = cluster_status(directory)
        except NoCluster as error:
            found = error
        clear(as_json)
        if isinstance(found, NoCluster):
            click.echo(str(found), err=as_json)
        else:
            _print(found, as_json)


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
    else:
        show(found, console_for())
    sys.stdout.flush()


@cluster.command()
@click.argument("node")
@_directory_option
def kill(node: str, directory: Path | None) -> None:
    """Kill a node, as `kill -9` does: its store stays as it is at that moment."""
    click.echo(f"killed={node} pid={give_order(_found(directory), 'kill', node)['pid']}")


@cluster.command()
@click.argument("node")
@_directory_option
def stop(node: str, directory: Path | None) -> None:
    """Stop a node by SIGTERM: it flushes its log, and tells the name server that it goes."""
    click.echo(f"stopped={node} pid={give_order(_found(directory), 'stop', node)['pid']}")


@cluster.command()
@click.argument("node")
@_directory_option
def start(node: str, directory: Path | None) -> None:
    """Start a node again on its store, with the settings in DIR/conf. It serves when this returns."""
    answer = give_order(_found(directory), "start", node)
    click.echo(f"started={node} pid={answer['pid']} address={answer['address']}")


_other_argument = click.argument("other", required=False)


@cluster.command()
@click.argument("node")
@_other_argument
@_directory_option
def cut(node: str, other: str | None, directory: Path | None) -> None:
    """Cut the link between two nodes, or all links of one. OTHER may be `clients`: all who are no node.

    Nothing arrives any more, and neither end is told so: connections stay open, and connects wait.
    """
    _change_links("cut", node, other, directory)


@cluster.command()
@click.argument("node")
@_other_argument
@_directory_option
def heal(node: str, other: str | None, directory: Path | None) -> None:
    """Heal the link between two nodes, or all links of one. What was sent meanwhile arrives."""
    _change_links("heal", node, other, directory)


def _change_links(what: str, node: str, other: str | None, directory: Path | None) -> None:
    names = (node,) if other is None else (node, other)
    links = give_order(_found(directory), what, *names)["links"]
    for link in links:
        click.echo(f"{what}={' '.join(link)}")
    if not links:
        click.echo(f"{' '.join(names)}: nothing to {what}", err=True)


@cluster.command()
@_directory_option
def down(directory: Path | None) -> None:
    """Stop a cluster, or what is left of one whose `up` was killed. Its stores stay."""
    for line in end(_found(directory)):
        click.echo(line)


def _found(directory: Path | None) -> Path:
    return find_directory(Path.cwd()) if directory is None else directory.absolute()
