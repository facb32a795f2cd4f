"""What a peer can make a remoting server hold. No client of RocketMQ reaches these limits.

Who may connect, and how many connections there may be, is in `impl/net/limits.py`, as for the HA port.
Spec: HA-RM-22 "MUST keep what a master keeps on its HA port".
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.net.limits import LOOPBACK, Limits
from rocketmq_ha.spec.constants import REMOTING_IDLE_MS

MIB: Final = 1024 * 1024

# A broker of many clients has more connections than a master has slaves; the deadlines of Limits are those of the HA port.
CONNECTIONS: Final = Limits(max_connections=4096, max_connections_per_address=1024, allow=LOOPBACK)


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """The limits of a server. Sizes are in bytes.

    max_pending: requests of a connection without an answer; max_pending_in_all: of all connections. max_unsent: answers that a
    connection has not taken. max_unfinished: frames that have begun, of all connections.
    """

    connections: Limits = CONNECTIONS
    max_pending: int = 4096
    max_pending_in_all: int = 65_536
    max_unsent: int = 8 * MIB
    max_unfinished: int = 256 * MIB
    write_stall_ms: int = 20_000
    frame_deadline_ms: int = 60_000
    idle_ms: int = REMOTING_IDLE_MS
