"""`verify` accepts the keys of each known release, names the release, and finds wrong, missing and surplus keys.

HA-ST-47 "The keys that an index has of one message MUST all be of one of these sets".
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.golden import RELEASES, VECTORS, WITH_KEYS_OF_TAGS
from rocketmq_ha.fuzz.golden import extract
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.verify import DerivedSummary, verify_derived
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.query import query
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import index_service
from rocketmq_ha.reference.dispatch_request import (
    PLAIN_KEYS,
    TAG_KEYS,
    TYPED_KEYS,
    Blank,
    DispatchRequest,
    check_message_and_return_size,
)
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

FILE_SIZE, SLOTS, ENTRIES = 4096, 50, 100
NAMES = {PLAIN_KEYS: "4.3.0-5.3.4", TAG_KEYS: "5.4.0-5.5.1", TYPED_KEYS: "rocketmq-rust-0.9.0"}


def write_log(store: Path, properties: Sequence[str]) -> None:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        for index, each in enumerate(properties):
            log.append(Message("orders", b"b", queue_offset=index, properties_string=each, store_timestamp=1_700_000_000_000))


def read_log(store: Path) -> Log:
    paths = sorted((store / "commitlog").iterdir())
    size = paths[0].stat().st_size
    return Log(size, 0, b"".join(path.read_bytes() for path in paths))


def requests_of(log: Log, end: int, key_sets: Sequence[str]) -> list[DispatchRequest]:
    """The model's dispatch requests, each with the keys of its key set; the last set holds to the end."""
    found: list[DispatchRequest] = []
    offset = 0
    while offset < end:
        key_set = key_sets[min(len(found), len(key_sets) - 1)]
        request = check_message_and_return_size(log, offset, key_set=key_set)
        if isinstance(request, Blank):
            offset = request.next_file
            continue
        assert isinstance(request, DispatchRequest)
        found.append(request)
        offset += request.msg_size
    return found


def write_index(store: Path, requests: Sequence[DispatchRequest], slots: int = SLOTS, entries: int = ENTRIES) -> None:
    """Write the index that the model builds from the requests."""
    index: index_service.Index = ()
    for request in requests:
        if request.keys:  # in classic a message without keys would create a file
            index = index_service.build_index(index, request, "20240131235959123", CLASSIC, slots, entries)
    (store / "index").mkdir(exist_ok=True)
    for file in index:
        (store / "index" / file.name).write_bytes(file.data)


def check(store: Path) -> DerivedSummary:
    with LogReader(store) as reader:
        reader.walk()
        return verify_derived(reader)


def end_of(store: Path) -> int:
    with LogReader(store) as reader:
        reader.walk()
        return reader.max_offset


# --- What releases wrote ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", WITH_KEYS_OF_TAGS)  # test_recovery_model.py tests the other releases
def test_the_model_makes_the_index_of_a_release_with_keys_of_tags_byte_for_byte(release: str, tmp_path: Path) -> None:
    extract(VECTORS / f"rocketmq-{release}" / "store.tar.xz", tmp_path)
    requests = requests_of(read_log(tmp_path), end_of(tmp_path), [TAG_KEYS])
    index: index_service.Index = ()
    for request in requests:
        index = index_service.build_index(index, request, "20240131235959123", HARDENED, 1000, 4000)
    assert [file.data for file in index] == [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]


@pytest.mark.parametrize("release", RELEASES)
def test_verify_says_whose_keys_an_index_has(release: str, tmp_path: Path) -> None:
    extract(VECTORS / f"rocketmq-{release}" / "store.tar.xz", tmp_path)
    found = check(tmp_path)
    assert found.index_keys_as == NAMES[TAG_KEYS if release in WITH_KEYS_OF_TAGS else PLAIN_KEYS]
    assert found.index_keys_missing == 0


# --- What is wrong, missing or too many --------------------------------------------------------------------------------

TAGGED = [f"UNIQ_KEY\x01u{n}\x02KEYS\x01a{n} b{n}\x02TAGS\x01t{n}" for n in range(8)]


