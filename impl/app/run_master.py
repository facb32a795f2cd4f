"""A master process: it serves a store's log to slaves, and puts the messages of its producer and of other processes."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.app.bare_log import bare_log
from rocketmq_ha.impl.app.cleaning import RetentionSettings, cleaning
from rocketmq_ha.impl.app.endpoints import Listening, tls_listener
from rocketmq_ha.impl.app.local_puts import local_puts
from rocketmq_ha.impl.app.producer import POLL_MS, ProducerSettings, messages, put_all
from rocketmq_ha.impl.app.progress import ShowPuts
from rocketmq_ha.impl.app.reload import ConfigurationSource, Reload
from rocketmq_ha.impl.app.roles import RoleSettings, end_all, putting
from rocketmq_ha.impl.app.status_publisher import publishing_status, serving_metrics
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.app.thread_faults import ending_with_threads
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.ha.settings import check_batch_size, check_replicas
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.figures import MasterFigures
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.spec.profile import Profile, Settings

# RocketMQ reads the reports of each slave into 1 MiB. A report has 8 bytes, and only the last one of a read counts.
# HA-M-55 "MUST NOT cost the master more than 64 KiB of memory": this buffer, and the headers of 16 frames.
MASTER_READ_BUFFER_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class MasterOptions:
    """The options of `rocketmq-ha master`. seed: of the messages that the producer makes."""

    store: Path
    listening: Listening
    file_size: int | None
    profile: Profile
    producer: ProducerSettings
    roles: RoleSettings
    flush_intervals: FlushIntervals
    retention: RetentionSettings
    seed: int
    limits: Limits
    metrics_address: str | None
    settings: Settings


def run_master(
    options: MasterOptions,
    configuration: ConfigurationSource,
    print_line: Callable[[str], object],
    show_progress: ShowPuts,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:  show_progress: shows the producer's progress.
    Raises: ConfigInvalid, before any store is touched; as `bare_log` and `Master` do.
    """
    profile, listening, retention = options.profile, options.listening, options.retention
    check_replicas(options.settings.replicas, profile)
    check_batch_size(options.settings.ha_transfer_batch_size)
    listener = None if listening.address is None else listen(*listening.address, "--listen")
    stopped, reload = Stop(), Reload(configuration)
    space = Space(retention.floor_size)
    with (
        ending_with_threads(),
        listener or nullcontext(),
        tls_listener(listening.tls, profile) as tls,
        serving_metrics(options.metrics_address) as metrics,
        bare_log(
            options.store,
            file_size=options.file_size,
            clear_tail=profile.clears_tail,
            strict=profile.checks_recovery,
            replicated=False,
            create=space.create,
        ) as log,
    ):
        settings = replace(options.settings, mapped_file_size=log.file_size, master_read_buffer_size=MASTER_READ_BUFFER_SIZE)
        server = Master(log, listener, settings, profile, options.limits, tls)
        reload.serve(tls, master=server)
        role = options.roles.role
        try:
            with (
                putting(server, log, role, options.roles.flush, options.flush_intervals) as puts,
                cleaning(log, options.store, retention, space, server.service.needed_offset) as cleaned,
                publishing_status(
                    options.store, MasterFigures(server, profile.name, role, cleaned.figures), metrics
                ) as status_publisher,
                local_puts(options.store, server, puts) as put_socket,
            ):
                if server.plain_address:
                    print_line(f"listening={format_address(*server.plain_address)}")
                if server.tls_address:
                    print_line(f"tls_listening={format_address(*server.tls_address)}")
                if metrics is not None:
                    print_line(f"metrics={metrics.address}")

                def turn() -> bool:
                    put_socket.turn(clock_ms())
                    status_publisher.turn()
                    reload.poll()
                    return stopped()

                if options.producer.count:
                    print_line(_produce(options, server, puts, turn, show_progress))
                while not (stopped() or turn()):
                    server.poll(POLL_MS)
        finally:
            server.close()


def _produce(options: MasterOptions, server: Master, puts: Puts, turn: Callable[[], bool], show_progress: ShowPuts) -> str:
    """Put the producer's messages. Returns: the line that counts how the puts ended."""
    producer, count = options.producer, options.producer.count or 0
    started = time.monotonic()
    produced = messages(count, producer.size, options.seed, producer.sync)
    with show_progress(count) as progress:
        awaited = producer.await_slaves, producer.await_replicas
        counts, waiting = put_all(server, puts, turn, produced, producer.in_flight, *awaited, progress)
    seconds = time.monotonic() - started
    if waiting:  # we were told to stop
        counts.statuses.update(end_all(server, puts, waiting))
    return counts.line(seconds)
