"""A slave process: it appends a master's log to that of its own store, and acknowledges it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rocketmq_ha.impl.app.bare_log import bare_log
from rocketmq_ha.impl.app.cleaning import RetentionSettings, cleaning
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.app.flushing import flushing
from rocketmq_ha.impl.app.fresh_store import FreshStore, StartSettings
from rocketmq_ha.impl.app.reload import ConfigurationSource, Reload
from rocketmq_ha.impl.app.status_publisher import publishing_status, serving_metrics
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.app.thread_faults import ending_with_threads
from rocketmq_ha.impl.net.address import check_own_address
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.figures import SlaveFigures
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.spec.profile import Profile, Settings


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """The settings of a slave's connections.

    flushes: acknowledge only what is on the disk. source_address: the IP address to connect from; "": the system chooses.
    frame_deadline_ms: None: that of the profile.
    """

    flushes: bool
    source_address: str
    frame_deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class SlaveOptions:
    """The options of `rocketmq-ha slave`."""

    store: Path
    master: MasterEndpoint
    start: StartSettings
    profile: Profile
    following: FollowSettings
    flush_intervals: FlushIntervals
    retention: RetentionSettings
    metrics_address: str | None
    settings: Settings


def run_slave(options: SlaveOptions, configuration: ConfigurationSource, print_line: Callable[[str], object]) -> None:
    """Follow the master until SIGINT or SIGTERM. Raises: ConfigInvalid, before any store is touched; as `Follower.run` does."""
    profile, master, start, source_address = options.profile, options.master, options.start, options.following.source_address
    if source_address:
        check_own_address(source_address)
    tls = master.client_tls(profile)
    stopped, reload = Stop(), Reload(configuration)
    space = Space(options.retention.floor_size)
    with (
        ending_with_threads(),
        serving_metrics(options.metrics_address) as metrics,
        FreshStore(options.store, start.start, start.settle_s, start.file_size, profile.checks_file_size) as fresh,
        bare_log(
            options.store,
            file_size=start.file_size,
            clear_tail=profile.clears_tail,
            strict=profile.checks_recovery,
            replicated=True,
            create=space.create,
        ) as log,
    ):
        settings = replace(options.settings, mapped_file_size=log.file_size, adopts_file_size=start.file_size is None)
        follower = Follower(
            *(log, master.host, master.port, settings, profile, options.following.frame_deadline_ms),
            flushes=options.following.flushes,
            source_address=source_address,
            tls=tls,
            has_room=space.has_room,
        )
        reload.serve(tls)
        with (
            flushing(log, options.flush_intervals) as flush,
            cleaning(log, options.store, options.retention, space) as cleaned,
            publishing_status(
                options.store,
                SlaveFigures(follower, log, profile.name, cleaned.figures, lambda: fresh.state),
                metrics,
            ) as status_publisher,
        ):
            if metrics is not None:
                print_line(f"metrics={metrics.address}")

            def turn() -> bool:
                status_publisher.turn()
                reload.poll()
                flush.check()
                return stopped()

            own_address = (source_address, 0) if source_address else None
            follower.run(turn, lambda: fresh.prepare(log, master.address, turn, tls, own_address))
