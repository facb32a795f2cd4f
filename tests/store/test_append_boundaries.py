"""The end of a file and the end of a put, on every path that a message can take into the log.

A usual message, an unusual one and a batch are placed by three pieces of code. Each table here goes through all of them.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.files import log_file, patch
from rocketmq_ha.impl.errors import AppendRefused, MessageIllegal, StoreClosed, StoreFull
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.wire.batch import HandedBatch, MessageBatch
from rocketmq_ha.impl.wire.message import Message, decode, encode
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 1024
BODY = 109  # of `USUAL`: its record has 200 bytes
USUAL = Message("t", bytes(BODY - 1))
Append = Callable[..., AppendResult]


def _single(message: Message) -> Callable[[CommitLog, int], Callable[..., AppendResult]]:
    def make(log: CommitLog, size: int) -> Callable[..., AppendResult]:
        body = bytes([7]) * (size - len(encode(replace(message, body=b""))))
        return lambda *rest, **fields: log.append(replace(message, body=body, **fields), *rest)

    return make


def _batch(
    make_batch: Callable[[list[Message]], Any], *heads: Message
) -> Callable[[CommitLog, int], Callable[..., AppendResult]]:
    def make(log: CommitLog, size: int) -> Callable[..., AppendResult]:
        rest = size - sum(len(encode(replace(head, body=b""))) for head in heads)
        shares = [rest // len(heads)] * len(heads)
        shares[-1] += rest - sum(shares)
        messages = [replace(head, body=bytes([7]) * share) for head, share in zip(heads, shares, strict=True)]
        return lambda *rest, **fields: log.append_batch(make_batch([replace(one, **fields) for one in messages]), *rest)

    return make


def _columns(messages: list[Message]) -> MessageBatch:
    head = messages[0]
    return MessageBatch(head, [one.body for one in messages], [one.properties_string for one in messages])


# Each makes, for a log and a size in bytes, an append of so many bytes. Sizes are even: the two of a batch can be alike.
PATHS = {
    "usual": _single(Message("t", b"")),
    "usual with its own fields": _single(Message("t", b"", reconsume_times=3, prepared_transaction_offset=9, flag=2)),
    "V2": _single(Message("t", b"", magic=MESSAGE_MAGIC_CODE_V2)),
    "born IPv6": _single(Message("t", b"", born_host=("::1", 1), sys_flag=0x10)),
    "stored IPv6": _single(Message("t", b"", store_host=("::1", 1), sys_flag=0x20)),
    "prepared": _single(Message("t", b"", sys_flag=0x4)),
    "batch of one": _batch(list, Message("t", b"")),
    "batch alike": _batch(list, Message("t", b""), Message("t", b"")),
    "batch by columns": _batch(_columns, Message("t", b""), Message("t", b"")),
    "batch unalike": _batch(list, Message("t", b""), Message("t", b"", born_host=("::1", 1), sys_flag=0x10)),
    "batch V2": _batch(list, *[Message("t", b"", magic=MESSAGE_MAGIC_CODE_V2)] * 2),
}
SINGLE_AND_BATCH = pytest.mark.parametrize("path", PATHS)
COUNTED = [path for path in PATHS if path != "prepared"]  # whose messages have a place in their queue


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        yield log


def fill_to(log: CommitLog, room: int) -> None:
    """Append one message that leaves so many bytes of the first file."""
    log.append(Message("t", bytes(FILE_SIZE - room - 92)))


# --- The end of a file -----------------------------------------------------------------------------------------------


@SINGLE_AND_BATCH
@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 10])
def test_a_message_takes_the_rest_of_a_file_if_8_bytes_are_left(log: CommitLog, path: str, left: int) -> None:
    """HA-ST-3 "When a message and 8 bytes more do not fit in the rest of a file, the rest MUST become a BLANK"."""
    size = 400
    fill_to(log, size + left)
    begin = log.max_offset
    put = PATHS[path](log, size)()
    is_here = left >= 8
    assert put.offset == (begin if is_here else FILE_SIZE)
    assert (put.size, put.next_offset, log.max_offset) == (size, put.offset + size, put.offset + size)
    if not is_here:
        head = bytes(log.data_at(begin, FILE_SIZE) or b"")
        assert head == (size + left).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(size + left - 8)
    found = [at for at, _, _ in log.records()]
    assert found[0] == 0
    assert found[1] == put.offset
    assert decode(log.data_at(put.offset, FILE_SIZE) or b"").physical_offset == put.offset


@SINGLE_AND_BATCH
@pytest.mark.parametrize("left", [7, 8])
def test_a_message_fits_a_new_file_if_8_bytes_are_left(log: CommitLog, tmp_path: Path, path: str, left: int) -> None:
    put = PATHS[path](log, FILE_SIZE - left)
    if left == 8:
        assert put().size == FILE_SIZE - 8 == log.max_offset
        return
    with pytest.raises(MessageIllegal, match=f"size: found {FILE_SIZE - 7} bytes, expected at most {FILE_SIZE - 8}"):
        put()
    assert list((tmp_path / "s" / "commitlog").iterdir()) == []


@SINGLE_AND_BATCH
@pytest.mark.parametrize("room", [0, 1, 7, 8, 9])
def test_what_is_left_of_a_file_is_nothing_a_blank_or_refused(log: CommitLog, path: str, room: int) -> None:
    """A BLANK takes 8 bytes. Fewer are left only where replicated bytes end there; nothing left needs no BLANK."""
    begin = FILE_SIZE - room
    log.append_data(0, [bytes(begin)])  # replicated bytes can end anywhere
    put = PATHS[path](log, 400)
    if 0 < room < 8:
        with pytest.raises(AppendRefused, match=f"found {room} bytes to the end of the file, expected 8, for a BLANK"):
            put()
        assert (log.max_offset, len(log.queue.files)) == (begin, 1)
        return
    assert put().offset == FILE_SIZE
    blank = room.to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(max(0, room - 8)) if room else b""
    assert bytes(log.data_at(begin, room) or b"") == blank


# --- Times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", PATHS)
@pytest.mark.parametrize("first", PATHS)
def test_a_message_is_stored_no_earlier_than_the_one_before(tmp_path: Path, first: str, second: str) -> None:
    with CommitLog.open(tmp_path / "s", file_size=1 << 16) as log:
        for path, now_ms, expected in ((first, 500, 500), (second, 499, 500), (first, 501, 501), (second, 501, 501)):
            put = PATHS[path](log, 400)(now_ms)
            assert put.store_timestamp == expected == log.last_stored_ms
            assert decode(log.data_at(put.offset, 1024) or b"").store_timestamp == expected
        log.last_stored_ms = 700
        log.last_stored_ms = 600
        assert PATHS[second](log, 400)(650).store_timestamp == 700


@SINGLE_AND_BATCH
def test_a_message_that_keeps_its_own_time_moves_no_other(log: CommitLog, path: str) -> None:
    put = PATHS[path](log, 400)
    assert put(store_timestamp=900).store_timestamp == 900
    assert log.last_stored_ms == 0
    assert log.append(USUAL, 100).store_timestamp == 100


# --- Queues ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", COUNTED)
@pytest.mark.parametrize("first", PATHS)
def test_a_queue_counts_on_whichever_way_a_message_comes(tmp_path: Path, first: str, second: str) -> None:
    with CommitLog.open(tmp_path / "s", file_size=1 << 16) as log:
        log.take_queue_offsets({(0, b"t"): 5})
        one = PATHS[first](log, 400)()
        two = PATHS[second](log, 400)()
        counted = 0 if first == "prepared" else one.messages
        assert (one.queue_offset, two.queue_offset) == (5 if counted else 0, 5 + counted)
        assert log.append(USUAL).queue_offset == 5 + counted + two.messages
        assert log.queue_keys() == [(0, b"t")]
        assert log.queue_count == 1


@pytest.mark.parametrize(
    ("queue_id", "is_known"), [(-(1 << 31) - 1, False), (-(1 << 31), True), ((1 << 31) - 1, True), (1 << 31, False)]
)
def test_a_queue_id_is_an_i32(log: CommitLog, queue_id: int, is_known: bool) -> None:
    log.take_queue_offsets({(queue_id, b"t"): 5})
    assert log.queue_keys() == [(queue_id, b"t")] * is_known
    log.take_queue_offsets({(queue_id, b"t"): 0})  # a queue without an entry knows nothing
    if is_known:
        assert log.append(replace(USUAL, queue_id=queue_id)).queue_offset == 5


# --- State behind an error -------------------------------------------------------------------------------------------


def _full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_fd: int, _start: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped_file.os, "posix_fallocate", no_space)


@SINGLE_AND_BATCH
@pytest.mark.parametrize("step", ["queue id", "born time", "no room for the next file", "closing", "file removed"])
def test_a_put_that_is_refused_leaves_the_log_as_it_was(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, step: str
) -> None:
    """No byte, no place in its queue and nothing for the dispatch: the next put takes the place."""
    handed: list[object] = []
    log.append(USUAL, 100)
    log.dispatch_to(handed.append, handed.append)
    before = log_file(tmp_path / "s").read_bytes()
    match step:
        case "queue id":
            with pytest.raises(MessageIllegal):
                PATHS[path](log, 400)(200, queue_id=1 << 31)
        case "born time":
            with pytest.raises(MessageIllegal):
                PATHS[path](log, 400)(200, born_timestamp=1 << 63)
        case "no room for the next file":
            with monkeypatch.context() as patched:
                _full_disk(patched)
                with pytest.raises(StoreFull):
                    PATHS[path](log, 1000)(200)
        case "closing":
            log.refuse(lambda: StoreClosed("closing"))
            with pytest.raises(StoreClosed, match="closing"):
                PATHS[path](log, 400)(200)
            log.refuse(None)
        case "file removed":
            renamed = log_file(tmp_path / "s").rename(tmp_path / "away")
            kept = renamed.with_name("kept")
            kept.hardlink_to(renamed)
            renamed.unlink()
            kept.unlink()
            with pytest.raises(FileNotFoundError):
                PATHS[path](log, 400)(200)
    assert (log.max_offset, handed) == (200, [])
    if step == "file removed":
        return
    assert log_file(tmp_path / "s").read_bytes() == before
    assert [one.name for one in (tmp_path / "s" / "commitlog").iterdir()] == [log_file(tmp_path / "s").name]
    put = log.append(USUAL, 150)
    assert (put.offset, put.queue_offset) == (200, 1)
    assert len(handed) == 1


@SINGLE_AND_BATCH
def test_the_dispatch_is_handed_each_message_that_was_put(log: CommitLog, path: str) -> None:
    handed: list[Any] = []
    log.dispatch_to(handed.append, lambda batch: handed.extend(batch.each() if isinstance(batch, HandedBatch) else batch))
    put = PATHS[path](log, 400)(77)
    records = list(log.records(put.offset))
    assert len(records) == put.messages == len(handed)
    assert [(one[2], one[3], one[5], one[6]) for one in handed] == [
        (at, size, 77, message.queue_offset) for at, size, message in records
    ]


# --- Replicated bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "fits"), [(23, True), (24, True), (25, False)])
@pytest.mark.parametrize("how", ["append_data", "count_as_written"])
def test_replicated_bytes_fill_a_file_to_its_last_byte(log: CommitLog, how: str, size: int, fits: bool) -> None:
    """`count_as_written` moves the end as `append_data` does, without a byte: quirk 42."""
    log.append_data(0, [bytes([1]) * 1000])

    def run() -> None:
        if how == "append_data":
            log.append_data(1000, [b"\x02" * size])
        else:
            log.count_as_written(1000, size)

    if not fits:
        with pytest.raises(AppendRefused, match="found 25 bytes, expected at most 24"):
            run()
        assert log.max_offset == 1000
        return
    run()
    assert log.max_offset == 1000 + size
    assert bytes(log.data_at(1000, 99) or b"") == (b"\x02" if how == "append_data" else b"\0") * size
    assert len(log.queue.files) == 1
    log.count_as_written(log.max_offset, FILE_SIZE if size == 24 else 1)
    assert len(log.queue.files) == (2 if size == 24 else 1)


def test_bytes_that_the_disk_refused_do_not_count_in_a_file_without_a_name(log: CommitLog, tmp_path: Path) -> None:
    log.append_data(0, [b"a"])
    log_file(tmp_path / "s").unlink()
    with pytest.raises(FileNotFoundError):
        log.count_as_written(1, 1)
    assert log.max_offset == 1


@pytest.mark.parametrize(
    ("offset", "base"), [(0, 0), (1023, 0), (1024, 1024), (1025, 1024), (-1, 0), (-1023, 0), (-1024, None), (-1025, None)]
)
@pytest.mark.parametrize("how", ["append_data", "count_as_written"])
def test_the_first_bytes_open_the_file_of_their_offset(log: CommitLog, how: str, offset: int, base: int | None) -> None:
    """HA-ST-6 "they open the file that holds their offset"; Java divides towards zero."""

    def run() -> None:
        log.append_data(offset, [b"x"]) if how == "append_data" else log.count_as_written(offset, 1)

    if base is None:
        with pytest.raises(AppendRefused):
            run()
        assert log.queue.files == ()
    else:
        run()
        assert (log.min_offset, log.max_offset) == (base, base + 1)


@pytest.mark.parametrize("how", ["append_data", "count_as_written"])
def test_a_log_that_refuses_takes_no_replicated_bytes(log: CommitLog, how: str) -> None:
    """HA-ST-22 "MUST refuse replicated bytes"."""
    log.append_data(0, [b"a"])
    log.refuse(lambda: StoreClosed("closing"))
    with pytest.raises(StoreClosed):
        log.append_data(1, [b"x"]) if how == "append_data" else log.count_as_written(1, 1)
    assert log.max_offset == 1


# --- Reading by place ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "limit", "size"),
    [(-1, 9, None), (0, 9, 9), (0, 0, 0), (199, 9, 1), (200, 9, None), (201, 9, None), (1023, 9, None), (1024, 9, None)],
)
def test_bytes_are_read_from_the_first_to_the_last_that_is_written(log: CommitLog, offset: int, limit: int, size: int) -> None:
    log.append(USUAL)
    found = log.data_at(offset, limit)
    assert (None if found is None else len(found)) == size


@pytest.mark.parametrize(("there", "needed"), [(0, 0), (7, 0), (8, 0), (199, 0), (200, FILE_SIZE), (201, FILE_SIZE)])
@pytest.mark.parametrize("magic", [0xDAA320A7, MESSAGE_MAGIC_CODE_V2])
def test_a_log_needs_its_last_whole_record(log: CommitLog, there: int, needed: int, magic: int) -> None:
    """Where the last file has none, the record is in the file before."""
    body = bytes(BODY - 1 if magic == 0xDAA320A7 else BODY - 2)
    log.append(USUAL)
    assert log.first_needed_offset() is None
    log.append_data(200, [bytes(824)])
    record = encode(Message("t", body, magic=magic), physical_offset=FILE_SIZE)
    assert len(record) == 200
    log.append_data(FILE_SIZE, [(record + b"\1")[:there]])
    assert log.first_needed_offset() == needed


def test_a_blank_at_the_start_of_the_last_file_is_no_record_to_need(log: CommitLog) -> None:
    log.append_data(0, [bytes(FILE_SIZE)])
    log.append_data(FILE_SIZE, [FILE_SIZE.to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(FILE_SIZE - 8)])
    assert log.first_needed_offset() == 0


def test_records_end_where_fewer_than_8_bytes_follow(log: CommitLog) -> None:
    log.append(USUAL)
    for piece in (b"\0\0\0\x5c\xda\xa3\x20", b"\xa7"):
        log.append_data(log.max_offset, [piece])
        assert [at for at, _, _ in log.records()] == [0]


def test_a_put_behind_part_of_a_record_is_behind_it(log: CommitLog, tmp_path: Path) -> None:
    log.append_data(0, [b"part"])
    put = log.append(USUAL)
    assert put.offset == 4
    patch(log_file(tmp_path / "s"), 0, b"PART")  # the same page cache
    assert bytes(log.data_at(0, 4) or b"") == b"PART"


def test_two_messages_of_one_millisecond_have_each_its_store_host(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        for host in ("10.0.0.1", "10.0.0.2"):
            log.append(replace(USUAL, store_timestamp=5, store_host=(host, 7)))
        assert [message.store_host for _, _, message in log.records()] == [("10.0.0.1", 7), ("10.0.0.2", 7)]
