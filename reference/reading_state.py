"""The data of the reading level: the constants of a scope and the parts of a state, as spec/reading.md lists them."""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.profile import Profile

BROKERS: Final = (1, 2)
NONE: Final = -1  # no offset


@dataclass(frozen=True, slots=True)
class Scope:
    """The constants that bound a run, and the profile."""

    max_puts: int = 0
    max_losses: int = 0
    max_promotions: int = 0
    max_restarts: int = 0
    diverges: bool = False  # messages may be lost that the slave does not have
    from_last: bool = False  # a consumer without an offset begins at the end of the queue (HA-C-10)
    slave_read: bool = False  # slaveReadEnable (HA-R-22)
    # The profile: all False in classic, all True in hardened.
    keeps_greatest: bool = False  # HA-MD-32
    tells_master: bool = False  # HA-MD-33
    knows_topics: bool = False  # HA-MD-35, HA-BT-18
    holds: bool = False  # HA-R-57
    finishes: bool = False  # HA-C-11, HA-C-14


def of_profile(scope: Scope, profile: Profile) -> Scope:
    """The scope with the mends of a profile: all of them or none."""
    mended = profile.keeps_invariants
    return replace(scope, keeps_greatest=mended, tells_master=mended, knows_topics=mended, holds=mended, finishes=mended)


@dataclass(frozen=True, slots=True)
class Broker:
    """What a broker keeps while it does not run."""

    log: tuple[int, ...] = ()  # messages; the queue offset is the index
    topic: bool = False  # the topic is in its table
    offset: int = NONE  # of the consumer's group


@dataclass(frozen=True, slots=True)
class Consumer:
    """The one consumer of the group."""

    at: int = 0  # offset of the next pull
    held: tuple[tuple[int, int], ...] = ()  # (offset, message): pulled and not consumed, in the order in which they came
    entry: bool = False  # it has an offset to commit
    node: int = 0  # the id that the last answer suggested


@dataclass(frozen=True, slots=True)
class Used:
    """The number of puts, and of each fault, so far."""

    puts: int = 0
    losses: int = 0
    promotions: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """Two brokers and a consumer."""

    master: int = 1  # the broker of id 0
    up: frozenset[int] = frozenset(BROKERS)
    broker: tuple[Broker, Broker] = (Broker(), Broker())  # [broker - 1]
    told: int = NONE  # the master's offset as the slave was told it in the master's present life
    own: bool = False  # the slave's offset was committed to the slave, and is beyond `told`
    consumer: Consumer = Consumer()
    delivered: frozenset[int] = frozenset()  # messages that were consumed at least once
    done: frozenset[int] = frozenset()  # those of them that a committed offset was behind
    used: Used = Used()


def initial(scope: Scope) -> State:
    """Empty logs, both brokers run, the consumer at 0; with `from_last` its group is not new."""
    if not scope.from_last:
        return State()
    return State(broker=(Broker(offset=0), Broker()), consumer=Consumer(entry=True))
