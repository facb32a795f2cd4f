"""The world of remoting, by hand: rows and outputs of a run, what both sides observe, and each invariant, broken.

A binary frame without text or body has 29 bytes, a request of the server's, which is JSON, 107.
"""

from dataclasses import replace
from typing import Any

import pytest

from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import scratch_directory
from rocketmq_ha.fuzz.worlds.remoting_schedule import RemotingSchedule
from rocketmq_ha.fuzz.worlds.remoting_sides import ImplementationRemoting, ObservedConnection, ReferenceRemoting
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.remoting_clients import Remoting, Settings
from rocketmq_ha.reference.remoting_events import (
    AT_ONCE,
    LATER,
    Connect,
    Event,
    Frame,
    Invoke,
    Read,
    Reply,
    Send,
    Serve,
    Take,
    Tick,
)
from rocketmq_ha.reference.remoting_server import Connection
from rocketmq_ha.spec.profile import HARDENED

ONEWAY = 2
SETTINGS = Settings(clients=2, pending=2, pending_in_all=2, unsent=60, unfinished=5_000)

# (actor, instance, event, from_state, to_state, nbytes, fragment_len, split_at, clauses)
Row = tuple[str, int, str, str, str, int, int, int, tuple[str, ...]]
Shown = tuple[object, ...]

C, T, R, Q = "remoting_connection", "remoting_output", "remoting_request", "remoting_question"
AS_IT_WAS_ASKED = ("HA-RM-8", "HA-MD-20", "HA-RM-6")


PYTHON_409, JAVA_0 = b"\3\1\x99", b"\0\0\0"  # language and version of our answers, and of the requests of the world's clients


def binary(code: int, opaque: int, flag: int = 0, body: bytes = b"", sender: bytes = PYTHON_409) -> bytes:
    """A binary frame without text (HA-RM-6)."""
    header = code.to_bytes(2) + sender + opaque.to_bytes(4) + flag.to_bytes(4) + bytes(8)
    return (25 + len(body)).to_bytes(4) + b"\1\0\0\x15" + header + body


def asks(code: int, opaque: int, flag: int = 0, body_size: int = 0) -> Frame:
    return Frame(code, opaque, flag, is_binary=True, body_size=body_size)


