"""The ports of a cluster, reserved against any other cluster.

A cluster takes seconds to listen on all its ports, and a node that is down listens on none. So a cluster also binds a port on
which it never listens, from the choice of its ports to its end, and no other cluster chooses the same ports meanwhile.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketmq_ha.impl.app.cluster.plan import HOST, RESERVED_PORT, Plan, make_plan, ports_of
from rocketmq_ha.impl.errors import ConfigInvalid

FIRST_BASE_PORT: Final = 20_000
# Linux gives ports from 32,768 on to outgoing connections, which could take one while its node is down.
LAST_BASE_PORT: Final = 32_000
BASE_PORT_STEP: Final = 100


@contextmanager
def chosen_plan(mode: str, flush: str, base_port: int | None, preferred: int | None = None) -> Iterator[Plan]:
    """A plan whose ports are free. Until the context ends no other process gets a plan with the same base port.

    Args:  base_port: None to choose one. preferred: the base port to choose if its ports are free.
    Raises: ConfigInvalid.
    """
    if base_port is not None:
        bases = [base_port]
    else:
        drawn = range(FIRST_BASE_PORT, LAST_BASE_PORT, BASE_PORT_STEP)
        bases = [*([] if preferred is None else [preferred]), *random.sample(drawn, len(drawn))]
    for base in bases:
        plan = make_plan(mode, flush, base)
        try:
            reserved = _reserve(plan)
        except ConfigInvalid:
            if base_port is not None:
                raise
            continue
        with reserved:
            yield plan
        return
    raise ConfigInvalid(f"{HOST}: found no free ports from {FIRST_BASE_PORT} to {LAST_BASE_PORT} for {mode}")


def _reserve(plan: Plan) -> socket.socket:
    """Reserve the ports of a cluster until the socket is closed. Raises: ConfigInvalid, if one of them is taken."""
    base_port = plan.base_port
    port = base_port + RESERVED_PORT
    reserved = socket.socket()  # without SO_REUSEADDR: with it, two sockets that do not listen may have one port
    try:
        reserved.bind((HOST, port))
        for port in ports_of(plan):
            socket.create_server((HOST, port)).close()
    except OSError:
        reserved.close()
        raise ConfigInvalid(
            f"--base-port {base_port}: port {port} is taken; expected {base_port} and the ports above it free"
        ) from None
    return reserved
