"""Judge a store that is opened after a crash, and again after that.

No check asks the store how it recovered. All of its log, queues and index is compared with the messages put and the promises
made, through the public API.
"""

import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from workload import Clock, CrashPoint, Record, Shape

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE

_QUERIES: Final = 6
_NUMBERED: Final = re.compile(r"(commitlog|consumequeue/[^/]+/[^/]+|index)/")
_NUMBER: Final = re.compile(r"(commitlog|consumequeue/[^/]+/[0-9]+)/[0-9]{20}|index/[0-9]{17}")
_SHARED_KEYS: Final = ("k0", "k1", "k2")


class Broken(Exception):  # noqa: N818
    """The store broke a promise; the text names it."""


def judge(point: CrashPoint, records: Sequence[Record], shape: Shape, clock: Clock, work: Path, rng: random.Random) -> None:
    """Open the store twice on the files that the crash left, with puts in between.

    Args:  records: all messages that the log may hold, ascending. work: a directory in which the name `image` is free.
    Raises: Broken.
    """
    root = work / "image"
    check_names(point.image.files)
    point.image.write(root)
    doing = "open after the crash"
    try:
        with MessageStore.open(root, shape.options) as store:
            doing = "after the crash"
            held = check(store, records, rng, point.min_offset)
            _check_promises(store, point)
            doing = "put after the crash"
            held = _go_on(store, held, shape, clock, rng)
            check(store, held, rng, point.min_offset)
            doing = "close after the crash"
        doing = "open after a clean stop"
        with MessageStore.open(root, shape.options) as store:
            doing = "after a clean stop"
            if check(store, held, rng, point.min_offset) != held:
                raise Broken("messages that were put after the crash are gone")
    except Broken as broken:
        raise Broken(f"{doing}: {broken}") from broken
    except Exception as error:  # neither an open nor anything else may fail
        raise Broken(f"{doing}: {type(error).__name__}: {error}".replace(f"{root}/", "")) from error
    finally:
        shutil.rmtree(root)


def check_names(names: Iterable[str]) -> None:
    """Check the names of files: a broker takes each file in these folders for its own, and parses its name as a number.

    Args:  names: paths in the store. Raises: Broken.
    """
    for name in names:
        if _NUMBERED.match(name) and not _NUMBER.fullmatch(name):
            raise Broken(f"a file {name}, which no broker can load")


def check(store: MessageStore, records: Sequence[Record], rng: random.Random, expired: int = 0) -> list[Record]:
    """Check that log, queues and index agree with each other and hold only messages that were put.

    Args:  expired: messages before this offset were deleted. A crash may bring their file back, but not their entries.
    Returns: the records that the log has. Raises: Broken.
    """
    first, end = store.min_offset, store.max_offset
    held = [record for record in records if first <= record.offset and record.end <= end]
    _check_log(store, held, end)
    derived = [record for record in held if record.offset >= expired]
    _check_queues(store, derived, expired)
    _check_index(store, derived, rng, max(first, expired))
    return held


def _check_promises(store: MessageStore, point: CrashPoint) -> None:
    if store.max_offset < point.durable:
        raise Broken(f"flushed to {point.durable}, but the log ends at {store.max_offset}")
    if store.min_offset > point.min_offset:
        raise Broken(f"nothing from {point.min_offset} on was deleted, but the log begins at {store.min_offset}")


def _check_log(store: MessageStore, held: Sequence[Record], end: int) -> None:
    expected = iter(held)
    position = store.min_offset
    try:
        for offset, size, message in store.log.records():
            record = next(expected, None)
            found = bytes(store.log.data_at(offset, size) or b"")
            if record is None or (offset, found) != (record.offset, record.data):
                raise Broken(f"the log has at {offset} {message!r:.300}, put was {record!r:.300}")
            position = offset + size
    except RocketmqHaError as error:
        raise Broken(f"the log behind {position} cannot be read: {error}") from error
    missing = next(expected, None)
    if missing is not None:
        raise Broken(f"the log has no record at {missing.offset}, behind {position}; it ends at {end}")
    if position != end:
        blank = store.log.data_at(position, 8)
        told = (end - position).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big")
        if blank is None or bytes(blank) != told:
            raise Broken(f"the log ends at {end}, its last record at {position}, and no BLANK is between")
    last = store.log.queue.files[-1] if store.log.queue.files else None
    if last is not None and any(last.mapping[last.wrote_position :]):
        raise Broken(f"{last.path.name} is not zero behind the end of the log, {end}")


