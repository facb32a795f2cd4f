"""When a broker registers with its name servers.

on_start, on_tick, on_change --> a request to each name server that has answered the last one; the others get it later
on_answer, on_failure --> the request that has become due meanwhile
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.replace import replace

FIRST_DELAY_MS: Final = 10_000
AGAIN_MS: Final = 1_000
PERM_READ_WRITE: Final = 6


@dataclass(frozen=True, slots=True)
class NameServer:
    asked: bool = False  # a registration has no answer yet
    due: bool = False  # another one is to follow
    again_ms: int | None = None  # when to ask again, after a registration without an answer


@dataclass(frozen=True, slots=True)
class Registering:
    servers: tuple[NameServer, ...]
    next_ms: int
    period_ms: int
    registers_again: bool = False  # as in hardened


Step = tuple[Registering, tuple[int, ...]]  # the state, and the name servers that are asked now


def period_ms(register_name_server_period: int) -> int:
    """HA-R-16 "less than 10 s counts as 10 s, and more than 60 s as 60 s".

    >>> period_ms(1), period_ms(30_000), period_ms(99_000)
    (10000, 30000, 60000)
    """
    return max(10_000, min(register_name_server_period, 60_000))


def on_start(servers: int, register_name_server_period: int, now_ms: int, *, registers_again: bool = False) -> Step:
    """HA-R-15 "MUST register with every name server it knows"; HA-R-16 "MUST register when it starts"."""
    period = period_ms(register_name_server_period)
    return on_change(Registering((NameServer(),) * servers, now_ms + FIRST_DELAY_MS, period, registers_again))


def on_tick(state: Registering, now_ms: int) -> Step:
    """HA-R-16 "again after 10 s; and then every `registerNameServerPeriod`": after a pause once, not once for each period."""
    if now_ms < state.next_ms:
        again = (number for number, each in enumerate(state.servers) if each.again_ms is not None and now_ms >= each.again_ms)
        return _ask(state, frozenset(again))
    return on_change(replace(state, next_ms=now_ms + state.period_ms))


def on_change(state: Registering) -> Step:
    """The topics have changed: HA-BT-13 "MUST be registered with the name servers at once"."""
    return _ask(state, frozenset(range(len(state.servers))))


def on_answer(state: Registering, number: int) -> Step:
    """A name server has answered. HA-SE-41 "MUST register once more"."""
    return _on_end(state, number, None)


def on_failure(state: Registering, number: int, now_ms: int) -> Step:
    """A name server will give no answer. HA-R-58 "MUST register with it again 1 s later"."""
    return _on_end(state, number, now_ms + AGAIN_MS if state.registers_again else None)


def _on_end(state: Registering, number: int, again_ms: int | None) -> Step:
    server = state.servers[number]
    servers = list(state.servers)
    servers[number] = NameServer(again_ms=again_ms)
    return _ask(replace(state, servers=tuple(servers)), frozenset({number} if server.due else ()))


def _ask(state: Registering, numbers: frozenset[int]) -> Step:
    """One that has not answered the last time is asked when it has."""
    asked = tuple(number for number in sorted(numbers) if not state.servers[number].asked)
    servers = tuple(
        NameServer(asked=True, due=server.asked) if number in numbers else server for number, server in enumerate(state.servers)
    )
    return replace(state, servers=servers), asked


def registered_perm(perm: int, broker_permission: int) -> int:
    """The permission that a topic is registered with.

    Spec: HA-SE-40 "MUST register every topic with its `brokerPermission`".
    """
    return perm if broker_permission & PERM_READ_WRITE == PERM_READ_WRITE else broker_permission
