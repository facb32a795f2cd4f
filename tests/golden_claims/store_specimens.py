"""The pieces of a store that a claim may be about: records, queue entries, index entries, checkpoint and the rest.

The model takes records apart (reference/), never the implementation. What a claim compares them with comes from somewhere
else: from what RocketMQ's own client reported of the same message, from another file of the same store, or from the
arithmetic of the claim.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.reference import dispatch_request
from rocketmq_ha.reference.dispatch_request import PLAIN_KEYS, TAG_KEYS
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.release_table import value_of

Row = dict[str, Any]
BLANK_ENTRY: Final = (0, (1 << 31) - 1, 0)  # of a consume queue: offset, size, tags code
ENTRY_SIZE, INDEX_HEADER_SIZE, SLOT_SIZE, INDEX_ENTRY_SIZE = 20, 40, 4, 20


def number(data: bytes, position: int, width: int) -> int:
    return int.from_bytes(data[position : position + width], "big", signed=True)


@dataclass(frozen=True, eq=False)
class Store:
    """What a broker left on its disk."""

    release: str
    name: str  # "4.9.8", "4.9.8/unusual", "4.9.8/unusual slave"
    files: dict[str, bytes]
    manifest: Row
    told: dict[int, Row]  # commit-log offset -> what the client reported; empty for a slave's store
    master: "Store | None" = None  # of a slave's store

    @cached_property
    def log(self) -> Log:
        names = self.names("commitlog")
        return Log(len(self.files[names[0]]), int(Path(names[0]).name), b"".join(self.files[name] for name in names))

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(f"{folder}/"))

    def bytes_at(self, offset: int, size: int) -> bytes:
        assert self.log.base is not None
        return self.log.data[offset - self.log.base : offset - self.log.base + size]

    @cached_property
    def parts(self) -> "list[StoredRecord | Blank]":
        """The records and BLANKs, from the first byte of the log to where the bytes are zero."""
        assert self.log.base is not None
        found: list[StoredRecord | Blank] = []
        offset, end = self.log.base, self.log.base + len(self.log.data)
        before: int | None = None
        while offset < end and (size := number(self.bytes_at(offset, 4), 0, 4)):
            magic = int.from_bytes(self.bytes_at(offset + 4, 4), "big")
            if magic == constants.BLANK_MAGIC_CODE:
                room = self.log.file_size - offset % self.log.file_size
                found.append(Blank(self, offset, room))
                size = room
            else:
                parsed = dispatch_request.record_at(self.log, offset)
                if parsed is None:
                    raise ValueError(f"{self.name}: the model reads no record at {offset}")
                found.append(StoredRecord(self, offset, self.bytes_at(offset, size), parsed[0], before))
            offset += size
            before = offset
        return found

    @cached_property
    def end(self) -> int:
        last = self.parts[-1]
        return last.offset + last.size

    @cached_property
    def records(self) -> "dict[int, StoredRecord]":
        return {part.offset: part for part in self.parts if isinstance(part, StoredRecord)}

    @cached_property
    def queued_records(self) -> "list[StoredRecord]":
        return [record for record in self.records.values() if dispatch_request.is_queued(record.record.sys_flag)]

    @cached_property
    def queue_entries(self) -> "list[QueueEntry]":
        """Of each queue those from its first file on, until the first that is all zero."""
        found: list[QueueEntry] = []
        queues: dict[tuple[str, int], list[str]] = defaultdict(list)
        for name in self.names("consumequeue"):
            _, topic, queue_id, _ = name.split("/")
            queues[topic, int(queue_id)].append(name)
        for (topic, queue_id), names in queues.items():
            base = int(Path(names[0]).name)
            data = b"".join(self.files[name] for name in names)
            real = 0
            before: QueueEntry | None = None
            for at in range(0, len(data), ENTRY_SIZE):
                if not any(data[at : at + ENTRY_SIZE]):
                    break
                entry = QueueEntry(self, topic, queue_id, (base + at) // ENTRY_SIZE, data[at : at + ENTRY_SIZE], real, before)
                before = entry
                found.append(entry)
                real += not entry.is_blank
        return found

    @cached_property
    def queued(self) -> "dict[int, QueueEntry]":
        """By the offset of the message that an entry names."""
        return {entry.offset: entry for entry in self.queue_entries if not entry.is_blank}

    @cached_property
    def index_files(self) -> "list[IndexFile]":
        found: list[IndexFile] = []
        for name in self.names("index"):
            found.append(IndexFile(self, Path(name).name, self.files[name], found[-1] if found else None))
        return found

    @cached_property
    def hashes(self) -> "dict[int, Counter[int]]":
        """The hashes that the index has of each message, over all files."""
        found: dict[int, Counter[int]] = defaultdict(Counter)
        for file in self.index_files:
            for entry in file.entries:
                found[entry.offset][entry.key_hash] += 1
        return found

    @property
    def key_set(self) -> str:
        """HA-ST-47, as versions.toml has it for the release."""
        return TAG_KEYS if "TAGS" in value_of("keys of the index", self.release) else PLAIN_KEYS


@dataclass(frozen=True, eq=False)
class StoredRecord:
    """A message in a commit log."""

    store: Store
    offset: int
    raw: bytes
    record: Record
    before: int | None  # where what stands before it ends; None for the first

    @property
    def size(self) -> int:
        return len(self.raw)

    @cached_property
    def told(self) -> Row | None:
        return self.store.told.get(self.offset)

    @cached_property
    def topic(self) -> str:
        return self.record.topic.decode()

    @cached_property
    def properties(self) -> dict[str, str]:
        return dispatch_request.parse_properties(self.record.properties)

    def __str__(self) -> str:
        return f"record at {self.offset}"


@dataclass(frozen=True, eq=False)
class Blank:
    """The rest of a commit-log file."""

    store: Store
    offset: int
    size: int

    def __str__(self) -> str:
        return f"BLANK at {self.offset}"


@dataclass(frozen=True, eq=False)
class LogFile:
    """One file of a commit log, and those beside it."""

    store: Store
    name: str
    names: list[str]

    @property
    def size(self) -> int:
        return len(self.store.files[f"commitlog/{self.name}"])

    def __str__(self) -> str:
        return f"commitlog/{self.name}"


@dataclass(frozen=True, eq=False)
class QueueFile:
    """One file of a consume queue."""

    store: Store
    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, eq=False)
class QueueEntry:
    """One entry of a consume queue: `number` is its place in the queue, `real` says how many of messages stand before it."""

    store: Store
    topic: str
    queue_id: int
    number: int
    raw: bytes
    real: int
    before: "QueueEntry | None"

    @property
    def offset(self) -> int:
        return number(self.raw, 0, 8)

    @property
    def size(self) -> int:
        return number(self.raw, 8, 4)

    @property
    def tags_code(self) -> int:
        return number(self.raw, 12, 8)

    @property
    def is_blank(self) -> bool:
        return (self.offset, self.size, self.tags_code) == BLANK_ENTRY

    @property
    def message(self) -> StoredRecord | None:
        return self.store.records.get(self.offset)

    def __str__(self) -> str:
        return f"entry {self.number} of {self.topic}/{self.queue_id}"


@dataclass(frozen=True, eq=False)
class IndexFile:
    """One index file. How many slots and entries it has room for is nowhere in it: the broker's settings say it."""

    store: Store
    name: str
    data: bytes
    before: "IndexFile | None"

    @property
    def slots(self) -> int:
        return int(self.store.manifest["master_conf"]["maxHashSlotNum"])

    @property
    def room(self) -> int:
        return int(self.store.manifest["master_conf"]["maxIndexNum"])

    @property
    def index_count(self) -> int:
        return number(self.data, 36, 4)

    def slot(self, index: int) -> int:
        return number(self.data, INDEX_HEADER_SIZE + index * SLOT_SIZE, SLOT_SIZE)

    @cached_property
    def entries(self) -> "list[IndexEntry]":
        """From entry 1 on to the last that is not all zero; entry 0 must be."""
        found = []
        newest: dict[int, int] = {}
        base = INDEX_HEADER_SIZE + self.slots * SLOT_SIZE
        for place in range(1, self.room):
            raw = self.data[base + place * INDEX_ENTRY_SIZE : base + (place + 1) * INDEX_ENTRY_SIZE]
            if not any(raw):
                break
            slot = number(raw, 0, 4) % self.slots
            found.append(IndexEntry(self, place, raw, newest.get(slot, 0)))
            newest[slot] = place
        return found

    @property
    def zeroth(self) -> bytes:
        base = INDEX_HEADER_SIZE + self.slots * SLOT_SIZE
        return self.data[base : base + INDEX_ENTRY_SIZE]

    def __str__(self) -> str:
        return f"index/{self.name}"


