"""The configuration that SIGHUP reads again: the file of a running command, and the options of its command line, which win."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rocketmq_ha.impl.app.reload import Configuration
from rocketmq_ha.impl.cli.config_file import CONFIG_FILE, read_config
from rocketmq_ha.impl.cli.log_options import is_on_command_line
from rocketmq_ha.impl.net.limits import Network, limits_of, parse_networks
from rocketmq_ha.spec.profile import PROFILES


class CommandConfiguration:
    """The file that --config names, and the options that the command line sets. Create it in the body of the command."""

    def __init__(self) -> None:
        self._ctx = click.get_current_context()
        self._file: Path | None = self._ctx.meta.get(CONFIG_FILE)
        self.values_at_start: Mapping[str, Any] = dict(self._ctx.default_map or {})

    def read(self) -> Configuration:
        """Read the file anew. Raises: ConfigInvalid."""
        values = self.values_at_start if self._file is None else read_config(self._ctx, self._file)[0]
        return Configuration(
            values, self._log_option(values, "log_level"), self._log_option(values, "log_format"), self._allow(values)
        )

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
        return parse_networks(texts) or limits_of(PROFILES[self._ctx.params["profile"]]).allow or ()

    def _parameter(self, name: str) -> click.Parameter:
        return next(parameter for parameter in self._ctx.command.params if parameter.name == name)
