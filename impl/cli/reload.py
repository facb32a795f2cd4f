"""SIGHUP: a running master or slave takes over its certificates, its log level and whom it lets in, and goes on.

All is read first and taken over then, so that a mistake leaves everything as it was. What the command line says stays.
"""

import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from rocketmq_ha.impl.cli.config_file import CONFIG_FILE, read_config
from rocketmq_ha.impl.cli.log_options import is_said
from rocketmq_ha.impl.cli.logs import set_format, set_level
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.limits import limits_of, parse_networks
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.tls import ClientTls, ServerTls
from rocketmq_ha.spec.profile import PROFILES

log = logging.getLogger(__name__)

_TAKEN_OVER: Final = frozenset({"log_level", "log_format", "allow"})


class Reload:
    """Makes SIGHUP no signal that kills, from now on; `look` between two turns of the loop does what it asks for."""

    def __init__(self) -> None:
        """In a command's body: the options of that command are what is read anew."""
        self._ctx = click.get_current_context()
        self._file: Path | None = self._ctx.meta.get(CONFIG_FILE)
        self._before: dict[str, Any] = dict(self._ctx.default_map or {})
        self._tls: ServerTls | ClientTls | None = None
        self._master: Master | None = None
        self._is_asked = False
        signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, *_: object) -> None:
        self._is_asked = True

    def serve(self, tls: ServerTls | ClientTls | None, master: Master | None = None) -> None:
        """What there is to be told of a change."""
        self._tls, self._master = tls, master

    def look(self) -> None:
        """Do it if it was asked for. Never raises for what a user can cause: HA-M-81 "MUST go on, with what it had"."""
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            log.info("SIGHUP: %s", "; ".join(self._reload()) or "nothing has changed")
        except (ConfigInvalid, OSError) as error:
            log.error("SIGHUP: all stays as it is: %s", " ".join(str(error).split()))

    def _reload(self) -> list[str]:
        """Returns: what has changed, each in words. Raises: ConfigInvalid, OSError; then nothing has."""
        found = self._before if self._file is None else read_config(self._ctx, self._file)[0]
        changes: list[tuple[str, Callable[[], object]]] = []
        for name, set_it in (("log_level", set_level), ("log_format", set_format)):
            if not is_said(self._ctx, name) and found.get(name) != self._before.get(name):
                value = found.get(name) or self._said_before(name)
                changes.append((f"{name} = {value}", partial(set_it, value)))
        if self._master is not None and self._ctx.get_parameter_source("allow") is not ParameterSource.COMMANDLINE:
            networks = parse_networks(self._allowed(found))
            if not networks:
                networks = limits_of(PROFILES[self._ctx.params["profile"]]).allow or ()
            if networks != (self._master.limiter.networks or ()):
                said = ", ".join(map(str, networks)) or "all"
                changes.append((f"allow = {said}", partial(self._master.allow, networks or None)))
        if self._tls is not None:
            changes.append(("certificates read anew, for new connections", self._tls.renewed()))
        for _, take_over in changes:
            take_over()
        later = sorted(
            name
            for name in found.keys() | self._before.keys()
            if name not in _TAKEN_OVER and found.get(name) != self._before.get(name)
        )
        self._before = found
        return [text for text, _ in changes] + ([f"only after a restart: {', '.join(later)}"] if later else [])

    def _allowed(self, found: dict[str, Any]) -> tuple[str, ...]:
        parameter = next(parameter for parameter in self._ctx.command.params if parameter.name == "allow")
        networks: tuple[str, ...] = parameter.type_cast_value(self._ctx, found.get("allow"))
        return networks

    def _said_before(self, name: str) -> str:
        """What holds without a file: the default."""
        parameter = next(parameter for parameter in self._ctx.command.params if parameter.name == name)
        return str(parameter.get_default(self._ctx.find_root()))