def _check_queues(store: MessageStore, held: Sequence[Record], expired: int) -> None:
    expected: dict[tuple[bytes, int], list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for record in held:
        if record.message.is_queued:
            key = (record.message.topic_bytes, record.message.queue_id)
            number = int.from_bytes(record.data[20:28], "big")
            expected[key].append((number, (record.offset, len(record.data), _tags_code(record.message))))
    found = {}
    for key, queue in store.queues:
        first = expected[key][0][0] if key in expected else queue.max_offset
        entries = [
            (number, tuple(entry))
            for number, entry in queue.entries(queue.min_offset)
            if number >= first or entry.offset >= expired
        ]
        if entries:
            found[key] = entries
    if found != dict(expected):
        raise Broken(f"queues: {_difference(found, dict(expected))}")
    for (topic, queue_id), entries in expected.items():
        number, last = entries[0][0], entries[-1][0]
        while number <= last:
            result = store.get(topic.decode(), queue_id, number)
            offsets = [offset for index, (offset, _, _) in entries if number <= index < result.next_begin_offset]
            if result.status is not GetMessageStatus.FOUND or [one.physical_offset for one in result.messages()] != offsets:
                raise Broken(f"get {topic.decode()} {queue_id} {number}: {result.status}, expected messages at {offsets}")
            number = result.next_begin_offset


def _check_index(store: MessageStore, held: Sequence[Record], rng: random.Random, first: int) -> None:
    expected = [(_key_hash(f"{record.message.topic}#{key}"), record.offset) for record in held for key in _keys(record.message)]
    found = [entry[:2] for file in store.index.files for entry in file.entries() if entry[1] >= first]
    if found != expected:
        raise Broken(f"index: {_difference(dict(enumerate(found)), dict(enumerate(expected)))}")
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in held:
        for key in _keys(record.message):
            by_key[record.message.topic, key].append(record.offset)
    for topic, key in rng.sample(sorted(by_key), min(_QUERIES, len(by_key))):
        offsets = [offset for offset, _, _ in store.query(topic, key, max_num=1 << 20) if offset >= first]
        raw = sorted(set(store.index.offsets(topic, key, 0, 1 << 62)) & set(by_key[topic, key]))
        if offsets != by_key[topic, key] or raw != by_key[topic, key]:
            raise Broken(f"query {topic} {key}: {offsets}, in the index {raw}, expected {by_key[topic, key]}")


def _go_on(store: MessageStore, held: list[Record], shape: Shape, clock: Clock, rng: random.Random) -> list[Record]:
    """Put messages that the store must accept, in random queues: each comes behind the last one of its queue."""
    held = list(held)
    clock.ms += 1
    counts: dict[tuple[str, int], int] = {}
    for record in held:
        if record.message.is_queued:
            counts[record.message.topic, record.message.queue_id] = int.from_bytes(record.data[20:28], "big") + 1
    for _ in range(rng.choice((1, 4, 12))):
        topic, queue_id = rng.choice(shape.queues)
        number = rng.randrange(10**9)
        message = Message(topic, rng.randbytes(rng.choice((0, 90, 1000))), queue_id, properties_string=f"KEYS\1after{number}")
        append = store.put(message).append
        expected = counts.get((topic, queue_id))
        if expected is not None and append.queue_offset != expected:
            raise Broken(f"a message of {topic} {queue_id} got queue offset {append.queue_offset}, expected {expected}")
        counts[topic, queue_id] = append.queue_offset + 1
        placed = replace(message, store_timestamp=append.store_timestamp, store_host=shape.options.store_host)
        held.append(Record(append.offset, encode(placed, append.queue_offset, append.offset), message))
    store.dispatcher.dispatch_all()
    return held


def _keys(message: Message) -> list[str]:
    if message.sys_flag & 0xC == 0xC:
        return []
    properties = message.properties
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    return unique + properties.get("KEYS", "").split()


def _java_hash(text: str) -> int:
    value = 0
    for character in text:  # ASCII: one UTF-16 unit each
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def _tags_code(message: Message) -> int:
    return _java_hash(message.properties.get("TAGS", ""))


def _key_hash(text: str) -> int:
    value = abs(_java_hash(text))
    return value if value < 1 << 31 else 0


def _difference(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    for key in {**expected, **found}:
        if found.get(key) != expected.get(key):
            return f"at {key} found {found.get(key)!s:.400}, expected {expected.get(key)!s:.400}"
    return "in another order"
