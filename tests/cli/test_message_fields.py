"""A message as a JSON line and as a row of a table: each field at its name or in its column, no two values equal."""

import json
import zlib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.command_line import invoke
from kit.messages import EVERY_FIELD
from rocketmq_ha.impl.app import query as query_module
from rocketmq_ha.impl.app.cursor import Position, read_cursor, write_cursor
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.app.query import KeyQuery, find_messages
from rocketmq_ha.impl.cli import progress as progress_module
from rocketmq_ha.impl.cli.message_table import MESSAGE_COLUMNS, message_row, preview
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.constants import SYS_FLAG_COMPRESSED


def test_each_field_of_a_line() -> None:
    assert json.loads(message_line(1_300, 456, EVERY_FIELD, "text")) == {
        "commit_log_offset": 1_300,
        "store_size": 456,
        "next_offset": 1_756,
        "topic": "orders",
        "queue_id": 11,
        "queue_offset": 12,
        "tags": "a",
        "keys": ["k1", "k2"],
        "properties": {"KEYS": "k1  k2", "TAGS": "a", "other": "b"},
        "born_timestamp": 1_700_000_000_015,
        "born_time": "2023-11-14T22:13:20.015Z",
        "born_host": "10.0.0.16:17",
        "store_timestamp": 1_700_000_001_018,
        "store_time": "2023-11-14T22:13:21.018Z",
        "store_host": "10.0.0.19:20",
        "flag": 14,
        "sys_flag": 8,
        "reconsume_times": 21,
        "prepared_transaction_offset": 22,
        "transaction": "commit",
        "body_crc": zlib.crc32(b"hello"),
        "body_size": 5,
        "body": "hello",
    }


@pytest.mark.parametrize(("sys_flag", "transaction"), [(0, None), (4, "prepared"), (8, "commit"), (12, "rollback"), (16, None)])
def test_the_part_of_a_transaction(sys_flag: int, transaction: str | None) -> None:
    assert json.loads(message_line(0, 1, Message("t", b"", sys_flag=sys_flag), "none"))["transaction"] == transaction


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("a b", ["a", "b"]),
        (" a  b ", ["a", "b"]),
        ("a\tb", ["a\tb"]),
        ("a\u3000b c", ["a\u3000b", "c"]),
        ("a\nb", ["a\nb"]),
        ("", []),
        (" ", []),
    ],
)
def test_the_keys_are_those_of_the_index(keys: str, expected: list[str], tmp_path: Path) -> None:
    """Blanks alone separate keys. Each key of a line is one by which a query finds the message."""
    message = Message("t", b"x", properties_string=f"KEYS\x01{keys}")
    found = json.loads(message_line(0, 1, message, "none"))
    assert found["keys"] == expected
    with MessageStore.open(tmp_path, StoreOptions(file_size=4096)) as store:
        store.put(message)
        assert store.wait_for_dispatch(timeout_s=60)
        assert [len(store.query("t", key)) for key in expected] == [1] * len(expected)


@pytest.mark.parametrize("text", ["a\udcffb", "\udce9"])
def test_bytes_that_are_no_text_are_shown_by_the_replacement_character(text: str) -> None:
    shown = text.replace("\udcff", "\ufffd").replace("\udce9", "\ufffd")
    message = Message(text, b"x", properties_string=f"TAGS\x01{text}\x02{text}\x01v")
    found = json.loads(message_line(0, 1, message, "none"))
    assert (found["topic"], found["tags"], found["properties"]) == (shown, shown, {"TAGS": shown, shown: "v"})


def test_a_message_without_properties_has_neither_tags_nor_keys() -> None:
    found = json.loads(message_line(0, 1, Message("t", b"x"), "none"))
    assert (found["tags"], found["keys"], found["properties"]) == (None, [], {})
    assert not [name for name in found if name.startswith("body") and name not in ("body_crc", "body_size")]


PLAIN, ZIPPED = b'{"a": 1}', zlib.compress(b'{"a": 1}')


