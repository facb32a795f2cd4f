"""The routes of a name server: which brokers are there, in which groups, and which topics the groups have.

    register ---> listed ---> unregister, on_close, expire, or another broker with its id ---> gone

A broker is its address. A group is a `brokerName`: a master and its slaves; it has topics while it has a broker. There is no
other state: HA-R-47 "Name servers know nothing of each other". HA-R-51 "MUST carry out the codes of the table" is below too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.reference.replace import replace

MASTER_ID: Final = 0
CHANNEL_EXPIRED_MS: Final = 120_000  # HA-R-17 "nothing has come for more than 120 s"
PERM_WRITE: Final = 2
READ_AND_WRITE: Final = 6
UNIT: Final = 1
UNIT_SUB: Final = 2


@dataclass(frozen=True, slots=True)
class DataVersion:
    """How often a broker's topics have changed, when, and under which term of a controller."""

    counter: int
    timestamp: int
    state_version: int = 0


@dataclass(frozen=True, slots=True)
class QueueData:
    """What a group has of a topic."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says of itself. version: None where it says none. topics: the last one of a name counts."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    version: DataVersion | None
    topics: tuple[tuple[str, QueueData], ...] = ()
    heartbeat_timeout_ms: int | None = None
    gives_acting_master: bool = False  # whether it has the field enableActingMaster, of whatever value


@dataclass(frozen=True, slots=True)
class Broker:
    """A listed broker, with its last registration's connection and the time of its last sign of life."""

    broker_name: str
    broker_id: int
    ha_server_addr: str
    version: DataVersion | None
    channel: int
    last_update_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RouteTable:
    brokers: Mapping[str, Broker] = field(default_factory=dict)  # by address
    clusters: frozenset[tuple[str, str]] = frozenset()  # (cluster, group)
    cluster_of: Mapping[str, str] = field(default_factory=dict)  # group -> the cluster that it was first registered with
    queues: Mapping[tuple[str, str], QueueData] = field(default_factory=dict)  # by (topic, group)


@dataclass(frozen=True, slots=True)
class Bounds:
    """HA-R-56: how many brokers, and how many topics of groups, the table may hold."""

    brokers: int
    queue_datas: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer: the addresses of the group's master, for a slave whose master is listed."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """queue_datas: by group. broker_datas: group -> (cluster, broker id -> address)."""

    queue_datas: Mapping[str, QueueData]
    broker_datas: Mapping[str, tuple[str, Mapping[int, str]]]


def addrs_of(table: RouteTable, broker_name: str) -> dict[int, str]:
    """The addresses of a group by id; empty for a group that is not there."""
    return {broker.broker_id: addr for addr, broker in table.brokers.items() if broker.broker_name == broker_name}


def _without(table: RouteTable, gone: Iterable[str]) -> RouteTable:
    """Take brokers off, and the groups that have none any more.

    Spec: HA-R-44 "the group MUST leave its cluster and all its topics", "a topic without queues and a cluster without groups
    MUST be forgotten", "While a broker is left, the topics MUST stay".
    """
    addresses = set(gone)
    brokers = {addr: broker for addr, broker in table.brokers.items() if addr not in addresses}
    left = {broker.broker_name for broker in brokers.values()}
    return RouteTable(
        brokers,
        frozenset(pair for pair in table.clusters if pair[1] in left),
        {name: cluster for name, cluster in table.cluster_of.items() if name in left},
        {key: queue for key, queue in table.queues.items() if key[1] in left},
    )


def takes_topics(table: RouteTable, registration: Registration) -> bool:
    """Whether a name server takes the topics of a registration.

    Spec: HA-R-35 "MUST take the topics of a registration with brokerId 0, and of one that gives enableActingMaster if no
    broker of its group has a smaller id", "MUST NOT take those of any other".
    """
    broker_id = registration.broker_id
    others = {known for known, addr in addrs_of(table, registration.broker_name).items() if addr != registration.broker_addr}
    return broker_id == MASTER_ID or (registration.gives_acting_master and all(broker_id <= other for other in others))


def _taken_topics(table: RouteTable, registration: Registration) -> dict[str, QueueData]:
    """The topics whose queues a registration replaces.

    Spec: HA-R-36 "MUST replace what its group has of that topic if the address was not listed with that group, id and
    DataVersion, or if the group has nothing of that topic", "else it MUST change nothing". HA-MD-12 says which DataVersions are
    equal.
    """
    if not takes_topics(table, registration):
        return {}
    name, broker_id = registration.broker_name, registration.broker_id
    before, said = table.brokers.get(registration.broker_addr), registration.version
    is_known = (
        before is not None
        and said is not None
        and (before.broker_name, before.broker_id, before.version) == (name, broker_id, said)
    )
    return {topic: queue for topic, queue in registration.topics if not is_known or (topic, name) not in table.queues}


