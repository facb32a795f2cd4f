"""Parse and format HOST:PORT, and open a TCP connection within a time limit."""

import ipaddress
import os
import socket
import time
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.pause import PAUSE_MS

CONNECT_TIMEOUT_S: Final = 5.0  # HA-S-22 "not succeeded after 5 s MUST be given up"


def parse_address(text: str, option: str = "address") -> tuple[str, int]:
    """Parse `HOST:PORT` or `[IPV6]:PORT` into (host, port). Raises: ConfigInvalid.

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
        raise ConfigInvalid(f"{option} {text!r}: expected HOST:PORT with a port of 0 to 65535, as 127.0.0.1:10912")
    return host, int(port)


def connect(
    address: tuple[str, int], source_address: tuple[str, int] | None = None, timeout_s: float = CONNECT_TIMEOUT_S
) -> socket.socket:
    """Open a TCP connection. Try once more after a pause of this process, which looks like a silent peer.

    source_address: our own (host, port), as in `socket.create_connection`. Raises: OSError.
    """
    began_s = time.monotonic()
    try:
        return socket.create_connection(address, timeout_s, source_address)
    except TimeoutError:
        if time.monotonic() - began_s <= timeout_s + PAUSE_MS / 1000:
            raise
    return socket.create_connection(address, timeout_s, source_address)


def check_own_address(text: str) -> None:
    """Check that this machine has an IP address, so that a connection can be opened from it. Raises: ConfigInvalid.

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
    """The system's text for an error. Python's socket functions append the address; our log lines name it themselves.

    >>> reason(OSError(98, "Address already in use (while attempting to bind on address ('127.0.0.1', 1))"))
    'Address already in use'
    """
    if isinstance(error, socket.gaierror) or error.errno is None:  # a resolver has numbers of its own
        return error.strerror or str(error)
    return os.strerror(error.errno)


def format_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
