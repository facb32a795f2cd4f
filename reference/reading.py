"""The reading level: a consumer reads from a master and its slave, as spec/reading.md defines it and HAReading.tla states it.

Names come from that page. Each action has one function, in the order of the page: it returns the state after, or None if the
action is not possible; a pull returns each state that an answer may lead to. `edges` labels the outcomes; an unchanged state is
no edge. The parts of a state are in reading_state.py, the properties in reading_properties.py.
"""

from collections.abc import Iterator

from rocketmq_ha.reference.reading_state import BROKERS, NONE, Broker, Consumer, Scope, State
from rocketmq_ha.reference.replace import replace

# --- Shared by the actions ----------------------------------------------------------------------------------------------------


def slave_of(state: State) -> int:
    """The broker of id 1, whether it runs or not."""
    return 3 - state.master


def of(state: State, b: int) -> Broker:
    return state.broker[b - 1]


def with_broker(state: State, b: int, broker: Broker) -> State:
    one, other = state.broker
    return replace(state, broker=(broker, other) if b == 1 else (one, broker))


def both_run(state: State) -> bool:
    return len(state.up) == len(BROKERS)


def common(state: State) -> int:
    """How many messages stand at the same offsets in both logs, from the first on."""
    one, other = (broker.log for broker in state.broker)
    return next((i for i, (m, n) in enumerate(zip(one, other, strict=False)) if m != n), min(len(one), len(other)))


def position(consumer: Consumer) -> int:
    """What the consumer would commit. HA-C-14 "in front of which a message is still to be consumed"."""
    return min((consumer.at, *(offset for offset, _ in consumer.held)))


def broker_of_id(state: State, broker_id: int) -> int | None:
    """HA-R-25 "MUST pull from another broker of the same `brokerName`"."""
    wanted = slave_of(state) if broker_id else state.master
    return next((b for b in (wanted, 3 - wanted) if b in state.up), None)


def knows(state: State, b: int, scope: Scope) -> bool:
    """Whether a broker answers pulls of the topic. HA-BT-18."""
    broker = of(state, b)
    return broker.topic or (scope.knows_topics and bool(broker.log))


def committed(state: State, b: int, offset: int) -> State:
    """A broker stores the offset that a consumer commits. HA-BT-30 "MUST store the offset whatever it is"."""
    covered = state.delivered.intersection(of(state, b).log[:offset])
    return replace(with_broker(state, b, replace(of(state, b), offset=offset)), done=state.done | covered)


# --- Actions: the brokers -----------------------------------------------------------------------------------------------------


def put(state: State, scope: Scope) -> State | None:
    """A message comes to the master, which makes the topic for it."""
    # GUARD
    if state.master not in state.up or state.used.puts >= scope.max_puts:
        return None
    # STATE
    used = replace(state.used, puts=state.used.puts + 1)
    master = of(state, state.master)
    return with_broker(replace(state, used=used), state.master, replace(master, log=(*master.log, used.puts), topic=True))


def replicate(state: State) -> State | None:
    """The slave gets one more message of the master's log."""
    # GUARD
    slave, log = of(state, slave_of(state)), of(state, state.master).log
    if not both_run(state) or len(slave.log) >= len(log):
        return None
    # STATE
    return with_broker(state, slave_of(state), replace(slave, log=log[: len(slave.log) + 1]))


def take_topics(state: State) -> State | None:
    """HA-MD-10 "MUST replace all topics of the slave"."""
    # GUARD
    if not both_run(state):
        return None
    # STATE
    slave = of(state, slave_of(state))
    return with_broker(state, slave_of(state), replace(slave, topic=of(state, state.master).topic))


def take_offsets(state: State, scope: Scope) -> State | None:
    """HA-MD-13 "MUST be merged into the slave's table, whatever it has"; HA-MD-32, HA-MD-33."""
    # GUARD
    if not both_run(state):
        return None
    master, slave = of(state, state.master), of(state, slave_of(state))
    if not scope.keeps_greatest:
        return None if master.offset == NONE else with_broker(state, slave_of(state), replace(slave, offset=master.offset))
    # STATE
    is_taken = state.own and master.offset == state.told and slave.offset <= len(master.log)
    theirs = slave.offset if is_taken else master.offset
    mine = theirs if theirs < state.told else max(theirs, slave.offset)
    state = with_broker(state, state.master, replace(master, offset=theirs))
    state = with_broker(state, slave_of(state), replace(slave, offset=mine))
    return replace(state, told=theirs, own=state.own and mine > theirs)


def lose(state: State, scope: Scope, b: int, kept: int) -> State | None:
    """A broker ends; a master's machine may take messages with it that the slave does not have."""
    # GUARD
    log = of(state, b).log
    if b not in state.up or state.used.losses >= scope.max_losses or not least_kept(state, scope, b) <= kept <= len(log):
        return None
    # STATE
    state = with_broker(state, b, replace(of(state, b), log=log[:kept]))
    used = replace(state.used, losses=state.used.losses + 1)
    return replace(state, up=state.up - {b}, told=NONE, own=state.own and b == state.master, used=used)


