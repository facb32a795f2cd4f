"""The settings of spec/profile.py as options, by RocketMQ's names."""

from collections.abc import Callable
from typing import Any, Final

import click

from rocketmq_ha.spec.profile import Settings

_DEFAULTS: Final = Settings()
_MILLISECONDS, _BYTES = "MS", "BYTES"

# Field of Settings -> (option, what it is measured in, help).
_SHARED: Final = {
    "ha_send_heartbeat_interval_ms": (
        "--ha-send-heartbeat-interval",
        _MILLISECONDS,
        "Say something at least so often: a master by an empty frame, a slave by a report.",
    ),
    "ha_housekeeping_interval_ms": (
        "--ha-housekeeping-interval",
        _MILLISECONDS,
        "Close a connection whose other end has said nothing for so long.",
    ),
}
_MASTER: Final = _SHARED | {
    "ha_transfer_batch_size": ("--ha-transfer-batch-size", _BYTES, "The largest body of a frame."),
    "ha_slave_fallbehind_max": (
        "--ha-slave-fallbehind-max",
        _BYTES,
        "A put does not wait while all slaves are further behind: SLAVE_NOT_AVAILABLE.",
    ),
    "sync_flush_timeout_ms": (
        "--sync-flush-timeout",
        _MILLISECONDS,
        "A put waits for a slave, or for the disk, no longer than so.",
    ),
}

Command = Callable[..., None]


def master_settings(command: Command) -> Command:
    """Add a master's. They come as keyword arguments that Settings takes."""
    return _with(_MASTER, command)


def slave_settings(command: Command) -> Command:
    """Add a slave's."""
    return _with(_SHARED, command)


def _with(options: dict[str, tuple[str, str, str]], command: Command) -> Command:
    for field, (name, unit, text) in reversed(options.items()):
        default: Any = getattr(_DEFAULTS, field)
        command = click.option(
            name, field, type=click.IntRange(min=1), default=default, show_default=True, metavar=unit, help=text
        )(command)
    return command
