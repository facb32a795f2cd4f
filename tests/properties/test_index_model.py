"""Index files of the model: hashes, chains, queries, full files, recovery. HA-ST-39 to HA-ST-44."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_ha.reference import dispatch, dispatch_request, index_file, index_service, java_string, store
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings
from rocketmq_ha.reference.dispatch_request import DispatchRequest
from rocketmq_ha.reference.index_file import I32_MAX, IndexFile
from rocketmq_ha.reference.index_service import Index
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SLOTS, ENTRIES = 5, 8
NAME = "20240131235959123"
FOREVER = (0, 1 << 62)
keys = st.sampled_from(("a", "b", "Aa", "BB", "polygenelubricants", "Größe", "\U0001f600"))
puts = st.lists(st.tuples(keys, st.integers(1, 3), st.integers(0, 9_000)), max_size=40)  # (key, bytes on, ms on)


def request(offset: int, store_timestamp: int, *found: str, sys_flag: int = 0) -> DispatchRequest:
    return DispatchRequest("T", 0, offset, 1, 0, store_timestamp, 0, found, sys_flag)


def index_of(
    told: Sequence[tuple[str, int, int]], *, counts_every_put: bool = False
) -> tuple[Index, list[tuple[str, int, int]]]:
    """An index with one key for each message, and each message's (key, offset, store timestamp)."""
    index: Index = ()
    offset, time, history = 0, 1_000_000, list[tuple[str, int, int]]()
    for key, further, later in told:
        offset, time = offset + further, time + later
        index = index_service.build_index(
            index, request(offset, time, key), NAME, CLASSIC, SLOTS, ENTRIES, counts_every_put=counts_every_put
        )
        history.append((key, offset, time))
    return index, history


# --- Bytes -----------------------------------------------------------------------------------------------------------


def test_one_key_byte_for_byte() -> None:
    """HA-ST-39 "The header of an index file MUST be 40 bytes", HA-ST-40 "A slot MUST hold the number of the newest entry of its
    hash", HA-ST-41 "the hash as an i32, the commit-log offset as an i64, the seconds since the file's first message as an i32".
    """
    index, _ = index_of([("a", 300, 0), ("a", 100, 2_999)])
    key_hash = index_file.index_key_hash("T#a")
    slots = [0] * SLOTS
    slots[key_hash % SLOTS] = 2
    assert index[0].data == b"".join(
        [
            (1_000_000).to_bytes(8, "big") + (1_002_999).to_bytes(8, "big"),
            (300).to_bytes(8, "big") + (400).to_bytes(8, "big"),
            (1).to_bytes(4, "big") + (3).to_bytes(4, "big"),
            *(slot.to_bytes(4, "big") for slot in slots),
            bytes(20),  # entry 0 is never used
            key_hash.to_bytes(4, "big") + (300).to_bytes(8, "big") + bytes(8),
            key_hash.to_bytes(4, "big") + (400).to_bytes(8, "big") + (2).to_bytes(4, "big") + (1).to_bytes(4, "big"),
            bytes(20 * (ENTRIES - 3)),
        ]
    )


@pytest.mark.parametrize(
    ("key", "java", "key_hash"),
    [
        ("", 0, 0),
        ("Aa", 2112, 2112),
        ("BB", 2112, 2112),
        ("refund", -934813832, 934813832),
        ("polygenelubricants", -(1 << 31), 0),  # abs() of it is still negative
        ("\U0001f600", 31 * 0xD83D + 0xDE00, 31 * 0xD83D + 0xDE00),  # two UTF-16 units
    ],
)
def test_hash_of_a_key(key: str, java: int, key_hash: int) -> None:
    """HA-ST-42 "the absolute value of its Java `String.hashCode`, or 0 where that is still negative"."""
    assert java_string.hash_code(key) == java
    assert index_file.index_key_hash(key) == key_hash


