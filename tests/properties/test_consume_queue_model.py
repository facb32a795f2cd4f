"""Consume queues of the model: entries, gaps, expiry, search by time, recovery. HA-ST-29 to HA-ST-38."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_ha.reference import consume_queue, dispatch, dispatch_request, mapped_file_queue, store
from rocketmq_ha.reference.consume_queue import FILLER, ConsumeQueue, Entry, Placed
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FILE_SIZE = 60  # bytes: three entries
SETTINGS = DispatchSettings(FILE_SIZE, 7, 9)
profiles = st.sampled_from((CLASSIC, HARDENED))


def put_all(first: int, count: int, profile: Profile, file_size: int = FILE_SIZE) -> ConsumeQueue:
    """Put consecutive messages of 100 bytes each, from queue offset `first` on."""
    queue = consume_queue.empty("T", 0, file_size)
    for number in range(count):
        entry = Entry(number * 100, 100, number)
        queue, placed = consume_queue.put_message_position_info(queue, entry, first + number, profile)
        assert placed is Placed.APPENDED
    return queue


def log_of(messages: Sequence[tuple[str, int, int]], file_size: int = 400, base: int | None = None) -> Log:
    """A log of (topic, queue id, store timestamp); each queue counts its offsets from 0."""
    log, offsets = Log(file_size, base), dict[tuple[str, int], int]()
    for topic, queue_id, store_timestamp in messages:
        queue_offset = offsets.get((topic, queue_id), 0)
        offsets[topic, queue_id] = queue_offset + 1
        record = Record(topic.encode(), b"b", b"", queue_id, queue_offset=queue_offset, store_timestamp=store_timestamp)
        log, _, _ = store.append_record(log, record)
    return log


def dispatched(log: Log, profile: Profile) -> Dispatched:
    return dispatch.do_reput(Dispatched(), log, "20240131235959123", SETTINGS, profile)


messages = st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 2), st.integers(1, 50)), max_size=40)


# --- Entries ---------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.integers(0, 20), st.integers(1, 20), profiles)
def test_entry_n_stands_at_byte_20_n_behind_entries_that_stand_for_nothing(first: int, count: int, profile: Profile) -> None:
    """HA-ST-31 "The entry of the message with queue offset n MUST be entry n of its queue", HA-ST-33 "stands before the first
    message of a queue that does not begin at 0", HA-ST-30 "named by the 20-digit position of its first byte".
    """
    queue = put_all(first, count, profile)
    files = mapped_file_queue.files(queue.mapped_file_queue)
    assert list(files) == [f"{base:020d}" for base in range(first // 3 * 60, (first + count) * 20, 60)]
    image = b"".join(files.values())
    at = first % 3 * 20
    assert image[:at] == bytes.fromhex("0000000000000000 7fffffff 0000000000000000") * (first % 3)
    for number in range(count):
        expected = (number * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + number.to_bytes(8, "big")
        assert image[at + number * 20 : at + number * 20 + 20] == expected
        assert consume_queue.entry_at(queue, first + number) == Entry(number * 100, 100, number)
    assert not any(image[at + count * 20 :])
    assert consume_queue.min_offset_in_queue(queue) == first
    assert consume_queue.max_offset_in_queue(queue) == first + count
    assert consume_queue.entry_at(queue, first - 1) is None
    assert consume_queue.entry_at(queue, first + count) is None


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_entry_comes_back_from_its_20_bytes(offset: int, size: int, tags_code: int) -> None:
    """HA-ST-29 "the commit-log offset of a message as an i64, its size as an i32 and its tags code as an i64"."""
    entry = Entry(offset, size, tags_code)
    assert len(consume_queue.encode(entry)) == 20
    assert consume_queue.decode(consume_queue.encode(entry)) == entry


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        ("T", "", 0),
        ("T", "TAGS\x01TagA", 2598919),
        ("T", "TAGS\x01refund", -934813832),
        ("T", "TAGS\x01polygenelubricants", -(1 << 31)),
        ("T", "TAGS\x01\U0001f600", 31 * 0xD83D + 0xDE00),
        ("T", "DELAY\x013\x02TAGS\x01TagA", 2598919),
        ("SCHEDULE_TOPIC_XXXX", "DELAY\x013\x02TAGS\x01TagA", 1_000 + 10_000),
        ("SCHEDULE_TOPIC_XXXX", "DELAY\x0118", 1_000 + 7_200_000),
        ("SCHEDULE_TOPIC_XXXX", "DELAY\x0199", 1_000 + 7_200_000),
        ("SCHEDULE_TOPIC_XXXX", "DELAY\x010\x02TAGS\x01TagA", 2598919),
        ("SCHEDULE_TOPIC_XXXX", "TAGS\x01TagA", 2598919),
    ],
)
def test_tags_code(topic: str, properties: str, code: int) -> None:
    """HA-ST-32 "sign-extended to 64 bits, and 0 without tags; in `SCHEDULE_TOPIC_XXXX` it is the time of delivery"."""
    log, _, _ = store.append_record(Log(1000), Record(topic.encode(), b"b", properties.encode(), store_timestamp=1_000))
    request = dispatch_request.check_message_and_return_size(log, 0)
    assert isinstance(request, dispatch_request.DispatchRequest)
    assert request.tags_code == code
    files = dispatched(log, HARDENED).queues[topic, 0].mapped_file_queue
    assert files.data[12:] == code.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize(("sys_flag", "queued"), [(0, True), (0x4, False), (0x8, True), (0xC, False), (0x301 | 0x4, False)])
def test_messages_of_a_transaction_that_is_not_committed_are_in_no_queue(sys_flag: int, queued: bool) -> None:
    """HA-ST-34 "Prepared and rolled-back messages of a transaction MUST NOT be in any consume queue"."""
    log, _, _ = store.append_record(Log(1000), Record(b"T", b"b", sys_flag=sys_flag))
    state = dispatched(log, HARDENED)
    assert set(state.queues) == ({("T", 0)} if queued else set())
    assert state.reput_from_offset == store.max_offset(log)


# --- Dispatch --------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(messages, profiles, st.data())
def test_dispatch_in_any_portions_over_a_log_that_grows_by_any_bytes_gives_the_same(
    told: list[tuple[str, int, int]], profile: Profile, data: st.DataObject
) -> None:
    """HA-ST-36 "MUST dispatch the records that it has appended": up to the last whole one, and none before it is whole.

    HA-ST-35 "MUST be dispatched to queues and index in the order of the log".
    """
    complete = log_of(told)
    at_once = dispatched(complete, profile)
    state, length = Dispatched(), 0
    while length < len(complete.data):
        length = data.draw(st.integers(length + 1, min(len(complete.data), length + 250)))
        part = replace(complete, data=complete.data[:length])
        state = dispatch.do_reput(
            state, part, "20240131235959123", SETTINGS, profile, is_master=False, most=data.draw(st.sampled_from((1, None)))
        )
    state = dispatch.do_reput(state, complete, "20240131235959123", SETTINGS, profile, is_master=False)
    assert state == at_once
    for (topic, queue_id), queue in state.queues.items():
        found = [consume_queue.entry_at(queue, index) for index in range(consume_queue.max_offset_in_queue(queue))]
        assert len(found) == sum((topic, queue_id) == each[:2] for each in told)
        for index, entry in enumerate(found):
            assert entry is not None
            record, size = dispatch_request.record_at(complete, entry.offset) or (None, 0)
            assert record is not None
            assert (record.topic.decode(), record.queue_id, record.queue_offset) == (topic, queue_id, index)
            # HA-ST-37 "MUST go through the consume queue, which says where to read, to the commit log".
            got = dispatch.get_message(state, complete, topic, queue_id, index)
            assert got == complete.data[entry.offset : entry.offset + size]


@UNHURRIED
@given(messages, st.integers(0, 2000), profiles)
def test_dispatching_again_changes_no_queue(told: list[tuple[str, int, int]], back: int, profile: Profile) -> None:
    """HA-ST-31 "MUST be entry n of its queue": existing entries are not added again, wherever the dispatch starts."""
    log = log_of(told)
    state = dispatched(log, profile)
    begins = [
        0,
        *(entry.offset for queue in state.queues.values() for entry in consume_queue.entries(queue.mapped_file_queue.data)),
    ]
    again = replace(state, reput_from_offset=begins[back % len(begins)])
    assert dispatch.do_reput(again, log, "20240131235959124", SETTINGS, profile).queues == state.queues


def test_a_classic_master_goes_on_behind_bytes_that_it_cannot_read_and_nobody_else_does() -> None:
    """HA-ST-79 "skips all that its file holds at that moment": the skipped records are in no queue, although they are whole in
    the log.
    """
    log = log_of([("A", 0, 1)] * 3, file_size=1000)
    bad = replace(log, data=log.data[:97] + b"\xff\xff\xff\xff" + log.data[101:])
    one, all_of_them = 1, store.max_offset(bad)
    for profile, is_master, count, end in (
        (CLASSIC, True, one, all_of_them),
        (CLASSIC, False, one, 93),
        (HARDENED, True, one, 93),
        (HARDENED, False, one, 93),
    ):
        state = dispatch.do_reput(Dispatched(), bad, "20240131235959123", SETTINGS, profile, is_master=is_master)
        assert consume_queue.max_offset_in_queue(state.queues["A", 0]) == count
        assert state.reput_from_offset == end


def test_a_wrong_crc_does_not_stop_the_dispatch() -> None:
    """HA-ST-35 "MUST be dispatched to queues and index": the live path never checks a CRC (quirk 29)."""
    log = log_of([("A", 0, 1)] * 2, file_size=1000)
    bad = replace(log, data=log.data[:88] + b"X" + log.data[89:])
    assert store.recover(bad, CLASSIC).state.data == b""
    assert dispatched(bad, HARDENED).queues == dispatched(log, HARDENED).queues


# --- Entries out of order --------------------------------------------------------------------------------------------


def test_an_entry_that_skips_places_is_misplaced_by_classic_and_put_in_its_place_by_hardened() -> None:
    """HA-ST-74 "takes the next place all the same", HA-ST-75 "MUST fill the places between"."""
    entry = Entry(900, 100, 7)
    queue, placed = consume_queue.put_message_position_info(put_all(0, 2, CLASSIC), entry, 4, CLASSIC)
    assert (placed, consume_queue.entry_at(queue, 2), consume_queue.entry_at(queue, 4)) == (Placed.MISPLACED, entry, None)
    queue, placed = consume_queue.put_message_position_info(put_all(0, 2, HARDENED), entry, 4, HARDENED)
    assert (placed, consume_queue.entry_at(queue, 4), consume_queue.max_offset_in_queue(queue)) == (Placed.FILLED, entry, 5)
    assert [consume_queue.entry_at(queue, index) for index in (2, 3)] == [FILLER, FILLER]


def test_queue_offset_0_of_a_queue_that_has_entries_is_appended_by_classic_and_repeated_to_hardened() -> None:
    """HA-ST-31 "The entry of the message with queue offset n MUST be entry n of its queue"."""
    entry = Entry(900, 100, 7)
    queue, placed = consume_queue.put_message_position_info(put_all(0, 2, CLASSIC), entry, 0, CLASSIC)
    assert (placed, consume_queue.entry_at(queue, 2)) == (Placed.MISPLACED, entry)
    before = put_all(0, 2, HARDENED)
    assert consume_queue.put_message_position_info(before, entry, 0, HARDENED) == (before, Placed.REPEATED)


def test_a_queue_offset_that_no_log_would_have_stops_the_dispatch_of_hardened_alone() -> None:
    """HA-ST-35 "in the order of the log": one flipped bit in a queue offset must not fill the disk with entries."""
    log, _, _ = store.append_record(log_of([("A", 0, 1)] * 2, file_size=1000), Record(b"A", b"b", queue_offset=1 << 40))
    stopped = dispatched(log, HARDENED)
    assert stopped.reput_from_offset == 2 * 93
    assert consume_queue.max_offset_in_queue(stopped.queues["A", 0]) == 2
    went_on = dispatched(log, CLASSIC)
    assert consume_queue.max_offset_in_queue(went_on.queues["A", 0]) == 3


# --- Expiry ----------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.integers(0, 5), st.integers(1, 20), st.integers(0, 2100))
def test_the_min_offset_of_a_queue_is_that_of_the_oldest_message_that_the_log_has(first: int, count: int, low: int) -> None:
    """HA-ST-13 "older files may have been deleted"; HA-ST-71 "MUST move to the first message that the log still has"."""
    queue = put_all(first, count, HARDENED)
    after = consume_queue.delete_expired_file(queue, low, HARDENED)
    gone = min(count, -(-low // 100))
    assert consume_queue.min_offset_in_queue(after) == first + gone
    assert consume_queue.max_offset_in_queue(after) == first + count
    assert after.mapped_file_queue.base is not None
    last_file = (first + count - 1) // 3 * 60
    assert after.mapped_file_queue.base == min(last_file, (first + gone) // 3 * 60)
    for index in range(first + gone, first + count):
        assert consume_queue.entry_at(after, index) == consume_queue.entry_at(queue, index)


def test_classic_keeps_a_min_offset_whose_message_has_gone_with_all_others_of_its_file() -> None:
    """HA-ST-13 "MUST be the start of its first file" speaks of the log; only hardened moves the queue's min offset with it."""
    queue = put_all(0, 3, CLASSIC)
    assert consume_queue.min_offset_in_queue(consume_queue.delete_expired_file(queue, 5000, CLASSIC)) == 0
    assert consume_queue.min_offset_in_queue(consume_queue.delete_expired_file(queue, 5000, HARDENED)) == 3


