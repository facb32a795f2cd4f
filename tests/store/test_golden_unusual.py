"""Stores with records that RocketMQ seldom writes: IPv6 hosts, V2 records, open transactions, a slave that joined late. HA-ST-1
to HA-ST-5.

spec/vectors/rocketmq-4.9.8/unusual/README.md describes them.
"""

import hashlib
import ipaddress
import json
import lzma
import shutil
from pathlib import Path

import pytest

from kit.golden import VECTORS, WITH_KEYS_OF_TAGS
from rocketmq_ha.fuzz.golden import extract
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, compare, verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import COMPRESSION_TYPE_MASK, COMPRESSION_TYPES, Message, decode, decompress_body, encode
from rocketmq_ha.spec.constants import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_COMPRESSED, SYS_FLAG_STORE_HOST_V6

UNUSUAL = sorted(VECTORS.glob("rocketmq-*/unusual"))
OPTIONS = StoreOptions(queue_file_size=600, index_geometry=Geometry(50, 60))


@pytest.fixture(scope="module", params=UNUSUAL, ids=lambda path: path.parent.name)
def unusual(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def unpack(unusual: Path, name: str, to: Path) -> Path:
    extract(unusual / f"{name}.tar.xz", to / name)
    return to / name


@pytest.mark.parametrize("name", ["store", "slave"])
def test_the_archives_hold_what_the_manifest_says(unusual: Path, tmp_path: Path, name: str) -> None:
    manifest = json.loads((unusual / "manifest.json").read_text(encoding="utf-8"))
    expected = manifest["files" if name == "store" else "slave_files"]
    store = unpack(unusual, name, tmp_path)
    found = {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert {path: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in found.items()} == expected


def host(told: str) -> tuple[str, int]:
    """An address as the client reported it: Java does not abbreviate IPv6 addresses."""
    ip, _, port = told.rpartition(":")
    return str(ipaddress.ip_address(ip)), int(port)


def kind_of(message: Message) -> str:
    if not message.sys_flag & SYS_FLAG_COMPRESSED:
        return "none"
    return COMPRESSION_TYPES[message.sys_flag & COMPRESSION_TYPE_MASK]


def test_every_unusual_message_decodes_to_what_rocketmq_reported(unusual: Path, tmp_path: Path) -> None:
    """HA-ST-14 "MUST take 8 bytes, or 20 where its bit of sysFlag", and each record comes back byte for byte."""
    with lzma.open(unusual / "messages.jsonl.xz", "rt", encoding="utf-8") as lines:
        told = [json.loads(line) for line in lines]
    kinds: set[str] = set()
    hosts: set[int] = set()
    with LogReader(unpack(unusual, "store", tmp_path)) as reader:
        for (offset, size, message), row in zip(reader.records(), told, strict=True):
            record = bytes(reader.data_at(offset, size))
            assert encode(decode(record)) == record
            assert (offset, size, message.body_crc) == (row["commit_log_offset"], row["store_size"], row["body_crc"])
            assert (message.topic, message.queue_id, message.queue_offset) == (
                row["topic"],
                row["queue_id"],
                row["queue_offset"],
            )
            assert (message.born_host, message.store_host) == (host(row["born_host"]), host(row["store_host"]))
            assert message.properties == row["properties"]
            kinds.add(kind := kind_of(message))
            hosts.add(message.sys_flag & (SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6))
            if kind in ("none", "zlib"):
                assert hashlib.sha256(decompress_body(message)).hexdigest() == row["body_sha256"]
            else:
                with pytest.raises(MessageMalformed, match=kind):
                    decompress_body(message)
    assert kinds == {"none", *COMPRESSION_TYPES.values()}
    assert hosts == {0, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6, SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6}


def test_the_slaves_log_is_the_end_of_the_masters(unusual: Path, tmp_path: Path) -> None:
    """HA-ST-13 "The min offset of a log MUST be the start of its first file"."""
    with LogReader(unpack(unusual, "store", tmp_path)) as master, LogReader(unpack(unusual, "slave", tmp_path)) as slave:
        found = verify(master), verify(slave)
        both = compare(master, slave)
    assert found[1].min_offset > found[0].min_offset == 0
    assert both == Comparison(found[1].min_offset, found[0].max_offset, None, 0)


@pytest.mark.parametrize("name", ["store", "slave"])
def test_queues_and_index_that_are_made_again_are_rocketmqs(unusual: Path, tmp_path: Path, name: str) -> None:
    """HA-ST-33 "MUST be offset 0, size 2,147,483,647", in the slave's queues; HA-ST-34 for messages of open transactions."""
    theirs, ours = unpack(unusual, name, tmp_path), tmp_path / "ours"
    shutil.copytree(theirs, ours)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(ours / folder)
    (ours / "checkpoint").unlink()  # or recovery would trust the queues
    (ours / "abort").touch()
    MessageStore.open(ours, OPTIONS).close()
    made = {path.relative_to(ours): path.read_bytes() for path in (ours / "consumequeue").rglob("*") if path.is_file()}
    assert made == {
        path.relative_to(theirs): path.read_bytes() for path in (theirs / "consumequeue").rglob("*") if path.is_file()
    }
    if unusual.parent.name.removeprefix("rocketmq-") not in WITH_KEYS_OF_TAGS:
        index = [[path.read_bytes() for path in sorted((store / "index").iterdir())] for store in (ours, theirs)]
        assert index[0] == index[1]