def register(
    table: RouteTable, registration: Registration, channel: int, now_ms: int, bounds: Bounds
) -> tuple[RouteTable, Registered | None]:
    """List a broker. Returns: the table, and the answer; None where the registration is refused.

    Spec: HA-R-38 "MUST be listed with the group and the id that it gives, and its address under no other group and no other
    id", "a broker that had the id before MUST no longer be listed"; HA-R-37 "MUST NOT take a topic off because a registration
    does not name it"; HA-R-3 "MUST count as one group".
    """
    name, addr, broker_id = registration.broker_name, registration.broker_addr, registration.broker_id
    holder = addrs_of(table, name).get(broker_id)
    # GUARD
    if holder is not None and holder != addr and _is_of_older_term(registration.version, table.brokers[holder].version):
        # HA-R-39 "MUST be answered with SUCCESS, without haServerAddr and masterAddr, and its address MUST NOT be listed"
        return _without(table, [addr]), Registered()
    taken = _taken_topics(table, registration)
    added = sum((topic, name) not in table.queues for topic in taken)
    is_new = addr not in table.brokers and holder is None
    if (is_new and len(table.brokers) >= bounds.brokers) or (added and len(table.queues) + added > bounds.queue_datas):
        return table, None  # HA-R-56 "MUST be refused with SYSTEM_ERROR, and change nothing"
    # STATE
    timeout_ms = registration.heartbeat_timeout_ms
    broker = Broker(
        name,
        broker_id,
        registration.ha_server_addr,
        registration.version,
        channel,
        now_ms,
        # HA-R-40 "MUST be taken off after that time instead of 120 s"
        CHANNEL_EXPIRED_MS if timeout_ms is None else timeout_ms,
    )
    listed = replace(
        table,
        brokers={**table.brokers, addr: broker},
        clusters=table.clusters | {(registration.cluster_name, name)},
        cluster_of={name: registration.cluster_name, **table.cluster_of},
        queues={**table.queues, **{(topic, name): queue for topic, queue in taken.items()}},
    )
    after = _without(listed, [holder] if holder is not None and holder != addr else [])
    # OUTPUT
    return after, _masters_addresses(after, registration)


def _is_of_older_term(version: DataVersion | None, held: DataVersion | None) -> bool:
    """HA-R-39 "with a smaller stateVersion than that broker's"; a broker that says no version has 0."""
    return (version.state_version if version else 0) < (held.state_version if held else 0)


def _masters_addresses(table: RouteTable, registration: Registration) -> Registered:
    """HA-R-10 "MUST give haServerAddr and masterAddr of the group's master if that is alive, and the answer to that of a master
    neither".
    """
    master = addrs_of(table, registration.broker_name).get(MASTER_ID)
    if registration.broker_id == MASTER_ID or master is None:
        return Registered()
    return Registered(table.brokers[master].ha_server_addr, master)


def unregister(table: RouteTable, broker_name: str, broker_addr: str) -> RouteTable:
    """HA-R-43 "MUST take off the broker of the address that it gives if that is listed in the group that it gives, and nothing
    else".
    """
    broker = table.brokers.get(broker_addr)
    return table if broker is None or broker.broker_name != broker_name else _without(table, [broker_addr])


def on_close(table: RouteTable, channel: int) -> RouteTable:
    """A connection has closed.

    Spec: HA-R-41 "the brokers whose last registration came by it MUST be taken off the routes, and no others"; HA-R-17 "whose
    connection has closed, MUST be taken off the routes".
    """
    return _without(table, [addr for addr, broker in table.brokers.items() if broker.channel == channel])


def expire(table: RouteTable, now_ms: int) -> tuple[RouteTable, frozenset[int]]:
    """Take off the brokers from which nothing came. Returns: the table; the connections to be closed.

    Spec: HA-R-17 "from which nothing has come for more than 120 s"; HA-R-42 "MUST close the connection of a broker that it
    takes off because nothing came from it, unless another broker is listed that registered by it".
    """
    gone = {addr: broker for addr, broker in table.brokers.items() if now_ms - broker.last_update_ms > broker.timeout_ms}
    after = _without(table, gone)
    in_use = {broker.channel for broker in after.brokers.values()}
    return after, frozenset(broker.channel for broker in gone.values()) - in_use


