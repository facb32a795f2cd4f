"""What can happen to a master whose puts wait for its disk and its slaves: the events of the world `replicas`.

Connections are named by their place among those that are open, messages from the last one back. So an event nearly always
applies, whatever happened before it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Put:
    """A producer's message reaches the master.

    size: bytes of its body. properties: as stored; with WAIT they say whether it waits (HA-G-8, HA-G-40). by_broker: the caller
    has appended the message itself, as the broker does, and then lets the put wait.
    """

    size: int
    properties: str = ""
    by_broker: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """A peer connects. address: the host that it connects from. subject: that of its certificate, or -1 without one."""

    address: int
    subject: int = -1


@dataclass(frozen=True, slots=True)
class Transfer:
    """The write side of a connection runs; its socket takes all that the log has."""

    connection: int


@dataclass(frozen=True, slots=True)
class Report:
    """A report comes: the end of a message, counted back from the last one, and `more` bytes; without such a message 0.

    honest: behind its first report the peer says nothing less than before, and nothing beyond what it was sent.
    """

    connection: int
    message: int
    more: int = 0
    honest: bool = True


@dataclass(frozen=True, slots=True)
class Close:
    """A connection ends: its slave or the network has closed it."""

    connection: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The flush under way looks for the end of the log, and covers no more. Without this event it looks as it ends."""


@dataclass(frozen=True, slots=True)
class Flush:
    """The flush under way ends. failures: how many of its tries fail."""

    failures: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""

    ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The master ends, and starts again over its log. clean: it shuts down, and its last flush succeeds or fails."""

    clean: bool
    flushes: bool = True


Event = Put | Accept | Transfer | Report | Close | Sync | Flush | Tick | Restart
