"""A real broker opens the store that we wrote, reads all of it and leaves it as it was; and we open what it wrote behind ours.

HA-ST-1 to HA-ST-5, HA-ST-23, HA-ST-29 to HA-ST-34, HA-ST-37 to HA-ST-44.
"""

import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from links import RecordedLink, start_slave
from our_store import (
    GEOMETRY,
    MESSAGES,
    OPTIONS,
    QUEUE_FILE_SIZE,
    SCHEDULE_TOPIC,
    TOPICS,
    check_whole,
    hashes,
    killed_store,
    knows_ipv6,
    log_bytes,
    queues_and_index,
    read_by_queue,
    write_store,
)
from results import Results
from rocketmq import Rocketmq, wait

from kit.files import end_of
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.spec.profile import CLASSIC, HARDENED


def assert_taken_whole(log: str, end: int, how: str = "normally") -> None:
    """A broker's log says how the last stop was, and that it found our end, cut off nothing and met no error."""
    assert re.findall(r"last shutdown (\w+)", log) == [how]
    assert set(re.findall(r"max phy offset = (\d+)", log)) == {str(end)}
    # It says that it truncates queues which end where the log ends; then there is nothing to cut off.
    cuts = re.findall(r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\((\d+)\)", log)
    assert cuts in ([], [(str(end), str(end))])
    assert log.count("truncate dirty") == len(cuts)
    # A put that the kill interrupted has its size and not its fields: that is what it says of such a record.
    torn = r"\[BUG\]read total count not equals msg total size" if how == "abnormally" else "(?!)"
    no_tls = "Failed to create SSLContext for server"  # so say releases that cannot make a certificate on Java 17
    assert [line for line in re.findall(r".* ERROR .*", log) if not re.search(f"{torn}|{no_tls}", line)] == []


def ask(store: MessageStore, asked: list[tuple[str, str]]) -> list[list[int]]:
    """Our answers, cut to what a broker gives: the newest 64 of a hash, and "Aa" and "BB" have one hash."""
    found = {(topic, key): [offset for offset, _, _ in store.query(topic, key)] for topic, key in asked}
    for topic in TOPICS:
        newest = sorted(found.get((topic, "Aa"), []) + found.get((topic, "BB"), []))[-64:]
        for key in ("Aa", "BB"):
            if (topic, key) in found:
                found[topic, key] = [offset for offset in found[topic, key] if offset in newest]
    return [found[pair] for pair in asked]


ASKED: Final = [
    *((topic, key) for topic in TOPICS for key in ("Aa", "BB", "订单-1", "customer-7", "no such key")),
    ("OursOrders", "batch-1203"),
    *((topic, "order-1000") for topic in TOPICS),
]


KEYS_SENT: Final = [(topic, f"key-{number}") for topic in ("Interop", "Second") for number in (0, 7, 299, 1499)]


def test_a_real_broker_opens_our_store_and_we_what_it_wrote_behind_it(
    rocketmq: Rocketmq, tmp_path: Path, results: Results
) -> None:
    """After our clean stop; then with messages of a real producer, after a clean stop and after a kill -9 of the broker."""
    theirs = tmp_path / "store"
    write_store(theirs, rocketmq.release, range(MESSAGES // 2), OPTIONS)
    six = replace(OPTIONS, store_host=("2001:db8::1", 10911)) if knows_ipv6(rocketmq.release) else OPTIONS
    end = write_store(theirs, rocketmq.release, range(MESSAGES // 2, MESSAGES), six)
    with MessageStore.open(theirs) as store:
        ours, answers = read_by_queue(store), ask(store, ASKED)
    assert check_whole(theirs).index_files > 1
    assert len(list((theirs / "commitlog").iterdir())) > 3
    derived, log = hashes(theirs, "consumequeue", "index"), log_bytes(theirs, end)

    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    assert_taken_whole(rocketmq.log("master"), end)
    pulled = sorted(rocketmq.read_all(*TOPICS, SCHEDULE_TOPIC, count=len(ours)))
    results.check("messages of ours that a real consumer reads", len(ours), len(pulled))
    assert pulled == ours
    assert rocketmq.query(ASKED) == answers
    assert sum(map(len, answers)) > 100
    rocketmq.stop("master")
    assert not (theirs / "abort").exists()
    assert hashes(theirs, "consumequeue", "index") == derived
    assert log_bytes(theirs, end) == log
    with LogReader(theirs) as reader:
        assert verify(reader).max_offset == end

    for seed, stop in enumerate((rocketmq.stop, rocketmq.kill), 1):
        rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
        results.check(f"sent behind ours, then {stop.__name__}", {"SEND_OK": 300}, rocketmq.send("Behind", 300, 4000, seed))
        appended = sorted(rocketmq.read_all(*TOPICS, SCHEDULE_TOPIC, "Behind", count=len(ours) + 300 * seed))
        keys = [*ASKED, ("Behind", "key-7"), ("Behind", "key-299")]
        told = rocketmq.query(keys)
        stop("master")
        assert (theirs / "abort").exists() == (stop == rocketmq.kill)
        with MessageStore.open(theirs) as store:
            assert store.max_offset > end
            assert [row for row in read_by_queue(store) if row[0] in (*TOPICS, SCHEDULE_TOPIC, "Behind")] == appended
            assert ask(store, keys) == told
            end = store.max_offset
        assert len(appended) == len(ours) + 300 * seed
        assert (told[-1], len(told[-2])) != ([], 0)
        check_whole(theirs)
        assert log_bytes(theirs, len(log)) == log


def test_a_real_broker_rebuilds_queues_and_index_of_our_slave(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """A slave keeps the log alone: a real broker serves it as a master's, and we make its master's queues and index of it.

    HA-ST-50 "MUST leave `abort` behind": the broker takes the stop for one that was not clean.
    """
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    with ExitStack() as nodes:
        link = RecordedLink(nodes, rocketmq.ha_address, [])
        start_slave(nodes, tmp_path, ours, link.proxy.address)
        wait("our slave has reported", lambda: "request offset" in rocketmq.log("master"))
        assert rocketmq.send("Interop", 1500, 4000) == {"SEND_OK": 1500}
        assert rocketmq.send("Second", 300, 2000, seed=2) == {"SEND_OK": 300}
        told = sorted(rocketmq.read_all("Interop", "Second", count=1800))
        answers = rocketmq.query(KEYS_SENT)
        rocketmq.stop("master")
        end = end_of(theirs)
        wait("our slave has all", lambda: end_of(ours) == end)
        results.check("the model ends where the logs do", end, link.check(tmp_path, theirs, CLASSIC, HARDENED).slave_max_offset)
    assert sorted(path.name for path in ours.iterdir() if path.is_dir()) == ["commitlog", "config"]
    assert log_bytes(ours, end) == log_bytes(theirs, end)

    promoted = tmp_path / "promoted"
    shutil.copytree(ours / "commitlog", promoted / "commitlog")
    with MessageStore.open(promoted, OPTIONS) as store:
        assert [row for row in read_by_queue(store) if row[0] in ("Interop", "Second")] == told
        assert ask(store, KEYS_SENT) == answers
    assert queues_and_index(promoted, rocketmq.release) == queues_and_index(theirs, rocketmq.release)

    before = len(rocketmq.log("master"))
    rocketmq.start_broker("master", ours, "ASYNC_MASTER")
    assert_taken_whole(rocketmq.log("master")[before:], end, "abnormally")
    pulled = sorted(rocketmq.read_all("Interop", "Second", count=1800))
    results.check("messages of our slave's store that a real consumer reads", len(told), len(pulled))
    assert pulled == told
    assert rocketmq.query(KEYS_SENT) == answers
    rocketmq.stop("master")
    assert queues_and_index(ours, rocketmq.release) == queues_and_index(theirs, rocketmq.release)


def test_a_real_broker_opens_what_a_kill_of_our_store_left(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """HA-ST-23 "finding it at the start means that the last stop was not clean": both recover the same messages and queues.

    Killed as it begins its second file, and again, over what that left, some files later. Nothing is put right by hand.
    """
    killed, size = tmp_path / "killed", 4 << 20
    for nth, told_at in enumerate((size, 3 * size + size // 8), 1):
        killed_store(killed, size, told_at)
        theirs, ours = tmp_path / f"theirs-{nth}", tmp_path / f"ours-{nth}"
        shutil.copytree(killed, theirs)
        shutil.copytree(killed, ours)
        with MessageStore.open(ours, StoreOptions(queue_file_size=QUEUE_FILE_SIZE, index_geometry=GEOMETRY)) as store:
            end, rows = store.max_offset, read_by_queue(store)
            last = max(rows, key=lambda row: row[3])
            asked = [("Killed", "key-0"), ("Killed", last[6])]
            answers = ask(store, asked)
        assert answers[0][0] == 0
        assert answers[1][-1] == last[3]
        assert check_whole(ours).queue_entries == len(rows) > 1000 * nth

        rocketmq.start_broker("master", theirs, "ASYNC_MASTER", mappedFileSizeCommitLog=str(size))
        assert_taken_whole(rocketmq.log("master"), end, "abnormally")
        pulled = sorted(rocketmq.read_all("Killed", count=len(rows)))
        results.check(f"messages after kill {nth}", len(rows), len(pulled))
        assert pulled == rows
        assert rocketmq.query(asked) == answers
        rocketmq.stop("master")
        assert queues_and_index(theirs, rocketmq.release) == queues_and_index(ours, rocketmq.release)
        assert log_bytes(theirs, end) == log_bytes(ours, end)
        (rocketmq.work / "logs/master.log").unlink()
