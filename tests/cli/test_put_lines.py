"""`put` within this process: its rows, the lines it sends, its counts and its exit status. A socket pair is the master."""

import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import PATIENCE_S, await_end
from rocketmq_ha.impl.app.put_lines import Line, LineSource, MessageFields, json_maker, text_maker
from rocketmq_ha.impl.app.putter import Putter
from rocketmq_ha.impl.app.stdout_writer import FULL_SIZE, StdoutWriter
from rocketmq_ha.impl.cli import put as put_module
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.net.put_client import PutService

ANSWER = {"status": "PUT_OK", "msg_id": "0A0B", "commit_log_offset": 1_234, "store_size": 56, "queue_offset": 78}


# --- Rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ANSWER, "      9  PUT_OK               offset 1234           queue offset 78          0A0B"),
        (
            ANSWER | {"status": "SLAVE_NOT_AVAILABLE"},
            "      9  SLAVE_NOT_AVAILABLE  offset 1234           queue offset 78          0A0B",
        ),
        ({"status": "MESSAGE_ILLEGAL", "error": "a\x1b[2Jb\n"}, "      9  MESSAGE_ILLEGAL      a·[2Jb·"),
    ],
)
def test_a_row_for_people(answer: dict[str, Any], expected: str) -> None:
    assert put_module._row(False)(9, answer) == expected


@pytest.mark.parametrize(("columns", "shows_id"), [(109, False), (110, True)])
def test_a_narrow_terminal_shows_no_id(columns: int, shows_id: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    row = put_module._row(False)(9, ANSWER)
    assert row == "      9  PUT_OK               offset 1234           queue offset 78" + ("          0A0B" if shows_id else "")


def test_a_row_of_json_has_the_line_and_the_answer() -> None:
    assert json.loads(put_module._row(True)(9, ANSWER)) == {"line": 9} | ANSWER


# --- Lines to send -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line", "expected"),
    [
        (MessageFields(), {"topic": "a"}, None),
        (MessageFields(topic="t"), {"topic": "a", "x": 1}, {"topic": "t", "x": 1}),
        (MessageFields(queue_id=0), {"topic": "a", "queue_id": 5}, {"topic": "a", "queue_id": 0}),
        (
            MessageFields(tags="g"),
            {"tags": "h", "keys": "k", "properties": {"TAGS": "i", "KEYS": "j"}},
            {"tags": "g", "keys": "k", "properties": {"KEYS": "j"}},
        ),
        (
            MessageFields(keys="g"),
            {"tags": "h", "properties": {"TAGS": "i", "KEYS": "j"}},
            {"tags": "h", "keys": "g", "properties": {"TAGS": "i"}},
        ),
        (
            MessageFields(properties=(("p", "1"), ("q", "2"))),
            {"properties": {"p": "0", "r": "3"}},
            {"properties": {"p": "1", "q": "2", "r": "3"}},
        ),
        (MessageFields(properties=(("p", "1"),)), {"properties": "none"}, {"properties": {"p": "1"}}),
        (MessageFields(topic="t"), [1], None),
    ],
)
def test_an_option_replaces_the_value_of_a_line(options: MessageFields, line: object, expected: object) -> None:
    sent = json.dumps(line).encode()
    made = json_maker(options)(sent)
    assert isinstance(made, bytes)
    assert (made == sent) if expected is None else (json.loads(made) == expected)


