"""What a pull finds in a queue, where the consumer goes on, and what the answer has."""

from pathlib import Path

import pytest

from rocketmq_ha.fuzz.worlds.pull_stand import PlayedLog, PlayedStore, PullStand, body_of, bytes_of, group, open_queue
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.java_hash import java_hash
from rocketmq_ha.impl.store.pull import MOST_LOOKED_AT, PullBounds, has_message_for
from rocketmq_ha.spec.role import BrokerRole

A, B = java_hash("a"), java_hash("b")
NO_END = 1 << 40
BIG_FILES = 1 << 30


def stand_of(queue: ConsumeQueue | None, log: PlayedLog | None = None, **settings: object) -> PullStand:
    store = PlayedStore(log or PlayedLog(0, NO_END, BIG_FILES))
    if queue is not None:
        store.found[b"t", 0] = queue
    bounds = settings.pop("bounds", PullBounds(2 * NO_END))
    assert isinstance(bounds, PullBounds)
    return PullStand(store, PullSettings(**settings), bounds=bounds)  # type: ignore[arg-type]


def looked_into(answer: RemotingCommand | None) -> tuple[int, str | None, int, int, int]:
    assert answer is not None
    fields = answer.ext_fields
    assert list(fields) == ["suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"]
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
    )


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    """Messages 5 to 9 with 10 bytes each, at 1000 + 10 n; even ones have the tag a, odd ones b. Files of 8 entries."""
    queue = open_queue(tmp_path / "q", 8)
    for number in range(5, 10):
        queue.put(1000 + 10 * number, 10, B if number % 2 else A, number)
    return queue


MASTER_ROWS = [
    (4, 21, "OFFSET_TOO_SMALL", 5),
    (0, 21, "OFFSET_TOO_SMALL", 5),
    (-1, 21, "OFFSET_TOO_SMALL", 5),
    (10, 19, "OFFSET_OVERFLOW_ONE", 10),
    (11, 21, "OFFSET_OVERFLOW_BADLY", 10),
    (1 << 62, 21, "OFFSET_OVERFLOW_BADLY", 10),
    (5, 0, "FOUND", 8),  # the file of the queue ends behind 7
    (7, 0, "FOUND", 8),
    (8, 0, "FOUND", 10),
    (9, 0, "FOUND", 10),
]


@pytest.mark.parametrize(("queue_offset", "code", "status", "next_begin_offset"), MASTER_ROWS)
def test_the_outcome_at_each_border_of_a_queue(
    queue: ConsumeQueue, queue_offset: int, code: int, status: str, next_begin_offset: int
) -> None:
    """HA-P-7 "MUST be those of the first row of the table that applies"; HA-R-26 "MUST answer 0 (SUCCESS) with messages"."""
    answer = stand_of(queue).pull(queueOffset=queue_offset)
    assert looked_into(answer) == (code, status, next_begin_offset, 5, 10)
    assert answer is not None
    numbers = range(queue_offset, next_begin_offset) if code == 0 else range(0)
    assert body_of(answer) == b"".join(bytes_of(1000 + 10 * number, 10) for number in numbers)


