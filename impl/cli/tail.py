"""`rocketmq-ha tail`: a master's messages as JSON lines, as they come."""

import sys
from pathlib import Path

import click

from rocketmq_ha.impl.app.tail import TailOptions, run_tail
from rocketmq_ha.impl.cli.master_options import master_options, settle_option
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.start_options import start_at
from rocketmq_ha.impl.cli.store_options import body_option
from rocketmq_ha.spec.constants import HA_SEND_HEARTBEAT_INTERVAL_MS, MAPPED_FILE_SIZE_COMMIT_LOG


@click.command()
@master_options("The master's HA address; its default port is 10912.")
@click.option(
    "--from",
    "start",
    default="last",
    show_default=True,
    type=start_at("last", "min", "end"),
    metavar="WHERE",
    help="Where to begin without a cursor: at the start of the master's last file (last), at its first byte (min), with what "
    "comes from now on (end), or at the offset of a message.",
)
@click.option(
    "--cursor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Save the position in this file, and go on from it at the next start.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option(
    "--stop-at-end", is_flag=True, help="End when the master has no more, which its heartbeat shows (after 5 s by default)."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only messages of this topic; may be repeated.")
@body_option
@settle_option
@click.option(
    "--heartbeat",
    type=click.IntRange(min=1),
    default=HA_SEND_HEARTBEAT_INTERVAL_MS,
    show_default=True,
    metavar="MS",
    help="The time between two reports; it must be less than the master's haHousekeepingInterval.",
)
@click.option(
    "--file-size",
    type=click.IntRange(min=1),
    default=MAPPED_FILE_SIZE_COMMIT_LOG,
    show_default=True,
    metavar="BYTES",
    help="The size of the master's commit-log files; needed only for --from min, if the master has deleted its first file.",
)
@option_group("options", TailOptions)
def tail(options: TailOptions) -> None:
    """Follow a live master and print its messages as JSON lines.

    It speaks the replication protocol to the HA port of a RocketMQ broker, or of `rocketmq-ha master`. Each line has offset,
    topic, queue, tags, keys, properties, times in UTC, and the body, decompressed, as in inspect and query (docs/messages.md).
    It prints all messages of the log, transactional halves, delayed messages and internal topics included.

    With --cursor a later run goes on after the last line, without a gap: the file is replaced every second, after lines are
    written to standard output. After a kill -9 or a crash of the machine, only the lines of the last second can be repeated. In
    a file that is continued (>>), a line that a kill has cut short stays, ended, and its message comes again as a whole line.
    Lines in a pipe count as written, even if the reader has died. A reader that must not lose a line saves the `next_offset` of
    the last line that it has processed, and starts again with --from.

    tail is not a replica: it always reports 0, or an offset in an old file of the master. So it reads the last file from its
    start, and skips what it need not print. A master that counts sockets (RocketMQ 4.x) counts it as a slave: if there is no
    other slave, sync puts end in FLUSH_SLAVE_TIMEOUT, not in SLAVE_NOT_AVAILABLE.

    SIGINT and SIGTERM end it, with exit status 0 if neither --limit nor --stop-at-end gives it an end. The end of its reader
    ends it too. If the connection ends, it connects again.

    \b
        rocketmq-ha tail --master broker-a:10912 --from end
        rocketmq-ha tail --master broker-a:10912 --cursor feed.cursor --topic orders --body json | consume
    """
    sys.exit(run_tail(options))
