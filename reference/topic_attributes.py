"""The attributes of a topic: what the field `attributes` of request 17 makes of them.

Spec: HA-BT-82.  Source: 5.3.3 AttributeParser.parseToMap, AttributeUtil.alterCurrentAttributes, TopicAttributes.
"""

from collections.abc import Mapping
from typing import Final

# Name -> the values that may be set.
ALWAYS: Final[Mapping[str, frozenset[str]]] = {
    "message.type": frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")),
    "reserve.time": frozenset(("-1",)),
}
AT_CREATION: Final[Mapping[str, frozenset[str]]] = {
    "queue.type": frozenset(("SimpleCQ",)),
    "cleanup.policy": frozenset(("DELETE",)),
}


def alter(current: Mapping[str, object], changes: str, *, is_new: bool) -> Mapping[str, object] | None:
    """The attributes after a request. None: HA-BT-82 "MUST be refused with SYSTEM_ERROR, and change nothing".

    HA-BT-82 "MUST change the attributes of the topic as it says: `+` and a name, `=` and a value to set it".
    """
    items = changes.split(",")
    while items and not items[-1]:
        items = items[:-1]
    may_set = {**ALWAYS, **AT_CREATION} if is_new else ALWAYS
    to_set, to_remove = {}, set()
    for item in items:
        # GUARD
        sign, name, has_value, value = item[:1], *item[1:].partition("=")
        if name in to_set or name in to_remove or name not in may_set:
            return None
        if sign == "+" and has_value and value in may_set[name]:
            to_set[name] = value
        elif sign == "-" and not has_value and name in current:
            to_remove.add(name)
        else:
            return None
    # STATE
    return {name: value for name, value in {**current, **to_set}.items() if name not in to_remove}
