"""The pieces of a remoting transcript that a claim may be about.

There is no model of remoting: the standard library's JSON reads the headers.
"""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from store_specimens import Row, Store

UPDATE_BROKER_CONFIG: Final = 25
SYNC_CODES: Final = (21, 43, 45, 201)
ROUND_OPAQUES: Final = 20  # the four requests of a round, and what a broker asks between them


@dataclass(frozen=True, eq=False)
class Exchange:
    """A request and its answer, each a whole frame; `told` are the settings that the same peer was sent before it."""

    store: Store
    row: Row
    told: "tuple[Exchange, ...]" = ()

    @cached_property
    def request(self) -> "RemotingFrame":
        return RemotingFrame(self, base64.b64decode(self.row["request"]), False)

    @cached_property
    def answer(self) -> "RemotingFrame | None":
        text = self.row["response"]
        return RemotingFrame(self, base64.b64decode(text), True) if text else None

    @property
    def code(self) -> int:
        return int(self.row["code"])

    def asks(self, code: int, who: str = "", to: str = "") -> bool:
        return self.code == code and who in ("", self.row["who"]) and to in ("", self.row["to"])

    def __str__(self) -> str:
        return f"{self.row['name']} of {self.row['who']} to {self.row['to']}, opaque {self.row['request_header']['opaque']}"


@dataclass(frozen=True, eq=False)
class RemotingFrame:
    """A frame of remoting as it came, the 4-byte length included."""

    exchange: Exchange
    raw: bytes
    is_answer: bool

    @property
    def store(self) -> Store:
        return self.exchange.store

    @property
    def header_length(self) -> int:
        return int.from_bytes(self.raw[5:8], "big")

    @cached_property
    def header(self) -> Row:
        found: Row = json.loads(self.raw[8 : 8 + self.header_length])
        return found

    @property
    def fields(self) -> dict[str, str]:
        return self.header.get("extFields") or {}

    @property
    def body(self) -> bytes:
        return self.raw[8 + self.header_length :]

    @cached_property
    def table(self) -> Row:
        """The body as a table, its integer keys in quotes."""
        found: Row = json.loads(quoted_keys(self.body.decode()))
        return found

    def __str__(self) -> str:
        return f"{'answer to' if self.is_answer else 'request'} {self.exchange}"


def quoted_keys(text: str) -> str:
    """JSON of what fastjson wrote: its integer keys get the quotes that JSON wants. No string of the tables has `{1:` in it."""
    return re.sub(r"([{,])(-?\d+):", r'\1"\2":', text)


@dataclass(frozen=True, eq=False)
class SyncRound:
    """What a slave asked its master in one round of SlaveSynchronize, in the order of its requests; all four are there."""

    store: Store
    codes: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"round {self.codes}"


def exchanges_of(store: Store, rows: list[Row]) -> Iterator[Exchange]:
    told: dict[tuple[str, str], tuple[Exchange, ...]] = defaultdict(tuple)
    for row in rows:
        peers = row["who"], row["to"]
        exchange = Exchange(store, row, told[peers])
        if row["code"] == UPDATE_BROKER_CONFIG:
            told[peers] += (exchange,)
        yield exchange


def rounds(exchanges: Iterable[Exchange], store: Store) -> Iterator[SyncRound]:
    asked = sorted(
        (exchange.row["request_header"]["opaque"], exchange.code)
        for exchange in exchanges
        if exchange.row["who"] == "slave" and exchange.row["to"] == "master" and exchange.code in SYNC_CODES
    )
    for opaque, code in asked:
        if code == SYNC_CODES[0]:
            near = [other for at, other in asked if abs(at - opaque) <= ROUND_OPAQUES]
            if sorted(near) == sorted(SYNC_CODES):
                yield SyncRound(store, near)
