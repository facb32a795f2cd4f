"""The clients of a broker and the locks of ordered consumption: what requests, closed connections and time make of them.

A connection is named by a number. Each step returns the new state with what the broker sends and which connections it closes.

Spec: HA-BT-40 to HA-BT-53, HA-BT-75.
Source: 4.9.8 ConsumerManager, ConsumerGroupInfo, ProducerManager, RebalanceLockManager.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_ha.reference.replace import replace

EXPIRED_AFTER: Final = 120_000  # ms without a heartbeat
LOCK_LIVES: Final = 60_000  # ms
# What a heartbeat may have: characters of its texts, and values in its sets
LONGEST: Final = {
    "clientID": 255,
    "language": 32,
    "expressionType": 255,
    "topic": 262,
    "subString": 65_536,
    "tagsSet": 65_536,
}
MOST_TAGS: Final = 10_000


class Subscription(NamedTuple):
    """What a group subscribes to in a topic. The greater version is newer."""

    version: int
    expression: str = "*"
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    expression_type: str = "TAG"


@dataclass(frozen=True, slots=True)
class Client:
    """A client at a connection, in one group. seen: when its last heartbeat of the group came."""

    client_id: str
    seen: int


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """connections: in the order in which they came. subscriptions: by topic."""

    connections: Mapping[int, Client]
    subscriptions: Mapping[str, Subscription]


@dataclass(frozen=True, slots=True)
class Clients:
    """All groups with clients, and all locks: (group, queue) -> (client id, when it was locked or renewed)."""

    consumers: Mapping[str, ConsumerGroup] = field(default_factory=dict)
    producers: Mapping[str, Mapping[int, Client]] = field(default_factory=dict)
    locks: Mapping[tuple[str, str], tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """notified: (connection, group) of each request 40. closed: connections that the broker closes."""

    clients: Clients
    notified: tuple[tuple[int, str], ...] = ()
    closed: tuple[int, ...] = ()


def is_within_lengths(client_id: str, language: str, subscriptions: Mapping[str, Subscription]) -> bool:
    """False for a heartbeat with something "that is longer than the table below allows" (HA-BT-49 "MUST be refused with")."""
    texts = [("clientID", client_id), ("language", language)]
    for topic, found in subscriptions.items():
        if max(len(found.tags), len(found.codes)) > MOST_TAGS:
            return False
        texts += [("topic", topic), ("subString", found.expression), ("expressionType", found.expression_type)]
        texts.append(("tagsSet", "".join(found.tags)))
    return all(len(text) <= LONGEST[kind] for kind, text in texts)


def held_size(clients: Clients) -> int:
    """Bytes that all registrations take. HA-BT-75 "2,500 bytes for each client in a group, and 500 for each subscription"."""
    registrations = sum(len(group.connections) for group in clients.consumers.values())
    registrations += sum(len(connections) for connections in clients.producers.values())
    size = 2_500 * registrations
    for group in clients.consumers.values():
        for topic, found in group.subscriptions.items():
            size += 500 + 100 * (len(found.tags) + len(found.codes))
            for text in [topic, found.expression, found.expression_type, *found.tags]:
                size += len(text) * (1 if max(text, default="") < "\x80" else 4)
    return size


def on_heartbeat(
    clients: Clients,
    connection: int,
    client: Client,
    consumers: Sequence[tuple[str, Mapping[str, Subscription], bool]],
    producers: Sequence[str],
    limit: int,
) -> Step | None:
    """Request 34. HA-BT-40 "MUST register its connection with each of its producer groups and consumer groups".

    consumers: group, subscriptions, and whether its consumers are notified. limit: bytes of all registrations.
    Returns: None if it is refused. HA-BT-75 "the registrations before it stay".
    """
    after = clients
    notified: tuple[tuple[int, str], ...] = ()
    for group, subscriptions, is_notify in consumers:
        step = on_consumer(after, connection, client, group, subscriptions, is_notify)
        after, notified = step.clients, notified + step.notified
    for group in producers:
        after = on_producer(after, connection, client, group).clients
    return None if held_size(after) > limit else Step(after, notified)


def on_consumer(
    clients: Clients, connection: int, client: Client, group: str, subscriptions: Mapping[str, Subscription], is_notify: bool
) -> Step:
    """What a heartbeat says of one consumer group. HA-BT-40 "MUST register its connection with each of its producer groups"."""
    # GUARD
    old = clients.consumers.get(group, ConsumerGroup({}, {}))
    # STATE
    new = ConsumerGroup({**old.connections, connection: client}, newer(old.subscriptions, subscriptions))
    after = replace(clients, consumers={**clients.consumers, group: new})
    # OUTPUT
    has_changed = connection not in old.connections or set(old.subscriptions) != set(new.subscriptions)
    return Step(after, _all_of(new, group) if has_changed and is_notify else ())


def newer(old: Mapping[str, Subscription], new: Mapping[str, Subscription]) -> dict[str, Subscription]:
    """HA-BT-42 "MUST count for the group: its topics replace the group's", and of each topic the greater version stays."""
    return {
        topic: old[topic] if topic in old and old[topic].version >= found.version else found for topic, found in new.items()
    }


def on_producer(clients: Clients, connection: int, client: Client, group: str) -> Step:
    """What a heartbeat says of one producer group. HA-BT-47 "that of its first heartbeat": the client's id."""
    old = clients.producers.get(group, {})
    first = old.get(connection, client)
    producers = {**clients.producers, group: {**old, connection: replace(first, seen=client.seen)}}
    return Step(replace(clients, producers=producers))


