"""What of a file is on the disk after a power cut: each sector with its bytes of the last sync, or with the newest ones.

    sectors      | 0 | 1 | 2 | 3 | 4 | ...      512 bytes each; a disk writes one whole
    new since the last sync  x       x   x
    the cut's `pages`        1       0   1      sector 3 is lost: it holds what the last sync brought

Pages reach the disk in any order. A sector of the log that is lost may hold an older state of what was appended to it: its
first `torn` bytes are new, the rest is old. Then nothing that was appended behind it is there: no check could see a hole
within a record's header, and no disk leaves one (chapter 5, "No check sees"). A name that was made or removed since the
last sync of its directory is there or not; the changes of one directory reach the disk in their order, and a file's length
with its name.
"""

from collections.abc import Iterable

from rocketmq_ha.spec.constants import SECTOR_SIZE

BITS = 64  # of `pages`


def after_power_cut(now: bytes, synced: bytes, pages: int, first_sector: int, torn: int = 0) -> tuple[bytes, bool]:
    """The bytes of a file, and whether a sector of it was lost.

    Args:  first_sector: the number of its first sector, which chooses the bits of `pages`. torn: of the first lost sector.

    >>> old, new = bytes(1024), b"a" * 1024
    >>> [after_power_cut(new, old, pages, 0)[0].count(b"a") for pages in (0b00, 0b01, 0b11)]
    [0, 512, 1024]
    >>> after_power_cut(new, old, 0b10, 0, torn=7)[0].count(b"a"), after_power_cut(old, old, 0, 0)[1]
    (7, False)
    """
    if now == synced:
        return now, False
    kept, is_lost = [], False
    for position in range(0, len(now), SECTOR_SIZE):
        new, old = now[position : position + SECTOR_SIZE], synced[position : position + SECTOR_SIZE]
        is_behind = is_lost and torn > 0
        if new != old and (is_behind or not pages >> (first_sector + position // SECTOR_SIZE) % BITS & 1):
            new = old if is_lost else new[:torn] + old[torn:]
            is_lost = True
        kept.append(new)
    return b"".join(kept), is_lost


def left_of_cut(pages: int, torn: int, *, is_lost: bool) -> tuple[int, int]:
    """`pages` and `torn` for the next file of the log. is_lost: a file before it has lost a sector."""
    return (0 if torn else pages, 0) if is_lost else (pages, torn)


def names_after_power_cut(now: Iterable[int], synced: Iterable[int], reached: int) -> list[int]:
    """The starts of the files that are there. The changes since the last sync took place in the order of the starts.

    >>> names_after_power_cut([0, 100, 200], [0], 1), names_after_power_cut([0], [0, 100], 0)
    ([0, 100], [0, 100])
    """
    changes = sorted({*now} ^ {*synced})
    return sorted({*synced} ^ {*changes[:reached]})
