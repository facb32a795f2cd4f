"""`rocketmq-ha tail`: every message once, in order, through rolls, cut links, kills and restarts; it acknowledges no put."""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
import zlib
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kit.nodes
from kit.children import Child
from kit.command_line import COMMAND
from kit.sockets import kept_port
from kit.waiting import PATIENCE_S, accepted, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.impl.app.cursor import Position, read_cursor, write_cursor
from rocketmq_ha.impl.app.message_json import BODIES, message_line
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation
from rocketmq_ha.impl.ha.feed import LARGEST_BODY, NotARecord, Pieces, Records
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 64 * 1024
# Waiting puts of these masters end within moments; the default of ten seconds is meant for brokers.
QUICK = ("--settle", "0")


class Tail:
    """A `tail` process whose standard output goes to a file, or to the test."""

    def __init__(self, *arguments: object, out: Path | None = None) -> None:
        command = [*COMMAND, "tail", *map(str, arguments)]
        with out.open("ab") if out else ExitStack() as file:
            stdout: Any = file if out else subprocess.PIPE
            self.process = Child(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)

    def end(self, number: int | None = None) -> tuple[int, list[dict[str, Any]], str]:
        """Wait for its end, after a signal if one is given. Returns: its exit status, lines and log."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        lines = [json.loads(line) for line in (out or b"").splitlines()]
        return self.process.returncode, lines, err.decode()


def run(*arguments: object) -> tuple[int, list[dict[str, Any]], str]:
    return Tail(*arguments).end()


def serve(nodes: ExitStack, store: Path, *more: str, port: str = "0") -> tuple[Node, str]:
    return kit.nodes.serve(nodes, store, "--sync", "0", *more, file_size=FILE_SIZE, port=port)


def offsets(lines: list[dict[str, Any]]) -> list[int]:
    return [line["commit_log_offset"] for line in lines]


def stored(store: Path) -> list[int]:
    """Offsets of all messages of a store."""
    with LogReader(store) as reader:
        return [offset for offset, _, _ in reader.records()]


@pytest.fixture
def filled(tmp_path: Path, nodes: ExitStack) -> tuple[Path, str]:
    """Run a master with 1,000 messages in several files. Gives its store and its address."""
    store = tmp_path / "a"
    node, address = serve(nodes, store, "--put", "1000", "--size", "300")
    node.line("put")
    return store, address


# --- Sans-I/O --------------------------------------------------------------------------------------------------------


def log_bytes(tmp: Path) -> tuple[bytes, list[tuple[int, bytes]]]:
    """A log of four files with BLANKs, and its records."""
    with CommitLog.open(tmp / "log", file_size=1024) as log:
        for index in range(16):
            log.append(Message("topic", b"x" * (index * 37 % 200), queue_id=index))
    data = b"".join(file.read_bytes() for file in sorted((tmp / "log" / "commitlog").iterdir()))
    with LogReader(tmp / "log") as reader:
        records = [(offset, data[offset : offset + size]) for offset, size, _ in reader.records()]
        return data[: reader.max_offset], records


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[tuple[int, bytes]]]:
    return log_bytes(tmp_path_factory.mktemp("tail"))


@settings(deadline=None, max_examples=60)
@given(
    first=st.integers(0, 15), sizes=st.lists(st.integers(0, 300), min_size=1), cuts=st.lists(st.integers(1, 400), min_size=1)
)
def test_any_framing_and_any_fragments_give_the_same_records(log: Any, first: int, sizes: list[int], cuts: list[int]) -> None:
    """HA-W-8, HA-W-10: frames begin anywhere in a record, and reads end anywhere in a frame."""
    content, expected = log
    start = expected[first][0]
    wire, at = bytearray(), start
    for wanted in chain(sizes, repeat(100)):
        if at == len(content):
            break
        size = min(wanted, len(content) - at)
        wire += HEADER.pack(at, size) + content[at : at + size]
        at += size
    pieces, records, found = Pieces("peer"), Records(start), []
    for cut in chain(cuts, repeat(50)):
        if not wire:
            break
        for _, piece in pieces.take(memoryview(bytes(wire[:cut]))):
            found += list(records.take(piece))
        del wire[:cut]
    assert found == [record for record in expected if record[0] >= start]
    assert pieces.next_offset == records.next_offset == len(content)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (HEADER.pack(0, -1), "body size of -1"),
        (HEADER.pack(0, LARGEST_BODY + 1), f"body size of {LARGEST_BODY + 1}"),
        (HEADER.pack(-5, 0), "offset -5"),
        (HEADER.pack(7, 0) + HEADER.pack(8, 0), "offset 8, expected offset 7"),
        (b"HTTP/1.1 400 Bad Request\r\n", "body size of"),
    ],
)
def test_a_frame_that_cannot_be_is_refused_by_its_header(header: bytes, told: str) -> None:
    with pytest.raises(PeerViolation, match=told):
        list(Pieces("peer").take(memoryview(header)))


def test_a_place_that_is_no_record_is_told_at_once(log: Any) -> None:
    content, records = log
    second = records[1][0]
    for start, part, told in (
        (second + 4, content[second + 4 : second + 12], "magic"),
        (second, b"\xff" + content[second + 1 : second + 8], "total size"),
        (second + 1, content[second:], f"offset {second}, expected one of offset {second + 1}"),
        (0, (7).to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big"), "BLANK of 7"),
    ):
        with pytest.raises(NotARecord, match=told):
            list(Records(start).take(memoryview(part)))


def test_a_line_is_json_with_the_message_decompressed() -> None:
    text = 'grün "\x9b\x7f\u2028'
    message = Message(
        "orders",
        zlib.compress(text.encode()),
        queue_id=3,
        queue_offset=9,
        sys_flag=0x11 | 0x8,
        born_host=("::1", 5),
        born_timestamp=1_700_000_000_123,
        store_timestamp=1 << 62,
        properties_string="KEYS\x01k1 k2\x02TAGS\x01a\x02odd\x01\udcff",
    )
    line = message_line(100, len(encode(message)), message, "text")
    assert not any(byte < 32 or byte == 0x7F for byte in line[:-1])
    assert "\x9b" not in line.decode()
    fields = json.loads(line)
    assert fields["body"] == text
    assert (fields["commit_log_offset"], fields["next_offset"]) == (100, 100 + len(encode(message)))
    assert (fields["tags"], fields["keys"], fields["properties"]["odd"]) == ("a", ["k1", "k2"], "\ufffd")
    assert (fields["born_time"], fields["store_time"]) == ("2023-11-14T22:13:20.123Z", 1 << 62)
    assert (fields["born_host"], fields["transaction"]) == ("[::1]:5", "commit")
    assert json.loads(message_line(0, 1, message, "base64"))["body_base64"] == base64.b64encode(text.encode()).decode()
    raw = json.loads(message_line(0, 1, message, "raw"))
    assert (base64.b64decode(raw["body_base64"]), raw["body_is_stored"]) == (message.body, True)


@pytest.mark.parametrize(
    ("stored_body", "sys_flag", "mode", "field", "value"),
    [
        (b'{"a": [1, null]}', 0, "json", "body_json", {"a": [1, None]}),
        (b'{"a": NaN}', 0, "json", "body", '{"a": NaN}'),
        (b"no json", 0, "json", "body", "no json"),
        (b"\xff\xfe", 0, "text", "body_base64", "//4="),
        (b"\xff\xfe", 0, "none", "body_size", 2),
        (b"lz4", 0x101, "text", "body_is_stored", True),
        (b"no zlib", 0x1, "text", "body_base64", base64.b64encode(b"no zlib").decode()),
    ],
)
def test_a_body_is_shown_as_it_can_be(stored_body: bytes, sys_flag: int, mode: str, field: str, value: object) -> None:
    assert json.loads(message_line(0, 1, Message("t", stored_body, sys_flag=sys_flag), mode))[field] == value


def test_a_stdout_writer_passes_marks_as_lines_are_written_whole() -> None:
    reader, writer = os.pipe()
    stdout: StdoutWriter[int] = StdoutWriter(writer)
    stdout.put(b"", 1)
    assert stdout.reached == 1
    stdout.put(b"a" * 200_000 + b"\n", 2)  # more than a pipe holds
    stdout.put(b"", 3)
    stdout.put(b"b\n", 4)
    stdout.write()
    assert stdout.reached == 1
    assert stdout.finish_line()  # drops the second line, but not the half-written one
    got = b""
    while not stdout.is_empty:
        got += os.read(reader, 65536)
        stdout.write()
    assert (stdout.reached, stdout.pending_size) == (2, 0)
    while select.select([reader], [], [], 0)[0]:
        got += os.read(reader, 65536)
    assert got == b"a" * 200_000 + b"\n"
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        stdout.write()
    os.close(writer)


def test_a_cursor_is_what_was_written_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    assert read_cursor(path) is None
    write_cursor(path, Position(5))
    write_cursor(path, Position(500, 400, 100, 77))
    assert read_cursor(path) == Position(500, 400, 100, 77)
    assert [entry.name for entry in tmp_path.iterdir()] == ["cursor"]
    for text in (
        "",
        "[]",
        "{}",
        '{"version": 2, "next_offset": 1}',
        '{"version": 1, "next_offset": "1"}',
        '{"version": 1, "x": 1}',
    ):
        path.write_text(text)
        with pytest.raises(ConfigInvalid, match="cursor"):
            read_cursor(path)


# --- Processes -------------------------------------------------------------------------------------------------------


def test_every_message_of_every_file_is_printed(filled: tuple[Path, str]) -> None:
    store, address = filled
    status, lines, _ = run("--master", address, "--from", "min", "--stop-at-end", "--body", "base64")
    assert status == 0
    with LogReader(store) as reader:
        expected = [(at, at + size, message) for at, size, message in reader.records()]
        assert len(reader.files) > 5
    assert [(line["commit_log_offset"], line["next_offset"]) for line in lines] == [row[:2] for row in expected]
    assert [base64.b64decode(line["body_base64"]) for line in lines] == [message.body for _, _, message in expected]
    assert [line["queue_offset"] for line in lines] == [message.queue_offset for _, _, message in expected]
    assert lines[41]["keys"] == ["41"]


@pytest.mark.parametrize("body", BODIES)
def test_inspect_query_and_tail_print_the_same_line(body: str, tmp_path: Path, nodes: ExitStack) -> None:
    store = tmp_path / "a"
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append(
            Message(
                "orders",
                zlib.compress('{"n": [1, "é"]}'.encode()),
                queue_id=3,
                flag=7,
                sys_flag=0x1 | 0x8 | 0x20,
                born_timestamp=1_700_000_000_001,
                store_timestamp=1_700_000_000_123,
                store_host=("2001:db8::1", 10911),
                reconsume_times=2,
                prepared_transaction_offset=1 << 40,
                properties_string="KEYS\x01k1 k2\x02TAGS\x01a\x02UNIQ_KEY\x01u\u2028",
            )
        )
    _, address = serve(nodes, store)
    commands = (
        ["inspect", store, "--json"],
        ["query", store, "--topic", "orders", "--key", "k2", "--json"],
        ["tail", "--master", address, "--limit", "1"],
    )
    found = [
        subprocess.run(
            [*COMMAND, *map(str, command), "--body", body], stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
        ).stdout
        for command in commands
    ]
    assert found[0].count(b"\n") == 1
    assert found == [found[0]] * 3
    fields = json.loads(found[0])
    assert (fields["commit_log_offset"], fields["queue_id"], fields["transaction"]) == (0, 3, "commit")
    told = Path(__file__).parents[2].joinpath("docs", "messages.md").read_text("utf-8")
    assert all(f"`{name}`" in told for name in fields)


def test_last_begins_at_the_last_file(filled: tuple[Path, str]) -> None:
    store, address = filled
    status, lines, _ = run("--master", address, "--limit", "3", "--topic", "rocketmq-ha")
    last_file = max(offset - offset % FILE_SIZE for offset in stored(store))
    assert status == 0
    assert offsets(lines) == [offset for offset in stored(store) if offset >= last_file][:3]


def test_a_cursor_resumes_without_gap_or_duplicate(filled: tuple[Path, str], tmp_path: Path) -> None:
    """From old files, from the last one, and across their borders."""
    store, address = filled
    found: list[int] = []
    for limit in (1, 100, 149, 1, 249, 400, 100):
        arguments = ("--master", address, "--from", "min", "--cursor", tmp_path / "c", "--limit", limit, *QUICK)
        status, lines, log = run(*arguments)
        assert (status, len(lines)) == (0, limit), log
        found += offsets(lines)
    assert found == stored(store)


def test_a_killed_tail_repeats_a_little_and_loses_nothing(filled: tuple[Path, str], tmp_path: Path) -> None:
    store, address = filled
    out, cursor = tmp_path / "out", tmp_path / "c"
    arguments = ("--master", address, "--from", "min", "--cursor", cursor, *QUICK)
    serving = Tail(*arguments, out=out)
    wait_for(lambda: cursor.exists() and out.exists() and out.read_bytes().count(b"\n") > 200)
    serving.end(signal.SIGKILL)
    serving = Tail(*arguments, out=out)
    wait_for(lambda: f'"commit_log_offset":{stored(store)[-1]},'.encode() in out.read_bytes())
    assert serving.end(signal.SIGTERM)[0] == 0
    seen, torn = [], 0
    for line in out.read_bytes().splitlines():
        try:
            seen.append(json.loads(line)["commit_log_offset"])
        except ValueError:
            torn += 1  # the kill came within a line
    assert torn <= 1 and sorted(set(seen)) == stored(store)
    assert read_cursor(cursor) == read_cursor(cursor)._replace(last_offset=stored(store)[-1])  # type: ignore[union-attr]


@pytest.mark.parametrize(("left", "torn"), [(b'{"commit_log_', 1), (b"{}\n", 0), (b"", 0)])
def test_a_line_that_a_killed_tail_has_left_half_is_ended(
    filled: tuple[Path, str], tmp_path: Path, left: bytes, torn: int
) -> None:
    """Else the first line of the next one would be lost in it."""
    store, address = filled
    out = tmp_path / "out"
    out.write_bytes(left)
    following = Tail("--master", address, "--from", "min", "--limit", len(stored(store)), *QUICK, out=out)
    assert following.end()[0] == 0
    lines = out.read_bytes().removeprefix(left + b"\n" * torn).splitlines()
    assert [json.loads(line)["commit_log_offset"] for line in lines] == stored(store)


def test_a_tail_follows_a_master_through_its_kill_and_restart(tmp_path: Path, nodes: ExitStack) -> None:
    store, out = tmp_path / "a", tmp_path / "out"
    port = str(nodes.enter_context(kept_port())[1])
    node, address = serve(nodes, store, "--put", "300", "--size", "300", port=port)
    node.line("put")
    following = Tail("--master", address, "--from", "min", "--cursor", tmp_path / "c", *QUICK, out=out)
    nodes.callback(following.process.kill)
    wait_for(lambda: out.read_bytes().count(b"\n") == 300)
    node.kill()
    again, _ = serve(nodes, store, "--put", "500", "--size", "300", port=port)
    again.line("put")
    wait_for(lambda: out.read_bytes().count(b"\n") >= 800)
    assert following.end(signal.SIGINT)[0] == 0
    assert [json.loads(line)["commit_log_offset"] for line in out.read_bytes().splitlines()] == stored(store)


def test_cuts_in_headers_and_bodies_lose_and_repeat_nothing(filled: tuple[Path, str]) -> None:
    store, address = filled
    cuts = [PlannedCut(60_000 * n, header_bytes) for n, header_bytes in enumerate((5, 0, 11, 0, 1), 1)]
    proxy = CuttingProxy(parse_address(address), cuts)
    try:
        status, lines, log = run("--master", proxy.address, "--from", "min", "--limit", "1000", *QUICK)
    finally:
        proxy.close()
    assert status == 0, log
    assert offsets(lines) == stored(store)
    assert (proxy.cuts_in_header, proxy.cuts_in_body) == (3, 2)
    assert "connecting again" in log


def test_end_gives_only_what_comes_from_now_on(filled: tuple[Path, str], tmp_path: Path, nodes: ExitStack) -> None:
    store, _ = filled
    nodes.pop_all().close()  # the master of the fixture
    before = stored(store)
    port = str(nodes.enter_context(kept_port())[1])
    node, address = serve(nodes, store, port=port)
    following = Tail("--master", address, "--from", "end", "--limit", "20", "--cursor", tmp_path / "c")
    wait_for((tmp_path / "c").exists)
    node.stop()
    serve(nodes, store, "--put", "20", "--size", "10", port=port)[0].line("put")
    status, lines, log = following.end()
    assert status == 0, log
    assert offsets(lines) == stored(store)[len(before) :]


@pytest.mark.parametrize("profile", ["classic", "hardened"])
def test_a_tail_acknowledges_no_put(profile: str, tmp_path: Path, nodes: ExitStack) -> None:
    """HA-W-9: tail receives the whole log, and each put that waits for a replica ends without one (quirk 1)."""
    store = tmp_path / "a"
    serve(nodes, store, "--put", "50", "--size", "300")[0].line("put")
    nodes.pop_all().close()
    more = ("--profile", profile, "--put", "4", "--size", "10", "--await-slaves", "1", "--sync", "1")
    node, address = serve(nodes, store, *more)
    following = Tail("--master", address, "--limit", "54", "--from", "min", *QUICK)
    # tail gets 50 messages, and a slave would acknowledge them: hardened waits for that in vain (HA-G-5).
    outcome = {"classic": ["FLUSH_SLAVE_TIMEOUT=4"], "hardened": ["SLAVE_NOT_AVAILABLE=4"]}[profile]
    assert node.line("put").split()[3:] == outcome
    assert offsets(following.end()[1]) == stored(store)


def scripted_master(*answers: bytes, hold_s: float = 0) -> tuple[str, list[bytes]]:
    """Start a peer that answers the first report of each connection with these bytes.

    Returns: its address, and all it received.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    told: list[bytes] = []

    def talk() -> None:
        for answer in answers:
            sock = accepted(listener)
            with sock:
                told.append(b"")
                told[-1] += sock.recv(8)
                sock.sendall(answer)
                sock.settimeout(0.05)
                until = time.monotonic() + hold_s
                while time.monotonic() < until:
                    try:
                        data = sock.recv(64)
                    except TimeoutError:
                        continue
                    if not data:
                        break
                    told[-1] += data
        listener.close()

    threading.Thread(target=talk, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}", told