# --- By time ---------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.lists(st.integers(1, 40), min_size=1, max_size=25), st.integers(0, 42), st.integers(0, 3))
def test_a_search_by_time_finds_the_first_message_that_is_not_older(times: list[int], timestamp: int, expired: int) -> None:
    """HA-ST-81 "MUST begin at the first message of the queue that is not older"."""
    times = sorted(times)
    log = log_of([("A", 0, time) for time in times])
    state = dispatched(log, HARDENED)
    log = mapped_file_queue.delete_first_files(log, min(expired, mapped_file_queue.file_count(log) - 1))
    queue = dispatch.delete_expired(state, log, HARDENED).queues["A", 0]
    found = consume_queue.lower_offset_in_queue_by_time(queue, log, timestamp)
    low = consume_queue.min_offset_in_queue(queue)
    assert found == next((index for index in range(low, len(times)) if times[index] >= timestamp), len(times))


@UNHURRIED
@given(st.lists(st.integers(1, 40), min_size=1, max_size=25), st.integers(0, 42), st.integers(0, 3))
def test_a_search_for_the_upper_bound_finds_the_last_message_that_is_not_newer(
    times: list[int], timestamp: int, expired: int
) -> None:
    """HA-ST-94 "MUST find the last message of the queue that is not newer, or 0 if there is none"."""
    times = sorted(times)
    log = log_of([("A", 0, time) for time in times])
    state = dispatched(log, HARDENED)
    log = mapped_file_queue.delete_first_files(log, min(expired, mapped_file_queue.file_count(log) - 1))
    queue = dispatch.delete_expired(state, log, HARDENED).queues["A", 0]
    found = consume_queue.upper_offset_in_queue_by_time(queue, log, timestamp)
    low = consume_queue.min_offset_in_queue(queue)
    assert found == max((index for index in range(low, len(times)) if times[index] <= timestamp), default=0)
    if times[low] <= timestamp:  # both ends belong to a range of times
        lower = consume_queue.lower_offset_in_queue_by_time(queue, log, timestamp)
        assert times[lower : found + 1] == [timestamp] * times[low:].count(timestamp)


