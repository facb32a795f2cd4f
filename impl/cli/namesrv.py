"""`rocketmq-ha namesrv`: a name server for brokers and clients."""

from pathlib import Path

import click

from rocketmq_ha.impl.app.remoting_tls import RemotingTlsFiles
from rocketmq_ha.impl.app.run_namesrv import NamesrvOptions, run_namesrv
from rocketmq_ha.impl.cli.namesrv_conf import DEFAULT_PORT, namesrv_config_option
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.process_options import metrics_option
from rocketmq_ha.impl.cli.reload import CommandConfiguration
from rocketmq_ha.impl.cli.remoting_options import remoting_limit_options, remoting_tls_options
from rocketmq_ha.impl.namesrv.route_info_manager import RouteLimits
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.remoting.limits import RemotingLimits

_LIMITS = RouteLimits()


def _options(
    listen: str,
    kv_config: Path | None,
    order_message_enable: bool,
    tls: RemotingTlsFiles | None,
    limits: RemotingLimits,
    max_brokers: int,
    max_topics: int,
    metrics_address: str | None,
) -> NamesrvOptions:
    path = Path.home() / "namesrv" / "kvConfig.json" if kv_config is None else kv_config
    route_limits = RouteLimits(max_brokers, max_topics)
    return NamesrvOptions(
        parse_address(listen, "--listen"), path, order_message_enable, tls, limits, route_limits, metrics_address
    )


@click.command()
@click.option(
    "--listen",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="The address where brokers register and clients ask.",
)
@click.option(
    "--kv-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file of the texts that admins keep here (kvConfigPath). [default: ~/namesrv/kvConfig.json]",
)
@click.option(
    "--order-message-enable/--no-order-message-enable",
    default=False,
    help="Give clients the queues of ordered topics with the routes (orderMessageEnable). [default: no]",
)
@remoting_tls_options
@remoting_limit_options
@click.option(
    "--max-brokers",
    type=click.IntRange(min=1),
    default=_LIMITS.brokers,
    show_default=True,
    metavar="N",
    help="The most brokers that may register.",
)
@click.option(
    "--max-topics",
    type=click.IntRange(min=1),
    default=_LIMITS.queue_datas,
    show_default=True,
    metavar="N",
    help="The most topics; one that several groups have counts for each.",
)
@metrics_option
@namesrv_config_option
@option_group("options", _options)
def namesrv(options: NamesrvOptions) -> None:
    """Tell clients which brokers have a topic, as RocketMQ's name server does.

    Brokers register every 30 s, their topics with them; a broker that is silent for 120 s, or whose connection closes, is taken
    off. Several name servers know nothing of each other: give all of them to each broker and client.

    The first line of standard output names the address on which it listens (port 0 takes a free port):

    \b
        listening=127.0.0.1:9876
    """
    run_namesrv(options, CommandConfiguration(), click.echo)