@pytest.mark.parametrize("line", [b"no json", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_json_is_sent_as_it_is(line: bytes) -> None:
    assert json_maker(MessageFields(topic="t"))(line) == line


@pytest.mark.parametrize(
    ("options", "body", "expected"),
    [
        (MessageFields(), b"x", b'{"body":"x"}'),
        (MessageFields(topic="t", queue_id=3), b"x", b'{"topic":"t","queue_id":3,"body":"x"}'),
        (MessageFields(topic="t"), b"", b'{"topic":"t","body":""}'),
        (MessageFields(topic="t"), b"\xc3", b'{"topic":"t","body_base64":"ww=="}'),
        (MessageFields(topic="t"), "é".encode(), b'{"topic":"t","body_base64":"w6k="}'),
        # Escaped text has six bytes for one. It is sent as text while it is at most four thirds of the body, and 4 bytes more.
        (MessageFields(), b"\x01" + b"x" * 8, b'{"body":"\\u0001xxxxxxxx"}'),
        (MessageFields(), b"\x01" + b"x" * 7, b'{"body_base64":"AXh4eHh4eHg="}'),
    ],
)
def test_a_body_is_sent_as_text_or_as_base64(options: MessageFields, body: bytes, expected: bytes) -> None:
    assert text_maker(options)(body) == expected


def lines_of(data: bytes, limit: int, is_text: bool) -> list[Line]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        source = LineSource(file.fileno(), lambda line: line, limit, is_text)
        while source.fd is not None:
            source.read()
    return list(source.lines)


@pytest.mark.parametrize(("is_text", "told"), [
    (True, "message body: found 11 bytes, expected at most 4194304 bytes"),
    (False, "message line: found 11 bytes, expected at most 10 bytes as JSON, a body of 4 MiB in base64"),
])  # fmt: skip
def test_a_line_may_be_as_long_as_the_master_says(is_text: bool, told: str) -> None:
    first, second, third = lines_of(b"x" * 10 + b"\n" + b"y" * 11 + b"\n" + b"z", 10, is_text)
    assert (first, str(second), third) == (b"x" * 10, told, b"z")


def test_a_last_line_without_its_newline_counts_and_an_empty_one_does_not() -> None:
    assert lines_of(b"a\nb", 10, False) == [b"a", b"b"]
    assert lines_of(b"a\n\n", 10, False) == [b"a", b""]
    assert lines_of(b"", 10, False) == []


def test_a_last_line_that_is_too_long_is_refused_also_without_its_newline() -> None:
    first, second = lines_of(b"a\n" + b"y" * 11, 10, False)
    assert (first, str(second).partition(",")[0]) == (b"a", "message line: found more than 10 bytes")


def test_a_line_that_comes_in_pieces_is_given_up_as_soon_as_it_is_too_long() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as end, os.fdopen(reading, "rb", 0):
        source = LineSource(reading, lambda line: line, 10)
        for piece in (b"123456", b"78901", b"23\nnext\n"):
            end.write(piece)
            source.read()
    first, second = source.lines
    assert (str(first).partition(",")[0], second) == ("message line: found more than 10 bytes", b"next")


def test_a_refusal_names_what_was_sent_not_what_was_read() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"abc\n")
        file.seek(0)
        source = LineSource(file.fileno(), lambda line: line * 5, 10)
        source.read()
    assert "found 15 bytes" in str(source.lines[0])


# --- A master at the other end -------------------------------------------------------------------------------------------


def served(
    lines: list[Line], answers: Callable[[bytes], dict[str, Any]], in_flight: int, quiet: bool = False
) -> tuple[Putter, list[dict[str, Any]], int]:
    """Put these lines. Returns: the putter, the rows, and the most lines that were unanswered at a time."""
    ours, masters = socket.socketpair()
    ours.setblocking(False)
    source = LineSource(None, lambda line: line, 1 << 20)
    source.lines.extend(lines)
    most = 0

    def serve() -> None:
        """Answer only once nothing more comes."""
        nonlocal most
        masters.settimeout(0.02)
        waiting = b""
        while True:
            try:
                data = masters.recv(1 << 16)
                if not data:
                    return
                waiting += data
                continue
            except TimeoutError:
                pass
            except OSError:
                return
            *whole, waiting = waiting.split(b"\n")
            most = max(most, len(whole))
            masters.sendall(b"".join(json.dumps(answers(line)).encode() + b"\n" for line in whole))

    thread = threading.Thread(target=serve, daemon=True)
    with masters, tempfile.TemporaryFile() as out:
        thread.start()
        with ours:
            writer: StdoutWriter[int] = StdoutWriter(out.fileno())
            putter = Putter(
                PutService(ours, 1 << 20, 4096), source, writer, in_flight, lambda n, a: json.dumps({"line": n} | a), quiet
            )
            putter.run(lambda: False)
        await_end(thread)
        out.seek(0)
        return putter, [json.loads(line) for line in out], most


@pytest.mark.parametrize("in_flight", [1, 3])
def test_no_more_lines_are_unanswered_than_allowed(in_flight: int) -> None:
    putter, rows, most = served(
        [b"%d" % number for number in range(6)], lambda line: ANSWER | {"sent": line.decode()}, in_flight
    )
    assert most == in_flight
    assert [(row["line"], row["sent"]) for row in rows] == [(number + 1, str(number)) for number in range(6)]
    assert (putter.is_ok, putter.lost_master, dict(putter.counts)) == (True, "", {"PUT_OK": 6})


@pytest.mark.parametrize("quiet", [False, True])
def test_each_line_has_its_answer_and_quiet_shows_those_that_are_not_ok(quiet: bool) -> None:
    statuses = {b"a": "PUT_OK", b"b": "FLUSH_SLAVE_TIMEOUT", b"d": "PUT_OK"}
    lines: list[Line] = [b"a", b"b", MessageIllegal("line", 1, 2), b"d"]
    putter, rows, _ = served(lines, lambda line: ANSWER | {"status": statuses[line]}, 10, quiet)
    expected = [(1, "PUT_OK"), (2, "FLUSH_SLAVE_TIMEOUT"), (3, "MESSAGE_ILLEGAL"), (4, "PUT_OK")]
    assert [(row["line"], row["status"]) for row in rows] == [each for each in expected if not quiet or each[1] != "PUT_OK"]
    assert next(row["error"] for row in rows if row["line"] == 3) == "message line: found 1, expected 2"
    assert not putter.is_ok
    line = putter.counts_line(2.0)
    assert line == "put=4 seconds=2.0 per_second=2 PUT_OK=2 FLUSH_SLAVE_TIMEOUT=1 MESSAGE_ILLEGAL=1"


def test_a_master_that_ends_before_all_lines_are_read_is_a_failure() -> None:
    """Each line that was read is put, and standard input is still open."""
    ours, masters = socket.socketpair()
    ours.setblocking(False)
    reading, writing = os.pipe()
    with masters, ours, os.fdopen(writing, "wb"), os.fdopen(reading, "rb"), tempfile.TemporaryFile() as out:
        source = LineSource(reading, lambda line: line, 1 << 20)
        source.lines.append(b"a")
        masters.sendall(json.dumps(ANSWER).encode() + b'\n{"end": "the master stops"}\n')
        writer: StdoutWriter[int] = StdoutWriter(out.fileno())
        putter = Putter(PutService(ours, 1 << 20, 4096), source, writer, 10, lambda n, a: json.dumps({"line": n} | a), False)
        putter.run(lambda: False)
    assert (putter.is_ok, putter.lost_master, dict(putter.counts)) == (False, "the master stops", {"PUT_OK": 1})


def test_counts_of_nothing() -> None:
    putter, rows, _ = served([], lambda _: ANSWER, 1)
    assert (putter.is_ok, rows, putter.counts_line(0.0)) == (True, [], "put=0 seconds=0.0 per_second=0")


@pytest.mark.parametrize(("asked", "allowed"), [(2, 2), (3, 3), (4, 3)])
def test_in_flight_is_what_was_asked_for_and_the_master_allows(
    asked: int, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    class Noted(Putter):
        def run(self, stopped: Callable[[], bool]) -> None:  # noqa: ARG002
            used.append(self._in_flight)

    ours, masters = socket.socketpair()
    ours.setblocking(False)
    monkeypatch.setattr(put_module, "connect", lambda _: PutService(ours, 1 << 20, 3))
    monkeypatch.setattr(put_module, "Putter", Noted)
    monkeypatch.setattr(put_module, "Stop", lambda: lambda: False)
    with masters, tempfile.TemporaryFile() as out, pytest.raises(SystemExit):
        monkeypatch.setattr("sys.stdout", os.fdopen(os.dup(out.fileno()), "w"))
        options = ["--to", str(tmp_path), "--topic", "t", "--body", "b", "--in-flight", str(asked)]
        put_module.put.main(options, standalone_mode=False)
    assert used == [allowed]


@pytest.mark.parametrize(
    ("lines", "options", "status", "end"),
    [
        pytest.param(b"a\nb\n", ("--topic", "t"), 0, "put=2 seconds=S per_second=P PUT_OK=2", id="all are put"),
        pytest.param(b"a\nno\n", ("--topic", "t"), 1, "put=2 seconds=S per_second=P PUT_OK=1 UNKNOWN_ERROR=1", id="one is not"),
        pytest.param(b'{"body":"a"}\n', ("--lines", "json"), 0, "put=1 seconds=S per_second=P PUT_OK=1", id="json"),
        pytest.param(b"", ("--topic", "t", "--body", "b"), 0, "put=1 seconds=S per_second=P PUT_OK=1", id="a body"),
    ],
)
def test_the_command_ends_with_its_counts_and_their_status(
    lines: bytes,
    options: tuple[str, ...],
    status: int,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours, masters = socket.socketpair()
    ours.setblocking(False)
    masters.settimeout(PATIENCE_S)
    asked: list[Path] = []

    def connect(target: Path) -> PutService:
        asked.append(target)
        return PutService(ours, 1 << 20, 3)

    def serve() -> None:
        with masters, masters.makefile("rb") as received:
            for line in received:
                answer = ANSWER if b'"no"' not in line else {"status": "UNKNOWN_ERROR", "error": "why"}
                masters.sendall(json.dumps(answer).encode() + b"\n")

    monkeypatch.setattr(put_module, "connect", connect)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    reading, writing = os.pipe()
    os.write(writing, lines)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as standard_input, pytest.raises(SystemExit) as ended:
            monkeypatch.setattr("sys.stdin", standard_input)
            put_module.put.main(["--to", str(tmp_path), *options], standalone_mode=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    await_end(thread)
    out, err = capfd.readouterr()
    assert ended.value.code == status
    assert re.sub(r"per_second=\d+", "per_second=P", re.sub(r"seconds=[\d.]+", "seconds=S", err)) == end + "\n"
    assert (len(out.splitlines()), asked) == (int(end.split(maxsplit=1)[0].removeprefix("put=")), [tmp_path])


# --- Output --------------------------------------------------------------------------------------------------------------


def test_a_writer_is_full_from_a_mebibyte_on() -> None:
    with tempfile.TemporaryFile() as out:
        writer: StdoutWriter[int] = StdoutWriter(out.fileno())
        writer.put(b"x" * (FULL_SIZE - 1), 1)
        assert (writer.is_full, writer.is_empty, writer.reached) == (False, False, None)
        writer.put(b"y", 2)
        assert (writer.is_full, writer.pending_size) == (True, FULL_SIZE)
        writer.write()
        assert (writer.is_full, writer.is_empty, writer.reached, writer.pending_size) == (False, True, 2, 0)
        assert os.fstat(out.fileno()).st_size == FULL_SIZE == 1 << 20


def test_marks_without_a_line_pass_when_what_is_before_them_is_written() -> None:
    with tempfile.TemporaryFile() as out:
        writer: StdoutWriter[int] = StdoutWriter(out.fileno())
        writer.put(b"", 1)
        assert writer.reached == 1
        writer.put(b"a\n", 2)
        writer.put(b"", 3)
        writer.put(b"", 4)
        assert writer.reached == 1
        writer.write()
        assert writer.reached == 4
        writer.put(b"b\n", 5)
        assert not writer.finish_line()  # not begun: it is dropped
        assert (writer.is_empty, writer.reached, writer.pending_size) == (True, 4, 0)