@pytest.mark.parametrize(
    ("times", "timestamp", "found"),
    [
        ((10, 20, 30), 20, 1),
        ((10, 20, 30), 24, 1),  # nearer to the message before
        ((10, 20, 30), 25, 1),  # equally near to both: the earlier wins
        ((10, 20, 30), 26, 2),
        ((10, 20, 30), 1, 0),  # before all
        ((10, 20, 30), 99, 2),  # after all: the last message, not the max offset
        ((10, 10, 10), 10, 1),  # the first that the search meets, not the first in the queue
        ((10, 10, 10, 10, 10), 10, 2),
        ((10,), 5, 0),
    ],
)
def test_a_search_by_time_in_classic(times: tuple[int, ...], timestamp: int, found: int) -> None:
    """HA-ST-80 "begins at the nearest message of one file of the queue": the binary search of 4.5.2 and 4.9.8, ties and all."""
    log = log_of([("A", 0, time) for time in times], file_size=1000)
    state = dispatch.do_reput(Dispatched(), log, "20240131235959123", DispatchSettings(200, 7, 9), CLASSIC)
    assert consume_queue.offset_in_queue_by_time(state.queues["A", 0], log, timestamp, [99]) == found


def test_a_search_by_time_in_classic_is_in_one_file_which_the_file_system_chooses() -> None:
    """HA-ST-30 "A consume-queue file MUST hold 300,000 entries": of several files, the first one last written at that time or
    later.
    """
    times = (10, 20, 30, 40, 50, 60)
    log = log_of([("A", 0, time) for time in times], file_size=1000)
    queue = dispatched(log, CLASSIC).queues["A", 0]
    assert [consume_queue.offset_in_queue_by_time(queue, log, 45, modified) for modified in ([30, 60], [99, 99], [0, 0])] == [
        3,
        2,
        3,
    ]
    assert consume_queue.lower_offset_in_queue_by_time(queue, log, 45) == 4