@pytest.mark.parametrize(
    ("body", "sys_flag", "mode", "expected"),
    [
        (PLAIN, 0, "text", {"body": '{"a": 1}'}),
        (PLAIN, 0, "json", {"body_json": {"a": 1}}),
        (b"no json", 0, "json", {"body": "no json"}),
        (b"NaN", 0, "json", {"body": "NaN"}),
        (b"[-Infinity]", 0, "json", {"body": "[-Infinity]"}),
        (b"[" * 100_000, 0, "json", {"body": "[" * 100_000}),  # deeper than Python's parser goes
        (b"\xff", 0, "json", {"body_base64": "/w=="}),
        (b"\xff", 0, "text", {"body_base64": "/w=="}),
        (PLAIN, 0, "base64", {"body_base64": "eyJhIjogMX0="}),
        (PLAIN, 0, "raw", {"body_base64": "eyJhIjogMX0=", "body_is_stored": False}),
        (PLAIN, 0, "none", {}),
        (ZIPPED, SYS_FLAG_COMPRESSED, "text", {"body": '{"a": 1}'}),
        (ZIPPED, SYS_FLAG_COMPRESSED, "base64", {"body_base64": "eyJhIjogMX0="}),
        (b"zz", SYS_FLAG_COMPRESSED, "raw", {"body_base64": "eno=", "body_is_stored": True}),
        (b"zz", SYS_FLAG_COMPRESSED, "text", {"body_base64": "eno=", "body_is_stored": True}),
    ],
)
def test_the_fields_of_a_body(body: bytes, sys_flag: int, mode: str, expected: dict[str, object]) -> None:
    found = json.loads(message_line(0, 1, Message("t", body, sys_flag=sys_flag), mode))
    fields = {name: value for name, value in found.items() if name.startswith("body") and name not in ("body_crc", "body_size")}
    assert fields == expected
    assert found["body_size"] == len(body)


@pytest.mark.parametrize("character", ["\x7f", "\x9f", "\u2028", "\u2029"])
def test_a_character_that_ends_a_line_or_drives_a_terminal_is_escaped(character: str) -> None:
    line = message_line(0, 1, Message("t", f"a{character}b".encode()), "text").decode()
    assert f"\\u{ord(character):04x}" in line and character not in line
    assert json.loads(line)["body"] == f"a{character}b"


# --- The table -----------------------------------------------------------------------------------------------------------


