"""The translation of a broker's broker.conf into the options of `master`, `slave` and `broker`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.cli.config_text import java_properties
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.spec.constants import FILE_SIZE_SETTING, FILE_SIZE_SETTING_UNTIL_4_5_1

DEFAULT_LISTEN_PORT: Final = 10911  # listenPort, where the broker itself listens; its HA service has the next port
_HOST: Final = "127.0.0.1"

# RocketMQ's name -> our option, for settings whose value needs no conversion.
_SAME: Final = {
    "storePathRootDir": "store",
    "haMasterAddress": "master",
    FILE_SIZE_SETTING_UNTIL_4_5_1: "file_size",
    FILE_SIZE_SETTING: "file_size",
    "haSendHeartbeatInterval": "ha_send_heartbeat_interval",
    "haHousekeepingInterval": "ha_housekeeping_interval",
    "haTransferBatchSize": "ha_transfer_batch_size",
    "haSlaveFallbehindMax": "ha_slave_fallbehind_max",
    "syncFlushTimeout": "sync_flush_timeout",
    "fileReservedTime": "file_reserved_time",
    "deleteWhen": "delete_when",
    "diskMaxUsedSpaceRatio": "disk_max_used_space_ratio",
    "cleanFileForciblyEnable": "clean_file_forcibly",
    "cleanResourceInterval": "clean_resource_interval",
    "flushIntervalCommitLog": "flush_interval_commit_log",
    "flushCommitLogLeastPages": "flush_commit_log_least_pages",
    "flushCommitLogThoroughInterval": "flush_commit_log_thorough_interval",
}
# The same, for `broker` alone.
_OF_BROKER: Final = {
    "namesrvAddr": "namesrv",
    "brokerName": "broker_name",
    "brokerClusterName": "cluster",
    "brokerId": "broker_id",
    "brokerPermission": "broker_permission",
    "defaultTopicQueueNums": "default_topic_queue_nums",
    "maxMessageSize": "max_message_size",
    "regionId": "region_id",
    "registerNameServerPeriod": "register_name_server_period",
    "mappedFileSizeConsumeQueue": "queue_file_size",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
    "autoCreateTopicEnable": "auto_create_topic",
    "autoCreateSubscriptionGroup": "auto_create_subscription_group",
    "traceOn": "trace_on",
    "slaveReadEnable": "slave_read_enable",
    "accessMessageInMemoryMaxRatio": "access_message_in_memory_max_ratio",
    "rejectTransactionMessage": "reject_transaction_message",
    "transactionTimeOut": "transaction_time_out",
    "transactionCheckMax": "transaction_check_max",
    "transactionCheckInterval": "transaction_check_interval",
}
_ROLES: Final = {"ASYNC_MASTER": "master", "SYNC_MASTER": "master", "SLAVE": "slave"}
_FLUSHES: Final = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}
_IN_SYNC: Final = "inSyncReplicas"
_LOOKED_AT: Final = frozenset({*_SAME, _IN_SYNC, "brokerRole", "brokerIP2", "listenPort", "haListenPort", "storePathCommitLog"})
_LOOKED_AT_BY_BROKER: Final = _LOOKED_AT | frozenset({*_OF_BROKER, "brokerIP1"})


def options_of(file: Path, text: str, command: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Read a broker.conf for `command` ("master", "slave" or "broker").

    Returns: (option -> (RocketMQ's name of it, its value as text), names that have no meaning here).
    Raises: ConfigInvalid if the file asks for what the command cannot do: another role, or a log outside its store.
    """
    found = java_properties(file, text)
    role = found.get("brokerRole", "ASYNC_MASTER")
    if role not in _ROLES:
        raise ConfigInvalid(f"{file}: brokerRole={role}: expected {', '.join(_ROLES)}")
    if command != "broker" and _ROLES[role] != command:
        raise ConfigInvalid(f"{file}: brokerRole={role}: expected a {command}'s role for `rocketmq-ha {command}`")
    same = _SAME | (_OF_BROKER if command == "broker" else {})
    options = {ours: (theirs, found[theirs]) for theirs, ours in same.items() if found.get(theirs)}
    old_size, size = found.get(FILE_SIZE_SETTING_UNTIL_4_5_1), found.get(FILE_SIZE_SETTING)
    if old_size and size and old_size.strip() != size.strip():  # each release reads one of them
        raise ConfigInvalid(
            f"{file}: {FILE_SIZE_SETTING_UNTIL_4_5_1}={old_size}, {FILE_SIZE_SETTING}={size}: expected one size"
        )
    store, commit_log = found.get("storePathRootDir"), found.get("storePathCommitLog")
    if commit_log is not None and (store is None or Path(commit_log) != Path(store, "commitlog")):
        expected = Path(store or "STORE", "commitlog")
        raise ConfigInvalid(f"{file}: storePathCommitLog={commit_log}: expected {expected}, in storePathRootDir")
    if command == "master":
        options["listen"] = "haListenPort", format_address(found.get("brokerIP2") or _HOST, _ha_port(file, found))
    if command == "broker":
        options["listen"] = "listenPort", format_address(found.get("brokerIP1") or _HOST, _port(file, found, "listenPort"))
        ha_host = found.get("brokerIP2") or found.get("brokerIP1") or _HOST
        options["ha_listen"] = "haListenPort", format_address(ha_host, _ha_port(file, found))
    if command != "slave":
        options["role"] = "brokerRole", role
        options["flush"] = "flushDiskType", _flush(file, found)
    if _IN_SYNC in found:
        options["replicas"] = _IN_SYNC, _replicas(file, found[_IN_SYNC])
    left = (
        found.keys()
        - (_LOOKED_AT_BY_BROKER if command == "broker" else _LOOKED_AT)
        - {theirs for theirs, _ in options.values()}
    )
    if command != "slave" and _is_until_4_5_1(found):
        left |= found.keys() & {"haListenPort"}
    return options, sorted(left)


