"""`--log-level` and `--log-format`, which may stand before the command, after it, and in its configuration file.

The command line wins over the file, and an option after the command wins over one before it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from rocketmq_ha.impl.app.logs import FORMATS, LEVELS, set_format, set_level

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FORMAT: Final[dict[str, Any]] = {
    "type": click.Choice(FORMATS),
    "default": "text",
    "help": "The format of log lines on stderr: text for people, or one JSON object a line.",
}
_LEVEL: Final[dict[str, Any]] = {
    "type": click.Choice(LEVELS, case_sensitive=False),
    "default": "info",
    "help": "The least serious log lines that are shown.",
}


def log_options(command: _Command) -> _Command:
    """Add the options to the program itself, which receives their values."""
    for name, attributes in (("--log-level", _LEVEL), ("--log-format", _FORMAT)):
        command = click.option(name, show_default=True, **attributes)(command)
    return command


def with_log_options(command: click.Command) -> click.Command:
    """Add the options to a command and its subcommands. They take effect through callbacks; the command receives no values."""
    if not any("--log-level" in parameter.opts for parameter in command.params):
        command.params += [
            click.Option(["--log-format"], callback=_on_format, expose_value=False, **_FORMAT),
            click.Option(["--log-level"], callback=_on_level, expose_value=False, **_LEVEL),
        ]
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_log_options(below)
    return command


def is_on_command_line(ctx: click.Context, name: str) -> bool:
    """Return True if the command line sets an option, before the command or after it."""
    at: click.Context | None = ctx
    while at is not None:
        if at.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return True
        at = at.parent
    return False


def _on_format(ctx: click.Context, parameter: click.Parameter, value: str) -> None:
    if _takes_effect(ctx, parameter):
        set_format(value)


def _on_level(ctx: click.Context, parameter: click.Parameter, value: str) -> None:
    if _takes_effect(ctx, parameter):
        set_level(value)


def _takes_effect(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Return True if this value counts: it is from the command line, or from the file and the command line does not set it."""
    assert parameter.name is not None
    source = ctx.get_parameter_source(parameter.name)
    if source is ParameterSource.COMMANDLINE:
        return True
    return source is ParameterSource.DEFAULT_MAP and not is_on_command_line(ctx, parameter.name)
