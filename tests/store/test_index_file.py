"""The index finds the messages of a key, newest first, in RocketMQ's format. HA-ST-39 to HA-ST-44."""

import struct
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived import index_service as index_service_module
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_file import Geometry, IndexFile
from rocketmq_ha.impl.store.derived.index_geometry import find_geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.java_hash import index_key_hash, java_hash, power_of_31, unsigned_hash, unsigned_hashes
from rocketmq_ha.impl.store.query import query
from rocketmq_ha.impl.wire.message import Message

SMALL = Geometry(hash_slot_num=7, index_num=5)  # four keys in a file
NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62


def request(
    offset: int, keys: str = "", uniq_key: str | None = None, *, topic: bytes = b"t", sys_flag: int = 0, after_ms: int = 0
) -> DispatchRequest:
    return DispatchRequest(topic, 0, offset, 100, 0, NOW_MS + after_ms, 0, keys, uniq_key, sys_flag, 0)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexService]:
    service = IndexService(tmp_path, SMALL, writable=True)
    yield service
    service.close()


def found(service: IndexService, key: str, begin: int = 0, end: int = FOREVER) -> list[int]:
    return service.query_offset("t", key, 64, begin, end)


def entries(service: IndexService) -> list[list[tuple[int, int, int, int]]]:
    return [list(file.entries()) for file in service.files]


# --- Hashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("refund", -934813832),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("订单", 1129459),
        ("😀", 1772899),
        ("\x00", 0),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    """HA-ST-32. The values are those of a Java shell."""
    assert java_hash(text) == expected


def test_the_hash_that_has_no_absolute_value_is_0() -> None:
    """HA-ST-42."""
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hash("refund") == 934813832


@given(st.lists(st.text(max_size=40) | st.text(st.characters(max_codepoint=127), min_size=25, max_size=70), max_size=40))
def test_hashes_of_many_are_those_of_each(texts: list[str]) -> None:
    assert unsigned_hashes(texts) == [unsigned_hash(text) for text in texts]


@given(st.text(), st.text(st.characters(max_codepoint=127), max_size=300))
def test_a_prefix_can_be_hashed_apart(prefix: str, text: str) -> None:
    """The index hashes a topic once, and adds each key to that hash."""
    assert (unsigned_hash(prefix) * power_of_31(len(text)) + unsigned_hash(text)) & 0xFFFFFFFF == unsigned_hash(prefix + text)


# --- The file --------------------------------------------------------------------------------------------------------


def test_a_file_byte_by_byte(tmp_path: Path) -> None:
    """HA-ST-39 to HA-ST-42: entries are chained newest first, seconds round down, a slot counts when it is first used."""
    index = IndexService(tmp_path, Geometry(hash_slot_num=3, index_num=4), writable=True)
    index.put([request(1000, "Aa"), request(1100, "c", after_ms=1999), request(1200, "BB", after_ms=61_000)])
    index.close()
    (path,) = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    twin, other = index_key_hash("t#Aa"), index_key_hash("t#c")
    assert twin == index_key_hash("t#BB")
    assert len(data) == 40 + 3 * 4 + 4 * 20
    used = len({twin % 3, other % 3})
    assert struct.unpack(">qqqqii", data[:40]) == (NOW_MS, NOW_MS + 61_000, 1000, 1200, used, 4)
    before_other = 1 if used == 1 else 0
    expected = [(0, 0, 0, 0), (twin, 1000, 0, 0), (other, 1100, 1, before_other), (twin, 1200, 61, 2 if used == 1 else 1)]
    assert list(struct.iter_unpack(">iqii", data[52:])) == expected
    slots = [0, 0, 0]
    slots[other % 3], slots[twin % 3] = 2, 3
    assert list(struct.unpack(">3i", data[40:52])) == slots


def test_the_default_file_is_420000040_bytes_and_sparse(tmp_path: Path) -> None:
    """HA-ST-43, HA-ST-8: space for its slots and its first entries is allocated."""
    index = IndexService(tmp_path, writable=True)
    index.put([request(0, "k")])
    (path,) = (tmp_path / "index").iterdir()
    assert (len(path.name), path.stat().st_size) == (17, 420_000_040)
    assert 20_000_000 < path.stat().st_blocks * 512 < 30_000_000
    assert found(index, "k") == [0]
    index.close()


