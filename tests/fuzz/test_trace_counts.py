"""The check of a transcript counts what it has seen, and says where and why it refuses, on transcripts written by hand.

The log has three records, which end at 102, 214 and 336; a batch has 100 bytes. tests/ha/test_trace.py has recorded links.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from kit.schedules import SETTINGS, put
from rocketmq_ha.fuzz import trace
from rocketmq_ha.fuzz.trace import Checked, TraceRefusedError, check_transcript, record_ends
from rocketmq_ha.fuzz.transcript import Piece, Restarted
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

Entry = Piece | Restarted


def log_of(*bodies: int) -> Log:
    world = ReferenceWorld(1, SETTINGS, HARDENED, START_MS)
    for size in bodies:
        world.apply(put(size))
    return world.cluster.log


LOG = log_of(10, 20, 30)


def frame(offset: int, size: int) -> bytes:
    return HEADER.pack(offset, size) + LOG.data[offset : offset + size]


def master(link: int, *frames: bytes, lost: int = 0) -> Piece:
    """What a master sent in one read; the last `lost` bytes did not pass."""
    data = b"".join(frames)
    return Piece(link, "master", data, len(data) - lost)


def slave(link: int, *reports: int) -> Piece:
    data = b"".join(map(REPORT.pack, reports))
    return Piece(link, "slave", data, len(data))


WHOLE = (frame(0, 100), frame(100, 100), frame(200, 100), frame(300, 36))
FIRST: Sequence[Entry] = (
    slave(0, 0),
    master(0, *WHOLE[:2]),
    slave(0, 100, 200),
    master(0, WHOLE[2], WHOLE[3][:5]),
    master(0, WHOLE[3][5:], HEADER.pack(336, 0)),
    slave(0, 336, 336),  # one for two frames, and one again by the interval
)
SECOND: Sequence[Entry] = (Restarted(), slave(1, 214), master(1, frame(214, 100), frame(314, 22)), slave(1, 336))


def check(*entries: Entry, log: Log = LOG, slave_log: Log | None = None, slave_profile: Profile = HARDENED) -> Checked:
    return check_transcript(entries, log, SETTINGS, HARDENED, slave_profile, slave_log)


def refused(*entries: Entry, **arguments: Any) -> str:
    """What the model has, of the refusal of a transcript."""
    with pytest.raises(TraceRefusedError) as caught:
        check(*entries, **arguments)
    return caught.value.message.partition(": the model has ")[2]


def test_an_empty_transcript_has_nothing() -> None:
    assert check() == Checked()


def test_each_count_is_that_of_the_transcript() -> None:
    assert check(*FIRST) == Checked(
        links=1,
        frames=5,
        heartbeats=1,
        reports=5,
        repeated_reports=1,
        body_bytes=336,
        slave_max_offset=336,
        slave_ack_offset=336,
    )


def test_a_second_link_after_a_restart_is_added() -> None:
    assert check(*FIRST, *SECOND) == Checked(
        links=2,
        frames=7,
        heartbeats=1,
        reports=7,
        repeated_reports=1,
        body_bytes=336 + 122,
        slave_max_offset=336,
        slave_ack_offset=336,
    )


def test_a_frame_that_did_not_pass_is_checked_but_not_appended() -> None:
    found = check(slave(0, 0), master(0, *WHOLE[:2], lost=1), slave(0, 100))
    assert (found.frames, found.body_bytes, found.slave_max_offset, found.slave_ack_offset) == (2, 200, 100, 100)


def test_the_ends_of_a_log_are_those_of_records_and_files() -> None:
    assert record_ends(LOG) == {0, 102, 214, 336}
    # Of 1000 bytes 890 + 92 and a BLANK of 18; the second record is in the second file.
    assert record_ends(log_of(890, 5)) == {0, 982, 1000, 1097}
    assert record_ends(Log(1000)) == {0}


@pytest.mark.parametrize(
    ("entries", "where", "expected", "found"),
    [
        ((slave(0, 8),), "link 0, behind 0 bytes of frames and report 0", "a first report of 0", "8"),
        (
            (slave(0, 0), master(0, HEADER.pack(0, 101))),
            "link 0, behind 0 bytes of frames and report 1",
            "a body of 0 to 100 bytes",
            "one of 101 at 0",
        ),
        (
            (slave(0, 0), master(0, WHOLE[0], HEADER.pack(300, 37) + bytes(37))),
            "link 0, behind 112 bytes of frames and report 1",
            "a frame within the log, 0 to 336",
            "300 to 337",
        ),
        (
            (slave(0, 0), master(0, HEADER.pack(0, 99) + LOG.data[:99])),
            "link 0, behind 0 bytes of frames and report 1",
            "a frame that ends with a record, or is a batch of 100 bytes",
            "one that ends inside a record, at 99",
        ),
        (
            (slave(0, 0), master(0, WHOLE[1])),
            "link 0, behind 0 bytes of frames and report 1",
            "a frame of 100 bytes at 0",
            "a frame of 100 bytes at 100",
        ),
        (
            (slave(0, 0), master(0, WHOLE[0], HEADER.pack(104, 0)[:8])),
            "link 0, behind 112 bytes of frames and report 1",
            "a header of offset 100",
            (104).to_bytes(8, "big").hex(),
        ),
        (
            (slave(0, 0), master(0, WHOLE[0], WHOLE[1][:20] + b"\x00\x00")),
            "link 0, behind 112 bytes of frames and report 1",
            "the log's bytes from 100",
            "others",
        ),
        (
            (slave(0, 0), master(0, *WHOLE[:2]), slave(0, 100, 150)),
            "link 0, behind 224 bytes of frames and report 2",
            "a report of 200",
            "150",
        ),
        (
            (slave(0, 0), Piece(0, "slave", bytes(3), 3)),
            "link 0, behind 0 bytes of frames and report 1",
            "reports of 8 bytes",
            "3 bytes behind the last whole one",
        ),
        (
            (*FIRST, slave(1, 100)),
            "link 1, behind 0 bytes of frames and report 5",
            "a first report of 336",
            "100",
        ),
    ],
    ids=[
        *("first report", "too large", "beyond the log", "inside a record", "another offset", "part of a header"),
        *("part of a body", "a report", "part of a report", "second link"),
    ],
)
def test_a_refusal_names_the_place_and_both_sides(entries: Sequence[Entry], where: str, expected: str, found: str) -> None:
    with pytest.raises(TraceRefusedError) as caught:
        check(*entries)
    assert caught.value.message == f"{where}: the model has {expected}; the transcript has {found}"


def test_a_log_that_is_no_log_is_refused() -> None:
    with pytest.raises(TraceRefusedError) as caught:
        check(log=Log(1000, 0, LOG.data[:214] + bytes(50)))
    assert caught.value.message == "the master's log has no whole record at 214"


TWO_FILES = log_of(890, 5, 6, 7)  # the second file has records that end at 1097, 1195 and 1294
SECOND_FILE = Log(1000, 1000, TWO_FILES.data[1000:])


def second(offset: int, size: int) -> bytes:
    return HEADER.pack(offset, size) + TWO_FILES.data[offset : offset + size]


def test_a_log_may_begin_at_a_later_file() -> None:
    assert record_ends(SECOND_FILE) == {1000, 1097, 1195, 1294}
    frames = (second(1000, 100), second(1100, 100), second(1200, 94))
    found = check(
        slave(0, 0), master(0, frames[0], frames[1][:60]), master(0, frames[1][60:], frames[2]), slave(0, 1294), log=SECOND_FILE
    )
    assert (found.frames, found.body_bytes, found.slave_max_offset) == (3, 294, 1294)
    wrong = frames[1][:50] + bytes(10)
    assert refused(slave(0, 0), master(0, frames[0], wrong), log=SECOND_FILE).startswith("the log's bytes from 1100")
    assert refused(slave(0, 0), master(0, second(900, 82)), log=SECOND_FILE).startswith("a frame within the log, 1000 to 1294")


def test_a_slave_with_a_log_begins_at_its_last_record() -> None:
    had = Log(1000, 0, LOG.data[:214])
    found = check(slave(0, 102), master(0, frame(102, 100), frame(202, 100), frame(302, 34)), slave(0, 302, 336), slave_log=had)
    assert (found.frames, found.reports, found.slave_max_offset) == (3, 3, 336)
    assert refused(slave(0, 0), slave_log=had) == "a first report of 214; the transcript has 0"


def test_a_slave_that_coalesces_may_leave_reports_out_and_classic_may_not() -> None:
    frames = (slave(0, 0), master(0, *WHOLE))
    assert check(*frames, slave(0, 336)).reports == 2
    assert check(*frames, slave(0, 100, 200, 300, 336), slave_profile=CLASSIC).reports == 5
    assert refused(*frames, slave(0, 200), slave_profile=CLASSIC) == "a report of 100; the transcript has 200"
    assert refused(*frames, slave(0, 100, 300), slave_profile=CLASSIC) == "a report of 200; the transcript has 300"


def test_a_slave_may_have_lost_what_it_did_not_acknowledge() -> None:
    """It has one of the ends of the frames; the start of the last record before that is its first report."""
    all_passed = (slave(0, 0), master(0, *WHOLE))
    for first in (214, 102, 0):  # of the ends 336, 300 and 200
        assert check(*all_passed, slave(1, first)).slave_ack_offset == first
    assert refused(*all_passed, slave(1, 150)) == "a first report of 336; the transcript has 150"
    acknowledged = (*all_passed, slave(0, 100, 200, 300))
    assert check(*acknowledged, slave(1, 102)).reports == 5
    assert refused(*acknowledged, slave(1, 0)) == "a first report of 336; the transcript has 0"
    # A later link sends again what the model then took for lost.
    again = (frame(102, 100), frame(202, 100), frame(302, 34))
    found = check(*acknowledged, slave(1, 102), master(1, *again), slave(1, 336))
    assert (found.links, found.body_bytes, found.slave_max_offset) == (2, 336 + 234, 336)


def test_a_slave_whose_bytes_differ_closes_and_a_master_whose_log_is_shorter_too() -> None:
    other = Log(1000, 0, LOG.data[:213] + b"\xff")
    assert refused(slave(0, 102), master(0, frame(102, 100), frame(202, 100)), slave_log=other).startswith(
        "a close of the slave ("
    )
    longer = log_of(10, 20, 30, 40, 50)
    assert (
        refused(slave(0, 468), slave_log=longer)
        == "a close of the master (report); the transcript has a report of 468 that it took"
    )


def test_a_heartbeat_may_come_between_frames_and_says_where() -> None:
    assert check(slave(0, 0), master(0, HEADER.pack(0, 0), WHOLE[0])).heartbeats == 1
    assert (
        refused(slave(0, 0), master(0, WHOLE[0], HEADER.pack(0, 0)))
        == "a heartbeat of 100; the transcript has a heartbeat of 0"
    )


def test_a_restart_cuts_a_torn_record_off_and_a_lost_link_does_not() -> None:
    all_passed = (slave(0, 0), master(0, *WHOLE))
    assert check(*all_passed, slave(1, 102)).slave_max_offset == 300
    assert check(*all_passed, Restarted(), slave(1, 102)).slave_max_offset == 214


def test_of_several_ends_with_the_same_first_report_the_largest_counts() -> None:
    """100 and 200 bytes: neither holds more than one whole record, so that the slave asks for byte 1 with either."""
    passed = (slave(0, 0), master(0, *WHOLE[:2]))
    assert check(*passed, slave(1, 1)).slave_max_offset == 200
    assert check(*passed, Restarted(), slave(1, 1)).slave_max_offset == 102


def test_a_restart_counts_for_the_next_link_alone() -> None:
    passed = (slave(0, 0), master(0, *WHOLE[:2]), Restarted(), slave(1, 1), master(1, frame(1, 100), frame(101, 100)))
    assert check(*passed).slave_max_offset == 201
    assert check(*passed, slave(2, 1)).slave_max_offset == 201
    assert check(*passed, Restarted(), slave(2, 1)).slave_max_offset == 102


# --- A long log: files that are acknowledged are forgotten -----------------------------------------------------------------

LONG = log_of(*(100,) * 30)  # records of 192 bytes, five in a file
LONG_FRAMES = tuple(
    HEADER.pack(at, size) + LONG.data[at : at + size]
    for file in range(0, len(LONG.data), 1000)
    for at, size in ((file + begin, min(100, len(LONG.data) - file - begin)) for begin in range(0, 1000, 100))
    if size > 0
)


def test_what_is_not_acknowledged_is_kept_for_the_first_report_of_the_next_link() -> None:
    passed = (slave(0, 0), master(0, *LONG_FRAMES))
    assert check(*passed, log=LONG).slave_max_offset == len(LONG.data) > 5_000
    assert check(*passed, slave(1, 192), log=LONG).slave_max_offset == 500  # the largest end with one whole record before it
    assert check(*passed, slave(0, 4_500), slave(1, 4_192), log=LONG).slave_ack_offset == 4_192


def test_what_is_acknowledged_is_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    on_frames = trace.slave.on_frames

    def watched(had: Any, *arguments: Any) -> Any:
        sizes.append(len(had.log.data))
        return on_frames(had, *arguments)

    monkeypatch.setattr(trace.slave, "on_frames", watched)
    entries: list[Entry] = [slave(0, 0)]
    for one in LONG_FRAMES:
        offset, size = HEADER.unpack(one[: HEADER.size])
        entries += [master(0, one), slave(0, offset + size)]
    found = check(*entries, log=LONG)
    assert (found.slave_max_offset, found.slave_ack_offset) == (len(LONG.data), len(LONG.data))
    assert 2_000 <= max(sizes) <= 3_100  # two files, what has come of the third, and a frame
