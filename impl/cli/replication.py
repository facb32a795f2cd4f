"""`rocketmq-ha master` and `rocketmq-ha slave`: the two ends of the replication as processes."""

import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from rocketmq_ha.impl.cli.await_option import await_options
from rocketmq_ha.impl.cli.bare_log import bare_log
from rocketmq_ha.impl.cli.config_file import config_option
from rocketmq_ha.impl.cli.flush_options import FlushIntervals, flush_options, flushing
from rocketmq_ha.impl.cli.fresh import FreshStore, from_option, size_option
from rocketmq_ha.impl.cli.limit_options import limit_options, limits_from
from rocketmq_ha.impl.cli.local_puts import local_puts
from rocketmq_ha.impl.cli.master_option import master_option, parse_master, settle_option
from rocketmq_ha.impl.cli.producer import POLL_MS, messages, put_all
from rocketmq_ha.impl.cli.reload import Reload
from rocketmq_ha.impl.cli.retention_options import Keeping, cleaning, retention_options
from rocketmq_ha.impl.cli.roles import end_all, master_role, putting, role_options
from rocketmq_ha.impl.cli.settings import master_settings, slave_settings
from rocketmq_ha.impl.cli.telling import listening_metrics, metrics_option, telling
from rocketmq_ha.impl.cli.tls_options import client_tls, tls_client_options, tls_listener, tls_server_options
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.settings import check_batch_size, check_replicas
from rocketmq_ha.impl.net.address import check_own_address, format_address, parse_address
from rocketmq_ha.impl.net.client import FRAME_DEADLINE_MS, Follower
from rocketmq_ha.impl.net.figures import MasterFigures, SlaveFigures
from rocketmq_ha.impl.net.server import Master, clock_ms
from rocketmq_ha.impl.net.server import listen as open_listener
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.spec.profile import PROFILES, Settings

# RocketMQ reads reports into 1 MiB a slave. They are 8 bytes each, and all but the last of a read are skipped.
# HA-M-55 "MUST NOT cost the master more than 64 KiB of memory": this, and the headers of 16 frames.
MASTER_READ_BUFFER_SIZE = 4096

_store = click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="The store's directory (the parent of commitlog/)."
)
_file_size = click.option(
    "--file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Size of a commit-log file. Taken from the files of an existing store; 1 GiB for a new one.",
)
_profile = click.option(
    "--profile",
    type=click.Choice(sorted(PROFILES)),
    default="hardened",
    show_default=True,
    help="classic behaves as RocketMQ 4.5.2 does; hardened puts the same bytes on the wire and mends its quirks.",
)


class Stop:
    """Whether SIGINT or SIGTERM has asked this process to end. A flag, so that no append is torn by an exception."""

    def __init__(self) -> None:
        self._stopped = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped


@click.command()
@_store
# HA-M-14 "a port of its own, ha_listen_port, 10912 by default".
@click.option(
    "--listen",
    default="127.0.0.1:10912",
    show_default=True,
    metavar="HOST:PORT",
    help="Where slaves connect; none: with TLS alone.",
)
@tls_server_options
@_file_size
@_profile
@click.option("--put", "count", type=click.IntRange(min=0), metavar="N", help="Put N messages, then go on serving.")
@click.option("--size", type=click.IntRange(min=1), default=1024, show_default=True, metavar="BYTES", help="Body size.")
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="K",
    help="Puts that may wait at a time.",
)
@click.option(
    "--sync",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="The share of the messages that --put lets wait; the others say WAIT=false, and wait for no slave and no disk.",
)
@await_options
@role_options
@flush_options
@retention_options
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bodies that --put makes.")
@limit_options
@metrics_option
@master_settings
@config_option
def master(
    store: Path,
    listen: str,
    tls_listen: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    file_size: int | None,
    profile: str,
    count: int | None,
    size: int,
    in_flight: int,
    sync: float,
    await_slaves: int,
    await_replicas: int,
    role: str,
    flush: str,
    flush_intervals: FlushIntervals,
    keeping: Keeping,
    seed: int,
    allow: tuple[str, ...],
    max_connections: int | None,
    max_connections_per_address: int | None,
    report_deadline: float | None,
    write_stall_deadline: float | None,
    max_transfer_rate: int | None,
    metrics_address: str | None,
    **settings_by_name: Any,
) -> None:
    """Serve a commit log to slaves.

    The first line of standard output says where it listens (port 0 takes a free one). With --put it becomes its own producer,
    and ends that with a line of status counts:

    \b
        listening=127.0.0.1:10912
        tls_listening=127.0.0.1:10922
        put=20000 seconds=4.1 per_second=4878 PUT_OK=20000
    """
    check_replicas(settings_by_name["replicas"], PROFILES[profile])  # before any store is touched
    check_batch_size(settings_by_name["ha_transfer_batch_size"])
    limits = limits_from(
        PROFILES[profile],
        allow,
        max_connections,
        max_connections_per_address,
        report_deadline,
        write_stall_deadline,
        max_transfer_rate,
    )
    broker_role = master_role(role)
    if listen == "none" and tls_listen is None:
        raise ConfigInvalid("--listen none: expected --tls-listen with it, or nobody can connect")
    listener = None if listen == "none" else open_listener(*parse_address(listen))
    stopped, reload = Stop(), Reload()
    space = Space(keeping.floor_size)
    with (
        listener or nullcontext(),
        tls_listener(tls_listen, tls_cert, tls_key, tls_ca, profile) as tls,
        listening_metrics(metrics_address) as metrics,
        bare_log(
            store, file_size=file_size, clear_tail=PROFILES[profile].clears_tail, replicated=False, create=space.create
        ) as log,
    ):
        settings = Settings(mapped_file_size=log.file_size, master_read_buffer_size=MASTER_READ_BUFFER_SIZE, **settings_by_name)
        server = Master(log, listener, settings, PROFILES[profile], limits, tls)
        reload.serve(tls, server)
        try:
            with (
                putting(server, log, broker_role, flush, flush_intervals) as puts,
                cleaning(log, store, keeping, space, server.service.needed_offset) as kept,
                telling(store, MasterFigures(server, profile, broker_role, kept.figures), metrics) as teller,
                local_puts(store, server, puts) as put_socket,
            ):
                if server.plain_address:
                    click.echo(f"listening={format_address(*server.plain_address)}")
                if server.tls_address:
                    click.echo(f"tls_listening={format_address(*server.tls_address)}")
                if metrics is not None:
                    click.echo(f"metrics={metrics.address}")

                def turn() -> bool:
                    put_socket.turn(clock_ms())
                    teller.turn()
                    reload.look()
                    return stopped()

                if count:
                    started = time.monotonic()
                    produced = messages(count, size, seed, sync)
                    counts, waiting = put_all(server, puts, turn, produced, count, in_flight, await_slaves, await_replicas)
                    seconds = time.monotonic() - started
                    if waiting:  # we were told to stop
                        counts.statuses.update(end_all(server, puts, waiting))
                    click.echo(counts.line(seconds))
                while not (stopped() or turn()):
                    server.poll(POLL_MS)
        finally:
            server.close()
            log.flush()


