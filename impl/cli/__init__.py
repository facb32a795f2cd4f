"""The console script rocketmq-ha. Results go to stdout, logs and progress to stderr. A user's mistake is one line on stderr.

Exit status: 0 for success; 1 if the answer is no (two stores differ, a doctor has findings); 2 for bad input, with one line
that names it and says what was expected; 130 after SIGINT; 143 after SIGTERM. A traceback means a bug of ours: 1, or 70 if it
has ended a thread of a server.
"""

try:  # the imports take a while; Ctrl-C during them must end the program as it does later
    import contextlib
    import faulthandler

    import click

    from rocketmq_ha.impl.app.logs import configure
    from rocketmq_ha.impl.cli.commands import LazyGroup, print_version
    from rocketmq_ha.impl.cli.log_options import log_options
except KeyboardInterrupt:
    raise SystemExit(130) from None


@click.group(
    name="rocketmq-ha",
    cls=LazyGroup,
    commands_by_target={
        "broker": "rocketmq_ha.impl.cli.broker:broker",
        "master": "rocketmq_ha.impl.cli.master:master",
        "slave": "rocketmq_ha.impl.cli.slave:slave",
        "namesrv": "rocketmq_ha.impl.cli.namesrv:namesrv",
        "cluster": "rocketmq_ha.impl.cli.cluster:cluster",
        "put": "rocketmq_ha.impl.cli.put:put",
        "send": "rocketmq_ha.impl.cli.send:send",
        "consume": "rocketmq_ha.impl.cli.consume:consume",
        "admin": "rocketmq_ha.impl.cli.admin:admin",
        "inspect": "rocketmq_ha.impl.cli.inspect:inspect",
        "verify": "rocketmq_ha.impl.cli.verify:verify",
        "query": "rocketmq_ha.impl.cli.query:query_command",
        "recover": "rocketmq_ha.impl.cli.recover:recover",
        "resync": "rocketmq_ha.impl.cli.resync:resync",
        "tail": "rocketmq_ha.impl.cli.tail:tail",
        "doctor": "rocketmq_ha.impl.cli.doctor:doctor",
        "status": "rocketmq_ha.impl.cli.status:status",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and exit.",
)
@log_options
def main(log_format: str, log_level: str) -> None:
    """Apache RocketMQ's master-slave replication (HA), compatible on the wire and on the disk.

    A master streams its commit log to its slaves. A slave reports the end of its own log, and each report acknowledges
    everything before it. Both write their logs as RocketMQ does, so this program can serve, inspect and verify the store
    of a broker.

    \b
    A store is a directory with commitlog/ in it. To look at one, and to check it:
        rocketmq-ha inspect STORE --limit 10
        rocketmq-ha verify STORE
        rocketmq-ha query STORE --topic orders --key 4711
        rocketmq-ha recover STORE --dry-run
    To run a master and a slave on this machine, and to compare their logs:
        rocketmq-ha master --store /tmp/a --listen 127.0.0.1:10912 --put 1000 --size 1024
        rocketmq-ha slave --store /tmp/b --master 127.0.0.1:10912
        rocketmq-ha verify /tmp/a /tmp/b
    To run a whole cluster on this machine, and to break parts of it:
        rocketmq-ha cluster up --mode sync-2m-2s
    To put a message of your own into that master:
        rocketmq-ha put --to /tmp/a --topic orders --body 'three of them'
    To see the status of a running one, the messages of a live broker as JSON lines, and why a slave does not sync:
        rocketmq-ha status /tmp/a
        rocketmq-ha tail --master 127.0.0.1:10912 --from end
        rocketmq-ha doctor --master 127.0.0.1:10912 --store /tmp/b
    """
    configure(log_format, log_level)
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # standard error may not be a file
        faulthandler.enable()  # reading a mapped file that another process cuts is SIGBUS: print at least where