@dataclass(frozen=True, eq=False)
class IndexEntry:
    """One entry; `newest_before` is the number of the entry of its slot that stands nearest before it, as the reader counts."""

    file: IndexFile
    place: int
    raw: bytes
    newest_before: int

    @property
    def store(self) -> Store:
        return self.file.store

    @property
    def key_hash(self) -> int:
        return number(self.raw, 0, 4)

    @property
    def offset(self) -> int:
        return number(self.raw, 4, 8)

    @property
    def seconds(self) -> int:
        return number(self.raw, 12, 4)

    @property
    def previous(self) -> int:
        return number(self.raw, 16, 4)

    def __str__(self) -> str:
        return f"entry {self.place} of {self.file}"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    store: Store
    raw: bytes

    def __str__(self) -> str:
        return "checkpoint"


@dataclass(frozen=True, eq=False)
class IndexQuery:
    """A question by key, and what RocketMQ's admin client was given."""

    store: Store
    row: Row

    def __str__(self) -> str:
        return f"query {self.row['topic']}#{self.row['key']}"


@dataclass(frozen=True, eq=False)
class Abort:
    """The size of the file `abort` of a store at some time, or None."""

    store: Store
    when: str
    size: int | None

    def __str__(self) -> str:
        return f"abort of the {self.when}"


@dataclass(frozen=True, eq=False)
class Defaults:
    """The settings that the release's own classes have where nobody sets them."""

    store: Store
    settings: dict[str, str]

    def __str__(self) -> str:
        return "defaults"


@dataclass(frozen=True, eq=False)
class SlaveConfig:
    """A table in the `config/` of a running slave, and the body of the master's last answer to the request for it."""

    store: Store
    code: int
    text: str
    answer: str

    def __str__(self) -> str:
        return f"config of code {self.code}"