def test_each_cell_of_a_row() -> None:
    names = ["offset", "size", "queue", "queue offset", "topic", "stored (UTC)", "tags", "keys", "body"]
    assert [column.name for column in MESSAGE_COLUMNS] == names
    cells = ["1300", "456", "11", "12", "orders", "2023-11-14 22:13:21.018", "a", "k1  k2", "hello"]
    assert message_row(1_300, 456, EVERY_FIELD) == cells


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (999, "1970-01-01 00:00:00.999"),
        (253_402_300_799_000, "9999-12-31 23:59:59.000"),
        (253_402_300_800_000, "253402300800000"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_a_time_in_a_row(timestamp_ms: int, shown: str) -> None:
    assert message_row(0, 0, Message("t", b"", store_timestamp=timestamp_ms))[5] == shown


@pytest.mark.parametrize(
    ("body", "sys_flag", "shown"),
    [
        (b"x" * 64, 0, "x" * 64),
        (b"x" * 65, 0, "x" * 64 + "…"),
        (b"x" * 63 + "é".encode(), 0, "x" * 63 + "…"),  # the cut goes through a character
        (b"\xff" * 16, 0, "0x" + "ff" * 16),
        (b"\xff" * 17, 0, "0x" + "ff" * 16 + "…"),
        (b"a\tb\nc\rd", 0, "a·b·c·d"),
        (b"a\x00b", 0, "0x610062"),
        (zlib.compress(b"y" * 64), SYS_FLAG_COMPRESSED, "y" * 64),
        (zlib.compress(b"y" * 1_000), SYS_FLAG_COMPRESSED, "y" * 64 + "…"),
        (b"zz", SYS_FLAG_COMPRESSED, "zz"),
    ],
)
def test_the_beginning_of_a_body(body: bytes, sys_flag: int, shown: str) -> None:
    assert preview(Message("t", body, sys_flag=sys_flag)) == shown


# --- inspect and query ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with CommitLog.open(tmp_path / "s", file_size=1 << 16) as log:
        for number in range(103):
            log.append(Message("orders", b"%d" % number, queue_id=number))
    return tmp_path / "s"


def offsets_of(store: Path) -> list[int]:
    with LogReader(store) as reader:
        return [offset for offset, _, _ in reader.records()]


@pytest.mark.parametrize(
    ("words", "first", "count", "more"),
    [
        ((), 0, 100, True),
        (("--json",), 0, 103, False),
        (("--json", "--limit", "102"), 0, 102, True),
        (("--json", "--limit", "103"), 0, 103, False),
        (("--limit", "3"), 0, 3, True),
        (("--from", "AT 3"), 3, 100, False),
        (("--from", "AT 2"), 2, 100, True),
        (("--from", "AFTER 2"), 3, 100, False),
        (("--json", "--from", "AT 102"), 102, 1, False),
    ],
)
def test_inspect_tells_whether_more_messages_follow(
    words: tuple[str, ...], first: int, count: int, more: bool, store: Path
) -> None:
    offsets = offsets_of(store)
    where = {f"{word} {at}": str(offset + (word == "AFTER")) for word in ("AT", "AFTER") for at, offset in enumerate(offsets)}
    result = invoke("inspect", store, *(where.get(word, word) for word in words))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    if "--json" in words:
        assert [json.loads(line)["commit_log_offset"] for line in lines] == offsets[first : first + count]
    else:
        assert [int(line.split()[0]) for line in lines[1:]] == offsets[first : first + count]
    told = f"more messages follow: --from {offsets[first + count]}, --limit N, or --json\n" if more else ""
    assert result.stderr == told


def test_a_search_without_an_index_reads_the_whole_log_and_shows_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "_REPORTED_EVERY", 50)
    shown: list[tuple[str, int]] = []
    told: list[int] = []

    def show(what: str, total: int) -> Any:
        shown.append((what, total))
        return nullcontext(told.append)

    assert find_messages(store, KeyQuery("orders", "k", 0, 1 << 62, 5), show, scan=True) == []
    offsets = offsets_of(store)
    with LogReader(store) as reader:
        size = reader.data_size()
    assert shown == [(f"looking through {store}", size)]
    assert told == [offsets[0], offsets[50], offsets[100], size]  # at the end all has been looked through


def test_a_search_with_an_index_reads_what_is_behind_it(tmp_path: Path) -> None:
    options = StoreOptions(file_size=1 << 16, queue_file_size=6000, floor_size=0)
    with MessageStore.open(tmp_path / "s", options) as opened:
        for number in range(5):
            opened.put(Message("orders", b"%d" % number, properties_string="KEYS\x01k"))
    offsets = offsets_of(tmp_path / "s")
    starts: list[int] = []

    def show(_: str, total: int) -> Any:
        starts.append(total)
        return nullcontext(lambda _: None)

    for scan, limit, expected in ((False, 9, offsets), (True, 9, offsets), (False, 2, offsets[-2:])):
        found = find_messages(tmp_path / "s", KeyQuery("orders", "k", 0, 1 << 62, limit), show, scan=scan)
        assert [offset for offset, *_ in found] == expected
    assert starts[0] < starts[1]


# --- Cursors -------------------------------------------------------------------------------------------------------------