def test_a_report_is_repeated_and_never_grows() -> None:
    record = encode(Message("t", b"x", physical_offset=4096))
    address, told = scripted_master(HEADER.pack(4096, len(record)) + record, hold_s=PATIENCE_S)
    following = Tail("--master", address, "--heartbeat", "100", "--from", 4096)
    wait_for(lambda: told and len(told[0]) > 40)
    _, lines, _ = following.end(signal.SIGTERM)
    assert offsets(lines) == [4096]
    assert {told[0][at : at + 8] for at in range(0, len(told[0]), 8)} == {REPORT.pack(0)}


def test_an_old_offset_is_reported_only_when_no_put_can_wait_for_it() -> None:
    """The master has just begun its last file: tail waits before it reports an earlier offset."""
    fresh = encode(Message("t", b"x" * 90, physical_offset=4096, store_timestamp=int(time.time() * 1000)))
    old = encode(Message("t", b"y", physical_offset=100))
    answers = HEADER.pack(4096, len(fresh)) + fresh, HEADER.pack(100, len(old)) + old
    address, told = scripted_master(*answers, hold_s=0.1)
    started = time.monotonic()
    status, lines, log = run("--master", address, "--from", 100, "--limit", 1, "--settle", 1.5)
    assert (status, offsets(lines)) == (0, [100])
    assert time.monotonic() - started > 1.5
    assert "has just begun file 4096" in log
    assert [first[:8] for first in told] == [REPORT.pack(0), REPORT.pack(100)]


