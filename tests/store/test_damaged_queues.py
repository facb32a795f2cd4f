"""Damage to one place of the consume queues: what `verify` says, what `recover` plans, and what it does after each stop.

HA-ST-29 to HA-ST-34, HA-ST-38, HA-ST-45; HA-ST-90 "MUST begin no later than behind the last message that this queue has".
"""

import shutil
from pathlib import Path

import pytest

from kit.damaged import (
    DELAYED,
    EIGHT,
    END,
    FILLER,
    LAST,
    NINE,
    T8,
    T9,
    T12,
    T13,
    T14,
    TWELVE,
    UNCLEAN,
    WHOLE,
    Case,
    Found,
    Planned,
    both,
    check,
    entry,
    gone,
    write_store,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("derived") / "whole")


Entry = tuple[int, int, int]


def differs(queue: str, number: int, found: Entry, expected: Entry) -> str:
    return (
        f"consumequeue/{queue}, byte {20 * number} of the queue: at commit-log offset {expected[0]}: "
        f"found entry {number} is {found}, expected {expected}: offset, size, tags code"
    )


def names(queue: str, number: int, offset: int) -> str:
    return (
        f"consumequeue/{queue}, byte {20 * number} of the queue: at commit-log offset {offset}: "
        f"found entry {number} names offset {offset}, expected a message of this queue"
    )


