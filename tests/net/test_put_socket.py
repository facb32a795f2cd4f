"""The master's socket for puts: answers in order, bounded memory, and no input ends the master."""

import json
import os
import socket
import stat
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.put_stand import NO_WAIT, Stand, message
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.net import put_socket as module
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME
from rocketmq_ha.spec.role import BrokerRole


def test_only_the_masters_user_may_connect(stack: ExitStack) -> None:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    directory.chmod(0o755)
    stand = Stand(stack, directory / "s")
    path = stand.store / SOCKET_NAME
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    if os.geteuid() == 0 and (child := os.fork()) == 0:  # as another user, who may read the directory
        try:
            os.setuid(65534)
            stranger = socket.socket(socket.AF_UNIX)
            stranger.settimeout(PATIENCE_S)
            stranger.connect(str(path))
        except PermissionError:
            os._exit(13)
        finally:
            os._exit(0)
    if os.geteuid() == 0:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 13
    stand.finish()
    assert not path.exists()


def test_messages_are_put_in_order_and_each_is_answered(stack: ExitStack, tmp_path: Path) -> None:
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send(message("one"), message("two", queue_id=3, tags="a"), message("three"))
    found = client.answers(3)
    records = list(stand.log.records())
    assert [body.body for _, _, body in records] == [b"one", b"two", b"three"]
    assert [(line["commit_log_offset"], line["store_size"]) for line in found] == [
        (offset, size) for offset, size, _ in records
    ]
    assert [(line["status"], line["queue_offset"]) for line in found] == [("PUT_OK", 0), ("PUT_OK", 0), ("PUT_OK", 1)]
    assert [line["msg_id"] for line in found] == [f"7F00000100000000{offset:016X}" for offset, _, _ in records]


def test_an_answer_waits_for_the_put_before_it(stack: ExitStack, tmp_path: Path) -> None:
    """HA-G-6: the first put waits for the slave; the puts after it end earlier, but are answered after it."""
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER)
    slave, client = stand.slave(), stand.client()
    client.send(message("waits"), message("does not", **NO_WAIT), {"topic": "t"}, message("waits too"))
    stand.until(lambda: stand.socket.waiting == 4)
    for _ in range(5):
        stand.turn()
    assert client.lines() == []
    stand.acknowledge(slave)
    assert client.statuses(4) == ["PUT_OK", "PUT_OK", "MESSAGE_ILLEGAL", "PUT_OK"]


def test_each_put_has_the_status_of_a_put(stack: ExitStack, tmp_path: Path) -> None:
    """HA-G-3, HA-G-2, HA-G-40: without a slave, with a slave that is silent, and with a disk to wait for."""
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER, "sync")
    client = stand.client()
    client.send(message())
    assert client.statuses(1) == ["SLAVE_NOT_AVAILABLE"]
    assert stand.log.flushed_offset == stand.log.max_offset
    stand.master.close()  # before the store is opened again
    stand.finish()
    stand.stack.pop_all().close()
    with ExitStack() as again:
        stand = Stand(again, tmp_path / "t", BrokerRole.SYNC_MASTER, sync_flush_timeout_ms=50)
        stand.slave()
        client = stand.client()
        client.send(message())
        assert client.statuses(1) == ["FLUSH_SLAVE_TIMEOUT"]


def test_what_the_store_refuses_is_the_answer_and_the_next_line_is_put(stack: ExitStack, tmp_path: Path) -> None:
    """HA-G-9: a topic of 128 bytes, properties of 32 KiB, a body of 4 MiB and a byte, bytes that are no line; a full disk."""
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send(message(topic="t" * 128), message(properties={"a": "b" * 32768}))
    client.send_raw(b"\0\xff garbage\n\n{}\n")
    client.send(message("x" * (4 * 1024 * 1024 + 1)), message("is put"))
    found = client.answers(7)
    assert [line["status"] for line in found] == [
        "MESSAGE_ILLEGAL",
        "PROPERTIES_SIZE_EXCEEDED",
        *["MESSAGE_ILLEGAL"] * 4,
        "PUT_OK",
    ]
    assert found[0]["error"] == "message topic: found 128 bytes, expected 1 to 127 bytes"
    assert "at most 4194304 bytes" in found[5]["error"]
    stand.log.refuse(lambda: StoreFull("f", "0 bytes", "1 MiB"))
    client.send(message())
    stand.until(lambda: len(client.lines()) == 8)
    assert client.lines()[7]["status"] == "SERVICE_NOT_AVAILABLE"
    stand.log.refuse(None)
    client.send(message("is put too"))
    stand.until(lambda: len(client.lines()) == 9)
    assert stand.bodies() == [b"is put", b"is put too"]


@pytest.mark.parametrize("kind", ("goes away", "ends its stream"))
def test_half_a_line_is_never_put(stack: ExitStack, tmp_path: Path, kind: str) -> None:
    """Not even if only its newline is missing; the whole lines before it are put."""
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    client.send(message("whole"))
    client.send_raw(json.dumps(message("half")).encode())
    if kind == "goes away":
        client.sock.close()
    else:
        client.sock.shutdown(socket.SHUT_WR)
        found = client.answers(2)
        assert found[1]["error"] == "message line: found the end of the stream, expected a newline"
    stand.until(lambda: not stand.socket._clients)
    assert stand.bodies() == [b"whole"]


