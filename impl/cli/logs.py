"""Log lines go to stderr, as text or as one JSON object a line, so that stdout holds results alone."""

import logging
import sys
import time
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")


def configure(log_format: str, log_level: str) -> None:
    """Send this package's log lines of a level and above to stderr, in one format. A second call replaces the first.

    Args:  log_format: "text" or "json". log_level: one of LEVELS, in any case.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if log_format == "json" else _text_formatter())
    logger = logging.getLogger("rocketmq_ha")
    logger.handlers[:] = [handler]
    logger.setLevel(log_level.upper())
    logger.propagate = False


def _text_formatter() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    return formatter


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    formatter = JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        "%Y-%m-%dT%H:%M:%SZ",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
    )
    formatter.converter = time.gmtime
    return formatter