@pytest.mark.parametrize(("queue_offset", "code"), [(0, 19), (1, 21), (-1, 21)])
def test_a_queue_that_is_not_there(queue_offset: int, code: int) -> None:
    answer = stand_of(None).pull(queueOffset=queue_offset)
    assert looked_into(answer) == (code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(("queue_offset", "code"), [(0, 19), (1, 21), (-1, 21)])
def test_a_queue_without_a_message(tmp_path: Path, queue_offset: int, code: int) -> None:
    answer = stand_of(open_queue(tmp_path / "q")).pull(queueOffset=queue_offset)
    assert looked_into(answer) == (code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(
    ("queue_offset", "expected"), [(9, (21, "OFFSET_TOO_SMALL", 10)), (10, (19, "OFFSET_OVERFLOW_ONE", 10))]
)
def test_a_queue_of_which_all_messages_are_deleted(
    queue: ConsumeQueue, queue_offset: int, expected: tuple[int, str, int]
) -> None:
    queue.delete_expired(5000)
    assert looked_into(stand_of(queue).pull(queueOffset=queue_offset)) == (*expected, 10, 10)


def test_a_file_that_was_deleted_meanwhile(queue: ConsumeQueue) -> None:
    """HA-P-7, the row before the last."""
    (queue.directory / f"{0:020d}").unlink()
    queue.close()
    assert looked_into(stand_of(queue).pull(queueOffset=6)) == (19, "OFFSET_FOUND_NULL", 8, 5, 10)


# --- A slave ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queue_offset", "code", "status", "next_begin_offset"), MASTER_ROWS)
@pytest.mark.parametrize("checks", [False, True])
def test_a_slave_corrects_no_offset(
    queue: ConsumeQueue, queue_offset: int, code: int, status: str, next_begin_offset: int, checks: bool
) -> None:
    """HA-R-31 "A slave answers 20 where a master answers 21, and does not correct the offset of the pull".

    HA-R-6 "A slave answers pulls whatever `slaveReadEnable` says": it is off here.
    """
    stand = stand_of(queue, role=BrokerRole.SLAVE, offset_check_in_slave=checks)
    if not checks and code != 0:
        code, next_begin_offset = (20 if code == 21 else code), queue_offset
    assert looked_into(stand.pull(queueOffset=queue_offset)) == (code, status, next_begin_offset, 5, 10)


@pytest.mark.parametrize(("queue_offset", "code"), [(4, 20), (8, 0), (10, 19), (11, 20), (99, 20)])
@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("is_connected", [False, True])
def test_a_slave_holds_what_only_its_master_could_answer(
    queue: ConsumeQueue, queue_offset: int, code: int, checks: bool, is_connected: bool
) -> None:
    """HA-R-57 "MUST park a pull with bit 2 of `sysFlag` that it would answer 20 in place of 21"; with bit 2 off it answers."""
    stand = stand_of(queue, role=BrokerRole.SLAVE, offset_check_in_slave=checks)
    stand.is_connected_to_master = is_connected
    answer = stand.pull(queueOffset=queue_offset, sysFlag=6)
    if code == 19 or (code == 20 and not is_connected and not checks):
        assert answer is None
        assert stand.hold.count == 1
        [held] = stand.hold.turn(15_000)  # the time of the pull is over
        assert held.pull_from_this_offset == queue_offset
    else:
        assert answer is not None
        assert answer.code == (21 if code == 20 and checks else code)
    assert stand.pull(queueOffset=queue_offset) is not None


def test_a_held_pull_of_a_slave_gets_what_comes_behind_its_offset(queue: ConsumeQueue) -> None:
    """Messages before the offset do not wake it: the consumer has them already."""
    stand = stand_of(queue, role=BrokerRole.SLAVE)
    assert stand.pull(queueOffset=12, sysFlag=6) is None
    for number in (10, 11):
        queue.put(1000 + 10 * number, 10, A, number)
        stand.arrivals.note((b"t", 0))
        stand.processor.turn(1)
        assert stand.channel.answers == []
    queue.put(1120, 10, A, 12)
    stand.arrivals.note((b"t", 0))
    stand.processor.turn(2)
    [answer] = stand.channel.answers
    assert looked_into(answer) == (0, "FOUND", 13, 5, 13)


def test_a_slave_without_the_queue() -> None:
    stand = stand_of(None, role=BrokerRole.SLAVE)
    assert looked_into(stand.pull(queueOffset=3)) == (20, "NO_MESSAGE_IN_QUEUE", 3, 0, 0)
    assert looked_into(stand.pull(queueOffset=0)) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


def test_a_slave_goes_on_where_nothing_matches(queue: ConsumeQueue) -> None:
    stand = stand_of(queue, role=BrokerRole.SLAVE)
    assert looked_into(stand.pull(queueOffset=8, subscription="c")) == (20, "NO_MATCHED_MESSAGE", 10, 5, 10)


def test_a_slave_that_corrects_nothing_suggests_the_broker_of_the_group(queue: ConsumeQueue) -> None:
    stand = stand_of(queue, role=BrokerRole.SLAVE)
    stand.groups["g"] = group(broker_id=3)
    suggested = []
    for queue_offset in (4, 5, 10):
        answer = stand.pull(queueOffset=queue_offset)
        assert answer is not None
        suggested.append(answer.ext_fields["suggestWhichBrokerId"])
    assert suggested == ["3", "0", "0"]


# --- The filter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sub_string", "expected", "numbers"),
    [
        ("a", (0, "FOUND", 10), [8]),
        ("b", (0, "FOUND", 10), [9]),
        ("a||b", (0, "FOUND", 10), [8, 9]),
        ("*", (0, "FOUND", 10), [8, 9]),
        ("c", (20, "NO_MATCHED_MESSAGE", 10), []),
        (" ", (20, "NO_MATCHED_MESSAGE", 10), []),
    ],
)
def test_messages_are_chosen_by_the_hashes_of_their_tags(
    queue: ConsumeQueue, sub_string: str, expected: tuple[int, str, int], numbers: list[int]
) -> None:
    """HA-P-5 "the lower 32 bits of the tags code in its queue entry, as an i32, are the hash of one of the tags"."""
    answer = stand_of(queue).pull(queueOffset=8, subscription=sub_string)
    assert looked_into(answer) == (*expected, 5, 10)
    assert answer is not None
    assert body_of(answer) == b"".join(bytes_of(1000 + 10 * number, 10) for number in numbers)


@pytest.mark.parametrize("code", [A, -A, A + (1 << 32), A - (1 << 40), (1 << 31) - 1, -(1 << 31), 0])
def test_of_a_long_tags_code_the_lower_half_counts(tmp_path: Path, code: int) -> None:
    queue = open_queue(tmp_path / "q")
    queue.put(0, 10, code, 0)
    low = (code + (1 << 31)) % (1 << 32) - (1 << 31)
    assert has_message_for(queue, 0, frozenset({low})) == (True, 0)
    assert has_message_for(queue, 0, frozenset({low + 1})) == (False, 1)


def test_the_hold_looks_for_a_tag_in_every_file_of_the_queue(queue: ConsumeQueue) -> None:
    """The queue's files have 8 entries. Messages 5 to 9 have the tags b, a, b, a, b."""
    c = java_hash("c")
    assert has_message_for(queue, 5, frozenset({c})) == (False, 10)
    for number in range(10, 20):
        queue.put(2000 + 10 * number, 10, c if number == 17 else B, number)
    assert has_message_for(queue, 10, frozenset({c})) == (True, 16)  # it is in the file that begins at 16
    assert has_message_for(queue, 18, frozenset({c})) == (False, 20)
    assert has_message_for(queue, 0, frozenset({A})) == (True, 5)
    assert has_message_for(queue, 20, None) == (False, 20)
    assert has_message_for(queue, 19, None) == (True, 20)


# --- What is looked at -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_msg_nums", "count", "next_begin_offset"),
    [(32, 799, 799), (32, 800, 800), (32, 801, 800), (800, 900, 800), (801, 900, 801), (900, 900, 900), (2000, 900, 900)],
)
def test_so_many_entries_are_looked_at(tmp_path: Path, max_msg_nums: int, count: int, next_begin_offset: int) -> None:
    """HA-P-8 "as many entries as the greater of 800 and `maxMsgNums`"."""
    queue = open_queue(tmp_path / "q")
    queue.put_all([value for number in range(count) for value in (number, 10 * number, 10, A)])
    answer = stand_of(queue).pull(subscription="b", maxMsgNums=max_msg_nums)
    assert looked_into(answer) == (20, "NO_MATCHED_MESSAGE", next_begin_offset, 0, count)


