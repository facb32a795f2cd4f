"""All levels, by name."""

from typing import Any, Final

from formal.level import Level
from formal.level_protocol import PROTOCOL
from formal.level_reading import READING

LEVELS: Final = {level.name: level for level in (PROTOCOL, READING)}
_OF_SCOPE: Final = {level.scope: level for level in LEVELS.values()}


def level_of(scope: Any) -> Level:
    """The level of a scope's constants."""
    return _OF_SCOPE[type(scope)]
