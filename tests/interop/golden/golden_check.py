"""Read the golden store by the documented layout alone and compare it with what RocketMQ's client said of it.

`python golden_check.py spec/vectors/rocketmq-4.9.8` checks the vectors as they are; make_golden.py ends with it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import struct
import sys
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
COMPRESSED, BORN_V6, STORE_V6 = 0x1, 0x10, 0x20
COMPRESSION_TYPE, ZLIB = 0x700, (0, 0x300)
PREPARED, ROLLED_BACK, TRANSACTION = 0x4, 0xC, 0xC
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# total size, magic, body CRC, queue id, flag, queue offset, physical offset, sys flag, born timestamp
HEAD = struct.Struct(">iIIiiqqiq")
CQ_ENTRY = struct.Struct(">qiq")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of a file: 8 bytes that say so, then whatever stood there."""

    offset: int
    size: int
    zero_after_header: bool


class DiffersError(Exception):
    """The store, the manifest and the messages do not agree; the arguments say where."""


def need(claim: bool, *what: object) -> None:
    if not claim:
        raise DiffersError(*what)


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, modulo 2**32, signed."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def read_store(archive: Path) -> dict[str, bytes]:
    store = {}
    with tarfile.open(archive, "r:xz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                store[member.name] = content.read()
    return store


def concatenated(store: dict[str, bytes], folder: str) -> bytes:
    """Join a folder of files named by their start offsets; they must leave no gap."""
    log = b""
    for name in sorted(name for name in store if name.startswith(folder + "/")):
        need(int(name.rsplit("/", 1)[1]) == len(log), name, "starts at", len(log))
        log += store[name]
    return log


def read_message(data: bytes) -> Row:
    """Decode one stored message to the client's terms (see the README of the vectors for each field)."""
    size, magic, crc, queue_id, flag, queue_offset, offset, sys_flag, born_ms = HEAD.unpack_from(data)
    need(magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and size == len(data), "message header at", offset)
    at = HEAD.size

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        return data[at - length : at]

    def number(length: int) -> int:
        return int.from_bytes(take(length), signed=True)

    def host(v6: bool) -> str:
        if v6:  # as Java writes it: without leading zeros, and nothing left out
            return ":".join(f"{int.from_bytes(take(2)):x}" for _ in range(8)) + f":{number(4)}"
        return ".".join(map(str, take(4))) + f":{number(4)}"

    born_host = host(bool(sys_flag & BORN_V6))
    store_ms = number(8)
    store_host = host(bool(sys_flag & STORE_V6))
    reconsume_times = number(4)
    prepared_transaction_offset = number(8)
    stored = take(number(4))
    need(crc == zlib.crc32(stored) & 0x7FFFFFFF, "body CRC at", offset)
    topic = take(int.from_bytes(take(2 if magic == MESSAGE_MAGIC_V2 else 1))).decode()
    pairs = take(number(2)).decode().split("\x02")
    need(at == size, "message ends at", at, "of", size)
    parted = [pair.split("\x01", 1) for pair in pairs]
    properties = {pair[0]: pair[1] for pair in parted if len(pair) == 2}
    # The standard library has no LZ4 and no ZSTD: of those the client's word stands alone.
    is_readable = not sys_flag & COMPRESSED or sys_flag & COMPRESSION_TYPE in ZLIB
    body = zlib.decompress(stored) if sys_flag & COMPRESSED and is_readable else stored
    return {
        "commit_log_offset": offset,
        "store_size": size,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body_crc": crc,
        "sys_flag": sys_flag,
        "flag": flag,
        "born_timestamp_ms": born_ms,
        "store_timestamp_ms": store_ms,
        "born_host": born_host,
        "store_host": store_host,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared_transaction_offset,
        "body_size": len(body) if is_readable else None,
        "body_sha256": hashlib.sha256(body).hexdigest() if is_readable else None,
        "properties": properties,
    }


def walk(log: bytes, file_size: int, end: int) -> Iterator[Row | Blank]:
    """Yield what tiles the log from 0 to `end`; a BLANK reaches to the end of its file."""
    at = 0
    while at < end:
        size, magic = struct.unpack_from(">iI", log, at)
        room = file_size - at % file_size
        if magic == BLANK_MAGIC:
            need(size == room, "BLANK at", at, "says", size, "of", room)
            yield Blank(at, size, not any(log[at + 8 : at + size]))
        else:
            need(size + 8 <= room, "at", at, hex(magic), size)
            row = read_message(log[at : at + size])
            need(row["commit_log_offset"] == at, "physical offset", row["commit_log_offset"], "at", at)
            yield row
        at += size
    need(at == end, "the log ends at", end, "but the walk at", at)


def check_queue(store: dict[str, bytes], queue: Row, rows: list[Row]) -> None:
    """Compare one consume queue's files with the messages that the client found in that queue."""
    name = f"{queue['topic']}/{queue['queue_id']}"
    entries = list(CQ_ENTRY.iter_unpack(concatenated(store, f"consumequeue/{name}")))
    need(len(rows) == queue["max_queue_offset"], name, len(rows), queue)
    for index, row in enumerate(sorted(rows, key=lambda row: int(row["queue_offset"]))):
        offset, size, code = entries[index]
        need((index, offset, size) == (row["queue_offset"], row["commit_log_offset"], row["store_size"]), name, index)
        if queue["topic"] != SCHEDULE_TOPIC:  # there it is the time of delivery
            need(code == (java_hash(row["tags"]) if row["tags"] else 0), name, index, "tags code", code)
    need(not any(any(entry) for entry in entries[len(rows) :]), name, "has entries beyond its end")


def check(vectors: Path) -> Row:
    """Return the counts of a store that agrees in every field.

    Raises: DiffersError, at the first thing that does not.
    """
    manifest = json.loads((vectors / "manifest.json").read_text())
    lines = lzma.decompress((vectors / "messages.jsonl.xz").read_bytes()).decode().splitlines()
    told: dict[int, Row] = {}
    for row in map(json.loads, lines):
        del row["via"]  # how the client came by it; the store cannot know
        told[row["commit_log_offset"]] = row
    need(len(told) == len(lines), "two messages at one offset")
    store = read_store(vectors / "store.tar.xz")
    need(store.keys() == manifest["files"].keys(), "files", store.keys() ^ manifest["files"].keys())
    for name, content in store.items():
        need(hashlib.sha256(content).hexdigest() == manifest["files"][name]["sha256"], name, "sha256")

    # From 5.0 on the client clears the bit of a body that it has decompressed.
    client_clears = manifest["jars"]["rocketmq-client"]["version"].startswith("5.")
    file_size = int(manifest["master_conf"]["mappedFileSizeCommitLog"])
    end = manifest["log"]["commit_log_max_offset"]
    log = concatenated(store, "commitlog")
    blanks: list[Blank] = []
    queues: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for item in walk(log, file_size, end):
        if isinstance(item, Blank):
            blanks.append(item)
            continue
        reported = told.pop(item["commit_log_offset"], None)
        seen = item | {"sys_flag": item["sys_flag"] & ~COMPRESSED} if client_clears else item
        if reported and item["body_sha256"] is None:
            seen |= {"body_size": reported["body_size"], "body_sha256": reported["body_sha256"]}
        need(reported == seen, "told", reported, "stored", seen)
        if item["sys_flag"] & TRANSACTION not in (PREPARED, ROLLED_BACK):
            queues[item["topic"], item["queue_id"]].append(item)
    need(not told, "not in the log:", list(told))
    need(not any(log[end:]), "bytes beyond the end of the log")
    for queue in manifest["queues"]:
        check_queue(store, queue, queues.pop((queue["topic"], queue["queue_id"])))
    need(not queues, "messages of no queue:", list(queues))
    blank_bytes = sum(blank.size for blank in blanks)
    return {
        "messages": len(lines),
        "message_bytes": end - blank_bytes,
        "blanks": len(blanks),
        "blank_bytes": blank_bytes,
        "blanks_zero_after_header": all(blank.zero_after_header for blank in blanks),
        "unused_bytes_after_end": len(log) - end,
    }


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    sys.stdout.write(f"the log tiles; {found['messages']} messages; CRCs equal; {found}\n")
