"""The tables of RocketMQ whose keys are queues: fastjson writes such a key as an object, which is no JSON (HA-BT-64)."""

import json
import re
from typing import Final

# A string, which is passed over; or an object without objects in it that a colon follows.
_OBJECT_KEY: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|(\{(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+\})(?=\s*:)', re.DOTALL)


def quote_object_keys(body: bytes) -> bytes:
    """Make the keys that are objects texts; what is JSON already stays as it is.

    >>> quote_object_keys(b'{"t":{{"queueId":0}:{"maxOffset":5}}}')
    b'{"t":{"{\\\\"queueId\\\\":0}":{"maxOffset":5}}}'
    """
    return _OBJECT_KEY.sub(lambda found: found[0] if found[1] is None else _quoted(found[1]), body)


def _quoted(text: bytes) -> bytes:
    return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False).encode()
