"""Pulls and queries that real brokers were asked, asked again of our handlers over the stores that these brokers left.

The answers are equal: code, outcome, offsets, suggestion, every byte. Later messages of the run are in the store, too, so a
queue is read as it was when the broker answered.
HA-R-20 "MUST suggest the `brokerId` to pull from next"; HA-P-14 "MUST have the name of the outcome as its remark", "the
records of the batch as they stand in the log"; HA-P-9, HA-P-30, HA-P-31, HA-P-34.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from remoting_specimens import Exchange
from specimens import VECTORS, read
from store_specimens import Store

from rocketmq_ha.fuzz.worlds.pull_stand import PlayedChannel, PullStand, body_of, subscription, topic
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.broker.query import QueryMessageProcessor, QueueOffsetProcessor
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE
from rocketmq_ha.spec.role import BrokerRole

FOLDERS = [folder for folder in sorted(VECTORS.glob("rocketmq-*/")) for folder in (folder, folder / "unusual")]
GIB = 1 << 30
# What RocketMQ answers otherwise, and the clause that says so.
QUEUE_ID_5_X = 29  # HA-P-3
REFUSED_BY_SLAVE_5_X = 2  # HA-R-30


@contextmanager
def opened(store: Store, directory: Path) -> Iterator[MessageStore]:
    for name, content in store.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with MessageStore.open(directory, StoreOptions(floor_size=0)) as found:
        assert found.wait_for_dispatch()
        yield found


def stand_of(store: MessageStore, golden: Store, exchange: Exchange) -> PullStand:
    """A broker with the topics of the store and the settings that this one was told before the pull."""
    told: dict[str, str] = {}
    for each in exchange.told:
        told |= dict(line.split("=", 1) for line in each.request.body.decode().splitlines() if line)
    is_slave = exchange.row["to"] == "slave"
    settings = PullSettings(
        role=BrokerRole.SLAVE if is_slave else BrokerRole.ASYNC_MASTER,
        slave_read_enable=told.get("slaveReadEnable") == "true",
        offset_check_in_slave=told.get("offsetCheckInSlave") == "true",
    )
    ratio = int(told.get("accessMessageInMemoryMaxRatio", "40"))
    stand = PullStand(store, settings, bounds=PullBounds(GIB * ratio // 100))
    table: dict[str, Any] = json.loads(golden.files["config/topics.json"])["topicConfigTable"]
    stand.topics = {name: topic(each["perm"], each["readQueueNums"]) for name, each in table.items()}
    groups = {"GoldenReaders", "GoldenRecorder", "GoldenTagged", "UnusualReaders", "UnusualNobody"}
    if golden.release.startswith("4."):
        groups.add("no group!")  # 5.x creates no group of such a name
    stand.groups = dict.fromkeys(groups, stand.groups["g"])
    for group in ("GoldenReaders", "GoldenTagged"):
        stand.models[group] = "CLUSTERING"
        for name in table:
            # The consumers of these groups have told no version yet that is newer than 0, or they are behind all pulls.
            version = 0 if exchange.answer is not None and exchange.answer.header["code"] == 25 else 1 << 62
            wants = "*" if group == "GoldenReaders" else "x"
            stand.subscriptions[group, name] = subscription(sub_string=wants, sub_version=version)
    return stand


def asked_again(exchange: Exchange) -> RemotingCommand:
    header = exchange.request.header
    return RemotingCommand(header["code"], header["opaque"], ext_fields=dict(header["extFields"]))


class QueueAsItWas:
    """A queue without the messages that have come since."""

    def __init__(self, queue: ConsumeQueue, max_offset: int) -> None:
        assert max_offset <= queue.max_offset
        self.min_offset, self.max_offset, self.file_entries, self._queue = (
            queue.min_offset,
            max_offset,
            queue.file_entries,
            queue,
        )

    def read(self, queue_offset: int, limit: int) -> memoryview:
        return self._queue.read(queue_offset, min(limit, self.max_offset - queue_offset))


def check_pull(store: MessageStore, golden: Store, exchange: Exchange) -> str:
    """Returns: what was compared."""
    theirs = exchange.answer
    assert theirs is not None
    stand = stand_of(store, golden, exchange)
    request = asked_again(exchange)
    request.ext_fields["sysFlag"] = str(int(request.ext_fields["sysFlag"]) & ~2)  # answered at once
    code = theirs.header["code"]
    if code == REFUSED_BY_SLAVE_5_X:
        return "refused by a slave of 5.x"
    queues = store.queues
    if max_offset := int(theirs.fields.get("maxOffset", 0)):
        name, queue_id = request.ext_fields["topic"].encode(), int(request.ext_fields["queueId"])
        queue = queues.get(name, queue_id)
        assert queue is not None
        as_it_was = QueueAsItWas(queue, max_offset)
        store.queues = SimpleNamespace(get=lambda *key: {(name, queue_id): as_it_was}[key])  # type: ignore
    try:
        ours = stand.processor.pull_message(stand.channel, request, 0)
    finally:
        store.queues = queues  # type: ignore[misc]
    assert ours is not None
    if "nextBeginOffset" not in theirs.fields:
        assert ours.code == (1 if code == QUEUE_ID_5_X else code)
        assert not ours.ext_fields
        return f"refused: {ours.code}"
    assert (ours.code, ours.remark) == (code, theirs.header["remark"])
    assert ours.ext_fields == {name: theirs.fields[name] for name in ours.ext_fields}
    assert body_of(ours) == theirs.body
    return f"{theirs.header['remark']} of a {exchange.row['to']}"


def check_other(store: MessageStore, exchange: Exchange) -> str:
    theirs = exchange.answer
    assert theirs is not None
    channel, request = PlayedChannel(), asked_again(exchange)
    queries, offsets = QueryMessageProcessor(store), QueueOffsetProcessor(QueueFigures(store))
    match exchange.code:
        case 12:
            usual = {"maxNum": "64", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
            request.ext_fields = usual | request.ext_fields
            ours = queries.query_message(channel, request, 0)
            assert ours.code == theirs.header["code"]
            if request.ext_fields["key"] == "Aa":  # BB has the same hash, and RocketMQ gives its messages, too (HA-ST-86)
                assert 0 < len(body_of(ours)) < len(theirs.body)
                return "query of a hash that two keys have"
            assert body_of(ours) == theirs.body
            assert set(ours.ext_fields) == set(theirs.fields)
            return "query"
        case 33:
            ours = queries.view_message_by_id(channel, request, 0)
            if theirs.body[4:8] == BLANK_MAGIC_CODE.to_bytes(4, "big"):  # RocketMQ takes a BLANK for a message (HA-P-34)
                assert ours.code == 1
                return "view of a BLANK"
            assert (ours.code, body_of(ours)) == (0, theirs.body)
            return "view"
        case 30:
            ours = offsets.get_max_offset(channel, request, 0)
            assert int(ours.ext_fields["offset"]) >= int(theirs.fields["offset"])
            return "max offset"
        case _:
            ours = offsets.get_min_offset(channel, request, 0)
            assert ours.ext_fields["offset"] == theirs.fields["offset"]
            return "min offset"


# How many answers of each kind were compared. A vector that has fewer shows less.
QUESTIONS = {"query of a hash that two keys have": 1, "query": 3}
USUAL = QUESTIONS | {"refused: 25": 1, "max offset": 2, "min offset": 2}
UNUSUAL = QUESTIONS | {
    "OFFSET_OVERFLOW_ONE of a master": 2,
    "OFFSET_OVERFLOW_BADLY of a master": 1,
    "OFFSET_TOO_SMALL of a master": 1,
    "NO_MESSAGE_IN_QUEUE of a master": 3,
    "NO_MATCHED_MESSAGE of a master": 1,
    "OFFSET_TOO_SMALL of a slave": 2,
    **{f"refused: {code}": 1 for code in (16, 17, 23, 24)},
    "refused: 1": 2,
    "max offset": 6,
    "min offset": 3,
    "view": 1,
    "view of a BLANK": 1,
}
UNUSUAL_4_X = UNUSUAL | {"FOUND of a master": 10, "FOUND of a slave": 2}
UNUSUAL_5_X = UNUSUAL | {"FOUND of a master": 9, "FOUND of a slave": 1, "refused: 26": 1, "refused by a slave of 5.x": 1}
COUNTS = {
    "rocketmq-4.9.8": USUAL | {"FOUND of a master": 2, "NO_MATCHED_MESSAGE of a master": 1, "view": 2, "view of a BLANK": 1},
    "rocketmq-5.3.3": USUAL | {"FOUND of a master": 3, "view of a BLANK": 3},
    "rocketmq-5.4.0": USUAL | {"FOUND of a master": 3, "view of a BLANK": 2},
    "rocketmq-4.9.8/unusual": UNUSUAL_4_X,
    "rocketmq-5.3.3/unusual": UNUSUAL_5_X,
    "rocketmq-5.4.0/unusual": UNUSUAL_5_X,
}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_answers_of_real_brokers_are_ours(folder: Path, tmp_path: Path) -> None:
    release = next(part for part in folder.parts if part.startswith("rocketmq-")).removeprefix("rocketmq-")
    golden = read(folder, release)
    compared: Counter[str] = Counter()
    for index, name in enumerate(("master", "slave")[: len(golden.stores)]):
        with opened(golden.stores[index], tmp_path / name) as store:
            for exchange in golden.exchanges:
                if exchange.row["to"] == name and exchange.answer is not None:
                    if exchange.code in (11, 361):
                        compared[check_pull(store, golden.stores[0], exchange)] += 1
                    elif exchange.code in (12, 30, 31, 33):
                        compared[check_other(store, exchange)] += 1
    assert compared == COUNTS["/".join(folder.parts[-2:]).removeprefix("vectors/")]