def test_the_hash_is_of_topic_and_key() -> None:
    """HA-ST-42 "The hash MUST be that of `topic#key`"."""
    index, _ = index_of([("a", 1, 0)])
    assert index_file.entry(index[0], 1).key_hash == index_file.index_key_hash("T#a")
    assert index_service.query_offset(index, "T", "a", 64, *FOREVER) == [1]
    assert index_service.query_offset(index, "U", "a", 64, *FOREVER) == []


@pytest.mark.parametrize(
    ("begin", "stored", "seconds"),
    [(1_000, 1_999, 0), (1_000, 2_000, 1), (5_000, 1_000, 0), (0, 9_999, 0), (-1, 9_999, 0), (1, 1 << 62, I32_MAX)],
)
def test_seconds_of_an_entry(begin: int, stored: int, seconds: int) -> None:
    """HA-ST-41 "the seconds since the file's first message as an i32", HA-ST-84 "before the file's first MUST be 0"."""
    assert index_file.seconds_since(begin, stored) == seconds


def test_sizes_and_names() -> None:
    """HA-ST-43 "An index file MUST hold 5,000,000 slots and 20,000,000 entries, and be named by the time of its making"."""
    sizes = DispatchSettings()
    assert index_file.index_file_size(sizes.max_hash_slot_num, sizes.max_index_num) == 420_000_040
    index, _ = index_of([("a", 1, 0)])
    assert index[0].name == NAME
    assert len(index[0].data) == index_file.index_file_size(SLOTS, ENTRIES)


# --- Chains and counts -----------------------------------------------------------------------------------------------


@UNHURRIED
@given(puts)
def test_chains_hold_every_entry_once_the_newest_first(told: list[tuple[str, int, int]]) -> None:
    """HA-ST-40 "the number of the one before it in its slot, 0 ending the chain", HA-ST-39 "how many slots are counted"."""
    index, history = index_of(told)
    seen = []
    for file in index:
        header, chains = index_file.header(file), 0
        for slot in range(SLOTS):
            number = index_file.slot_value(file, slot)
            chains += number != 0
            while number:
                read = index_file.entry(file, number)
                assert read.key_hash % SLOTS == slot
                assert read.prev_index < number
                seen.append((read.phy_offset, read.key_hash))
                number = read.prev_index
        assert header.hash_slot_count == chains
        first, last = index_file.entry(file, 1), index_file.entry(file, header.index_count - 1)
        assert (header.begin_phy_offset, header.end_phy_offset) == (first.phy_offset, last.phy_offset)
        times = {offset: time for _, offset, time in history}
        assert (header.begin_timestamp, header.end_timestamp) == (times[first.phy_offset], times[last.phy_offset])
    assert sorted(seen) == sorted((offset, index_file.index_key_hash(f"T#{key}")) for key, offset, _ in history)


