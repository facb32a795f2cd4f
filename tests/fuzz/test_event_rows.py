"""The rows of the event log, of two runs written by hand: each number is counted from the bytes that move.

A record has 92 bytes and its body, a frame 12 and its body of up to 100, a report 8.
"""

from collections.abc import Iterator

import pytest

from kit.schedules import ALL, SETTINGS, put
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.events import (
    Clog,
    Connect,
    Cut,
    DeliverFrames,
    DeliverReports,
    Event,
    ForgeHeader,
    ForgeReport,
    Grant,
    RestartMaster,
    RestartSlave,
    Resume,
    Tick,
)
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

# (actor, instance, event, from_state, to_state, offset, nbytes, fragment_len, split_at)
Row = tuple[str, int, str, str, str, int, int, int, int]

M, S, G, N = "master_connection", "slave_client", "group_transfer", "network"

CLASSIC_RUN: tuple[tuple[Event, tuple[Row, ...]], ...] = (
    (put(10), (("store", 0, "put", "no_files", "open", 102, 102, -1, 0),)),
    (put(20), (("store", 0, "put", "open", "open", 214, 112, -1, 0),)),
    (
        Connect(1, 20, ALL),
        (
            (M, 0, "accept", "await_report", "await_report", -1, 0, -1, 0),
            (S, 1, "connect", "disconnected", "connected", 0, 0, -1, 0),
        ),
    ),
    (Tick(5001), ((S, 1, "tick", "connected", "connected", 0, 8, -1, 0),)),
    (
        DeliverReports(1, 5),
        ((M, 0, "reports", "await_report", "await_report", -1, 5, 5, 5),),
    ),
    (
        DeliverReports(1, 5),
        (
            (M, 0, "reports", "await_report", "await_report", 0, 3, 3, 0),
            (M, 0, "transfer", "await_report", "header_partial", 100, 20, 20, 8),  # a heartbeat, and 8 bytes of a header
        ),
    ),
    (
        DeliverFrames(1, 15),
        (
            (S, 1, "frames", "connected", "header_partial", 0, 15, 15, 3),
            ("store", 2, "append_data", "no_files", "phantom", 0, 0, -1, 0),
        ),
    ),
    (Grant(1, 50), ((M, 0, "transfer", "header_partial", "body_partial", 100, 50, 50, 58),)),
    (DeliverFrames(1, 30), ((S, 1, "frames", "header_partial", "body_partial", 0, 30, 30, 33),)),
    (
        put(30),
        (("store", 0, "put", "open", "open", 336, 122, -1, 0),),
    ),
    (put(40, wait=True, pauses=True), (("store", 0, "put", "open", "open", 468, 132, -1, 0),)),
    (Resume(1), ()),
    (Resume(0), ((G, 0, "put", "no_waiters", "wait_1", 0, 0, -1, 0),)),
    (Tick(1000), ((G, 0, "tick", "wait_1", "wait_2", 0, 0, -1, 0),)),
    (Clog(1, 3), ((N, 0, "clog", "up", "up", -1, 0, -1, 0),)),
    (ForgeReport(1, 500), ((N, 0, "forge_report", "up", "up", -1, 0, -1, 0),)),
    (ForgeHeader(1, -4), ()),  # a frame is not complete
    (
        DeliverReports(1, ALL),
        (
            (M, 0, "reports", "body_partial", "body_partial", 500, 8, 8, 0),
            (G, 0, "ack", "wait_2", "no_waiters", 500, 0, -1, 0),
        ),
    ),
    (
        Cut(1, "slave"),
        (
            (N, 0, "cut", "up", "severed", -1, 0, -1, 0),
            (S, 1, "end_of_stream", "body_partial", "disconnected", 0, 0, -1, 0),
        ),
    ),
    (
        RestartSlave(1),
        (
            ("store", 2, "recover", "phantom", "phantom", 0, 0, -1, 0),
            (S, 1, "restart", "disconnected", "disconnected", 0, 0, -1, 0),
        ),
    ),
)


def rows_of(profile: Profile, run: tuple[tuple[Event, tuple[Row, ...]], ...]) -> Iterator[tuple[Event, list[Row]]]:
    world = ReferenceWorld(2, SETTINGS, profile, START_MS)
    for event, _ in run:
        rows = world.apply(event)
        yield (
            event,
            [
                (
                    *(row.actor, row.instance, row.event, row.from_state, row.to_state),
                    *(row.offset, row.nbytes),
                    row.fragment_len,
                    row.split_at,
                )
                for row in rows
            ],
        )


HARDENED_RUN: tuple[tuple[Event, tuple[Row, ...]], ...] = (
    (put(10), (("store", 0, "put", "no_files", "open", 102, 102, -1, 0),)),
    (put(798), (("store", 0, "put", "open", "open", 992, 890, -1, 0),)),  # as much as fits: a BLANK has 8 bytes
    (put(30), (("store", 0, "put_roll", "open", "open", 1122, 130, -1, 0),)),  # with the BLANK
    (
        Connect(0, ALL, ALL),
        (
            (M, 0, "accept", "await_report", "await_report", -1, 0, -1, 0),
            (S, 0, "connect", "disconnected", "connected", 0, 8, -1, 0),
        ),
    ),
    (
        DeliverReports(0, ALL),
        (
            (M, 0, "reports", "await_report", "await_report", 0, 8, 8, 0),
            (M, 0, "transfer", "await_report", "caught_up", 1122, 146, 146, 0),  # from the last file on: 122 and two headers
        ),
    ),
    (
        DeliverFrames(0, -34),
        (
            (S, 0, "frames", "connected", "connected", 1100, 112, 112, 0),
            ("store", 1, "append_data", "no_files", "open", 1100, 100, -1, 0),
        ),
    ),
    (
        DeliverFrames(0, -22),
        ((S, 0, "frames", "connected", "body_partial", 1100, 12, 12, 12),),
    ),
    (
        DeliverFrames(0, ALL),
        (
            (S, 0, "frames", "body_partial", "connected", 1122, 22, 22, 0),
            ("store", 1, "append_data", "open", "open", 1122, 22, -1, 0),
        ),
    ),
    (DeliverReports(0, 8), ((M, 0, "reports", "caught_up", "caught_up", 1100, 8, 8, 0),)),
    (
        put(40, wait=True),
        (
            ("store", 0, "put", "open", "open", 1254, 132, -1, 0),
            (G, 0, "put", "no_waiters", "waiting", 1100, 0, -1, 0),
            (M, 0, "transfer", "caught_up", "caught_up", 1254, 156, 156, 0),
        ),
    ),
    (
        RestartMaster(clean=False, lost=1),
        (
            ("store", 0, "recover", "open", "open", 1122, -132, -1, 0),
            (M, 0, "end_of_stream", "caught_up", "closed", 1254, 0, -1, 0),
            (S, 0, "end_of_stream", "connected", "disconnected", 1122, 0, -1, 0),
        ),
    ),
)


@pytest.mark.parametrize(("profile", "run"), [(CLASSIC, CLASSIC_RUN), (HARDENED, HARDENED_RUN)], ids=["classic", "hardened"])
def test_the_rows_are_those_that_were_counted(profile: Profile, run: tuple[tuple[Event, tuple[Row, ...]], ...]) -> None:
    for (event, expected), (_, found) in zip(run, rows_of(profile, run), strict=True):
        assert found == list(expected), event