def test_no_pull_looks_at_a_whole_file_of_entries(tmp_path: Path) -> None:
    """HA-P-8 "it MAY stop before `maxMsgNums` entries if that is more than 800"."""
    queue = open_queue(tmp_path / "q")
    count = MOST_LOOKED_AT + 1
    queue.put_all([value for number in range(count) for value in (number, 10 * number, 10, A)])
    answer = stand_of(queue).pull(subscription="b", maxMsgNums=(1 << 31) - 1)
    assert looked_into(answer) == (20, "NO_MATCHED_MESSAGE", MOST_LOOKED_AT, 0, count)


SIZES = [100, 10, 10, 10, 10, 10, 10, 10, 10, 10]  # of messages 0 to 9


@pytest.mark.parametrize(
    ("bounds", "max_msg_nums", "count"),
    [
        ({}, 32, 10),
        ({}, 1, 1),
        ({}, 0, 1),
        ({}, 9, 9),
        ({"messages_in_memory": 4}, 32, 4),
        ({"messages_in_memory": 1}, 32, 1),
        ({"messages_in_memory": 4}, 3, 3),
        ({"bytes_in_memory": 120}, 32, 3),
        ({"bytes_in_memory": 119}, 32, 2),
        ({"bytes_in_memory": 121}, 32, 3),
        ({"bytes_in_memory": 99}, 32, 1),
        ({"bytes_in_memory": 0}, 32, 1),
        ({"memory": 0}, 32, 8),
        ({"memory": 0, "bytes_on_disk": 110}, 32, 2),
        ({"memory": 0, "bytes_on_disk": 109}, 32, 1),
        ({"memory": 0, "messages_on_disk": 3}, 32, 3),
        ({"memory": 0, "messages_on_disk": 3}, 2, 2),
        # The log ends at 190; message 7 is at 160 and message 8 at 170.
        ({"memory": 30, "messages_on_disk": 4}, 32, 4),
        ({"memory": 30, "messages_on_disk": 7}, 32, 10),  # from message 7 on they are in memory
        ({"memory": 29, "messages_on_disk": 7}, 32, 7),
        ({"memory": 29, "messages_on_disk": 8}, 32, 10),
    ],
)
def test_a_batch_ends_at_each_of_its_bounds(tmp_path: Path, bounds: dict[str, int], max_msg_nums: int, count: int) -> None:
    """HA-P-9 "The batch MUST be full before an entry if it has a message already"; HA-P-10 "MUST count as on disk"."""
    queue = open_queue(tmp_path / "q")
    at = 0
    for number, size in enumerate(SIZES):
        queue.put(at, size, A, number)
        at += size
    stand = stand_of(queue, PlayedLog(0, at, BIG_FILES), bounds=PullBounds(**{"memory": NO_END} | bounds))
    answer = stand.pull(maxMsgNums=max_msg_nums)
    assert looked_into(answer) == (0, "FOUND", count, 0, 10)
    assert answer is not None
    assert body_of(answer) == bytes_of(0, sum(SIZES[:count]))