def on_unregister_consumer(clients: Clients, connection: int, group: str, is_notify: bool) -> Step:
    """Request 35. HA-BT-43 "MUST send NOTIFY_CONSUMER_IDS_CHANGED (40, oneway) to each consumer of the group"."""
    if group not in clients.consumers:
        return Step(clients)
    after, left = _without(clients, connection, group)
    return Step(after, _all_of(left, group) if is_notify else ())


def on_unregister_producer(clients: Clients, connection: int, group: str) -> Step:
    """Request 35 of a producer."""
    left = {found: client for found, client in clients.producers.get(group, {}).items() if found != connection}
    producers = {name: found for name, found in clients.producers.items() if name != group} | ({group: left} if left else {})
    return Step(replace(clients, producers=producers))


def on_close(clients: Clients, connection: int) -> Step:
    """A connection has closed. HA-BT-44 "the consumers that remain in its groups MUST be told".

    HA-BT-53 "the end of a connection frees none": of its locks.
    """
    notified: tuple[tuple[int, str], ...] = ()
    for group in list(clients.consumers):
        if connection in clients.consumers[group].connections:
            clients, left = _without(clients, connection, group)
            notified += _all_of(left, group)
    for group in list(clients.producers):
        clients = on_unregister_producer(clients, connection, group).clients
    return Step(clients, notified)


def on_scan(clients: Clients, now: int) -> Step:
    """HA-BT-45 "MUST look every 10 s": one look. It "tells nobody"."""
    closed: set[int] = set()
    for group in list(clients.producers):
        for connection, client in clients.producers[group].items():
            if client.seen + EXPIRED_AFTER < now:
                clients = on_unregister_producer(clients, connection, group).clients
                closed.add(connection)
    for group in list(clients.consumers):
        for connection, client in clients.consumers[group].connections.items():
            if client.seen + EXPIRED_AFTER < now:
                clients, _ = _without(clients, connection, group)
                closed.add(connection)
    return Step(clients, closed=tuple(sorted(closed)))


def client_ids(clients: Clients, group: str) -> list[str]:
    """Request 38. HA-BT-46 "MUST answer the client ids of the group's consumers": none stands for SYSTEM_ERROR."""
    found = clients.consumers.get(group)
    return [] if found is None else [client.client_id for client in found.connections.values()]


def lock(clients: Clients, group: str, queues: list[str], client_id: str, now: int, limit: int) -> tuple[Clients, list[str]]:
    """Request 41. HA-BT-50 "MUST lock each queue of its `mqSet` for the client if no other client of the group holds it".

    HA-BT-51 "MUST be free for another client": a lock of another that is too old. limit: of all locks; where they are as many,
    those that are too old are forgotten.
    """
    locks = dict(clients.locks)
    got = []
    for queue in queues:
        if (group, queue) not in locks and len(locks) >= limit:
            locks = {key: held for key, held in locks.items() if held[1] + LOCK_LIVES >= now}
        if (group, queue) not in locks and len(locks) >= limit:
            continue
        holder, since = locks.get((group, queue), (client_id, now))
        if holder == client_id or since + LOCK_LIVES < now:
            locks[group, queue] = (client_id, now)
            got.append(queue)
    return replace(clients, locks=locks), got


def unlock(clients: Clients, group: str, queues: list[str], client_id: str) -> Clients:
    """Request 42. HA-BT-52 "MUST free the queues that the client holds; it MUST free none that another client holds"."""
    freed = {(group, queue) for queue in queues if clients.locks.get((group, queue), ("", 0))[0] == client_id}
    return replace(clients, locks={key: held for key, held in clients.locks.items() if key not in freed})


def _without(clients: Clients, connection: int, group: str) -> tuple[Clients, ConsumerGroup]:
    """The clients without a connection of a group, and what is left of the group. A group without connections is gone."""
    old = clients.consumers[group]
    left = replace(old, connections={found: client for found, client in old.connections.items() if found != connection})
    others = {name: found for name, found in clients.consumers.items() if name != group}
    return replace(clients, consumers=others | ({group: left} if left.connections else {})), left


def _all_of(group: ConsumerGroup, name: str) -> tuple[tuple[int, str], ...]:
    return tuple((connection, name) for connection in group.connections)
