"""The figures of request 28, which `mqadmin clusterList` and `brokerStatus` show, and those of request 907, `haStatus`.

Spec: HA-BT-70, HA-BT-71.  Source: 4.9.8 AdminBrokerProcessor.prepareRuntimeInfo; 5.3.3 HARuntimeInfo, DefaultHAService.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.broker.stats import BrokerStats
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.spec.constants import REMOTING_VERSION

VERSION_DESC: Final = "V4_9_8"  # what REMOTING_VERSION stands for
HA_MAX_GAP_NOT_IN_SYNC: Final = 256 << 20  # bytes


def runtime_info(store: MessageStore, stats: BrokerStats, wall_ms: int) -> dict[str, str]:
    """HA-BT-70 "MUST answer `table`, a map of texts". What RocketMQ counts and we do not have, such as queues of threads, is 0.

    Raises: OSError, if the disk cannot be asked.
    """
    total = stats.put.total
    first = store.message_at(store.min_offset)
    ratio = f"{_disk_used_ratio(store.store_dir):.4f}"
    return {
        "bootTimestamp": str(stats.boot_wall_ms),
        "brokerActive": "true",
        "brokerVersion": str(REMOTING_VERSION),
        "brokerVersionDesc": VERSION_DESC,
        "commitLogDirCapacity": _capacity(store.store_dir),
        "commitLogDiskRatio": ratio,
        "commitLogMaxOffset": str(store.max_offset),
        "commitLogMinOffset": str(store.min_offset),
        "consumeQueueDiskRatio": ratio,
        "dispatchBehindBytes": str(store.dispatcher.behind()),
        "earliestMessageTimeStamp": str(-1 if first is None else first[2].store_timestamp),
        "getTotalTps": stats.got.tps(),
        "getFoundTps": stats.got.tps(),
        "getTransferedTps": stats.got.tps(),
        "getTransferredTps": stats.got.tps(),
        "msgGetTotalTodayMorning": str(stats.got.today_morning),
        "msgGetTotalTodayNow": str(stats.got.total),
        "msgGetTotalYesterdayMorning": str(stats.got.yesterday_morning),
        "msgPutTotalTodayMorning": str(stats.put.today_morning),
        "msgPutTotalTodayNow": str(total),
        "msgPutTotalYesterdayMorning": str(stats.put.yesterday_morning),
        "pageCacheLockTimeMills": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": "0",
        "putMessageAverageSize": str(stats.put_size / max(1, total)),
        "putMessageFailedTimes": str(stats.put_failed),
        "putMessageSizeTotal": str(stats.put_size),
        "putMessageTimesTotal": str(max(1, total)),
        "putTps": stats.put.tps(),
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueSize": "0",
        "remainHowManyDataToFlush": f"{store.max_offset - store.flushed_offset} B",
        "runtime": _span(max(0, wall_ms - stats.boot_wall_ms)),
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "sendThreadPoolQueueSize": "0",
    }


@dataclass(frozen=True, slots=True)
class SlaveFigures:
    """A slave's connection: its address, what it has acknowledged, and from where it was last sent bytes, at which rate."""

    addr: str
    slave_ack_offset: int
    transfer_from_where: int
    transferred_byte_in_second: int = 0


def master_status(max_offset: int, slaves: Iterable[SlaveFigures]) -> dict[str, object]:
    """HA-BT-71 "MUST answer whether the broker is a master, and a master's slaves": for a master."""
    found: list[dict[str, object]] = [
        {
            "addr": slave.addr,
            "diff": max_offset - slave.slave_ack_offset,
            "inSync": max_offset - slave.slave_ack_offset < HA_MAX_GAP_NOT_IN_SYNC,
            "slaveAckOffset": slave.slave_ack_offset,
            "transferFromWhere": slave.transfer_from_where,
            "transferredByteInSecond": slave.transferred_byte_in_second,
        }
        for slave in slaves
    ]
    return {
        "haConnectionInfo": found,
        "inSyncSlaveNums": sum(1 for slave in found if slave["inSync"]),
        "master": True,
        "masterCommitLogMaxOffset": max_offset,
    }


def slave_status(max_offset: int, client: Mapping[str, object]) -> dict[str, object]:
    """The same for a slave. client: the fields of `haClientRuntimeInfo` that it knows, such as `masterAddr`."""
    return {"haClientRuntimeInfo": {"maxOffset": max_offset, **client}, "haConnectionInfo": [], "master": False}


def _disk_used_ratio(directory: Path) -> float:
    found = os.statvfs(directory)
    return 1 - found.f_bavail / found.f_blocks if found.f_blocks else 0.0


def _capacity(directory: Path) -> str:
    found = os.statvfs(directory)
    total, free = (blocks * found.f_frsize / (1 << 30) for blocks in (found.f_blocks, found.f_bavail))
    return f"Total : {total:.1f} GiB, Free : {free:.1f} GiB."


def _span(ms: int) -> str:
    seconds = ms // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
