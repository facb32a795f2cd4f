"""The check of queues and index as a whole: how it walks the log, what it says on the way, and what it leaves open.

HA-ST-29 to HA-ST-34, HA-ST-39 to HA-ST-42.
"""

import re
import shutil
import struct
from array import array
from contextlib import nullcontext
from pathlib import Path

import pytest

from kit.damaged import END, WHOLE, Found, entry, write_store
from kit.files import descriptors_below, log_file, patch
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived import verify, verify_index
from rocketmq_ha.impl.store.derived.index_file import Geometry, IndexFile
from rocketmq_ha.impl.store.derived.verify import log_requests, verify_derived
from rocketmq_ha.impl.store.log.reader import LogReader

OFFSETS = [1024, 1199, 1381, 1563, 1786, 2048, 2261, 2481]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("derived") / "whole")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "s")


@pytest.mark.parametrize(
    ("batch", "reached"),
    [
        (1, [1199, 1381, 1563, 1786, 1990, 2261, 2481, END]),
        (2, [1381, 1786, 1990, 2481, END]),
        (5, [1990, END]),  # all of the first file
        (9, [1990, END]),
    ],
)
def test_the_log_is_walked_in_batches_that_end_with_a_file(
    store: Path, monkeypatch: pytest.MonkeyPatch, batch: int, reached: list[int]
) -> None:
    """Progress is the end of the last message of a batch. The result does not depend on the batches."""
    monkeypatch.setattr(verify, "_BATCH", batch)
    told: list[int] = []
    with LogReader(store) as reader:
        reader.walk()
        found = verify_derived(reader, told.append)
        walked = [request.commit_log_offset for requests, _ in log_requests(reader) for request in requests]
        texts = [properties[5:].split(b"\x02")[0] for _, each in log_requests(reader) for properties in each]
    assert told == reached
    assert walked == OFFSETS
    assert texts == [b"t%d" % number for number in range(7, 15)]  # the properties of each message stand beside its request
    assert Found(*(getattr(found, name) for name in found.__dataclass_fields__)) == WHOLE


@pytest.mark.parametrize(
    ("position", "data"),
    [(4, bytes(4)), (0, struct.pack(">i", 977)), (28, b"\1")],
    ids=["no magic", "beyond its file", "elsewhere"],
)
@pytest.mark.parametrize("record", [2048, 2261, 2481])
def test_a_log_that_is_damaged_between_two_looks_is_named(store: Path, record: int, position: int, data: bytes) -> None:
    with LogReader(store) as reader:
        reader.walk()
        patch(log_file(store, 2048), record - 2048 + position, data)
        text = (
            f"{log_file(store, 2048)}: at commit-log offset {record}: found bytes that are no record of this place, expected "
        )
        with pytest.raises(StoreCorrupt, match=f"{re.escape(text)}a record, as a moment ago"):
            verify_derived(reader)


def test_a_check_closes_what_it_opened_whatever_it_finds(store: Path) -> None:
    with LogReader(store) as reader:
        reader.walk()
        before = descriptors_below(store / "consumequeue") + descriptors_below(store / "index")
        verify_derived(reader)
        entry("a/0", 4, 1199, 1)(store)
        with pytest.raises(StoreCorrupt, match="entry 4 is"):
            verify_derived(reader)
        assert before == descriptors_below(store / "consumequeue") + descriptors_below(store / "index") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumequeue", "not a directory, expected the consume queues of a store"),
        ("index", "not a directory, expected the index of a store"),
    ],
)
def test_what_is_no_directory_is_refused(store: Path, name: str, text: str) -> None:
    shutil.rmtree(store / name)
    (store / name).write_bytes(b"")
    with LogReader(store) as reader:
        reader.walk()
        with pytest.raises(ConfigInvalid, match=re.escape(f"{store / name}: {text}")):
            verify_derived(reader)
    assert descriptors_below(store) == []


# File 2 has one entry, in slot 4, and room for four more.
@pytest.mark.parametrize(
    ("looks", "counts", "is_right"),
    [
        pytest.param([{4: 0}, {}], [2, 2], True, id="the slot is written behind the count"),
        pytest.param([{4: 2}], [3], True, id="another entry of the slot came"),
        pytest.param([{4: 2, 5: 3}], [4], True, id="two entries came"),
        pytest.param([{4: 2}] * 25, [2] * 25, False, id="no entry came"),
        pytest.param([{4: 3}] * 25, [3] * 25, False, id="another came"),
        pytest.param([{4: 2, 5: 1}] * 25, [3] * 25, False, id="an entry came, and another slot is wrong"),
        pytest.param([{4: 0}] * 24 + [{}], [2] * 25, True, id="at the last look"),
    ],
)
def test_a_slot_that_a_live_writer_writes_is_read_again(
    store: Path, monkeypatch: pytest.MonkeyPatch, looks: list[dict[int, int]], counts: list[int], is_right: bool
) -> None:
    """HA-ST-49 "MUST report no damage and nothing to cut while the owner is writing"."""
    slots, left, told = IndexFile.slots, iter(looks), iter(counts)
    last = sorted((store / "index").iterdir())[-1]

    def seen(file: IndexFile) -> "array[int]":
        found = slots(file)
        for slot, number in next(left).items() if file.path == last else ():
            found[slot] = number
        return found

    monkeypatch.setattr(IndexFile, "slots", seen)
    monkeypatch.setattr(IndexFile, "count_now", lambda _: next(told))
    monkeypatch.setattr(verify_index, "LOOK_AGAIN_S", 0)
    with LogReader(store) as reader:
        reader.walk()
        with nullcontext() if is_right else pytest.raises(StoreCorrupt, match="leads to entry"):
            verify_derived(reader)
    assert list(left) == []


@pytest.mark.parametrize(("told", "count"), [(0, 1), (1, 1), (2, 2), (6, 6), (7, 6)])
def test_the_count_of_an_index_file_is_within_it(store: Path, told: int, count: int) -> None:
    last = sorted((store / "index").iterdir())[-1]
    file = IndexFile(last, Geometry(7, 6), writable=False)
    patch(last, 36, struct.pack(">i", told))
    assert (file.header.index_count, file.count_now(), list(file.slots())) == (2, count, [0, 0, 0, 0, 1, 0, 0])
    file.close()
