"""What `tail` prints, saves and refuses: in this process, from a peer that sends prepared frames."""

import json
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kit.option_tables import TAIL_BY_DEFAULT
from kit.scripted_master import ScriptedMaster, frame, scripted_master
from rocketmq_ha.impl.app import tail as tail_module
from rocketmq_ha.impl.app.cursor import Position, read_cursor, write_cursor
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.app.tail import LogChanged, Tail
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, MessageMalformed, RocketmqHaError
from rocketmq_ha.impl.net.feed import FeedEnded, Unreachable
from rocketmq_ha.impl.wire.message import Message, encode

BASE = 4_096  # where the last file of the master begins, unless a test says otherwise


def log_of(*bodies: bytes, base: int = BASE, topics: str = "ttt", stored_ms: int = 1_000) -> list[tuple[int, bytes]]:
    """Records one after the other, with their offsets."""
    found: list[tuple[int, bytes]] = []
    for topic, body in zip(topics, bodies, strict=False):
        at = found[-1][0] + len(found[-1][1]) if found else base
        found.append((at, encode(Message(topic, body, physical_offset=at, store_timestamp=stored_ms))))
    return found


RECORDS = log_of(b"a" * 10, b"b" * 20, b"c" * 30)
OFFSETS = [at for at, _ in RECORDS]
END = RECORDS[-1][0] + len(RECORDS[-1][1])
DATA = b"".join(record for _, record in RECORDS)
SENT = frame(BASE, DATA)


def behind(number: int, **changed: int) -> Position:
    """The position behind a record of RECORDS, the first being 1."""
    at, record = RECORDS[number - 1]
    return Position(at + len(record), at, len(record), zlib.crc32(record))._replace(**changed)


@dataclass
class Told:
    """The lines that tail has printed, its end, and its cursor."""

    lines: list[dict[str, Any]]
    error: Exception | None
    position: Position | None  # as it is saved

    @property
    def offsets(self) -> list[int]:
        return [line["commit_log_offset"] for line in self.lines]


def run(master: ScriptedMaster, position: Position | None = None, turns: int = 2_000, **options: Any) -> Told:
    """Run tail until it ends by itself, or for so many turns."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as out:
        cursor = Path(directory, "cursor")
        values = {"cursor": cursor, "settle": 0.0} | options
        tail = Tail(
            replace(TAIL_BY_DEFAULT, master=MasterEndpoint(*master.address), **values), StdoutWriter(out.fileno()), position
        )
        left = iter(range(turns))
        error = None
        try:
            tail.run(lambda: next(left, None) is None)
        except RocketmqHaError as found:
            error = found
        out.seek(0)
        return Told([json.loads(line) for line in out], error, read_cursor(cursor))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shorten the silence after which a master has no more, and the turns."""
    monkeypatch.setattr(tail_module, "_END_S", 0.02)
    monkeypatch.setattr(tail_module, "_TURN_MS", 5)
    yield


# --- Where to begin ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "position", "limit", "expected"),
    [
        pytest.param("last", None, 3, [0, 1, 2], id="last"),
        pytest.param("last", None, 2, [0, 1], id="a limit"),
        pytest.param(OFFSETS[0], None, 3, [0, 1, 2], id="offset of the first"),
        pytest.param(OFFSETS[1], None, 2, [1, 2], id="offset of the second"),
        pytest.param("last", behind(1), 2, [1, 2], id="behind the first"),
        pytest.param("min", behind(2), 1, [2], id="behind the second"),
        pytest.param(OFFSETS[0], behind(2), 1, [2], id="a position wins over an offset"),
        pytest.param("last", Position(OFFSETS[1]), 2, [1, 2], id="a position without a record before it"),
    ],
)
def test_it_begins_where_it_is_told(start: str | int, position: Position | None, limit: int, expected: list[int]) -> None:
    with scripted_master(SENT) as master:
        told = run(master, position, start=start, limit=limit)
        assert told.error is None
        assert told.offsets == [OFFSETS[number] for number in expected]
        assert told.position == behind(expected[-1] + 1)
        assert set(master.reports[0]) == {0}