def test_a_silent_master_is_noticed() -> None:
    address, _ = scripted_master(HEADER.pack(0, 0), hold_s=PATIENCE_S)
    with MasterFeed(parse_address(address), 0, housekeeping_ms=200) as feed:
        feed.first(lambda: False)
        with pytest.raises(FeedEnded, match="silent"):
            while True:
                feed.tick()


def test_a_master_outlives_a_refused_report_and_a_connect_in_one_turn(tmp_path: Path) -> None:
    """The new connection gets the descriptor of the refused one before the turn ends."""
    with CommitLog.open(tmp_path / "a", file_size=FILE_SIZE) as log:
        master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE, master_read_buffer_size=4096), HARDENED)
        try:
            with socket.create_connection(master.address, timeout=PATIENCE_S) as refused:
                master.poll(100)
                refused.sendall(REPORT.pack(1 << 62))
                with socket.create_connection(master.address, timeout=PATIENCE_S) as healthy:
                    master.poll(100)
                    assert [conn.peer.rpartition(":")[2] for conn in master.service.connections] == [
                        str(healthy.getsockname()[1])
                    ]
                    assert refused.recv(1) == b""
        finally:
            master.close()


# --- Errors and ends -------------------------------------------------------------------------------------------------


def last_line(log: str) -> str:
    return log.splitlines()[-1]


