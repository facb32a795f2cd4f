"""inspect, verify and the general form of the command line: results on stdout, one line and status 2 for bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import zlib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from kit.children import Child
from kit.command_line import invoke
from kit.files import delete_log_files, log_file, patch, snapshot
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.app import logs, verify
from rocketmq_ha.impl.app.bare_log import bare_log
from rocketmq_ha.impl.cli import commands
from rocketmq_ha.impl.cli.message_table import preview
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.verify import DerivedSummary, verify_derived
from rocketmq_ha.impl.store.log import opening
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 1024
GEOMETRY = Geometry(hash_slot_num=50, index_num=100)
OPTIONS = StoreOptions(file_size=FILE_SIZE, queue_file_size=6000, index_geometry=GEOMETRY, floor_size=0)


@pytest.fixture(autouse=True)
def quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)
    yield
    logs.logging.getLogger("rocketmq_ha").handlers.clear()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three files of ten messages."""
    path = tmp_path / "store"
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        for index in range(10):
            log.append(
                Message(
                    f"topic-{index % 2}",
                    f"body {index} ".encode() * 10,
                    queue_id=index % 2,
                    born_host=("10.0.0.1", 5),
                    store_timestamp=1_700_000_000_123,
                    properties_string=f"KEYS\x01key-{index}\x02TAGS\x01a",
                )
            )
    return path


def process(*arguments: object, **options: object) -> subprocess.Popen[str]:
    script = f"import sys; sys.path[:0] = {sys.path!r}; from rocketmq_ha.impl.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return Child(command, **streams)  # type: ignore[call-overload, no-any-return]


# --- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect_shows_messages_as_a_table(store: Path) -> None:
    result = invoke("inspect", store)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert " ".join(lines[0].split()) == "offset size queue queue offset topic stored (UTC) tags keys body"
    assert len(lines) == 11
    assert lines[4].split()[:7] == ["555", "185", "1", "1", "topic-1", "2023-11-14", "22:13:20.123"]
    assert "key-3" in lines[4]
    assert "body 3 body 3" in lines[4]


def test_inspect_gives_all_fields_as_json_lines(store: Path) -> None:
    lines = [json.loads(line) for line in invoke("inspect", store, "--json").stdout.splitlines()]
    assert len(lines) == 10
    assert lines[3] == {
        "commit_log_offset": 555,
        "store_size": 185,
        "next_offset": 740,
        "topic": "topic-1",
        "queue_id": 1,
        "queue_offset": 1,
        "tags": "a",
        "keys": ["key-3"],
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 0,
        "born_time": "1970-01-01T00:00:00.000Z",
        "born_host": "10.0.0.1:5",
        "store_timestamp": 1_700_000_000_123,
        "store_time": "2023-11-14T22:13:20.123Z",
        "store_host": "127.0.0.1:0",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "properties": {"KEYS": "key-3", "TAGS": "a"},
        "body_size": 70,
        "body_crc": lines[3]["body_crc"],
        "transaction": None,
        "body": "body 3 " * 10,
    }


def test_inspect_begins_and_ends_where_it_is_told(store: Path) -> None:
    result = invoke("inspect", store, "--json", "--from", 556, "--limit", 2)
    assert [json.loads(line)["commit_log_offset"] for line in result.stdout.splitlines()] == [740, 1024]
    assert "--from 1209" in result.stderr
    assert invoke("inspect", store, "--json", "--from", 99_999).stdout == ""
    assert invoke("inspect", store, "--json", "--limit", 10).stderr == ""


def test_inspect_shows_what_stands_before_the_damage(store: Path) -> None:
    patch(log_file(store, 1024), 300, b"\xff")
    for option, count in (("--json", 6), ("--limit=99", 7)):
        result = invoke("inspect", store, option)
        assert len(result.stdout.splitlines()) == count
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert "at commit-log offset 1209" in result.stderr


