"""A cluster and its clients as the measurement sees them: whose they are, does not matter. Both kinds are in products.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Group:
    """A master and its slave, by the names of their nodes. name: what routes call the group."""

    name: str
    master: str
    slave: str | None


class ClusterUnderTest(Protocol):
    """Nodes that can be started, killed and cut off. Each method has done its work when it returns."""

    @property
    def name_server(self) -> str:
        """The address for clients."""
        ...

    @property
    def groups(self) -> Sequence[Group]:
        """All groups. Faults hit the first one."""
        ...

    def up(self) -> None:
        """Start all: the masters are registered, and the slaves follow them."""
        ...

    def down(self) -> None:
        """End all that runs."""
        ...

    def address(self, node: str) -> str:
        """Where clients and administrators reach a node."""
        ...

    def store(self, node: str) -> Path:
        """The root of a broker's store."""
        ...

    def is_up(self, node: str) -> bool:
        """Whether a node was started and has not ended."""
        ...

    def start(self, node: str) -> None:
        """Start a node on its store, or on an empty one where that is gone."""
        ...

    def promote(self, node: str) -> None:
        """Make a slave that is up the master of its group, as an administrator does: stop it, and start it as one."""
        ...

    def stop(self, node: str) -> None:
        """SIGTERM."""
        ...

    def kill(self, node: str) -> None:
        """kill -9."""
        ...

    def vanish(self, *nodes: str) -> None:
        """Kill nodes and cut all their links in one moment: nobody is told. `heal` makes their addresses answer again."""
        ...

    def lose_disk(self, node: str) -> None:
        """Remove the store of a node that is not up."""
        ...

    def lose_unsynced(self, node: str) -> int:
        """Take from the store of a node that was killed what it had not synced. Returns: how many bytes of its log changed."""
        ...

    def cut(self, first: str, second: str | None = None) -> None:
        """Cut the link of two nodes, or all links of one, without a word to either end."""
        ...

    def heal(self, first: str, second: str | None = None) -> None: ...

    def ended(self) -> list[str]:
        """A line for each node that has ended by itself since the last call."""
        ...


class Sent(NamedTuple):
    """A send that has its outcome. group: where it is stored, or "". The queue offset counts if it is."""

    number: int
    begun: float
    ended: float
    status: str
    group: str
    queue_id: int
    queue_offset: int


class Delivered(NamedTuple):
    """A message that the consumer got."""

    at: float
    number: int
    group: str
    queue_id: int
    queue_offset: int


class TrafficUnderTest(Protocol):
    """A producer and a consumer that run. Call `stop_sending` before `close`.

    sent, delivered: grow while the clients run; what is there does not change. begun: sends. is_paused: the consumer pulls
    nothing. error: what ended a client. Times are those of `time.monotonic`, in s.
    """

    is_paused: bool

    @property
    def sent(self) -> Sequence[Sent]: ...

    @property
    def delivered(self) -> Sequence[Delivered]: ...

    @property
    def error(self) -> BaseException | None: ...

    def stop_sending(self, within_s: float) -> None:
        """Send nothing more, and wait for the outcomes."""
        ...

    def close(self) -> None: ...
