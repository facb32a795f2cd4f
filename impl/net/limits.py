"""Limits on what peers can make a master spend: connections, deadlines, transfer rate, and which networks may connect.

No correct slave reaches these limits. RocketMQ has none, so the classic profile has none.

Quirk numbers are those of spec/violations.md. HA-M-11 and HA-G-5 keep acknowledgements right against quirk 1 (a health probe
that sends eight bytes) and quirk 3 (sockets that connect and stay silent); the limits keep the master available.
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
    """The limits of a port. None means no limit. The transfer rate is in bytes a second to each slave.

    option: that sets max_connections, for the line about a refusal; with -per-address behind it, that of one address.
    """

    max_connections: int | None = None
    max_connections_per_address: int | None = None
    report_deadline_ms: int | None = None
    write_stall_deadline_ms: int | None = None
    allow: tuple[Network, ...] | None = None
    max_transfer_rate: int | None = None
    option: str = "--max-connections"


# Four addresses together can use up all connections; one alone cannot. A slave's first report takes up to 6 s (HA-S-2,
# HA-M-25). The write-stall deadline equals the silence after which a master closes a connection (HA-M-9).
HARDENED_LIMITS: Final = Limits(512, 128, 10_000, 20_000, LOOPBACK)


def limits_of(profile: Profile) -> Limits:
    """The default limits of a profile. Classic has none, as RocketMQ has none."""
    return HARDENED_LIMITS if profile.limits_peers else Limits()


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks in CIDR notation. Raises: ConfigInvalid.

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
    """Raise RLIMIT_NOFILE so that all connections and our own files fit. If that fails, lower max_connections and warn.

    A master stops if its log finds no descriptor for the next file, so connections must leave enough of them.
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
    except (OSError, ValueError):  # some systems have a further limit of their own
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
        self._open: Counter[str] = Counter()  # connections by address
        self.refused: Counter[str] = Counter()  # connections by the option that refused them

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """Replace the networks that may connect; None: every address."""
        self._limits = replace(self._limits, allow=networks)

    @property
    def networks(self) -> tuple[Network, ...] | None:
        """The networks that may connect; None: every address."""
        return self._limits.allow

    def admits(self, host: str) -> bool:
        """Return True if an address is in a network that may connect. HA-M-50 "loopback by default"."""
        return self._limits.allow is None or _is_in(host, self._limits.allow)

    def refusal(self, host: str) -> str | None:
        """Admit a peer, or say why not. Returns: the reason of the refusal; None if admitted, then counted until `release`.

        Spec: HA-M-50 "MUST NOT serve a peer from outside the networks that it is told to allow";
        HA-M-51 "MUST be closed as it is accepted, before anything is read from it".
        """
        limits = self._limits
        if not self.admits(host):
            self.refused["allow"] += 1
            return "it is in no network that --allow names"
        if limits.max_connections is not None and self._open.total() >= limits.max_connections:
            self.refused["max_connections"] += 1
            return f"{limits.max_connections} connections are open ({limits.option})"
        own = limits.max_connections_per_address
        if own is not None and self._open[host] >= own:
            self.refused["max_connections_per_address"] += 1
            return f"its address has {own} connections open ({limits.option}-per-address)"
        self._open[host] += 1
        return None

    def release(self, host: str) -> None:
        """Forget one admitted connection of this address, which has ended."""
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


def _is_in(host: str, networks: tuple[Network, ...]) -> bool:
    """Return True if an address is in one of the networks. An IPv4-mapped IPv6 address counts as its IPv4 address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in networks)
