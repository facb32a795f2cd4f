"""What the socket for puts keeps of each client: clocks, limits and parts of lines, below, at and above each number."""

import json
import logging
import socket
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit import put_stand
from kit.put_stand import Client, Stand, message
from kit.stage import lines
from rocketmq_ha.impl.net import put_socket as module
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME
from rocketmq_ha.impl.store.log.results import PutMessageStatus


class Time:
    """The clocks of the socket: they move when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.wall_ms = 100.0, 1_700_000_000_000
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(put_stand, "clock_ms", lambda: int(self.now_s * 1000))
        monkeypatch.setattr(module, "wall_clock_ms", lambda: self.wall_ms)

    def passes(self, stand: Stand, seconds: float) -> None:
        """Let time pass in steps too short for a pause (HA-T-21), with a turn of the loop in each."""
        while seconds > 0:
            step = min(seconds, 0.5)
            self.now_s, seconds = self.now_s + step, seconds - step
            stand.turn()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def theirs(stand: Stand) -> list[module.Client]:
    return list(stand.socket._clients.values())


def test_a_client_is_greeted_with_the_limits(stack: ExitStack, tmp_path: Path) -> None:
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    assert json.loads(client.received) == {"rocketmq_ha_put": 1, "max_line_size": 6_291_456, "max_in_flight": 4096}
    (their,) = theirs(stand)
    assert (their.line, their.skips, their.ended, len(their.pending), their.out) == (b"", False, False, 0, b"")


def part_of_a_line(client: Client) -> None:
    client.send_raw(b'{"topic"')


def rest_of_a_long_line(client: Client) -> None:
    client.send_raw(b"x" * 200)


def nothing(client: Client) -> None:
    client.send(message())


@pytest.mark.parametrize(("stalls", "is_closed"), [(part_of_a_line, True), (rest_of_a_long_line, True), (nothing, False)])
def test_a_client_within_a_line_is_closed_after_30_s(
    stack: ExitStack, tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    stalls: object, is_closed: bool,
) -> None:  # fmt: skip
    """A client between two lines may rest for as long as it likes; a byte within a line begins the time anew."""
    monkeypatch.setattr(module, "MAX_LINE_SIZE", 150)
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    time.passes(stand, 20)
    assert callable(stalls)
    stalls(client)
    stand.until(lambda: theirs(stand)[0].since_s == time.now_s)
    stand.until(lambda: stalls is part_of_a_line or client.lines())
    time.passes(stand, 29)
    if stalls is part_of_a_line:
        client.send_raw(b":")
        stand.until(lambda: theirs(stand)[0].since_s == time.now_s)
        time.passes(stand, 1)
    time.passes(stand, 29 if stalls is part_of_a_line else 1)
    assert len(theirs(stand)) == 1  # exactly 30 s are not more
    time.passes(stand, 1.5)
    assert len(theirs(stand)) == (0 if is_closed else 1)
    said = f"{tmp_path / 's' / SOCKET_NAME}: closed a client that has sent a part of a line and no more for 30 s"
    assert lines(caplog, logging.WARNING) == ([said] if is_closed else [])


def test_a_client_that_takes_no_answers_is_closed_after_30_s(
    stack: ExitStack, tmp_path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send_raw(b"{}\n" * 20_000)
    stand.until(lambda: len(theirs(stand)[0].out) >= module.MAX_OUT_SIZE)
    for _ in range(50):
        stand.turn()
    time.passes(stand, 29.5)
    assert len(theirs(stand)) == 1
    time.passes(stand, 2)
    assert theirs(stand) == []
    said = f"{tmp_path / 's' / SOCKET_NAME}: closed a client that takes no answers for 30 s"
    assert lines(caplog, logging.WARNING) == [said]


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_line_of_the_largest_size_is_put(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, fits: bool
) -> None:
    """The part of a line without its newline is measured as it comes; the line behind it is put either way."""
    line = json.dumps(message("x" * 100)).encode()
    monkeypatch.setattr(module, "MAX_LINE_SIZE", len(line) - more)
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send_raw(line)
    stand.until(lambda: theirs(stand)[0].line == line or client.lines())
    assert theirs(stand)[0].skips is not fits
    client.send_raw(b"\n")
    client.send(message("behind"))
    size = len(line) - more
    found = client.answers(2)
    assert [answer["status"] for answer in found] == ["PUT_OK" if fits else "MESSAGE_ILLEGAL", "PUT_OK"]
    assert fits or found[0]["error"] == f"message line: found more than {size} bytes, expected at most {size}"
    assert stand.bodies() == ([b"x" * 100] if fits else []) + [b"behind"]
    assert not theirs(stand)[0].skips


def test_lines_in_parts_are_joined_wherever_they_are_cut(stack: ExitStack, tmp_path: Path) -> None:
    data = b"".join(json.dumps(message(str(number))).encode() + b"\n" for number in range(3))
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    for at in range(0, len(data), 17):
        client.send_raw(data[at : at + 17])
        for _ in range(3):
            stand.turn()
    assert client.statuses(3) == ["PUT_OK"] * 3
    assert stand.bodies() == [b"0", b"1", b"2"]
    assert theirs(stand)[0].line == b""


def test_born_timestamps_do_not_go_back_with_the_clock(stack: ExitStack, tmp_path: Path, time: Time) -> None:
    stand = Stand(stack, tmp_path / "s")
    first, second = stand.client(), stand.client()
    for client, wall_ms in ((first, 5000), (second, 4000), (first, 5000), (second, 5001)):
        time.wall_ms = wall_ms
        count = len(stand.bodies())
        client.send(message())
        stand.until(lambda count=count: len(stand.bodies()) > count)
    assert [found.born_timestamp for _, _, found in stand.log.records()] == [5000, 5000, 5000, 5001]


def test_the_statuses_of_stored_puts_are_counted(stack: ExitStack, tmp_path: Path) -> None:
    """Each stored put counts once under its status; a line that is refused counts under none."""
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send({"topic": "t", "body": "b", "y": 1}, message(), message())
    found = client.answers(3)
    assert found[0]["status"] == "MESSAGE_ILLEGAL"
    assert {status.value: count for status, count in stand.socket._statuses.items()} == {"PUT_OK": 2}
    assert stand.master.service.tallies == [stand.socket._statuses]


def test_a_place_that_becomes_free_is_given_to_the_next(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    stand = Stand(stack, tmp_path / "s")
    first, second = stand.client(), stand.client()
    third = stand.client(waits=False)
    for _ in range(5):
        stand.turn()
    assert (len(theirs(stand)), stand.socket._accepts, third.receive(), third.received) == (2, False, False, b"")
    first.sock.close()
    stand.until(lambda: third.receive() or third.received)
    assert (len(theirs(stand)), stand.socket._accepts) == (2, False)
    for client in (second, third):
        client.sock.shutdown(socket.SHUT_WR)
    stand.until(lambda: not theirs(stand))
    assert stand.socket._accepts
    assert len(stand.socket._selector.get_map()) == 1


@pytest.mark.parametrize(("size", "kept"), [(399, 399), (400, 400), (401, 400)])
def test_a_long_error_is_cut(size: int, kept: int) -> None:
    line = module._error_line(PutMessageStatus.MESSAGE_ILLEGAL, "x" * size)
    assert json.loads(line) == {"status": "MESSAGE_ILLEGAL", "error": "x" * kept}
