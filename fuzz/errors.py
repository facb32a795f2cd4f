"""Errors that a user of fuzz can cause."""

import os
from pathlib import Path

import click


class FuzzError(click.ClickException):
    """One line on stderr, exit status 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        del file
        click.echo(f"rocketmq-ha: {self.message}", err=True)


def check_writable(option: str, path: Path) -> None:
    """See before the work that its result can be written. Raises: FuzzError."""
    if not os.access(path, os.W_OK):
        raise FuzzError(f"{option} {path}: found a place that cannot be written, expected one that can")