RUN: tuple[tuple[Event, tuple[Row, ...], tuple[Shown, ...]], ...] = (
    (Connect(0), ((C, 0, "connect", "absent", "resting", 0, -1, 0, ()),), ()),
    (Connect(1), ((C, 1, "connect", "absent", "resting", 0, -1, 0, ()),), ()),
    (Send(0, (asks(LATER, 5, ONEWAY, 20),)), (), ()),
    (Read(0, 7), ((C, 0, "read", "resting", "within", 7, 7, 7, ("HA-MD-18",)),), ()),
    (
        Read(0, 100),
        (
            (R, 0, "read", "arrived", "oneway_held", 0, -1, 0, ()),
            (C, 0, "read", "within", "resting", 42, 100, 0, ("HA-MD-18",)),
        ),
        (("given", 0, LATER, 5, ONEWAY, b"x" * 20),),
    ),
    (Serve(0), ((R, 0, "serve", "oneway_held", "untold", 0, -1, 0, ("HA-RM-11",)),), ()),
    (Send(0, tuple(asks(AT_ONCE, opaque) for opaque in (1, 2, 3))), (), ()),
    (
        Read(0, 100),
        (
            *((R, number, "read", "arrived", "answered", 0, -1, 0, AS_IT_WAS_ASKED) for number in (1, 2, 3)),
            (C, 0, "read", "resting", "untaken", 87, 100, 0, ("HA-MD-18", "HA-RM-24")),
            (T, 0, "read", "empty", "over", 87, -1, 0, ("HA-RM-24",)),
        ),
        tuple(("answered", 0, binary(0, opaque, 1)) for opaque in (1, 2, 3)),
    ),
    (Invoke(0, 500), ((Q, 0, "invoke", "new", "unsent", 0, -1, 0, ("HA-RM-24",)),), (("told", 0, "unsent", b""),)),
    (Tick(1_000), ((T, 0, "tick", "over", "over_stalled", 0, -1, 0, ("HA-RM-24",)),), ()),
    (
        Take(0, 30),
        (
            (C, 0, "take", "untaken", "resting", 0, -1, 0, ()),
            (T, 0, "take", "over_stalled", "untaken", 30, -1, 0, ()),
        ),
        (),
    ),
    (
        Invoke(0, 500),
        (
            (Q, 1, "invoke", "new", "waiting", 0, -1, 0, ("HA-MD-20",)),
            (C, 0, "invoke", "resting", "untaken", 0, -1, 0, ("HA-RM-24",)),
            (T, 0, "invoke", "untaken", "over", 107, -1, 0, ("HA-RM-24",)),
        ),
        (),
    ),
    (
        Take(0, 2_000),
        (
            (C, 0, "take", "untaken", "resting", 0, -1, 0, ()),
            (T, 0, "take", "over", "empty", 164, -1, 0, ()),
        ),
        (),
    ),
    (Reply(0, 0, 3), (), ()),
    (
        Read(0, 2_000),
        (
            (Q, 1, "read", "waiting", "answered", 0, -1, 0, ("HA-RM-12",)),
            (C, 0, "read", "resting", "resting", 32, 2_000, 0, ("HA-MD-18",)),
        ),
        (("told", 0, "answered", b"xxx"),),
    ),
    (Reply(0, 0), (), ()),
    (
        Read(0, 2_000),
        (
            (Q, 1, "read", "answered", "answered", 0, -1, 0, ("HA-RM-15",)),
            (C, 0, "read", "resting", "resting", 29, 2_000, 0, ("HA-MD-18", "HA-RM-15")),
        ),
        (),
    ),
    (Send(1, (asks(LATER, 6), asks(LATER, 7))), (), ()),
    (
        Read(1, 58),
        (
            (R, 4, "read", "arrived", "pending", 0, -1, 0, ()),
            (R, 5, "read", "arrived", "pending", 0, -1, 0, ()),
            (C, 0, "others", "resting", "all_full", 0, -1, 0, ("HA-RM-23",)),
            (C, 1, "read", "resting", "full", 58, 58, 0, ("HA-MD-18", "HA-RM-23")),
        ),
        (("given", 1, LATER, 6, 0, b""), ("given", 1, LATER, 7, 0, b"")),
    ),
    (
        Serve(1, 17, 5),
        (
            (R, 5, "serve", "pending", "answered", 0, -1, 0, ("HA-RM-8", "HA-RM-12", "HA-MD-20")),
            (C, 0, "others", "all_full", "resting", 0, -1, 0, ()),
            (C, 1, "serve", "full", "asking", 0, -1, 0, ()),
            (T, 1, "serve", "empty", "untaken", 34, -1, 0, ()),
        ),
        (("answered", 1, binary(17, 7, 1, b"x" * 5)),),
    ),
    (
        Invoke(1, 500),
        (
            (Q, 2, "invoke", "new", "waiting", 0, -1, 0, ("HA-MD-20",)),
            (C, 1, "invoke", "asking", "untaken", 0, -1, 0, ("HA-RM-24",)),
            (T, 1, "invoke", "untaken", "over", 107, -1, 0, ("HA-RM-24",)),
        ),
        (),
    ),
    (Tick(499), ((T, 1, "tick", "over", "over_stalled", 0, -1, 0, ("HA-RM-24",)),), ()),
    (Tick(1), ((Q, 2, "tick", "waiting", "late", 0, -1, 0, ("HA-RM-16",)),), (("told", 1, "late", b""),)),
    (
        Tick(19_999),
        (
            (R, 4, "tick", "pending", "left", 0, -1, 0, ()),
            (C, 1, "tick", "untaken", "closed_for_stall", 0, -1, 0, ("HA-RM-24",)),
            (T, 1, "tick", "over_stalled", "lost", 141, -1, 0, ()),
        ),
        (("closed", 1, "stall", 141),),
    ),
    (Serve(0), ((R, 4, "serve", "left", "untold", 0, -1, 0, ()),), ()),
    (Send(0, (asks(LATER, 8), asks(LATER, 9))), (), ()),
    (
        Read(0, 58),
        (
            (R, 6, "read", "arrived", "pending", 0, -1, 0, ()),
            (R, 7, "read", "arrived", "pending", 0, -1, 0, ()),
            (C, 0, "read", "resting", "full", 58, 58, 0, ("HA-MD-18", "HA-RM-23")),
        ),
        (("given", 0, LATER, 8, 0, b""), ("given", 0, LATER, 9, 0, b"")),
    ),
    # A client that comes now is not read from, and neither is closed, however long that lasts.
    (
        Connect(1),
        (
            (C, 1, "connect", "closed_for_stall", "all_full", 0, -1, 0, ("HA-RM-23",)),
            (T, 1, "connect", "lost", "empty", 0, -1, 0, ()),
        ),
        (),
    ),
    (
        Tick(120_000),
        (
            (C, 0, "tick", "full", "full", 0, -1, 0, ("HA-RM-29", "HA-RM-23")),
            (C, 1, "tick", "all_full", "all_full", 0, -1, 0, ("HA-RM-29", "HA-RM-23")),
        ),
        (),
    ),
)


