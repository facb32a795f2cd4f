"""SIGHUP: a running process reads its certificates, its log options and its list of allowed networks again.

Everything is read before anything is taken over, so a mistake changes nothing. An option of the command line keeps its value.
"""

import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from rocketmq_ha.impl.app.logs import set_format, set_level
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.limits import ConnectionLimiter, Network

log = logging.getLogger(__name__)

_TAKEN_OVER: Final = frozenset({"log_level", "log_format", "allow", "order_message_enable"})


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration file, and the values that follow from it and from the defaults.

    values: the options that the file sets. The others: None if the command line sets that option, or the command has none of
    that name. An empty `allow` allows all networks.
    """

    values: Mapping[str, Any]
    log_level: str | None
    log_format: str | None
    allow: tuple[Network, ...] | None
    order_message_enable: bool | None = None


class ConfigurationSource(Protocol):
    """The configuration file of this process, if it has one."""

    values_at_start: Mapping[str, Any]

    def read(self) -> Configuration:
        """Read the file anew. Raises: ConfigInvalid."""


class Allows(Protocol):
    """What takes over a list of allowed networks, such as a Master."""

    @property
    def limiter(self) -> ConnectionLimiter: ...
    def allow(self, networks: tuple[Network, ...] | None) -> None: ...


class Renews(Protocol):
    """A port's or a client's TLS."""

    def renewed(self) -> Callable[[], None]:
        """Read the certificates anew. Returns: what takes them over. Raises: ConfigInvalid."""


class Reload:
    """Handles SIGHUP, which would end the process otherwise. The loop calls `poll` between two turns."""

    def __init__(self, source: ConfigurationSource) -> None:
        self._source = source
        self._before: Mapping[str, Any] = source.values_at_start
        self._tls: tuple[Renews, ...] = ()
        self._master: Allows | None = None
        self._set_order: Callable[[bool], object] | None = None
        self._is_asked = False
        signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, *_: object) -> None:
        self._is_asked = True

    def serve(
        self,
        *tls: Renews | None,
        master: Allows | None = None,
        set_order_message_enable: Callable[[bool], object] | None = None,
    ) -> None:
        """Set what takes over a change: each TLS certificates, the master a list of networks, a name server its setting."""
        self._tls = tuple(each for each in tls if each is not None)
        self._master, self._set_order = master, set_order_message_enable

    def poll(self) -> None:
        """Reload if SIGHUP has come. A mistake of the user is logged, not raised: HA-M-81 "MUST go on, with what it had"."""
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            log.info("SIGHUP: %s", "; ".join(self._reload()) or "nothing has changed")
        except (ConfigInvalid, OSError) as error:
            log.error("SIGHUP: all stays as it is: %s", " ".join(str(error).split()))

    def _reload(self) -> list[str]:
        """Returns: what has changed, in words.  Raises: ConfigInvalid, OSError; then nothing has changed."""
        found = self._source.read()
        changed = {
            name for name in found.values.keys() | self._before.keys() if found.values.get(name) != self._before.get(name)
        }
        changes: list[tuple[str, Callable[[], object]]] = []
        if found.log_level is not None and "log_level" in changed:
            changes.append((f"log_level = {found.log_level}", partial(set_level, found.log_level)))
        if found.log_format is not None and "log_format" in changed:
            changes.append((f"log_format = {found.log_format}", partial(set_format, found.log_format)))
        if self._master is not None and found.allow is not None and found.allow != (self._master.limiter.networks or ()):
            networks = ", ".join(map(str, found.allow)) or "all"
            changes.append((f"allow = {networks}", partial(self._master.allow, found.allow or None)))
        is_ordered = found.order_message_enable
        if self._set_order is not None and is_ordered is not None and "order_message_enable" in changed:
            changes.append((f"order_message_enable = {str(is_ordered).lower()}", partial(self._set_order, is_ordered)))
        if self._tls:
            renewed = [tls.renewed() for tls in self._tls]
            changes.append(("certificates read anew, for new connections", lambda: [take_over() for take_over in renewed]))
        for _, take_over in changes:
            take_over()
        later = sorted(changed - _TAKEN_OVER)
        self._before = found.values
        return [text for text, _ in changes] + ([f"only after a restart: {', '.join(later)}"] if later else [])
