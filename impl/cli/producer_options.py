"""The options of a master's own producer: the messages that `--put` puts, and the slaves that it waits for first."""

import click

from rocketmq_ha.impl.app.producer import ProducerSettings
from rocketmq_ha.impl.cli.finite_range import FiniteRange
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
        help="How many puts may wait at the same time.",
    ),
    click.option(
        "--sync",
        type=FiniteRange(0, 1),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help="The share of --put's messages that wait. The others have WAIT=false, and wait for no slave and no disk.",
    ),
    click.option(
        "--await-slaves",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N slaves are connected, like a producer that tries again later. A connection counts as a slave "
        "after its first acknowledgement. For a slave that has everything already, a further message is put first, which waits "
        "for nobody and is not one of --put's. The line of counts shows the number of these, as unwaited=1.",
    ),
    click.option(
        "--await-replicas",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N distinct replicas count: N addresses, or under TLS N certificates, that have acknowledged "
        "something. Without them --put waits for ever.",
    ),
)
