"""Durability after the loss of the master and its disk: the log of the best slave, the one with the greatest max offset.

The protocol level forgets a put that has ended. Here each state also remembers the units whose puts ended with PUT_OK, so that
properties can search for them; spec/tla/HADurable.tla is the same in TLA+. Otherwise the protocol level is unchanged.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rocketmq_ha.reference import protocol
from rocketmq_ha.reference.protocol import max_offset
from rocketmq_ha.reference.protocol_state import Scope, SlaveNode, State
from rocketmq_ha.reference.replace import replace


@dataclass(frozen=True, slots=True)
class AckedState(State):
    """A state, with the units acknowledged on the way to it."""

    acked: tuple[tuple[int, int], ...] = ()  # (next offset, unit) of each put that ended with PUT_OK, ascending


def remembering(state: State) -> AckedState:
    """The state without acknowledged units."""
    return AckedState(**{name: getattr(state, name) for name in State.__slots__})


def edges(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """The labelled edges of protocol.py, each with the units that it acknowledges."""
    assert isinstance(state, AckedState)
    for label, after in protocol.edges(state, scope):
        assert isinstance(after, AckedState)
        ended = set(state.waiting) - set(after.waiting) if label.startswith("DeliverReports") else set()
        new = {(o, state.log[o - 1]) for o in ended if o <= after.push2}
        yield label, replace(after, acked=tuple(sorted({*after.acked, *new})))


def best(state: State) -> list[SlaveNode]:
    """The slaves with the greatest max offset, by which an operator chooses."""
    most = max(map(max_offset, state.slave))
    return [node for node in state.slave if max_offset(node) == most]


def acked_is_in_the_best_log(state: State, _scope: Scope) -> bool:
    """Each of the best slaves has every unit whose put ended with PUT_OK. HA-G-18, HA-G-30."""
    assert isinstance(state, AckedState)
    return all(
        0 <= node.base < o <= max_offset(node) and node.units[o - 1 - node.base] == unit
        for node in best(state)
        for o, unit in state.acked
    )


def lost_is_beyond_the_best_log(state: State, _scope: Scope) -> bool:
    """The units of the master's log that the best slave lacks all lie beyond the slave's max offset."""
    return all(node.base <= 0 and node.units[: len(state.log)] == state.log[: max_offset(node)] for node in best(state))
