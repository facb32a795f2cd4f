"""A store with messages of all kinds, that our MessageStore writes for real brokers, and what is to be read of it."""

import hashlib
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from rocketmq import FILE_SIZE

from kit.children import Child
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.verify import DerivedSummary, verify_derived
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message, decompress_body
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from rocketmq_ha.spec.release_table import value_of

QUEUE_FILE_SIZE: Final = 6000  # as the brokers are told to have, see golden_cluster.py
GEOMETRY: Final = Geometry(1000, 4000)
OPTIONS: Final = StoreOptions(file_size=FILE_SIZE, queue_file_size=QUEUE_FILE_SIZE, index_geometry=GEOMETRY)
MESSAGES: Final = 2400
LONGEST_TOPIC: Final = "T" + "o" * 126
TOPICS: Final = {"OursOrders": 4, "Ours-Events_1": 1, LONGEST_TOPIC: 2}  # and how many queues they have
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
# Level 18 is two hours: these are not delivered while a test runs.
DELAY_LEVEL: Final = 18
HASH_SLOT_COUNT: Final = 32  # its place in the head of an index file
OUR_KEYS: Final = value_of("keys of the index", "4.9.8")

Row = tuple[str, int, int, int, int, str, str]  # as Rocketmq.read_all gives them


def knows_ipv6(release: str) -> bool:
    """Whether a release reads a record with a host of 20 bytes; an older one cuts the log there."""
    return value_of("IPv6 hosts in records", release).startswith("have 20 bytes")


def row_of(message: Message) -> Row:
    """What a consumer says of a message."""
    named = message.properties
    crc = zlib.crc32(decompress_body(message))
    place = (message.topic, message.queue_id, message.queue_offset, message.physical_offset)
    return (*place, crc, named.get("TAGS", "null"), named.get("KEYS", "null"))


def draw_message(draw: random.Random, number: int, *, is_v2: bool, knows_six: bool) -> Message:
    """One of all kinds: with tags, keys, both or neither, compressed, from an IPv6 host, delayed, part of a transaction."""
    topic = draw.choice(list(TOPICS))
    queue_id = draw.randrange(TOPICS[topic])
    body = draw.randbytes(draw.randint(1, 3000))
    named = {"UNIQ_KEY": f"7F00000100002A9F{number:016X}"}
    if draw.random() < 0.8:
        named["TAGS"] = draw.choice(("TagA", "TagB", "Größe", "订单"))
    if draw.random() < 0.9:
        named["KEYS"] = f"order-{number} " + draw.choice(("Aa", "BB", "customer-7", "订单-1"))
    sys_flag, born_host = 0, ("127.0.0.1", 40_000 + number)
    if number % 7 == 0:
        sys_flag, body = 0x301, zlib.compress(body * 2)
    if knows_six and number % 11 == 0:
        sys_flag, born_host = sys_flag | 0x10, ("2001:db8::7", 40_000 + number)
    if number % 50 == 1:
        named |= {"REAL_TOPIC": topic, "REAL_QID": str(queue_id), "DELAY": str(DELAY_LEVEL)}
        topic, queue_id = SCHEDULE_TOPIC, DELAY_LEVEL - 1
    if number % 60 == 2:
        sys_flag |= draw.choice((0x4, 0xC))  # prepared, rolled back: in no queue
    return Message(
        topic,
        body,
        queue_id=queue_id,
        flag=number,
        sys_flag=sys_flag,
        born_timestamp=time.time_ns() // 1_000_000,
        born_host=born_host,
        properties_string=format_properties(named),
        magic=MESSAGE_MAGIC_CODE_V2 if is_v2 and number % 5 == 0 else MESSAGE_MAGIC_CODE,
    )


def write_store(store_dir: Path, release: str, numbers: range, options: StoreOptions) -> int:
    """Put messages one by one and in batches, and stop cleanly. Returns: the max offset."""
    draw, is_v2, knows_six = random.Random(release), value_of("records are written as", release) != "V1", knows_ipv6(release)
    with MessageStore.open(store_dir, options) as store:
        for number in numbers:
            if number % 40 == 3:
                head = Message("OursOrders", b"", queue_id=3, born_timestamp=time.time_ns() // 1_000_000)
                bodies = [draw.randbytes(draw.randint(1, 2000)) for _ in range(8)]
                properties = [f"UNIQ_KEY\x01batch{number:09d}{n}\x02KEYS\x01batch-{number}" for n in range(8)]
                assert store.put_batch(MessageBatch(head, bodies, properties)).is_ok
            assert store.put(draw_message(draw, number, is_v2=is_v2, knows_six=knows_six)).is_ok
        return store.max_offset


def read_by_queue(store: MessageStore) -> list[Row]:
    """All messages of all queues, through the queues."""
    rows = []
    for (topic, queue_id), queue in store.queues:
        name, index = topic.decode(), queue.min_offset
        while (found := store.get(name, queue_id, index)).status is GetMessageStatus.FOUND:
            rows += [row_of(message) for message in found.messages()]
            index = found.next_begin_offset
        assert index == found.max_offset
    return sorted(rows)


def hashes(store_dir: Path, *folders: str) -> dict[str, str]:
    files = [path for folder in folders for path in sorted((store_dir / folder).rglob("*")) if path.is_file()]
    return {str(path.relative_to(store_dir)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def log_bytes(store_dir: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store_dir / "commitlog").iterdir()))[:end]


def check_whole(store_dir: Path) -> DerivedSummary:
    """Every record, entry and key is right, and none is missing."""
    with LogReader(store_dir) as reader:
        verify(reader)
        found = verify_derived(reader)
    assert (found.queue_entries_missing, found.index_keys_missing) == (0, 0)
    return found


def queues_and_index(store_dir: Path, release: str) -> dict[str, bytes]:
    """What a release and we make alike: consume queues by name, index files by their order, as the time is in their names.

    Of an index file hashSlotCount is left out where the release counts every put in it, and the index where it has other keys.
    """
    queues = {str(path.relative_to(store_dir)): path.read_bytes() for path in (store_dir / "consumequeue").glob("*/*/*")}
    if value_of("keys of the index", release) != OUR_KEYS:
        return queues
    files = [path.read_bytes() for path in sorted((store_dir / "index").iterdir())]
    if value_of("`hashSlotCount` of the index counts", release) == "every put":
        files = [data[:HASH_SLOT_COUNT] + data[HASH_SLOT_COUNT + 4 :] for data in files]
    return queues | {f"index {n}": data for n, data in enumerate(files)}


# Puts until it is killed, and says so as its log passes an offset.
WRITER: Final = """
import sys
from pathlib import Path
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.wire.message import Message
size, told_at = int(sys.argv[2]), int(sys.argv[3])
options = StoreOptions(file_size=size, queue_file_size=6000, index_geometry=Geometry(1000, 4000))
store = MessageStore.open(Path(sys.argv[1]), options)
number, is_told = 0, False
while True:
    properties = f"TAGS\\x01TagA\\x02KEYS\\x01key-{number}"
    store.put(Message("Killed", b"%9d" % number * 400, queue_id=number % 3, properties_string=properties))
    number += 1
    if not is_told and store.max_offset > told_at:
        print("there", flush=True)
        is_told = True
"""


def killed_store(store_dir: Path, size: int, told_at: int) -> None:
    """What a kill -9 of a process of ours leaves, that puts as quickly as it can and has come to an offset."""
    command = [sys.executable, "-c", WRITER, str(store_dir), str(size), str(told_at)]
    writer = Child(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == "there\n"
        writer.kill()
        writer.wait(PATIENCE_S)
    assert (store_dir / "abort").exists()