@click.command()
@_store
@master_option("The master's HA address.")
@tls_client_options
@from_option
@settle_option
@size_option
@_profile
@click.option(
    "--ack",
    type=click.Choice(["appended", "flushed"]),
    default="appended",
    show_default=True,
    help="Acknowledge what is in the log, as RocketMQ does, or only what is on the disk: that outlives a power cut.",
)
@click.option(
    "--bind",
    "source_address",
    default="",
    metavar="ADDRESS",
    help="Connect from this IP address of the machine: to the master it is who this slave is. [default: the system's choice]",
)
@click.option(
    "--frame-deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"Close a connection on which a frame takes longer. [default: {FRAME_DEADLINE_MS // 1000}; classic: none]",
)
@flush_options
@retention_options
@metrics_option
@slave_settings
@config_option
def slave(
    store: Path,
    address: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_name: str | None,
    start: str | int | None,
    settle: float,
    file_size: int | None,
    profile: str,
    ack: str,
    flush_intervals: FlushIntervals,
    keeping: Keeping,
    source_address: str,
    frame_deadline: float | None,
    metrics_address: str | None,
    **settings_by_name: Any,
) -> None:
    """Replicate a master's commit log, and go on until stopped.

    A new store begins at the start of the master's last file, as in RocketMQ, or where --from says, and its files get the size
    of the master's. Both options may stay: a store that has a log goes on where it ends. The connection is opened again, with
    growing pauses, whenever it ends.
    """
    host, port = parse_master(address)
    if source_address:
        check_own_address(source_address)
    tls = client_tls(host, tls_cert, tls_key, tls_ca, tls_name, profile)
    stopped, reload = Stop(), Reload()
    space = Space(keeping.floor_size)
    with (
        listening_metrics(metrics_address) as metrics,
        FreshStore(store, start, settle, file_size, PROFILES[profile].checks_file_size) as fresh,
        bare_log(
            store, file_size=file_size, clear_tail=PROFILES[profile].clears_tail, replicated=True, create=space.create
        ) as log,
    ):
        settings = Settings(mapped_file_size=log.file_size, adopts_file_size=file_size is None, **settings_by_name)
        deadline_ms = None if frame_deadline is None else max(1, round(frame_deadline * 1000))
        follower = Follower(
            *(log, host, port, settings, PROFILES[profile], deadline_ms),
            flushes=ack == "flushed",
            source_address=source_address,
            tls=tls,
            has_room=space.has_room,
        )
        reload.serve(tls)
        try:
            with (
                flushing(log, flush_intervals) as flush,
                cleaning(log, store, keeping, space) as kept,
                telling(store, SlaveFigures(follower, log, profile, kept.figures, lambda: fresh.state), metrics) as teller,
            ):
                if metrics is not None:
                    click.echo(f"metrics={metrics.address}")

                def turn() -> bool:
                    teller.turn()
                    reload.look()
                    flush.check()
                    return stopped()

                own_address = (source_address, 0) if source_address else None
                follower.run(turn, lambda: fresh.prepare(log, (host, port), turn, tls, own_address))
        finally:
            log.flush()
