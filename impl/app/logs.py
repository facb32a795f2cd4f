"""The log lines of this package: on stderr, as text or as one JSON object a line. Only results go to stdout."""

import logging
import sys
import time
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_logger: Final = logging.getLogger("rocketmq_ha")


def configure(log_format: str, log_level: str) -> None:
    """Send this package's log lines from a level upward to stderr, in one format. A second call replaces the first.

    Args:  log_format: one of FORMATS. log_level: one of LEVELS, in any case.
    """
    set_format(log_format)
    set_level(log_level)
    _logger.propagate = False


def set_format(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if log_format == "json" else _text_formatter())
    _logger.handlers[:] = [handler]


def set_level(log_level: str) -> None:
    _logger.setLevel(log_level.upper())


def rfc3339(created_s: float) -> str:
    """Format a date and time in UTC, with milliseconds.

    >>> rfc3339(1700000000.0999)
    '2023-11-14T22:13:20.099Z'
    """
    seconds, fraction = divmod(created_s, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(fraction * 1000):03d}Z"


class _TextFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (the library's name)
        del datefmt
        return rfc3339(record.created)


def _text_formatter() -> logging.Formatter:
    return _TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")


def _json_formatter() -> logging.Formatter:
    """The fields are time, level, logger and message; and peer, offset and reason if a line has them (`extra`)."""
    from pythonjsonlogger.json import JsonFormatter

    class Formatter(JsonFormatter):
        def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
            del datefmt
            return rfc3339(record.created)

    return Formatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
    )
