"""The texts and lists that a schedule from a file may have: what the two sides of each world can take.

Schedules that a seed draws, or that a campaign makes, stay within these. The numbers stand in schedule_numbers.py.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.schedule_numbers import FEW, SOME, Range, leaves

_SHOWN: Final = 60  # characters of a wrong text


class Kind(NamedTuple):
    pattern: re.Pattern[str]
    told: str


# A text in a request to a name server or of a consumer may be anything that is UTF-8. Half of a surrogate pair is not.
ANY: Final = Kind(re.compile("[^\ud800-\udfff]{0,1000}"), "at most 1000 characters of UTF-8")
# The name of a topic, a group or a cluster in a table, a log or a folder: a request with any other name is refused before.
NAME: Final = Kind(re.compile(r"[A-Za-z0-9_%|-]{1,127}"), "1 to 127 of the characters A-Z a-z 0-9 _ - % |")
ADDRESS: Final = Kind(re.compile(r"[A-Za-z0-9.-]{1,50}:[0-9]{1,5}"), "HOST:PORT")
# As stored. Behind the largest body a file has room for 100 characters. A zero byte at the end is refused (HA-ST-89).
PROPERTIES: Final = Kind(re.compile("[\1\2 -~]{0,100}"), "at most 100 characters of ASCII, without a zero byte")
# In the world of a store both sides refuse what they cannot store.
ALL_PROPERTIES: Final = Kind(re.compile("[\0-\x7f]{0,2000}"), "at most 2000 characters of ASCII")

# World -> class and field.
TEXTS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "link": {"Put.topic": NAME, "Put.properties": PROPERTIES},
    "replicas": {"Put.properties": PROPERTIES},
    "reads": {
        "Message.tag": ANY,
        "Pull.subscription": ANY,
        "Pull.expression_type": ANY,
        "SetConsumers.sub_string": ANY,
        "SetConsumers.expression_type": ANY,
    },
    "routes": {
        "BrokerSettings.cluster": NAME,
        "BrokerSettings.name": NAME,
        "BrokerSettings.addr": ADDRESS,
        "Registration.cluster_name": ANY,
        "Registration.broker_name": ANY,
        "Registration.broker_addr": ANY,
        "Registration.ha_server_addr": ANY,
        "Registration.topics": ANY,
        "Unregister.broker_name": ANY,
        "Unregister.broker_addr": ANY,
        "SignOfLife.broker_addr": ANY,
        "QueryVersion.broker_addr": ANY,
        "Ask.argument": ANY,
        "Ask.second": ANY,
        "Change.name": ANY,
        "Change.cluster": ANY,
        "Change.queue_datas": ANY,
        "PutText.namespace": ANY,
        "PutText.key": ANY,
        "PutText.value": ANY,
        "DeleteText.namespace": ANY,
        "DeleteText.key": ANY,
        "UpdateTopic.name": NAME,
        "DropTopic.name": NAME,
    },
    "store": {
        "Put.topic": NAME,
        "Put.properties": ALL_PROPERTIES,
        "PutBatch.topic": NAME,
        "PutBatch.properties": ALL_PROPERTIES,
    },
    "metadata": {
        "PutTopic.name": NAME,
        "DeleteTopic.name": NAME,
        "PutGroup.name": NAME,
        "DeleteGroup.name": NAME,
        "PutMessage.topic": NAME,
        "Commit.topic": NAME,
        "Commit.group": NAME,
    },
    "remoting": {"Frame.number": ANY},
}

MANY: Final[Range] = (0, 100)
EVENTS: Final[Range] = (1, 4_000)  # ten times what a campaign makes

# World -> class and field of a list of any length: how many values it may have.
LENGTHS: Final[Mapping[str, Mapping[str, Range]]] = {
    "link": {},
    "replicas": {},
    "reads": {"Dispatch.messages": (0, 20)},
    "routes": {"Settings.brokers": FEW, "Registration.topics": MANY, "Change.queue_datas": MANY},
    "store": {"StoreSettings.delete_when": FEW, "PutBatch.bodies": (1, 100)},
    "metadata": {"Settings.tells": SOME},
    "remoting": {"Send.frames": (0, 10)},
}


def check(world: str, name: str, value: Any, place: str) -> None:
    """Check a value in depth. Raises: FuzzError for the first text or list that may not stand there."""
    texts, lengths = TEXTS[world], LENGTHS[world]
    for found, leaf, where in leaves(name, value):
        if isinstance(leaf, tuple) and found in lengths:
            least, most = lengths[found]
            if not least <= len(leaf) <= most:
                raise FuzzError(f"{place}{where}: found {len(leaf)} values, expected {least} to {most}")
        elif isinstance(leaf, str) and found in texts and not texts[found].pattern.fullmatch(leaf):
            raise FuzzError(f"{place}{where}: found {shown(leaf)}, expected {texts[found].told}")


def shown(text: str) -> str:
    """A wrong text on one line, in ASCII.

    >>> shown("a\\n")
    '"a\\\\n"'
    """
    written = ascii(text)[1:-1].replace('"', '\\"')
    return f'"{written}"' if len(written) <= _SHOWN else f'"{written[:_SHOWN]}"... ({len(text)} characters)'
