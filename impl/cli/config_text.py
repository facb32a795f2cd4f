"""The text of a configuration file, and that of RocketMQ's own as names and values."""

import re
from pathlib import Path
from typing import Final

import javaproperties

from rocketmq_ha.impl.errors import ConfigInvalid

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")
_SHOWN: Final = 40  # characters of what is no name

READ_AGAIN: Final = f"{__name__}.read_again"  # key in a context's meta: reads the file that --config names anew


def read_text(file: Path) -> str:
    """Raises: ConfigInvalid for a file that cannot be read, or is no UTF-8."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise ConfigInvalid(f"{file}: {error.strerror}: expected a configuration file") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{file}: byte {error.start} is not UTF-8: expected a configuration file") from error


def java_properties(file: Path, text: str) -> dict[str, str]:
    """Read the settings of a *.conf of RocketMQ. Java takes any text for properties, so the names are looked at.

    Raises: ConfigInvalid.
    """
    try:
        found = dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigInvalid(f"{file}: {error}: expected a Java properties file") from error
    if strange := next((name for name in found if not _NAME.fullmatch(name)), None):
        raise ConfigInvalid(f"{file}: found {strange[:_SHOWN]!r}, expected a Java properties file: lines of name=value")
    return found