def test_the_default_bounds() -> None:
    bounds = PullBounds(7)
    found = (bounds.messages_in_memory, bounds.bytes_in_memory, bounds.messages_on_disk, bounds.bytes_on_disk)
    assert found == (32, 262_144, 8, 65_536)


def test_a_large_message_of_another_tag_ends_a_batch_too(tmp_path: Path) -> None:
    """HA-P-9 "whether or not it matches"."""
    queue = open_queue(tmp_path / "q")
    for number, (size, code) in enumerate([(10, A), (1000, B), (10, A)]):
        queue.put(2000 * number, size, code, number)
    stand = stand_of(queue, bounds=PullBounds(2 * NO_END, bytes_in_memory=500))
    assert looked_into(stand.pull(subscription="a"))[2] == 1


# --- Messages that the log does not have -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_offset", "max_offset", "sub_string", "expected", "numbers"),
    [
        (0, 100, "*", (0, "FOUND", 10), range(10)),
        (40, 100, "*", (0, "FOUND", 10), range(4, 10)),  # the entries of the first ones are passed over
        (90, 100, "*", (0, "FOUND", 10), range(9, 10)),
        (100, 100, "*", (20, "MESSAGE_WAS_REMOVING", 10), range(0)),
        (40, 100, "c", (20, "NO_MATCHED_MESSAGE", 10), range(0)),
        (0, 95, "*", (0, "FOUND", 10), range(9)),  # the last one is not whole
    ],
)
def test_entries_of_messages_that_have_gone_are_passed_over(
    tmp_path: Path, min_offset: int, max_offset: int, sub_string: str, expected: tuple[int, str, int], numbers: range
) -> None:
    """HA-P-11 "whose message the log does not have any more, MUST be passed over"."""
    queue = open_queue(tmp_path / "q")
    for number in range(10):
        queue.put(10 * number, 10, A, number)
    answer = stand_of(queue, PlayedLog(min_offset, max_offset, 50)).pull(subscription=sub_string)
    assert looked_into(answer) == (*expected, 0, 10)
    assert answer is not None
    assert body_of(answer) == b"".join(bytes_of(10 * number, 10) for number in numbers)


def test_fillers_are_passed_over(tmp_path: Path) -> None:
    """HA-P-12 "A filler (HA-ST-33) MUST be passed over, and MUST NOT count for the batch, nor for the lag"."""
    queue = open_queue(tmp_path / "q")
    queue.put(1000, 10, A, 0)
    queue.put(1010, 10, A, 4)  # 1 to 3 are fillers
    stand = stand_of(queue, bounds=PullBounds(NO_END - 1000, messages_in_memory=2), slave_read_enable=True)
    answer = stand.pull()
    assert looked_into(answer) == (0, "FOUND", 5, 0, 5)
    assert answer is not None
    assert body_of(answer) == bytes_of(1000, 20)
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"
    only_fillers = stand.pull(queueOffset=1, subscription="c")
    assert looked_into(only_fillers) == (20, "NO_MATCHED_MESSAGE", 5, 0, 5)


