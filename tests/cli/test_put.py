"""`rocketmq-ha put`, as processes: it puts messages into a running master, and prints the status of each put."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import kit.nodes
from kit.children import Child
from kit.command_line import COMMAND
from kit.nodes import follow
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.fuzz import golden
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app.put_lines import LineSource, MessageFields, json_maker, text_maker
from rocketmq_ha.impl.app.putter import Putter
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.cli.message_table import MESSAGE_COLUMNS
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.net.put_client import PutService
from rocketmq_ha.impl.net.put_socket import MAX_LINE_SIZE, SOCKET_NAME
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message, decompress_body

pytestmark = pytest.mark.xdist_group("put")  # one master for all of these

FILE_SIZE = 1 << 22
LONG = b"x" * (MAX_LINE_SIZE + 100_000)
PUT = (*COMMAND, "put")


def put(store: Path, *options: object, lines: bytes = b"") -> tuple[int, list[str], str]:
    """Run `put`. Returns: the exit status, the lines of the output, the standard error."""
    done = subprocess.run(
        [*PUT, "--to", str(store), *map(str, options)], input=lines, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


def messages(store: Path) -> list[Message]:
    with LogReader(store) as reader:
        return [message for _, _, message in reader.records()]


@pytest.fixture(scope="module")
def nodes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def master(nodes: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a running ASYNC_MASTER."""
    store = tmp_path_factory.mktemp("put") / "master"
    kit.nodes.serve(nodes, store, "--role", "ASYNC_MASTER", file_size=FILE_SIZE)
    wait_for((store / SOCKET_NAME).exists)
    return store


TEXT = "one\ntwö\n".encode() + b"\xff\n\nlast"


def test_each_line_is_a_message_and_each_is_told_of(master: Path) -> None:
    before = len(messages(master))
    status, rows, said = put(
        master, "--topic", "lines", "--tags", "a", "--property", "n=1", lines=b"one\ntw\xc3\xb6\n\xff\n\nlast"
    )
    assert status == 0
    found = messages(master)[before:]
    assert [message.body for message in found] == [b"one", "twö".encode(), b"\xff", b"", b"last"]
    assert {(message.topic, message.properties_string) for message in found} == {("lines", "n\x011\x02TAGS\x01a")}
    assert [row.split()[:2] for row in rows] == [[str(number), "PUT_OK"] for number in range(1, 6)]
    assert said.split()[0] == "put=5"
    assert said.split()[-1] == "PUT_OK=5"


def test_one_message_from_the_command_line_or_a_file(master: Path, tmp_path: Path) -> None:
    before = len(messages(master))
    options = ("--topic", "one", "--keys", "4711 4712", "--queue-id", 3, "--no-wait", "--json")
    status, (row,), _ = put(master, *options, "--body", "three of them")
    found = json.loads(row)
    assert (status, found["line"], found["status"], found["queue_offset"]) == (0, 1, "PUT_OK", 0)
    (tmp_path / "body").write_bytes(bytes(range(256)))
    assert put(master, "--topic", "one", "--file", tmp_path / "body")[0] == 0
    first, second = messages(master)[before:]
    assert (first.body, first.queue_id, first.properties) == (
        b"three of them",
        3,
        {"KEYS": "4711 4712", "WAIT": "false"},
    )
    assert first.physical_offset == found["commit_log_offset"] == int(found["msg_id"][16:], 16)
    assert second.body == bytes(range(256))


def test_a_bad_line_is_named_by_its_number_and_the_others_are_put(master: Path) -> None:
    """Also if a line is too long: it is never sent, and is answered in its turn."""
    before = len(messages(master))
    lines = b'{"topic":"t","body":"1"}\nnonsense\n{"topic":"t","body":"' + LONG + b'"}\n{"topic":"t","body":"4"}\n'
    status, rows, said = put(master, "--lines", "json", lines=lines)
    assert (status, [message.body for message in messages(master)[before:]]) == (1, [b"1", b"4"])
    assert [row.split()[:2] for row in rows] == [
        ["1", "PUT_OK"],
        ["2", "MESSAGE_ILLEGAL"],
        ["3", "MESSAGE_ILLEGAL"],
        ["4", "PUT_OK"],
    ]
    assert "message line: found nonsense, expected a JSON object in UTF-8" in rows[1]
    assert "message line: found more than 6291456 bytes, expected at most 6291456 bytes" in rows[2]
    assert "PUT_OK=2 MESSAGE_ILLEGAL=2" in said
    status, rows, _ = put(master, "--lines", "json", "--quiet", lines=lines)
    assert (status, [row.split()[0] for row in rows]) == (1, ["2", "3"])


