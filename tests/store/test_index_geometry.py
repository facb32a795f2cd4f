"""The geometry of index files that is told from their bytes: what must fit, byte by byte, and which file tells it.

HA-ST-39 to HA-ST-41.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.files import patch
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived import index_geometry
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_file import HEADER_SIZE, Geometry
from rocketmq_ha.impl.store.derived.index_geometry import find_geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService

GEOMETRY = Geometry(13, 9)  # 40 + 52 + 180 bytes: 3 and 11, 8 and 10, 18 and 8 fit this length too
ENTRIES = 40 + 4 * 13


def write(store: Path, keys: int, geometry: Geometry = GEOMETRY, first: int = 1) -> Path:
    """One file with that many keys, k0, k1 and so on, of messages at 1000, 2000 and so on."""
    index = IndexService(store, geometry, writable=True)
    index.put(
        [DispatchRequest(b"t", 0, 1000 * (first + n), 100, 0, 1_000_000 + n, n, f"k{n}", None, 0, 0) for n in range(keys)]
        or [DispatchRequest(b"t", 0, 1000, 100, 0, 1, 0, "k", None, 0, 0)]
    )
    index.close()
    (path,) = sorted((store / "index").iterdir())
    if not keys:
        patch(path, 36, (1).to_bytes(4, "big"))
    return path


def at(number: int, field: int = 0) -> int:
    """Where a field of an entry is: 0 the hash, 4 the offset, 12 the seconds, 16 the entry before."""
    return ENTRIES + 20 * number + field


@pytest.mark.parametrize("keys", range(1, 9))
def test_one_key_tells_the_geometry(tmp_path: Path, keys: int) -> None:
    assert find_geometry([write(tmp_path, keys)]) == GEOMETRY


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(at(0), b"\1", id="entry 0 is used"),
        pytest.param(at(0, 19), b"\1", id="entry 0 has a last byte"),
        pytest.param(at(1, 4), b"\1", id="the first offset is not the header's"),
        pytest.param(16, b"\1", id="the header's first offset is another"),
        pytest.param(at(5, 11), b"\1", id="the last offset is not the header's"),
        pytest.param(31, b"\1", id="the header's last offset is another"),
        pytest.param(at(3), bytes(4), id="a hash of 0"),
        pytest.param(at(3), b"\x80", id="a negative hash"),
        pytest.param(at(3, 12), b"\xff", id="negative seconds"),
        pytest.param(at(3, 16), b"\0\0\0\3", id="an entry points to itself"),
        pytest.param(at(3, 16), b"\xff", id="an entry points to a negative number"),
        pytest.param(40, bytes(4 * 13), id="no slots"),
        pytest.param(40, b"\0\0\0\6" * 13, id="slots that lead behind the last entry"),
        pytest.param(40, b"\0\0\0\4" * 13, id="slots that lead before the last entry"),
        pytest.param(36, b"\0\0\0\x0a", id="more entries than there is room for"),
        pytest.param(36, b"\0\0\0\1", id="no entries"),
    ],
)
def test_what_does_not_fit_tells_no_geometry(tmp_path: Path, position: int, data: bytes) -> None:
    path = write(tmp_path, 5)
    patch(path, position, data)
    with pytest.raises(StoreCorrupt, match=f"{path}: .*a length of 272 bytes, expected 420000040, or entries that tell"):
        find_geometry([path])


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(40, b"\0\0\0\5" * 13, id="every slot leads to the last entry"),
        pytest.param(at(3, 12), b"\x7f", id="many seconds"),
        pytest.param(at(3, 16), b"\0\0\0\2", id="an entry points to the one before"),
        pytest.param(at(3, 16), b"\0\0\0\0", id="an entry points to none"),
        pytest.param(at(6), b"\7" * 20, id="what stands behind the last entry"),
        pytest.param(at(3, 4), b"\7", id="an offset between the first and the last"),
    ],
)
def test_what_fits_tells_the_geometry(tmp_path: Path, position: int, data: bytes) -> None:
    path = write(tmp_path, 5)
    patch(path, position, data)
    assert find_geometry([path]) == GEOMETRY


def test_sixty_four_entries_are_looked_at(tmp_path: Path) -> None:
    """More would make the start of a store with a full file slow."""
    geometry = Geometry(13, 100)
    path = write(tmp_path, 70, geometry)
    patch(path, at(65), bytes(4))
    assert find_geometry([path]) == geometry
    patch(path, at(64), bytes(4))
    with pytest.raises(StoreCorrupt):
        find_geometry([path])


@pytest.mark.parametrize("begins_with", [0, 3])
def test_a_file_is_looked_at_again_while_its_owner_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins_with: int
) -> None:
    """HA-ST-49 "MUST report no damage and nothing to cut while the owner is writing": entries come before their count."""
    path = write(tmp_path / "now", 7)
    whole = path.read_bytes()[:HEADER_SIZE]
    before = write(tmp_path / "before", begins_with).read_bytes()[: HEADER_SIZE - 4] + whole[-4:] * bool(begins_with)
    before = before.ljust(HEADER_SIZE, b"\0")  # no key yet; or the offset of the last key is behind their count
    heads = [before] * 2 + [whole]

    def patch_header(head: bytes) -> None:
        with path.open("r+b") as file:
            file.write(head)

    def rest(_seconds: float) -> None:
        patch_header(heads.pop(0))

    patch_header(before)
    monkeypatch.setattr(index_geometry, "time", SimpleNamespace(sleep=rest, monotonic=lambda: 0.0))
    assert find_geometry([path]) == GEOMETRY
    assert heads == []


def test_the_first_file_with_entries_tells(tmp_path: Path) -> None:
    empty, full = write(tmp_path / "a", 0), write(tmp_path / "b", 3)
    assert find_geometry([empty, full]) == find_geometry([full, empty]) == GEOMETRY
    with pytest.raises(StoreCorrupt, match=f"{empty}: "):
        find_geometry([empty, empty])
    assert find_geometry([]) == Geometry()


@pytest.mark.parametrize("length", [0, 1, 39, 40, 59, 60, 61, 100])
def test_a_file_that_is_too_short_for_an_entry_tells_nothing(tmp_path: Path, length: int) -> None:
    path, full = tmp_path / "short", write(tmp_path, 3)
    path.write_bytes(b"\1" * length)
    assert find_geometry([path, full]) == GEOMETRY
    with pytest.raises(StoreCorrupt, match=f"a length of {length} bytes, expected 420000040"):
        find_geometry([path])


def test_a_file_of_rocketmqs_length_is_of_its_geometry(tmp_path: Path) -> None:
    path = tmp_path / "default"
    path.touch()
    os.truncate(path, Geometry().file_size)
    assert find_geometry([path]) == find_geometry([write(tmp_path, 0), path]) == Geometry()