def test_records_that_follow_one_another_are_one_buffer(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q")
    for number, offset in enumerate([0, 10, 20, 40, 50, 70]):  # others are at 30 and at 60; files have 64 bytes
        queue.put(offset, 10, A, number)
    answer = stand_of(queue, PlayedLog(0, 80, 70)).pull()
    assert answer is not None
    assert [bytes(buffer) for buffer in answer.buffers] == [bytes_of(0, 30), bytes_of(40, 20), bytes_of(70, 10)]


# --- The suggestion --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "memory", "max_msg_nums", "suggested"),
    [
        (False, 0, 32, "0"),  # HA-R-22 "MUST NOT be suggested unless `slaveReadEnable` is set"
        (True, 10, 32, "6"),  # the last one that was looked at is 10 bytes before the end
        (True, 9, 32, "7"),
        (True, 90, 1, "6"),  # message 1 did not fit, and counts: 90 bytes before the end
        (True, 89, 1, "7"),
    ],
)
def test_a_consumer_that_lags_is_sent_to_the_slave(
    tmp_path: Path, enabled: bool, memory: int, max_msg_nums: int, suggested: str
) -> None:
    """HA-R-20 "MUST suggest the `brokerId` to pull from next"; HA-R-21 "The lag MUST be counted"; HA-R-24 "than one slave"."""
    queue = open_queue(tmp_path / "q")
    for number in range(10):
        queue.put(10 * number, 10, A, number)
    bounds = PullBounds(memory, messages_on_disk=32)
    stand = stand_of(queue, PlayedLog(0, 100, BIG_FILES), slave_read_enable=enabled, bounds=bounds)
    stand.groups["g"] = group(broker_id=6, which_broker_when_consume_slowly=7)
    answer = stand.pull(maxMsgNums=max_msg_nums)
    assert answer is not None
    assert answer.ext_fields["suggestWhichBrokerId"] == suggested


def test_a_message_of_another_tag_counts_for_the_lag(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q")
    queue.put(0, 10, A, 0)
    queue.put(90, 10, B, 1)
    stand = stand_of(queue, PlayedLog(0, 100, BIG_FILES), slave_read_enable=True, bounds=PullBounds(10, messages_on_disk=32))
    suggested = []
    for changed in ({"subscription": "a"}, {"maxMsgNums": 1}, {"queueOffset": 2}):
        answer = stand.pull(**changed)
        assert answer is not None
        suggested.append(answer.ext_fields["suggestWhichBrokerId"])
    assert suggested == ["0", "0", "0"]
    queue.put(110, 10, B, 2)
    stand.store.log.max_offset = 121  # type: ignore[misc]
    answer = stand.pull(subscription="a")
    assert answer is not None
    assert answer.ext_fields["suggestWhichBrokerId"] == "1"


# --- The offset that is committed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sys_flag", "role", "is_committed"),
    [
        (4 | 1, BrokerRole.ASYNC_MASTER, True),
        (4 | 1, BrokerRole.SYNC_MASTER, True),
        (4 | 1, BrokerRole.SLAVE, False),
        (4, BrokerRole.ASYNC_MASTER, False),
        (4 | 2, BrokerRole.ASYNC_MASTER, False),
        (4 | 3, BrokerRole.ASYNC_MASTER, True),
        (4 | 1 | 8 | 16, BrokerRole.ASYNC_MASTER, True),
    ],
)
def test_who_commits_an_offset(queue: ConsumeQueue, sys_flag: int, role: BrokerRole, is_committed: bool) -> None:
    """HA-P-15 "A master MUST store `commitOffset`", "A slave MUST NOT store it"; HA-P-2 "MUST read three bits of `sysFlag`"."""
    stand = stand_of(queue, role=role)
    for queue_offset in (8, 4, 11):
        stand.pull(queueOffset=queue_offset, sysFlag=sys_flag, commitOffset=77 + queue_offset)
    expected = [("127.0.0.1:4711", "g", "t", 0, 77 + queue_offset) for queue_offset in (8, 4, 11)]
    assert stand.committed == (expected if is_committed else [])


def test_what_was_given_is_counted(queue: ConsumeQueue) -> None:
    stand = stand_of(queue)
    for queue_offset in (5, 8, 10, 4):
        stand.pull(queueOffset=queue_offset)
    processor = stand.processor
    assert (processor.found, processor.missed, processor.messages, processor.bytes) == (2, 2, 5, 50)
