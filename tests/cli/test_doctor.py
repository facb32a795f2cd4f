"""`rocketmq-ha doctor`: finds and names each thing that keeps a slave from syncing, with its remedy."""

import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kit.nodes
from kit.command_line import invoke
from kit.files import snapshot
from kit.golden import RELEASES, VECTORS
from kit.sockets import kept_port
from kit.waiting import PATIENCE_S, accepted, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app import logs
from rocketmq_ha.impl.app.doctor import store_check
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.known_quirks import parse_version, quirks_of
from rocketmq_ha.impl.app.doctor.master_check import check_end
from rocketmq_ha.impl.app.doctor.probe import MasterProbe
from rocketmq_ha.impl.net.broker_info import NotTold, ask_broker
from rocketmq_ha.impl.net.feed import WITHOUT_A_BYTE
from rocketmq_ha.impl.net.figures import CONNECTED
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME, ask
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE
from rocketmq_ha.spec.profile import PROFILES

FILE_SIZE = 4096


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the signal and log handlers that a command sets; shorten the time after which a reader reports damage."""
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logs.logging.getLogger("rocketmq_ha").handlers.clear()


def fill(store: Path, start: int, stop: int, file_size: int = FILE_SIZE) -> Path:
    """Put messages; equal numbers give equal messages."""
    with CommitLog.open(store, file_size=file_size) as log:
        for index in range(start, stop):
            log.append(Message("topic", b"%d" % index * 30, queue_id=index, store_timestamp=1_700_000_000_000))
    return store


@contextmanager
def serving(store: Path, profile: str = "hardened", on_report: Callable[[int], None] = lambda _: None) -> Iterator[str]:
    """Run a master in a thread. Gives its address."""
    with kit.nodes.serving(store, FILE_SIZE, profile, on_report) as master:
        yield f"127.0.0.1:{master.address[1]}"


def scripted_peer(answer: Callable[[bytes], bytes], hold_s: float = 0, ask_size: int = 8, times: int = 1) -> str:
    """A peer that answers what it is asked first, and closes when the other end has, or after hold_s. Returns: its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        sock = accepted(listener)
        with sock:
            for _ in range(times):
                asked = sock.recv(ask_size)
                sock.sendall(answer(asked))
            until = time.monotonic() + hold_s
            with suppress(OSError):
                while (left_s := until - time.monotonic()) > 0:
                    sock.settimeout(left_s)
                    if not sock.recv(ask_size):
                        break
        listener.close()

    threading.Thread(target=talk, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def doctor(master: str, *more: object, status: int | None = None) -> dict[str, Any]:
    """What it found, by check; the texts of one check one after the other. `found` are the checks of findings."""
    arguments = ("doctor", "--json", "--patience", 2, "--settle", 0, "--master", master, *more)
    result = invoke(*arguments)
    assert result.stdout, result.stderr
    told = json.loads(result.stdout)
    found = [row for row in told["findings"] if row["level"] == "finding"]
    assert all(row["advice"] for row in found)
    assert result.exit_code == (status if status is not None else int(bool(found)))
    assert told["healthy"] == (not found)
    texts: dict[str, Any] = {"found": [row["check"] for row in found]}
    for row in told["findings"]:
        texts[row["check"]] = " | ".join(filter(None, (texts.get(row["check"]), row["text"])))
    return texts


# --- Healthy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slave_end", [100, 90, 30, 1, 0])
def test_a_slave_that_is_behind_is_healthy_and_nothing_is_changed_or_acknowledged(slave_end: int, tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), fill(tmp_path / "b", 0, slave_end)
    before, reports = snapshot(b), set()
    with serving(a, on_report=reports.add) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == []
    assert snapshot(b) == before
    with CommitLog.open(a) as log:
        last_file = log.max_offset - log.max_offset % FILE_SIZE
        assert f"it starts at {last_file:,}" in told["protocol"]
        assert f"its log ends at {log.max_offset:,}" in told["end"]
        assert all(report < last_file for report in reports)
    after = re.search(r"heartbeat after (\d+)\.", told["heartbeat"])
    assert after is not None and int(after[1]) < 20
    if slave_end == 100:
        assert told["lag"] == "the store has all"
    elif slave_end:
        assert "bytes behind" in told["lag"]
    if slave_end > 1:
        assert "messages that both have are the same" in told["overlap"] or "message" in told["overlap"]
    elif slave_end == 0:
        assert "is empty" in told["store"]
        assert "will not get what is before" in told["history"]


def test_lines_are_one_for_each_finding(tmp_path: Path) -> None:
    with serving(fill(tmp_path / "a", 0, 10)) as address:
        result = invoke("doctor", "--patience", "2", "--master", address)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[-1] == "nothing wrong was found"
    assert all(line.split()[0] in ("ok", "note") for line in lines[:-1])
    with kept_port() as (host, port):
        result = invoke("doctor", "--master", f"{host}:{port}")
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["FINDING", "1"]
    assert " -> is the master up" in result.stdout


def test_a_tail_of_a_message_is_no_finding(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 12), tmp_path / "b"
    shutil.copytree(a, b)
    fill(a, 12, 13)
    with CommitLog.open(b) as log:
        end = log.max_offset
    whole = (a / "commitlog" / f"{0:020d}").read_bytes()
    file = b / "commitlog" / f"{0:020d}"
    file.write_bytes(whole[: end + 50] + bytes(FILE_SIZE - end - 50))
    with serving(a) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == []
    assert "bytes of a message that is not whole follow" in told["store"]


# --- The master ------------------------------------------------------------------------------------------------------


def test_no_master_is_a_finding() -> None:
    with kept_port() as (host, port):
        told = doctor(f"{host}:{port}")
    assert told["found"] == ["reachable"]
    assert "Connection refused" in told["reachable"]


@pytest.mark.parametrize(
    ("answer", "hold_s", "told_text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 1, "does not talk HA"),
        (b"", 0, "closed the connection"),
        (b"", PATIENCE_S, "sends nothing"),
    ],
    ids=["other", "closes", "silent"],
)
def test_what_does_not_talk_ha_is_a_finding(answer: bytes, hold_s: float, told_text: str) -> None:
    told = doctor(scripted_peer(lambda _: answer, hold_s))
    assert told["found"] == ["protocol"]
    assert told_text in told["protocol"]


def test_a_log_that_is_none_and_a_link_that_is_cut_are_findings() -> None:
    damaged = bytearray(encode(Message("t", b"body")))
    damaged[90] ^= 1
    told = doctor(scripted_peer(lambda _: HEADER.pack(0, len(damaged)) + bytes(damaged), PATIENCE_S))
    assert (told["found"], "CRC" in told["log"]) == (["log"], True)
    told = doctor(scripted_peer(lambda _: HEADER.pack(0, 100) + bytes(damaged[:50])))
    assert told["found"] == ["link"]


def test_a_message_from_the_future_is_a_finding() -> None:
    record = encode(Message("t", b"body", store_timestamp=int(time.time() * 1000) + 90_000))
    told = doctor(scripted_peer(lambda _: HEADER.pack(0, len(record)) + record + HEADER.pack(len(record), 0), 1))
    assert told["found"] == ["clock"]
    assert "in our future" in told["clock"]


def test_heartbeats_that_come_too_late_are_a_finding() -> None:
    findings = Findings()
    check_end(MasterProbe(0, 0, is_end=True, heartbeat_s=25.0), findings)
    assert [(found.level, found.check) for found in findings.all] == [("ok", "end"), ("finding", "heartbeat")]


def test_a_master_that_is_not_at_its_end_is_noted() -> None:
    record = encode(Message("t", b"body"))
    told = doctor(scripted_peer(lambda _: HEADER.pack(0, len(record)) + record, PATIENCE_S))
    assert told["found"] == []
    assert "has not come to its end" in told["end"]


# --- The store against the master ------------------------------------------------------------------------------------


def test_a_slave_that_is_ahead_is_a_finding(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 95), fill(tmp_path / "b", 0, 97)
    with serving(a) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == ["ahead"]
    assert "bytes ahead of the master" in told["ahead"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_slave_whose_end_the_master_has_deleted_is_a_finding(profile: str, tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), fill(tmp_path / "b", 0, 5)
    (a / "commitlog" / f"{0:020d}").unlink()
    with serving(a, profile) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == ["range"]


@pytest.mark.parametrize("end", [20, 95], ids=["in an old file", "in the last file"])
def test_another_log_of_the_same_shape_is_a_finding(end: int, tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), fill(tmp_path / "b", 0, end - 1)
    with CommitLog.open(b) as log:
        at = log.max_offset
        log.append(Message("topic", b"%d" % end * 30, queue_id=end - 1, store_timestamp=1_700_000_000_000))
    with serving(a) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == ["diverged"]
    differs_at = int(told["diverged"].split("differ at ")[1].split(":")[0].replace(",", ""))
    assert at <= differs_at < at + 40  # in the head of the record: the CRC comes before the body


@pytest.mark.parametrize("size", [3 * FILE_SIZE, FILE_SIZE // 2, 1 << 20])
def test_files_of_another_size_are_a_finding(size: int, tmp_path: Path) -> None:
    """HA-S-98: also where the start of the master's last file is a multiple of the store's size."""
    a, b, reports = fill(tmp_path / "a", 0, 30), fill(tmp_path / "b", 0, 3, file_size=size), set[int]()
    with serving(a, on_report=reports.add) as address:
        told = doctor(address, "--store", b)
        lines = invoke("doctor", "--patience", "2", "--settle", "0", "--master", address, "--store", str(b))
    assert told["found"] == ["file size"]
    assert told["file size"] == f"the master has files of 4,096 bytes, the store has files of {size:,}"
    (line,) = [line for line in lines.stdout.splitlines() if "file size" in line]
    assert f"`rocketmq-ha resync {b}`; then start the slave with --file-size 4096" in line
    assert ("a slave of ours without --file-size takes the master's size" in line) == (size > FILE_SIZE)
    assert all(report < FILE_SIZE * (30 * 150 // FILE_SIZE) for report in reports)


@pytest.mark.parametrize(
    ("own", "put", "told"),
    [
        (2000, 25, "the master has files of more than 2,000 bytes, the store has files of 2,000"),
        (2 * FILE_SIZE, 25, None),
        (FILE_SIZE, 25, None),
    ],
)
def test_a_first_file_that_is_longer_than_the_stores_is_a_finding(own: int, put: int, told: str | None, tmp_path: Path) -> None:
    """A slave with this store stops with both sizes (HA-S-90, HA-S-92), so the doctor names both."""
    a, b = fill(tmp_path / "a", 0, put), fill(tmp_path / "b", 0, 3, file_size=own)
    assert len(list((a / "commitlog").iterdir())) == 1
    with serving(a) as address:
        found = doctor(address, "--store", b)
        lines = invoke("doctor", "--patience", "2", "--settle", "0", "--master", address, "--store", str(b))
    assert found["found"] == (["file size"] if told else [])
    if told:
        assert found["file size"] == told
        assert lines.exit_code == 1
        assert f"`rocketmq-ha resync {b}`; then start the slave without --file-size" in lines.stdout
    else:
        assert "it is in its first file" in found["file size"]


def test_a_first_file_that_ends_while_it_is_read_shows_its_size(tmp_path: Path) -> None:
    """The BLANK at its end shows the size, before a second file exists."""
    record = encode(Message("topic", b"x" * 400, store_timestamp=1_700_000_000_000), 0, 0)
    blank = (FILE_SIZE - len(record)).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big")
    file = (record + blank).ljust(FILE_SIZE, b"\0")
    peer = scripted_peer(lambda _: HEADER.pack(0, FILE_SIZE) + file + HEADER.pack(FILE_SIZE, 0), 1)
    told = doctor(peer, "--store", fill(tmp_path / "b", 0, 3, file_size=1 << 20))
    assert told["file size"] == "the master has files of 4,096 bytes, the store has files of 1,048,576"


def test_the_size_of_the_masters_files_is_told_before_there_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "b" / "commitlog").mkdir(parents=True)
    with serving(fill(tmp_path / "a", 0, 30)) as address:
        told = doctor(address, "--store", tmp_path / "b")
    assert told["found"] == []
    assert "the master has files of 4,096 bytes; a slave of ours learns that" in told["file size"]


def test_where_the_size_of_the_masters_files_is_not_seen_it_is_said_why(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 30), fill(tmp_path / "b", 0, 3)
    with serving(fill(tmp_path / "c", 0, 3)) as address:
        assert "it is in its first file" in doctor(address, "--store", b)["file size"]
    last_file = max(int(path.name) for path in (a / "commitlog").iterdir())
    for path in (a / "commitlog").iterdir():
        if int(path.name) < last_file:
            path.unlink()
    with serving(a) as address:
        told = doctor(address, "--store", b)
        assert "it has nothing before its last file" in told["file size"]
        assert "file size" not in told["found"]
        told = doctor(address, "--store", fill(tmp_path / "d", 0, 3, file_size=last_file - 1))
        assert f"begins at {last_file:,}; the store has files of {last_file - 1:,} bytes" in told["file size"]
        assert "file size" in told["found"]


@pytest.mark.parametrize(
    ("version", "config", "found"),
    [
        ("V4_4_0", "mapedFileSizeCommitLog=8192", True),
        ("V4_5_1", "mappedFileSizeCommitLog=4096\nmapedFileSizeCommitLog=8192", True),
        ("V4_5_2", "mappedFileSizeCommitLog=4096\nmapedFileSizeCommitLog=8192", False),
        ("V5_4_0", "mappedFileSizeCommitLog=8192", True),
        ("V4_4_0", "mapedFileSizeCommitLog=4096", False),
        ("", "mapedFileSizeCommitLog=8192", True),
        ("V4_9_8", "", False),
        ("V4_9_8", "mappedFileSizeCommitLog=many", False),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_broker_tells_the_size_by_the_name_of_its_release(
    version: str, config: str, found: bool, is_there: bool, tmp_path: Path
) -> None:
    """`mapedFileSizeCommitLog` until 4.5.1, `mappedFileSizeCommitLog` from 4.5.2 on.

    The HA port does not show the size, or is closed.
    """
    b = fill(tmp_path / "b", 0, 10)
    with ExitStack() as stack:
        address = stack.enter_context(serving(fill(tmp_path / "a", 0, 10))) if is_there else "127.0.0.1:1"
        told = doctor(address, "--store", b, "--broker", scripted_broker(version, config))
    assert ("file size" in told["found"]) == found
    if found:
        assert told["file size"] == "the master has files of 8,192 bytes, the store has files of 4,096"


def test_a_broker_that_says_another_size_than_its_ha_port_shows_is_a_finding(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 30), fill(tmp_path / "b", 0, 3)
    with serving(a) as address:
        told = doctor(address, "--store", b, "--broker", scripted_broker("V5_3_3", "mappedFileSizeCommitLog=8192"))
    assert told["found"] == ["file size"]
    assert "the broker says files of 8,192 bytes, and the HA port shows files of 4,096" in told["file size"]


def test_a_phantom_file_is_a_finding(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), tmp_path / "b"
    (b / "commitlog").mkdir(parents=True)
    (b / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))
    with serving(a) as address:
        told = doctor(address, "--store", b)
    assert told["found"] == ["phantom"]


def test_a_store_that_is_damaged_or_misshapen_is_a_finding(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), fill(tmp_path / "b", 0, 50)
    last = max((b / "commitlog").iterdir())
    content = bytearray(last.read_bytes())
    content[100] ^= 1
    last.write_bytes(content)
    with serving(a) as address:
        told = doctor(address, "--store", b)
        assert (told["found"], "its log is damaged" in told["store"]) == (["store"], True)
        last.write_bytes(content[:-1])
        told = doctor(address, "--store", b)
        assert (told["found"], "a length of 4095 bytes" in told["store"]) == (["store"], True)


def test_a_full_disk_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = fill(tmp_path / "a", 0, 10), fill(tmp_path / "b", 0, 10)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=FILE_SIZE - 1))
    with serving(a) as address:
        assert doctor(address, "--store", b)["found"] == ["disk"]


def test_where_it_cannot_look_the_status_is_2(tmp_path: Path) -> None:
    for arguments in (
        ("--master", "127.0.0.1:1", "--store", str(tmp_path / "none")),
        ("--master", "nonsense"),
        ("--master", "127.0.0.1:0"),
    ):
        assert invoke("doctor", *arguments).exit_code == 2


# --- The process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "ended", "words"),
    [
        ({"state": "disk full", "disk_full": "no room for f"}, "disk_full", ("its disk is full: no room for f", "make room")),
        ({"state": "disconnected", "disk_full": None}, f"end_of_stream, {WITHOUT_A_BYTE}", ("--allow names", "see its log")),
        ({"state": "disconnected", "disk_full": None}, "end_of_stream", ("see its log",)),
    ],
)
def test_a_slave_that_is_not_connected_is_told_what_may_help(
    state: dict[str, object], ended: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"role": "slave", "pid": 1, "master": "h:1", "failed_connects": 0, "last_close_reason": ended} | state
    monkeypatch.setattr(store_check, "ask", lambda *_: answer)
    findings = Findings()
    store_check.check_process(tmp_path, "h:1", findings)
    (found,) = findings.all
    for word in words:
        assert word in found.text + " -> " + found.advice


def test_the_slave_is_asked_itself(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 100), tmp_path / "b"
    node = None
    try:
        with serving(a) as address:
            node = Node(tmp_path / "b.log", "slave", "--store", str(b), "--master", address, "--file-size", str(FILE_SIZE))
            until = time.monotonic() + PATIENCE_S
            while not (b / SOCKET_NAME).exists():
                assert time.monotonic() < until, "waited in vain"
                time.sleep(0.02)
            while "is connected and has reported" not in (told := doctor(address, "--store", b)).get("process", ""):
                assert time.monotonic() < until, told
            assert told["found"] == []
            assert "follows" in doctor("127.0.0.1:1", "--store", b)["process"]
            os.kill(node._process.pid, signal.SIGSTOP)
            assert "has not answered" in doctor(address, "--store", b)["process"]
            os.kill(node._process.pid, signal.SIGCONT)
        wait_for(lambda: ask(b)["state"] != CONNECTED)
        told = doctor(address, "--store", b)
        assert told["found"] == ["process", "reachable"]
        assert "is not connected" in told["process"]
    finally:
        if node is not None:
            node.stop()
    serving_b = Node(tmp_path / "b.log", "master", "--store", str(b), "--listen", "127.0.0.1:0")
    try:
        listening = serving_b.line("listening")
        assert "is served by a master" in doctor(listening, "--store", b, "--patience", "6")["process"]
    finally:
        serving_b.stop()


# --- The broker ------------------------------------------------------------------------------------------------------


# HA-MD-20 "A JSON header MUST have `code`, `language`, `version`, `opaque`, `flag` and `serializeTypeCurrentRPC`".
HEADER_FIELDS = ("code", "language", "version", "opaque", "flag", "serializeTypeCurrentRPC")


def scripted_broker(version: str, config: str, code: int = 0) -> str:
    """Answers requests 28 and 26 as a broker does, if the header has each field that it must have."""

    def answer(asked: bytes) -> bytes:
        if not asked:  # it has heard enough
            return b""
        header = json.loads(asked[8:])
        if any(name not in header for name in HEADER_FIELDS):
            return b""
        table = {"brokerVersionDesc": version, "commitLogMinOffset": "0", "commitLogMaxOffset": "12345"}
        body = json.dumps({"table": table}).encode() if header["code"] == 28 else config.encode()
        told = json.dumps({"code": code, "flag": 1, "opaque": header["opaque"], "remark": "no"}).encode()
        return (4 + len(told) + len(body)).to_bytes(4, "big") + len(told).to_bytes(4, "big") + told + body

    return scripted_peer(answer, ask_size=4096, times=2)


def test_a_request_to_a_broker_has_the_fields_that_java_clients_send() -> None:
    """Every header recorded between RocketMQ's own clients and brokers has these fields."""
    for release in RELEASES:
        transcripts = json.loads((VECTORS / f"rocketmq-{release}" / "transcripts.json").read_text(encoding="utf-8"))
        headers = [row[side] for row in transcripts for side in ("request_header", "response_header") if row[side]]
        assert all(set(HEADER_FIELDS) <= set(header) for header in headers)
        assert {header["serializeTypeCurrentRPC"] for header in headers} == {"JSON"}


def test_the_bytes_of_a_request_to_a_broker() -> None:
    asked: list[bytes] = []

    def keep(request: bytes) -> bytes:
        asked.append(request)
        return b""

    host, port = scripted_peer(keep, ask_size=4096).split(":")
    with pytest.raises(NotTold, match="closes the connection"):
        ask_broker((host, int(port)))
    header = (
        b'{"code": 28, "language": "OTHER", "version": 399, "opaque": 28, "flag": 0, "extFields": {}, '
        b'"serializeTypeCurrentRPC": "JSON"}'
    )
    assert asked == [(4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header]


def test_a_broker_tells_its_version_and_what_is_known_of_it(tmp_path: Path) -> None:
    with serving(fill(tmp_path / "a", 0, 10)) as address:
        told = doctor(address, "--broker", scripted_broker("V4_9_8", "brokerRole=SYNC_MASTER\nbrokerName=b-1\n"))
        assert told["found"] == []
        assert told["broker"] == "V4_9_8, b-1, SYNC_MASTER | its log holds 0 to 12,345"
        assert "never notices a master that is silent" in told["known"]
        assert "inSyncReplicas" not in told["known"]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("brokerRole=SLAVE", ["role"]),
        ("haSendHeartbeatInterval=20000", ["intervals"]),
        ("mappedFileSizeCommitLog=1073741824", ["file size"]),
        ("mappedFileSizeCommitLog=4096", []),
    ],
)
def test_settings_that_cannot_work_are_findings(config: str, found: list[str], tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", 0, 10), fill(tmp_path / "b", 0, 10)
    with serving(a) as address:
        assert doctor(address, "--store", b, "--broker", scripted_broker("V5_3_3", config))["found"] == found


def test_a_broker_that_does_not_tell_is_a_finding(tmp_path: Path) -> None:
    with serving(fill(tmp_path / "a", 0, 10)) as address:
        told = doctor(address, "--broker", scripted_broker("V5_3_3", "", code=1))
        assert (told["found"], "with 1 (SYSTEM_ERROR): no" in told["broker"]) == (
            ["broker"],
            True,
        )
        for answer in (b"", b"\x7f\xff\xff\xff" + bytes(8), (8).to_bytes(4, "big") + bytes(3) + b"\x04nope"):
            told = doctor(address, "--broker", scripted_peer(lambda _, sent=answer: sent, ask_size=4096))  # type: ignore[misc]
            assert told["found"] == ["broker"]


def test_quirks_are_those_of_the_release() -> None:
    assert [parse_version(text) for text in ("V4_9_8", "V5_3_3", "V5_0_0_BETA", "HIGHER_VERSION", "")] == [
        (4, 9, 8),
        (5, 3, 3),
        (5, 0, 0),
        None,
        None,
    ]
    assert any("quirk 14" in text for text in quirks_of((5, 3, 1)))
    assert not any("quirk 14" in text for text in quirks_of((5, 3, 2)))
    assert any("quirk 6" in text for text in quirks_of((4, 3, 0)))
    assert not any("quirk 6" in text for text in quirks_of((4, 9, 8)))
    assert all(any("quirk 8" in text for text in quirks_of(version)) for version in ((4, 3, 0), (5, 3, 3)))
