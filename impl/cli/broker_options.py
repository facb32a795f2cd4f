"""The options of a broker that are RocketMQ's settings: names, name servers, what is created by itself, permission."""

from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.app.endpoints import HaTls, Listening, TlsIdentity, TlsListening
from rocketmq_ha.impl.app.remoting_tls import RemotingClientTlsFiles
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.queue_figures import ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_validator import TOPIC_MAX_LENGTH
from rocketmq_ha.impl.broker.transaction_check import CheckSettings
from rocketmq_ha.impl.cli.flush_options import MAX_INT
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.remoting_options import remoting_tls_files, tls_mode_option
from rocketmq_ha.impl.cli.tls_options import tls_file_options, tls_files, tls_name_option
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE
from rocketmq_ha.spec.role import BrokerRole

DEFAULT_LISTEN_PORT: Final = 10911
_ANY: Final = ("0.0.0.0", "::")
_TABLES: Final = TableSettings()
_CHECKS: Final = CheckSettings()
_MAX_QUEUES: Final = 1024


def _listening(
    listen: str,
    announce: str | None,
    ha_listen: str | None,
    tls_listen: str | None,
    tls_mode: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    namesrv_tls_ca: Path | None,
    tls_master_port: int | None,
    tls_name: str | None,
) -> dict[str, Any]:
    host, port = parse_address(listen, "--listen")
    if host in _ANY and announce is None:
        raise ConfigInvalid(
            f"--listen {listen}: clients cannot connect to {host}: expected --announce with the host to tell them"
        )
    if 0 < port < 3 or port > 65534:
        raise ConfigInvalid(
            f"--listen {listen}: expected a port from 3 to 65534: the ports {port - 2} and {port + 1} are used too"
        )
    ha = parse_address(ha_listen, "--ha-listen") if ha_listen is not None else (host, port + 1 if port else 0)
    # For clients the CA is optional, as in RocketMQ; slaves always show a certificate.
    files = tls_files(tls_cert, tls_key, tls_ca, needed_by="--tls-listen") if tls_listen else None
    tls = None if files is None or tls_listen is None else TlsListening(parse_address(tls_listen, "--tls-listen"), files)
    for_clients = remoting_tls_files(tls_mode, tls_cert, tls_key, tls_ca)
    as_client = None if namesrv_tls_ca is None else RemotingClientTlsFiles(namesrv_tls_ca, tls_cert, tls_key)
    return {
        "listen": (host, port),
        "announce": announce,
        "ha": Listening(ha, tls),
        "tls": for_clients,
        "client_tls": as_client,
        "ha_tls": _ha_tls(tls_master_port, tls_cert, tls_key, tls_ca, tls_name),
    }


def _ha_tls(port: int | None, cert: Path | None, key: Path | None, ca: Path | None, name: str | None) -> HaTls | None:
    """Raises: ConfigInvalid for options that do not fit together."""
    if port is None and name is not None:
        raise ConfigInvalid("--tls-name is given and --tls-master-port is not: expected the port where the master has TLS")
    files = None if port is None else tls_files(cert, key, ca, needed_by="--tls-master-port")
    return None if port is None or files is None else HaTls(port, TlsIdentity(files, name))


broker_listen_options = option_group(
    "addresses",
    _listening,
    click.option(
        "--listen",
        default=format_address("127.0.0.1", DEFAULT_LISTEN_PORT),
        show_default=True,
        metavar="HOST:PORT",
        help="The address where producers and consumers connect (brokerIP1:listenPort); two ports below it is served too.",
    ),
    click.option(
        "--announce",
        metavar="HOST",
        help="The host that name servers, and messages, are told of in place of that of --listen.",
    ),
    click.option(
        "--ha-listen",
        metavar="HOST:PORT",
        help="The address where slaves connect. [default: that of --listen, and the next port]",
    ),
    click.option(
        "--tls-listen",
        metavar="HOST:PORT",
        help="The address where slaves connect with TLS, and with a certificate that --tls-ca has signed; beside --ha-listen.",
    ),
    tls_mode_option,
    *tls_file_options(
        "The CA that has signed the certificates of slaves and clients, and of a slave's master; PEM."
        " Without it clients need none."
    ),
    click.option(
        "--tls-master-port",
        type=click.IntRange(1, 65_535),
        metavar="PORT",
        help="As a slave, follow the master with TLS, at this port of its host: that of its --tls-listen. The host is that of"
        " --master, or what the name servers tell. --tls-cert is shown there.",
    ),
    tls_name_option("the master's host"),
    click.option(
        "--namesrv-tls-ca",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Use TLS to the name servers (tls.enable), and as a slave to --listen of the master: this CA has signed their"
        " certificates; PEM. --tls-cert is shown to those that ask.",
    ),
)


def name_servers(text: str) -> tuple[str, ...]:
    """Read a list of addresses, with `;` between them. Raises: ConfigInvalid.

    >>> name_servers("10.0.0.5:9876; 10.0.0.6:9876;")
    ('10.0.0.5:9876', '10.0.0.6:9876')
    """
    found = [each.strip() for each in text.split(";") if each.strip()]
    for address in found:
        if parse_address(address, "name server")[1] == 0:
            raise ConfigInvalid(f"name server {address}: expected a port, not 0")
    return tuple(dict.fromkeys(found))


