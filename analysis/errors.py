"""Errors that a user's input or machine causes: one line on stderr, `rocketmq-ha: ...`, and exit status 2.

No Spark is imported here: the console script loads this file with the command.
"""

# ruff: noqa: N818  (as in impl/errors.py: the names say what is wrong)

from pathlib import Path
from typing import IO, Any

import click


class AnalysisError(click.ClickException):
    """Base; the console script shows it as it shows its own."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"rocketmq-ha: {self.format_message()}", file=file, err=file is None)


class LogInvalid(AnalysisError):
    """A path that was given as a log, or as the table of possible transitions, does not hold one."""

    def __init__(self, path: Path, found: object, expected: object) -> None:
        super().__init__(f"{path}: found {found}, expected {expected}")
        self.path, self.found, self.expected = path, found, expected


class OutputInvalid(AnalysisError):
    """The report cannot be written where it is wanted."""


class SparkUnavailable(AnalysisError):
    """No Java that Spark can run on, or Spark did not start."""