def test_the_rows_and_outputs_are_those_that_were_counted() -> None:
    reference, implementation = ReferenceRemoting(SETTINGS, START_MS), ImplementationRemoting(SETTINGS, START_MS)
    for event, rows, outputs in RUN:
        found = reference.apply(event)
        implementation.apply(event)
        assert [
            (*(row.actor, row.instance, row.event, row.from_state, row.to_state, row.nbytes, row.fragment_len), row.split_at)
            for row in found
        ] == [row[:8] for row in rows], event
        assert [tuple(row.clauses) for row in found] == [row[8] for row in rows], event
        assert reference.observe().outputs == implementation.observe().outputs == outputs, event


# What is observed once two clients have done this: of one a frame has begun; of the other frames wait behind those for which
# there is room, and behind them comes what is no frame.
EVENTS: tuple[Event, ...] = (
    *(Connect(0), Connect(1)),
    *(Send(0, (asks(AT_ONCE, 4, body_size=20),)), Read(0, 7)),
    Invoke(0, 500),
    Tick(300, looks=False),
    Send(1, (asks(LATER, 9), asks(LATER, 8), asks(AT_ONCE, 3), Frame(0, 0, form="short"))),
    Read(1, 2_000),
)
OBSERVED: tuple[dict[str, object], ...] = (
    {
        "link_id": 0,
        "pending": (),
        "frames": (),
        "wanted": 42,
        "is_broken": False,
        "may_take": False,  # the requests of the other one take all room
        "active_ms": START_MS,
        "asked": 1,
    },
    {
        "link_id": 1,
        "pending": (8, 9),
        "frames": (binary(AT_ONCE, 3, sender=JAVA_0)[4:],),
        "wanted": 0,
        "is_broken": True,
        "out": b"",
        "may_take": False,
        "active_ms": START_MS + 300,
        "asked": 0,
    },
)


@pytest.mark.parametrize("kind", [ReferenceRemoting, ImplementationRemoting], ids=["model", "implementation"])
def test_each_side_observes_what_is_there(kind: Any) -> None:
    side = kind(SETTINGS, START_MS)
    for event in EVENTS:
        side.apply(event)
    found = side.observe()
    assert (found.pending, found.unfinished, len(found.connections)) == (2, 7, 2)
    for actual, expected in zip(found.connections, OBSERVED, strict=True):
        assert {name: getattr(actual, name) for name in expected} == expected
    assert len(found.connections[0].out) == 107
    assert {*OBSERVED[0], "out"} == OBSERVED[1].keys() == ObservedConnection.__dataclass_fields__.keys()


def test_each_millisecond_of_a_tick_passes_in_the_log_too() -> None:
    """Also where nobody looks: `now_ms` of a row is the time at which it happened."""
    with scratch_directory() as directory:
        both = lockstep.of_schedule(RemotingSchedule(0, HARDENED, SETTINGS, ()), directory)
        outcomes = [both.apply(event) for event in (Connect(0), Tick(20), Tick(7, looks=False), Read(0, 1))]
        both.close()
    assert [outcome.now_ms - START_MS for outcome in outcomes] == [0, 20, 27, 27]


# --- Invariants ------------------------------------------------------------------------------------------------------


def with_connection(state: Remoting, client: int = 0, **changes: Any) -> Remoting:
    connections = state.server.connections
    conn = replace(connections.get(client, Connection()), **changes)
    return replace(state, server=replace(state.server, connections=connections | {client: conn}))


def held_and_asked() -> Remoting:
    """A handler has a request of client 0, and the server has asked it."""
    reference = ReferenceRemoting(SETTINGS, START_MS)
    for event in (Connect(0), Send(0, (asks(LATER, 9),)), Read(0, 29), Invoke(0, 500), Take(0, 2_000)):
        reference.apply(event)
    assert reference.broken() == ()
    return reference.state


@pytest.mark.parametrize(
    ("name", "limits", "changes"),
    [
        ("pending_requests_are_bounded", {"pending": 0}, {}),
        ("pending_requests_are_bounded", {"pending_in_all": 0}, {}),
        ("unfinished_frames_are_bounded", {"unfinished": 3}, {"left": b"1234"}),
        ("a_handler_has_each_pending_request", {}, {"pending": ()}),
        ("whoever_asks_is_told", {}, {"waiting": ()}),
        ("what_may_be_served_is_served", {}, {"frames": (b"",)}),
    ],
)
def test_an_invariant_that_does_not_hold_is_named(name: str, limits: dict[str, int], changes: dict[str, Any]) -> None:
    reference = ReferenceRemoting(SETTINGS, START_MS)
    state = with_connection(held_and_asked(), **changes)
    reference.state = replace(state, server=replace(state.server, limits=replace(state.server.limits, **limits)))
    assert reference.broken() == (name,)