def _broker(
    namesrv: str,
    broker_name: str,
    cluster: str,
    broker_id: int,
    broker_permission: int,
    auto_create_topic: bool,
    default_topic_queue_nums: int,
    auto_create_subscription_group: bool,
    max_message_size: int,
    region_id: str,
    trace_on: bool,
    register_name_server_period: int,
    slave_read_enable: bool,
    access_message_in_memory_max_ratio: int,
    reject_transaction_message: bool,
    transaction_time_out: int,
    transaction_check_max: int,
    transaction_check_interval: int,
) -> BrokerSettings:
    for option, name in (("--broker-name", broker_name), ("--cluster", cluster)):
        if not 0 < len(name) <= TOPIC_MAX_LENGTH or not name.isprintable() or set(name) & set(" /:;,@|"):
            raise ConfigInvalid(
                f"{option} {name!r}: expected 1 to {TOPIC_MAX_LENGTH} characters, without blanks and / : ; , @ |"
            )
    tables = TableSettings(
        broker_name=broker_name,
        broker_cluster_name=cluster,
        auto_create_topic_enable=auto_create_topic,
        default_topic_queue_nums=default_topic_queue_nums,
        auto_create_subscription_group=auto_create_subscription_group,
    )
    return BrokerSettings(
        BrokerRole.ASYNC_MASTER,  # the role and the addresses come with other options
        ("127.0.0.1", 0),
        ("127.0.0.1", 0),
        broker_id=broker_id,
        name_servers=name_servers(namesrv),
        tables=tables,
        broker_permission=broker_permission,
        region_id=region_id,
        trace_on=trace_on,
        max_message_size=max_message_size,
        register_name_server_period=register_name_server_period,
        slave_read_enable=slave_read_enable,
        access_message_in_memory_max_ratio=access_message_in_memory_max_ratio,
        reject_transaction_message=reject_transaction_message,
        checks=CheckSettings(transaction_time_out, transaction_check_max, transaction_check_interval),
    )


broker_options = option_group(
    "broker",
    _broker,
    click.option("--namesrv", default="", metavar="HOST:PORT[;...]", help="The name servers to register with. [default: none]"),
    click.option(
        "--broker-name", default="broker-a", show_default=True, help="The name of the group of a master and its slaves."
    ),
    click.option("--cluster", default="DefaultCluster", show_default=True, help="The name of the cluster."),
    click.option(
        "--broker-id", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="0 for a master (HA-R-2)."
    ),
    click.option(
        "--broker-permission",
        type=click.IntRange(0, 7),
        default=6,
        show_default=True,
        metavar="N",
        help="4 to read, 2 to write, 6 for both: for all topics of this broker.",
    ),
    click.option(
        "--auto-create-topic/--no-auto-create-topic",
        default=_TABLES.auto_create_topic_enable,
        help="Create the topic of a message if it is not known. [default: yes, as in RocketMQ]",
    ),
    click.option(
        "--default-topic-queue-nums",
        type=click.IntRange(1, _MAX_QUEUES),
        default=_TABLES.default_topic_queue_nums,
        show_default=True,
        metavar="N",
        help="The most queues of a topic that is created so.",
    ),
    click.option(
        "--auto-create-subscription-group/--no-auto-create-subscription-group",
        default=_TABLES.auto_create_subscription_group,
        help="Create the group of a consumer if it is not known. [default: yes, as in RocketMQ]",
    ),
    click.option(
        "--max-message-size",
        type=click.IntRange(1, MAX_MESSAGE_SIZE),
        default=MAX_MESSAGE_SIZE,
        show_default=True,
        metavar="BYTES",
        help="The largest body of a message, or of a batch.",
    ),
    click.option("--region-id", default="DefaultRegion", show_default=True, help="The region that answers to sends name."),
    click.option(
        "--trace-on/--no-trace-on", default=True, help="Whether answers to sends ask producers to trace. [default: yes]"
    ),
    click.option(
        "--register-name-server-period",
        type=click.IntRange(min=1),
        default=30_000,
        show_default=True,
        metavar="MS",
        help="Register with the name servers at this interval, of 10 to 60 s.",
    ),
    click.option(
        "--slave-read-enable/--no-slave-read-enable",
        default=False,
        help="Tell consumers to read from a slave what is far behind the end of the log. [default: no, as in RocketMQ]",
    ),
    click.option(
        "--access-message-in-memory-max-ratio",
        type=click.IntRange(0, 100),
        default=ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO,
        show_default=True,
        metavar="PERCENT",
        help="Of the machine's memory: what is further from the end of the log counts as on disk, and as far behind.",
    ),
    click.option(
        "--reject-transaction-message/--no-reject-transaction-message",
        default=False,
        help="Refuse half messages. [default: no, as in RocketMQ]",
    ),
    click.option(
        "--transaction-time-out",
        type=click.IntRange(0, MAX_INT),
        default=_CHECKS.transaction_timeout,
        show_default=True,
        metavar="MS",
        help="Ask for the outcome of a half message at this age, if it names none itself.",
    ),
    click.option(
        "--transaction-check-max",
        type=click.IntRange(1, MAX_INT),
        default=_CHECKS.transaction_check_max,
        show_default=True,
        metavar="N",
        help="Give a half message up when its producers were asked N times.",
    ),
    click.option(
        "--transaction-check-interval",
        type=click.IntRange(1, MAX_INT),
        default=_CHECKS.transaction_check_interval,
        show_default=True,
        metavar="MS",
        help="Look for half messages that nobody has ended at this interval.",
    ),
)
