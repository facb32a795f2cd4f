"""JSON bodies: a strict reader that also takes what fastjson writes, and a writer of standard JSON.

fastjson writes the keys of a map as it writes any value: an integer without quotes (HA-MD-21), and an object as an object.
"""

import re
from typing import Any, Final, TypeVar

import msgspec

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.json_faults import found_and_expected

_INTEGER_KEY: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)

T = TypeVar("T")


def read(body: bytes, what: str = "body") -> Any:
    """Parse a body. what: its name in the error. Raises: RequestInvalid."""
    return read_as(body, Any, what)


def read_as(body: bytes, kind: type[T] | Any, what: str = "body") -> T:
    """Parse a body into a msgspec type, such as a Struct; fields that it does not name are ignored.

    Raises: RequestInvalid, also for a body that is nested deeper than Python's own limit on recursion.
    Spec: HA-MD-26 "MUST ignore fields that it does not know".
    """
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            quoted = quote_integer_keys(body)
            if quoted == body:
                raise
            return msgspec.json.decode(quoted, type=kind)
    except msgspec.DecodeError as error:
        raise RequestInvalid(what, *found_and_expected(error, "JSON")) from None
    except UnicodeDecodeError:
        raise RequestInvalid(what, "bytes that are no UTF-8", "JSON") from None
    except RecursionError:
        raise RequestInvalid(what, "too many levels of arrays and objects", "fewer") from None


def write(value: object) -> bytes:
    """Standard JSON: a dict's integer keys get quotes, which fastjson reads too.

    >>> write({"offsetTable": {"t@g": {0: 852}}})
    b'{"offsetTable":{"t@g":{"0":852}}}'
    """
    return msgspec.json.encode(value)


def quote_integer_keys(body: bytes) -> bytes:
    """Put quotes around the keys that are integers; strings stay as they are.

    Spec: HA-MD-21 "MUST accept map keys that are integers without quotes".


    >>> quote_integer_keys(b'{0:852,"{1:":2}')
    b'{"0":852,"{1:":2}'
    """
    return _INTEGER_KEY.sub(lambda found: found[0] if found[2] is None else b'%b"%b"' % (found[1], found[2]), body)
