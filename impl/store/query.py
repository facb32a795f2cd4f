"""Find messages by key: the index gives candidates, and the messages themselves confirm them.

The index holds hashes and seconds only. So the query reads each candidate and compares its topic, key and time. Records behind
the last message in the index are searched one by one.

Spec: HA-ST-44 "A query MUST find messages by key within a span of store times".
Source: 4.9.8 DefaultMessageStore.queryMessage.
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from rocketmq_ha.impl.store.derived.index_keys import UNIQUE_TYPE
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, Message

Found = tuple[int, int, Message]  # offset, size in bytes, message
FOREVER: Final = 2**63 - 1  # ms
_SECOND_MS: Final = 1000


def has_key(message: Message, topic: str, key: str) -> bool:
    """Return True if a message belongs into the index under a topic and key. The index is not read."""
    if message.topic != topic or message.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return False
    properties = message.properties
    return key == properties.get("UNIQ_KEY") or key in properties.get("KEYS", "").split(" ")


def query(
    index: IndexService | None,
    message_at: Callable[[int], Found | None],
    topic: str,
    key: str,
    *,
    max_num: int,
    begin: int = 0,
    end: int = FOREVER,
    unindexed: Iterable[Found] = (),
    most_read: int | None = None,
) -> list[Found]:
    """The newest messages of a topic with a key that were stored between two times, both included, oldest first.

    Spec: HA-ST-85 "MUST give the newest of the messages that match"; HA-ST-86 "MUST be thrown away by their reader".

    Args:  index: None for a store that has none. begin, end: ms. unindexed: records that the index does not cover, ascending.
           message_at: returns the message at an offset; None if the log no longer has it. most_read: how many candidates are
           read at most; None for all.
    """
    read = {
        found[0]: found for found in unindexed if has_key(found[2], topic, key) and begin <= found[2].store_timestamp <= end
    }
    chosen = sorted(read)[-max_num:] if max_num > 0 else []
    candidates = _offsets(index, topic, key, begin - _SECOND_MS + 1, end) if index is not None else ()
    for offset in islice(candidates, most_read):
        if len(chosen) >= max_num:
            break
        found = message_at(offset) if offset not in read else None  # an index may name a message twice
        if found is not None and has_key(found[2], topic, key) and begin <= found[2].store_timestamp <= end:
            read[offset] = found
            chosen.append(offset)
    return [read[offset] for offset in sorted(chosen)]


def _offsets(index: IndexService, topic: str, key: str, begin: int, end: int) -> Iterable[int]:
    """Candidates, newest first: under the key, and under the form that some releases use for unique keys.

    Spec: HA-ST-48 "A query for a key MUST find it under `topic#key` and, as a unique key, under `topic#U#key`".
    """
    answers = (index.offsets(topic, each, begin, end) for each in (key, f"{UNIQUE_TYPE}{key}"))
    return heapq.merge(*answers, reverse=True)
