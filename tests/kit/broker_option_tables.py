"""All options of broker and consume, no two values equal, and what each command makes of them. See option_tables.py."""

from ipaddress import ip_network
from pathlib import Path
from typing import Final

from kit.option_tables import FILES, FLUSHING, INTERVALS, KEEPING, KEPT, KEPT_BY_DEFAULT, LOOPBACK, TLS, Words
from rocketmq_ha.impl.app.client_session import NameServers
from rocketmq_ha.impl.app.endpoints import HaTls, Listening, TlsIdentity, TlsListening
from rocketmq_ha.impl.app.flushing import FlushIntervals
from rocketmq_ha.impl.app.remoting_tls import RemotingClientTlsFiles, RemotingTlsFiles
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_broker import BrokerOptions
from rocketmq_ha.impl.app.run_consume import ConsumeOptions
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.transaction_check import CheckSettings
from rocketmq_ha.impl.client.decisions import ConsumeFromWhere
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.tls import TlsMode
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

ALLOWED: Final = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))

BROKER: Final[Words] = {
    "--store": "s",
    "--listen": "h:3",
    "--announce": "told",
    "--ha-listen": "h:4",
    "--tls-listen": "h:5",
    "--tls-mode": "enforcing",
    **TLS,
    "--namesrv-tls-ca": "other-ca.pem",
    "--tls-master-port": 60,
    "--tls-name": "master-x",
    "--namesrv": "a:1;b:2",
    "--broker-name": "broker-x",
    "--cluster": "cluster-x",
    "--broker-id": 40,
    "--broker-permission": 4,
    "--no-auto-create-topic": True,
    "--default-topic-queue-nums": 41,
    "--no-auto-create-subscription-group": True,
    "--max-message-size": 42,
    "--region-id": "region-x",
    "--no-trace-on": True,
    "--register-name-server-period": 43,
    "--slave-read-enable": True,
    "--access-message-in-memory-max-ratio": 59,
    "--reject-transaction-message": True,
    "--transaction-time-out": 44,
    "--transaction-check-max": 45,
    "--transaction-check-interval": 46,
    "--file-size": 5,
    "--queue-file-size": 47,
    "--max-hash-slot-num": 48,
    "--max-index-num": 49,
    "--profile": "classic",
    "--role": "SLAVE",
    "--flush": "sync",
    **FLUSHING,
    **KEEPING,
    "--master": "h:6",
    "--allow": ["10.0.0.0/8", "fd00::/8"],
    "--max-connections": 22,
    "--max-connections-per-address": 23,
    "--report-deadline": 24.5,
    "--write-stall-deadline": 25.5,
    "--max-transfer-rate": 2_600,
    "--max-client-connections": 50,
    "--max-client-connections-per-address": 51,
    "--metrics": "h:30",
    **INTERVALS,
    "--ha-transfer-batch-size": 33,
    "--ha-slave-fallbehind-max": 34,
    "--sync-flush-timeout": 35,
    "--replicas": 36,
}
BROKER_OPTIONS: Final = BrokerOptions(
    store=Path("s"),
    listen=("h", 3),
    announce="told",
    ha=Listening(("h", 4), TlsListening(("h", 5), FILES)),
    tls=RemotingTlsFiles(TlsMode.ENFORCING, FILES.cert, FILES.key, FILES.ca),
    client_tls=RemotingClientTlsFiles(Path("other-ca.pem"), FILES.cert, FILES.key),
    ha_tls=HaTls(60, TlsIdentity(FILES, "master-x")),
    file_size=5,
    queue_file_size=47,
    index_geometry=Geometry(48, 49),
    profile=CLASSIC,
    roles=RoleSettings(BrokerRole.SLAVE, "sync"),
    flush_intervals=FlushIntervals(11.0, 12, 13.0),
    retention=KEPT,
    master=("h", 6),
    limits=Limits(22, 23, 24_500, 25_500, ALLOWED, 2_600),
    remoting_limits=RemotingLimits(Limits(50, 51, allow=ALLOWED, option="--max-client-connections")),
    metrics_address="h:30",
    settings=Settings(
        ha_send_heartbeat_interval_ms=31,
        ha_housekeeping_interval_ms=32,
        ha_transfer_batch_size=33,
        ha_slave_fallbehind_max=34,
        sync_flush_timeout_ms=35,
        replicas=36,
    ),
    broker=BrokerSettings(
        BrokerRole.ASYNC_MASTER,
        ("127.0.0.1", 0),
        ("127.0.0.1", 0),
        broker_id=40,
        name_servers=("a:1", "b:2"),
        tables=TableSettings(
            broker_name="broker-x",
            broker_cluster_name="cluster-x",
            auto_create_topic_enable=False,
            default_topic_queue_nums=41,
            auto_create_subscription_group=False,
        ),
        broker_permission=4,
        region_id="region-x",
        trace_on=False,
        max_message_size=42,
        register_name_server_period=43,
        slave_read_enable=True,
        access_message_in_memory_max_ratio=59,
        reject_transaction_message=True,
        checks=CheckSettings(44, 45, 46, 14),
    ),
)
BROKER_BY_DEFAULT: Final = BrokerOptions(
    store=Path("s"),
    listen=("127.0.0.1", 10911),
    announce=None,
    ha=Listening(("127.0.0.1", 10912)),
    tls=None,
    client_tls=None,
    ha_tls=None,
    file_size=None,
    queue_file_size=None,
    index_geometry=None,
    profile=HARDENED,
    roles=RoleSettings(BrokerRole.ASYNC_MASTER, "async"),
    flush_intervals=FlushIntervals(0.5, 4, 10.0),
    retention=KEPT_BY_DEFAULT,
    master=None,
    limits=Limits(512, 128, 10_000, 20_000, LOOPBACK, None),
    remoting_limits=RemotingLimits(Limits(4096, 1024, allow=LOOPBACK, option="--max-client-connections")),
    metrics_address=None,
    settings=Settings(
        ha_send_heartbeat_interval_ms=5_000,
        ha_housekeeping_interval_ms=20_000,
        ha_transfer_batch_size=32_768,
        ha_slave_fallbehind_max=268_435_456,
        sync_flush_timeout_ms=5_000,
        replicas=1,
    ),
    broker=BrokerSettings(
        BrokerRole.ASYNC_MASTER,
        ("127.0.0.1", 0),
        ("127.0.0.1", 0),
        broker_id=0,
        name_servers=(),
        tables=TableSettings(
            broker_name="broker-a",
            broker_cluster_name="DefaultCluster",
            auto_create_topic_enable=True,
            default_topic_queue_nums=8,
            auto_create_subscription_group=True,
        ),
        broker_permission=6,
        region_id="DefaultRegion",
        trace_on=True,
        max_message_size=4_194_304,
        register_name_server_period=30_000,
        slave_read_enable=False,
        access_message_in_memory_max_ratio=40,
        reject_transaction_message=False,
        checks=CheckSettings(6_000, 15, 60_000, 72),
    ),
)

