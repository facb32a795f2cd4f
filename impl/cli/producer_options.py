"""The options of a master's own producer: the messages that `--put` puts, and the slaves that it waits for first."""

import click

from rocketmq_ha.impl.app.producer import ProducerSettings
from rocketmq_ha.impl.cli.option_group import option_group

producer_options = option_group(
    "producer",
    ProducerSettings,
    click.option("--put", "count", type=click.IntRange(min=0), metavar="N", help="Put N messages, then go on serving."),
    click.option("--size", type=click.IntRange(min=1), default=1024, show_default=True, metavar="BYTES", help="Body size."),
    click.option(
        "--in-flight",
        type=click.IntRange(min=1),
        default=64,
        show_default=True,
        metavar="K",
        help="Puts that may wait at a time.",
    ),
    click.option(
        "--sync",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help="The share of the messages that --put lets wait; the others say WAIT=false, and wait for no slave and no disk.",
    ),
    click.option(
        "--await-slaves",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N slaves are connected, as a producer would that tries again later. A slave that has everything "
        "counts once it has acknowledged something: for such a one a further message goes first, which is not one of --put's, "
        "and for which nobody waits; the line of counts tells how many, as unwaited=1.",
    ),
    click.option(
        "--await-replicas",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N distinct replicas count: N addresses, or under TLS N certificates, that have acknowledged "
        "something. It waits for them without end.",
    ),
)