def test_a_log_from_its_byte_1_on_is_read_from_its_first_message() -> None:
    """Byte 0 of the log cannot be requested while its file is not the last one."""
    (at, record), *_ = first = log_of(b"x", b"y", base=0)
    data = b"".join(record for _, record in first)
    with scripted_master(frame(BASE, DATA), frame(1, data[1:]), closes=False) as master:
        told = run(master, start="min", limit=2)
    assert (told.error, told.offsets) == (None, [at, len(record)])
    assert [bytes(report[:8]) for report in master.reports] == [bytes(8), (1).to_bytes(8, "big")]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param((0, 0, 1), [2], id="the last one is new"),
        pytest.param((0, 1, 0), [1, 2], id="all after the first new one"),
        pytest.param((1, 1, 1), [0, 1, 2], id="all are new"),
    ],
)
def test_end_skips_what_was_stored_before_the_connection(
    stored: tuple[int, ...], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0: a millisecond before the connection; 1: at that millisecond."""
    now_ms = wall_clock_ms()
    monkeypatch.setattr(tail_module, "wall_clock_ms", lambda: now_ms)
    records = list[tuple[int, bytes]]()
    for number, is_new in enumerate(stored):
        at = records[-1][0] + len(records[-1][1]) if records else BASE
        message = Message("t", b"%d" % number, physical_offset=at, store_timestamp=now_ms - 1 + is_new)
        records.append((at, encode(message)))
    with scripted_master(frame(BASE, b"".join(record for _, record in records))) as master:
        told = run(master, start="end", limit=len(expected))
    assert (told.error, told.offsets) == (None, [records[number][0] for number in expected])


def test_end_skips_until_the_first_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes later is printed, though its clock is behind ours. The position is saved without a line."""
    monkeypatch.setattr(tail_module, "_PAUSE_S", 60.0)
    two = len(RECORDS[0][1]) + len(RECORDS[1][1])
    with scripted_master(frame(BASE, DATA[:two]) + frame(OFFSETS[2])) as master:
        told = run(master, start="end", stop_at_end=True)
    assert (told.error, told.offsets, told.position) == (None, [], behind(2))
    later = frame(OFFSETS[2], RECORDS[2][1])
    with scripted_master(frame(BASE, DATA[:two]) + frame(OFFSETS[2]), then=later) as master:
        told = run(master, start="end", limit=1, heartbeat=50)
    assert (told.error, told.offsets, told.position) == (None, OFFSETS[2:], behind(3))


def test_end_skips_until_some_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "_PAUSE_S", 0.0)
    with scripted_master(SENT) as master:
        told = run(master, start="end", turns=400)
    assert (told.error, told.offsets, told.position) == (None, [], behind(3))


@pytest.mark.parametrize(
    ("topics", "limit", "expected"),
    [((), 3, [0, 1, 2]), (("u",), 1, [1]), (("t", "v"), 2, [0, 2]), (("v",), 1, [2])],
)
def test_only_the_topics_that_are_asked_for_are_printed(topics: tuple[str, ...], limit: int, expected: list[int]) -> None:
    records = log_of(b"a", b"b", b"c", topics="tuv")
    with scripted_master(frame(BASE, b"".join(record for _, record in records))) as master:
        told = run(master, topics=topics, limit=limit)
    assert (told.error, told.offsets) == (None, [records[number][0] for number in expected])


def test_a_message_of_another_topic_moves_the_cursor() -> None:
    with scripted_master(SENT + frame(END)) as master:
        told = run(master, topics=("other",), stop_at_end=True)
    assert (told.error, told.lines, told.position) == (None, [], behind(3))


@pytest.mark.parametrize("body", ["text", "base64", "none"])
def test_the_body_is_printed_as_it_is_asked_for(body: str) -> None:
    with scripted_master(SENT) as master:
        (line,) = run(master, limit=1, body=body).lines
    expected = {"text": ("aaaaaaaaaa", None), "base64": (None, "YWFhYWFhYWFhYQ=="), "none": (None, None)}[body]
    assert (line.get("body"), line.get("body_base64")) == expected


# --- A log that is not the one that was read ----------------------------------------------------------------------------

CHANGED = (
    f"the message at offset {OFFSETS[0]} is not the one that was read before: the master's log has been cut and has grown "
    "again, or this is another master. Begin elsewhere: --from, without the old cursor"
)


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(behind(1, last_crc=zlib.crc32(RECORDS[0][1]) ^ 1), id="another CRC"),
        pytest.param(behind(1, last_crc=0), id="no CRC"),
        pytest.param(behind(1, last_size=len(RECORDS[0][1]) + 1), id="another size"),
    ],
)
def test_the_message_before_the_cursor_must_be_the_one_that_was_read(position: Position) -> None:
    with scripted_master(SENT) as master:
        told = run(master, position, limit=1)
    assert isinstance(told.error, LogChanged)
    assert (str(told.error), told.lines, told.position) == (CHANGED, [], None)


def test_another_message_of_the_same_size_is_not_the_one_that_was_read() -> None:
    """Only its CRC tells them apart."""
    other = log_of(b"A" * 10, b"b" * 20)
    with scripted_master(frame(BASE, b"".join(record for _, record in other))) as master:
        told = run(master, behind(1), limit=1)
    assert (str(told.error), told.lines) == (CHANGED, [])


GARBAGE = b"\x7f" * 200


@pytest.mark.parametrize(
    ("sent", "position", "kind", "begin", "end"),
    [
        pytest.param(
            frame(BASE, GARBAGE),
            behind(1),
            LogChanged,
            f"the log is not the one that was read before: at commit-log offset {BASE}: found ",
            ". Begin elsewhere: --from, without the old cursor",
            id="at the record before the cursor",
        ),
        pytest.param(
            SENT,
            Position(BASE + 7),
            ConfigInvalid,
            f"offset {BASE + 7} is not the start of a message: at commit-log offset {BASE + 7}: found ",
            "",
            id="at the offset that was asked for",
        ),
        pytest.param(
            frame(BASE, RECORDS[0][1] + GARBAGE),
            Position(BASE),
            LogChanged,
            f"the master sent bytes that are no message: at commit-log offset {OFFSETS[1]}: found ",
            "",
            id="behind the first record",
        ),
        pytest.param(
            frame(BASE, RECORDS[0][1] + GARBAGE),
            behind(1),
            LogChanged,
            f"the master sent bytes that are no message: at commit-log offset {OFFSETS[1]}: found ",
            "",
            id="behind the record before the cursor",
        ),
    ],
)
def test_bytes_that_are_no_message_are_explained(
    sent: bytes, position: Position, kind: type[Exception], begin: str, end: str
) -> None:
    with scripted_master(sent) as master:
        told = run(master, position)
    assert type(told.error) is kind
    assert str(told.error).startswith(begin) and str(told.error).endswith(end)


