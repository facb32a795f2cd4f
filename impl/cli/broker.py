"""`rocketmq-ha broker`: take messages of producers, and give them to consumers and to slaves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rocketmq_ha.impl.app.cleaning import HOUR_MS, RetentionSettings
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_broker import BrokerOptions, run_broker
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.transaction_check import CheckSettings
from rocketmq_ha.impl.cli.broker_options import broker_listen_options, broker_options
from rocketmq_ha.impl.cli.config_file import config_option
from rocketmq_ha.impl.cli.flush_options import flush_options
from rocketmq_ha.impl.cli.limit_options import limit_options
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.process_options import metrics_option, profile_option, store_option
from rocketmq_ha.impl.cli.protocol_options import master_settings
from rocketmq_ha.impl.cli.reload import CommandConfiguration
from rocketmq_ha.impl.cli.remoting_options import client_limit_options
from rocketmq_ha.impl.cli.retention_options import retention_options
from rocketmq_ha.impl.cli.role_options import broker_role_options
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.spec.profile import Profile, Settings


def _options(
    store: Path,
    addresses: dict[str, Any],
    file_size: int | None,
    queue_file_size: int | None,
    max_hash_slot_num: int | None,
    max_index_num: int | None,
    profile: Profile,
    roles: RoleSettings,
    flush_intervals: FlushIntervals,
    retention: RetentionSettings,
    master: str | None,
    limits: Limits,
    client_limits: Limits,
    metrics_address: str | None,
    settings: Settings,
    broker: BrokerSettings,
) -> BrokerOptions:
    return BrokerOptions(
        store=store,
        **addresses,
        file_size=file_size,
        queue_file_size=queue_file_size,
        index_geometry=_geometry(max_hash_slot_num, max_index_num),
        profile=profile,
        roles=roles,
        flush_intervals=flush_intervals,
        retention=retention,
        master=None if master is None else parse_address(master, "--master"),
        limits=limits,
        remoting_limits=RemotingLimits(replace(client_limits, allow=limits.allow)),
        metrics_address=metrics_address,
        settings=settings,
        broker=replace(broker, checks=_checks(broker.checks, retention)),
    )


def _geometry(max_hash_slot_num: int | None, max_index_num: int | None) -> Geometry | None:
    """The size of index files: that of the files there are, and else RocketMQ's default, unless an option is given."""
    if max_hash_slot_num is None and max_index_num is None:
        return None
    return Geometry(max_hash_slot_num or Geometry().hash_slot_num, max_index_num or Geometry().index_num)


def _checks(checks: CheckSettings, retention: RetentionSettings) -> CheckSettings:
    """HA-SE-94: a half message is given up when its file may be deleted; a broker that keeps its files has RocketMQ's 72 h."""
    reserved_ms = retention.retention.file_reserved_ms
    return checks if reserved_ms is None else replace(checks, file_reserved_time=reserved_ms // HOUR_MS)


@click.command()
@store_option
@broker_listen_options
@broker_options
@click.option(
    "--file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Size of a commit-log file. The default is that of an existing store's files; 1 GiB for a new store.",
)
@click.option(
    "--queue-file-size",
    type=click.IntRange(min=20),
    metavar="BYTES",
    help="Size of a consume-queue file. The default is that of an existing store's files; 6,000,000 for a new store.",
)
@click.option("--max-hash-slot-num", type=click.IntRange(min=1), metavar="N", help="The slots of an index file.")
@click.option("--max-index-num", type=click.IntRange(min=2), metavar="N", help="The entries of an index file.")
@profile_option
@broker_role_options
@flush_options
@retention_options
@click.option(
    "--master",
    metavar="HOST:PORT",
    help="The HA address of a slave's master (haMasterAddress). [default: the name servers tell it]",
)
@limit_options
@client_limit_options
@metrics_option
@master_settings
@config_option
@option_group("options", _options)
def broker(options: BrokerOptions) -> None:
    """Serve producers, consumers and slaves from one store, as a RocketMQ broker does.

    The first lines of standard output name the addresses on which it listens (port 0 takes a free port):

    \b
        listening=127.0.0.1:10911
        vip_listening=127.0.0.1:10909
        ha_listening=127.0.0.1:10912
    """
    run_broker(options, CommandConfiguration(), click.echo)
