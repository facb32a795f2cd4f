"""`--config FILE`: options of `master`, `slave` and `broker` from a file, either TOML or a broker's broker.conf.

The command line wins. In TOML an option is a key with underscores for its dashes. A key at the top is for every command that
has the option, a key in the table [master], [slave] or [broker] only for that command:

    store = "/var/lib/rocketmq-ha"
    [slave]
    master = "10.0.0.5:10912"
"""

import difflib
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.broker_conf import options_of
from rocketmq_ha.impl.cli.config_text import READ_AGAIN, read_text
from rocketmq_ha.impl.errors import ConfigInvalid

log = logging.getLogger(__name__)

COMMANDS: Final = ("master", "slave", "broker")


def _options(command: click.Command) -> dict[str, click.Parameter]:
    """Return the options by key, without --config: a file cannot name another file."""
    named = {
        name.removeprefix("--").replace("-", "_"): parameter
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--")
    }
    return {key: parameter for key, parameter in named.items() if key not in {"config", "help"}}


def _keys_of_toml(file: Path, text: str, command: str, known: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(
            f"{file}: {error}: expected TOML (a file named *.conf or *.properties is read as broker.conf)"
        ) from error
    shared = {key: value for key, value in document.items() if key not in COMMANDS}
    everywhere = {key for keys in known.values() for key in keys}
    _refuse_unknown(file, "", shared, everywhere, command)
    for name in COMMANDS:
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise ConfigInvalid(f"{file}: {name} = {table!r}: expected a table [{name}]" + _MASTER_HINT * (name == "master"))
        _refuse_unknown(file, f"[{name}] ", table, set(known[name]), name)
    own: dict[str, Any] = document.get(command, {})
    return {key: value for key, value in shared.items() if key in known[command]} | own


_MASTER_HINT: Final = "; a slave's master is the key `master` in [slave]"


def _refuse_unknown(file: Path, where: str, table: Mapping[str, object], known: set[str], command: str) -> None:
    """Refuse unknown keys. The error names the most similar option, or else the command whose help lists them all."""
    help_of = f"`rocketmq-ha {command} --help`"
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            expected = near[0] if near else f"one of those that {help_of} names, its dashes underscores"
            raise ConfigInvalid(f"{file}: {where}{key}: no such option, expected {expected}")


def read_config(ctx: click.Context, file: Path) -> tuple[dict[str, Any], str]:
    """Read a file for a command. Returns: the values by parameter name; a line about ignored settings, or "".

    Raises: ConfigInvalid.
    """
    command, group = str(ctx.command.name), ctx.parent and ctx.parent.command
    text = read_text(file)
    assert isinstance(group, click.Group)
    known = {name: _options(found) for name in COMMANDS if (found := group.get_command(ctx, name))}
    values: dict[str, tuple[str, Any]]  # our key -> (the file's name for it, its value)
    left: list[str] = []
    if file.suffix in {".conf", ".properties"}:
        values, left = options_of(file, text, command)
        for key in values.keys() - known[command].keys():  # a broker that may change roles has both roles' settings
            left.append(values.pop(key)[0])
    else:
        values = {key: (key, value) for key, value in _keys_of_toml(file, text, command, known).items()}
    for key, (name, value) in values.items():
        try:
            known[command][key].type_cast_value(ctx, value)
        except click.BadParameter as error:
            raise ConfigInvalid(f"{file}: {name} = {value!r}: {error.message}") from error
    note = ""
    if left:
        taken = ", ".join(name for name, _ in values.values())
        note = f"{file}: taken over: {taken}; means nothing here: {', '.join(sorted(left))}"
    return {str(known[command][key].name): value for key, (_, value) in values.items()}, note


def _load(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Make the file's values the defaults of this command. Raises: ConfigInvalid."""
    if file is None:
        return
    values, note = read_config(ctx, file)
    if note:
        log.info("%s", note)
    ctx.default_map = values
    ctx.meta[READ_AGAIN] = lambda: read_config(ctx, file)[0]


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_load,
    metavar="FILE",
    help="Take options from a TOML file (an option is a key, its dashes underscores; tables [master], [slave] and [broker]),"
    " or from a broker's *.conf or *.properties. The command line wins.",
)
