"""What an open port may cost a master. No honest slave meets these limits; a profile that has none is RocketMQ's own.

The numbers are those of spec/violations.md. Against quirk 1, eight bytes of a health probe, and quirk 3, sockets that only
connect, the rules of HA-M-11 and HA-G-5 keep what is promised right; the limits keep what is served alive.
"""

import ipaddress
import logging
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.spec.profile import Profile

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_OWN_DESCRIPTORS: Final = 256  # for the log, the other files and what a library opens

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. Times in milliseconds, the rate in bytes a second to each slave."""

    max_connections: int | None = None
    max_connections_per_address: int | None = None
    report_deadline_ms: int | None = None
    write_stall_deadline_ms: int | None = None
    allow: tuple[Network, ...] | None = None
    max_transfer_rate: int | None = None


# Four addresses can use up all connections, one alone cannot. A slave that waits for its first report waits up to 6 s
# (HA-S-2, HA-M-25); the other deadline is the silence that ends a connection in the other direction (HA-M-9).
HARDENED_LIMITS: Final = Limits(512, 128, 10_000, 20_000, LOOPBACK)


def limits_of(profile: Profile) -> Limits:
    """The limits of a profile where nothing else is said. Classic has none, as RocketMQ has none."""
    return HARDENED_LIMITS if profile.checks_reports else Limits()


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks as people write them. Raises: ConfigInvalid.

    >>> parse_networks(["10.1.0.0/16", "::1"])
    (IPv4Network('10.1.0.0/16'), IPv6Network('::1/128'))
    """
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ConfigInvalid(f"network {text!r}: {error}; expected one as 10.1.0.0/16 or fd00::/8") from None
    return tuple(found)


def fit_descriptors(limits: Limits) -> Limits:
    """Raise the system's limit on descriptors for all connections and the log's own files; else lower the cap, and warn.

    A log that finds no descriptor for its next file stops its master, whoever has taken the descriptors.
    """
    cap = limits.max_connections
    if cap is None:
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = cap + _OWN_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return limits
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # a system that has another limit besides
        allowed = soft
    fitting = max(1, min(cap, allowed - _OWN_DESCRIPTORS))
    if fitting == cap:
        return limits
    log.warning("%d connections at most, not %d: the system gives this process %d descriptors", fitting, cap, allowed)
    return replace(limits, max_connections=fitting)


class ConnectionLimiter:
    """Decides which peers may connect, and counts the connections of each address."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: Counter[str] = Counter()  # by address
        self.refused: Counter[str] = Counter()  # by the option that says so

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """From now on these networks may connect."""
        self._limits = replace(self._limits, allow=networks)

    @property
    def networks(self) -> tuple[Network, ...] | None:
        """Who may connect; None: everybody."""
        return self._limits.allow

    def admits(self, host: str) -> bool:
        """Whether an address is in a network that may connect. HA-M-50 "loopback by default"."""
        return self._limits.allow is None or _is_in(host, self._limits.allow)

    def refusal(self, host: str) -> str | None:
        """Why a peer of this address may not come in; None if it may, and then it is counted until `release`.

        Spec: HA-M-50 "MUST NOT serve a peer from outside the networks that it is told to allow";
        HA-M-51 "MUST be closed as it is accepted, before anything is read from it".
        """
        limits = self._limits
        if not self.admits(host):
            self.refused["allow"] += 1
            return "it is in no network that --allow names"
        if limits.max_connections is not None and self._inside.total() >= limits.max_connections:
            self.refused["max_connections"] += 1
            return f"{limits.max_connections} connections are open (--max-connections)"
        own = limits.max_connections_per_address
        if own is not None and self._inside[host] >= own:
            self.refused["max_connections_per_address"] += 1
            return f"its address has {own} connections open (--max-connections-per-address)"
        self._inside[host] += 1
        return None

    def release(self, host: str) -> None:
        """Count one connection of this address less: it was admitted and has ended."""
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]


def _is_in(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address is in one of the networks. An IPv4 address that came over IPv6 is the IPv4 address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in networks)
