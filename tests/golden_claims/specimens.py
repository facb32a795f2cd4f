"""Read the golden vectors, and give every piece of them that a claim may be about."""

import base64
import json
import lzma
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from link_specimens import Connection
from remoting_specimens import Exchange, exchanges_of, rounds
from store_specimens import Abort, Checkpoint, Defaults, IndexQuery, LogFile, QueueFile, Row, SlaveConfig, Store

VECTORS: Final = Path(__file__).parents[2] / "spec" / "vectors"


def unpack(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, "r:xz") as tar:
        found = {member.name.removeprefix("./"): tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in found.items() if file is not None}


def read_lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in lzma.decompress(file.read_bytes()).decode().splitlines()]


@dataclass(frozen=True)
class Golden:
    """All that one run of a release left: its stores, its exchanges, its link."""

    release: str
    stores: list[Store]
    exchanges: list[Exchange]
    connections: list[Connection]
    slave_configs: list[SlaveConfig]


def read(folder: Path, release: str) -> Golden:
    """The vectors of one folder, which may have a slave's store and a link beside the master's store."""
    manifest: Row = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    name = release + ("/unusual" if folder.name == "unusual" else "")
    told = {row["commit_log_offset"]: row for row in read_lines(folder / "messages.jsonl.xz")}
    master = Store(release, name, unpack(folder / "store.tar.xz"), manifest, told)
    stores = [master]
    if (folder / "slave.tar.xz").exists():
        stores.append(Store(release, f"{name} slave", unpack(folder / "slave.tar.xz"), manifest, {}, master))
    if (folder / "transcripts.jsonl.xz").exists():
        rows = read_lines(folder / "transcripts.jsonl.xz")
    else:
        rows = json.loads((folder / "transcripts.json").read_text(encoding="utf-8"))
    connections: list[Connection] = []
    if (folder / "link.jsonl.xz").exists():
        streams: dict[tuple[int, str], bytes] = defaultdict(bytes)
        for row in read_lines(folder / "link.jsonl.xz"):
            streams[row["connection"], row["from"]] += base64.b64decode(row["bytes"])
        for index in sorted({index for index, _ in streams}):
            before = connections[-1] if connections else None
            streamed = streams[index, "slave"], streams[index, "master"]
            connections.append(Connection(master, stores[1], before, index, *streamed))
    configs = []
    if (folder / "slave_config.jsonl.xz").exists():
        for row in read_lines(folder / "slave_config.jsonl.xz"):
            frame = base64.b64decode(row["answer"])
            body = frame[8 + int.from_bytes(frame[5:8], "big") :]
            configs.append(SlaveConfig(stores[1], row["code"], row["text"], body.decode()))
    return Golden(release, stores, list(exchanges_of(master, rows)), connections, configs)


def read_all() -> list[Golden]:
    found = []
    for folder in sorted(VECTORS.glob("rocketmq-*")):
        for each in (folder, folder / "unusual"):
            if (each / "store.tar.xz").exists():
                found.append(read(each, folder.name.removeprefix("rocketmq-")))
    return found


class Specimen(Protocol):
    """A piece of what RocketMQ wrote or sent."""

    @property
    def store(self) -> Store: ...


def specimens(golden: Golden) -> Iterator[Specimen]:
    """Every piece of a run that a claim may be about."""
    for store in golden.stores:
        yield from store.parts
        names = [Path(name).name for name in store.names("commitlog")]
        yield from (LogFile(store, name, names) for name in names)
        yield from (QueueFile(store, path) for path in store.names("consumequeue"))
        yield from store.queue_entries
        for file in store.index_files:
            yield file
            yield from file.entries
        yield Checkpoint(store, store.files["checkpoint"])
    master = golden.stores[0]
    yield from (IndexQuery(master, row) for row in master.manifest["index_queries"])
    yield from (Abort(master, when, size) for when, size in master.manifest.get("abort", {}).items())
    if "defaults" in master.manifest:
        yield Defaults(master, master.manifest["defaults"])
    for connection in golden.connections:
        yield connection
        yield from connection.frames
        yield from connection.reports
    for exchange in golden.exchanges:
        yield exchange
        yield exchange.request
        if exchange.answer:
            yield exchange.answer
    yield from rounds(golden.exchanges, master)
    yield from golden.slave_configs
