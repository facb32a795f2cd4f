"""The settings of spec/profile.py as options, under RocketMQ's names."""

from collections.abc import Callable
from typing import Final

import click

from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.spec.profile import Settings

_DEFAULTS: Final = Settings()
_MILLISECONDS, _BYTES, _COUNT = "MS", "BYTES", "N"

# Field of Settings -> (option, unit, help).
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
    "replicas": (
        "--replicas",
        _COUNT,
        "So many distinct slaves must have acknowledged a put that waits. All connections from one address are one slave.",
    ),
}


def _options(fields: dict[str, tuple[str, str, str]]) -> list[Callable[[Command], Command]]:
    return [
        click.option(
            name,
            field,
            type=click.IntRange(min=1),
            default=getattr(_DEFAULTS, field),
            show_default=True,
            metavar=unit,
            help=text,
        )
        for field, (name, unit, text) in fields.items()
    ]


master_settings = option_group("settings", Settings, *_options(_MASTER))
slave_settings = option_group("settings", Settings, *_options(_SHARED))