def test_mistakes_and_lost_places_are_told_in_one_line(filled: tuple[Path, str], tmp_path: Path) -> None:
    store, address = filled
    end = stored(store)[-1]
    inside = stored(store)[3] + 1
    elsewhere = tmp_path / "elsewhere"
    write_cursor(elsewhere, Position(stored(store)[-1], stored(store)[-2], 3, 4))
    write_cursor(tmp_path / "ahead", Position(end + 5000, end + 4000, 1000, 4))
    cases: list[tuple[tuple[object, ...], str]] = [
        (("--from", inside), f"offset {inside} is not the start of a message"),
        (("--from", 1 << 60), "beyond the master's end"),
        (("--cursor", tmp_path / "ahead"), "beyond the master's end"),
        (("--cursor", elsewhere), "not the one that was read before"),
        (("--from", "x"), "expected last, min, end or a commit-log offset"),
        (("--cursor", tmp_path / "none" / "c"), "directory does not exist"),
    ]
    running = [(Tail("--master", address, *arguments, *QUICK), told) for arguments, told in cases]
    for process, told in running:
        status, lines, log = process.end()
        assert (status, lines) == (2, []), log
        assert told in last_line(log)
        assert "Traceback" not in log


def test_a_deleted_offset_is_out_of_range(filled: tuple[Path, str], nodes: ExitStack) -> None:
    store, _ = filled
    all_of_it = stored(store)
    (store / "commitlog" / f"{0:020d}").unlink()
    (store / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    for profile in ("classic", "hardened"):
        nodes.pop_all().close()
        _, address = serve(nodes, store, "--profile", profile)
        status, _, log = run("--master", address, "--from", all_of_it[3], *QUICK)
        assert (status, "out of the master's range" in last_line(log)) == (2, True), log
    status, lines, log = run("--master", address, "--from", "min", "--file-size", FILE_SIZE, "--limit", 5)
    assert offsets(lines) == [offset for offset in all_of_it if offset >= 2 * FILE_SIZE][:5], log


def test_what_is_no_master_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = listener.getsockname()[1]
    assert "cannot connect: Connection refused" in last_line(run("--master", f"127.0.0.1:{gone}")[2])
    address, _ = scripted_master(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "body size of" in last_line(run("--master", address)[2])
    address, _ = scripted_master(b"")
    assert "closed the connection" in last_line(run("--master", address)[2])


def test_a_reader_that_has_enough_ends_it_even_while_nothing_comes(filled: tuple[Path, str]) -> None:
    following = Tail("--master", filled[1])
    assert following.process.stdout is not None
    following.process.stdout.readline()
    following.process.stdout.close()
    assert following.process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert following.process.stderr is not None
    assert b"Traceback" not in following.process.stderr.read()


def test_a_reader_that_reads_nothing_keeps_it_neither_from_reporting_nor_from_ending(tmp_path: Path, nodes: ExitStack) -> None:
    store, cursor = tmp_path / "a", tmp_path / "c"
    node, address = serve(nodes, store, "--put", "8000", "--size", "300")
    node.line("put")
    following = Tail("--master", address, "--from", "min", "--cursor", cursor, "--heartbeat", "50")
    wait_for(cursor.exists)
    time.sleep(1.5)
    assert following.process.poll() is None
    following.process.send_signal(signal.SIGTERM)
    assert following.process.wait(PATIENCE_S) == 0
    assert following.process.stdout is not None
    lines = following.process.stdout.read().splitlines(keepends=True)
    assert 0 < len(lines) < 8000
    position = read_cursor(cursor)
    whole = [json.loads(line) for line in lines if line.endswith(b"\n")]
    assert position is not None
    assert position.next_offset == whole[-1]["next_offset"]