def heartbeat(table: RouteTable, broker_addr: str, now_ms: int) -> RouteTable:
    """Code 904 of HA-R-50: a sign of life. An address that is not listed stays so."""
    broker = table.brokers.get(broker_addr)
    if broker is None:
        return table
    return replace(table, brokers={**table.brokers, broker_addr: replace(broker, last_update_ms=now_ms)})


def query_data_version(
    table: RouteTable, broker_addr: str, version: DataVersion, now_ms: int
) -> tuple[RouteTable, bool, DataVersion | None]:
    """Say whether a broker's topics have changed, and which version is known.

    Spec: HA-R-46 "MUST say in changed whether the DataVersion of its body differs from the one that the address has
    registered", "an equal one MUST count as a sign of life".
    """
    broker = table.brokers.get(broker_addr)
    known = broker.version if broker else None
    if known is None or known != version:
        return table, True, known
    return heartbeat(table, broker_addr, now_ms), False, known


def delete_topic(table: RouteTable, topic: str, cluster_name: str | None) -> RouteTable:
    """Code 216 of HA-R-51: forget a topic, or what the groups of a cluster have of it."""
    return replace(
        table,
        queues={
            (name, group): queue
            for (name, group), queue in table.queues.items()
            if name != topic or (cluster_name and (cluster_name, group) not in table.clusters)
        },
    )


def wipe_write_perm(table: RouteTable, broker_name: str) -> tuple[RouteTable, int]:
    """Code 205 of HA-R-51. Returns: the table; how many topics the group has."""
    own = {key: replace(queue, perm=queue.perm & ~PERM_WRITE) for key, queue in table.queues.items() if key[1] == broker_name}
    return replace(table, queues={**table.queues, **own}), len(own)


def add_write_perm(table: RouteTable, broker_name: str) -> tuple[RouteTable, int]:
    """Code 327 of HA-R-51. Returns: the table; how many topics the group has."""
    own = {key: replace(queue, perm=READ_AND_WRITE) for key, queue in table.queues.items() if key[1] == broker_name}
    return replace(table, queues={**table.queues, **own}), len(own)


def register_topic(
    table: RouteTable, topic: str, queue_datas: Iterable[tuple[str, QueueData]], bounds: Bounds
) -> RouteTable | None:
    """Code 217 of HA-R-51: add what groups have of a topic, or nothing if one of them is not there.

    Args:  queue_datas: pairs of a group and its queues.
    Returns: None where the table would hold too much: HA-R-56 "A registration, code 100 or code 217".
    """
    queues = {**table.queues, **{(topic, group): queue for group, queue in queue_datas}}
    if any(group not in table.cluster_of for _, group in queues):
        return table
    is_too_much = len(queues) > max(len(table.queues), bounds.queue_datas)
    return None if is_too_much else replace(table, queues=queues)


# --- Questions -------------------------------------------------------------------------------------------------------


def route(table: RouteTable, topic: str) -> Route | None:
    """Where a topic is. Returns: None if no group has it: HA-R-48 "MUST be answered with TOPIC_NOT_EXIST (17)".

    Spec: HA-R-19 "MUST list for a topic its queues and the brokers that have them, each with the addresses of its group by
    brokerId".
    """
    queue_datas = {group: queue for (name, group), queue in table.queues.items() if name == topic}
    if not queue_datas:
        return None
    return Route(queue_datas, {group: (table.cluster_of[group], addrs_of(table, group)) for group in queue_datas})


def groups(table: RouteTable) -> dict[str, tuple[str, dict[int, str]]]:
    """Code 106: all groups, each with its cluster and its addresses by id. `RouteTable.clusters` has the rest of the answer."""
    return {name: (cluster, addrs_of(table, name)) for name, cluster in table.cluster_of.items()}


def all_topics(table: RouteTable) -> frozenset[str]:
    """Code 206."""
    return frozenset(topic for topic, _ in table.queues)


def topics_by_cluster(table: RouteTable, cluster_name: str) -> frozenset[str]:
    """Code 224."""
    return frozenset(topic for topic, group in table.queues if (cluster_name, group) in table.clusters)


def system_topics(table: RouteTable) -> frozenset[str]:
    """Code 304: the names of the clusters and of the groups, which are topics of their own."""
    return frozenset(name for pair in table.clusters for name in pair)


def unit_topics(table: RouteTable, wanted: int, unwanted: int = 0) -> frozenset[str]:
    """Codes 311 to 313: topics one of whose groups has all wanted bits in its flag, and none of the unwanted."""
    flags = ((topic, queue.topic_sys_flag) for (topic, _), queue in table.queues.items())
    return frozenset(topic for topic, flag in flags if flag & wanted == wanted and not flag & unwanted)