def indexed(store: Path, key_set: str) -> list[DispatchRequest]:
    write_log(store, TAGGED)
    return requests_of(read_log(store), end_of(store), [key_set])


@pytest.mark.parametrize("key_set", NAMES)
@pytest.mark.parametrize("number", range(4))
def test_a_missing_key_is_counted_whichever_it_is(key_set: str, number: int, tmp_path: Path) -> None:
    requests = indexed(tmp_path, key_set)
    if number == len(requests[3].keys):
        pytest.skip("the plain set has three keys")
    keys = requests[3].keys
    requests[3] = replace(requests[3], keys=(*keys[:number], *keys[number + 1 :]))
    write_index(tmp_path, requests)
    found = check(tmp_path)
    assert (found.index_keys_missing, found.index_keys_as) == (1, NAMES[key_set])
    assert found.index_keys == 8 * len(keys) - 1


@pytest.mark.parametrize("key_set", NAMES)
def test_a_message_that_is_missing_is_counted_with_all_its_keys(key_set: str, tmp_path: Path) -> None:
    requests = indexed(tmp_path, key_set)
    write_index(tmp_path, [*requests[:3], *requests[4:6]])
    found = check(tmp_path)
    assert (found.index_keys_missing, found.index_keys_as) == (3 * len(requests[0].keys), NAMES[key_set])


@pytest.mark.parametrize("key_set", NAMES)
@pytest.mark.parametrize("extra", ["c", "T#t4", "T#", "t3", "U#u4", "u4", "a4"])
def test_a_key_that_no_release_would_put_is_refused(key_set: str, extra: str, tmp_path: Path) -> None:
    requests = indexed(tmp_path, key_set)
    requests[3] = replace(requests[3], keys=(*requests[3].keys, extra))
    write_index(tmp_path, requests)
    with pytest.raises(StoreCorrupt, match="keys of hashes") as refused:
        check(tmp_path)
    assert refused.value.offset == requests[3].commit_log_offset


@pytest.mark.parametrize("keys", [("u3", "U#u3", "a3", "b3", "T#t3"), ("U#u3", "a3", "b3", "U#u3", "u3")])
def test_keys_of_two_sets_are_not_those_of_one_message(keys: tuple[str, ...], tmp_path: Path) -> None:
    """Each is a key that some release puts, but no release puts both."""
    requests = indexed(tmp_path, TYPED_KEYS)
    requests[3] = replace(requests[3], keys=keys)
    write_index(tmp_path, requests)
    with pytest.raises(StoreCorrupt, match="keys of hashes"):
        check(tmp_path)


def test_a_dispatch_that_was_interrupted_before_the_key_of_the_tags_lacks_one_key(tmp_path: Path) -> None:
    requests = indexed(tmp_path, TAG_KEYS)
    requests[7] = replace(requests[7], keys=requests[7].keys[:3])
    write_index(tmp_path, requests)
    assert (check(tmp_path).index_keys_missing, check(tmp_path).index_keys_as) == (1, "5.4.0-5.5.1")


