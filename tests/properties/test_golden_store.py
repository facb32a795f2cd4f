"""The store that RocketMQ 4.9.8 wrote reads as its own client said, and comes back byte for byte. HA-ST-1 to HA-ST-5.

spec/vectors/rocketmq-4.9.8/README.md tells what the files hold and how they were made.
"""

import hashlib
import json
import lzma
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store import reader as reader_module
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.store.reader import LogReader
from rocketmq_ha.impl.store.verify import Comparison, compare, verify
from rocketmq_ha.impl.wire.message import Message, decode, decompress_body, encode

VECTORS = Path(__file__).parents[2] / "spec" / "vectors" / "rocketmq-4.9.8"
Told = dict[str, Any]


@pytest.fixture(scope="module")
def manifest() -> Told:
    found: Told = json.loads((VECTORS / "manifest.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def told() -> list[Told]:
    """What RocketMQ's client reported, in commit-log order."""
    with lzma.open(VECTORS / "messages.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("golden") / "store"
    with tarfile.open(VECTORS / "store.tar.xz") as archive:
        archive.extractall(store, filter="data")
    return store


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden, tmp_path / "copy"))


def test_the_archive_holds_what_the_manifest_says(golden: Path, manifest: Told) -> None:
    for name, file in manifest["files"].items():
        data = (golden / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"]), name


def test_every_message_decodes_to_what_rocketmq_reported(golden: Path, told: list[Told], manifest: Told) -> None:
    with LogReader(golden) as reader:
        found = list(reader.records())
    assert len(found) == len(told) == manifest["log"]["messages"]
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
            "sys_flag": message.sys_flag,
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


def test_every_record_comes_back_byte_for_byte(golden: Path, told: list[Told]) -> None:
    with LogReader(golden) as reader:
        for expected in told:
            record = reader.data_at(expected["commit_log_offset"], expected["store_size"])
            assert encode(decode(record)) == record


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

    But for a batch: RocketMQ puts it as one, so it rolls where its first message alone would have stayed.
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


@pytest.mark.parametrize("seed", range(8))
def test_one_flipped_bit_is_named_by_file_and_offset(
    copy: Path, told: list[Told], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any message, the last one too, in any byte that a check covers."""
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
