"""The events of schedules: a census of the draws of fixed seeds. Each kind, each value and each bound occurs.

Shares are compared with loose bounds: a weight that is a little different passes, one that is lost does not.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, get_args

import pytest

from kit.schedules import all_of, drawn_schedules, frame_size, share, values
from rocketmq_ha.fuzz.schedule import UNBOUNDED_ROOM, ample_room, largest_body
from rocketmq_ha.reference import events
from rocketmq_ha.reference.events import (
    Clog,
    Connect,
    Cut,
    DeleteFile,
    DeliverFrames,
    DeliverReports,
    DiskFull,
    ForgeHeader,
    ForgeReport,
    Grant,
    Put,
    RestartMaster,
    RestartSlave,
    Resume,
    Tick,
)
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

# For each kind: the bounds of its share of all events; whether a schedule may omit it; profiles in which it occurs.
KINDS: Final[dict[type, tuple[float, float, bool]]] = {
    Put: (0.06, 0.14, False),
    Connect: (0.08, 0.16, False),
    Grant: (0.12, 0.26, False),
    DeliverFrames: (0.22, 0.42, False),
    DeliverReports: (0.11, 0.26, False),
    Tick: (0.04, 0.09, False),
    ForgeReport: (0.003, 0.015, True),
    ForgeHeader: (0.003, 0.015, True),
    Clog: (0.008, 0.03, True),
    Cut: (0.012, 0.04, True),
    RestartSlave: (0.008, 0.03, True),
    RestartMaster: (0.003, 0.015, True),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_of_event_has_its_share(kind: type) -> None:
    least, most, optional = KINDS[kind]
    counts = [sum(isinstance(event, kind) for event in drawn.events) for drawn in drawn_schedules()]
    assert least < share(sum(counts), sum(len(drawn.events) for drawn in drawn_schedules())) < most
    without = share(counts.count(0), 800)
    assert 0.15 < without < 0.6 if optional else without < 0.01
    for profile in (CLASSIC, HARDENED):
        assert any(count for count, drawn in zip(counts, drawn_schedules(), strict=True) if drawn.profile is profile)


def test_the_rare_kinds_are_the_two_that_need_more() -> None:
    """Resume needs producers that pause; DiskFull and DeleteFile are added to some schedules alone."""
    assert set(get_args(events.Event)) == {*KINDS, Resume, DiskFull, DeleteFile}


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(events.Event) if "slave" in kind.__annotations__], ids=lambda kind: kind.__name__
)
def test_an_event_of_a_slave_happens_to_each_slave_of_its_schedule(kind: type) -> None:
    for slaves in (1, 2):
        found = Counter(event.slave for drawn, event in all_of(kind) if drawn.slaves == slaves)
        assert set(found) == set(range(slaves))
        assert max(found.values()) < 1.6 * min(found.values())


def test_puts_have_every_topic_queue_and_kind_of_properties() -> None:
    assert values(Put, "topic") == {"T", "orders"}
    assert values(Put, "properties") == {"", "K\x01v"}
    assert values(Put, "queue_id") == {0, 1}
    keyed = share(sum(bool(event.properties) for _, event in all_of(Put)), sum(1 for _ in all_of(Put)))
    assert 0.28 < keyed < 0.39


@pytest.mark.parametrize("file_size", [256, 384, 512, 1000, 4096])
def test_bodies_reach_from_nothing_to_the_largest_that_fits_with_a_key(file_size: int) -> None:
    sizes = Counter(len(event.body) for drawn, event in all_of(Put) if drawn.settings.mapped_file_size == file_size)
    largest = file_size - 8 - 91 - 6 - 8  # a BLANK, the fixed fields, the longest topic, room for a key
    assert (min(sizes), max(sizes)) == (0, largest)
    total = sum(sizes.values())
    assert share(sizes[0], total) > 0.2
    assert share(sizes[largest], total) > 0.2
    assert largest_body(Settings(mapped_file_size=file_size)) == largest + 8


def test_bodies_are_no_constant_bytes() -> None:
    assert len({event.body for _, event in all_of(Put) if len(event.body) > 20}) > 1000


def test_a_share_of_the_puts_waits_and_only_in_classic_some_pause() -> None:
    by_schedule = []
    for drawn in drawn_schedules():
        puts = [event for event in drawn.events if isinstance(event, Put)]
        if len(puts) > 10:
            by_schedule.append(share(sum(put.wait for put in puts), len(puts)))
    by_schedule.sort()
    # A fifth, two fifths, nine tenths.
    assert by_schedule[len(by_schedule) // 10] < 0.25
    assert 0.3 < by_schedule[len(by_schedule) // 2] < 0.55
    assert by_schedule[-len(by_schedule) // 10] > 0.8
    pausing = [drawn for drawn in drawn_schedules() if any(isinstance(e, Put) and e.pauses for e in drawn.events)]
    assert {drawn.profile.name for drawn in pausing} == {CLASSIC.name}
    assert 0.22 < share(len(pausing), sum(drawn.profile is CLASSIC for drawn in drawn_schedules())) < 0.45
    resuming = [drawn for drawn in drawn_schedules() if any(isinstance(e, Resume) for e in drawn.events)]
    both = [drawn for drawn in resuming if drawn in pausing]
    assert share(len(both), len(pausing)) > 0.9
    assert share(len(both), len(resuming)) > 0.9
    assert values(Resume, "nth") == {0, 1, 2}
    assert 0.4 < share(sum(event.nth == 0 for _, event in all_of(Resume)), sum(1 for _ in all_of(Resume))) < 0.6


def test_time_passes_in_three_kinds_of_steps_and_sometimes_in_a_long_one() -> None:
    menus = [
        frozenset(event.ms for event in drawn.events if isinstance(event, Tick) and event.ms < 20_000)
        for drawn in drawn_schedules()
    ]
    with_seconds, long, short = {1, 100, 1000, 2500, 5000, 5001}, {1, 100, 2500, 5000, 5001}, {100, 1000}
    assert frozenset().union(*menus) == with_seconds
    assert any(menu == with_seconds for menu in menus)
    assert any(menu == long for menu in menus)
    assert share(sum(menu == short for menu in menus), 800) > 0.15
    shorts = [drawn for drawn, menu in zip(drawn_schedules(), menus, strict=True) if menu == short]
    ticks = Counter(event.ms for drawn in shorts for event in drawn.events if isinstance(event, Tick))
    assert ticks[1000] > 2.5 * ticks[100]  # 4 times in all; each of these schedules has one of 100 or more
    assert {ms for ms in values(Tick, "ms") if ms > 5001} == {20_000, 20_001}


def test_each_few_bytes_are_delivered_and_granted_from_one_to_one_more_than_a_header() -> None:
    few = set(range(1, 14))
    assert few <= values(DeliverFrames, "nbytes")
    assert few <= values(Grant, "room")
    assert set(range(1, 10)) <= values(DeliverReports, "nbytes")
    assert values(DeliverReports, "nbytes") - {UNBOUNDED_ROOM} == {*range(1, 10), 16, 24, 1000}


def test_frames_are_delivered_and_granted_whole_and_a_few_bytes_more_or_less() -> None:
    for kind, name in ((DeliverFrames, "nbytes"), (Grant, "room")):
        beside: Counter[tuple[int, int]] = Counter()
        for drawn, event in all_of(kind):
            if drawn.settings.ha_transfer_batch_size not in (48, 100):
                continue  # of other batches, one size is near another
            for times in (1, 2, 6):
                if abs(rest := getattr(event, name) - times * frame_size(drawn, 400)) <= 2:
                    beside[times, rest] += 1
        assert set(beside) == {(times, rest) for times in (1, 2, 6) for rest in range(-2, 3)}
        assert min(beside.values()) > 20


def test_no_amount_is_drawn_that_is_not_one_of_the_kinds() -> None:
    extras = ((DeliverFrames, "nbytes", {-1, -12, -13}), (Grant, "room", set[int]()), (Connect, "room", {0}))
    for drawn in drawn_schedules():
        sizes = {times * frame_size(drawn, 400) + rest for times in (1, 2, 6) for rest in range(-2, 3)}
        sizes |= {frame_size(drawn), 2 * frame_size(drawn), *range(1, 14)}
        for kind, name, extra in extras:
            found = {getattr(event, name) for event in drawn.events if isinstance(event, kind)}
            most = UNBOUNDED_ROOM if kind is DeliverFrames else ample_room(drawn.settings)
            assert found <= sizes | extra | {most}, (drawn.seed, kind)


def test_no_room_holds_more_than_150_frames() -> None:
    for drawn, event in (*all_of(Connect), *all_of(Grant)):
        assert event.room <= 150 * frame_size(drawn), drawn.seed
    rooms = {drawn.settings.ha_transfer_batch_size: ample_room(drawn.settings) for drawn in drawn_schedules()}
    assert rooms == {1: 1950, 7: 2850, 16: 4200, 48: 9000, 100: 16800, 1000: 151800}


def test_all_but_the_last_bytes_are_delivered() -> None:
    found = Counter(event.nbytes for _, event in all_of(DeliverFrames) if event.nbytes < 0)
    assert set(found) == {-1, -12, -13}
    assert min(found.values()) > 100
    assert sum(event.nbytes == UNBOUNDED_ROOM for _, event in all_of(DeliverFrames)) > 1000


def test_a_third_of_the_schedules_has_sockets_that_hardly_ever_block_and_a_third_has_room_for_whole_frames() -> None:
    rooms = {
        drawn.seed: {e.room - ample_room(drawn.settings) for e in drawn.events if isinstance(e, Connect)}
        for drawn in drawn_schedules()
        if drawn.settings.replicas == 1
    }
    assert 0.25 < share(sum(found == {0} for found in rooms.values()), len(rooms)) < 0.42
    assert any(event.room == 0 for _, event in all_of(Connect))
    # With a batch of 1000 bytes frames() and grant() differ: one has 412 bytes and the other 1012.
    exact = [
        {e.room for e in drawn.events if isinstance(e, Grant)} & {12, 1012, 2024}
        for drawn in drawn_schedules()
        if drawn.settings.ha_transfer_batch_size == 1000 and drawn.settings.replicas == 1
    ]
    assert 0.2 < share(sum({1012, 2024} <= found for found in exact), len(exact)) < 0.5
    assert any(found == {12, 1012, 2024} for found in exact)


def test_a_tenth_of_the_connections_has_a_slave_that_can_hardly_report() -> None:
    rooms = Counter(event.slave_room for _, event in all_of(Connect))
    assert set(rooms) == {*range(21), UNBOUNDED_ROOM}
    assert 0.85 < share(rooms[UNBOUNDED_ROOM], sum(rooms.values())) < 0.94


def test_forged_reports_are_those_that_hardened_can_refuse_and_in_classic_also_plausible_ones() -> None:
    refused = {-1, -5, 1 << 40, (1 << 63) - 1}
    by_profile = {
        profile.name: {event.offset for drawn, event in all_of(ForgeReport) if drawn.profile is profile}
        for profile in (CLASSIC, HARDENED)
    }
    assert by_profile == {"hardened": refused, "classic": refused | {0, 1, 50, 300}}


def test_forged_headers_have_each_size_around_a_bound() -> None:
    fixed = {-1, -4, -12, -(1 << 31), (1 << 31) - 13, (1 << 31) - 12, (1 << 31) - 1}
    relative = {
        event.body_size - drawn.settings.slave_read_buffer_size
        for drawn, event in all_of(ForgeHeader)
        if event.body_size not in fixed
    }
    assert values(ForgeHeader, "body_size") >= fixed
    assert relative == {-11}  # one byte more than the buffer has behind a header


def test_clogged_sockets_take_each_number_of_bytes_up_to_20() -> None:
    assert values(Clog, "room") == set(range(21))


def test_half_of_the_cuts_are_told_to_both_ends_and_the_others_to_either() -> None:
    found = Counter(event.tell for _, event in all_of(Cut))
    assert set(found) == {"both", "slave", "master"}
    total = sum(found.values())
    assert 0.45 < share(found["both"], total) < 0.55
    assert min(found["slave"], found["master"]) > 0.2 * total


def test_half_of_the_masters_stop_a_quarter_is_killed_and_a_quarter_loses_one_to_four_records() -> None:
    found = Counter((event.clean, event.lost) for _, event in all_of(RestartMaster))
    total = sum(found.values())
    assert set(found) == {(True, 0), *((False, lost) for lost in range(5))}
    assert 0.44 < share(found[True, 0], total) < 0.56
    assert 0.20 < share(found[False, 0], total) < 0.31
    for lost in (1, 2, 3, 4):
        assert 0.04 < share(found[False, lost], total) < 0.09


def test_a_tenth_of_the_events_of_some_schedules_fills_a_disk_or_empties_it() -> None:
    some = [drawn for drawn in drawn_schedules() if any(isinstance(event, DiskFull) for event in drawn.events)]
    assert 0.10 < share(len(some), 800) < 0.20
    added = [event for _, event in all_of(DiskFull)]
    assert 0.07 < share(len(added), sum(len(drawn.events) for drawn in some) - len(added)) < 0.13
    assert 0.42 < share(sum(event.is_full for event in added), len(added)) < 0.58
    # Each follows an event, so none comes first.
    assert not any(isinstance(drawn.events[0], DiskFull) for drawn in some)


def test_some_masters_delete_files() -> None:
    """A deletion is drawn behind a fourteenth of the events."""
    some = [drawn for drawn in drawn_schedules() if any(isinstance(event, DeleteFile) for event in drawn.events)]
    assert 0.10 < share(len(some), 800) < 0.20
    added = sum(1 for _ in all_of(DeleteFile))
    assert 0.05 < share(added, sum(len(drawn.events) for drawn in some) - added) < 0.09
    assert not any(isinstance(drawn.events[0], DeleteFile) for drawn in some)


def is_round(found: Sequence[events.Event], slave: int, room: int) -> bool:
    return list(found) == [
        Connect(slave, room, UNBOUNDED_ROOM),
        DeliverReports(slave, UNBOUNDED_ROOM),
        Grant(slave, room),
        DeliverFrames(slave, UNBOUNDED_ROOM),
        DeliverReports(slave, UNBOUNDED_ROOM),
    ]


def test_where_two_replicas_are_needed_a_slave_often_catches_up() -> None:
    """A round is drawn behind a fifth of the events: connect, report, room, frames, report, all of one slave."""
    found = []
    for drawn in drawn_schedules():
        kept = [event for event in drawn.events if not isinstance(event, DiskFull | DeleteFile)]
        connects = [(at, event.slave) for at, event in enumerate(kept) if isinstance(event, Connect)]
        rounds = [slave for at, slave in connects if is_round(kept[at : at + 5], slave, ample_room(drawn.settings))]
        if drawn.settings.replicas == 1:
            assert not rounds
        else:
            others = len(kept) - 5 * len(rounds)
            assert 100 <= others <= 220
            assert 0.1 < share(len(rounds), others) < 0.32
            found += rounds
    assert 0.42 < share(found.count(1), len(found)) < 0.58
