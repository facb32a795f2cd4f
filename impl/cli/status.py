"""`rocketmq-ha status`: show the status of a running master or slave, which it reports itself."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketmq_ha.impl.cli.broker_status import broker_lines
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.quantities import ago, duration, number, rate, size
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.status_socket import NotRunning, ask

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("store", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from", "address", metavar="HOST:PORT", help="Instead of DIR: the --metrics address of a process on any machine."
)
@click.option("--watch", is_flag=True, help="Show it repeatedly, until interrupted.")
@click.option(
    "--every",
    type=FiniteRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two snapshots, with --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: bytes, milliseconds, bytes a second.")
def status(store: Path | None, address: str | None, watch: bool, every: float, as_json: bool) -> None:
    """Show the status of the running master, slave or broker of a store, or of a name server.

    DIR is the store that the process serves. The process answers over a socket in it, which only its user may open. A status
    has the role, the offsets, and every connection of a master; that of a broker has its clients and its name servers, too.

    The kind of a connection is "slave" after it has acknowledged bytes that it was sent. It is "reader" (tail or a health
    probe) if it has reported since without acknowledging any. It is "new" while neither is known, for example for a slave that
    has come back while the log has not grown.

    A slave has a lag, in bytes and in time: for how long there have been bytes that it has not acknowledged, to a tenth of a
    second. A slave does not know where its master's log ends, so its lag is in the status of the master; a slave broker asks
    its master every 5 s, and shows what it lacked then.

    --from asks a process on another machine, or a name server, at the HTTP port of its --metrics. That port answers everybody
    who can connect.

    Exit status 2, with one line, if no process serves the store. With --watch this holds only for the first snapshot, because a
    process that goes away later may come back.
    """
    if (store is None) == (address is None):
        raise ConfigInvalid("status: expected either a store's DIR, or --from HOST:PORT")
    if address is not None:
        from rocketmq_ha.impl.net.remote_status import ask_remote  # loads an HTTP client

        ask_status: Callable[[], dict[str, Any]] = partial(ask_remote, parse_address(address, "--from"))
    else:
        assert store is not None
        ask_status = partial(ask, store)
    _print(ask_status(), as_json)
    while watch:
        time.sleep(every)
        try:
            snapshot = ask_status()
        except NotRunning as error:
            clear(as_json)
            click.echo(str(error), err=as_json)
            continue
        clear(as_json)
        _print(snapshot, as_json)


def clear(as_json: bool) -> None:
    """Clear the screen of a terminal; elsewhere print an empty line between two snapshots. With JSON do nothing."""
    if not as_json:
        click.echo("\033[H\033[2J" if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())


def _print(snapshot: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(snapshot))
    else:
        from rocketmq_ha.impl.cli.table import console_for

        show(snapshot, console_for())
    sys.stdout.flush()


def show(snapshot: dict[str, Any], console: "Console") -> None:
    """Print a snapshot as tables for people."""
    from rocketmq_ha.impl.cli.table import Column, print_pairs, print_table

    if snapshot["role"] == "namesrv":
        _show_name_server(snapshot, console)
        return
    is_broker, lines = "broker_name" in snapshot, _lines(snapshot)
    print_pairs(console, broker_lines(snapshot, lines) if is_broker else lines)
    if snapshot["role"] != "master":
        return
    if not snapshot["connections"]:
        console.print("\nno connections of slaves" if is_broker else "\nno connections")
        return
    console.print()
    numbers = ("acknowledged", "sent", "lag", "lag time", "acks", "heard", "connected")
    columns = [*map(Column, ("peer", "kind", "state")), *(Column(name, is_number=True) for name in numbers)]
    if snapshot["tls_listen"]:
        columns.append(Column("certificate"))
    rows = []
    for conn in snapshot["connections"]:
        cells = (
            *(conn["peer"], conn["kind"], conn["state"], number(conn["ack_offset"]), number(conn["sent_offset"])),
            *(size(conn["lag_bytes"]), duration(conn["lag_ms"]), rate(conn["acks_per_second"])),
            *(ago(conn["silent_ms"]), duration(conn["connected_ms"])),
            *([conn["certificate"] or "-"] if snapshot["tls_listen"] else []),
        )
        rows.append(cells)
    print_table(console, columns, rows)


def _show_name_server(snapshot: dict[str, Any], console: "Console") -> None:
    from rocketmq_ha.impl.cli.table import Column, print_pairs, print_table

    refused = snapshot["refused_connections"]
    counts = [f"{snapshot[name]:,} {name}" for name in ("brokers", "groups", "clusters", "topics")]
    pairs = [
        ("role", "name server"),
        ("process", _process(snapshot)),
        ("listens", ", ".join(snapshot["listen"]) + (f", {refused:,} connections refused" if refused else "")),
        ("routes", ", ".join(counts)),
        ("clients", f"{snapshot['connections']:,} connections, {sum(snapshot['requests'].values()):,} requests so far"),
    ]
    print_pairs(console, pairs)
    if not snapshot["listed"]:
        console.print("\nno brokers")
        return
    console.print()
    columns = [
        *map(Column, ("broker", "group")),
        Column("id", is_number=True),
        Column("cluster"),
        Column("heard", is_number=True),
    ]
    rows = [
        (row["broker"], row["broker_name"], str(row["broker_id"]), row["cluster"], ago(row["silent_ms"]))
        for row in snapshot["listed"]
    ]
    print_table(console, columns, rows)


def _process(snapshot: dict[str, Any]) -> str:
    return f"pid {snapshot['pid']}, up {duration(snapshot['uptime_s'] * 1000)}, version {snapshot['version']}"


def _lines(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    role = f"{snapshot['broker_role']}, profile {snapshot['profile']}"
    unflushed = snapshot["max_offset"] - snapshot["flushed_offset"]
    log = f"{number(snapshot['min_offset'])} to {number(snapshot['max_offset'])}, files of {size(snapshot['file_size'])}"
    lines = [
        ("role", role),
        ("process", _process(snapshot)),
        ("log", f"{log}, growing by {rate(snapshot['growth_per_second'])}"),
        ("flushed", f"{number(snapshot['flushed_offset'])}, all but {size(unflushed)}" if unflushed else "all of it"),
    ]
    if snapshot["deleted_files"]:
        lines.append(("deleted", f"{number(snapshot['deleted_files'])} files, {size(snapshot['deleted_bytes'])}"))
    if snapshot["disk_full"]:
        lines.append(("disk", snapshot["disk_full"]))
    if snapshot["role"] == "master":
        waiting = snapshot["waiting_puts"]
        acked = number(snapshot["push2_slave_max_offset"])
        refused = snapshot["refused_connections"]
        tls = f"{snapshot['tls_listen']} (TLS)" if snapshot["tls_listen"] else None
        listens = ", ".join(filter(None, (snapshot["listen"], tls)))
        needed = f"a put that waits needs {snapshot['replicas_needed']}"
        if snapshot["broker_role"] == "ASYNC_MASTER":
            needed = "no put waits for them"
        return [
            *lines,
            ("listens", listens + (f", {refused:,} connections refused" if refused else "")),
            ("slaves", f"{snapshot['slaves']}, which have acknowledged up to {acked}; {waiting} puts wait"),
            ("replicas", f"{snapshot['replicas_counted']} count, {needed}"),
        ]
    state = snapshot["state"]
    if state == "connected":
        since, heard = duration(snapshot["connected_ms"]), ago(snapshot["silent_ms"])
        state = f"connected for {since}, heard {heard}, reported {number(snapshot['reported_offset'])}"
        state += ", comparing its last message with the master's" if snapshot["comparing"] else ""
    ended = snapshot["last_close_reason"]
    tries = f"{snapshot['connects']} connections, {snapshot['failed_connects']} failed tries"
    return [
        *lines,
        ("master", snapshot["master"] + (f", {snapshot['certificate']}" if snapshot["certificate"] else "")),
        ("state", state),
        ("so far", tries + (f"; the last one that ended: {ended}" if ended else "")),
    ]
