"""Consume queues of model and implementation are equal, byte for byte, through dispatch, truncation, deletion and tears.

Both dispatch one log in pieces. In between, the log is truncated, loses its first files, and is dispatched again.
HA-ST-29 to HA-ST-38.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.derived.queue_entry import Entry
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import consume_queue as model_queue
from rocketmq_ha.reference import dispatch as model_dispatch
from rocketmq_ha.reference import dispatch_request as model_request
from rocketmq_ha.reference import mapped_file_queue as model_files
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE
from rocketmq_ha.spec.profile import HARDENED

FILE_SIZE = 700  # of the log
QUEUE_FILE_SIZE = 60  # three entries
SETTINGS = model_dispatch.DispatchSettings(QUEUE_FILE_SIZE, 5, 4)


@dataclass(frozen=True)
class Put:
    """A message, and the number of queue offsets that it skips."""

    message: Message
    skipped: int


messages = st.builds(
    Message,
    topic=st.sampled_from(["a", "b", "SCHEDULE_TOPIC_XXXX"]),
    body=st.binary(max_size=60),
    queue_id=st.integers(0, 1),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
    store_timestamp=st.integers(1, 40).map(lambda step: 1_700_000_000_000 + 500 * step),
    properties_string=st.sampled_from(
        [
            *("", "TAGS\x01x", "TAGS\x01é\x02KEYS\x01k l", "DELAY\x013\x02TAGS\x01y", "DELAY\x0199", "TAGS\x01"),
            *(
                "DELAY\x01+5",
                "DELAY\x012147483648",
                "DELAY\x01-1",
                "DELAY\x01\uff13",
                "DELAY\x01" + "0" * 30 + "2",
                "DELAY\x01x",
            ),
        ]
    ),
)
puts = st.lists(st.builds(Put, messages, st.sampled_from([0] * 9 + [1, 4])), max_size=25)


class World:
    """One log, and the queues that each side has built from it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.log = Log(FILE_SIZE)
        self.ends = [0]  # offsets at which a record, or a BLANK, ends
        self.queue_offsets: dict[tuple[str, int], int] = {}
        self.model = model_dispatch.Dispatched()
        self.table = ConsumeQueueTable(store, QUEUE_FILE_SIZE, writable=True)

    # The log, as the implementation reads it.
    file_size = FILE_SIZE

    @property
    def min_offset(self) -> int:
        return self.log.base or 0

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.log.data)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        if not self.min_offset <= offset < self.max_offset:
            return None
        start = offset - self.min_offset
        return memoryview(self.log.data[start : min(start + limit, start - offset % FILE_SIZE + FILE_SIZE)])

    def put(self, put: Put) -> None:
        message = put.message
        key = (message.topic, message.queue_id)
        queue_offset = 0
        if message.is_queued:
            queue_offset = self.queue_offsets.get(key, 0) + put.skipped
            self.queue_offsets[key] = queue_offset + 1
        size = len(encode(message))
        room = FILE_SIZE - self.max_offset % FILE_SIZE
        data = self.log.data
        if size + 8 > room:
            data += room.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(room - 8)
            self.ends.append(self.min_offset + len(data))
        data += encode(message, queue_offset, self.min_offset + len(data))
        self.log = replace(self.log, base=self.min_offset, data=data)
        self.ends.append(self.max_offset)

    def dispatch(self, start: int | None = None) -> None:
        """Dispatch on both sides, from where the model's dispatch stopped, or from the start of a record."""
        begin = self.model.reput_from_offset if start is None else start
        self.model = model_dispatch.do_reput(
            replace(self.model, reput_from_offset=begin), self.log, "0" * 17, SETTINGS, HARDENED
        )
        service = ReputMessageService(self, [self.table.put], begin)
        assert service.dispatch_all() == self.model.reput_from_offset

    def cut(self, end: int) -> None:
        """Truncate the log at `end`, and the queues with it."""
        self.log = replace(self.log, data=self.log.data[: end - self.min_offset])
        self.ends = [known for known in self.ends if known <= end]
        queues = {key: model_queue.cut(queue, self.log, end, HARDENED) for key, queue in self.model.queues.items()}
        self.model = replace(self.model, queues=queues, reput_from_offset=min(self.model.reput_from_offset, end))
        self.table.truncate_dirty(end)
        self.queue_offsets = {
            (topic.decode(), queue_id): queue.max_offset for (topic, queue_id), queue in self.table if queue.max_offset
        }

    def delete(self, files: int) -> None:
        """Delete the first files of the log."""
        size = min(files, max(0, len(self.log.data) - 1) // FILE_SIZE) * FILE_SIZE
        self.log = replace(self.log, base=self.min_offset + size, data=self.log.data[size:])
        self.ends = [known for known in self.ends if known >= self.min_offset]
        self.model = model_dispatch.delete_expired(self.model, self.log, HARDENED)
        self.table.delete_expired(self.min_offset)

    def reopen(self) -> None:
        """Open the queues again from their files, on both sides."""
        self.table.close()
        self.table = ConsumeQueueTable(self.store, QUEUE_FILE_SIZE, writable=True)
        self.table.recover(self.min_offset, self.max_offset if self.log.data else None)
        queues = {}
        for (topic, queue_id), queue in self.model.queues.items() if self.log.data else ():
            loaded = model_files.load(QUEUE_FILE_SIZE, model_files.files(queue.mapped_file_queue))
            assert isinstance(loaded, Log)
            found = model_queue.recover(replace(model_queue.empty(topic, queue_id), mapped_file_queue=loaded), HARDENED)
            queues[topic, queue_id] = model_queue.correct_min_offset(found, self.min_offset, HARDENED)
        self.model = replace(self.model, queues=queues)

    def assert_equal(self) -> None:
        ours = {(topic.decode(), queue_id): queue for (topic, queue_id), queue in self.table if queue.directory.is_dir()}
        with_files = {key: queue for key, queue in self.model.queues.items() if queue.mapped_file_queue.base is not None}
        on_disk = {key: files_of(queue.directory) for key, queue in ours.items()}
        assert {key: files for key, files in on_disk.items() if files} == {
            key: model_files.files(queue.mapped_file_queue) for key, queue in with_files.items()
        }
        for key, queue in with_files.items():
            mine = ours[key]
            assert mine.min_offset == model_queue.min_offset_in_queue(queue)
            assert mine.max_offset == model_queue.max_offset_in_queue(queue)
            for index in range(mine.max_offset + 2):
                found = model_queue.entry_at(queue, index)
                assert mine.entry(index) == (None if found is None else (found.offset, found.size, found.tags_code))


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file, except an empty one after the last entry."""
    found = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    if found and not any(found[last := max(found)]):
        del found[last]
    return found


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_the_same_files_through_dispatch_loss_and_deletion(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    world = World(tmp_path_factory.mktemp("queues"))
    for _ in range(data.draw(st.integers(1, 6))):
        for put in data.draw(puts):
            world.put(put)
        match data.draw(st.sampled_from(("dispatch", "again", "cut", "reopen", "delete"))):
            case "again":
                world.dispatch()
                world.dispatch(world.min_offset)
            case "cut":
                world.dispatch()
                world.cut(data.draw(st.sampled_from(world.ends)))
            case "delete":
                world.dispatch()
                world.delete(data.draw(st.integers(0, 2)))
            case "reopen":
                world.dispatch()
                world.reopen()
        world.dispatch()
        world.assert_equal()
    world.table.close()


def test_a_queue_of_which_only_an_expired_message_is_left_begins_at_its_end(tmp_path: Path) -> None:
    """The queue loses its first message with the log's first file, and the message after a gap by truncation: its first offset
    moves back.
    """
    world = World(tmp_path)
    world.put(Put(Message("b", b"", queue_id=1), 0))
    while world.max_offset <= FILE_SIZE:
        world.put(Put(Message("a", b""), 0))
    world.dispatch()
    world.delete(1)
    end = world.max_offset
    world.put(Put(Message("b", b"", queue_id=1), 4))
    world.dispatch()
    world.assert_equal()
    world.cut(end)
    world.assert_equal()
    queue = world.table.get(b"b", 1)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (1, 1)
    world.table.close()


@settings(deadline=None)
@given(puts.filter(bool), st.data())
def test_a_torn_queue_is_whole_again_after_a_dispatch(
    tmp_path_factory: pytest.TempPathFactory, batch: Sequence[Put], data: st.DataObject
) -> None:
    """A crash leaves zeros from any byte on: recovery and a second dispatch restore the queue.

    Only the last three files are torn, because recovery after a clean stop reads no others.
    """
    world = World(tmp_path_factory.mktemp("queues"))
    for put in batch:
        world.put(put)
    world.dispatch()
    world.table.close()
    for _, queue in world.table:
        for path in sorted(queue.directory.iterdir())[-3:]:
            if data.draw(st.booleans()):
                kept = data.draw(st.integers(0, QUEUE_FILE_SIZE))
                path.write_bytes(path.read_bytes()[:kept].ljust(QUEUE_FILE_SIZE, b"\0"))
    world.table = ConsumeQueueTable(world.store, QUEUE_FILE_SIZE, writable=True)
    world.table.recover(world.min_offset, world.max_offset)
    world.dispatch(world.min_offset)
    world.assert_equal()
    world.table.close()


def test_a_queue_offset_out_of_reach_stops_both(tmp_path: Path) -> None:
    """HA-ST-31; a flipped bit in a queue offset must not fill the disk."""
    world = World(tmp_path)
    limit = model_queue.LARGEST_GAP * QUEUE_FILE_SIZE // 20
    world.put(Put(Message("a", b""), 0))
    world.put(Put(Message("a", b""), limit))
    world.dispatch()
    world.assert_equal()
    reached = world.max_offset
    world.put(Put(Message("a", b""), limit + 1))
    world.model = model_dispatch.do_reput(world.model, world.log, "0" * 17, SETTINGS, HARDENED)
    service = ReputMessageService(world, [world.table.put], reached)
    with pytest.raises(StoreCorrupt, match=f"queue offset {2 * limit + 3}"):
        service.dispatch_all()
    assert world.model.reput_from_offset == service.reput_from_offset == reached
    world.assert_equal()
    world.table.close()


@settings(deadline=None)
@given(
    times=st.lists(st.integers(1, 12), min_size=1, max_size=14),
    timestamp=st.integers(0, 14),
    skipped=st.integers(0, 4),
    missing=st.integers(0, 14),
    deleted=st.integers(0, 2),
)
def test_offsets_by_time_are_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], timestamp: int, skipped: int, missing: int, deleted: int
) -> None:
    """HA-ST-37: hardened finds the first message that is not older, classic the nearest one as 4.9.8 does. For classic the
    modification times are those of the last messages, and queues have no gaps: RocketMQ's have gaps only at their beginning.
    """
    world = World(tmp_path_factory.mktemp("queues"))
    for number, time in enumerate(sorted(times)):
        world.put(Put(Message("a", b"", store_timestamp=time), skipped if number in (0, missing) else 0))
    world.dispatch()
    world.delete(deleted)
    queue, mine = world.model.queues["a", 0], world.table.get(b"a", 0)
    assert mine is not None

    def stored_ms(offset: int, _: int) -> int | None:
        found = model_request.pickup_store_timestamp(world.log, offset)
        return None if found < 0 else found

    assert mine.lower_offset_by_time(timestamp, stored_ms) == model_queue.lower_offset_in_queue_by_time(
        queue, world.log, timestamp
    )
    assert mine.upper_offset_by_time(timestamp, stored_ms) == model_queue.upper_offset_in_queue_by_time(
        queue, world.log, timestamp
    )
    first = [number for number, time in enumerate(sorted(times)) if time >= timestamp]
    if first and not deleted:  # asked again, answered without a search
        skips = skipped if 0 < missing <= first[0] else 0
        assert mine.lower_offset_by_time(timestamp, stored_ms) in (skipped + first[0], skipped + first[0] + skips)
    if 0 < missing < len(times):
        world.table.close()
        return
    files = model_files.files(queue.mapped_file_queue)
    modified = []
    for file in files.values():
        last = [entry for entry in model_queue.entries(file) if model_queue.is_entry(entry)][-1]
        modified.append(stored_ms(last.offset, last.size) or 0)
    assert mine.offset_by_time(timestamp, stored_ms, world.min_offset) == model_queue.offset_in_queue_by_time(
        queue, world.log, timestamp, modified
    )
    world.table.close()


@settings(max_examples=150, deadline=None)
@given(puts.filter(bool), st.data())
def test_after_a_crash_a_queue_keeps_what_was_vouched_for_whatever_is_behind(
    tmp_path_factory: pytest.TempPathFactory, batch: Sequence[Put], data: st.DataObject
) -> None:
    """HA-ST-38; after the entries of messages before `known` any bytes of any file may be missing. Recovery once checked only
    the last three files.
    """
    world = World(tmp_path_factory.mktemp("queues"))
    for put in batch:
        world.put(put)
    world.dispatch()
    known = data.draw(st.sampled_from([end for end in world.ends if end < world.max_offset] or [0]))
    world.table.close()
    queues = {}
    for (topic, queue_id), queue in world.model.queues.items():
        files = model_files.files(queue.mapped_file_queue)
        found = [entry for data in files.values() for entry in model_queue.entries(data)]
        kept = max((number for number, one in enumerate(found, 1) if 0 < one.offset + one.size <= known), default=0)
        kept -= next((number for number, one in enumerate(reversed(found[:kept])) if one != model_queue.FILLER), kept)
        torn = {}
        for number, (name, content) in enumerate(files.items()):
            behind = max(0, min(QUEUE_FILE_SIZE, kept * 20 - number * QUEUE_FILE_SIZE))
            here, until = sorted(data.draw(st.tuples(*[st.integers(behind, QUEUE_FILE_SIZE)] * 2)))
            torn[name] = content[:here] + bytes(until - here) + content[until:]
            (world.store / "consumequeue" / topic / str(queue_id) / name).write_bytes(torn[name])
        loaded = model_files.load(QUEUE_FILE_SIZE, torn)
        assert isinstance(loaded, Log)
        torn_queue = replace(queue, mapped_file_queue=loaded)
        if known > world.min_offset:
            cut = model_queue.cut(torn_queue, world.log, known, HARDENED)
        else:
            cut = model_queue.keep_expired(torn_queue, world.log, None, HARDENED)
        queues[topic, queue_id] = model_queue.correct_min_offset(cut, world.min_offset, HARDENED)
    world.model = replace(world.model, queues=queues)
    world.table = ConsumeQueueTable(world.store, QUEUE_FILE_SIZE, writable=True)

    def is_true(key: tuple[bytes, int], queue_offset: int, entry: Entry) -> bool:
        found = model_request.record_at(world.log, entry.offset)
        if found is None:
            return False
        record, size = found
        told = (record.topic, record.queue_id, record.queue_offset, size)
        return told == (*key, queue_offset, entry.size)

    if known > world.min_offset:
        world.table.keep_before(world.min_offset, known, is_true)
    else:
        world.table.keep_expired(world.min_offset, {})
    world.assert_equal()
    world.dispatch(known)
    world.assert_equal()
    whole = model_dispatch.do_reput(model_dispatch.Dispatched(), world.log, "0" * 17, SETTINGS, HARDENED)
    assert world.model.queues == whole.queues
    world.table.close()


def test_a_file_with_a_message_stays_whatever_stands_at_its_end(tmp_path: Path) -> None:
    """HA-ST-13: fillers after the last message of a file do not make the file expire."""
    world = World(tmp_path)
    for skipped in (0, 0, 1, 0, 0):
        world.put(Put(Message("a", bytes(600 - 92)), skipped))  # one in each file of the log
    world.dispatch()
    world.delete(1)
    world.assert_equal()
    assert world.table.get(b"a", 0).min_offset == 1  # type: ignore[union-attr]
    assert world.table.get(b"a", 0).entry(1) is not None  # type: ignore[union-attr]
    world.delete(1)
    world.assert_equal()
    assert world.table.get(b"a", 0).min_offset == 3  # type: ignore[union-attr]
    world.table.close()


def test_delivery_times_wrap_as_in_java(tmp_path: Path) -> None:
    """HA-ST-32 "the time of delivery", of a message stored at the end of all time."""
    world = World(tmp_path)
    for time in (2**63 - 1, 2**63 - 1000, -(2**63)):
        world.put(Put(Message("SCHEDULE_TOPIC_XXXX", b"", store_timestamp=time, properties_string="DELAY\x011"), 0))
    world.dispatch()
    world.assert_equal()
    [queue] = [queue for _, queue in world.table]
    assert [entry.tags_code for _, entry in queue.entries()] == [-(2**63) + 999, -(2**63), -(2**63) + 1000]
    world.table.close()


@settings(deadline=None)
@given(puts)
def test_requests_are_those_of_the_model(tmp_path_factory: pytest.TempPathFactory, batch: Sequence[Put]) -> None:
    world = World(tmp_path_factory.mktemp("queues"))
    for put in batch:
        world.put(put)
    told: list[tuple[object, ...]] = []
    ReputMessageService(
        world,
        [
            lambda requests: told.extend(
                (
                    *(request.topic.decode(), request.queue_id, request.commit_log_offset, request.size, request.tags_code),
                    *(request.store_timestamp, request.queue_offset, request.sys_flag),
                    tuple(filter(None, [request.uniq_key, *request.keys.split(" ")])),
                )
                for request in requests
            )
        ],
        0,
    ).dispatch_all()
    expected: list[tuple[object, ...]] = []
    offset = 0
    while offset < world.max_offset:
        match model_request.check_message_and_return_size(world.log, offset):
            case model_request.DispatchRequest() as found:
                expected.append(
                    (
                        *(found.topic, found.queue_id, found.commit_log_offset, found.msg_size, found.tags_code),
                        *(found.store_timestamp, found.consume_queue_offset, found.sys_flag, found.keys),
                    )
                )
                offset += found.msg_size
            case model_request.Blank(next_file):
                offset = next_file
            case None:
                raise AssertionError(offset)
    assert told == expected
    world.table.close()