def test_a_full_file_is_followed_by_another(index: IndexService) -> None:
    """HA-ST-39: the count begins at 1, so a file of five entries has room for four keys; the keys of one message may lie in two
    files.
    """
    index.put([request(100 * number, f"k{number} k", after_ms=1000 * number) for number in range(5)])
    assert [[entry[1] for entry in file] for file in entries(index)] == [[0, 0, 100, 100], [200, 200, 300, 300], [400, 400]]
    assert [file.is_full for file in index.files] == [True, True, False]
    names = [file.path.name for file in index.files]
    assert names == sorted(set(names))
    assert found(index, "k") == [0, 100, 200, 300, 400]
    assert [found(index, f"k{number}") for number in range(5)] == [[100 * number] for number in range(5)]
    # The first entry's seconds count from the last message of the file before, all others' from the first of this one.
    assert [[entry[2] for entry in file] for file in entries(index)] == [[0, 0, 1, 1], [1, 0, 1, 1], [1, 0]]
    assert [file.header.begin_timestamp for file in index.files] == [NOW_MS, NOW_MS + 2000, NOW_MS + 4000]


def test_keys_are_the_unique_key_and_each_word(index: IndexService) -> None:
    index.put([request(0, "a  b ", "U"), request(100, "", "a"), request(200), request(300, "c", sys_flag=4)])
    index.put([request(400, "d", sys_flag=12), request(500, "e", sys_flag=8)])
    assert [found(index, key) for key in ("U", "a", "b", "c", "e", "", "d")] == [[0], [0, 100], [0], [300], [500], [], []]
    assert index.query_offset("other", "a", 64, 0, FOREVER) == []


def test_nothing_is_put_twice(index: IndexService) -> None:
    """A dispatch may be repeated, in this process or after a restart, also for a message whose keys lie in two files."""
    requests = [request(0, "a b"), request(100, "a b c"), request(200, "a"), request(200 + 100, "x y z")]
    for length in (1, 2, 3, 4):
        index.put(requests[:length])
        before = entries(index)
        index.put(requests[:length])
        assert entries(index) == before
    again = IndexService(index.directory.parent, writable=True)
    again.put(requests)
    assert entries(again) == entries(index)
    again.close()