def test_tail_and_put_copy_a_store_that_rocketmq_wrote(nodes: ExitStack, master: Path, tmp_path: Path) -> None:
    """Topic, queue, properties, flags, birth and body of each message; bodies decompressed."""
    golden.unpack(tmp_path / "golden")
    _, address = kit.nodes.serve(nodes, tmp_path / "golden", file_size=1 << 20)
    originals = messages(tmp_path / "golden")
    before = len(messages(master))
    tail = [*COMMAND, "tail", "--master", address, "--from", "min", "--settle", "0"]
    with Child([*tail, "--limit", str(len(originals))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tailing:
        done = subprocess.run(
            [*PUT, "--to", str(master), "--lines", "json", "--quiet"],
            stdin=tailing.stdout,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    copies = messages(master)[before:]
    assert len(copies) == len(originals) > 1000

    def kept(message: Message) -> tuple[object, ...]:
        flags = message.sys_flag & ~0x701  # without the bits for compression and its kind
        placed = (message.topic, message.queue_id, message.flag, flags, message.born_timestamp, message.born_host)
        return (*placed, message.reconsume_times, message.properties, decompress_body(message))

    assert [kept(message) for message in copies] == [kept(message) for message in originals]


def test_a_message_copied_to_another_topic(master: Path) -> None:
    before = len(messages(master))
    line = {
        "topic": "from",
        "body": "b",
        "tags": "old",
        "properties": {"TAGS": "old", "k": "v"},
        "queue_id": 1,
        "queue_offset": 5,
    }
    options = ("--lines", "json", "--topic", "into", "--tags", "new", "--queue-id", 2)
    assert put(master, *options, lines=json.dumps(line).encode() + b"\n")[0] == 0
    (found,) = messages(master)[before:]
    assert (found.topic, found.queue_id, found.properties) == ("into", 2, {"k": "v", "TAGS": "new"})


@pytest.mark.parametrize(
    ("options", "words"),
    (
        ((), "no --topic: expected one, but for --lines json"),
        (("--topic", "t", "--body", "b", "--file", __file__), "--body and --file: expected one of them"),
        (("--topic", "t", "--property", "x"), "--property 'x': expected NAME=VALUE"),
    ),
    ids=("no topic", "two bodies", "no value"),
)
def test_a_mistake_in_the_options_is_one_line(master: Path, options: tuple[object, ...], words: str) -> None:
    status, rows, said = put(master, *options)
    assert (status, rows) == (2, [])
    assert words in said
    assert said.count("\n") == 1


def test_where_nobody_takes_puts_one_line_says_why(nodes: ExitStack, tmp_path: Path) -> None:
    """HA-R-5 "A slave MUST refuse puts": a slave's store has no such socket."""
    slave = tmp_path / "slave"
    follow(nodes, slave, "127.0.0.1:9", "--file-size", str(FILE_SIZE))
    assert not (slave / SOCKET_NAME).exists()
    (tmp_path / "idle").mkdir()
    (tmp_path / "file").touch()
    expected = {
        "slave": "its process is a slave, which takes no puts: put to its master (HA-R-5)",
        "idle": "no process serves it",
        "file": "found something that is no socket",
        "slave/rocketmq-ha.sock": "expected a master's socket for puts, version 1",  # a slave's own socket
        "none/there": "no such file or directory, expected a store, or the socket",
        "none": "no such file",
    }
    for name, words in expected.items():
        status, rows, said = put(tmp_path / name, "--topic", "t", "--body", "b")
        assert (status, rows, said.count("\n")) == (2, [], 1), said
        assert words in said


def test_a_client_killed_with_puts_in_flight_and_a_master_that_is_stopped(nodes: ExitStack, tmp_path: Path) -> None:
    """HA-G-6: the slave is paused, so all puts wait.

    The master survives the killed client, and answers the other one as it stops.
    """
    a, b = tmp_path / "a", tmp_path / "b"
    patient = ("--sync-flush-timeout", "1000000", "--ha-housekeeping-interval", "1000000")
    node, address = kit.nodes.serve(nodes, a, "--put", "1", "--await-slaves", "1", *patient, file_size=FILE_SIZE)
    slave = follow(nodes, b, address, "--file-size", str(FILE_SIZE))
    node.line("put")
    os.kill(pid_of(slave), signal.SIGSTOP)
    try:
        options = ("--to", str(a), "--topic", "t", "--json")
        killed = Child([*PUT, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        told = Child([*PUT, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for client in (killed, told):
            assert client.stdin is not None
            client.stdin.write(b"waits\n" * 500)
            client.stdin.flush()
        wait_for(lambda: len(messages(a)) >= 1001)
        killed.kill()
        killed.communicate(timeout=PATIENCE_S)
        wait_for(lambda: node.status is None)
        stopping = time.monotonic()
        assert node.stop() == 0
        out, said = told.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - stopping < PATIENCE_S
    finally:
        os.kill(pid_of(slave), signal.SIGCONT)
    assert told.returncode == 1
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["line"] for answer in answers] == list(range(1, 501))
    assert {answer["status"] for answer in answers} == {"FLUSH_SLAVE_TIMEOUT"}
    assert b"the master has ended: what it has not answered it has not put" in said
    assert "Traceback" not in node.log.read_text()


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(
    ("last", "status", "error"),
    [
        (b'{"end":"the master has ended"}\n', "SERVICE_NOT_AVAILABLE", "the master has ended"),
        (b"", "UNKNOWN_ERROR", "the connection has ended: what has no answer may have been put or not"),
        (b'{"end":"the mas', "UNKNOWN_ERROR", "the connection has ended: what has no answer may have been put or not"),
    ],
    ids=("told", "not told", "told in part"),
)
def test_lines_that_a_master_has_not_answered_at_its_end(last: bytes, status: str, error: str, quiet: bool) -> None:
    """If the master has sent its last line, the others are not put; if not, their status is unknown.

    A bad line keeps its answer.
    """
    ours, masters = socket.socketpair()
    ours.setblocking(False)
    source = LineSource(None, lambda line: line, MAX_LINE_SIZE)
    source.lines.extend((b"{}", b"{}", MessageIllegal("line", "nonsense", "an object"), b"{}"))
    answer = {"status": "PUT_OK", "msg_id": "0", "commit_log_offset": 0, "store_size": 1, "queue_offset": 0}
    with ours, masters, tempfile.TemporaryFile() as out:
        masters.sendall(json.dumps(answer).encode() + b"\n" + last)
        masters.shutdown(socket.SHUT_WR)
        service = PutService(ours, MAX_LINE_SIZE, 10)
        putter = Putter(service, source, StdoutWriter(out.fileno()), 10, lambda n, a: json.dumps({"line": n, **a}), quiet)
        putter.run(lambda: False)
        out.seek(0)
        rows = [json.loads(line) for line in out]
    assert dict(putter.counts) == {"PUT_OK": 1, status: 2, "MESSAGE_ILLEGAL": 1}
    assert [(row["line"], row["status"]) for row in rows][-3:] == [(2, status), (3, "MESSAGE_ILLEGAL"), (4, status)]
    assert len(rows) == (3 if quiet else 4)
    assert (rows[-1]["error"], putter.lost_master, putter.is_ok) == (error, error, False)


def pid_of(node: Node) -> int:
    return node._process.pid


def source_of(data: bytes, make: object, limit: int) -> list[object]:
    """The lines that a source reads from a file, 64 KiB at a time."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        source = LineSource(file.fileno(), make, limit)  # type: ignore[arg-type]
        while source.fd is not None:
            source.read()
    return [line if isinstance(line, bytes) else str(line) for line in source.lines]


def test_lines_are_cut_at_newlines_wherever_reads_end() -> None:
    data = b"a\n\n" + b"b" * 100_000 + b"\nlast"
    made = source_of(data, lambda line: line, 200_000)
    assert made == [b"a", b"", b"b" * 100_000, b"last"]
    refused = source_of(data, lambda line: line, 50_000)
    assert (refused[0], refused[1], refused[3]) == (b"a", b"", b"last")
    assert "expected at most 50000 bytes" in str(refused[2])


def test_a_body_that_is_too_long_is_refused_as_a_body(master: Path) -> None:
    status, rows, _ = put(master, "--topic", "t", lines=LONG)
    assert (status, len(rows)) == (1, 1)
    assert rows[0].endswith("message body: found more than 6291456 bytes, expected at most 4194304 bytes")


def test_the_offset_in_its_queue_has_the_name_that_inspect_gives_it(master: Path) -> None:
    options = ("--topic", "named", "--queue-id", 7)
    assert put(master, *options, "--body", "first")[0] == 0
    _, (row,), _ = put(master, *options, "--body", "second")
    assert " queue offset 1 " in row
    assert "queue offset" in {column.name for column in MESSAGE_COLUMNS}


def test_a_full_disk_behind_its_output_is_named(master: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [*PUT, "--to", str(master), "--topic", "t", "--body", "x"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert done.stderr.splitlines()[-1] == b"rocketmq-ha: standard output: No space left on device"
    assert done.returncode == 75


def test_text_that_json_would_blow_up_is_sent_as_base64() -> None:
    make = text_maker(MessageFields(topic="t"))
    assert make(b"plain") == b'{"topic":"t","body":"plain"}'
    for byte in (b"\x01", b'"'):
        made = make(byte * 4 * 1024 * 1024)
        assert isinstance(made, bytes)
        assert len(made) < MAX_LINE_SIZE
    assert make(b"\xff") == b'{"topic":"t","body_base64":"/w=="}'
    assert json_maker(MessageFields(topic="t"))(b"no json") == b"no json"