def _is_until_4_5_1(found: Mapping[str, str]) -> bool:
    """Return True if only a broker of 4.5.1 or older reads the file size of this file."""
    return FILE_SIZE_SETTING_UNTIL_4_5_1 in found and FILE_SIZE_SETTING not in found


def _flush(file: Path, found: Mapping[str, str]) -> str:
    """Raises: ConfigInvalid."""
    name = found.get("flushDiskType", "ASYNC_FLUSH")
    if name not in _FLUSHES:
        raise ConfigInvalid(f"{file}: flushDiskType={name}: expected {' or '.join(_FLUSHES)}")
    return _FLUSHES[name]


def _replicas(file: Path, text: str) -> str:
    """Convert inSyncReplicas, in which 5.x counts the master too.

    With 1, a SYNC_MASTER of 5.x waits for nobody; ours waits for a slave, as in 4.x.
    """
    try:
        in_sync = int(text)
    except ValueError:
        in_sync = 0
    if in_sync < 1:
        raise ConfigInvalid(f"{file}: {_IN_SYNC}={text}: expected a number of brokers from 1 on, the master counted")
    return str(max(1, in_sync - 1))


def _ha_port(file: Path, found: Mapping[str, str]) -> int:
    """Return the HA port: haListenPort or listenPort + 1. HA-R-12 "The HA port MUST be `haListenPort`".

    4.0.0 to 5.1.0 use listenPort + 1 whatever haListenPort says; 5.1.1 and later use haListenPort if it is above 0. A file
    seldom shows for which release it is. So haListenPort counts, unless only 4.5.1 or older reads another name in the file.
    """
    is_told = found.get("haListenPort", "0") != "0" and not _is_until_4_5_1(found)
    name = "haListenPort" if is_told else "listenPort"
    port = _port(file, found, name)
    return port if name == "haListenPort" else port + 1


def _port(file: Path, found: Mapping[str, str], name: str) -> int:
    """Raises: ConfigInvalid."""
    text = found.get(name, str(DEFAULT_LISTEN_PORT))
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 < port < 65535:
        raise ConfigInvalid(f"{file}: {name}={text}: expected a port")
    return port