def test_a_line_without_end_keeps_no_memory_and_the_lines_behind_it_are_put(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINE_SIZE", 100_000)
    stand = Stand(stack, tmp_path / "s")
    client = stand.client()
    for _ in range(100):
        client.send_raw(b"x" * 100_000)
        (theirs,) = stand.socket._clients.values()
        assert len(theirs.line) <= 100_000 + module.READ_TURN
    client.send_raw(b"\n")
    client.send(message("behind"))
    found = client.answers(2)
    assert found[0]["error"] == "message line: found more than 100000 bytes, expected at most 100000"
    assert (found[1]["status"], stand.bodies()) == ("PUT_OK", [b"behind"])


def test_a_client_that_goes_away_leaves_its_puts_to_end(stack: ExitStack, tmp_path: Path) -> None:
    """As after kill -9: its puts wait for a slave, and puts of another client are queued after them."""
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER)
    slave, leaving, staying = stand.slave(), stand.client(), stand.client()
    leaving.send(*[message("leaves")] * 100)
    stand.until(lambda: stand.socket.waiting == 100)
    leaving.sock.close()
    staying.send(message("stays"))
    stand.until(lambda: len(stand.bodies()) == 102)
    stand.acknowledge(slave)
    assert staying.statuses(1) == ["PUT_OK"]
    stand.until(lambda: len(stand.socket._clients) == 2)  # `staying`, and the client that put the first message for the slave
    assert len(stand.master.service.group_transfer) == 0


def test_who_has_many_puts_waiting_is_not_read_from(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 10)
    monkeypatch.setattr(module, "READ_TURN", 1)
    monkeypatch.setattr(module, "LEAST_READ", 100)
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER)
    slave, client = stand.slave(), stand.client()
    client.send(*[message()] * 200)
    for _ in range(300):
        stand.turn()
    assert 10 <= stand.socket.waiting <= 14  # the lines of one read may exceed the limit
    until = time.monotonic() + PATIENCE_S
    while len(client.lines()) < 200:
        assert time.monotonic() < until
        stand.acknowledge(slave)
        stand.turn()
    assert client.statuses(200) == ["PUT_OK"] * 200


def test_who_takes_no_answers_or_ends_no_line_is_closed_and_the_others_are_served(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.3)
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    monkeypatch.setattr(module, "READ_TURN", 3000)
    monkeypatch.setattr(module, "LEAST_READ", 3000)
    stand = Stand(stack, tmp_path / "s")
    stalled, half, idle = stand.client(), stand.client(), stand.client()
    half.send_raw(b'{"topic"')
    stalled.send_raw(b"{}\n" * 20_000)
    stand.until(lambda: max(len(client.out) for client in stand.socket._clients.values()) >= module.MAX_OUT_SIZE)
    for _ in range(20):
        stand.turn()
        most = max(len(client.out) for client in stand.socket._clients.values())
        assert most <= module.MAX_OUT_SIZE + 1000 * 200  # the answers to one read of a thousand lines may exceed the limit
    stand.until(lambda: len(stand.socket._clients) == 1)
    assert half.receive()
    idle.send(message("served"))
    assert idle.statuses(1) == ["PUT_OK"]


def test_a_hundred_clients_are_served_in_turn(stack: ExitStack, tmp_path: Path) -> None:
    """Only a few are served at a time; the others wait for their greeting until a place is free."""
    stand = Stand(stack, tmp_path / "s")
    clients = [stand.client(waits=False) for _ in range(100)]
    for index, client in enumerate(clients):
        client.send(*[message(f"{index}-{each}") for each in range(5)])
    stand.until(lambda: len(stand.socket._clients) == module.MAX_CLIENTS)
    for _ in range(20):
        stand.turn()
        assert len(stand.socket._clients) == module.MAX_CLIENTS
    for client in clients:
        client.sock.shutdown(socket.SHUT_WR)
    stand.until(lambda: all(client.receive() for client in clients))
    assert {tuple(client.statuses(5)) for client in clients} == {("PUT_OK",) * 5}
    assert sorted(stand.bodies()) == sorted(f"{index}-{each}".encode() for index in range(100) for each in range(5))


def test_a_master_that_ends_tells_how_waiting_puts_have_ended(stack: ExitStack, tmp_path: Path) -> None:
    """HA-G-6; after the answers the last line says that nothing else was put."""
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER)
    stand.slave()
    client = stand.client()
    client.send(*[message()] * 50, {"topic": "t"})
    stand.until(lambda: stand.socket.waiting == 51)
    client.send(message("is never read"))
    stand.finish()
    assert len(stand.master.service.group_transfer) == 0
    assert client.receive()
    *answers, last = client.lines()
    assert [line["status"] for line in answers] == ["FLUSH_SLAVE_TIMEOUT"] * 50 + ["MESSAGE_ILLEGAL"]
    assert last == {"end": "the master has ended: what it has not answered it has not put"}


def test_a_store_where_the_name_is_taken_is_served_without_puts(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / SOCKET_NAME).write_text("mine")
    stand = Stand(stack, tmp_path / "s")
    stand.turn()
    stand.finish()
    assert "no puts are taken: something that is no socket has its name" in caplog.text
    assert (tmp_path / "s" / SOCKET_NAME).read_text() == "mine"
