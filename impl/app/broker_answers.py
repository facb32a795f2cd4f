"""What a broker answers of itself: its settings (26), and who replicates (907)."""

from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.runtime_info import SlaveFigures, master_status, slave_status
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.message_store import MessageStore


def config_of(settings: BrokerSettings, flush: str, store: MessageStore) -> dict[str, str]:
    """The answer to 26: the settings of this broker, by RocketMQ's names. flush: sync or async."""
    tables = settings.tables
    found: dict[str, object] = {
        "brokerName": tables.broker_name,
        "brokerClusterName": tables.broker_cluster_name,
        "brokerId": settings.broker_id,
        "brokerIP1": settings.broker_addr[0],
        "brokerIP2": settings.ha_server_addr[0],
        "listenPort": settings.broker_addr[1],
        "haListenPort": settings.ha_server_addr[1],
        "namesrvAddr": ";".join(settings.name_servers),
        "brokerRole": settings.role.value,
        "brokerPermission": settings.broker_permission,
        "flushDiskType": f"{flush.upper()}_FLUSH",
        "storePathRootDir": store.store_dir,
        "mappedFileSizeCommitLog": store.log.file_size,
        "maxMessageSize": settings.max_message_size,
        "autoCreateTopicEnable": tables.auto_create_topic_enable,
        "autoCreateSubscriptionGroup": tables.auto_create_subscription_group,
        "defaultTopicQueueNums": tables.default_topic_queue_nums,
        "registerNameServerPeriod": settings.register_name_server_period,
        "regionId": settings.region_id,
        "traceOn": settings.trace_on,
        "slaveReadEnable": settings.slave_read_enable,
        "accessMessageInMemoryMaxRatio": settings.access_message_in_memory_max_ratio,
        "rejectTransactionMessage": settings.reject_transaction_message,
        "transactionTimeOut": settings.checks.transaction_timeout,
        "transactionCheckMax": settings.checks.transaction_check_max,
        "transactionCheckInterval": settings.checks.transaction_check_interval,
    }
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def ha_status_of(master: Master, following: Following | None) -> dict[str, object]:
    """The answer to 907. HA-BT-71 "whether the broker is a master". following: of a slave."""
    service = master.service
    if following is not None:
        followed = "" if following.master is None else format_address(*following.master)
        return slave_status(service.log.max_offset, {"masterAddr": followed})
    slaves = [
        SlaveFigures(conn.peer, max(conn.slave_ack_offset, 0), max(conn.sent_offset, 0))
        for conn in service.connections
        if conn.slave_request_offset != -1
    ]
    return master_status(service.log.max_offset, slaves)
