"""The configuration that SIGHUP reads again: the file of a running command, and the options of its command line, which win."""

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from rocketmq_ha.impl.app.reload import Configuration
from rocketmq_ha.impl.cli.config_text import READ_AGAIN
from rocketmq_ha.impl.cli.log_options import is_on_command_line
from rocketmq_ha.impl.net.limits import Network, limits_of, parse_networks
from rocketmq_ha.spec.profile import HARDENED, PROFILES


class CommandConfiguration:
    """The file that --config names, and the options that the command line sets. Create it in the body of the command."""

    def __init__(self) -> None:
        self._ctx = click.get_current_context()
        self._read: Callable[[], Mapping[str, Any]] | None = self._ctx.meta.get(READ_AGAIN)
        self.values_at_start: Mapping[str, Any] = dict(self._ctx.default_map or {})

    def read(self) -> Configuration:
        """Read the file anew. Raises: ConfigInvalid."""
        values = self.values_at_start if self._read is None else self._read()
        level, form = self._log_option(values, "log_level"), self._log_option(values, "log_format")
        return Configuration(values, level, form, self._allow(values), self._order_message_enable(values))

    def _log_option(self, values: Mapping[str, Any], name: str) -> str | None:
        if is_on_command_line(self._ctx, name):
            return None
        default = self._parameter(name).get_default(self._ctx.find_root())
        return str(values.get(name) or default)

    def _allow(self, values: Mapping[str, Any]) -> tuple[Network, ...] | None:
        if self._ctx.get_parameter_source("allow") in (
            None,
            ParameterSource.COMMANDLINE,
        ):  # None: the command has no such option
            return None
        texts: tuple[str, ...] = self._parameter("allow").type_cast_value(self._ctx, values.get("allow"))
        profile = PROFILES[self._ctx.params.get("profile", HARDENED.name)]  # a name server has no other
        return parse_networks(texts) or limits_of(profile).allow or ()

    def _order_message_enable(self, values: Mapping[str, Any]) -> bool | None:
        name = "order_message_enable"
        if self._ctx.get_parameter_source(name) in (None, ParameterSource.COMMANDLINE):
            return None
        return bool(values.get(name, False))

    def _parameter(self, name: str) -> click.Parameter:
        return next(parameter for parameter in self._ctx.command.params if parameter.name == name)