@pytest.mark.parametrize(
    ("body", "sys_flag", "expected"),
    [
        (b"plain", 0, "plain"),
        ("größe 订单".encode(), 0, "größe 订单"),
        (b"a\tb\nc", 0, "a·b·c"),
        (b"\x1b[31mred", 0, "0x1b5b33316d726564"),
        (bytes(range(256)), 0, "0x000102030405060708090a0b0c0d0e0f…"),
        (b"x" * 65, 0, "x" * 64 + "…"),
        (b"x" * 63 + "é".encode(), 0, "x" * 63 + "…"),
        (b"\xff", 0, "0xff"),
        (b"", 0, ""),
        (b"no zlib", 1, "no zlib"),
        (zlib.compress(b"a" * 1000), 1, "a" * 64 + "…"),
        (zlib.compress(b"abc"), 1, "abc"),
    ],
)
def test_a_preview_is_printable(body: bytes, sys_flag: int, expected: str) -> None:
    assert preview(Message("t", body, sys_flag=sys_flag)) == expected


def test_a_terminal_is_not_driven_by_what_a_producer_wrote(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        log.append(Message("t\x1b[2J", b"[bold]x[/bold]", properties_string="KEYS\x01\x1b]0;k\x07", store_timestamp=1 << 62))
    result = invoke("inspect", tmp_path / "s")
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
    assert "[bold]x[/bold]" in result.stdout


# --- verify ----------------------------------------------------------------------------------------------------------


def test_verify_ends_with_a_summary(store: Path) -> None:
    result = invoke("verify", store)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        f"store={store} files=2 messages=10 bytes=1949 blanks=1 min_offset=0 max_offset=1949 tail=0 verdict=OK"
    )


def test_verify_reports_a_tail_and_calls_it_no_error(store: Path) -> None:
    with CommitLog.open(store) as log:
        log.append_data(1949, [encode(Message("t", b"", queue_id=1), physical_offset=1949)[:30]])
    result = invoke("verify", store)
    assert result.exit_code == 0
    tail, last = result.stdout.splitlines()
    assert tail == f"{store}: tail of 16 bytes at offset 1949, an incomplete record; no error"
    assert last.endswith("messages=10 bytes=1949 blanks=1 min_offset=0 max_offset=1949 tail=16 verdict=OK")
    assert "tail of 16 bytes" in invoke("inspect", store).stderr