# --- Two releases, one behind the other --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_sets", "expected", "missing"),
    [
        ([PLAIN_KEYS] * 4 + [TAG_KEYS] * 4, "4.3.0-5.3.4,5.4.0-5.5.1", 0),
        ([TAG_KEYS] * 4 + [PLAIN_KEYS] * 4, "5.4.0-5.5.1,4.3.0-5.3.4", 0),
        ([TYPED_KEYS] * 3 + [TAG_KEYS] * 3 + [PLAIN_KEYS] * 2, "rocketmq-rust-0.9.0,5.4.0-5.5.1,4.3.0-5.3.4", 0),
        ([TAG_KEYS] * 3 + [PLAIN_KEYS] * 3 + [TYPED_KEYS] * 2, "5.4.0-5.5.1,4.3.0-5.3.4,rocketmq-rust-0.9.0", 0),
        # Between two messages with keys for tags, some lack those keys.
        ([TAG_KEYS] * 3 + [PLAIN_KEYS] * 2 + [TAG_KEYS] * 3, "5.4.0-5.5.1", 2),
    ],
)
def test_another_release_that_takes_over_goes_on_with_its_own_keys(
    key_sets: list[str], expected: str, missing: int, tmp_path: Path
) -> None:
    write_log(tmp_path, TAGGED)
    write_index(tmp_path, requests_of(read_log(tmp_path), end_of(tmp_path), key_sets))
    found = check(tmp_path)
    assert (found.index_keys_as, found.index_keys_missing) == (expected, missing)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (["KEYS\x01a"] * 3, "any"),
        (["KEYS\x01a\x02UNIQ_KEY\x01u"] * 3, "4.3.0-5.3.4/5.4.0-5.5.1"),
        (["KEYS\x01a", "TAGS\x01t\x02KEYS\x01a"], "5.4.0-5.5.1/rocketmq-rust-0.9.0"),
        (["X\x01a"] * 3, "none"),
    ],
)
def test_messages_that_do_not_tell_releases_apart_name_them_all(properties: list[str], expected: str, tmp_path: Path) -> None:
    write_log(tmp_path, properties)
    write_index(tmp_path, requests_of(read_log(tmp_path), end_of(tmp_path), [TAG_KEYS]))
    assert (check(tmp_path).index_keys_as, check(tmp_path).index_keys_missing) == (expected, 0)


words = st.sampled_from(["", "a", "Aa", "BB", "é", "T#t", "U#u"])
properties_strings = st.builds(
    lambda unique, keys, tags: "\x02".join(
        f"{name}\x01{value}" for name, value in (("UNIQ_KEY", unique), ("KEYS", " ".join(keys)), ("TAGS", tags)) if value
    ),
    *(words, st.lists(words, max_size=3), st.sampled_from(["", "t", "a || b", "Ж"])),
)


@given(st.lists(st.tuples(properties_strings, st.integers(0, 3)), min_size=1, max_size=12), st.sampled_from(list(NAMES)))
@settings(max_examples=120, deadline=None)
def test_what_any_release_puts_passes(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, int]], key_set: str
) -> None:
    store = tmp_path_factory.mktemp("keys")
    write_log(store, [each for each, _ in told])
    requests = requests_of(read_log(store), end_of(store), [key_set])
    write_index(store, requests)
    found = check(store)
    assert found.index_keys == sum(len(request.keys) for request in requests)
    assert found.index_keys_missing == 0
    assert "," not in found.index_keys_as


@pytest.mark.parametrize("key_set", NAMES)
def test_a_query_finds_a_message_by_its_unique_key_whichever_release_put_it(key_set: str, tmp_path: Path) -> None:
    """HA-ST-48 "MUST find it under `topic#key` and, as a unique key, under `topic#U#key`"."""
    requests = indexed(tmp_path, key_set)
    write_index(tmp_path, requests)
    index = IndexService(tmp_path, writable=False)
    with LogReader(tmp_path) as reader:
        for number, request in enumerate(requests):
            for key in (f"u{number}", f"b{number}"):
                found = query(index, reader.message_at, "orders", key, max_num=64)
                assert [offset for offset, _, _ in found] == [request.commit_log_offset]
    index.close()


def test_a_unique_key_and_a_word_that_are_alike_are_both_found_the_newest_first(tmp_path: Path) -> None:
    """HA-ST-48 "A query for a key MUST find it under `topic#key` and, as a unique key"."""
    write_log(tmp_path, ["UNIQ_KEY\x01k", "KEYS\x01k", "UNIQ_KEY\x01k", "KEYS\x01k"])
    requests = requests_of(read_log(tmp_path), end_of(tmp_path), [TYPED_KEYS])
    write_index(tmp_path, requests)
    offsets = [request.commit_log_offset for request in requests]
    index = IndexService(tmp_path, writable=False)
    with LogReader(tmp_path) as reader:
        for max_num in range(1, 5):
            found = query(index, reader.message_at, "orders", "k", max_num=max_num)
            assert [offset for offset, _, _ in found] == offsets[-max_num:]
    index.close()
