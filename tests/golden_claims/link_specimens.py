"""The pieces of the HA link that a claim may be about, taken apart by the model (reference/wire.py)."""

from dataclasses import dataclass
from functools import cached_property

from store_specimens import Store

from rocketmq_ha.reference import wire
from rocketmq_ha.spec import constants


@dataclass(frozen=True, eq=False)
class Connection:
    """One connection of a slave, all of it."""

    store: Store  # the master's
    slave: Store
    before: "Connection | None"
    index: int
    from_slave: bytes
    from_master: bytes

    @cached_property
    def frames(self) -> "list[Frame]":
        """Raises: ValueError where the bytes of the master are no frames."""
        found: list[Frame] = []
        at = 0
        after: int | None = None
        while at < len(self.from_master):
            header = self.from_master[at : at + constants.TRANSFER_HEADER_SIZE]
            if len(header) < constants.TRANSFER_HEADER_SIZE:
                break  # the connection ended within it
            offset, size = wire.unpack_header(header)
            if size < 0:
                raise ValueError(f"a body of {size} bytes at {at}")
            body = self.from_master[at + len(header) : at + len(header) + size]
            found.append(Frame(self, header, offset, size, body, after))
            at += len(header) + size
            after = offset + size
        return found

    @cached_property
    def reports(self) -> "list[Report]":
        parts = [self.from_slave[at : at + 8] for at in range(0, len(self.from_slave) - 7, 8)]
        return [Report(self, index, raw, wire.unpack_report(raw)) for index, raw in enumerate(parts)]

    def __str__(self) -> str:
        return f"connection {self.index}"


@dataclass(frozen=True, eq=False)
class Frame:
    """A transfer frame; `after` is where the frame before it ended."""

    connection: Connection
    header: bytes
    offset: int
    body_size: int
    body: bytes
    after: int | None

    @property
    def store(self) -> Store:
        return self.connection.store

    @property
    def is_whole(self) -> bool:
        return len(self.body) == self.body_size

    def __str__(self) -> str:
        return f"frame at {self.offset} of {self.connection}"


@dataclass(frozen=True, eq=False)
class Report:
    connection: Connection
    index: int
    raw: bytes
    offset: int

    @property
    def store(self) -> Store:
        return self.connection.store

    def __str__(self) -> str:
        return f"report {self.index} of {self.connection}"