def test_two_equal_stores(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "with space"
    shutil.copytree(store, other)
    with CommitLog.open(other) as log:
        log.append(Message("more", b"x"))
    result = invoke("verify", store, other)
    assert result.exit_code == 0
    *_, first, second, last = result.stdout.splitlines()
    assert first.startswith(f"store={store} ")
    assert second.startswith(f"store='{other}' ")
    assert last == (
        f"compared_from=0 compared_to=1949 compared_bytes=1949 padding_differences=0 ahead='{other}' "
        f"ahead_by={2048 + 96 - 1949} verdict=EQUAL"
    )


def test_two_stores_that_differ_end_with_status_1(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(store, other)
    patch(log_file(other, 1024), 41, b"\x08")
    result = invoke("verify", store, other)
    assert result.exit_code == 1
    *_, line, last = result.stdout.splitlines()
    assert line == f"the logs differ at offset 1065: {log_file(store, 1024)} has 0x00, {log_file(other, 1024)} has 0x08"
    assert last.endswith("verdict=DIFFERENT")


def test_stores_that_share_no_offset_are_not_called_equal(store: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    CommitLog.open(empty).close()
    result = invoke("verify", store, empty)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith(
        f"compared_bytes=0 padding_differences=0 ahead={store} ahead_by=1949 verdict=NO_OVERLAP"
    )
    assert invoke("verify", empty, empty).stdout.splitlines()[-1].endswith("verdict=EQUAL")


# --- Queues, index, recovery -----------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """The store of a broker that has stopped: twelve messages in two queues, with keys."""
    path = tmp_path / "broker"
    with MessageStore.open(path, OPTIONS) as opened:
        for index in range(12):
            opened.put(
                Message(
                    "orders",
                    f"body {index}".encode(),
                    queue_id=index % 2,
                    properties_string=f"KEYS\x01even{index % 2} key-{index}\x02UNIQ_KEY\x01{index:032X}\x02TAGS\x01a",
                )
            )
    return path


def test_verify_checks_queues_and_index(broker: Path) -> None:
    result = invoke("verify", broker)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith(
        " tail=0 queues=2 entries=12 entries_missing=0 index_files=1 keys=36 keys_missing=0 keys_as=4.3.0-5.3.4 verdict=OK"
    )
    path = broker / "consumequeue" / "orders" / "1" / f"{0:020d}"
    patch(path, 20 * 3 + 11, b"\x01")
    result = invoke("verify", broker)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert f"{path.parent}, byte 60 of the queue: at commit-log offset" in result.stderr
    assert "entry 3 is" in result.stderr


def test_verify_begins_again_where_a_file_of_the_log_is_deleted_before_the_queues_are_checked(
    broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def delete_and_check(reader: LogReader, *arguments: object) -> DerivedSummary:
        checked.append(reader.min_offset)
        delete_log_files(broker, FILE_SIZE)
        return verify_derived(reader, *arguments)

    monkeypatch.setattr(verify, "verify_derived", delete_and_check)
    result = invoke("verify", broker)
    assert (result.exit_code, checked) == (0, [0, FILE_SIZE]), result.stderr
    assert f" min_offset={FILE_SIZE} " in result.stdout
    assert result.stdout.endswith(" verdict=OK\n")


def test_verify_counts_what_was_not_dispatched(broker: Path) -> None:
    shutil.rmtree(broker / "consumequeue" / "orders" / "1")
    shutil.rmtree(broker / "index")
    line = invoke("verify", broker).stdout.splitlines()[-1]
    assert line.endswith(" queues=1 entries=6 entries_missing=6 index_files=0 keys=0 keys_missing=0 keys_as=none verdict=OK")


def found_offsets(*arguments: object) -> list[int]:
    result = invoke("query", *arguments, "--json")
    assert result.exit_code == (0 if result.stdout else 1)
    return [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()]


def test_query_finds_messages_by_key(broker: Path) -> None:
    before = snapshot(broker)
    assert found_offsets(broker, "--topic", "orders", "--key", "even1") == [0, 1, 2, 3, 4, 5]
    assert found_offsets(broker, "--topic", "orders", "--key", "even1", "--limit", 2) == [4, 5]
    assert found_offsets(broker, "--topic", "orders", "--key", f"{7:032X}") == [3]
    assert found_offsets(broker, "--topic", "other", "--key", "even1") == []
    result = invoke("query", broker, "--topic", "orders", "--key", "key-3")
    assert "body 3" in result.stdout.splitlines()[1]
    assert snapshot(broker) == before


@pytest.mark.parametrize("damage", ["index removed", "not covered", "--scan"])
def test_query_needs_no_index(broker: Path, damage: str) -> None:
    """Without an index, or after its last message, query searches the log."""
    arguments: list[object] = [broker, "--topic", "orders", "--key", "even0"]
    if damage == "index removed":
        shutil.rmtree(broker / "index")
    elif damage == "not covered":
        with CommitLog.open(broker) as log:
            log.append(Message("orders", b"late", queue_offset=9, properties_string="KEYS\x01even0"))
    else:
        patch(min((broker / "index").iterdir()), 40, bytes(4 * GEOMETRY.hash_slot_num))
        assert invoke("query", *arguments).exit_code == 2
        arguments.append("--scan")
    assert found_offsets(*arguments)[:6] == [0, 1, 2, 3, 4, 5]
    assert len(found_offsets(*arguments)) == (7 if damage == "not covered" else 6)


def test_query_takes_times(broker: Path) -> None:
    messages = [json.loads(line) for line in invoke("inspect", broker, "--json").stdout.splitlines()]
    times = [message["store_timestamp"] for message in messages if message["queue_id"] == 1]
    first, last = times[0], times[-1]
    asked = (broker, "--topic", "orders", "--key", "even1")
    assert found_offsets(*asked, "--from", first, "--to", last) == [0, 1, 2, 3, 4, 5]
    assert found_offsets(*asked, "--from", last + 1) == []
    assert found_offsets(*asked, "--to", first - 1) == []
    assert found_offsets(*asked, "--from", "1970-01-01", "--to", "2100-01-01T00:00:00+01:00") == [0, 1, 2, 3, 4, 5]
    result = invoke("query", broker, "--topic", "orders", "--key", "k", "--from", "yesterday")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "'yesterday': expected ms since 1970" in result.stderr


def test_recover_tells_what_it_would_do_and_does_it_only_if_told(broker: Path) -> None:
    whole = invoke("recover", broker, "--dry-run").stdout
    assert whole.endswith(
        " max_offset=2036 cut=0 entries_cut=0 keys_cut=0 dispatch_from=2036 files_removed=0 verdict=NOTHING_TO_DO\n"
    )
    patch(log_file(broker, 1024), 2036 - 1024 - 3, b"\0\0\0")  # the end of the last record's properties
    (broker / "abort").touch()
    before = snapshot(broker)
    result = invoke("recover", broker)
    assert result.exit_code == 0
    assert " stop=unclean " in result.stdout
    assert " max_offset=1866 cut=167 entries_cut=1 keys_cut=3 " in result.stdout
    assert result.stdout.endswith("verdict=WOULD_CHANGE\n")
    assert snapshot(broker) == before
    assert invoke("recover", broker, "--write").stdout.endswith("verdict=RECOVERED\n")
    assert invoke("recover", broker).stdout.endswith("verdict=NOTHING_TO_DO\n")
    assert " verdict=OK" in invoke("verify", broker).stdout


@pytest.mark.parametrize("has_queues", [False, True])
def test_recover_and_a_master_say_and_do_the_same_to_a_log_without_a_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, has_queues: bool
) -> None:
    """HA-ST-7 "keeps its place while there are consume queues": else its files go, and its offsets begin at 0 again."""
    first, store = 71303168, tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    log_file(store, first).write_bytes(bytes(1024))
    monkeypatch.setattr(opening.logger, "handlers", [caplog.handler])
    queue = store / "consumequeue/t/0/00000000000000000000"

    def add_queue() -> None:
        queue.parent.mkdir(parents=True, exist_ok=True)
        queue.write_bytes(bytes(6_000_000))

    if has_queues:
        add_queue()
    end, removed, files = (first, 0, [log_file(store, first)]) if has_queues else (0, 1, [])
    told = f" min_offset={end} looked_from={first} messages=0 max_offset={end} cut=0 "
    for option, verdict in (("--dry-run", "NOTHING_TO_DO" if has_queues else "WOULD_CHANGE"), ("--write", "RECOVERED")):
        result = invoke("recover", store, option)
        assert told in result.stdout, result.output
        assert result.stdout.endswith(f" files_removed={removed} verdict={verdict}\n")
    assert list((store / "commitlog").iterdir()) == files
    log_file(store, first).write_bytes(bytes(1024))
    if has_queues:
        add_queue()  # recovery has deleted a queue without entries
    caplog.clear()
    with bare_log(store, file_size=None, clear_tail=True, replicated=False) as log:
        assert log.max_offset == end
        assert [file.path for file in log.queue.files] == files
    warned = [line for line in caplog.messages if "offsets begin at 0 again" in line]
    assert [line.partition(": removed, ")[0] for line in warned] == ([] if has_queues else [str(log_file(store, first))])


def test_recover_and_query_refuse_what_is_no_store(tmp_path: Path) -> None:
    for arguments in (("recover", tmp_path), ("query", tmp_path, "--topic", "t", "--key", "k"), ("recover", tmp_path / "none")):
        result = invoke(*arguments)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
        assert "expected the root of a RocketMQ store" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_commands_work_beside_a_live_writer(tmp_path: Path) -> None:
    path = tmp_path / "live"
    with MessageStore.open(path, OPTIONS) as opened:
        for index in range(5):
            opened.put(Message("orders", b"x", properties_string=f"KEYS\x01k{index} all"))
        assert opened.wait_for_dispatch()
        assert found_offsets(path, "--topic", "orders", "--key", "all") == [0, 1, 2, 3, 4]
        line = invoke("verify", path).stdout.rstrip()
        assert line.endswith(" entries=5 entries_missing=0 index_files=1 keys=10 keys_missing=0 keys_as=any verdict=OK")
        assert invoke("recover", path).exit_code == 0
        opened.put(Message("orders", b"x", properties_string="KEYS\x01all"))
    assert found_offsets(path, "--topic", "orders", "--key", "all") == [0, 1, 2, 3, 4, 5]


# --- Bad input -------------------------------------------------------------------------------------------------------


def _missing(store: Path) -> Path:
    return store / "nowhere"


def _no_commitlog(store: Path) -> Path:
    return store / "commitlog"


def _a_file(store: Path) -> Path:
    return store / "lock"


def _commitlog_is_a_file(store: Path) -> Path:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").touch()
    return store


def _wrong_length(store: Path) -> Path:
    os.truncate(log_file(store, 1024), 1000)
    return store


def _wrong_name(store: Path) -> Path:
    log_file(store, 1024).rename(store / "commitlog" / "1024")
    return store


def _gap(store: Path) -> Path:
    log_file(store, 4096).write_bytes(bytes(FILE_SIZE))
    return store


def _corrupt(store: Path) -> Path:
    patch(log_file(store, 1024), 300, b"\xff")
    return store


def _too_short(store: Path) -> Path:
    for file in (store / "commitlog").iterdir():
        file.unlink()
    log_file(store, 0).write_bytes(b"abc")
    return store


BAD_STORES = {
    _too_short: "00000000000000000000: at commit-log offset 0: found a length of 3 bytes, expected 8 to 2147483647",
    _missing: "nowhere: no such directory, expected the root of a RocketMQ store",
    _no_commitlog: "commitlog: no commitlog in it, expected the root of a RocketMQ store",
    _a_file: "lock: not a directory, expected the root of a RocketMQ store",
    _commitlog_is_a_file: "commitlog: not a directory, expected the directory of commit-log files",
    _wrong_length: "00000000000000001024: at commit-log offset 1024: found a length of 1000 bytes, expected 1024",
    _wrong_name: "commitlog/1024: at commit-log offset 0: found the name '1024', expected a file named by 20 digits",
    _gap: "found the name 00000000000000004096, expected 00000000000000002048",
    _corrupt: "00000000000000001024: at commit-log offset 1209: found body CRC",
}


@pytest.mark.parametrize("command", ["inspect", "verify", "verify two"])
@pytest.mark.parametrize("damage", BAD_STORES, ids=lambda damage: damage.__name__)
def test_a_bad_store_gets_one_line_and_status_2(store: Path, tmp_path: Path, damage: object, command: str) -> None:
    assert callable(damage)
    good = tmp_path / "good"
    shutil.copytree(store, good)
    path = damage(store)
    before = snapshot(tmp_path)
    result = invoke(*(["verify", good, path] if command == "verify two" else [command, path]))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("rocketmq-ha: ")
    assert BAD_STORES[damage] in result.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_that_may_not_be_read_gets_one_line(store: Path) -> None:
    log_file(store, 0).chmod(0)
    result = invoke("verify", store)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "Permission denied" in result.stderr


def test_readers_work_beside_a_writer_that_holds_the_lock(store: Path) -> None:
    with CommitLog.open(store) as log:
        log.append(Message("t", b"x"))
        assert invoke("verify", store).exit_code == 0
        assert "messages=11" in invoke("verify", store).stdout


@pytest.mark.parametrize("command", ["master", "slave"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "locked by"),
        (
            ["--file-size", "2048"],
            "found files of 1024 bytes, expected 2048; leave --file-size away: a store keeps its size; or `roc",
        ),
    ],
)
def test_a_refused_start_changes_nothing(store: Path, command: str, options: list[str], text: str) -> None:
    """Bad input of a writer: the store is locked, or its files have another size."""
    where = ["--listen", "127.0.0.1:0"] if command == "master" else ["--master", "127.0.0.1:9"]
    owner = CommitLog.open(store) if not options else None
    before = snapshot(store)
    result = invoke(command, "--store", store, *where, *options)
    if owner is not None:
        owner.close()
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert str(store) in result.stderr
    assert text in result.stderr
    assert snapshot(store) == before


@pytest.mark.parametrize("command", ["master", "slave"])
def test_a_store_of_one_file_says_how_it_gets_another_size(tmp_path: Path, command: str) -> None:
    """A slave that was told no size has a file of 1 GiB at first, which is refused with the right size until it is full."""
    with CommitLog.open(tmp_path / "s", file_size=4096) as log:
        log.append(Message("t", b"x"))
    where = ["--listen", "127.0.0.1:0"] if command == "master" else ["--master", "127.0.0.1:9"]
    result = invoke(command, "--store", tmp_path / "s", *where, "--file-size", "1024")
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2
    assert "found files of 4096 bytes, expected 1024; leave --file-size away: a slave whose one file is not full takes" in line
    assert line.endswith("; or `rocketmq-ha resync` moves this store aside, to start anew")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nonsense"], "rocketmq-ha: No such command 'nonsense'"),
        (["inspect"], "rocketmq-ha inspect: Missing argument 'DIR'"),
        (["inspect", "x", "--limit", "0"], "rocketmq-ha inspect: Invalid value for '--limit'"),
        (["inspect", "x", "--from", "-1"], "rocketmq-ha inspect: Invalid value for '--from'"),
        (["verify", "x", "--loud"], "rocketmq-ha verify: No such option"),
        (["--log-level", "loud", "inspect", "x"], "rocketmq-ha: Invalid value for '--log-level'"),
    ],
)
def test_a_usage_error_is_one_line(arguments: list[str], text: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines()), result.stdout) == (2, 1, "")
    assert result.stderr.startswith(text)
    assert "--help)" in result.stderr


