"""`rocketmq-ha status`: show the status of a running master or slave, which it reports itself."""

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two snapshots, with --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: bytes, milliseconds, bytes a second.")
def status(store: Path | None, address: str | None, watch: bool, every: float, as_json: bool) -> None:
    """Show the status of the running master or slave of a store.

    DIR is the store that the process serves. The process answers over a socket in it, which only its user may open. A status
    has the role, the offsets, and every connection of a master. The kind of a connection is "slave" after it has acknowledged
    bytes that it was sent. It is "reader" (tail or a health probe) if it has reported since without acknowledging any. It is
    "new" while neither is known, for example for a slave that has come back while the log has not grown.

    A slave has a lag, in bytes and in time: for how long there have been bytes that it has not acknowledged, to a tenth of a
    second. A slave does not know where its master's log ends, so its lag is in the status of the master.

    --from asks a process on another machine, at the HTTP port of its --metrics. That port answers everybody who can connect.

    Exit status 2, with one line, if no process serves the store. With --watch this holds only for the first snapshot, because a
    process that goes away later may come back.
    """
    if (store is None) == (address is None):
        raise ConfigInvalid("status: expected either a store's DIR, or --from HOST:PORT")
    if address is not None:
        from rocketmq_ha.impl.net.remote_status import ask_remote  # loads an HTTP client

        ask_status: Callable[[], dict[str, Any]] = partial(ask_remote, parse_address(address))
    else:
        assert store is not None
        ask_status = partial(ask, store)
    _print(ask_status(), as_json)
    while watch:
        time.sleep(every)
        try:
            snapshot = ask_status()
        except NotRunning as error:
            _clear(as_json)
            click.echo(str(error), err=as_json)
            continue
        _clear(as_json)
        _print(snapshot, as_json)


def _clear(as_json: bool) -> None:
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

    print_pairs(console, _lines(snapshot))
    if snapshot["role"] != "master":
        return
    if not snapshot["connections"]:
        console.print("\nno connections")
        return
    console.print()
    numbers = ("acknowledged", "sent", "lag", "lag time", "acks", "heard", "connected")
    columns = [*map(Column, ("peer", "kind", "state")), *(Column(name, is_number=True) for name in numbers)]
    if snapshot["tls_listen"]:
        columns.append(Column("certificate"))
    rows = []
    for conn in snapshot["connections"]:
        cells = (
            *(conn["peer"], conn["kind"], conn["state"], _number(conn["ack_offset"]), _number(conn["sent_offset"])),
            *(_size(conn["lag_bytes"]), _duration(conn["lag_ms"]), _rate(conn["acks_per_second"])),
            *(_ago(conn["silent_ms"]), _duration(conn["connected_ms"])),
            *([conn["certificate"] or "-"] if snapshot["tls_listen"] else []),
        )
        rows.append(cells)
    print_table(console, columns, rows)


def _lines(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    role = f"{snapshot['broker_role']}, profile {snapshot['profile']}"
    process = f"pid {snapshot['pid']}, up {_duration(snapshot['uptime_s'] * 1000)}, version {snapshot['version']}"
    unflushed = snapshot["max_offset"] - snapshot["flushed_offset"]
    log = f"{_number(snapshot['min_offset'])} to {_number(snapshot['max_offset'])}, files of {_size(snapshot['file_size'])}"
    lines = [
        ("role", role),
        ("process", process),
        ("log", f"{log}, growing by {_rate(snapshot['growth_per_second'])}"),
        ("flushed", f"{_number(snapshot['flushed_offset'])}, all but {_size(unflushed)}" if unflushed else "all of it"),
    ]
    if snapshot["deleted_files"]:
        lines.append(("deleted", f"{_number(snapshot['deleted_files'])} files, {_size(snapshot['deleted_bytes'])}"))
    if snapshot["disk_full"]:
        lines.append(("disk", snapshot["disk_full"]))
    if snapshot["role"] == "master":
        waiting = snapshot["waiting_puts"]
        acked = _number(snapshot["push2_slave_max_offset"])
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
        since, heard = _duration(snapshot["connected_ms"]), _ago(snapshot["silent_ms"])
        state = f"connected for {since}, heard {heard}, reported {_number(snapshot['reported_offset'])}"
        state += ", comparing its last message with the master's" if snapshot["comparing"] else ""
    ended = snapshot["last_close_reason"]
    tries = f"{snapshot['connects']} connections, {snapshot['failed_connects']} failed tries"
    return [
        *lines,
        ("master", snapshot["master"] + (f", {snapshot['certificate']}" if snapshot["certificate"] else "")),
        ("state", state),
        ("so far", tries + (f"; the last one that ended: {ended}" if ended else "")),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _size(value: float | None) -> str:
    """Format bytes for people: 0 B, 4.0 KiB, 1.5 GiB."""
    if value is None:
        return "-"
    if value < 1024:
        return f"{value:.0f} B"
    power = min(4, int(math.log(value, 1024)))
    return f"{value / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{_size(value)}/s"


def _duration(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    if value_ms < 1000:
        return f"{value_ms:.0f} ms"
    seconds = value_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _ago(value_ms: float | None) -> str:
    return "-" if value_ms is None else f"{_duration(value_ms)} ago"
