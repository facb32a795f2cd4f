"""The discrete states of what a name server holds, and the transitions of a step: for the event log and for transitions.json.

broker_entry   an address     unlisted ---> master, slave, masterless ---> overdue ---> unlisted
topic_entry    a topic of a group       absent <--> writable <--> unwritable
text_entry     a text                   absent <--> held
name_server    the whole table          empty <--> listing, and grace: nothing expires yet after a pause
"""

import zlib
from collections.abc import Iterable, Mapping
from enum import Enum

from rocketmq_ha.reference.name_server import NameServer
from rocketmq_ha.reference.route_table import MASTER_ID, PERM_WRITE, QueueData, RouteTable
from rocketmq_ha.reference.step import Transition


class BrokerEntryState(Enum):
    """An address in the table of a name server. MASTERLESS: the group has no master, so a slave is told of none."""

    UNLISTED = "unlisted"
    MASTER = "master"
    SLAVE = "slave"
    MASTERLESS = "masterless"
    OVERDUE = "overdue"  # nothing has come from it for too long, and the name server has not looked since


class TopicEntryState(Enum):
    ABSENT = "absent"
    WRITABLE = "writable"
    UNWRITABLE = "unwritable"


class TextEntryState(Enum):
    ABSENT = "absent"
    HELD = "held"


class NameServerState(Enum):
    EMPTY = "empty"
    LISTING = "listing"
    GRACE = "grace"


def of_broker(table: RouteTable, addr: str, now_ms: int) -> BrokerEntryState:
    broker = table.brokers.get(addr)
    if broker is None:
        return BrokerEntryState.UNLISTED
    if now_ms - broker.last_update_ms > broker.timeout_ms:
        return BrokerEntryState.OVERDUE
    if broker.broker_id == MASTER_ID:
        return BrokerEntryState.MASTER
    has_master = any(
        other.broker_name == broker.broker_name and other.broker_id == MASTER_ID for other in table.brokers.values()
    )
    return BrokerEntryState.SLAVE if has_master else BrokerEntryState.MASTERLESS


def of_topic(queue: QueueData | None) -> TopicEntryState:
    if queue is None:
        return TopicEntryState.ABSENT
    return TopicEntryState.WRITABLE if queue.perm & PERM_WRITE else TopicEntryState.UNWRITABLE


def of_text(server: NameServer, namespace: str, key: str) -> TextEntryState:
    return TextEntryState.HELD if key in server.texts.table.get(namespace, {}) else TextEntryState.ABSENT


def of_server(server: NameServer) -> NameServerState:
    if server.pauses.until_ms is not None:
        return NameServerState.GRACE
    return NameServerState.LISTING if server.table.brokers else NameServerState.EMPTY


def row(actor: str, instance: int, event: str, before: Enum, after: Enum, clauses: tuple[str, ...], nbytes: int) -> Transition:
    """A transition without an offset in a log."""
    return Transition(actor, instance, event, before.value, after.value, -1, nbytes, -1, 0, tuple(dict.fromkeys(clauses)))


def entry(server: int, *key: str) -> int:
    """The number of an entry of a name server. The rows about the entry have it, and those of no other entry."""
    return zlib.crc32("\0".join((str(server), *key)).encode()) >> 1  # 31 bits: the column is an int32


def brokers(
    server: int,
    event: str,
    before: RouteTable,
    after: RouteTable,
    times: tuple[int, int],
    subject: str,
    clauses: tuple[str, ...],
) -> Iterable[Transition]:
    """The brokers whose state has changed, and the one that the event is about.

    Args:  times: the clock before and after. subject: an address, or "" where the event is about none or about all.
    """
    for addr in sorted({*before.brokers, *after.brokers, *([subject] if subject else [])}):
        old, new = of_broker(before, addr, times[0]), of_broker(after, addr, times[1])
        if addr == subject:
            yield row("broker_entry", entry(server, addr), event, old, new, clauses, 0)
        elif old is not new:
            yield row("broker_entry", entry(server, addr), event if not subject else f"other_{event}", old, new, clauses, 0)


def topics(
    server: int,
    event: str,
    before: RouteTable,
    after: RouteTable,
    subjects: Iterable[tuple[str, str]],
    clauses: tuple[str, ...],
) -> Iterable[Transition]:
    """The topics of groups whose queues have changed, and those that the event is about."""
    if before.queues is after.queues and not subjects:
        return
    changed = {key for key in {*before.queues, *after.queues} if before.queues.get(key) != after.queues.get(key)}
    for key in sorted({*changed, *subjects}):
        old, new = of_topic(before.queues.get(key)), of_topic(after.queues.get(key))
        yield row("topic_entry", entry(server, *key), event, old, new, clauses, 0)


def texts(server: int, event: str, before: NameServer, after: NameServer, key: tuple[str, str], clauses: tuple[str, ...]) -> (
    Transition
):  # fmt: skip
    return row("text_entry", entry(server, *key), event, of_text(before, *key), of_text(after, *key), clauses, 0)


def all_texts(server: NameServer) -> list[tuple[str, str]]:
    """The namespaces and keys that a server has."""
    table: Mapping[str, Mapping[str, str]] = server.texts.table
    return sorted((namespace, key) for namespace, found in table.items() for key in found)