@UNHURRIED
@given(puts)
def test_a_file_holds_one_key_less_than_its_number_of_entries(told: list[tuple[str, int, int]]) -> None:
    """HA-ST-39 "how many slots are counted as used, and how many entries": the count starts at 1, so entry 0 is never used."""
    index, history = index_of(told)
    assert [index_file.header(file).index_count - 1 for file in index[:-1]] == [ENTRIES - 1] * (len(index) - 1)
    assert len(index) == -(-len(history) // (ENTRIES - 1))
    for file in index:
        full = index_file.header(file).index_count == ENTRIES
        assert index_file.is_write_full(file) == full
        assert (index_file.put_key(file, "T#a", 9_999, 9_999) is None) == full


def test_slots_are_counted_by_version() -> None:
    """HA-ST-39 "how many slots are counted as used": 4.3 and 4.5.2 count every put, 4.9.8 and 5.3.3 the first of a slot."""
    told = [("a", 1, 0)] * 3
    counts = [index_file.header(index_of(told, counts_every_put=every)[0][0]).hash_slot_count for every in (True, False)]
    assert counts == [3, 1]


def test_a_new_file_goes_on_from_the_one_before() -> None:
    """HA-ST-83 "its header MUST have the end of the file before it as its begin and its end, or zeros, and both counts 0".

    HA-ST-84 "MUST be counted from the end of the file before": the file's begin is set only after the entry, so the entry seems
    younger.
    """
    index, _ = index_of([("a", 1, 1_000)] * (ENTRIES - 1))
    index = index_service.build_index(index, request(500, 9_000_000), NAME, CLASSIC, SLOTS, ENTRIES)
    assert len(index) == 2  # a message without keys creates the second file
    empty = index_file.header(index[1])
    assert (empty.begin_timestamp, empty.end_timestamp, empty.begin_phy_offset, empty.end_phy_offset) == (
        1_007_000, 1_007_000, 7, 7,
    )  # fmt: skip
    assert index[1].data[32:] == bytes(len(index[1].data) - 32)
    index = index_service.build_index(index, request(600, 1_067_000, "a"), NAME, CLASSIC, SLOTS, ENTRIES)
    assert index_file.header(index[1]).begin_timestamp == 1_067_000
    assert index_file.entry(index[1], 1).time_diff == 60
    assert index_service.query_offset(index, "T", "a", 64, 1_067_000, 1_126_999) == []
    assert index_service.query_offset(index, "T", "a", 64, 1_067_000, 1_127_000) == [600]


def test_keys_of_one_message_may_lie_in_two_files() -> None:
    """HA-ST-43 "An index file MUST hold 5,000,000 slots and 20,000,000 entries", whatever message its last entry is of."""
    index, _ = index_of([("a", 1, 0)] * (ENTRIES - 2))
    index = index_service.build_index(index, request(500, 2_000_000, "u", "x", "y"), NAME, CLASSIC, SLOTS, ENTRIES)
    assert [index_file.header(file).index_count - 1 for file in index] == [ENTRIES - 1, 2]
    assert [index_service.query_offset(index, "T", key, 64, *FOREVER) for key in "uxy"] == [[500]] * 3


# --- What is indexed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("", ()),
        ("KEYS\x01a b", ("a", "b")),
        ("KEYS\x01 a  b ", ("a", "b")),
        ("KEYS\x01a\x02UNIQ_KEY\x01u", ("u", "a")),
        ("UNIQ_KEY\x01u", ("u",)),
        ("TAGS\x01t\x02KEYS\x01Größe", ("Größe",)),
        ("KEYS\x01a a", ("a", "a")),
    ],
)
def test_keys_of_a_message(properties: str, expected: tuple[str, ...]) -> None:
    """HA-ST-44 "A query MUST find messages by key": the unique key, and the keys that are separated by spaces."""
    log, _, _ = store.append_record(Log(1000), Record(b"T", b"b", properties.encode()))
    found = dispatch_request.check_message_and_return_size(log, 0)
    assert isinstance(found, DispatchRequest)
    assert found.keys == expected


@pytest.mark.parametrize(("sys_flag", "indexed"), [(0, True), (0x4, True), (0x8, True), (0xC, False)])
def test_a_rolled_back_message_is_in_no_index_and_a_prepared_one_is(sys_flag: int, indexed: bool) -> None:
    """HA-ST-78 "A prepared message MUST be in the index, and a rolled-back one MUST NOT be"."""
    index = index_service.build_index((), request(5, 1, "a", sys_flag=sys_flag), NAME, CLASSIC, SLOTS, ENTRIES)
    assert index_service.query_offset(index, "T", "a", 64, *FOREVER) == [5] * indexed


@UNHURRIED
@given(puts, st.integers(0, 130))
def test_what_the_index_has_is_not_added_again(told: list[tuple[str, int, int]], begin: int) -> None:
    """HA-ST-44 "A query MUST find messages by key": after a repeated dispatch from any record it finds the same; classic finds
    one message twice.
    """
    index, history = index_of(told)
    for profile, most in ((CLASSIC, 1), (HARDENED, 0)):
        again = index
        for key, offset, time in history:
            if offset >= begin:
                again = index_service.build_index(again, request(offset, time, key), NAME, profile, SLOTS, ENTRIES)
        for key, _, _ in history:
            answers = [index_service.query_offset(each, "T", key, 64, *FOREVER) for each in (index, again)]
            assert set(answers[0]) == set(answers[1])
            assert len(answers[1]) - len(answers[0]) <= most
        assert again == index or profile is CLASSIC