GOOD = {"version": 1, "next_offset": 500, "last_offset": 400, "last_size": 100, "last_crc": 77}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (GOOD, Position(500, 400, 100, 77)),
        ({"version": 1, "next_offset": 0}, Position(0, -1, 0, 0)),
        (GOOD | {"next_offset": -1}, "found version 1, Position(next_offset=-1, "),
        (GOOD | {"version": 2}, "found version 2, Position(next_offset=500, "),
        (GOOD | {"next_offset": 5.0}, "found version 1, Position(next_offset=5.0, "),
        (GOOD | {"last_crc": True}, "found version 1, Position("),
        (GOOD | {"more": 1}, "found something else, expected a cursor of `rocketmq-ha tail`"),
        ({"version": 1}, "found something else, expected a cursor of `rocketmq-ha tail`"),
        ({"next_offset": 5}, "found something else, expected a cursor of `rocketmq-ha tail`"),
        ([1], "found something else, expected a cursor of `rocketmq-ha tail`"),
    ],
)
def test_a_cursor_is_read_or_refused(fields: object, expected: Position | str, tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    path.write_text(json.dumps(fields))
    if isinstance(expected, Position):
        assert read_cursor(path) == expected
        return
    with pytest.raises(ConfigInvalid) as found:
        read_cursor(path)
    assert str(found.value).startswith(f"{path}: {expected}")


def test_a_cursor_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cursor"
    write_cursor(path, Position(1, 2, 3, 4))
    assert json.loads(path.read_text()) == {"version": 1, "next_offset": 1, "last_offset": 2, "last_size": 3, "last_crc": 4}

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rocketmq_ha.impl.app.cursor.os.fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_cursor(path, Position(9))
    monkeypatch.undo()
    assert read_cursor(path) == Position(1, 2, 3, 4)
    assert [each.name for each in tmp_path.iterdir()] == ["cursor"]


# --- Progress ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(progress_module.logger, "info", lambda text, *values: found.append(text % values))
    return found


def test_long_work_on_bytes_logs_a_line_every_ten_seconds(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: times[0])
    with progress_module.byte_progress("looking", 50_000_000) as update:
        for now_s, done in ((110.0, 1), (110.1, 20_200_000), (120.1, 30_000_000), (120.3, 60_000_000), (131.0, 0)):
            times[0] = now_s
            update(done)
    assert lines == [
        "looking: 20200000 of 50000000 bytes, 2 MB/s, 14.9 s left".replace("14.9", "15"),
        "looking: 60000000 of 50000000 bytes, 3 MB/s, 0 s left",
        "looking: 0 of 50000000 bytes, 0 MB/s, 0 s left",
    ]


def test_progress_of_puts_takes_numbers_and_shows_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_module.put_progress(5) as update:
        update(3)
    assert capsys.readouterr().err == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error counts as a terminal."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)


@pytest.mark.usefixtures("terminal")
def test_work_on_bytes_shows_a_bar_on_a_terminal_after_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress_module.byte_progress("looking", 4096) as update:
        for now_s, done in ((100.5, 1024), (101.0, 1024)):
            now[0] = now_s
            update(done)
            assert capsys.readouterr().err == ""
        now[0] = 101.1
        update(2048)
        shown = capsys.readouterr().err
        assert "looking" in shown and "2.0/4.0 KiB" in shown
        update(8192)  # more than was announced: a log grows while it is read
    shown = capsys.readouterr().err
    assert "8.0/8.0 KiB" in shown
    assert "\x1b[?25h" in shown  # the cursor is there again


@pytest.mark.usefixtures("terminal")
def test_short_work_on_bytes_shows_nothing_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_module.byte_progress("looking", 4096) as update:
        update(4096)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_progress_of_puts_shows_the_number_of_those_that_were_put(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress_module.put_progress(50) as update:
        now[0] = 104.0
        update(20)
        update(30)
    shown = capsys.readouterr().err
    assert "put" in shown and "30/50" in shown and "8/s" in shown and "50/50" not in shown


@pytest.mark.usefixtures("terminal")
def test_a_bar_of_puts_is_drawn_before_the_first_put(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no rate yet, for example while a producer waits for its slaves."""
    with progress_module.put_progress(5):
        pass
    assert "0/5" in capsys.readouterr().err