CASES = {
    "the last entry, of the last message": Case(
        entry("a/0", 6, 0, 0),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=2481, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "the last entry, of another message": Case(
        entry("b/3", 3, 0, 0),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=1563, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "the first entry of a file": Case(
        entry("a/0", 3, 0, 0),
        says=Found(entries=3, entries_missing=3),
        clean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
        then=WHOLE,
        then_unclean=None,
        left=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "the last entry of a file": Case(
        entry("a/0", 5, 0, 0),
        says=Found(entries=4, entries_missing=2),
        clean=Planned(dispatch_from=1381, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "an entry in the middle": Case(
        entry("a/0", 4, 0, 0),
        says=Found(entries=3, entries_missing=3),
        clean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
        then=WHOLE,
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "the only entry": Case(
        entry(f"{DELAYED}/2", 0, 0, 0),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
        then=WHOLE,
        then_unclean=None,
        left=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "all of one": Case(
        gone("consumequeue/b"),
        says=Found(queues=3, entries=4, entries_missing=2),
        clean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
        then=WHOLE,
        then_unclean=Found(entries=5, entries_missing=1),
    ),
    "all of one whose messages have gone": Case(gone("consumequeue/c"), says=Found(queues=3), then_unclean=None),
    "all": Case(
        gone("consumequeue"),
        says=Found(queues=0, entries=0, entries_missing=6),
        clean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
        then=Found(queues=3),
        then_unclean=Found(queues=2, entries=3, entries_missing=3),
        left=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "the last file": Case(
        gone(f"consumequeue/a/0/{120:020d}"),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=2481, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "the offset of another message": Case(
        entry("a/0", 4, *NINE, T9),
        says=differs("a/0", 4, (1381, 182, 3653), (1199, 182, 3652)),
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "another offset": Case(
        entry("a/0", 4, 1198, 182, T8),
        says=differs("a/0", 4, (1198, 182, 3652), (1199, 182, 3652)),
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "another size": Case(
        entry("a/0", 4, 1199, 181, T8),
        says=differs("a/0", 4, (1199, 181, 3652), (1199, 182, 3652)),
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "another tags code": Case(
        entry("a/0", 4, *EIGHT, T8 + 1), says=differs("a/0", 4, (1199, 182, 3653), (1199, 182, 3652)), then_unclean=None
    ),
    "the last entry has another tags code": Case(
        entry("a/0", 6, *LAST, T14 - 1), says=differs("a/0", 6, (2481, 218, 113046), (2481, 218, 113047))
    ),
    "the first of the log has another size": Case(
        entry("b/3", 2, 1381, 183, T9),
        says=differs("b/3", 2, (1381, 183, 3653), (1381, 182, 3653)),
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "another time of delivery": Case(entry(f"{DELAYED}/2", 0, 1563, 223, 5)),
    "a delayed one's size": Case(
        entry(f"{DELAYED}/2", 0, 1563, 222, 5),
        says=differs("SCHEDULE_TOPIC_XXXX/2", 0, (1563, 222, 5), (1563, 223, 1700000105000)),
        then_unclean=Found(entries=5, entries_missing=1),
        left=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "a filler in the place of a message": Case(
        entry("a/0", 5, *FILLER), says=differs("a/0", 5, (0, 2147483647, 0), (2048, 213, 113045))
    ),
    "shifted by one": Case(
        both(entry("a/0", 4, *TWELVE, T12), entry("a/0", 5, *LAST, T14), entry("a/0", 6, 0, 0)),
        says=differs("a/0", 4, (2048, 213, 113045), (1199, 182, 3652)),
        unclean=Planned(dispatch_from=1024, verdict="WOULD_CHANGE"),
    ),
    "a negative offset": Case(
        entry("b/3", 3, -1, 220, T13),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=1563, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "a negative size": Case(
        entry("b/3", 3, 2261, -220, T13),
        says=Found(entries=5, entries_missing=1),
        clean=Planned(dispatch_from=1563, verdict="WOULD_CHANGE"),
        then=WHOLE,
    ),
    "behind the last, the last again": Case(entry("b/3", 4, 2261, 220, T13), says=names("b/3", 4, 2261)),
    "behind the last, the last byte of the log": Case(entry("b/3", 4, END - 1, 9), says=names("b/3", 4, 2698)),
    "behind the last, the end of the log": Case(
        entry("b/3", 4, END, 9), clean=Planned(entries_cut=1, verdict="WOULD_CHANGE"), unclean=UNCLEAN._replace(entries_cut=1)
    ),
    "behind the last, two beyond the end": Case(
        both(entry("b/3", 4, END, 9), entry("b/3", 5, END + 9, 9)),
        clean=Planned(entries_cut=2, verdict="WOULD_CHANGE"),
        unclean=UNCLEAN._replace(entries_cut=2),
    ),
    "behind the last, a filler": Case(entry("b/3", 4, *FILLER)),
    "behind the last, a filler and a message": Case(
        both(entry("b/3", 4, *FILLER), entry("b/3", 5, *NINE)), says=names("b/3", 5, 1381)
    ),
    "behind the last, a filler and the end": Case(
        both(entry("b/3", 4, *FILLER), entry("b/3", 5, END, 9)),
        clean=Planned(entries_cut=1, verdict="WOULD_CHANGE"),
        unclean=UNCLEAN._replace(entries_cut=1),
    ),
    "of no message, before the log": Case(entry("d/0", 0, 1023, 1), says=Found(queues=5), then_unclean=None),
    "of no message, the log's first byte": Case(
        entry("d/0", 0, 1024, 175), says=names("d/0", 0, 1024), then_unclean=Found(queues=5)
    ),
    "of no message, the log's last byte": Case(
        entry("d/0", 0, END - 1, 9), says=names("d/0", 0, 2698), then_unclean=Found(queues=5)
    ),
    "of no message, the end of the log": Case(
        entry("d/0", 0, END, 9),
        says=Found(queues=5),
        clean=Planned(entries_cut=1, verdict="WOULD_CHANGE"),
        unclean=UNCLEAN._replace(entries_cut=1),
        then_unclean=None,
    ),
    "of no message, fillers": Case(
        both(entry("d/0", 0, *FILLER), entry("d/0", 1, *FILLER)), says=Found(queues=5), then_unclean=None
    ),
    "of no message, whose messages have gone": Case(entry("c/1", 1, *NINE), says=names("c/1", 1, 1381)),
    "before the log, another size": Case(entry("c/1", 0, 842, 7)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_said_and_done_about_an_entry(whole: Path, tmp_path: Path, case: Case) -> None:
    check(case, shutil.copytree(whole, tmp_path / "s"))
