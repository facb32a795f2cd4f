"""When the consumer offsets are written, and how many there may be."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.broker_tables import BrokerTables
from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.rebalance_lock import MessageQueue, RebalanceLockManager
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.errors import ConfigInvalid, RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

NOWHERE = Path("/nowhere")


@pytest.fixture
def file() -> MemoryFile:
    return MemoryFile()


def offsets_over(file: MemoryFile, **settings: int) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(NOWHERE, TableSettings(**settings), 1_000, file)  # type: ignore[arg-type]


def test_the_file_is_written_on_a_timer_if_something_has_changed(file: MemoryFile) -> None:
    """HA-BT-33 "MUST be written 10 s after the start, then every `flushConsumerOffsetInterval` (5 s), and at the stop"."""
    offsets = offsets_over(file)
    offsets.commit_offset("here", "g", "t", 0, 1)
    offsets.on_tick(10_999)
    assert file.writes == 0
    offsets.on_tick(11_000)
    assert file.writes == 1
    offsets.on_tick(16_000)
    assert file.writes == 1  # nothing has changed
    offsets.commit_offset("here", "g", "t", 0, 2)
    offsets.on_tick(20_999)
    assert file.writes == 1
    offsets.on_tick(21_000)
    assert file.writes == 2
    assert json.loads(file.content or b"") == {"offsetTable": {"t@g": {"0": 2}}}


def test_after_a_pause_of_the_process_the_file_is_written_once(file: MemoryFile) -> None:
    offsets = offsets_over(file)
    for now_ms in (600_000, 600_001, 604_999):
        offsets.commit_offset("here", "g", "t", 0, now_ms)
        offsets.on_tick(now_ms)
    assert file.writes == 1
    offsets.on_tick(605_000)
    assert file.writes == 2


def test_offsets_that_the_disk_refused_are_written_later(file: MemoryFile) -> None:
    """HA-BT-6 "MUST try again": without another commit."""
    offsets = offsets_over(file)
    offsets.commit_offset("here", "g", "t", 0, 7)
    file.is_full = True
    assert not offsets.persist()
    file.is_full = False
    offsets.on_tick(11_000)
    assert json.loads(file.content or b"") == {"offsetTable": {"t@g": {"0": 7}}}
    assert offsets.persist()
    assert file.writes == 1


def test_what_is_replaced_or_removed_leaves_room(file: MemoryFile) -> None:
    """HA-BT-60 "MUST bound each of its tables": by the offsets that there are, not by those that there were."""
    offsets = offsets_over(file, max_offset_entries=4)
    for queue_id in (0, 1):
        assert offsets.commit_offset("here", "g", "t", queue_id, 5)
    for _ in range(5):
        assert offsets.clone_offset("g", "h", "t")
    assert not offsets.commit_offset("here", "i", "t", 0, 5)
    assert not offsets.clone_offset("g", "i", "t")
    assert offsets.commit_offset("here", "h", "t", 0, 6)
    offsets.remove_offset("h")
    assert offsets.clone_offset("g", "i", "t")
    again = offsets_over(file, max_offset_entries=4)
    assert offsets.persist()
    assert again.load()
    assert not again.commit_offset("here", "j", "t", 0, 5)


def test_the_answer_to_43_is_a_frame_whatever_is_committed(file: MemoryFile) -> None:
    """HA-BT-76 "MUST refuse an offset of another queue that would make a table of more than": the next of a queue has room."""
    size = len('{"offsetTable":{}}') + len('"t@g":{},') + 2 * len('"0":-9223372036854775808,')
    offsets = offsets_over(file, max_offset_size=size)
    assert offsets.commit_offset("here", "g", "t", 0, 5)
    assert offsets.commit_offset("here", "g", "t", 1, 5)
    for group, queue_id in (("g", 2), ("h", 0)):
        assert not offsets.commit_offset("here", group, "t", queue_id, 5)
    assert not offsets.clone_offset("g", "h", "t")
    with pytest.raises(ConfigInvalid, match=f"found 3 offsets of {size + 25} bytes with those that are here, expected at most"):
        offsets.merge(b'{"offsetTable":{"t@g":{"0":1,"1":2,"2":3}}}')
    assert offsets.offset_table == {"t@g": {0: 5, 1: 5}}
    for queue_id in (0, 1):
        assert offsets.commit_offset("here", "g", "t", queue_id, -(1 << 63))
    assert len(offsets.encode()) == size - 2  # no comma stands behind the last
    offsets.remove_offset("g")
    assert offsets.commit_offset("here", "h", "t", 0, 5)
    again = offsets_over(MemoryFile(), max_offset_size=size)
    again.decode(b'{"offsetTable":{"t@g":{"0":1,"1":2,"2":3}}}')  # a larger file is read
    assert not again.commit_offset("here", "g", "t", 3, 5)
    assert again.commit_offset("here", "g", "t", 2, 1 << 62)


def test_the_bound_of_the_table_leaves_room_for_a_header() -> None:
    """HA-BT-76 "of more than 16,000,000 bytes": a frame has 16 MiB, and its header less than 256 KiB."""
    assert TableSettings().max_offset_size + (256 << 10) < REMOTING_FRAME_MAX


def test_an_offset_with_a_long_name_is_refused(file: MemoryFile) -> None:
    """HA-BT-60 "refuse with SYSTEM_ERROR what does not fit": a topic and a group that no client can have."""
    offsets = offsets_over(file)
    group = "g" * 255
    assert offsets.commit_offset("here", group, "%RETRY%" + group, 0, 5)
    for name, topic in ((group, "%RETRY%" + group + "x"), (group + "x", "%RETRY%" + group)):
        with pytest.raises(RequestInvalid, match="topic@consumerGroup: found 519 characters, expected at most 518"):
            offsets.commit_offset("here", name, topic, 0, 5)
    with pytest.raises(RequestInvalid, match="found 519 characters"):
        offsets.clone_offset(group, group + "x", "%RETRY%" + group)
    assert list(offsets.offset_table) == ["%RETRY%" + group + "@" + group]


def test_request_15_names_the_length_that_it_refuses(tmp_path: Path) -> None:
    """HA-BT-60: 84 offsets of topics of 200,000 characters made the answer to 43 larger than a frame, for ever."""
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        fields = {"consumerGroup": "g", "topic": "t" * 200_000, "queueId": "0", "commitOffset": "1"}
        answer = tables.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "topic@consumerGroup: found 200002 characters, expected at most 518"
        assert not tables.offsets.offset_table


def test_locks_that_have_expired_are_forgotten_every_10_s() -> None:
    """HA-BT-60: the memory of locks is that of the queues that are consumed."""
    locks = RebalanceLockManager(TableSettings(max_locks=3))
    queues = [MessageQueue("t", "b", number) for number in range(5)]
    assert locks.try_lock_batch("g", queues, "x", 0) == queues[:3]
    locks.on_tick(59_999)
    locks.on_tick(60_001)
    assert locks.count == 3
    locks.on_tick(70_000)
    assert locks.count == 0
    assert locks.try_lock_batch("g", queues[3:], "y", 70_000) == queues[3:]
    assert locks.try_lock_batch("h", queues, "x", 130_001) == queues[:3]  # where there is no room, it looks at once
