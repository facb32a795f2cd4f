"""When a broker registers with its name servers.

on_start, on_tick, on_change --> a request to each name server that has answered the last one; the others get it later
on_answer --> the request that has become due meanwhile
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.replace import replace

FIRST_DELAY_MS: Final = 10_000
PERM_READ_WRITE: Final = 6


@dataclass(frozen=True, slots=True)
class NameServer:
    asked: bool = False  # a registration has no answer yet
    due: bool = False  # another one is to follow


@dataclass(frozen=True, slots=True)
class Registering:
    servers: tuple[NameServer, ...]
    next_ms: int
    period_ms: int


Step = tuple[Registering, tuple[int, ...]]  # the state, and the name servers that are asked now


def period_ms(register_name_server_period: int) -> int:
    """HA-R-16 "less than 10 s counts as 10 s, and more than 60 s as 60 s".

    >>> period_ms(1), period_ms(30_000), period_ms(99_000)
    (10000, 30000, 60000)
    """
    return max(10_000, min(register_name_server_period, 60_000))


def on_start(servers: int, register_name_server_period: int, now_ms: int) -> Step:
    """HA-R-15 "MUST register with every name server it knows"; HA-R-16 "MUST register when it starts"."""
    state = Registering((NameServer(),) * servers, now_ms + FIRST_DELAY_MS, period_ms(register_name_server_period))
    return on_change(state)


def on_tick(state: Registering, now_ms: int) -> Step:
    """HA-R-16 "again after 10 s; and then every `registerNameServerPeriod`": after a pause once, not once for each period."""
    if now_ms < state.next_ms:
        return state, ()
    return on_change(replace(state, next_ms=now_ms + state.period_ms))


def on_change(state: Registering) -> Step:
    """The topics have changed: HA-BT-13 "MUST be registered with the name servers at once"."""
    asked = tuple(number for number, server in enumerate(state.servers) if not server.asked)
    servers = tuple(replace(server, asked=True, due=server.asked) for server in state.servers)
    return replace(state, servers=servers), asked


def on_answer(state: Registering, number: int) -> Step:
    """A name server has answered, or will not. HA-SE-41 "MUST register once more"."""
    due = state.servers[number].due
    servers = list(state.servers)
    servers[number] = NameServer(asked=due)
    return replace(state, servers=tuple(servers)), (number,) if due else ()


def registered_perm(perm: int, broker_permission: int) -> int:
    """The permission that a topic is registered with.

    Spec: HA-SE-40 "MUST register every topic with its `brokerPermission`".
    """
    return perm if broker_permission & PERM_READ_WRITE == PERM_READ_WRITE else broker_permission
