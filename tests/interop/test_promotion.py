"""A real broker is started on what our slave and our master left behind, and serves every message, at its queue offset.

HA-ST-50 to HA-ST-52: nothing is put right by hand. The releases are releases.PROMOTED.
"""

import random
import threading
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
from links import await_same_end, start_master, start_slave
from our_store import Row, row_of
from releases import PROMOTED
from results import Results
from rocketmq import FILE_SIZE, Rocketmq, wait

from kit.files import end_of
from kit.waiting import LONG_S, await_end
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.log.reader import LogReader

MESSAGES = 1200
QUEUES = 4  # of a topic that RocketMQ's producer creates, and of the topic of our master's --put
LARGEST = 5000  # bytes of a body: files of 1 MiB roll
LATER = 60  # messages that are sent once a slave has been killed, so that it always has less than the others
NEW = 60  # messages that a real producer sends behind ours
KEYS = [("Interop", f"key-{number}") for number in (0, 7, 299, 600, MESSAGES - 1)]

promoted = pytest.mark.parametrize("release", PROMOTED, indirect=True, scope="session")


def assert_in_order(rows: list[Row], *, from_zero: bool) -> None:
    """The queue offsets of each queue follow one another."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        offsets[row[0], row[1]].append(row[2])
    for found in offsets.values():
        first = 0 if from_zero else found[0]
        assert found == list(range(first, first + len(found)))


def promote(rocketmq: Rocketmq, store: Path, told: list[Row], answers: list[list[int]], results: Results, how: str) -> None:
    """Start a broker on a store: it has all of `told` that the log has, and what is sent then follows. Stop it cleanly."""
    with LogReader(store) as reader:
        reader.walk()
        begin, end = reader.min_offset, reader.max_offset
    expected = [row for row in told if begin <= row[3] < end]
    topics = sorted({row[0] for row in expected})
    assert (store / "abort").exists()
    rocketmq.start_broker("master", store, "ASYNC_MASTER")
    pulled = sorted(rocketmq.read_all(*topics, count=len(expected)))
    results.check(f"{how}: messages that a real consumer reads", len(expected), len(pulled))
    assert pulled == expected
    assert_in_order(pulled, from_zero=begin == 0)
    assert [sorted(found) for found in rocketmq.query(KEYS)] == [
        sorted(n for n in found if begin <= n < end) for found in answers
    ]
    assert rocketmq.send(topics[0], NEW, LARGEST, seed=9) == {"SEND_OK": NEW}
    after = sorted(rocketmq.read_all(*topics, count=len(expected) + NEW))
    assert [row for row in after if row[3] < end] == expected
    assert_in_order(after, from_zero=begin == 0)
    results.check(f"{how}: with those sent then", len(expected) + NEW, len(after))
    rocketmq.stop("master")
    assert not (store / "abort").exists()


@promoted
def test_a_real_broker_serves_what_our_slave_and_master_left(
    rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results
) -> None:
    """A slave that is killed while a real master is sent messages, one that is stopped cleanly, and a master behind that."""
    draw = random.Random()
    theirs, killed, stopped, late = (tmp_path / name for name in ("theirs", "killed", "stopped", "late"))
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    slaves = {store: start_slave(nodes, tmp_path, store, rocketmq.ha_address) for store in (killed, stopped)}
    wait("both have reported", lambda: rocketmq.log("master").count("request offset") >= 2)
    sent: dict[str, int] = {}
    sending = threading.Thread(target=lambda: sent.update(rocketmq.send("Interop", MESSAGES, LARGEST)), daemon=True)
    sending.start()
    killed_at = draw.randrange(FILE_SIZE // 2, 2 * FILE_SIZE)
    wait(f"offset {killed_at}", lambda: end_of(killed) >= killed_at)
    wait("the queues are noted", lambda: read_topics(killed).get("Interop") == QUEUES)  # a broker serves no other
    slaves[killed].kill()
    await_end(sending, LONG_S)
    assert sent == {"SEND_OK": MESSAGES}
    assert rocketmq.send("Interop", LATER, LARGEST, seed=2) == {"SEND_OK": LATER}
    told = sorted(rocketmq.read_all("Interop", count=MESSAGES + LATER))
    answers = rocketmq.query(KEYS)
    await_same_end(stopped, theirs)
    assert slaves[stopped].stop() == 0
    slave = start_slave(nodes, tmp_path, late, rocketmq.ha_address)  # from the master's last file on
    await_same_end(late, theirs)
    assert slave.stop() == 0
    rocketmq.stop("master")
    assert end_of(stopped) > 2 * FILE_SIZE
    assert 0 < end_of(killed) < end_of(stopped)

    promote(rocketmq, killed, told, answers, results, f"our slave killed at {killed_at}")
    promote(rocketmq, stopped, told, answers, results, "our slave stopped")
    promote(rocketmq, late, told, answers, results, "our slave that began at the last file")

    # The broker has made queues, index and checkpoint; our master goes on without them, and is killed.
    before = end_of(stopped)
    killed_at = before + draw.randrange(FILE_SIZE // 2, 2 * FILE_SIZE)
    master, _ = start_master(nodes, tmp_path, stopped, "127.0.0.1:0", "--put", "1000000", "--size", "2000", "--sync", "0")
    wait(f"offset {killed_at}", lambda: end_of(stopped) >= killed_at)
    wait("the queues are noted", lambda: read_topics(stopped).get("rocketmq-ha") == QUEUES)
    master.kill()
    with LogReader(stopped) as reader:
        rows = sorted(row_of(message) for _, _, message in reader.records())
    answers = [[row[3] for row in rows if row[0] == topic and key in row[6].split()] for topic, key in KEYS]
    promote(rocketmq, stopped, rows, answers, results, f"our master killed at {killed_at}")