OF_CLIENTS: Final[Words] = {"--namesrv": "a:1;b:2", **TLS, "--tls-name": "broker-a"}
NAME_SERVERS: Final = NameServers(("a:1", "b:2"), RemotingClientTlsFiles(FILES.ca, FILES.cert, FILES.key, "broker-a"))
CONSUME: Final[Words] = {
    **OF_CLIENTS,
    "--topic": "topic-x",
    "--group": "group-x",
    "--from": "1234",
    "--tags": "t1 || t2",
    "--queue-id": [3, 4],
    "--limit": 5,
    "--stop-at-end": True,
    "--body": "base64",
}
CONSUME_OPTIONS: Final = ConsumeOptions(
    name_servers=NAME_SERVERS,
    consumer=ConsumerSettings(
        group="group-x",
        topic="topic-x",
        expression="t1 || t2",
        start=ConsumeFromWhere.TIMESTAMP,
        timestamp=1234,
        queues=frozenset({3, 4}),
        commits=True,
        waits=False,
    ),
    body="base64",
    limit=5,
    stop_at_end=True,
)
CONSUME_BY_DEFAULT: Final = ConsumeOptions(
    name_servers=NameServers(("a:1",)),
    consumer=ConsumerSettings(
        group="rocketmq-ha-consume",
        topic="topic-x",
        expression="*",
        start=ConsumeFromWhere.LAST,
        timestamp=0,
        queues=None,
        commits=False,
        waits=True,
    ),
    body="text",
    limit=None,
    stop_at_end=False,
)
CONSUME_NEEDS: Final[Words] = {"--namesrv": "a:1", "--topic": "topic-x"}

# As COMMANDS of option_tables.py.
OF_BROKERS: Final[dict[str, tuple[str, Words, object, Words, object]]] = {
    "broker": ("broker.run_broker", BROKER, BROKER_OPTIONS, {"--store": "s"}, BROKER_BY_DEFAULT),
    "consume": ("consume.run_consume", CONSUME, CONSUME_OPTIONS, CONSUME_NEEDS, CONSUME_BY_DEFAULT),
}
