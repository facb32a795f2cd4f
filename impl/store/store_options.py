"""How a store is run."""

from dataclasses import dataclass, field

from rocketmq_ha.impl.errors import ConfigInvalid, MessageIllegal
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.housekeeping import EXPIRY_INTERVAL_S
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.impl.wire.message import Host, Message, encode
from rocketmq_ha.spec.constants import SYNC_FLUSH_TIMEOUT_MS, SYS_FLAG_STORE_HOST_V6
from rocketmq_ha.spec.role import BrokerRole


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is run. The defaults are RocketMQ's, but for the free space, of which it keeps a share."""

    file_size: int | None = None  # bytes of a commit-log file; None: that of the files there are, or 1 GiB
    queue_file_size: int | None = None  # bytes of a consume-queue file; None: as above, or 6,000,000
    index_geometry: Geometry | None = None
    # HA-R-1 "one of three roles: ASYNC_MASTER, SYNC_MASTER or SLAVE". A SLAVE's store takes replicated bytes alone.
    role: BrokerRole = BrokerRole.ASYNC_MASTER
    sync_flush: bool = False  # whether a put waits for the disk (SYNC_FLUSH); else it does not (ASYNC_FLUSH)
    sync_flush_timeout_ms: int = SYNC_FLUSH_TIMEOUT_MS
    store_host: Host = ("127.0.0.1", 10911)  # what messages carry as the host that stored them
    floor_size: int = 256 << 20  # bytes that must stay free on the disk; below, puts are refused with StoreFull
    reserved_ms: int | None = None  # how long a full file is kept after the last write to it; None: for ever
    retention: Retention | None = None  # which files are deleted, in full; it stands before reserved_ms
    expiry_interval_s: float = EXPIRY_INTERVAL_S  # the time between two searches for files to delete
    flush_intervals: FlushIntervals = field(default_factory=FlushIntervals)  # of the flush for which no put waits
    # False in a broker's process. HA-BT-19 "one writer alone MUST write `topics.json`: its table of topics"
    notes_topics: bool = True
    clear_tail: bool = True  # False leaves stale bytes behind the end, as RocketMQ does (quirk 35)


def store_host_part(host: Host) -> bytes | None:
    """The store's host as usual records have it; None for IPv6, which they have not.

    Raises: ConfigInvalid for what is no address.
    """
    try:
        return encode(Message("t", b"", store_host=host))[64:72]
    except MessageIllegal:
        pass
    try:
        encode(Message("t", b"", store_host=host, sys_flag=SYS_FLAG_STORE_HOST_V6))
    except MessageIllegal as error:
        raise ConfigInvalid(f"store host {host}: {error}") from None
    return None