# --- The frame -------------------------------------------------------------------------------------------------------


def test_help_lists_all_commands_and_imports_none() -> None:
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from rocketmq_ha.impl.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print({'rich', 'pyspark', 'rocketmq_ha.impl.store', 'rocketmq_ha.impl.cli.inspect'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0
    for name in ("master", "slave", "inspect", "verify"):
        assert f"\n  {name} " in done.stdout
    assert done.stdout.endswith("set()\n")


def test_a_bare_call_is_a_call_for_help() -> None:
    result = invoke()
    assert result.exit_code == 0
    assert result.stdout == invoke("--help").stdout
    assert "Check every record of a store" in result.stdout
    assert invoke("--version").stdout.startswith("rocketmq-ha ")


def test_commands_join_through_entry_points_and_a_broken_one_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "joined_command.py").write_text(
        'import click\n@click.command()\ndef joined():\n    """Say hello.\n\n    More."""\n    click.echo("hello")\n'
    )
    (tmp_path / "broken_command.py").write_text('import no_such_module_anywhere\ndef broken():\n    """Is not to be had."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        EntryPoint("joined", "joined_command:joined", commands.ENTRY_POINT_GROUP),
        EntryPoint("broken", "broken_command:broken", commands.ENTRY_POINT_GROUP),
        EntryPoint("gone", "gone_command:gone", commands.ENTRY_POINT_GROUP),
        EntryPoint("verify", "joined_command:joined", commands.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(commands, "entry_points", lambda **_: points)
    text = invoke("--help").stdout
    assert "joined   Say hello." in text
    assert "broken   Is not to be had." in text
    assert "gone     (not to be found" in text
    assert text.count("\n  verify") == 1
    assert invoke("joined").stdout == "hello\n"
    assert invoke("verify").exit_code == 2
    for name in ("broken", "gone"):
        result = invoke(name)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert f"the command {name} cannot be loaded" in result.stderr


def _command_that(action: object) -> object:
    module = types.ModuleType("made_up_command")
    module.made_up = click.command("made-up")(action)  # type: ignore[attr-defined, call-overload]
    return module


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (OSError(28, "No space left on device", "/data/x"), "rocketmq-ha: /data/x: No space left on device", 75),
        (PermissionError(13, "Permission denied", "/data/x"), "rocketmq-ha: /data/x: Permission denied", 2),
        (OSError(98, "Address already in use"), "rocketmq-ha: Address already in use", 2),
    ],
)
def test_what_a_machine_does_to_a_user_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: OSError, line: str, status: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(sys.modules, "made_up_command", _command_that(fail))
    point = EntryPoint("made-up", "made_up_command:made_up", commands.ENTRY_POINT_GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda **_: [point])
    result = invoke("made-up")
    assert (result.exit_code, result.stderr) == (status, line + "\n")


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        os.close(-1)

    monkeypatch.setitem(sys.modules, "made_up_command", _command_that(fail))
    point = EntryPoint("made-up", "made_up_command:made_up", commands.ENTRY_POINT_GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda **_: [point])
    assert isinstance(invoke("made-up").exception, OSError)


def test_a_reader_that_has_enough_ends_it_quietly(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "s", file_size=1 << 22) as log:
        for _ in range(5000):
            log.append(Message("t", b"x" * 300))
    running = process("inspect", tmp_path / "s", "--json")
    assert running.stdout is not None
    assert running.stdout.readline().startswith('{"commit_log_offset":0,')
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == ""
    assert running.wait(PATIENCE_S) == commands.EXIT_BROKEN_PIPE


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """inspect writes into a pipe that nobody empties, so it is still there when the signal comes."""
    with CommitLog.open(tmp_path / "s", file_size=1 << 22) as log:
        for _ in range(5000):
            log.append(Message("t", b"x" * 300))
    running = process("inspect", tmp_path / "s", "--json")
    assert running.stdout is not None
    running.stdout.readline()
    time.sleep(0.1)
    running.send_signal(number)
    _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == status
    assert errors.strip() == ""


INTERRUPTED = """
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
sys.meta_path.insert(0, Interrupt())
sys.argv = ["rocketmq-ha", "status", "."]
runpy.run_module("rocketmq_ha.impl.cli", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["click", "rocketmq_ha.impl.app.logs", "rocketmq_ha.impl.cli.status"])
def test_an_interrupt_while_modules_are_imported_shows_no_traceback(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_log_lines_are_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logs.logging.getLogger("rocketmq_ha.impl.somewhere")
    for log_format in ("json", "text"):
        logs.configure(log_format, "INFO")
        logger.debug("hidden")
        logger.info("cut off %d bytes", 5, extra={"offset": 7} if log_format == "json" else None)
    as_json, as_text = capsys.readouterr().err.splitlines()
    found = json.loads(as_json)
    assert (found["level"], found["logger"], found["message"], found["offset"]) == (
        "INFO",
        "rocketmq_ha.impl.somewhere",
        "cut off 5 bytes",
        7,
    )
    assert found["time"].endswith("Z")
    assert as_text.endswith("INFO    rocketmq_ha.impl.somewhere: cut off 5 bytes")