def test_a_put_that_failed_halfway_is_completed_by_the_next_try(index: IndexService, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the second file is needed: the keys that the first file took are not put again."""

    def full(*_: object, **__: object) -> IndexFile:
        raise OSError(28, "No space left on device")

    requests = [request(0, "a b c"), request(100, "d e f")]
    with monkeypatch.context() as patched:
        patched.setattr(index_service_module.IndexFile, "create", full)
        with pytest.raises(OSError, match="No space"):
            index.put(requests)
        assert entries(index) == []
    index.put(requests[:1])
    with monkeypatch.context() as patched:
        patched.setattr(index_service_module.IndexFile, "create", full)
        with pytest.raises(OSError, match="No space"):
            index.put(requests)
    assert [len(file) for file in entries(index)] == [4]
    index.put(requests)
    assert [[entry[1] for entry in file] for file in entries(index)] == [[0, 0, 0, 100], [100, 100]]


def test_query_gives_the_newest_in_ascending_order(index: IndexService) -> None:
    """HA-ST-85 "MUST give the newest of the messages that match"."""
    index.put([request(100 * number, "k") for number in range(11)])
    assert index.query_offset("t", "k", 3, 0, FOREVER) == [800, 900, 1000]
    index.put([request(100 * number, "k") for number in range(11, 100)])
    assert len(index.query_offset("t", "k", 1000, 0, FOREVER)) == 64


@pytest.mark.parametrize(
    ("begin", "end", "numbers"), [(0, 9, range(10)), (3, 5, range(3, 6)), (9, 9, [9]), (10, 99, []), (-5, -1, [])]
)
def test_query_within_a_span_of_times(index: IndexService, begin: int, end: int, numbers: range) -> None:
    """HA-ST-44."""
    index.put([request(100 * number, "k", after_ms=1000 * number) for number in range(10)])
    expected = [100 * number for number in numbers]
    span = (NOW_MS + 1000 * begin, NOW_MS + 1000 * end)
    assert sorted(index.offsets("t", "k", *span)) == expected
    # 4.9.8 counts the seconds of a file's first entry from the end of the file before: messages 4 and 8 seem a second younger.
    seem = {number: number + (number in (4, 8)) for number in range(10)}
    assert found(index, "k", *span) == [100 * number for number in range(10) if begin <= seem[number] <= end]


def test_a_corrupt_chain_ends(index: IndexService) -> None:
    """A cyclic chain must not be walked for ever, and a chain that points out of the file must not be followed."""
    index.put([request(100 * number, "k") for number in range(4)])
    index.flush()
    (path,) = index.directory.iterdir()
    data = bytearray(path.read_bytes())
    for previous in (2, 4, 1000, -1):
        data[-20 * 3 + 16 : -20 * 3 + 20] = struct.pack(">i", previous)
        path.write_bytes(data)
        looked = IndexService(index.directory.parent, SMALL, writable=False)
        assert found(looked, "k") == [100, 200, 300]
        looked.close()


# --- After a stop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(13))
def test_truncation_leaves_the_index_of_a_shorter_log(tmp_path: Path, kept: int) -> None:
    requests = [request(100 * number, f"k{number % 3} u", after_ms=700 * number) for number in range(12)]
    index, shorter = (IndexService(tmp_path / name, SMALL, writable=True) for name in ("a", "b"))
    index.put(requests)
    shorter.put(requests[:kept])
    assert index.truncate(100 * kept, lambda offset: NOW_MS + 7 * offset) == 100 * kept
    index.flush()
    assert entries(index) == entries(shorter)
    assert [file.header for file in index.files] == [file.header for file in shorter.files]
    index.put(requests)
    shorter.put(requests)
    for one, two in zip(index.files, shorter.files, strict=True):
        assert one.path.read_bytes() == two.path.read_bytes()
    index.close()
    shorter.close()


def test_truncation_mends_what_a_crash_has_left(tmp_path: Path) -> None:
    """The slots and the header reached the disk, but only the flushed entries did."""
    index = IndexService(tmp_path, Geometry(11, 100), writable=True)
    requests = [request(100 * number, f"k{number % 5}") for number in range(30)]
    index.put(requests)
    index.close()
    (path,) = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    start = 40 + 4 * 11 + 20 * 21  # after the entry of message 19
    data[start:] = bytes(len(data) - start)
    path.write_bytes(data)
    again = IndexService(tmp_path, Geometry(11, 100), writable=True)
    assert again.truncate(2000, lambda _: NOW_MS) == 2000
    assert found(again, "k4") == [400, 900, 1400, 1900]
    again.put(requests[20:])
    assert found(again, "k4") == [400, 900, 1400, 1900, 2400, 2900]
    again.close()


def test_truncation_tells_where_damage_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = IndexService(tmp_path, Geometry(11, 100), writable=True)
    requests = [request(100 * number, f"k{number % 5}") for number in range(30)]
    index.put(requests)
    index.close()
    (path,) = (tmp_path / "index").iterdir()
    whole = path.read_bytes()
    data = bytearray(whole)
    start = 40 + 4 * 11 + 20 * 11
    data[start : start + 20] = bytes(20)
    path.write_bytes(data)
    again = IndexService(tmp_path, Geometry(11, 100), writable=True)
    assert again.truncate(2000, lambda _: NOW_MS) == 900
    assert "keeps 10 of 30 entries" in caplog.text
    again.put(requests[9:])
    again.close()
    assert path.read_bytes() == whole


def test_unsafe_files_can_be_removed_as_rocketmq_does(index: IndexService) -> None:
    index.put([request(100 * number, "k", after_ms=number) for number in range(10)])
    assert [file.header.end_timestamp - NOW_MS for file in index.files] == [3, 7, 9]
    assert index.flush() == NOW_MS + 7
    assert index.delete_unsafe(NOW_MS + 3) == 2
    assert found(index, "k") == [0, 100, 200, 300]
    index.put([request(100 * number, "k", after_ms=number) for number in range(10)])
    assert found(index, "k") == [100 * number for number in range(10)]


def test_deletion_follows_the_log_but_for_the_last_file(index: IndexService) -> None:
    index.put([request(100 * number, "k") for number in range(12)])
    for log_min, files in ((0, 3), (300, 3), (301, 2), (9999, 1)):
        index.delete_expired(log_min)
        assert len(index.files) == len(list(index.directory.iterdir())) == files
    index.put([request(1200, "k")])
    assert found(index, "k") == [800, 900, 1000, 1100, 1200]


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_file_that_cannot_be_removed_is_removed_in_the_next_round(
    index: IndexService, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four files have expired. Until then a query still finds what they have."""
    index.put([request(100 * number, "k") for number in range(14)])
    paths, real, tries = [file.path for file in index.files], Path.unlink, []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        tries.append(path)
        if len(tries) == refused:
            raise OSError(5, "Input/output error", str(path))
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink)
        with pytest.raises(OSError, match="Input/output error"):
            index.delete_expired(9999)
    left = [*paths[: 4 - refused], paths[3]]
    assert [file.path for file in index.files] == sorted(index.directory.iterdir()) == left
    assert found(index, "k") == [*range(0, 400 * (4 - refused), 100), 1200, 1300]
    assert index.delete_expired(9999) == len(left) - 1
    assert [file.path for file in index.files] == list(index.directory.iterdir()) == paths[3:]