def test_a_damaged_message_is_named_and_the_messages_before_it_are_printed() -> None:
    damaged = bytearray(DATA)
    damaged[len(RECORDS[0][1]) + 95] ^= 1  # in the body of the second
    with scripted_master(frame(BASE, bytes(damaged))) as master:
        told = run(master)
    assert isinstance(told.error, LogChanged) and isinstance(told.error.__cause__, MessageMalformed)
    assert str(told.error) == f"the master sent a damaged message: at commit-log offset {OFFSETS[1]}: {told.error.__cause__}"
    assert (told.offsets, told.position) == (OFFSETS[:1], behind(1))


# --- The end of the master's log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "is_beyond"),
    [
        (behind(3), False),
        (Position(END), False),
        (Position(END + 1), True),
        (Position(END + 1_000), True),
    ],
)
def test_an_offset_beyond_the_masters_end_is_refused(position: Position, is_beyond: bool) -> None:
    with scripted_master(SENT + frame(END)) as master:
        told = run(master, position, stop_at_end=not is_beyond)
    expected = (
        f"offset {position.next_offset} is beyond the master's end, {END}: its log has been cut or replaced, or the offset is "
        "wrong. Begin elsewhere: --from"
    )
    assert (None if told.error is None else str(told.error), told.lines) == (expected if is_beyond else None, [])


@pytest.mark.parametrize(("is_told", "end_s", "ends"), [(True, 0.02, True), (False, 0.02, False), (True, 60.0, False)])
def test_it_ends_after_some_silence_behind_a_heartbeat_if_it_is_told_to(
    is_told: bool, end_s: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_END_S", end_s)
    turns = iter(range(2_000 if ends else 300))
    with scripted_master(SENT + frame(END)) as master, tempfile.TemporaryFile() as out:
        options = replace(TAIL_BY_DEFAULT, master=MasterEndpoint(*master.address), stop_at_end=is_told)
        Tail(options, StdoutWriter(out.fileno()), None).run(lambda: next(turns, None) is None)
        assert (next(turns, None) is not None) == ends
        out.seek(0)
        assert len(out.readlines()) == 3


def test_data_behind_a_heartbeat_is_not_the_end() -> None:
    with scripted_master(frame(BASE, DATA[:50]) + frame(BASE + 50) + frame(BASE + 50, DATA[50:]) + frame(END)) as master:
        told = run(master, stop_at_end=True)
    assert (told.error, told.offsets) == (None, OFFSETS)


# --- Connections ---------------------------------------------------------------------------------------------------------


def test_a_first_connection_that_fails_is_an_error_and_a_later_one_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_master(b"", closes=True) as master:
        gone = master
    assert isinstance(run(gone).error, Unreachable)
    with scripted_master(b"", b"", closes=True) as master:
        assert isinstance(run(master).error, FeedEnded)
    lines: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(tail_module.log, level, lambda text, *values, **_: lines.append(text % values))
    cut = len(RECORDS[0][1]) + 33
    with scripted_master(frame(BASE, DATA)[: 12 + cut], SENT, closes=True) as master:
        told = run(master, limit=3)
    assert (told.error, told.offsets) == (None, OFFSETS)
    assert lines == [
        f"{master.name}: connected; reading from offset {BASE}",
        f"{master.name}: the master has closed the connection; connecting again",
        f"{master.name}: connected; sent from offset {BASE} on, going on at {OFFSETS[1]}",
    ]


def test_the_lines_are_on_the_disk_before_the_cursor_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(StdoutWriter, "sync", lambda _: done.append("sync"))
    monkeypatch.setattr(tail_module, "write_cursor", lambda *_: done.append("cursor"))
    with scripted_master(SENT) as master:
        assert run(master, limit=3).error is None
    assert done
    assert done == ["sync", "cursor"] * (len(done) // 2)


def test_a_cursor_is_not_written_where_nothing_was_read(tmp_path: Path) -> None:
    write_cursor(tmp_path / "cursor", behind(1))
    before = (tmp_path / "cursor").stat().st_mtime_ns, (tmp_path / "cursor").stat().st_ino
    with scripted_master(frame(BASE, RECORDS[0][1]) + frame(OFFSETS[1])) as master:
        told = run(master, behind(1), stop_at_end=True, cursor=tmp_path / "cursor")
    assert told.error is None
    assert ((tmp_path / "cursor").stat().st_mtime_ns, (tmp_path / "cursor").stat().st_ino) == before
