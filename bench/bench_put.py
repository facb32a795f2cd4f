"""Cost of a put, starting from a Message, with dispatch running. The floor is a plain copy of the same bytes into a mapping.

A round begins with a new store. It ends when the consume queues and the index have all messages, so that it includes all the
work that a put causes. All pages of the floor's mapping are touched before the round, as the allocation service does for the
store.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message, encode

COUNT = 32_768
BATCH = 64
KINDS = {"tags": "TAGS\x01a", "keys": "TAGS\x01a\x02KEYS\x01key%06d"}
Pairs = Callable[..., float]
Stores = list[MessageStore]


@pytest.fixture
def stores() -> Iterator[Stores]:
    """The stores of this test. Only the last one is open."""
    stores: list[MessageStore] = []
    yield stores
    for store in stores[-1:]:
        store.close()


def open_next(stores: Stores, directory: Path) -> None:
    """Close the last store, open another and put one message, because the first message makes the files."""
    for store in stores[-1:]:
        store.close()
    stores.append(MessageStore.open(directory / str(len(stores)), StoreOptions(file_size=256 << 20)))
    stores[-1].put(Message("bench", b"first"))
    assert stores[-1].wait_for_dispatch(timeout_s=60)


def make_copy(record: bytes) -> Callable[[], None]:
    """Return a function that copies the record COUNT times into a mapping."""
    mapping = mmap.mmap(-1, len(record) * COUNT)
    mapping[:] = bytes(len(mapping))

    def copy() -> None:
        size = len(record)
        for position in range(0, size * COUNT, size):
            mapping[position : position + size] = record

    return copy


def messages_of(size: int, kind: str) -> list[Message]:
    body = bytes(range(256)) * (size // 256) or bytes(range(size))
    text = KINDS[kind]
    return [
        Message("bench", body, queue_id=n % 4, properties_string=text % n if "%" in text else text, born_timestamp=1)
        for n in range(COUNT)
    ]


@pytest.mark.benchmark(group="put")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1024, 128])
def test_put(pairs: Pairs, tmp_path: Path, stores: Stores, size: int, kind: str) -> None:
    messages = messages_of(size, kind)

    def put() -> None:
        store = stores[-1]
        put = store.put
        for message in messages:
            put(message)
        assert store.wait_for_dispatch(timeout_s=60)

    pairs(put, make_copy(encode(messages[0])), items=COUNT, prepare=lambda: open_next(stores, tmp_path))


@pytest.mark.benchmark(group="put")
@pytest.mark.parametrize("size", [1024, 128])
def test_put_batch(pairs: Pairs, tmp_path: Path, stores: Stores, size: int) -> None:
    """Put batches of 64 messages, in the form in which RocketMQ's clients send them."""
    messages = messages_of(size, "tags")
    bodies, properties = [message.body for message in messages[:BATCH]], [KINDS["tags"]] * BATCH
    batches = [MessageBatch(messages[n % 4], bodies, properties) for n in range(COUNT // BATCH)]

    def put() -> None:
        store = stores[-1]
        for batch in batches:
            store.put_batch(batch)
        assert store.wait_for_dispatch(timeout_s=60)

    pairs(put, make_copy(encode(messages[0])), items=COUNT, prepare=lambda: open_next(stores, tmp_path))
