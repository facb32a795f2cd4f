"""The locks of ordered consumption: one consumer of a group at a time consumes a queue.

A consumer renews its locks every 20 s; a lock that is not renewed for 60 s is free for others.

Spec: HA-BT-50 to HA-BT-53.  Source: 4.9.8 RebalanceLockManager.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.remoting import body_json

REBALANCE_LOCK_MAX_LIVE_TIME: Final = 60_000  # ms
FORGET_INTERVAL: Final = 10_000  # ms


class MessageQueue(NamedTuple):
    """A queue by its name in the protocol."""

    topic: str
    broker_name: str
    queue_id: int

    def fields(self) -> dict[str, object]:
        """The fields of its JSON object."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    def key(self) -> str:
        """The text of a key. HA-BT-64 "MUST be written with each key as a text that holds the queue's JSON object"."""
        return body_json.write(self.fields()).decode()


@dataclass(slots=True)
class LockEntry:
    """Who holds a queue, and when it last said so (ms)."""

    client_id: str
    last_update_timestamp: int

    def is_expired(self, now_ms: int) -> bool:
        """HA-BT-51 "more than 60 s MUST be free for another client"."""
        return now_ms - self.last_update_timestamp > REBALANCE_LOCK_MAX_LIVE_TIME


class RebalanceLockManager:
    """The locks of one broker. HA-BT-53 "in the memory of one broker". Times are of a clock that does not step."""

    def __init__(self, settings: TableSettings) -> None:
        self._settings = settings
        self._table: dict[str, dict[MessageQueue, LockEntry]] = {}
        self._count = 0
        self._forget_at = 0

    @property
    def count(self) -> int:
        """The number of locks, expired ones included."""
        return self._count

    def try_lock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks. HA-BT-50.

        Returns: those of the queues that it now holds, each once.
        """
        locked = []
        for mq in dict.fromkeys(mqs):
            if not self._has_room(group, mq):
                self._forget(now_ms)
                if not self._has_room(group, mq):
                    continue
            entry = self._table.get(group, {}).get(mq)
            if entry is None:
                self._table.setdefault(group, {})[mq] = LockEntry(client_id, now_ms)
                self._count += 1
            elif entry.client_id == client_id or entry.is_expired(now_ms):
                entry.client_id, entry.last_update_timestamp = client_id, now_ms
            else:
                continue
            locked.append(mq)
        return locked

    def _has_room(self, group: str, mq: MessageQueue) -> bool:
        return self._count < self._settings.max_locks or mq in self._table.get(group, {})

    def unlock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str) -> None:
        """HA-BT-52 "MUST free the queues that the client holds", "MUST free none that another client holds"."""
        locks = self._table.get(group, {})
        for mq in mqs:
            entry = locks.get(mq)
            if entry is not None and entry.client_id == client_id:
                del locks[mq]
                self._count -= 1
        if not locks:
            self._table.pop(group, None)

    def on_tick(self, now_ms: int) -> None:
        """Forget expired locks, every 10 s. Nobody can tell: the client that asks next gets the queue in either case."""
        if now_ms >= self._forget_at:
            self._forget_at = now_ms + FORGET_INTERVAL
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        for group, locks in list(self._table.items()):
            for mq in [mq for mq, entry in locks.items() if entry.is_expired(now_ms)]:
                del locks[mq]
                self._count -= 1
            if not locks:
                del self._table[group]
