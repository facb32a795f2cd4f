"""Every kind of message, put in every way: its record is that of HA-ST-2's figure, or the put is refused in one line.

The expected bytes are those of tests/kit/variants.py, which shares no arithmetic with the implementation.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from kit.variant_tables import BROKEN, LARGEST, UNPUTTABLE, VARIANTS
from kit.variants import STORE, STORED_MS, V2, Variant, blank, name_of
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.wire.batch import HandedBatch, MessageBatch
from rocketmq_ha.impl.wire.message import Message, decode

MIB = 1 << 20
SOME = (
    Variant("usual"),
    Variant("V2", magic=V2),
    Variant("born IPv6", sys_flag=0x10),
    Variant("both IPv6", sys_flag=0x30),
    Variant("prepared", sys_flag=0x4),
)

Put = Callable[[CommitLog, Sequence[Message], int | None, bytes | None], list[AppendResult]]


def alone(log: CommitLog, messages: Sequence[Message], stored_ms: int | None, store_host: bytes | None) -> list[AppendResult]:
    return [log.append(message, stored_ms, store_host) for message in messages]


def listed(log: CommitLog, messages: Sequence[Message], stored_ms: int | None, store_host: bytes | None) -> list[AppendResult]:
    return [log.append_batch(messages, stored_ms, store_host)]


def batched(log: CommitLog, messages: Sequence[Message], stored_ms: int | None, store_host: bytes | None) -> list[AppendResult]:
    bodies, properties = [message.body for message in messages], [message.properties_string for message in messages]
    return [log.append_batch(MessageBatch(messages[0], bodies, properties), stored_ms, store_host)]


PUTS: Sequence[Put] = (alone, listed, batched)
every_put = pytest.mark.parametrize("put", PUTS, ids=lambda put: put.__name__)


def open_log(path: Path, variant: Variant) -> CommitLog:
    return CommitLog.open(path, file_size=MIB if variant.size < MIB // 4 else 16 * MIB)


def handed_to(log: CommitLog) -> list[tuple[object, ...]]:
    """What the log hands to the dispatch from now on, message by message."""
    handed: list[tuple[object, ...]] = []
    log.dispatch_to(handed.append, lambda batch: handed.extend(batch.each() if isinstance(batch, HandedBatch) else batch))
    return handed


def takes(put: Put, variant: Variant) -> bool:
    """Whether three of the variant can be put so: a batch has no part in a transaction, and at most 4 MiB."""
    return put is alone or (variant.is_batchable and 3 * variant.size < 4 * MIB)


WAYS = [
    pytest.param(put, variant, id=f"{put.__name__}-{name_of(variant)}")
    for put in PUTS
    for variant in (*VARIANTS, LARGEST)
    if takes(put, variant)
]


def trios(variant: Variant) -> list[list[Variant]]:
    """Three messages of a variant: equal ones; unlike in the size of a body; unlike in properties of one size, and of two."""
    if variant.size > 30_000:
        return [[variant] * (3 if variant.size < MIB else 1)]
    longer = replace(variant, body=variant.body + b"+")
    other = replace(variant, properties=variant.properties[:-1] + b"+") if variant.properties else variant
    more = replace(variant, properties=variant.properties + b"+")
    return [[variant] * 3, [variant, longer, variant], [variant, other, variant], [variant, more, variant]]


@pytest.mark.parametrize(("put", "variant"), WAYS)
def test_a_put_writes_the_record_and_hands_over_its_fields(tmp_path: Path, put: Put, variant: Variant) -> None:
    """A host of 8 bytes takes the place of any other, and the sysFlag then says that it is IPv4: HA-ST-14. The queue has a
    message already, and a prepared or rolled-back one does not count in it.
    """
    first = Variant("first", variant.topic, b"a body before", magic=variant.magic, queue_id=variant.queue_id)
    with open_log(tmp_path / "s", variant) as log:
        handed = handed_to(log)
        log.append(first.message())
        written, rows = first.record(0), handed[:]
        for trio in trios(variant):
            for stored_ms, store_host in ((None, None), (STORED_MS + 5, STORE[0][1])):
                time_ms = stored_ms or STORED_MS
                results = put(log, [each.message() for each in trio], stored_ms, store_host)
                begin = len(rows)
                for each in trio:
                    stored = replace(each, sys_flag=each.sys_flag & ~0x20) if store_host else each
                    queue_offset = len(rows) if each.is_queued else 0
                    end = (time_ms, queue_offset, stored.sys_flag, each.prepared_transaction_offset)
                    rows.append((each.topic, each.queue_id, len(written), stored.size, each.properties, *end))
                    written += stored.record(len(written), queue_offset, time_ms)
                assert handed == rows
                assert log.max_offset == len(written)
                own = [AppendResult(row[2], row[3], row[6], time_ms, 1) for row in rows[begin:]]
                size = sum(result.size for result in own)
                whole = [AppendResult(own[0].offset, size, own[0].queue_offset, time_ms, 3)]
                assert results == (own if put is alone else whole)
                assert log.last_stored_ms == (STORED_MS + 5 if store_host or begin > 1 + len(trio) else 0)
        assert bytes(log.queue.files[0].view(0, len(written) + 8)) == written + bytes(8)
        assert log.queue_keys() == [(variant.queue_id, variant.topic)]
        assert log.append(first.message()).queue_offset == (len(rows) if variant.is_queued else 1)


@pytest.mark.parametrize("variant", (*BROKEN, *UNPUTTABLE), ids=name_of)
@every_put
def test_what_no_record_may_be_is_refused_in_one_line_and_leaves_nothing(tmp_path: Path, variant: Variant, put: Put) -> None:
    """HA-ST-72 "A topic MUST have 1 to 127 bytes in a V1 record, and 1 to 32,767 in a V2 record"; HA-ST-89 "MUST be refused
    when its topic or properties end in a zero byte, or have 512 zero bytes in a row".
    """
    with open_log(tmp_path / "s", variant) as log:
        handed = handed_to(log)
        with pytest.raises(MessageIllegal) as refused:
            put(log, [variant.message()], STORED_MS, None)
        assert str(refused.value) == f"message {variant.refusal}"
        assert (log.max_offset, list(log.queue.files), log.queue_keys(), handed, log.last_stored_ms) == (0, [], [], [], 0)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("variant", [each for each in UNPUTTABLE if each.size < MIB], ids=name_of)
@pytest.mark.parametrize("put", (listed, batched), ids=lambda put: put.__name__)
def test_a_batch_refuses_each_of_its_messages(tmp_path: Path, put: Put, variant: Variant, place: int) -> None:
    """The others have right properties of its size or none, and bodies of other sizes or of its own."""
    other, none = replace(variant, properties=variant.properties.replace(b"\0", b"x")), replace(variant, properties=b"")
    ways = [(usual, bodies) for usual in (other, none) for bodies in ((b"1", b"22", b"333"), (b"1", b"1", b"1"))]
    for number, (usual, bodies) in enumerate(ways):
        messages = [replace(usual, body=body).message() for body in bodies]
        messages[place] = replace(variant, body=bodies[place]).message()
        with open_log(tmp_path / str(number), variant) as log:
            handed = handed_to(log)
            with pytest.raises(MessageIllegal) as refused:
                put(log, messages, None, None)
            assert str(refused.value) == f"message {variant.refusal}"
            assert (log.max_offset, log.queue_keys(), handed) == (0, [], [])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_part_in_a_transaction_is_refused_at_each_place_of_a_batch(tmp_path: Path, place: int) -> None:
    """So is a message of another queue, but for the first, which decides the queue."""
    usual = Variant("usual")
    messages = [usual.message()] * 3
    with open_log(tmp_path / "s", usual) as log:
        for change, words in (({"sys_flag": 0x4}, "no part in a transaction"), ({"queue_id": 9}, "those of its first")):
            changed = [replace(each, **change) if at == place else each for at, each in enumerate(messages)]
            with pytest.raises(MessageIllegal, match=words):
                listed(log, changed, None, None)
        assert (log.max_offset, log.queue_keys()) == (0, [])


@pytest.mark.parametrize("variant", [each for each in VARIANTS if not each.is_batchable], ids=name_of)
@pytest.mark.parametrize("put", (listed, batched), ids=lambda put: put.__name__)
def test_a_batch_refuses_a_part_in_a_transaction(tmp_path: Path, variant: Variant, put: Put) -> None:
    with open_log(tmp_path / "s", variant) as log:
        with pytest.raises(MessageIllegal) as refused:
            put(log, [variant.message()] * 2, None, None)
        assert str(refused.value) == f"message batch: found sysFlag {variant.sys_flag:#x}, expected no part in a transaction"
        assert (log.max_offset, log.queue_keys()) == (0, [])


@pytest.mark.parametrize("field", ("topic", "properties_string"))
@pytest.mark.parametrize("variant", SOME[:3], ids=name_of)
@every_put
def test_text_that_utf8_cannot_hold_is_refused(tmp_path: Path, variant: Variant, put: Put, field: str) -> None:
    message = replace(variant.message(), **{field: "a\ud800"})  # type: ignore[arg-type]
    with open_log(tmp_path / "s", variant) as log:
        with pytest.raises(MessageIllegal) as refused:
            put(log, [message], STORED_MS, None)
        name = field.removesuffix("_string")
        assert str(refused.value) == f"message {name}: found surrogates not allowed, expected text that UTF-8 can hold"
        assert (log.max_offset, list(log.queue.files), log.queue_keys()) == (0, [], [])


WRONG_NUMBERS = {
    "queue_id": 1 << 31,
    "flag": -(1 << 31) - 1,
    "born_timestamp": 1 << 63,
    "reconsume_times": 1 << 31,
    "prepared_transaction_offset": -(1 << 63) - 1,
}


@pytest.mark.parametrize("variant", SOME[:2], ids=name_of)
@every_put
@pytest.mark.parametrize(
    "before",
    (None, Message("other", bytes(100)), Message("topic", bytes(100)), Message("topic", bytes(700))),
    ids=("no-file", "new-queue", "known-queue", "no-room"),
)
def test_a_number_that_no_record_holds_leaves_nothing(
    tmp_path: Path, variant: Variant, put: Put, before: Message | None
) -> None:
    """No file is begun for it, no BLANK is written in front of it, and no queue is known by it."""
    message = replace(variant.message(), body=bytes(300))
    with CommitLog.open(tmp_path / "s", file_size=1024) as log:
        if before is not None:
            log.append(before)
        end, keys, files = log.max_offset, log.queue_keys(), list(log.queue.files)
        data = [bytes(file.view(0, 1024)) for file in files]
        for field, wrong in WRONG_NUMBERS.items():
            with pytest.raises(MessageIllegal, match="integer field: found "):
                put(log, [replace(message, **{field: wrong})], STORED_MS, None)  # type: ignore[arg-type]
        assert (log.max_offset, log.queue_keys(), list(log.queue.files)) == (end, keys, files)
        assert [bytes(file.view(0, 1024)) for file in files] == data
        result = log.append(Message("topic", b"x"))
        assert result.queue_offset == (before is not None and before.topic == "topic")


# --- The end of a file -------------------------------------------------------------------------------------------------------

ENDS = [
    pytest.param(put, variant, id=f"{put.__name__}-{name_of(variant)}")
    for put in PUTS
    for variant in SOME
    if takes(put, variant)
]


@pytest.mark.parametrize(("put", "variant"), ENDS)
@pytest.mark.parametrize("left", (-1, 0, 7, 8, 9), ids=lambda left: f"{left}-left")
@pytest.mark.parametrize("is_unlike", (False, True), ids=("alike", "unlike"))
def test_a_record_stays_in_its_file_if_8_bytes_are_left_behind_it(
    tmp_path: Path, put: Put, variant: Variant, left: int, is_unlike: bool
) -> None:
    """HA-ST-3 "When a message and 8 bytes more do not fit in the rest of a file, the rest MUST become a BLANK"."""
    filler = Variant("filler", b"filling", bytes(500))
    variants = [variant] if put is alone else [variant, replace(variant, body=b"longer") if is_unlike else variant]
    size = sum(each.size for each in variants)
    file_size = filler.size + size + left
    with CommitLog.open(tmp_path / "s", file_size=file_size) as log:
        log.append(filler.message())
        put(log, [each.message() for each in variants], None, None)
        expected = filler.record(0)
        if left < 8:
            expected += blank(size + left)
        for number, each in enumerate(variants):
            expected += each.record(len(expected), number if each.is_queued else 0)
        assert log.max_offset == len(expected)
        data = b"".join(bytes(file.view(0, file_size)) for file in log.queue.files)
        assert data == expected + bytes(-len(expected) % file_size)


@pytest.mark.parametrize(("put", "variant"), ENDS)
@pytest.mark.parametrize("left", (7, 8, 9), ids=lambda left: f"{left}-left")
def test_a_record_that_fits_no_file_is_refused(tmp_path: Path, put: Put, variant: Variant, left: int) -> None:
    messages = [variant.message()] * (1 if put is alone else 3)
    size = len(messages) * variant.size
    with CommitLog.open(tmp_path / "s", file_size=size + left) as log:
        if left >= 8:
            put(log, messages, None, None)
            assert log.max_offset == size
            return
        with pytest.raises(MessageIllegal) as refused:
            put(log, messages, None, None)
        expected = f"at most {size - 1}, a file of this log less its BLANK"
        assert str(refused.value) == f"message size: found {size} bytes, expected {expected}"
        assert (log.max_offset, list(log.queue.files), log.queue_keys()) == (0, [], [])


# --- The size of a batch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("apart", "over"), [(0, -8), (0, 0), (0, 8), (7, -1), (7, 0), (7, 1)])
@pytest.mark.parametrize("put", (listed, batched), ids=lambda put: put.__name__)
def test_a_batch_holds_16_mib_and_no_byte_more(tmp_path: Path, put: Put, apart: int, over: int) -> None:
    """Records, not bodies, are counted. A broker takes bodies of 4 MiB at once, whose records are longer (HA-SE-23)."""
    one = (16 * MIB + over) // 8 - Variant("empty", body=b"").size
    last = one + (16 * MIB + over) % 8
    parts = [Variant("large", body=bytes(size)) for size in (one + apart, *[one] * 6, last - apart)]
    size = 16 * MIB + over
    assert sum(each.size for each in parts) == size
    with CommitLog.open(tmp_path / "s", file_size=32 * MIB) as log:
        if over <= 0:
            put(log, [each.message() for each in parts], None, None)
            assert log.max_offset == size
            return
        with pytest.raises(MessageIllegal) as refused:
            put(log, [each.message() for each in parts], None, None)
        assert str(refused.value) == f"message batch: found {size} bytes of records, expected at most 16777216"
        assert (log.max_offset, list(log.queue.files)) == (0, [])


# What messages of a list may differ in, each alone in the second one of three. No two values of a message are equal.
HEAD = Message(
    "topic", b"a body", 3, 4, 0, 0, 0, 7, ("10.0.0.8", 9), 10, ("10.0.0.11", 12), 13, 14, "K\1V\2",
)  # fmt: skip
OTHERS = {
    "flag": 104,
    "sys_flag": 1,
    "born_timestamp": 107,
    "born_host": ("10.0.0.108", 9),
    "store_timestamp": 110,
    "store_host": ("10.0.0.111", 12),
    "reconsume_times": 113,
    "prepared_transaction_offset": 114,
    "properties_string": "K\1W\2",
    "body": b"a BODY",
    "magic": V2,
}


def test_each_field_of_a_message_is_one_that_a_batch_may_differ_in_or_not() -> None:
    given_by_the_put, of_the_queue = {"queue_offset", "physical_offset"}, {"topic", "queue_id"}
    assert {*OTHERS} | given_by_the_put | of_the_queue == {each.name for each in fields(Message)}


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_message_of_a_list_keeps_the_field_in_which_it_differs(tmp_path: Path, field: str, which: int) -> None:
    messages = [HEAD] * 3
    messages[which] = replace(HEAD, **{field: OTHERS[field]})  # type: ignore[arg-type]
    with CommitLog.open(tmp_path / "one", file_size=MIB) as one, CommitLog.open(tmp_path / "all", file_size=MIB) as together:
        alone(one, messages, None, None)
        listed(together, messages, None, None)
        assert bytes(together.queue.files[0].view(0, MIB)) == bytes(one.queue.files[0].view(0, MIB))
        found, offset = [], 0
        while offset < one.max_offset:
            record = together.queue.files[0].view(offset, together.max_offset)
            size = int.from_bytes(record[:4], "big")
            found.append(getattr(decode(record[:size]), field))
            offset += size
    assert found == [getattr(message, field) for message in messages]


@pytest.mark.parametrize("change", [{"topic": "other"}, {"queue_id": 103}], ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("which", [1, 2])
def test_a_list_of_several_queues_is_refused(tmp_path: Path, change: dict[str, Any], which: int) -> None:
    messages = [HEAD] * 3
    messages[which] = replace(HEAD, **change)
    with CommitLog.open(tmp_path / "s", file_size=MIB) as log:
        with pytest.raises(MessageIllegal, match="expected those of its first, 'topic' and 3"):
            listed(log, messages, None, None)
        assert (log.max_offset, log.queue_keys()) == (0, [])
