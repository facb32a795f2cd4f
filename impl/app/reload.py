"""SIGHUP: a running master or slave reads its certificates, its log options and its list of allowed networks again.

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
from rocketmq_ha.impl.net.limits import Network
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.tls_ends import ClientTls, ServerTls

log = logging.getLogger(__name__)

_TAKEN_OVER: Final = frozenset({"log_level", "log_format", "allow"})


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration file, and the values that follow from it and from the defaults.

    values: the options that the file sets. log_level, log_format, allow: None if the command line sets that option. An empty
    `allow` allows all networks.
    """

    values: Mapping[str, Any]
    log_level: str | None
    log_format: str | None
    allow: tuple[Network, ...] | None


class ConfigurationSource(Protocol):
    """The configuration file of this process, if it has one."""

    values_at_start: Mapping[str, Any]

    def read(self) -> Configuration:
        """Read the file anew. Raises: ConfigInvalid."""


class Reload:
    """Handles SIGHUP, which would end the process otherwise. The loop calls `poll` between two turns."""

    def __init__(self, source: ConfigurationSource) -> None:
        self._source = source
        self._before: Mapping[str, Any] = source.values_at_start
        self._tls: ServerTls | ClientTls | None = None
        self._master: Master | None = None
        self._is_asked = False
        signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, *_: object) -> None:
        self._is_asked = True

    def serve(self, tls: ServerTls | ClientTls | None, master: Master | None = None) -> None:
        """Set the objects that take over a change: the TLS with its certificates, and the master with its list of networks."""
        self._tls, self._master = tls, master

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
        if self._tls is not None:
            changes.append(("certificates read anew, for new connections", self._tls.renewed()))
        for _, take_over in changes:
            take_over()
        later = sorted(changed - _TAKEN_OVER)
        self._before = found.values
        return [text for text, _ in changes] + ([f"only after a restart: {', '.join(later)}"] if later else [])
