"""`rocketmq-ha master`: serve a commit log to slaves."""

import click

from rocketmq_ha.impl.app.run_master import MasterOptions, run_master
from rocketmq_ha.impl.cli.config_file import config_option
from rocketmq_ha.impl.cli.flush_options import flush_options
from rocketmq_ha.impl.cli.limit_options import limit_options
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.process_options import metrics_option, profile_option, store_option
from rocketmq_ha.impl.cli.producer_options import producer_options
from rocketmq_ha.impl.cli.progress import put_progress
from rocketmq_ha.impl.cli.protocol_options import master_settings
from rocketmq_ha.impl.cli.reload import CommandConfiguration
from rocketmq_ha.impl.cli.retention_options import retention_options
from rocketmq_ha.impl.cli.role_options import role_options
from rocketmq_ha.impl.cli.tls_options import listen_options


@click.command()
@store_option
@listen_options
@click.option(
    "--file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Size of a commit-log file. The default is that of an existing store's files; 1 GiB for a new store.",
)
@profile_option
@producer_options
@role_options
@flush_options
@retention_options
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the bodies that --put makes.")
@limit_options
@metrics_option
@master_settings
@config_option
@option_group("options", MasterOptions)
def master(options: MasterOptions) -> None:
    """Serve a commit log to slaves.

    The first lines of standard output name the addresses on which it listens (port 0 takes a free port). With --put it is its
    own producer, and then prints a line that counts the statuses:

    \b
        listening=127.0.0.1:10912
        tls_listening=127.0.0.1:10922
        put=20000 seconds=4.1 per_second=4878 PUT_OK=20000
    """
    run_master(options, CommandConfiguration(), click.echo, put_progress)
