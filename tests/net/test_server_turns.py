"""A turn of a master's loop: how long it waits, what it looks at, and what the end of a master leaves."""

import logging
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from kit.limits import Clock, Serve, connect, is_closed, polled
from kit.stage import lines
from rocketmq_ha.impl.net.limits import Limits, parse_networks
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message


def played_turns(master: Master, **state: bool) -> list[bool]:
    """Let the turns of transfers be in a state. Returns: for each time that they were served, whether it was at a tick."""
    served: list[bool] = []

    def serve(_: int, __: int, *, at_tick: bool = False) -> None:
        served.append(at_tick)

    given = {"has_more": False, "is_throttled": False} | state
    master._turns = SimpleNamespace(
        begin=lambda: None, serve=serve, offered=master.service.log.max_offset, reported={}, **given
    )  # type: ignore[assignment]
    return served


@pytest.mark.parametrize(
    ("asked_ms", "state", "buffered", "waits_s"),
    [
        (5, {}, False, 0.005),
        (100, {}, False, 0.1),
        (101, {}, False, 0.1),
        (5000, {}, False, 0.1),  # HA-M-25
        (5000, {"is_throttled": True}, False, 0.01),
        (5, {"is_throttled": True}, False, 0.005),
        (5000, {"has_more": True}, False, 0),
        (5000, {"has_more": True, "is_throttled": True}, False, 0),
        (5000, {}, True, 0),
    ],
)
def test_a_turn_waits_no_longer_than_there_is_nothing_to_do(
    serve: Serve, clock: Clock, monkeypatch: pytest.MonkeyPatch, asked_ms: int, state: dict[str, bool], buffered: bool,
    waits_s: float,
) -> None:  # fmt: skip
    """The second look at the sockets, at a tick, never waits."""
    master = serve(Limits())
    clock.ms += 1
    played_turns(master, **state)
    waits: list[float] = []
    monkeypatch.setattr(master._selector, "select", lambda timeout_s: (waits.append(timeout_s), [])[1])
    if buffered:
        master._buffered = {"sock": "link"}  # type: ignore[dict-item]
        monkeypatch.setattr(master, "_read_buffered", lambda _: None)
    master.poll(asked_ms)
    assert waits == [waits_s, 0]


def test_ticks_are_100_ms_apart(serve: Serve, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a tick the sockets are read once more, all links are served, and what depends on time is looked at."""
    master = serve(Limits())
    served = played_turns(master)
    ticks: list[int] = []
    monkeypatch.setattr(master._listeners, "on_tick", ticks.append)
    began = clock.ms
    for ms in (0, 99, 1, 99, 250, 99):
        clock.ms += ms
        master.poll(0)
    assert [ms - began for ms in ticks] == [0, 100, 449]
    assert served == [True] * 3


@pytest.mark.parametrize(("state", "grows", "count"), [({}, False, 0), ({"has_more": True}, False, 1), ({}, True, 1),
                                                      ({"is_throttled": True}, False, 1)])  # fmt: skip
def test_what_was_put_goes_out_before_the_wait(
    serve: Serve, clock: Clock, monkeypatch: pytest.MonkeyPatch, state: dict[str, bool], grows: bool, count: int
) -> None:
    """HA-M-32 "Every put MUST wake the write sides"."""
    master = serve(Limits())
    master.poll(0)
    clock.ms += 1  # no tick
    served = played_turns(master, **state)
    before: list[int] = []
    monkeypatch.setattr(master._selector, "select", lambda _: (before.append(len(served)), [])[1])
    if grows:
        master.put(Message("t", b"b"), wait=False)
    master.poll(0)
    assert (before, len(served)) == ([count], count)


def test_only_a_waker_that_is_ready_is_told(serve: Serve) -> None:
    master = serve(Limits())
    with ExitStack() as stack:
        pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(2)]
        told: list[int] = []
        for index, (ours, _) in enumerate(pairs):
            waker: Any = SimpleNamespace(fileno=ours.fileno, on_readable=lambda index=index: told.append(index))
            master.wake_by(waker)
        pairs[1][1].send(b"x")
        master.poll(0)
        assert set(told) == {1}


def test_networks_that_change_close_the_foreign_alone(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-80 "MUST close the connections from outside of them"; the line names what it had acknowledged."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    master = serve(Limits(), 100)
    with connect(master, "127.0.0.1") as stays, connect(master, "127.0.0.2") as goes:
        goes.sendall(REPORT.pack(0))
        polled(master)
        peer = "{}:{}".format(*goes.getsockname())
        caplog.clear()
        master.allow(parse_networks(["127.0.0.1"]))
        assert (is_closed(stays), is_closed(goes), len(master.service.connections)) == (False, True, 1)
        assert lines(caplog) == [f"{peer}: disconnected: allow"]
        (record,) = caplog.records
        assert (record.peer, record.reason, record.offset) == (peer, "allow", 0)  # type: ignore[attr-defined]
        master.allow(None)
        assert len(master.service.connections) == 1


def test_the_end_closes_all_and_ends_the_puts_that_wait(serve: Serve) -> None:
    """HA-M-37 "MUST close every connection and its listening socket"."""
    master = serve(Limits(), 100)
    with connect(master) as slave, connect(master) as new:
        slave.sendall(REPORT.pack(0))
        polled(master)
        slave.sendall(REPORT.pack(100))
        polled(master)
        request = master.put(Message("t", b"b"), wait=True)
        assert request.status is None
        listener = master._listeners._sockets[0]
        master.close()
        assert request.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert (is_closed(slave), is_closed(new), listener.fileno(), master._links) == (True, True, -1, {})
