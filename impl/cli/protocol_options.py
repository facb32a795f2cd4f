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
        "The longest silence before a master sends an empty frame, or a slave a report.",
    ),
    "ha_housekeeping_interval_ms": (
        "--ha-housekeeping-interval",
        _MILLISECONDS,
        "Close a connection on which nothing has come for this time.",
    ),
}
_MASTER: Final = _SHARED | {
    "ha_transfer_batch_size": ("--ha-transfer-batch-size", _BYTES, "The largest body of a frame."),
    "ha_slave_fallbehind_max": (
        "--ha-slave-fallbehind-max",
        _BYTES,
        "While all slaves are further behind than this, puts do not wait, and end with SLAVE_NOT_AVAILABLE.",
    ),
    "sync_flush_timeout_ms": (
        "--sync-flush-timeout",
        _MILLISECONDS,
        "The longest time for which a put waits for a slave, or for the disk.",
    ),
    "replicas": (
        "--replicas",
        _COUNT,
        "The number of distinct slaves that must acknowledge a put that waits. All connections from one address are one slave.",
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
