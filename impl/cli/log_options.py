"""`--log-level` and `--log-format`: before the command, after it, and in its configuration file.

What stands on the command line wins over the file; what stands behind the command over what stands before it.
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
    "help": "How log lines look on stderr: for people, or one JSON object a line.",
}
_LEVEL: Final[dict[str, Any]] = {
    "type": click.Choice(LEVELS, case_sensitive=False),
    "default": "info",
    "help": "The least serious log lines that are shown.",
}


def log_options(command: _Command) -> _Command:
    """Add the options to the program itself, which takes them as arguments."""
    for name, attributes in (("--log-level", _LEVEL), ("--log-format", _FORMAT)):
        command = click.option(name, show_default=True, **attributes)(command)
    return command


def with_log_options(command: click.Command) -> click.Command:
    """The command, and those below it, with options that take effect by themselves."""
    if not any("--log-level" in parameter.opts for parameter in command.params):
        command.params += [
            click.Option(["--log-format"], callback=_on_format, expose_value=False, **_FORMAT),
            click.Option(["--log-level"], callback=_on_level, expose_value=False, **_LEVEL),
        ]
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_log_options(below)
    return command


def is_said(ctx: click.Context, name: str) -> bool:
    """Whether the command line says an option, before the command or behind it."""
    at: click.Context | None = ctx
    while at is not None:
        if at.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return True
        at = at.parent
    return False


def _on_format(ctx: click.Context, parameter: click.Parameter, value: str) -> None:
    if _decides(ctx, parameter):
        set_format(value)


def _on_level(ctx: click.Context, parameter: click.Parameter, value: str) -> None:
    if _decides(ctx, parameter):
        set_level(value)


def _decides(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Whether this is where the option is said: on the command line, or in a file while no command line says it."""
    assert parameter.name is not None
    source = ctx.get_parameter_source(parameter.name)
    if source is ParameterSource.COMMANDLINE:
        return not ctx.resilient_parsing
    return source is ParameterSource.DEFAULT_MAP and not is_said(ctx, parameter.name)
