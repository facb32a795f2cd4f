"""`rocketmq-ha slave`: replicate a master's commit log."""

import click

from rocketmq_ha.impl.app.run_slave import FollowSettings, SlaveOptions, run_slave
from rocketmq_ha.impl.cli.config_file import config_option
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.flush_options import flush_options
from rocketmq_ha.impl.cli.master_options import master_options
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.process_options import metrics_option, profile_option, store_option
from rocketmq_ha.impl.cli.protocol_options import slave_settings
from rocketmq_ha.impl.cli.reload import CommandConfiguration
from rocketmq_ha.impl.cli.retention_options import retention_options
from rocketmq_ha.impl.cli.start_options import start_options
from rocketmq_ha.impl.net.client import FRAME_DEADLINE_MS


def _following(ack: str, source_address: str, frame_deadline: float | None) -> FollowSettings:
    deadline_ms = None if frame_deadline is None else max(1, round(frame_deadline * 1000))
    return FollowSettings(ack == "flushed", source_address, deadline_ms)


_follow_options = option_group(
    "following",
    _following,
    click.option(
        "--ack",
        type=click.Choice(["appended", "flushed"]),
        default="appended",
        show_default=True,
        help="Acknowledge what is in the log, as RocketMQ does; or only what is on the disk, which survives a power cut.",
    ),
    click.option(
        "--bind",
        "source_address",
        default="",
        metavar="ADDRESS",
        help="Connect from this IP address of the machine; the master knows the slave by it. [default: the system's choice]",
    ),
    click.option(
        "--frame-deadline",
        type=FiniteRange(min=0, min_open=True),
        metavar="SECONDS",
        help=f"Close a connection on which one frame takes longer. [default: {FRAME_DEADLINE_MS // 1000}; classic: none]",
    ),
)


@click.command()
@store_option
@master_options("The master's HA address.")
@start_options
@profile_option
@_follow_options
@flush_options
@retention_options
@metrics_option
@slave_settings
@config_option
@option_group("options", SlaveOptions)
def slave(options: SlaveOptions) -> None:
    """Replicate a master's commit log, and go on until stopped.

    A new store begins at the start of the master's last file, as in RocketMQ, or where --from says, and its files get the size
    of the master's. You may keep --from for the next start: a store that has a log goes on where its log ends. If the
    connection ends, the slave connects again, with growing pauses.
    """
    run_slave(options, CommandConfiguration(), click.echo)
