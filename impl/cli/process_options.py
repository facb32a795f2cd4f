"""The options that `master`, `slave` and `broker` share: the store, the profile and the metrics."""

import os
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.spec.profile import PROFILES, Profile


class Directory(click.Path):
    """A directory that has a name: the empty text of an unset variable would be the current one."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("found an empty name, expected a directory", param, ctx)
        return super().convert(value, param, ctx)


def _profile(profile: str) -> Profile:
    return PROFILES[profile]


store_option: Final = click.option(
    "--store", required=True, type=Directory(), help="The store's directory (the parent of commitlog/)."
)
profile_option: Final = option_group(
    "profile",
    _profile,
    click.option(
        "--profile",
        type=click.Choice(sorted(PROFILES)),
        default="hardened",
        show_default=True,
        help="classic behaves as RocketMQ 4.5.2 does; hardened sends the same bytes, and corrects its quirks.",
    ),
)
metrics_option: Final = click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    help="Serve Prometheus metrics at this address, under /metrics; and /healthz, /readyz, /status (JSON).",
)