@pytest.mark.parametrize("there", range(4))
def test_hardened_adds_the_keys_that_the_last_message_lacks(there: int) -> None:
    """HA-ST-44 "A query MUST find messages by key", by each of them, although a crash fell between two."""
    words = ("u", "x", "y")
    complete = index_service.build_index((), request(500, 2_000_000, *words), NAME, HARDENED, SLOTS, ENTRIES)
    part = index_service.build_index((), request(500, 2_000_000, *words[:there]), NAME, HARDENED, SLOTS, ENTRIES)
    assert index_service.build_index(part, request(500, 2_000_000, *words), NAME, HARDENED, SLOTS, ENTRIES) == complete


def test_hardened_makes_no_file_for_a_message_without_keys() -> None:
    """HA-ST-43 "named by the time of its making", which in classic is the next message and in hardened the next key."""
    index, _ = index_of([("a", 1, 1_000)] * (ENTRIES - 1))
    without = request(500, 9_000_000)
    assert len(index_service.build_index(index, without, NAME, CLASSIC, SLOTS, ENTRIES)) == 2
    assert index_service.build_index(index, without, NAME, HARDENED, SLOTS, ENTRIES) == index


# --- Queries ---------------------------------------------------------------------------------------------------------


@UNHURRIED
@given(puts, keys, st.integers(1, 70), st.integers(990_000, 1_300_000), st.integers(0, 300_000))
def test_a_query_finds_the_newest_of_its_hash_within_its_span(
    told: list[tuple[str, int, int]], key: str, max_num: int, begin: int, span: int
) -> None:
    """HA-ST-44 "A query MUST find messages by key within a span of store times", to the second, and 64 at most."""
    index, history = index_of(told)
    end = begin + span
    expected = []
    for number, (each, offset, _) in reversed(list(enumerate(history))):
        file = index[number // (ENTRIES - 1)]
        read = index_file.entry(file, number % (ENTRIES - 1) + 1)
        time_read = index_file.header(file).begin_timestamp + read.time_diff * 1000
        if begin <= time_read <= end and index_file.index_key_hash(f"T#{each}") == index_file.index_key_hash(f"T#{key}"):
            expected.append(offset)
    found = index_service.query_offset(index, "T", key, max_num, begin, end)
    # A file whose span has no ms in common with the query's is not looked into, although whole seconds may lie in it.
    looked_into = {
        offset
        for number, (_, offset, _) in enumerate(history)
        if index_file.is_time_matched(index[number // (ENTRIES - 1)], begin, end)
    }
    assert found == [offset for offset in expected if offset in looked_into][: min(max_num, 64)]


def test_a_query_is_answered_with_other_keys_of_the_same_hash() -> None:
    """HA-ST-44 "find messages by key": only the reader of the messages sees that two keys have the same hash."""
    index, _ = index_of([("Aa", 1, 0), ("BB", 1, 0)])
    assert index_service.query_offset(index, "T", "Aa", 64, *FOREVER) == [2, 1]


def test_a_void_entry_ends_its_chain() -> None:
    """HA-ST-41 "a negative time marks it void"."""
    index, _ = index_of([("a", 1, 0)] * 3)
    at = index_file.entry_position(index[0], 2) + 12
    void = replace(index[0], data=index[0].data[:at] + b"\xff\xff\xff\xff" + index[0].data[at + 4 :])
    assert index_service.query_offset((void,), "T", "a", 64, *FOREVER) == [3]


# --- Expiry and recovery ---------------------------------------------------------------------------------------------


@UNHURRIED
@given(puts, st.integers(0, 130))
def test_files_go_when_the_log_has_nothing_of_them_but_never_the_last(told: list[tuple[str, int, int]], low: int) -> None:
    """HA-ST-13 "older files may have been deleted", and an index file that names nothing else is deleted then."""
    index, _ = index_of(told)
    left = index_service.delete_expired_file(index, low)
    assert left == index[len(index) - len(left) :]
    gone = index[: len(index) - len(left)]
    assert all(index_file.header(file).end_phy_offset < low for file in gone)
    assert not left or len(left) == 1 or index_file.header(left[0]).end_phy_offset >= low


def test_after_a_crash_only_files_are_kept_that_the_checkpoint_knows() -> None:
    """HA-ST-24 "then the index are on the disk": classic counts all files of one ms in, hardened one.

    HA-ST-87 "the keys of messages between the end of the last index file that was kept": what classic loses.
    """
    full = 2 * (ENTRIES - 1)
    index, _ = index_of([("a", 1, 0)] * (full + 1))  # three files, all of one ms
    end = index_file.header(index[0]).end_timestamp
    assert index_service.load(index, True, 0) == index
    assert index_service.load(index, False, end - 1) == ()
    assert index_service.load(index, False, end) == index
    beyond = 1 << 40
    assert index_service.count_vouched(index, None, beyond) == 3
    assert index_service.count_vouched(index, end - 1, beyond) == 0
    assert index_service.count_vouched(index, end, beyond) == 1
    ascending, _ = index_of([("a", 1, 1_000)] * (full + 1))
    for last in (0, 1, 2):
        end = index_file.header(ascending[last]).end_timestamp
        assert index_service.load(ascending, False, end) == ascending[: last + 1]
        assert index_service.count_vouched(ascending, end, beyond) == min(2, last + 1)  # the third has room
    log_end = index_file.header(ascending[1]).end_phy_offset
    assert index_service.count_vouched(ascending, end, log_end) == index_service.count_vouched(ascending, None, log_end) == 1


def test_after_a_crash_an_index_is_believed_as_far_as_it_is_in_order() -> None:
    """HA-ST-45 "as far as it is in order": an entry of zeros, or one that does not point to its predecessor in the slot, ends
    the order.
    """
    told = [("k", number, 700) for number in range(ENTRIES - 1)]
    (file,), _ = index_of(told)
    log = Log(4000)
    offsets = [index_file.entry(file, number).phy_offset for number in range(1, ENTRIES)]
    assert index_service.cut((file,), log, offsets[-1] + 1, 0)[1] == offsets[-1] + 1
    for number in range(1, ENTRIES):
        at = index_file.entry_position(file, number)
        for spoilt in (bytes(20), file.data[at : at + 16] + b"\0\0\0\x7f"):
            torn = replace(file, data=file.data[:at] + spoilt + file.data[at + 20 :])
            kept, end = index_service.cut((torn,), log, offsets[-1] + 1, 0)
            assert end == offsets[max(0, number - 2)]
            assert [index_file.header(one).index_count for one in kept] == ([number] if number > 1 else [])
            assert index_service.cut((torn,), log, offsets[-1] + 1, 1) == ((torn,), offsets[-1] + 1)


@UNHURRIED
@given(st.lists(st.lists(keys, max_size=3), max_size=15), st.integers(0, 15))
def test_an_index_that_is_cut_is_the_index_of_a_shorter_log(told: list[list[str]], length: int) -> None:
    """HA-ST-44 "A query MUST find messages by key", of the messages that the log still has: byte for byte, except an empty file
    at the end.
    """
    log, ends = Log(4000), [0]
    for number, found in enumerate(told):
        record = Record(b"T", b"b", f"KEYS\x01{' '.join(found)}".encode(), store_timestamp=1_000 + number * 700)
        log, offset, size = store.append_record(log, record)
        ends.append(offset + size)
    length = min(length, len(told))

    def dispatched(log: Log) -> Index:
        sizes = DispatchSettings(60, SLOTS, ENTRIES)
        return dispatch.do_reput(Dispatched(), log, NAME, sizes, HARDENED).index

    def with_entries(index: Index) -> list[IndexFile]:
        return [file for file in index if index_file.header(file).index_count > 1]

    shorter = replace(log, data=log.data[: ends[length]])
    cut, end = index_service.cut(dispatched(log), log, ends[length], 0)
    assert end == ends[length]
    assert with_entries(cut) == with_entries(dispatched(shorter))
    assert index_service.cut(cut, log, ends[length], 0) == (cut, end)