def least_kept(state: State, scope: Scope, b: int) -> int:
    """How much of its log a broker that is lost keeps at least."""
    whole = len(of(state, b).log)
    return min(whole, len(of(state, slave_of(state)).log)) if scope.diverges else whole


def come_back(state: State, b: int) -> State | None:
    """A broker runs again; one that is not the master has lost what it does not have in common with the master."""
    # GUARD
    if b in state.up:
        return None
    # STATE
    if b != state.master:
        state = with_broker(state, b, replace(of(state, b), log=of(state, b).log[: common(state)]))
    return replace(state, up=state.up | {b})


def promote(state: State, scope: Scope) -> State | None:
    """The slave takes the place of a master that is gone."""
    # GUARD
    slave = slave_of(state)
    if state.master in state.up or slave not in state.up or state.used.promotions >= scope.max_promotions:
        return None
    if not scope.diverges and of(state, 1).log != of(state, 2).log:
        return None
    # STATE
    used = replace(state.used, promotions=state.used.promotions + 1)
    state = with_broker(state, slave, replace(of(state, slave), topic=knows(state, slave, scope)))
    return replace(state, master=slave, told=NONE, own=False, used=used)


# --- Actions: the consumer ----------------------------------------------------------------------------------------------------


def pull(state: State, scope: Scope) -> list[State]:
    """The consumer asks the broker that `pullFromWhichNodeTable` names. HA-R-20 to HA-R-26, HA-R-31."""
    # GUARD
    b = broker_of_id(state, state.consumer.node)
    if b is None or not knows(state, b, scope):
        return []
    # STATE
    return answers(state, b, scope)


def answers(state: State, b: int, scope: Scope) -> list[State]:
    """What the answer of a broker that knows the topic leads to: 0 with a message, 19, 20 or 21."""
    consumer, log = state.consumer, of(state, b).log
    if consumer.at < len(log):
        found = replace(consumer, at=consumer.at + 1, held=(*consumer.held, (consumer.at, log[consumer.at])))
        nodes = (0, 1) if scope.slave_read and found.at < len(log) else (0,)
        return [replace(state, consumer=replace(found, node=node)) for node in nodes]
    if consumer.at == len(log) or b != state.master:
        return [replace(state, consumer=found_nothing(consumer))]
    if scope.finishes:
        return [replace(state, consumer=replace(consumer, at=len(log), node=0))]
    return [replace(committed(state, b, len(log)), consumer=Consumer(len(log), entry=True))]


def found_nothing(consumer: Consumer) -> Consumer:
    """The consumer after an answer without messages; if it holds none, it has an offset to commit."""
    return replace(consumer, node=0, entry=consumer.entry or not consumer.held)


def deliver(state: State) -> State | None:
    """The first message that is held is consumed."""
    # GUARD
    if not state.consumer.held:
        return None
    # STATE
    (_, message), *rest = state.consumer.held
    consumer = replace(state.consumer, held=tuple(rest), entry=True)
    return replace(state, consumer=consumer, delivered=state.delivered | {message})


def commit(state: State, scope: Scope) -> State | None:
    """HA-C-14 "to the broker of id 0 or, where there is none, to another of the group"."""
    # GUARD
    b = broker_of_id(state, 0)
    if b is None or not state.consumer.entry:
        return None
    # STATE
    own = state.own or (scope.tells_master and b != state.master)
    return replace(committed(state, b, position(state.consumer)), own=own)


def restart(state: State, scope: Scope) -> State | None:
    """HA-C-10 "MUST begin a queue at the offset that the broker has of its group". HA-BT-31."""
    # GUARD
    b = broker_of_id(state, 0)
    if b is None or state.used.restarts >= scope.max_restarts:
        return None
    at = of(state, b).offset
    if at == NONE and scope.from_last and b != state.master:
        return None
    # STATE
    entry = at != NONE
    if at == NONE:
        at = len(of(state, b).log) if scope.from_last else 0
    used = replace(state.used, restarts=state.used.restarts + 1)
    return replace(state, consumer=Consumer(at, entry=entry), used=used)


# --- The graph ----------------------------------------------------------------------------------------------------------------


def attempts(state: State, scope: Scope) -> Iterator[tuple[str, State | None]]:
    """Every action with its label, possible or not."""
    yield "Put", put(state, scope)
    yield "Replicate", replicate(state)
    yield "TakeTopics", take_topics(state)
    yield "TakeOffsets", take_offsets(state, scope)
    for b in BROKERS:
        for kept in range(len(of(state, b).log) + 1):
            yield f"Lose({b})", lose(state, scope, b, kept)
        yield f"Return({b})", come_back(state, b)
    yield "Promote", promote(state, scope)
    for after in pull(state, scope):
        yield "Pull", after
    yield "Deliver", deliver(state)
    yield "Commit", commit(state, scope)
    yield "Restart", restart(state, scope)


def edges(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """The labelled edges out of a state."""
    for label, after in attempts(state, scope):
        if after is not None and after != state:
            yield label, after
