"""Ports for servers that are started a moment later, when others may have taken one."""

import random
import socket
from typing import Final

from rocketmq_ha.fuzz.errors import FuzzError

LOOPBACK: Final = "127.0.0.1"
# Linux gives ports from 32,768 on to connections and to whoever asks for any port. Those of clusters begin at 20,000.
FIRST_PORT: Final = 10_000
LAST_PORT: Final = 19_999
_TRIES: Final = 100


def free_port(*beside: int) -> int:
    """Draw a port of loopback that nobody has.

    Args:  beside: distances from that port, to ports that nobody may have either.
    Raises: FuzzError.

    >>> FIRST_PORT <= free_port(-2) <= LAST_PORT
    True
    """
    for _ in range(_TRIES):
        port = random.randint(FIRST_PORT, LAST_PORT)
        if all(_is_free(port + away) for away in (0, *beside)):
            return port
    wanted = "".join(f", and the one {away:+d} from it" for away in beside)
    raise FuzzError(f"{LOOPBACK}: found no free port in {_TRIES} tries, expected one from {FIRST_PORT} to {LAST_PORT}{wanted}")


def _is_free(port: int) -> bool:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True
