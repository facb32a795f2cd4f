"""The premises of the properties of the reading level (spec/tla/HAReading.tla)."""

from typing import Final

from formal.premise import EdgePremise, Premise, StatePremise
from rocketmq_ha.reference.reading import both_run, broker_of_id, common, of, slave_of, take_offsets
from rocketmq_ha.reference.reading_state import NONE, Scope, State

# --- Possible in a scope -----------------------------------------------------------------------------------------------------


def can_promote(scope: Scope) -> bool:
    return scope.max_promotions > 0


def can_lose_what_was_read(scope: Scope) -> bool:
    return scope.diverges


def can_restart(scope: Scope) -> bool:
    return scope.max_restarts > 0


def tells_offsets(scope: Scope) -> bool:
    return scope.tells_master


def mends_offsets(scope: Scope) -> bool:
    """Return True if a slave compares offsets, and a master can go back: only a consumer that begins anew commits less."""
    return scope.keeps_greatest and scope.max_restarts > 0


# --- Premises on states -------------------------------------------------------------------------------------------------------


def message_is_committed(state: State, _scope: Scope) -> bool:
    """A broker has an offset behind a message of its log."""
    return any(broker.log and broker.offset > 0 for broker in state.broker)


def message_of_both_logs_is_passed(state: State, _scope: Scope) -> bool:
    """Both logs have a message in front of the consumer and of all offsets that brokers have."""
    offsets = [broker.offset for broker in state.broker if broker.offset != NONE]
    return bool(offsets) and min(common(state), state.consumer.at, *offsets) > 0


def consumer_has_read_what_is_lost(state: State, _scope: Scope) -> bool:
    """A message was delivered, or is held, that no log has."""
    logs = {message for broker in state.broker for message in broker.log}
    read = state.delivered | {message for _, message in state.consumer.held}
    return bool(read - logs)


def master_has_messages(state: State, _scope: Scope) -> bool:
    return state.master in state.up and bool(of(state, state.master).log)


def promoted_master_has_messages(state: State, scope: Scope) -> bool:
    return state.used.promotions > 0 and master_has_messages(state, scope)


def slave_lacks_the_topic_of_its_log(state: State, _scope: Scope) -> bool:
    slave = of(state, slave_of(state))
    return slave_of(state) in state.up and bool(slave.log) and not slave.topic


def message_is_done(state: State, _scope: Scope) -> bool:
    return bool(state.done)


def message_is_done_at_the_slave_alone(state: State, _scope: Scope) -> bool:
    """Both run, and the slave has an offset behind a message that is done; the master has it behind none, or before it."""
    master, slave = of(state, state.master), of(state, slave_of(state))
    done = [slave.log.index(message) for message in state.done if message in slave.log]
    return len(state.up) > 1 and any(master.offset <= offset < slave.offset for offset in done)


def message_is_done_and_nothing_to_tell(state: State, scope: Scope) -> bool:
    return both_run(state) and bool(state.done) and take_offsets(state, scope) in (None, state)


def slave_is_behind_a_message_that_its_master_is_not(state: State, _scope: Scope) -> bool:
    master, slave = of(state, state.master), of(state, slave_of(state))
    return both_run(state) and bool(slave.log[max(0, master.offset) : max(0, slave.offset)])


def consumer_is_ahead_of_the_slave_that_it_asks(state: State, _scope: Scope) -> bool:
    b = broker_of_id(state, state.consumer.node)
    return b == slave_of(state) and state.consumer.at > len(of(state, b).log)


# --- Premises on edges --------------------------------------------------------------------------------------------------------


def consumer_is_corrected_while_it_holds(before: State, _after: State, _scope: Scope) -> bool:
    """A pull from beyond the end of the master's log, and the consumer holds a message of that log."""
    log = of(before, before.master).log
    is_beyond = broker_of_id(before, before.consumer.node) == before.master and before.consumer.at > len(log)
    return is_beyond and any(message in log for _, message in before.consumer.held)


def slave_is_ahead_of_the_offset_that_it_takes(before: State, _after: State, _scope: Scope) -> bool:
    return NONE < of(before, before.master).offset < of(before, slave_of(before)).offset


def master_takes_the_slaves_offset(before: State, after: State, _scope: Scope) -> bool:
    return of(after, after.master).offset > of(before, before.master).offset


def master_has_gone_back(before: State, _after: State, _scope: Scope) -> bool:
    """The master's offset is less than the slave was told."""
    return NONE < of(before, before.master).offset < before.told


def consumer_has_begun_anew(before: State, _after: State, _scope: Scope) -> bool:
    return before.used.restarts > 0


def delivered_message_comes_again(before: State, _after: State, _scope: Scope) -> bool:
    return before.consumer.held[0][1] in before.delivered


# --- The premises of each property --------------------------------------------------------------------------------------------

_READ_AND_LOST: Final = StatePremise(consumer_has_read_what_is_lost, "with a read message lost", can_lose_what_was_read)

PREMISES: Final[dict[str, tuple[Premise, ...]]] = {
    "CommittedIsDelivered": (StatePremise(message_is_committed), _READ_AND_LOST),
    "NothingIsSkipped": (StatePremise(message_of_both_logs_is_passed), _READ_AND_LOST),
    "TopicIsKnown": (
        StatePremise(master_has_messages),
        StatePremise(promoted_master_has_messages, "after a promotion", can_promote),
    ),
    "TopicIsRead": (StatePremise(slave_lacks_the_topic_of_its_log),),
    "DoneIsNotForgotten": (
        StatePremise(message_is_done),
        StatePremise(message_is_done_at_the_slave_alone, "at the slave alone"),
    ),
    "MasterIsTold": (StatePremise(message_is_done_and_nothing_to_tell),),
    "KeptIsDelivered": (StatePremise(slave_is_behind_a_message_that_its_master_is_not),),
    "NotSpinning": (StatePremise(consumer_is_ahead_of_the_slave_that_it_asks),),
    "PulledIsKept": (EdgePremise(consumer_is_corrected_while_it_holds, ("Pull",)),),
    "TakenOffsetIsNoLess": (
        EdgePremise(slave_is_ahead_of_the_offset_that_it_takes, ("TakeOffsets",)),
        EdgePremise(master_has_gone_back, ("TakeOffsets",), "of a master that has gone back", mends_offsets),
    ),
    "ToldIsDelivered": (
        EdgePremise(slave_is_ahead_of_the_offset_that_it_takes, ("TakeOffsets",)),
        EdgePremise(master_takes_the_slaves_offset, ("TakeOffsets",), "that the master takes", tells_offsets),
    ),
    "DoneIsNotDeliveredAgain": (
        EdgePremise(consumer_has_begun_anew, ("Deliver",), possible=can_restart),
        EdgePremise(delivered_message_comes_again, ("Deliver",), "of what was delivered", can_restart),
    ),
}
