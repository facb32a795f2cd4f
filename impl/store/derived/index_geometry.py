"""How many slots and entries the index files of a store have, told from the files: no setting is kept with them.

The length is 40 + 4 * slots + 20 * entries, which many pairs fit. The right pair is found by what must stand behind the slots:
entry 0, never used; the first and the last entry, with the offsets that the header tells; and a slot for every entry's hash.
A hash of 0, one in two thousand million, counts as no entry here.

A process that writes the file sets slots and entries first, and the header then: what does not fit is looked at again.
Spec: HA-ST-49 "MUST report no damage and nothing to cut while the owner is writing".

Source: 4.9.8 IndexFile; MessageStoreConfig.maxHashSlotNum and maxIndexNum.
"""

import mmap
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, Geometry

_OFFSETS_AND_COUNT: Final = struct.Struct(">8s8s4xi")
_OFFSETS_POSITION: Final = 16
_LOOKED_AT: Final = 64  # entries held against their slots
_LOOKS: Final = 4  # at a header that stays as it is
_LOOK_AGAIN_S: Final = 0.05
_LOOK_UNTIL_S: Final = 5.0
_ENTRY: Final = struct.Struct(">iqii")


def find_geometry(paths: Sequence[Path]) -> Geometry:
    """The geometry of the index files of one store.

    Raises: StoreCorrupt where no geometry fits a file with entries; OSError.
    """
    default = Geometry()
    for path in paths:
        length = path.stat().st_size
        if length == default.file_size:
            return default
        if length >= HEADER_SIZE + ENTRY_SIZE and (found := _geometry_of(path, length)) is not None:
            return found
    for path in paths:
        raise StoreCorrupt(path, 0, f"a length of {path.stat().st_size} bytes", f"{default.file_size}, or entries that tell")
    return default


def _geometry_of(path: Path, length: int) -> Geometry | None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as mapping:
        until, looks, header = time.monotonic() + _LOOK_UNTIL_S, 0, b""
        while looks < _LOOKS and time.monotonic() < until:
            looks = looks + 1 if header == mapping[:HEADER_SIZE] else 1
            header = mapping[:HEADER_SIZE]
            begin_offset, end_offset, count = _OFFSETS_AND_COUNT.unpack_from(header, _OFFSETS_POSITION)
            found = _geometry_in(mapping, begin_offset, end_offset, count) if count > 1 else None
            if found is not None:
                return found
            time.sleep(_LOOK_AGAIN_S)
    return None


def _geometry_in(mapping: mmap.mmap, begin_offset: bytes, end_offset: bytes, count: int) -> Geometry | None:
    length = len(mapping)
    words = (length - HEADER_SIZE) // SLOT_SIZE  # an entry is five of them
    for index_num in range(words // 5, 1, -1):
        slot_num = words - 5 * index_num
        at = HEADER_SIZE + SLOT_SIZE * slot_num + ENTRY_SIZE + 4  # of the offset in entry 1
        last = at + ENTRY_SIZE * (count - 2)
        if slot_num < 1 or mapping[at : at + 8] != begin_offset:
            continue
        if mapping[last : last + 8] == end_offset:
            geometry = Geometry(slot_num, index_num)
            if geometry.file_size == length and _fits(mapping, geometry, count):
                return geometry
    return None


def _fits(mapping: mmap.mmap, geometry: Geometry, count: int) -> bool:
    """Whether the first entries have slots that lead to them or to a later one, and come after the entries they point to."""
    if any(mapping[geometry.entries_position : geometry.entries_position + ENTRY_SIZE]):
        return False
    for number in range(1, min(count, 1 + _LOOKED_AT)):
        key_hash, _, seconds, previous = _ENTRY.unpack_from(mapping, geometry.entries_position + number * ENTRY_SIZE)
        if key_hash <= 0 or seconds < 0 or not 0 <= previous < number:
            return False
        (head,) = struct.unpack_from(">i", mapping, HEADER_SIZE + SLOT_SIZE * (key_hash % geometry.hash_slot_num))
        if not number <= head < count:
            return False
    return True
