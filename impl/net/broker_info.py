"""Ask a broker over its remoting port for its runtime figures and its configuration. Neither request changes anything.

Frame: length i32 (without itself) | serializeType i8, header length u24 | header, JSON | body. Codes 26 (configuration, as
lines of name=value) and 28 (runtime figures, as JSON: {"table": {name: value}}).

Spec: HA-MD-20 "A JSON header MUST have `code`, `language`, `version`, `opaque`, `flag` and `serializeTypeCurrentRPC`".
"""

import json
import socket
from typing import Any, Final, NamedTuple

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.net.address import connect, format_address
from rocketmq_ha.impl.net.pause import Deadline
from rocketmq_ha.spec.codes import request_name, response_name

GET_BROKER_CONFIG: Final = 26
GET_BROKER_RUNTIME_INFO: Final = 28
_TURN_S: Final = 0.1  # timeout of one recv: the deadline is checked this often
_LARGEST_FRAME: Final = 16 * 1024 * 1024
_VERSION: Final = 399  # the client version that we announce; a broker only records it


class NotTold(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """The broker gave no answer, or an answer that is no broker's."""


class BrokerInfo(NamedTuple):
    """The broker's values by name. config is empty if the broker refuses the request."""

    runtime: dict[str, str]
    config: dict[str, str]


def ask_broker(address: tuple[str, int], timeout_s: float = 5.0) -> BrokerInfo:
    """Send both requests. Raises: NotTold if the broker does not answer the first one."""
    peer = format_address(*address)
    try:
        with connect(address, timeout_s=timeout_s) as sock:
            sock.settimeout(_TURN_S)
            deadline = Deadline(timeout_s)
            runtime = _table(peer, _request(sock, peer, GET_BROKER_RUNTIME_INFO, deadline))
            try:
                config = _properties(_request(sock, peer, GET_BROKER_CONFIG, deadline))
            except NotTold:
                config = {}
    except OSError as error:
        raise NotTold(f"{peer}: {error.strerror or error}") from error
    return BrokerInfo(runtime, config)


def _request(sock: socket.socket, peer: str, code: int, deadline: Deadline) -> bytes:
    """Send one request. Returns: the body of the answer."""
    fields = {
        "code": code,
        "language": "OTHER",
        "version": _VERSION,
        "opaque": code,
        "flag": 0,
        "extFields": {},
        "serializeTypeCurrentRPC": "JSON",  # Java clients send it; rocketmq-rust answers only then
    }
    header = json.dumps(fields).encode()
    sock.sendall((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    size = int.from_bytes(_exactly(sock, peer, 4, deadline), "big")
    if not 4 <= size <= _LARGEST_FRAME:
        raise NotTold(f"{peer}: found an answer of {size} bytes, expected a remoting frame of at most {_LARGEST_FRAME}")
    frame = _exactly(sock, peer, size, deadline)
    header_size = int.from_bytes(frame[1:4], "big")
    try:
        answer: dict[str, Any] = json.loads(frame[4 : 4 + header_size])
        found, remark = answer["code"], answer.get("remark")
    except (ValueError, KeyError, TypeError):
        raise NotTold(f"{peer}: found an answer that is no JSON header, expected a broker's") from None
    if found != 0:
        raise NotTold(f"{peer}: answers request {request_name(code)} with {response_name(found)}: {remark}")
    return frame[4 + header_size :]


def _exactly(sock: socket.socket, peer: str, size: int, deadline: Deadline) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline.has_passed():
            raise NotTold(f"{peer}: does not answer")
        try:
            part = sock.recv(min(size - len(data), 1 << 16))
        except TimeoutError:
            continue
        if not part:
            raise NotTold(f"{peer}: closes the connection instead of an answer")
        data += part
    return bytes(data)


def _table(peer: str, body: bytes) -> dict[str, str]:
    try:
        table = json.loads(body)["table"]
        return {str(name): str(value) for name, value in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotTold(f"{peer}: found figures of another form, expected a table in JSON") from None


def _properties(body: bytes) -> dict[str, str]:
    lines = body.decode("utf-8", "replace").splitlines()
    return {name: value for name, sign, value in (line.partition("=") for line in lines) if sign}
