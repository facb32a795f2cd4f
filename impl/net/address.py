"""HOST:PORT as people write it, and how long a connection to there may take."""

from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid

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


def format_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
