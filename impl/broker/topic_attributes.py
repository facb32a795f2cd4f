"""The attributes of a topic, which 5.x has, and what request 17 may change of them.

They are a map of texts under `attributes` in the topic's JSON object. A broker of ours has queues and files of one kind: an
attribute that asks for another kind is refused, and not kept without being done.

    +message.type=FIFO,-reserve.time      the field `attributes` of request 17: set one, remove another

Spec: HA-BT-82.  Source: 5.3.3 AttributeParser.parseToMap, AttributeUtil.alterCurrentAttributes, TopicAttributes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.errors import RequestInvalid

ATTRIBUTES: Final = "attributes"  # the field of a topic's JSON object, and that of the request
_CHANGE: Final = re.compile(r"(?:\+(?P<set>[^-+=]+)=(?P<value>.*)|-(?P<removed>[^-+=]+))", re.DOTALL)
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class _Attribute:
    """values: those that we can keep to. is_changeable: whether it may change once the topic is there."""

    values: tuple[str, ...]
    is_changeable: bool


_KNOWN: Final = {
    "message.type": _Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"), True),
    "queue.type": _Attribute(("SimpleCQ",), False),
    "cleanup.policy": _Attribute(("DELETE",), False),
    "reserve.time": _Attribute(("-1",), True),
}


def alter(current: Mapping[str, object], changes: str, *, is_new: bool) -> dict[str, object]:
    """The attributes of a topic after a request. HA-BT-82 "MUST change the attributes of the topic as it says".

    Args:  changes: the field of the request; "" for no change. is_new: whether the request creates the topic.
    Raises: RequestInvalid. HA-BT-82 "MUST be refused with SYSTEM_ERROR, and change nothing".
    """
    found = dict(current)
    named: set[str] = set()
    for item in changes.rstrip(",").split(",") if changes.strip(",") else ():
        change = _CHANGE.fullmatch(item)
        if change is None:
            raise RequestInvalid("field attributes", _shown(item), "+name=value or -name, with commas between them")
        name = change["set"] or change["removed"]
        attribute = _KNOWN.get(name)
        if name in named:
            raise RequestInvalid("field attributes", f"{_shown(name)} twice", "each name once")
        if attribute is None:
            raise RequestInvalid("field attributes", _shown(name), "one of " + ", ".join(_KNOWN))
        named.add(name)
        if not (attribute.is_changeable or is_new):
            raise RequestInvalid(f"attribute {name}", _shown(item), "no change after the topic was created")
        if change["removed"] is not None:
            if name not in current:
                raise RequestInvalid(f"attribute {name}", _shown(item), "an attribute that the topic has")
            del found[name]
            continue
        if change["value"] not in attribute.values:
            expected = attribute.values[0] if len(attribute.values) == 1 else "one of " + ", ".join(attribute.values)
            raise RequestInvalid(f"attribute {name}", _shown(change["value"]), expected)
        found[name] = change["value"]
    return found


def _shown(text: str) -> str:
    return repr(text[:_SHOWN])
