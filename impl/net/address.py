"""HOST:PORT as people write it, and how long a connection to there may take."""

import ipaddress
import os
import socket
import time
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.pause import PAUSE_MS

CONNECT_TIMEOUT_S: Final = 5.0  # HA-S-22 "not succeeded after 5 s MUST be given up"


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT` or `[IPV6]:PORT`. Raises: ConfigInvalid.

    >>> parse_address("127.0.0.1:10912")
    ('127.0.0.1', 10912)
    >>> parse_address("[::1]:0")
    ('::1', 0)
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigInvalid(f"address {text!r}: expected HOST:PORT with a port of 0 to 65535, as 127.0.0.1:10912")
    return host, int(port)


def connect(
    address: tuple[str, int], source_address: tuple[str, int] | None = None, timeout_s: float = CONNECT_TIMEOUT_S
) -> socket.socket:
    """A TCP connection. One more try follows a pause of this process, which looks like a peer that does not answer.

    source_address: of ours, as `socket.create_connection` has it. Raises: OSError.
    """
    began_s = time.monotonic()
    try:
        return socket.create_connection(address, timeout_s, source_address)
    except TimeoutError:
        if time.monotonic() - began_s <= timeout_s + PAUSE_MS / 1000:
            raise
    return socket.create_connection(address, timeout_s, source_address)


def check_own_address(text: str) -> None:
    """Whether a connection can be opened from an IP address: this machine has it. Raises: ConfigInvalid.

    >>> check_own_address("127.0.0.1")
    """
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(text).version == 6 else socket.AF_INET
    except ValueError:
        raise ConfigInvalid(f"address {text!r}: expected an IP address of this machine, as 10.0.0.7") from None
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind((text, 0))
    except OSError as error:
        raise ConfigInvalid(f"address {text!r}: {error.strerror or error}: expected an IP address of this machine") from error


def reason(error: OSError) -> str:
    """The system's words for an error, without what Python's socket functions add: the address, which our line names itself.

    >>> reason(OSError(98, "Address already in use (while attempting to bind on address ('127.0.0.1', 1))"))
    'Address already in use'
    """
    if isinstance(error, socket.gaierror) or error.errno is None:  # a resolver has numbers of its own
        return error.strerror or str(error)
    return os.strerror(error.errno)


def format_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