# --- Recovery --------------------------------------------------------------------------------------------------------


def loaded(queue: ConsumeQueue) -> ConsumeQueue:
    """A queue as a new process loads it: every file counts as full."""
    files = mapped_file_queue.load(queue.mapped_file_queue.file_size, mapped_file_queue.files(queue.mapped_file_queue))
    assert isinstance(files, Log)
    return ConsumeQueue(queue.topic, queue.queue_id, files)


@UNHURRIED
@given(st.integers(0, 20), st.integers(1, 20), profiles)
def test_a_queue_that_was_flushed_comes_back(first: int, count: int, profile: Profile) -> None:
    """HA-ST-38 "After a recovery a consume queue MUST NOT name a message beyond the end", and it names all before it."""
    queue = put_all(first, count, profile)
    assert consume_queue.recover(loaded(queue), profile) == replace(queue, min_logic_offset=0)


@UNHURRIED
@given(st.integers(0, 5), st.integers(1, 20), st.integers(0, 2100))
def test_classic_takes_off_the_entries_beyond_an_offset(first: int, count: int, end: int) -> None:
    """HA-ST-38 "MUST NOT name a message beyond the end of the commit log"; the bytes of the removed entries stay (quirk 35)."""
    queue = put_all(first, count, CLASSIC)
    after = consume_queue.truncate_dirty_logic_files(queue, end)
    kept = min(count, -(-end // 100))
    named = [entry for entry in consume_queue.entries(after.mapped_file_queue.data) if entry != FILLER]
    assert named == [Entry(number * 100, 100, number) for number in range(kept)]
    if kept:
        files_left = -(-(first % 3 + kept) // 3)
        image = after.mapped_file_queue.data + after.mapped_file_queue.stale
        assert image == queue.mapped_file_queue.data[: files_left * FILE_SIZE]
        assert after.max_physic_offset == kept * 100


def test_stale_entries_are_entries_again_once_the_log_has_grown_over_them() -> None:
    """HA-ST-38 "a consume queue MUST NOT name a message beyond": in classic a stale entry names a message that was never its
    own (quirk 35).
    """
    queue = consume_queue.truncate_dirty_logic_files(put_all(0, 3, CLASSIC), 100)
    assert consume_queue.max_offset_in_queue(queue) == 1
    queue, placed = consume_queue.put_message_position_info(queue, Entry(150, 40, 5), 1, CLASSIC)
    assert placed is Placed.APPENDED
    ghost = consume_queue.recover(loaded(queue), CLASSIC)
    assert consume_queue.max_offset_in_queue(ghost) == 3
    assert consume_queue.entry_at(ghost, 2) == Entry(200, 100, 2)
    cleared = consume_queue.recover(loaded(put_all(0, 3, HARDENED)), HARDENED)
    cleared = consume_queue.cut(cleared, Log(1000, 1000), 100, HARDENED)
    cleared, _ = consume_queue.put_message_position_info(cleared, Entry(150, 40, 5), 1, HARDENED)
    assert consume_queue.max_offset_in_queue(consume_queue.recover(loaded(cleared), HARDENED)) == 2


def test_entries_that_stand_for_nothing_are_no_message_that_ends_at_2_gib() -> None:
    """HA-ST-77 "takes no message from before that offset"."""
    queue = put_all(2, 1, CLASSIC)
    files = replace(queue.mapped_file_queue, data=queue.mapped_file_queue.data[:40])
    torn = replace(queue, mapped_file_queue=files)
    recovered = consume_queue.recover(loaded(torn), CLASSIC)
    assert recovered.max_physic_offset == (1 << 31) - 1
    entry = Entry(0, 100, 0)
    assert consume_queue.put_message_position_info(recovered, entry, 2, CLASSIC)[1] is Placed.REPEATED
    recovered = consume_queue.cut(loaded(torn), Log(1000, 0, bytes(100)), 100, HARDENED)
    assert recovered == consume_queue.empty("T", 0, FILE_SIZE)
    after, placed = consume_queue.put_message_position_info(recovered, entry, 2, HARDENED)
    assert (placed, consume_queue.entry_at(after, 2)) == (Placed.APPENDED, entry)


def with_holes(queue: ConsumeQueue, holes: Sequence[int], entry: bytes = bytes(20)) -> ConsumeQueue:
    """The queue with other bytes in the place of some entries."""
    image = bytearray(queue.mapped_file_queue.data)
    for index in holes:
        image[index * 20 : index * 20 + 20] = entry
    return replace(queue, mapped_file_queue=replace(queue.mapped_file_queue, data=bytes(image)))


def test_a_hole_among_expired_messages_is_not_the_end_of_a_queue_after_the_next_clean_stop() -> None:
    """HA-ST-33 "an entry that names no message".

    D12 of the crash campaign: entries that the checkpoint does not vouch for are lost.
    """
    log = Log(1000, 2000)  # all messages of the queue have expired
    torn = with_holes(put_all(0, 11, HARDENED), (1, 2, 5))
    kept = consume_queue.keep_expired(torn, log, None, HARDENED)
    assert consume_queue.max_offset_in_queue(kept) == 11, "for their numbers"
    entry = Entry(2000, 100, 11)

    def after_a_clean_stop(queue: ConsumeQueue) -> ConsumeQueue:
        queue, placed = consume_queue.put_message_position_info(queue, entry, 11, HARDENED)
        assert placed is Placed.APPENDED
        return consume_queue.recover(loaded(queue), HARDENED)

    found = after_a_clean_stop(kept)
    assert consume_queue.max_offset_in_queue(found) == 12
    assert consume_queue.entry_at(found, 11) == entry
    left = list(consume_queue.entries(found.mapped_file_queue.data))
    assert [index for index, each in enumerate(left) if each == FILLER] == [1, 2, 5]
    assert consume_queue.max_offset_in_queue(after_a_clean_stop(torn)) == 5, "a hole in the last three files is the end"


def test_a_filler_beside_the_tags_code_of_a_lost_entry_is_a_filler() -> None:
    """HA-ST-33: a power cut between two sectors left it (filler-with-the-tags-of-a-lost-entry.json). Recovery after a stop
    took it for a message that ends at 2 GiB, behind the log, and gave the queue's numbers away again.
    """
    log = Log(1000, 2000)  # all messages of the queue have expired
    torn = with_holes(put_all(0, 11, HARDENED), (9,), consume_queue.encode(replace(FILLER, tags_code=97)))
    found = consume_queue.cut(consume_queue.recover(loaded(torn), HARDENED), log, 2000, HARDENED, is_clean=True)
    assert consume_queue.max_offset_in_queue(found) == 11


def test_an_expired_entry_behind_one_of_a_later_message_becomes_a_filler() -> None:
    """HA-ST-97 "each begins behind the message of the one kept before it": the next clean start ended the queue there."""
    log = Log(1000, 2000)  # all messages of the queue have expired
    mixed = with_holes(put_all(0, 11, HARDENED), (4,), consume_queue.encode(Entry(550, 50, 4)))  # of an earlier history
    kept = consume_queue.keep_expired(mixed, log, None, HARDENED)
    assert consume_queue.entry_at(kept, 5) == FILLER
    assert consume_queue.entry_at(kept, 6) == Entry(600, 100, 6)
    found = consume_queue.cut(consume_queue.recover(loaded(kept), HARDENED), log, 2000, HARDENED, is_clean=True)
    assert consume_queue.max_offset_in_queue(found) == 11


no_entries = st.one_of(
    st.builds(Entry, st.integers(-(1 << 63), -1), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-5, 5)),
    st.builds(Entry, st.integers(0, 1 << 40), st.integers(-(1 << 31), 0), st.integers(-5, 5)),
)


@UNHURRIED
@given(st.integers(0, 5), st.integers(1, 12), st.data())
def test_what_is_no_entry_is_made_to_stand_for_nothing_and_nothing_else_is_changed(
    first: int, count: int, data: st.DataObject
) -> None:
    """HA-ST-97 "its entries of messages that have expired", HA-ST-33 "an entry that names no message": for
    any bytes, and however often recovery runs.
    """
    queue = put_all(first, count, HARDENED)
    before = list(consume_queue.entries(queue.mapped_file_queue.data))
    holes = data.draw(st.sets(st.integers(0, len(before) - 1)))
    torn = queue
    for index in sorted(holes):
        torn = with_holes(torn, (index,), consume_queue.encode(data.draw(no_entries)))
    expired = data.draw(st.integers(0, count))
    log = Log(1000, 100 * expired)
    number = data.draw(st.none() | st.integers(first, first + count))
    kept = consume_queue.keep_expired(torn, log, number, HARDENED)
    most = first + expired if number is None else min(number, first + expired)
    offset = queue.mapped_file_queue.base // 20
    ends = [index + 1 for index in range(most - offset) if before[index] != FILLER and index not in holes]
    expected = [FILLER if index in holes else entry for index, entry in enumerate(before[: max(ends, default=0)])]
    assert list(consume_queue.entries(kept.mapped_file_queue.data)) == expected
    assert consume_queue.keep_expired(loaded(kept), log, number, HARDENED).mapped_file_queue.data == kept.mapped_file_queue.data
    if expected:
        assert kept.max_physic_offset == expected[-1].offset + expected[-1].size
        recovered = consume_queue.recover(loaded(kept), HARDENED)
        assert consume_queue.max_offset_in_queue(recovered) == offset + len(expected)


@UNHURRIED
@given(messages.filter(lambda told: any(each[:2] == ("A", 0) for each in told)), st.data())
def test_hardened_keeps_what_is_true_of_a_queue_whose_last_entries_are_torn(
    told: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """HA-ST-82 "MUST keep the entries that the checkpoint vouches for, and no other"; dispatch writes the rest again."""
    log = log_of(told)
    state = dispatched(log, HARDENED)
    queue = state.queues["A", 0]
    offsets = [entry.offset for entry in consume_queue.entries(queue.mapped_file_queue.data)]
    known = data.draw(st.sampled_from([*offsets, store.max_offset(log)]))
    flushed = sum(offset < known for offset in offsets)
    image = bytearray(b"".join(mapped_file_queue.files(queue.mapped_file_queue).values()))
    for at in range(flushed * 20, len(image), 4):
        if data.draw(st.booleans()):
            image[at : at + 4] = bytes(4)  # the smallest unit that a crash can tear
    torn = ConsumeQueue("A", 0, replace(queue.mapped_file_queue, data=bytes(image)))
    cut = consume_queue.cut(torn, log, known, HARDENED)
    assert cut.mapped_file_queue.data == queue.mapped_file_queue.data[: flushed * 20]
    assert not cut.mapped_file_queue.stale
    again = Dispatched({**state.queues, ("A", 0): cut}, state.index, known)
    assert dispatch.do_reput(again, log, "20240131235959124", SETTINGS, HARDENED).queues["A", 0].mapped_file_queue == (
        queue.mapped_file_queue
    )


def test_a_message_that_its_queue_refuses_leaves_no_trace() -> None:
    """Neither an empty queue nor a key."""
    request = dispatch_request.DispatchRequest("T", 0, 0, 92, 0, 1_000, 1 << 60, ("k",), 0)
    first = replace(request, consume_queue_offset=0)
    assert dispatch.do_dispatch(Dispatched(), request, "1", SETTINGS, HARDENED) == (Dispatched(), Placed.REFUSED)
    after, _ = dispatch.do_dispatch(Dispatched(), first, "1", SETTINGS, HARDENED)
    assert (len(after.queues), len(after.index), after.store_timestamp) == (1, 1, 1_000)
