"""Errors caused by the user's input or machine. Each prints one line on stderr, `rocketmq-ha: ...`, with exit status 2.

This module does not import Spark, because the console script loads it with the command.
"""

# ruff: noqa: N818  (as in impl/errors.py, the names say what is wrong)

from pathlib import Path
from typing import IO, Any

import click


class AnalysisError(click.ClickException):
    """Base class. The console script shows it like its own errors."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"rocketmq-ha: {self.format_message()}", file=file, err=file is None)


class LogInvalid(AnalysisError):
    """A given path is no event log, or no table of possible transitions."""

    def __init__(self, path: Path | str, found: object, expected: object) -> None:
        super().__init__(f"{path}: found {found}, expected {expected}")
        self.path, self.found, self.expected = path, found, expected


class RequirementInvalid(AnalysisError):
    """The text of a --require cannot be read, or names something that is not measured."""

    def __init__(self, text: str, found: str, expected: str) -> None:
        super().__init__(f"--require {text!r}: found {found}, expected {expected}")


class OutputInvalid(AnalysisError):
    """The report cannot be written to the given path."""


class SparkUnavailable(AnalysisError):
    """There is no Java that Spark can run on, or Spark did not start."""
