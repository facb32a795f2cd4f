"""Trace validation: the model accepts a recorded link of our own processes, and refuses an edited one."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.fuzz.trace import Checked, TraceRefusedError, check_transcript, record_ends
from rocketmq_ha.fuzz.transcript import Piece, Restarted, Transcript, load, save
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.reference.store import Log, max_offset
from rocketmq_ha.reference.wire import pack_header, unpack_header
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 1 << 18
SETTINGS = Settings(FILE_SIZE)
MESSAGES = 400


def log_of(store: Path) -> Log:
    with LogReader(store) as reader:
        reader.walk()
        base, end = reader.min_offset, reader.max_offset
    data = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
    return Log(FILE_SIZE, base, data[: end - base])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transcript, Log]:
    """Record about 1 MB in four files, with connections cut in a header and in a body, and a kill -9 of the slave."""
    work, transcript = tmp_path_factory.mktemp("trace"), Transcript()
    size = ("--file-size", str(FILE_SIZE))
    with ExitStack() as nodes:
        serve = ("master", "--store", str(work / "master"), "--listen", "127.0.0.1:0", *size, "--size", "2500")
        patient = ("--sync-flush-timeout", "60000")
        master = Node(work / "master.log", *serve, "--put", str(MESSAGES), "--await-slaves", "1", "--in-flight", "4", *patient)
        nodes.callback(master.stop)
        cuts = [PlannedCut(200_000, 5), PlannedCut(400_000, 0)]
        proxy = CuttingProxy(parse_address(master.line("listening")), cuts, transcript)
        nodes.callback(proxy.close)
        follow = ("slave", "--store", str(work / "slave"), "--master", proxy.address, *size)
        first = Node(work / "slave.log", *follow)
        while proxy.body_bytes < 600_000:
            first.check()
            time.sleep(0.01)
        first.kill()
        proxy.note_restart()
        second = Node(work / "slave.log", *follow)
        nodes.callback(second.stop)
        assert f"PUT_OK={MESSAGES}" in master.line("put")  # all but the last few waited for an acknowledgement
        while proxy.links < 4 or proxy.slave_ack_offset < max_offset(log_of(work / "master")):
            second.check()
            time.sleep(0.01)
    return transcript, log_of(work / "master")


def check(transcript: Transcript, log: Log) -> Checked:
    return check_transcript(transcript, log, SETTINGS, HARDENED, HARDENED)


def test_a_recorded_link_is_one_of_the_model(recorded: tuple[Transcript, Log], tmp_path: Path) -> None:
    transcript, log = recorded
    found = check(transcript, log)
    assert found.links >= 4  # the first one, one after each cut, one after the kill
    assert found.slave_max_offset == found.slave_ack_offset == max_offset(log) > 3 * FILE_SIZE
    assert found.frames > 40
    assert len(record_ends(log)) > MESSAGES
    save(transcript, tmp_path / "transcript.jsonl")
    assert load(tmp_path / "transcript.jsonl") == transcript


def frames_of(transcript: Transcript) -> list[tuple[int, int, int]]:
    """Return (piece, position in it, body size) of each frame whose header lies in one piece."""
    found, skip, links = [], 0, set()
    for number, piece in enumerate(transcript):
        if isinstance(piece, Restarted) or piece.source == "slave":
            continue
        if piece.link not in links:
            links.add(piece.link)
            skip = 0
        at = skip
        while at + 12 <= len(piece.data):
            body_size = unpack_header(piece.data[at : at + 12])[1]
            found.append((number, at, body_size))
            at += 12 + body_size
        if at < len(piece.data):
            return found  # a header is split: the frames before it are enough
        skip = at - len(piece.data)
    return found


def edited(transcript: Transcript, number: int, change: Callable[[bytes], bytes]) -> Transcript:
    piece = transcript[number]
    assert isinstance(piece, Piece)
    data = change(piece.data)
    passed = max(0, piece.passed + len(data) - len(piece.data))
    return [*transcript[:number], replace(piece, data=data, passed=passed), *transcript[number + 1 :]]


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def last_of_the_slave(transcript: Transcript) -> int:
    return max(n for n, piece in enumerate(transcript) if isinstance(piece, Piece) and piece.source == "slave")


def test_edits_of_frames_are_refused(recorded: tuple[Transcript, Log]) -> None:
    transcript, log = recorded
    bodies = [(number, at, size) for number, at, size in frames_of(transcript) if size > 100]
    number, at, size = bodies[3]
    offset = unpack_header(transcript[number].data[at : at + 12])[0]  # type: ignore[union-attr]
    plants = {
        "a byte of a body": (flip(at + 12 + size // 2), "the transcript has"),
        "an offset": (flip(at + 6), "frame"),
        "a frame that is missing": (lambda data: data[:at] + data[at + 12 + size :], "frame"),
        "a frame that comes twice": (lambda data: data[: at + 12 + size] + data[at:], "frame"),
        "a heartbeat of another offset": (lambda data: data[:at] + pack_header(offset + 8, 0) + data[at:], "a heartbeat"),
        "a negative size": (lambda data: data[:at] + pack_header(offset, -4) + data[at:], "one of -4"),
        "a frame in two that no master makes": (
            lambda data: (
                data[:at]
                + pack_header(offset, 50)
                + data[at + 12 : at + 62]
                + pack_header(offset + 50, size - 50)
                + data[at + 62 :]
            ),
            "inside a record",
        ),
    }
    for name, (change, told) in plants.items():
        with pytest.raises(TraceRefusedError, match=told):
            check(edited(transcript, number, change), log)
            pytest.fail(f"not refused: {name}")


def test_edits_of_reports_are_refused(recorded: tuple[Transcript, Log]) -> None:
    transcript, log = recorded
    last = last_of_the_slave(transcript)
    with pytest.raises(TraceRefusedError, match="a report of"):
        check(edited(transcript, last, lambda data: data[:-8] + (max_offset(log) - 1).to_bytes(8, "big")), log)
    with pytest.raises(TraceRefusedError, match="reports of 8 bytes"):
        check(edited(transcript, last, lambda data: data[:-1]), log)
    before = max(n for n, piece in enumerate(transcript[:last]) if isinstance(piece, Piece) and piece.source == "master")
    early = [*transcript[:before], transcript[last], *transcript[before:last], *transcript[last + 1 :]]
    with pytest.raises(TraceRefusedError, match="a report of"):
        check(early, log)
    first = next(n for n, piece in enumerate(transcript) if isinstance(piece, Piece) and piece.source == "slave")
    with pytest.raises(TraceRefusedError, match="a first report of 0"):
        check(edited(transcript, first, lambda _: (100).to_bytes(8, "big")), log)
    with pytest.raises(TraceRefusedError, match="nothing to send"):
        check([*transcript[:first], *transcript[first + 1 :]], log)


def test_another_log_is_refused(recorded: tuple[Transcript, Log]) -> None:
    transcript, log = recorded
    with pytest.raises(TraceRefusedError, match="no whole record"):
        check(transcript, replace(log, data=log.data[:5000] + b"\0" + log.data[5001:]))
    with pytest.raises(TraceRefusedError, match="within the log"):
        check(transcript, replace(log, data=log.data[: FILE_SIZE * 2]))


def test_a_file_that_is_no_transcript_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("{}\n")
    with pytest.raises(FuzzError, match="notes:1: expected a piece"):
        load(tmp_path / "notes")
