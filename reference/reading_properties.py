"""What must hold at the reading level: of every state, and of every edge. One predicate a property; spec/reading.md names them.

Hardened keeps all of them but those of EXCEPTIONS. Classic breaks what CATALOGUE says, by the quirks of spec/violations.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.reading import answers, both_run, broker_of_id, common, knows, of, slave_of, take_offsets
from rocketmq_ha.reference.reading_state import NONE, Consumer, Scope, State
from rocketmq_ha.reference.replace import replace

# --- Of a state --------------------------------------------------------------------------------------------------------------


def committed_is_delivered(state: State, _scope: Scope) -> bool:
    """No broker has an offset in front of which its log has a message that was not delivered."""
    return all(state.delivered.issuperset(broker.log[: max(0, broker.offset)]) for broker in state.broker)


def nothing_is_skipped(state: State, _scope: Scope) -> bool:
    """What both logs have was delivered, is held, or can still come: to this consumer, or to one that begins anew."""
    offsets = [broker.offset for broker in state.broker if broker.offset != NONE]
    if not offsets:
        return True
    passed = of(state, 1).log[: min(common(state), state.consumer.at, *offsets)]
    return state.delivered.issuperset(set(passed) - held(state.consumer))


def held(consumer: Consumer) -> set[int]:
    """The messages that a consumer has pulled and not yet consumed."""
    return {message for _, message in consumer.held}


def topic_is_known(state: State, _scope: Scope) -> bool:
    """A master that runs has the topic of its log in its table. HA-BT-18."""
    master = of(state, state.master)
    return state.master not in state.up or not master.log or master.topic


def topic_is_read(state: State, scope: Scope) -> bool:
    """A broker that runs answers pulls of the topic of its log."""
    return all(not of(state, b).log or knows(state, b, scope) for b in state.up)


def done_is_not_forgotten(state: State, _scope: Scope) -> bool:
    """What is done, and still in a log, is in front of the offset of a broker that has it."""
    known = {message for broker in state.broker for message in broker.log[: max(0, broker.offset)]}
    return known.issuperset(state.done.intersection(of(state, 1).log + of(state, 2).log))


def master_is_told(state: State, scope: Scope) -> bool:
    """Once the slave has nothing more to tell or to take, the master's offset is behind all that is done. HA-MD-33."""
    if not both_run(state) or take_offsets(state, scope) not in (None, state):
        return True
    master = of(state, state.master)
    return set(master.log[: max(0, master.offset)]).issuperset(state.done.intersection(master.log))


def kept_is_delivered(state: State, _scope: Scope) -> bool:
    """What a slave has beyond its master's offset is of messages that were delivered. HA-MD-32."""
    if not both_run(state):
        return True
    master, slave = of(state, state.master), of(state, slave_of(state))
    return state.delivered.issuperset(slave.log[max(0, master.offset) : max(0, slave.offset)])


def not_spinning(state: State, scope: Scope) -> bool:
    """No answer that comes at once leaves the consumer as it is, so that it asks again at once. HA-R-57."""
    b = broker_of_id(state, state.consumer.node)
    if b is None or not knows(state, b, scope) or is_held(state, b, scope):
        return True
    return all(after.consumer != state.consumer for after in answers(state, b, scope))


def is_held(state: State, b: int, scope: Scope) -> bool:
    """Whether a broker holds the consumer's pull. HA-R-29, HA-R-57."""
    beyond = state.consumer.at - len(of(state, b).log)
    return beyond == 0 or (beyond > 0 and scope.holds and b != state.master and state.master not in state.up)


# --- Of an edge: (before, label, after, scope) -------------------------------------------------------------------------------


def pulled_is_kept(before: State, label: str, after: State, _scope: Scope) -> bool:
    """An answer takes nothing from what the consumer holds, and the broker that answers has. HA-C-14."""
    b = broker_of_id(before, before.consumer.node)
    if label != "Pull" or b is None:
        return True
    gone = set(before.consumer.held) - set(after.consumer.held)
    return not any(message in of(before, b).log for _, message in gone)


def taken_offset_is_no_less(before: State, label: str, after: State, _scope: Scope) -> bool:
    """The slave's offset becomes less only where the master's has: less than the slave was told. HA-MD-32."""
    slave = slave_of(before)
    is_less = label == "TakeOffsets" and of(after, slave).offset < of(before, slave).offset
    return not is_less or of(after, after.master).offset < before.told


def told_is_delivered(before: State, label: str, after: State, _scope: Scope) -> bool:
    """What a master takes from its slave is of messages that were delivered. HA-MD-33."""
    master, then = of(before, before.master), of(after, after.master)
    return label != "TakeOffsets" or before.delivered.issuperset(master.log[max(0, master.offset) : max(0, then.offset)])


def done_is_not_delivered_again(before: State, label: str, _after: State, _scope: Scope) -> bool:
    """What is done does not come again."""
    return label != "Deliver" or before.consumer.held[0][1] not in before.done


StateProperty = Callable[[State, Scope], bool]
EdgeProperty = Callable[[State, str, State, Scope], bool]

OF_STATES: Final[tuple[StateProperty, ...]] = (
    committed_is_delivered,
    nothing_is_skipped,
    topic_is_known,
    topic_is_read,
    done_is_not_forgotten,
    master_is_told,
    kept_is_delivered,
    not_spinning,
)
OF_EDGES: Final[tuple[EdgeProperty, ...]] = (
    pulled_is_kept,
    taken_offset_is_no_less,
    told_is_delivered,
    done_is_not_delivered_again,
)


# --- What each profile keeps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    """A quirk of classic that this level shows.

    kept: why hardened shows it too; "" if it does not.
    """

    quirk: int
    breaks: StateProperty | EdgeProperty
    scope: Scope  # a least one that shows it; classic
    description: str
    kept: str = ""


_ONE: Final = Scope(max_puts=1, max_losses=1)
_TWO: Final = replace(_ONE, max_puts=2)

CATALOGUE: Final[tuple[Violation, ...]] = (
    Violation(
        43,
        done_is_not_forgotten,
        _TWO,
        "the slave takes the offset that the master had before it was lost, over the one that was committed to the slave since",
    ),
    Violation(
        44,
        topic_is_known,
        replace(_ONE, max_promotions=1),
        "the promoted slave has the messages, and does not know their topic",
    ),
    Violation(
        45,
        not_spinning,
        _ONE,
        "a consumer that is ahead of the slave is answered at once, with nothing, and asks again",
    ),
    Violation(
        46,
        pulled_is_kept,
        replace(_TWO, diverges=True),
        "a consumer that is ahead of the new master drops what it has pulled and not yet consumed, and commits behind it",
    ),
    Violation(
        47,
        nothing_is_skipped,
        replace(_ONE, max_puts=2, max_promotions=1, max_restarts=1, from_last=True),
        "a group whose offset the promoted slave was not told begins at the end",
        kept="a slave is told within half a second (HA-MD-27); what was committed last before the loss it may lack",
    ),
    Violation(
        48,
        nothing_is_skipped,
        replace(_TWO, diverges=True),
        "the messages that take the places of lost ones are behind a consumer that has read the lost ones",
        kept="no number on the wire says in which history an offset was",
    ),
)