# --- Reading others' files -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(3, 60), st.integers(1, 80), st.integers(0, 3))
def test_the_geometry_is_told_from_the_files(
    tmp_path_factory: pytest.TempPathFactory, slots: int, keys: int, messages: int, first: int
) -> None:
    """The geometry that is found from the files reads every key that was put."""
    store = tmp_path_factory.mktemp("index")
    index = IndexService(store, Geometry(slots, keys), writable=True)
    index.put([request(100 * (first + number), f"k{number}") for number in range(messages)])
    index.close()
    again = IndexService(store, writable=False)
    for number in range(messages):
        assert 100 * (first + number) in found(again, f"k{number}")
    again.close()


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index" / "20240131235959123"
    path.parent.mkdir()
    path.write_bytes(bytes(1000))
    with pytest.raises(StoreCorrupt, match=r"a length of 1000 bytes, expected 420000040"):
        IndexService(tmp_path, writable=False)
    with pytest.raises(StoreCorrupt, match=r"20240131235959123.*a length of 1000 bytes, expected 168"):
        IndexService(tmp_path, SMALL, writable=True)
    with pytest.raises(StoreCorrupt):
        find_geometry([path])


def test_a_file_is_named_by_local_time_and_above_the_last_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-43 "named by the time of its making, yyyyMMddHHmmssSSS"; HA-ST-88 "MUST be above that of the last one".

    The tests have local time 4:45 hours behind UTC. The second file is made when the clock has been set back.
    """
    times_ms = iter((1_700_000_000_123, 1_699_999_000_456, 1_700_000_000_999))
    monkeypatch.setattr(index_service_module, "wall_clock_ms", lambda: next(times_ms))
    index = IndexService(tmp_path, SMALL, writable=True)
    for offset in range(0, 1200, 100):
        index.put([request(offset, "k")])
    index.close()
    assert [file.path.name for file in index.files] == ["20231114172820123", "20231114172820124", "20231114172820999"]


def test_other_names_are_passed_over_and_leftovers_removed(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    directory.mkdir()
    (directory / "20240131235959123.creating").write_bytes(b"x")
    (directory / "notes").write_bytes(b"x")
    index = IndexService(tmp_path, SMALL, writable=True)
    assert index.files == ()
    index.sweep()
    assert [path.name for path in directory.iterdir()] == ["notes"]


def test_a_file_that_is_made_after_the_clock_was_set_back_comes_behind_the_others(
    index: IndexService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-88 "MUST be above that of the last one": the store opens index files in the order of their names."""
    for hour in (5, 4, 5):
        monkeypatch.setattr(index_service_module.time, "time_ns", lambda hour=hour: hour * 3_600_000_000_000)
        index.put([request(1000 * len(index.files) + number, f"k{number}") for number in range(4)])
    names = [file.path.name for file in index.files]
    assert len(set(names)) == len(names) == 3
    assert names == sorted(names)


# --- Queries that read the messages ----------------------------------------------------------------------------------


def test_query_tells_equal_hashes_apart_and_compares_exact_times(tmp_path: Path) -> None:
    """HA-ST-86 "MUST be thrown away by their reader": "Aa" and "BB" have one hash. Times are known to the ms."""
    numbers = count()
    messages = {
        100 * next(numbers): Message(
            "t", b"", store_timestamp=NOW_MS + at, properties_string=f"KEYS\x01{keys}\x02UNIQ_KEY\x01u"
        )
        for keys, at in (("Aa", 0), ("BB", 300), ("x Aa", 1400), ("Aa", 1500), ("Aa BB", 2600), ("Aa", 2700))
    }
    index = IndexService(tmp_path, SMALL, writable=True)
    index.put(
        [
            request(offset, message.properties["KEYS"], "u", after_ms=message.store_timestamp - NOW_MS)
            for offset, message in list(messages.items())[:5]
        ]
    )

    def ask(key: str, max_num: int = 10, begin: int = 0, end: int = 9999, *, service: IndexService | None = index) -> list[int]:
        late = [(500, 100, messages[500])] if service is not None else [(offset, 100, messages[offset]) for offset in messages]
        result = query(
            service,
            lambda offset: (offset, 100, messages[offset]) if offset in messages else None,
            "t",
            key,
            max_num=max_num,
            begin=NOW_MS + begin,
            end=NOW_MS + end,
            unindexed=late,
        )
        return [offset for offset, _, _ in result]

    for service in (index, None):
        assert ask("Aa", service=service) == [0, 200, 300, 400, 500]
        assert ask("BB", service=service) == [100, 400]
        assert ask("u", service=service) == [0, 100, 200, 300, 400, 500]
        assert ask("Aa", 2, service=service) == [400, 500]
        assert ask("Aa", 3, 0, 2600, service=service) == [200, 300, 400]
        assert ask("Aa", 10, 1400, 1499, service=service) == [200]
        assert ask("Aa", 10, 1401, 1500, service=service) == [300]
        assert ask("Aa", 10, 2700, service=service) == [500]
        assert ask("none", service=service) == []
    del messages[200]
    assert ask("Aa") == [0, 300, 400, 500]
    index.close()
