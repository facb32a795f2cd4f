"""Damage to one place of the index: what `verify` says, what `recover` plans, and what it does after each stop.

HA-ST-39 to HA-ST-42, HA-ST-47.
"""

import shutil
from pathlib import Path

import pytest

from kit.damaged import (
    A_K,
    A_L,
    A_M,
    B_K,
    B_M,
    DELAYED_K,
    END,
    UNCLEAN,
    Case,
    Found,
    Planned,
    both,
    check,
    gone,
    index,
    index_count,
    index_gone,
    key,
    slot,
    write_store,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("derived") / "whole")


def hashes(file: int, offset: int, found: list[int]) -> str:
    return (
        f"index[{file}]: at commit-log offset {offset}: found keys of hashes {found}, expected the hashes of a message's keys"
    )


def points(file: int, offset: int, number: int, found: int, expected: int) -> str:
    told = f"found entry {number} points to {found}, expected {expected}, as its slot did"
    return f"index[{file}]: at commit-log offset {offset}: {told}"


def leads(file: int, offset: int, number: int, found: int, expected: int) -> str:
    told = f"{expected}, its newest entry" if expected else "none, for no entry is of it"
    return f"index[{file}]: at commit-log offset {offset}: found slot {number} leads to entry {found}, expected {told}"


CASES = {
    "the last key": Case(both(index_count(2, 1), slot(2, 4, 0)), says=Found(keys=6, keys_missing=1)),
    "the last file": Case(index_gone(2), says=Found(index_files=2, keys=6, keys_missing=1)),
    "the last two files": Case(
        index_gone(1, 2),
        says=Found(index_files=1, keys=1, keys_missing=6),
        then_unclean=Found(index_files=2, keys=5, keys_missing=2),
    ),
    "the first file": Case(index_gone(0), says=Found(index_files=2, keys=6), then_unclean=None),
    "a file in the middle": Case(
        index_gone(1),
        says=Found(index_files=2, keys=2, keys_missing=5),
        then_unclean=Found(index_files=2, keys=5, keys_missing=2),
    ),
    "all files": Case(
        gone("index/*"), says=Found(index_files=0, keys=0, keys_as="none"), then_unclean=Found(index_files=1, keys=4)
    ),
    "the directory": Case(
        gone("index"), says=Found(index_files=0, keys=0, keys_as="none"), then_unclean=Found(index_files=1, keys=4)
    ),
    "the last key of a file": Case(both(index_count(1, 5), slot(1, 2, 3)), says=Found(keys=6, keys_missing=1)),
    "the last two keys of a file": Case(
        both(index_count(1, 4), slot(1, 1, 0), slot(1, 2, 3)), says=Found(keys=5, keys_missing=2)
    ),
    "the first key of the log": Case(both(index_count(0, 5), slot(0, 2, 4)), says=Found(keys=6), then_unclean=None),
    "another hash": Case(key(1, 1, hash=A_K + 7), says=hashes(1, 1199, [A_K + 7]), then_unclean=None),
    "another hash of the last key": Case(key(2, 1, hash=B_M + 7), says=hashes(1, 2261, [B_K, B_M + 7])),
    "a hash of another slot": Case(key(1, 5, hash=B_K + 1), says=points(1, 2261, 5, 3, 0), then_unclean=None),
    "an offset between two messages": Case(key(1, 1, offset=1200), says=hashes(1, 1200, [A_K]), then_unclean=None),
    "an offset just before its message": Case(key(1, 5, offset=2260), says=hashes(1, 2260, [B_K]), then_unclean=None),
    "the offset of a message without keys": Case(key(1, 2, offset=1381), says=hashes(1, 1381, [DELAYED_K]), then_unclean=None),
    "the offset of a rolled-back message": Case(key(1, 2, offset=1786), says=hashes(1, 1786, [DELAYED_K]), then_unclean=None),
    "the offset of the message before": Case(key(1, 3, offset=1563), says=hashes(1, 1563, [DELAYED_K, A_M]), then_unclean=None),
    "an offset before the log": Case(key(0, 5, offset=1023), says=Found(keys=6), then_unclean=None),
    "an offset before that of the key before": Case(key(1, 5, offset=1024), says=Found(keys=6, keys_missing=1)),
    "a key of a message that has gone": Case(key(0, 1, hash=B_K + 7)),
    "an entry points to itself": Case(key(1, 5, before=5), says=points(1, 2261, 5, 5, 3), then_unclean=None),
    "an entry points to another": Case(key(1, 5, before=4), says=points(1, 2261, 5, 4, 3), then_unclean=None),
    "an entry points to none": Case(key(1, 5, before=0), says=points(1, 2261, 5, 0, 3), then_unclean=None),
    "the first entry points to one": Case(key(1, 1, before=1), says=points(1, 1199, 1, 1, 0), then_unclean=None),
    "a file's first entry of its slot points to one": Case(key(2, 1, before=1), says=points(2, 2261, 1, 1, 0)),
    "the last key twice": Case(
        both(key(2, 2, hash=B_M, offset=2261, before=1), index_count(2, 3), slot(2, 4, 2)), says=Found(keys=8)
    ),
    "an earlier message again": Case(both(key(2, 2, hash=A_K, offset=1199), index_count(2, 3), slot(2, 0, 2))),
    "behind the last, the last byte of the log": Case(
        both(key(2, 2, hash=A_K, offset=END - 1), index_count(2, 3), slot(2, 0, 2)), says=hashes(2, 2698, [A_K])
    ),
    "behind the last, a message without keys": Case(
        both(key(2, 2, hash=A_K, offset=2481), index_count(2, 3), slot(2, 0, 2)), says=hashes(2, 2481, [A_K])
    ),
    "behind the last, the end of the log": Case(
        both(key(2, 2, hash=A_K, offset=END), index_count(2, 3), slot(2, 0, 2), index(2, 24, END, 8)),
        clean=Planned(keys_cut=1, verdict="WOULD_CHANGE"),
        unclean=UNCLEAN._replace(keys_cut=1),
    ),
    "behind the last, two beyond the end": Case(
        both(key(2, 2, hash=A_K, offset=END), key(2, 3, hash=A_L, offset=END + 9), index_count(2, 4), index(2, 24, END + 9, 8)),
        clean=Planned(keys_cut=2, verdict="WOULD_CHANGE"),
        unclean=UNCLEAN._replace(keys_cut=2),
    ),
    "a slot leads to no entry": Case(slot(1, 2, 0), says=leads(1, 2261, 2, 0, 5), then_unclean=None),
    "a slot leads to an older entry": Case(slot(1, 2, 3), says=leads(1, 2261, 2, 3, 5), then_unclean=None),
    "a slot leads to an entry of another": Case(slot(2, 3, 1), says=leads(2, 2261, 3, 1, 0)),
    "a slot leads beyond the count": Case(slot(2, 3, 2), says=leads(2, 2261, 3, 2, 0)),
    "a slot leads before the first entry": Case(slot(2, 3, -1), says=leads(2, 2261, 3, -1, 0)),
    "the last slot leads nowhere": Case(slot(0, 6, 7), says=leads(0, 378, 6, 7, 0), then_unclean=None),
    "a count beyond the file": Case(index_count(1, 99)),
    "no count": Case(both(index_count(2, 0), slot(2, 4, 0)), says=Found(keys=6, keys_missing=1)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_said_and_done_about_a_key(whole: Path, tmp_path: Path, case: Case) -> None:
    check(case, shutil.copytree(whole, tmp_path / "s"))
