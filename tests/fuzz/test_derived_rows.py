"""The rows of consume queues and of the index, of runs written by hand, with their clauses.

A record without keys and tags has 92 bytes, and one with them a few more: a file of the log has room for two. A file of a queue
has two entries, and one of the index three keys.
"""

import pytest

from rocketmq_ha.fuzz.worlds.store_sides import ReferenceStore
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference.store_events import Clean, Close, Dispatch, Event, Flush, FlushDerived, Kill, Open, Put, Tick
from rocketmq_ha.reference.store_state import StoreSettings
from rocketmq_ha.spec.profile import HARDENED

SETTINGS = StoreSettings(240, 40, 3, 4, file_reserved_ms=2_000, delete_when=(4,))

# (instance, event, from_state, to_state, clauses)
Row = tuple[int, str, str, str, tuple[str, ...]]
Run = tuple[tuple[Event, tuple[Row, ...]], ...]

FIRST, SECOND, INDEX = 540104639, 1463183145, 0  # the queues 0 and 1, by the CRC-32 of T/0 and T/1, without its highest bit
APPEND, TAGS = ("HA-ST-29", "HA-ST-31"), ("HA-ST-32",)
OF_INDEX = ("HA-ST-39", "HA-ST-40", "HA-ST-41", "HA-ST-42")
FLUSHED, EXPIRED = ("HA-ST-24",), ("HA-ST-71",)
CRASHED = ("HA-ST-38", "HA-ST-73", "HA-ST-82")


def put(queue: int, properties: str = "") -> Put:
    return Put("T", b"", properties, queue)


def quiet(*happens: Event) -> Run:
    """Events that move no queue and not the index."""
    return tuple((event, ()) for event in happens)


DELETE = Clean(4, 10, -1)

QUEUES: Run = (
    *quiet(Open(), put(1), put(0), put(0), put(0, "TAGS\1a")),
    (Dispatch(), ((FIRST, "append", "none", "unsynced", APPEND + TAGS), (SECOND, "append", "none", "unsynced", APPEND))),
    (
        FlushDerived(),
        ((FIRST, "flush_derived", "unsynced", "synced", FLUSHED), (SECOND, "flush_derived", "unsynced", "synced", FLUSHED)),
    ),
    *quiet(put(0), put(0)),
    (Dispatch(), ((FIRST, "roll", "synced", "unsynced", APPEND),)),
    *quiet(Flush(0)),
    (FlushDerived(), ((FIRST, "flush_derived", "unsynced", "synced", FLUSHED),)),
    *quiet(Tick(4_000)),
    (DELETE, ((FIRST, "expire", "synced", "synced", EXPIRED), (SECOND, "expire", "synced", "expired", EXPIRED))),
    (Kill(), ((FIRST, "kill", "synced", "left", ()), (SECOND, "kill", "expired", "left", ()))),
    (
        Open(),
        (
            (FIRST, "kept", "left", "unsynced", (*CRASHED, "HA-ST-97")),  # its last entries are written anew
            (SECOND, "kept", "left", "expired", (*CRASHED, "HA-ST-97")),
        ),
    ),
    (Close(), ((FIRST, "close", "unsynced", "left", ()), (SECOND, "close", "expired", "left", ()))),
    (Open(), ((FIRST, "kept", "left", "synced", ("HA-ST-38",)), (SECOND, "kept", "left", "expired", ("HA-ST-38",)))),
)


# Messages expire before they are dispatched: the next one has the number 1, and later 5.
FILLED: Run = (
    *quiet(Open(), put(1), put(0), put(0), put(0), put(1), Tick(4_000), DELETE),
    (Dispatch(), ((SECOND, "fill", "none", "unsynced", (*APPEND, "HA-ST-33")),)),
    *quiet(put(1), put(1), put(1), put(1), Tick(4_000)),
    (DELETE, ((SECOND, "expire", "unsynced", "expired", EXPIRED),)),
    (Dispatch(), ((SECOND, "fill", "expired", "unsynced", (*APPEND, "HA-ST-33", "HA-ST-75")),)),
)

# Nothing of the queues is there, so no entry of an expired message is kept (HA-ST-97): fillers stand for those.
ANEW = (*CRASHED, "HA-ST-33")
MADE: Run = (
    *quiet(Open(), put(1), put(0), put(0), put(0), put(1), put(0), Tick(4_000), DELETE, Kill()),
    (Open(), ((FIRST, "made", "none", "unsynced", ANEW), (SECOND, "made", "none", "unsynced", ANEW))),
)

OF_THE_INDEX: Run = (
    *quiet(Open(), put(0, "KEYS\1a b")),
    (Dispatch(), ((INDEX, "append", "none", "unsynced", OF_INDEX),)),
    (FlushDerived(), ((INDEX, "flush_derived", "unsynced", "synced", FLUSHED),)),
    *quiet(put(0, "KEYS\1c")),
    (Dispatch(), ((INDEX, "append", "synced", "full_unsynced", OF_INDEX),)),
    *quiet(put(0, "KEYS\1d")),
    (Dispatch(), ((INDEX, "roll", "full_unsynced", "unsynced", (*OF_INDEX, "HA-ST-83", "HA-ST-84", "HA-ST-88")),)),
    *quiet(put(0), Flush(0), Dispatch()),
    (FlushDerived(), ((INDEX, "flush_derived", "unsynced", "synced", FLUSHED),)),
    *quiet(Tick(4_000)),
    (DELETE, ((INDEX, "expire", "synced", "synced", EXPIRED),)),
    (Kill(), ((INDEX, "kill", "synced", "left", ()),)),
    (Open(), ((INDEX, "kept", "left", "unsynced", ("HA-ST-45", "HA-ST-73")),)),
    (Close(), ((INDEX, "close", "unsynced", "left", ()),)),
    (Open(), ((INDEX, "kept", "left", "synced", ()),)),
)


@pytest.mark.parametrize(
    ("actor", "run"),
    [
        pytest.param("consume_queue", QUEUES, id="queues"),
        pytest.param("consume_queue", FILLED, id="places between"),
        pytest.param("consume_queue", MADE, id="a queue that is made again"),
        pytest.param("index", OF_THE_INDEX, id="index"),
    ],
)
def test_the_rows_and_their_clauses_are_those_of_the_run(actor: str, run: Run) -> None:
    store = ReferenceStore(SETTINGS, HARDENED, START_MS)
    for event, expected in run:
        rows = [row for row in store.apply(event) if row.actor == actor]
        found = [(row.instance, row.event, row.from_state, row.to_state, tuple(row.clauses)) for row in rows]
        assert found == list(expected), event
