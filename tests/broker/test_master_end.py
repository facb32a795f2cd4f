"""How a slave learns where its master's log ends, and what it lacks."""

import json

import pytest

from kit.asked import Asked
from rocketmq_ha.impl.broker.master_end import MasterEnd

OWN, MASTER = "10.0.0.2:10911", "10.0.0.1:10911"


class Slave:
    """The questions of a slave whose log ends at 700."""

    def __init__(self) -> None:
        self.client, self.master_addr, self.max_offset = Asked(), MASTER, 700
        self.end = MasterEnd(OWN, lambda: self.master_addr, lambda: self.max_offset, self.client)

    def told(self, body: bytes, code: int = 0) -> tuple[int | None, int | None]:
        self.client.answer(MASTER, code, body)
        return self.end.lag_bytes, self.end.told_ms


def body(max_offset: object) -> bytes:
    return json.dumps({"table": {"bootTimestamp": "1", "commitLogMaxOffset": max_offset}}).encode()


def test_it_asks_every_five_seconds_one_question_at_a_time() -> None:
    """HA-MD-1 "It MAY ask for more"."""
    slave = Slave()
    slave.end.on_turn(1_000)
    slave.end.on_turn(9_000)
    [(address, command, deadline_ms, _)] = slave.client.requests
    assert (address, command.code, deadline_ms) == (MASTER, 28, 4_000)
    assert slave.told(body("1000")) == (300, 9_000)
    slave.end.on_turn(5_999)
    assert slave.client.requests == []
    slave.end.on_turn(6_000)
    assert slave.client.addresses() == [MASTER]
    slave.max_offset = 1_500  # it has more than the master had when it answered
    assert slave.told(body("1400")) == (0, 6_000)


@pytest.mark.parametrize("address", ["", OWN])
def test_it_asks_neither_nobody_nor_itself(address: str) -> None:
    """HA-MD-4 "or when that address is its own"."""
    slave = Slave()
    slave.master_addr = address
    slave.end.on_turn(1_000)
    assert slave.client.requests == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", -1),
        (body("1000"), 1),
        *((found, 0) for found in (b"", b"{", b"[]", b"{}", b'{"table":3}', b'{"table":{}}')),
        *((body(found), 0) for found in (1000, None, "", "-1", "x", "1e3", "9" * 20, "\u0663", "9" * 5000)),
    ],
)
def test_an_answer_without_a_number_changes_nothing(answer: bytes, code: int) -> None:
    slave = Slave()
    slave.end.on_turn(0)
    assert slave.told(answer, code) == (None, None)
    slave.end.on_turn(5_000)
    assert slave.told(body("701")) == (1, 5_000)
    slave.end.on_turn(10_000)
    assert slave.told(answer, code) == (1, 5_000)
