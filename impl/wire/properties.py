"""HA-ST-16 "as one string, name 0x01 value 0x02 name 0x01 value"; what is written here has no 0x02 behind the last value.

The string, not the mapping, is what a record holds: two strings may give one mapping (a repeated name, a trailing
separator, an empty value), and a replica must be byte-identical.

Source: 4.9.8, MessageDecoder string2messageProperties and messageProperties2String.
"""

from collections.abc import Mapping

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.spec.constants import PROPERTY_NAME_SEPARATOR, PROPERTY_SEPARATOR


def parse_properties(properties_string: str) -> dict[str, str]:
    """Read the pairs as RocketMQ does: of a repeated name the last counts; no name or no value means no pair.

    HA-ST-16 "a reader MUST take the string with 0x02 behind the last value, and without it".

    Raises: nothing, whatever the string holds.
    """
    pairs = {}
    for pair in properties_string.split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(PROPERTY_NAME_SEPARATOR)
        if name and value:
            pairs[name] = value
    return pairs


def format_properties(properties: Mapping[str, str]) -> str:
    """Write the pairs in the mapping's order. HA-ST-16 "Properties MUST be stored as one string".

    Raises: MessageIllegal for a pair that would not come back: an empty name or value, or a separator inside.
    """
    for name, value in properties.items():
        if not name or not value:
            raise MessageIllegal("property", f"{name!r}={value!r}", "a name and a value, neither of them empty")
        if PROPERTY_SEPARATOR in name + value or PROPERTY_NAME_SEPARATOR in name:
            raise MessageIllegal("property", f"{name!r}={value!r}", "no separator (0x01, 0x02) inside")
    return PROPERTY_SEPARATOR.join(f"{name}{PROPERTY_NAME_SEPARATOR}{value}" for name, value in properties.items())
