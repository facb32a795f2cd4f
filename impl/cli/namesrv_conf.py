"""`namesrv --config FILE`: RocketMQ's own namesrv.conf, as the defaults of the command's options."""

import logging
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.config_text import READ_AGAIN, java_properties, read_text
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address

DEFAULT_PORT: Final = 9876
_HOST: Final = "127.0.0.1"
_TRUTH: Final = {"true": True, "false": False}

log = logging.getLogger(__name__)


def options_of(file: Path, text: str) -> tuple[dict[str, object], list[str]]:
    """Read a namesrv.conf. Returns: (our option -> its value, the names that mean nothing here). Raises: ConfigInvalid."""
    found = java_properties(file, text)
    values: dict[str, object] = {}
    host, port = found.pop("bindAddress", None), found.pop("listenPort", None)
    if host is not None or port is not None:
        values["listen"] = format_address(host or _HOST, DEFAULT_PORT if port is None else _port(file, port))
    if (path := found.pop("kvConfigPath", None)) is not None:
        values["kv_config"] = path
    if (ordered := found.pop("orderMessageEnable", None)) is not None:
        if ordered.lower() not in _TRUTH:
            raise ConfigInvalid(f"{file}: orderMessageEnable={ordered}: expected true or false")
        values["order_message_enable"] = _TRUTH[ordered.lower()]
    return values, sorted(found)


def _port(file: Path, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 <= int(text) < 1 << 16):
        raise ConfigInvalid(f"{file}: listenPort={text}: expected a port")
    return int(text)


def _load(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Make the file's values the defaults of this command. Raises: ConfigInvalid."""
    if file is None:
        return
    values, left = options_of(file, read_text(file))
    if left:
        log.info("%s: means nothing here: %s", file, ", ".join(left))
    ctx.default_map = values
    ctx.meta[READ_AGAIN] = lambda: options_of(file, read_text(file))[0]


namesrv_config_option: Final = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_load,
    metavar="FILE",
    help="Take listenPort, bindAddress, kvConfigPath and orderMessageEnable from RocketMQ's namesrv.conf. The command line"
    " wins.",
)
