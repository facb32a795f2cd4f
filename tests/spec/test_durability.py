"""What is left when the master and its disk are lost: states made to hold or to break each property of durability."""

from dataclasses import replace

import pytest

from rocketmq_ha.reference.protocol_durability import (
    AckedState,
    acked_is_in_the_best_log,
    best,
    edges,
    lost_is_beyond_the_best_log,
    remembering,
)
from rocketmq_ha.reference.protocol_state import Connection, Scope, SlaveNode, State, Used, initial

SCOPE = Scope()
NOBODY = SlaveNode()


def state(log: bytes, *slaves: SlaveNode, acked: tuple[tuple[int, int], ...] = ()) -> AckedState:
    return replace(remembering(initial(SCOPE)), log=log, slave=slaves, acked=acked)


@pytest.mark.parametrize(
    ("slaves", "acked", "holds"),
    [
        pytest.param((NOBODY,), (), True, id="nothing is acknowledged"),
        pytest.param((NOBODY,), ((1, 5),), False, id="no files"),
        pytest.param((SlaveNode(0, b"\5\6"),), ((1, 5), (2, 6)), True, id="both units"),
        pytest.param((SlaveNode(0, b"\5\6"),), ((2, 5),), False, id="another unit at that offset"),
        pytest.param((SlaveNode(0, b"\5\6"),), ((1, 6),), False, id="another unit at the first offset"),
        pytest.param((SlaveNode(0, b"\5\6"),), ((3, 7),), False, id="a unit beyond its end"),
        pytest.param((SlaveNode(2, b"\7\x08"),), ((3, 7), (4, 8)), True, id="it begins behind a file"),
        pytest.param((SlaveNode(2, b"\7\x08"),), ((2, 8),), False, id="a unit before its first file"),
        pytest.param((SlaveNode(0, b"\5"), SlaveNode(0, b"\5\6")), ((2, 6),), True, id="the longer of two has it"),
        pytest.param((SlaveNode(0, b"\5\6"), SlaveNode(0, b"\5\7\7")), ((2, 6),), False, id="the longer of two lacks it"),
        pytest.param((SlaveNode(0, b"\5\6"), SlaveNode(0, b"\5\7")), ((2, 6),), False, id="one of two that are as long"),
        pytest.param((SlaveNode(2, b"\7"), SlaveNode(0, b"\5\6")), ((3, 7),), True, id="the length counts from offset 0"),
    ],
)
def test_what_was_acknowledged_is_in_the_best_log(
    slaves: tuple[SlaveNode, ...], acked: tuple[tuple[int, int], ...], holds: bool
) -> None:
    """HA-G-18, HA-G-30."""
    assert acked_is_in_the_best_log(state(b"\5\6\7", *slaves, acked=acked), SCOPE) is holds


@pytest.mark.parametrize(
    ("slaves", "holds"),
    [
        pytest.param((NOBODY,), True, id="no files: all is beyond"),
        pytest.param((SlaveNode(0, b"\5\6"),), True, id="the beginning of the master's log"),
        pytest.param((SlaveNode(0, b"\5\6\7"),), True, id="all of it"),
        pytest.param((SlaveNode(0, b"\5\6\7\x08"),), True, id="more than the master has"),
        pytest.param((SlaveNode(0, b"\5\7"),), False, id="another unit"),
        pytest.param((SlaveNode(2, b"\7"),), False, id="the first file is missing"),
        pytest.param((SlaveNode(2, b"\5\6\7"),), False, id="the beginning of the log at another offset"),
        pytest.param((SlaveNode(0, b"\7"), SlaveNode(0, b"\5\6")), True, id="the shorter of two differs"),
        pytest.param((SlaveNode(0, b"\5\7"), SlaveNode(0, b"\5\6")), False, id="one of two that are as long differs"),
    ],
)
def test_what_is_lost_is_beyond_the_best_log(slaves: tuple[SlaveNode, ...], holds: bool) -> None:
    assert lost_is_beyond_the_best_log(state(b"\5\6\7", *slaves), SCOPE) is holds


def test_the_best_slaves_are_all_that_reach_farthest() -> None:
    nodes = SlaveNode(0, b"\5"), SlaveNode(0, b"\5\6\7"), SlaveNode(2, b"\7"), NOBODY
    assert best(state(b"", *nodes)) == [nodes[1], nodes[2]]
    assert best(state(b"", NOBODY, NOBODY)) == [NOBODY, NOBODY]


@pytest.mark.parametrize(
    ("report", "waiting", "acked"),
    [(2, (2,), ((1, 5), (2, 6))), (2, (2, 3), ((1, 5), (2, 6))), (3, (2, 3), ((1, 5), (2, 6), (3, 7))), (1, (2, 3), ((1, 5),))],
)
def test_a_report_acknowledges_the_units_of_the_puts_that_it_ends(
    report: int, waiting: tuple[int, ...], acked: tuple[tuple[int, int], ...]
) -> None:
    """Those that were acknowledged before stay."""
    conn = Connection(req=0, ack=1, start=0, next=3, reports=(report,))
    node = SlaveNode(0, b"\5\6\7"[:report], 1, report)
    before = AckedState(b"\5\6\7", 0, 0, 1, 0, waiting, ((conn, None),), (node,), Used(puts=3), ((1, 5),))
    found: list[State] = [after for label, after in edges(before, SCOPE) if label.startswith("DeliverReports")]
    assert found
    assert {after.acked for after in found if isinstance(after, AckedState)} == {acked}


def test_no_other_step_acknowledges() -> None:
    conn = Connection(req=0, ack=1, start=0, next=3)
    before = AckedState(b"\5\6\7", 0, 0, 3, 0, (2, 3), ((conn, None),), (SlaveNode(0, b"\5", 1, 1),), Used(), ((1, 5),))
    scope = Scope(max_puts=1, max_cuts=1, max_master_crashes=1, max_slave_crashes=1)
    found = dict(edges(before, scope))
    assert len(found) > 3
    assert {after.acked for after in found.values() if isinstance(after, AckedState)} == {((1, 5),)}
