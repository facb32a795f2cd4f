"""How far each consumer group has come in each queue: a table from (topic@group, queue id) to an offset.

Spec: HA-BT-30 to HA-BT-35, HA-BT-60, HA-BT-76.  Source: 4.9.8 ConsumerOffsetManager, ConsumerManageProcessor.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_ha.reference.broker_tables import Settings
from rocketmq_ha.reference.replace import replace

Key = tuple[str, int]  # topic@group, queue id


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets in memory, and those in the file with the time when it is written next."""

    settings: Settings
    in_memory: Mapping[Key, int]
    on_disk: Mapping[Key, int]
    persist_at: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the store says of a queue: its min offset, -1 for none; how far its first message is from the log's end, or None.

    first_visible: the queue offset behind the messages that are hidden. HA-BT-80.
    """

    min_offset: int = -1
    first_message_behind: int | None = None
    first_visible: int = 0


def start(settings: Settings, on_disk: Mapping[Key, int], now: int) -> Offsets:
    """A broker starts. HA-BT-33 "MUST be written 10 s after the start"."""
    return Offsets(settings, on_disk, on_disk, now + 10_000)


def commit(offsets: Offsets, topic: str, group: str, queue_id: int, offset: int) -> Offsets | None:
    """Request 15. HA-BT-30 "MUST store the offset whatever it is". None: refused by a bound (HA-BT-60)."""
    key = (f"{topic}@{group}", queue_id)  # HA-BT-32 "MUST be kept under `topic@group`"
    if len(key[0]) > offsets.settings.max_offset_key_length:
        return None
    table = {**offsets.in_memory, key: offset}
    is_new = key not in offsets.in_memory  # an offset of a queue that is there always has room
    return None if is_new and is_beyond(offsets.settings, table) else replace(offsets, in_memory=table)


def is_beyond(settings: Settings, table: Mapping[Key, int]) -> bool:
    """Whether a table breaks a bound: HA-BT-60 "MUST bound each of its tables"; HA-BT-76 "of more than 16,000,000 bytes"."""
    return len(table) > settings.max_offset_entries or greatest_size(table) > settings.max_offset_size


def greatest_size(table: Mapping[Key, int]) -> int:
    """Bytes of the answer to 43. HA-BT-76 "each offset counts as 20 characters", and each entry with a comma behind it."""
    keys = {key for key, _ in table}
    texts = [json.dumps(key, ensure_ascii=False) + ":{}," for key in keys]
    texts += [f'"{queue_id}":{-(2**63)},' for _, queue_id in table]
    return len('{"offsetTable":{}}') + sum(len(text.encode()) for text in texts)


def query(offsets: Offsets, topic: str, group: str, queue_id: int, queue: QueueState, memory: int) -> int | None:
    """Request 14. HA-BT-31 "MUST answer the stored offset if it is 0 or more". None: the answer is QUERY_NOT_FOUND.

    Args:  memory: the bound of HA-R-21, bytes.
    """
    stored = offsets.in_memory.get((f"{topic}@{group}", queue_id))
    if stored is not None and stored >= 0:
        return stored
    is_on_disk = queue.first_message_behind is not None and queue.first_message_behind > memory
    return None if queue.min_offset > queue.first_visible or is_on_disk else queue.first_visible


def topics_of(offsets: Offsets, group: str) -> list[str]:
    """The topics in which a group has committed. HA-BT-32 "a key with another number of `@` belongs to no topic"."""
    return sorted({topic for topic, found in _plain_keys(offsets) if found == group})


def groups_of(offsets: Offsets, topic: str) -> list[str]:
    """The groups that have committed in a topic."""
    return sorted({group for found, group in _plain_keys(offsets) if found == topic})


def clone(offsets: Offsets, topic: str, source: str, target: str) -> Offsets | None:
    """HA-BT-35 "MUST copy the offsets of one group in a topic to another group". None: refused by a bound."""
    old, new = f"{topic}@{source}", f"{topic}@{target}"
    copied = {(new, queue_id): offset for (key, queue_id), offset in offsets.in_memory.items() if key == old}
    if not copied:
        return offsets
    table = {key: offset for key, offset in offsets.in_memory.items() if key[0] != new} | copied
    is_refused = is_beyond(offsets.settings, table) or len(new) > offsets.settings.max_offset_key_length
    return None if is_refused else replace(offsets, in_memory=table)


def remove_group(offsets: Offsets, group: str) -> Offsets:
    """HA-BT-24 "and its offsets in all topics": of a group that is deleted."""
    gone = {f"{topic}@{group}" for topic in topics_of(offsets, group)}
    return replace(offsets, in_memory={key: offset for key, offset in offsets.in_memory.items() if key[0] not in gone})


def on_tick(offsets: Offsets, now: int, interval: int = 5_000) -> Offsets:
    """HA-BT-33 "then every `flushConsumerOffsetInterval` (5 s)". HA-BT-34 "no timer removes them"."""
    if now < offsets.persist_at:
        return offsets
    return replace(offsets, on_disk=offsets.in_memory, persist_at=now + interval)


def progress(
    offsets: Offsets, group: str, queues: Mapping[str, list[int]], topic: str, topic_list: str, subscribed: set[str]
) -> dict[Key, list[int]]:
    """Request 208. HA-BT-63 "MUST answer for each read queue of the topics in which the group has committed".

    Args:  queues: of each topic of the broker, the max offsets of its read queues. topic: the one that is asked for, or "".
           topic_list: HA-BT-63 "names with `;` between them, stands in place of `topic`, and of what is subscribed to".
           subscribed: the topics to which the group's consumers subscribe; none if it has no consumers.
    Returns: (topic, queue id) -> max offset and the group's offset.
    """
    listed = {name for name in topic_list.split(";") if name} if topic_list.strip() else set()
    found = {}
    for name in sorted(listed) or ([topic] if topic else topics_of(offsets, group)):
        if name in queues and (listed or name in subscribed or not subscribed):
            for queue_id, max_offset in enumerate(queues[name]):
                found[name, queue_id] = [max_offset, max(0, offsets.in_memory.get((f"{name}@{group}", queue_id), 0))]
    return found


def reset(offsets: Offsets, group: str, topic: str, at_time: list[int], is_force: bool) -> list[int] | None:
    """Request 222. HA-BT-66 "without `isForce` it is not moved forward". None: the group has no offset in one of the queues.

    Args:  at_time: for each write queue of the topic, the offset of the time in the request.
    """
    keys = [(f"{topic}@{group}", queue_id) for queue_id in range(len(at_time))]
    if any(offsets.in_memory.get(key, -1) == -1 for key in keys):
        return None
    return [wanted if is_force else min(wanted, offsets.in_memory[key]) for key, wanted in zip(keys, at_time, strict=True)]


def reset_queue(
    offsets: Offsets, group: str, topic: str, queue_id: int, at_time: int, named: int, min_offset: int, max_offset: int
) -> int | None:
    """Request 222 for one queue. HA-BT-79 "MUST move this queue alone"; "An offset that the queue does not have is refused".

    Args:  at_time: the offset of the time in the request. named: its `offset`, or -1.
    Returns: the offset that the consumers are told; None for a refusal, also where the group has no offset in the queue.
    """
    wanted = at_time if named == -1 else named
    if offsets.in_memory.get((f"{topic}@{group}", queue_id), -1) == -1:
        return None
    return wanted if named == -1 or max(0, min_offset) <= wanted <= max_offset else None


def offsets_object(table: Mapping[Key, int]) -> dict[str, dict[str, dict[int, int]]]:
    """The object of consumerOffset.json and of the answer to 43. HA-MD-23 "MUST have `offsetTable`, from `topic@group`"."""
    objects: dict[str, dict[int, int]] = {}
    for (key, queue_id), offset in table.items():
        objects.setdefault(key, {})[queue_id] = offset
    return {"offsetTable": objects}


def _plain_keys(offsets: Offsets) -> set[tuple[str, str]]:
    keys = {key for key, _ in offsets.in_memory if key.count("@") == 1}
    return {(key[: key.index("@")], key[key.index("@") + 1 :]) for key in keys}
