"""Stores written by releases of RocketMQ read as RocketMQ's clients reported them, and are written again byte for byte. HA-ST-1
to HA-ST-5.

spec/vectors/rocketmq-4.9.8/README.md describes the files and how they were made; the READMEs of the other releases say what
differs.
"""

import hashlib
import json
import lzma
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.golden import WITH_KEYS_OF_TAGS
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, compare, verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, decode, decompress_body
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.spec.constants import SYS_FLAG_COMPRESSED
from rocketmq_ha.spec.release_table import value_of

Told = dict[str, Any]


@pytest.fixture(scope="module")
def manifest(vectors: Path) -> Told:
    found: Told = json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def told(vectors: Path) -> list[Told]:
    """What RocketMQ's client reported, in commit-log order."""
    with lzma.open(vectors / "messages.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden, tmp_path / "copy"))


def test_the_archive_holds_what_the_manifest_says(golden: Path, manifest: Told) -> None:
    for name, file in manifest["files"].items():
        data = (golden / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"]), name


def reported_sys_flag(message: Message, release: str) -> int:
    """The flags as a client reports them: clients of 5.x clear the compression bit when they have decompressed the body."""
    return message.sys_flag & ~SYS_FLAG_COMPRESSED if release.startswith("5.") else message.sys_flag


def test_every_message_decodes_to_what_rocketmq_reported(golden: Path, told: list[Told], manifest: Told, release: str) -> None:
    with LogReader(golden) as reader:
        found = list(reader.records())
    assert len(found) == len(told) == manifest["log"]["messages"]
    # every release was sent the same messages
    assert sum(message.sys_flag & SYS_FLAG_COMPRESSED for _, _, message in found) == 50
    for (offset, size, message), expected in zip(found, told, strict=True):
        body = decompress_body(message)
        assert {
            "commit_log_offset": offset,
            "store_size": size,
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "keys": message.properties.get("KEYS"),
            "tags": message.properties.get("TAGS"),
            "body_crc": message.body_crc,
            "sys_flag": reported_sys_flag(message, release),
            "flag": message.flag,
            "born_timestamp_ms": message.born_timestamp,
            "store_timestamp_ms": message.store_timestamp,
            "born_host": "{}:{}".format(*message.born_host),
            "store_host": "{}:{}".format(*message.store_host),
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "body_size": len(body),
            "body_sha256": hashlib.sha256(body).hexdigest(),
            "properties": message.properties,
            "via": expected["via"],
        } == expected
        assert message.physical_offset == offset


def test_0x02_stands_behind_the_last_property_where_versions_toml_says_so(golden: Path, told: list[Told], release: str) -> None:
    """HA-ST-16 "MUST take the string with 0x02 behind the last value, and without it"."""
    value = value_of("0x02 behind the last property", release)
    with LogReader(golden) as reader:
        messages = [decode(reader.data_at(each["commit_log_offset"], each["store_size"])) for each in told]
    ends = {message.properties_string.endswith("\x02") for message in messages}
    assert ends == {value == "is written"}
    for message in messages:
        assert message.properties == parse_properties(message.properties_string.removesuffix("\x02")) != {}


def test_verify_passes_and_counts_as_the_broker_did(golden: Path, manifest: Told) -> None:
    log = manifest["log"]
    with LogReader(golden) as reader:
        found = verify(reader)
        blank_bytes = sum(end - start for start, end in reader.blanks)
    assert (found.messages, found.blanks, found.tail_size) == (log["messages"], log["blanks"], 0)
    assert (found.min_offset, found.max_offset) == (0, log["commit_log_max_offset"])
    assert (blank_bytes, found.log_size - blank_bytes) == (log["blank_bytes"], log["message_bytes"])


def test_recovery_finds_the_brokers_end_and_its_queues(copy: Path, manifest: Told) -> None:
    """The next message of each queue gets the offset that the broker would have given it."""
    with CommitLog.open(copy) as log:
        assert (log.file_size, log.max_offset) == (1 << 20, manifest["log"]["commit_log_max_offset"])
        assert log.recovery.cut_size == 0
        for queue in manifest["queues"]:
            message = Message(queue["topic"], b"next", queue_id=queue["queue_id"])
            assert log.append(message).queue_offset == queue["max_queue_offset"]
    with LogReader(copy) as reader:
        assert verify(reader).messages == manifest["log"]["messages"] + len(manifest["queues"])


def test_a_log_that_is_put_again_message_by_message_is_the_same_log(golden: Path, tmp_path: Path) -> None:
    """Our put rolls where RocketMQ rolled, writes its BLANKs, and gives every message its place and its index.

    Batches differ: RocketMQ puts a batch as one unit, so it rolls where the first message alone would still have fitted.
    """
    with LogReader(golden) as reader, CommitLog.open(tmp_path / "ours", file_size=1 << 20) as log:
        for offset, size, message in reader.records():
            rest = offset - log.max_offset
            if message.properties.get("kind") == "batch" and rest > size + 8:
                log.append_data(log.max_offset, [reader.data_at(log.max_offset, rest)])
            result = log.append(message)
            assert (result.offset, result.size, result.queue_offset) == (offset, size, message.queue_offset)
        with LogReader(tmp_path / "ours") as ours:
            verify(ours)
            assert compare(reader, ours) == Comparison(0, log.max_offset, None, 0)


def derived_of(store: Path) -> dict[str, bytes]:
    """The consume queues by name, and the index files in order, for their names are creation times."""
    queues = {str(path.relative_to(store)): path.read_bytes() for path in (store / "consumequeue").glob("*/*/*")}
    return queues | {f"index {n}": path.read_bytes() for n, path in enumerate(sorted((store / "index").iterdir()))}


@pytest.mark.parametrize("is_whole", [True, False], ids=["as it was left", "after a crash that left the log alone"])
def test_our_store_opens_it_reads_all_of_it_and_leaves_it_as_it_was(
    copy: Path, golden: Path, told: list[Told], manifest: Told, release: str, is_whole: bool
) -> None:
    """HA-ST-29 to HA-ST-34, HA-ST-39 to HA-ST-43: our queues and index equal RocketMQ's, except the names of index files.

    HA-ST-37 "MUST go through the consume queue", HA-ST-44 "A query MUST find messages by key".
    """
    if not is_whole:
        for name in ("consumequeue", "index"):
            shutil.rmtree(copy / name)
        (copy / "checkpoint").unlink()  # or recovery would trust the queues
        (copy / "abort").touch()
    index = IndexService(golden, writable=False)
    assert index.geometry == Geometry(1000, 4000)  # read from the files
    index.close()
    options = StoreOptions(queue_file_size=6000, index_geometry=Geometry(1000, 4000))
    with MessageStore.open(copy, options) as store:
        assert store.max_offset == manifest["log"]["commit_log_max_offset"]
        read: dict[int, Message] = {}
        for queue in manifest["queues"]:
            index = queue["min_queue_offset"]
            while (found := store.get(queue["topic"], queue["queue_id"], index)).status is GetMessageStatus.FOUND:
                for message in found.messages():
                    assert (message.topic, message.queue_id, message.queue_offset) == (queue["topic"], queue["queue_id"], index)
                    read[message.physical_offset] = message
                    index += 1
            assert (found.status, index) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, queue["max_queue_offset"])
        assert [read[row["commit_log_offset"]].body_crc for row in told] == [row["body_crc"] for row in told]
        assert len(read) == len(told)
        assert len(manifest["index_queries"]) > 5
        for asked in manifest["index_queries"]:
            answer = [offset for offset, _, _ in store.query(asked["topic"], asked["key"], asked["max_num"])]
            assert answer == asked["commit_log_offsets"], asked
    assert not (copy / "abort").exists()
    ours, theirs = derived_of(copy), derived_of(golden)
    assert sum(not name.startswith("index") for name in theirs) == 24
    if not is_whole and release in WITH_KEYS_OF_TAGS:  # our index has no keys for tags
        ours, theirs = ({name: found[name] for name in found if not name.startswith("index")} for found in (ours, theirs))
    assert ours == theirs
    for path in (golden / "commitlog").iterdir():
        assert (copy / "commitlog" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("seed", range(8))
def test_one_flipped_bit_is_named_by_file_and_offset(
    copy: Path, told: list[Told], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bit may be in any message, including the last, and in any byte that a check covers."""
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)
    draw = random.Random(seed)
    expected = told[-1] if seed == 0 else draw.choice(told)
    offset = expected["commit_log_offset"]
    file = copy / "commitlog" / f"{offset - offset % (1 << 20):020d}"
    data = bytearray(file.read_bytes())
    position = offset % (1 << 20)
    body_size = len(decode(data, position).body)
    byte = position + draw.choice([*range(12), *range(28, 36), *range(84, 88 + body_size)])
    data[byte] ^= 1 << draw.randrange(8)
    file.write_bytes(data)
    with LogReader(copy) as reader, pytest.raises(StoreCorrupt) as refused:
        verify(reader)
    assert (refused.value.file, refused.value.offset) == (file, offset)
    if seed:
        with pytest.raises(StoreCorrupt) as refused:
            CommitLog.open(copy)
        assert (refused.value.file, refused.value.offset) == (file, offset)
        assert file.read_bytes() == data
