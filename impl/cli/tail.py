"""`rocketmq-ha tail`: a master's messages as JSON lines, as they come."""

from pathlib import Path

import click

from rocketmq_ha.impl.app.tail import TailOptions, run_tail
from rocketmq_ha.impl.cli.master_options import master_options, settle_option
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.start_options import start_at
from rocketmq_ha.impl.cli.store_options import body_option
from rocketmq_ha.spec.constants import HA_SEND_HEARTBEAT_INTERVAL_MS, MAPPED_FILE_SIZE_COMMIT_LOG


@click.command()
@master_options("The master's HA address, 10912 by default there.")
@click.option(
    "--from",
    "start",
    default="last",
    show_default=True,
    type=start_at("last", "min", "end"),
    metavar="WHERE",
    help="Where to begin if the cursor does not say: the start of the master's last file (last), its first byte (min), what "
    "comes from now on (end), or the offset at which a message starts.",
)
@click.option(
    "--cursor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Go on from where this file says, and keep it up to date.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option(
    "--stop-at-end", is_flag=True, help="End when the master has no more (its heartbeat tells, after 5 s by default)."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic only; may be given again.")
@body_option
@settle_option
@click.option(
    "--heartbeat",
    type=click.IntRange(min=1),
    default=HA_SEND_HEARTBEAT_INTERVAL_MS,
    show_default=True,
    metavar="MS",
    help="Between two reports; less than the master's haHousekeepingInterval.",
)
@click.option(
    "--file-size",
    type=click.IntRange(min=1),
    default=MAPPED_FILE_SIZE_COMMIT_LOG,
    show_default=True,
    metavar="BYTES",
    help="Of the master's commit-log files; needed for --from min alone, where its first file is gone.",
)
@option_group("options", TailOptions)
def tail(options: TailOptions) -> None:
    """Follow a live master and print its messages as JSON lines.

    It speaks the replication protocol to the HA port of a RocketMQ broker, or of `rocketmq-ha master`. Each line has offset,
    topic, queue, tags, keys, properties, times in UTC, and the body, decompressed, as in inspect and query (docs/messages.md).
    The messages are those of the log:
    transactional halves, delayed ones and internal topics are among them.

    With --cursor a later run goes on behind the last line, without a gap: the file is replaced every second, after lines are
    written to standard output. A kill -9, or a crash of the machine, can repeat the lines of the last second, and no others.
    Lines in a pipe whose reader has died count as written; a reader that must not lose one keeps the `next_offset` of the last
    line that it has dealt with, and comes back with --from.

    It is no replica: it reports 0, or an offset in an old file of the master, and repeats that for ever. So it reads the last
    file from its start, and skips what it need not print. A master that counts sockets (RocketMQ 4.x) counts it as a slave: if
    there is no other, sync puts end in FLUSH_SLAVE_TIMEOUT, not in SLAVE_NOT_AVAILABLE.

    Ends by SIGINT or SIGTERM, or where the reader of its lines goes away. A connection that ends is opened again.

    \b
        rocketmq-ha tail --master broker-a:10912 --from end
        rocketmq-ha tail --master broker-a:10912 --cursor feed.cursor --topic orders --body json | consume
    """
    run_tail(options)
