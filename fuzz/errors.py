"""Errors that a user of fuzz can cause."""

import contextlib
import os
import stat
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


def check_replaceable(option: str, file: Path) -> None:
    """See before the work that a file can get its name in the end, in the place of an older one. Makes the folder.

    A device is no file: the file would stand in its place, and root's /dev/null would be gone for all.
    Raises: FuzzError.
    """
    if not file.name or file.name == "-":
        raise FuzzError(f"{option} {str(file)!r}: expected the name of a file")
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(file.stat().st_mode):
                raise FuzzError(f"{option} {file}: found something that is no file, expected a file or a new name")
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FuzzError(f"{option} {file}: found {error.strerror} ({error.filename}), expected a folder with room") from error
    for place in (file.parent, *([file] if file.exists() else [])):
        check_writable(option, place)
