"""Chapter 5, what is made of the commit log: consume queues, index, checkpoint and `abort`; and the settings of all of it."""

import datetime
from collections import Counter
from struct import pack

from registry import claim
from store_specimens import (
    ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    Abort,
    Checkpoint,
    Defaults,
    IndexEntry,
    IndexFile,
    IndexQuery,
    QueueEntry,
    QueueFile,
    StoredRecord,
    number,
)

from rocketmq_ha.reference import dispatch_request
from rocketmq_ha.reference.dispatch_request import PLAIN_KEYS, TAG_KEYS, TYPED_KEYS
from rocketmq_ha.reference.index_file import build_key, index_file_size, index_key_hash
from rocketmq_ha.spec.release_table import value_of

DAY_MS = 24 * 60 * 60 * 1000

# --- Consume queues --------------------------------------------------------------------------------------------------


@claim("HA-ST-29", "of 20-byte entries", "offset of a message as an i64, its size as an i32")
def an_entry_names_a_message_of_its_queue(entry: QueueEntry) -> bool | None:
    """Its offset and its size are those of a record of that topic and queue."""
    if entry.is_blank:
        return None
    message = entry.message
    if message is None or len(entry.raw) != ENTRY_SIZE:
        return False
    told = (message.topic, message.record.queue_id, len(message.raw))
    return told == (entry.topic, entry.queue_id, entry.size)


@claim("HA-ST-29", "a consume queue of its own", "HA-ST-36", "dispatch the records that it has appended")
def every_message_has_its_entry(record: StoredRecord) -> bool | None:
    """A slave's too: it has made its queues of the records that it was sent."""
    if not dispatch_request.is_queued(record.record.sys_flag):
        return None
    entry = record.store.queued.get(record.offset)
    return entry is not None and (entry.topic, entry.queue_id) == (record.topic, record.record.queue_id)


@claim("HA-ST-30", "consumequeue/{topic}/{queueId}/", "20-digit position of its first byte")
def a_queue_file_is_named_by_its_first_byte(file: QueueFile) -> bool:
    """And has the size that the broker was told, 20 bytes an entry."""
    folder, _, queue_id, name = file.path.split("/")
    size = int(file.store.manifest["master_conf"]["mappedFileSizeConsumeQueue"])
    is_named = len(name) == 20 and name.isdecimal() and int(name) % size == 0 and queue_id.isdecimal()
    return folder == "consumequeue" and is_named and len(file.store.files[file.path]) == size


@claim("HA-ST-30", "300,000 entries, 6,000,000 bytes")
def a_queue_file_holds_300000_entries_by_default(defaults: Defaults) -> bool:
    return defaults.settings["mappedFileSizeConsumeQueue"] == str(300_000 * ENTRY_SIZE)


@claim("HA-ST-31", "queue offset n MUST be entry n")
def entry_n_is_of_the_message_with_queue_offset_n(entry: QueueEntry) -> bool | None:
    return None if entry.is_blank or entry.message is None else entry.number == entry.message.record.queue_offset


@claim("HA-ST-32", "String.hashCode", "64 bits", "0 without tags")
def the_tags_code_is_the_hash_of_the_tags(entry: QueueEntry) -> bool | None:
    """The tags are those that the client reported; Java's hash is counted here, not by the model."""
    if entry.is_blank or entry.topic == dispatch_request.SCHEDULE_TOPIC or entry.message is None or entry.message.told is None:
        return None
    value = 0
    for unit in memoryview((entry.message.told["tags"] or "").encode("utf-16-be")).cast("B").tobytes().hex(" ", 2).split():
        value = (31 * value + int(unit, 16)) & 0xFFFFFFFF
    return entry.tags_code == value - (value >> 31 << 32)


@claim("HA-ST-32", "SCHEDULE_TOPIC_XXXX", "HA-ST-76", "store timestamp plus the delay of the level")
def the_tags_code_of_a_delayed_message_is_its_time(entry: QueueEntry) -> bool | None:
    message = entry.message
    if entry.topic != dispatch_request.SCHEDULE_TOPIC or message is None:
        return None
    return entry.tags_code == dispatch_request.tags_code(entry.topic, message.properties, message.record.store_timestamp)


@claim("HA-ST-76", "1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h for levels 1 to 18")
def the_delays_of_the_levels_are_these_by_default(defaults: Defaults) -> bool:
    minutes = " ".join(f"{count}m" for count in range(1, 11))
    return defaults.settings["messageDelayLevel"] == f"1s 5s 10s 30s {minutes} 20m 30m 1h 2h"


@claim("HA-ST-33", "offset 0, size 2,147,483,647, tags code 0")
def a_queue_that_begins_later_begins_with_blank_entries(file: QueueFile) -> bool | None:
    """Where the first message of a queue is not the first of a file: a slave that came late has such queues."""
    _, topic, queue_id, name = file.path.split("/")
    numbers = [
        record.record.queue_offset
        for record in file.store.queued_records
        if (record.topic, record.record.queue_id) == (topic, int(queue_id))
    ]
    data = file.store.files[file.path]
    skipped = min(numbers) * ENTRY_SIZE - int(name) if numbers else 0
    if not 0 < skipped < len(data):
        return None
    return data[:skipped] == pack(">qiq", 0, (1 << 31) - 1, 0) * (skipped // ENTRY_SIZE)


@claim(
    "HA-ST-34",
    "NOT be in any consume queue",
    "masked with 0x0C, is 0x04 or 0x0C",
    "HA-ST-78",
    "prepared message MUST be in the index",
    "rolled-back one MUST NOT be",
)
def a_message_of_an_open_transaction_is_in_no_queue(record: StoredRecord) -> bool | None:
    """Bits 2 and 3 of sysFlag: prepared, or rolled back. In the index is the prepared one alone, where it has a key."""
    kind = record.record.sys_flag & 0xC
    if kind not in (0x4, 0xC):
        return None
    is_indexed = record.offset in record.store.hashes
    has_key = bool(dispatch_request.index_keys(record.properties, PLAIN_KEYS))
    return record.offset not in record.store.queued and is_indexed == (kind == 0x4 and has_key)


@claim("HA-ST-35", "in the order of the log")
def queues_are_in_the_order_of_the_log(entry: QueueEntry) -> bool | None:
    before = entry.before
    return None if before is None or entry.is_blank or before.is_blank else before.offset < entry.offset


@claim("HA-ST-38", "MUST NOT name a message beyond the end")
def no_entry_names_what_is_beyond_the_end(entry: QueueEntry) -> bool | None:
    """In stores whose broker was started on them a second time, and so recovered."""
    if "abort" not in entry.store.manifest or entry.is_blank:
        return None
    return entry.offset + entry.size <= entry.store.end


# --- Index -----------------------------------------------------------------------------------------------------------


@claim("HA-ST-39", "store timestamps of its first and its last message, their commit-log offsets, each an i64")
def the_header_tells_of_the_first_and_the_last_message(file: IndexFile) -> bool | None:
    if not file.entries:
        return None
    first, last = (file.store.records.get(file.entries[at].offset) for at in (0, -1))
    if first is None or last is None:
        return False
    times = (number(file.data, 0, 8), number(file.data, 8, 8))
    offsets = (number(file.data, 16, 8), number(file.data, 24, 8))
    return (times, offsets) == (
        (first.record.store_timestamp, last.record.store_timestamp),
        (first.offset, last.offset),
    )


@claim(
    "HA-ST-39",
    "MUST be 40 bytes",
    "and how many entries, each an i32",
    "HA-ST-83",
    "MUST begin at 1, so that entry 0 is never used",
    "both counts 0",
)
def the_header_counts_used_slots_and_entries(file: IndexFile) -> bool:
    """The count of entries is one more than there are, since entry 0 counts and is never used."""
    used = sum(file.slot(index) != 0 for index in range(file.slots))
    counts = (number(file.data, 32, 4), file.index_count)
    return counts == ((used, len(file.entries) + 1) if file.entries else (0, 0)) and not any(file.zeroth)


@claim("HA-ST-40", "number of the one before it in its slot, 0 ending the chain", "HA-ST-41", "the entry before as an i32")
def an_entry_points_to_the_one_before_it_in_its_slot(entry: IndexEntry) -> bool:
    return entry.previous == entry.newest_before


@claim("HA-ST-40", "number of the newest entry of its hash")
def a_slot_points_to_its_newest_entry(file: IndexFile) -> bool:
    newest = {entry.key_hash % file.slots: entry.place for entry in file.entries}
    return all(file.slot(index) == newest.get(index, 0) for index in range(file.slots))


@claim(
    "HA-ST-41",
    "20 bytes: the hash as an i32, the commit-log offset as an i64, the seconds since the file's first message as an i32",
    "HA-ST-84",
    "file's first MUST be 0",
    "from the end of the file before",
)
def an_entry_has_its_seconds(entry: IndexEntry) -> bool:
    """From the file's first message; of the first entry of a later file, from the end of the file before."""
    message = entry.store.records.get(entry.offset)
    if message is None:
        return False
    begin = number(entry.file.data, 0, 8)
    if entry.place == 1:
        begin = number(entry.file.before.data, 8, 8) if entry.file.before else 0
    passed = message.record.store_timestamp - begin if begin else 0
    return entry.seconds == max(0, passed) // 1000


@claim("HA-ST-42", "topic#key, the absolute value")
def a_hash_is_of_a_key_of_its_message(entry: IndexEntry) -> bool:
    message = entry.store.records.get(entry.offset)
    if message is None:
        return False
    keys = [key for key_set in (PLAIN_KEYS, TAG_KEYS) for key in dispatch_request.index_keys(message.properties, key_set)]
    return entry.key_hash in {index_key_hash(build_key(message.topic, key)) for key in keys}


@claim("HA-ST-42", "0 where that is still negative")
def the_hash_of_the_least_integer_is_0(entry: IndexEntry) -> bool | None:
    """`Wvavusl` is a key whose `topic#key` has the hash code -2^31; no other key here is hashed to 0."""
    message = entry.store.records.get(entry.offset)
    if message is None or message.topic != "Unusual" or message.properties.get("KEYS") != "Wvavusl":
        return None
    hashes = message.store.hashes[entry.offset]
    return hashes[0] == 1


@claim("HA-ST-47", "all be of one of these sets")
def the_keys_of_a_message_are_one_set(record: StoredRecord) -> bool | None:
    """All that the index has of it, each as often as the set has it."""
    if not dispatch_request.is_indexed(record.record.sys_flag):
        return None
    sets = []
    for key_set in (PLAIN_KEYS, TAG_KEYS, TYPED_KEYS):
        keys = dispatch_request.index_keys(record.properties, key_set)
        sets.append(Counter(index_key_hash(build_key(record.topic, key)) for key in keys))
    found = record.store.hashes.get(record.offset, Counter())
    return found in sets and found == sets[1 if record.store.key_set == TAG_KEYS else 0]


@claim("HA-ST-43", "time of its making, yyyyMMddHHmmssSSS")
def an_index_file_is_named_by_the_time_of_its_making(file: IndexFile) -> bool:
    """17 digits: of the day, and the time to the ms, of about when its first message was stored."""
    made = datetime.datetime.strptime(file.name[:14], "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC)
    begin = number(file.data, 0, 8)
    is_sized = len(file.data) == index_file_size(file.slots, file.room)
    return len(file.name) == 17 and abs(made.timestamp() * 1000 - begin) < DAY_MS and is_sized


@claim("HA-ST-43", "5,000,000 slots and 20,000,000 entries")
def an_index_file_has_room_by_default(defaults: Defaults) -> bool:
    settings = defaults.settings
    return (settings["maxHashSlotNum"], settings["maxIndexNum"]) == ("5000000", "20000000")


@claim("HA-ST-43", "slots and 20,000,000 entries")
def a_full_index_file_has_one_entry_less(file: IndexFile) -> bool | None:
    if file is file.store.index_files[-1]:
        return None
    return len(file.entries) == file.room - 1 and len(file.data) == INDEX_HEADER_SIZE + 4 * file.slots + 20 * file.room


@claim("HA-ST-44", "find messages by key", "HA-ST-85", "the newest of the messages that match")
def a_query_finds_the_newest_that_have_the_key(query: IndexQuery) -> bool:
    """Looked for in the log, without the index."""
    topic, key = query.row["topic"], query.row["key"]
    found = []
    for record in query.store.records.values():
        if record.topic == topic and dispatch_request.is_indexed(record.record.sys_flag):
            keys = dispatch_request.index_keys(record.properties, PLAIN_KEYS)
            found += [record.offset] if key in keys else []
    return query.row["commit_log_offsets"] == found[-query.row["max_num"] :]


# --- Checkpoint, abort, settings -------------------------------------------------------------------------------------


@claim("HA-ST-23", "from the start of a broker to its clean stop")
def abort_is_there_while_the_broker_runs(abort: Abort) -> bool:
    return (abort.size is not None) == abort.when.endswith("running")


@claim("HA-ST-23", "A file abort")
def abort_holds_what_versions_toml_says(abort: Abort) -> bool | None:
    """Nothing, or the number of the process, as text."""
    if abort.size is None:
        return None
    is_empty = value_of("`abort` holds", abort.store.release) == "nothing"
    return abort.size == 0 if is_empty else 1 <= abort.size <= 10


@claim("HA-ST-24", "4,096 bytes that begins with three times in ms, each an i64")
def the_checkpoint_begins_with_three_times(checkpoint: Checkpoint) -> bool:
    """After a clean stop: of the last message, twice, and the end of the last index file that is full."""
    store = checkpoint.store
    last = store.records[max(store.records)].record.store_timestamp
    full = [number(file.data, 8, 8) for file in store.index_files if file.index_count >= file.room]
    times = [number(checkpoint.raw, at, 8) for at in (0, 8, 16)]
    return len(checkpoint.raw) == 4096 and times == [last, last, full[-1] if full else 0]


@claim("HA-ST-11", "1 GiB, 1,073,741,824 bytes, by default")
def a_log_file_holds_1_gib_by_default(defaults: Defaults) -> bool:
    return defaults.settings["mappedFileSizeCommitLog"] == str(1 << 30)


@claim("HA-ST-60", "500 ms by default", "4 by default", "10 s by default")
def the_log_is_flushed_at_these_intervals_by_default(defaults: Defaults) -> bool:
    names = ("flushIntervalCommitLog", "flushCommitLogLeastPages", "flushCommitLogThoroughInterval")
    return [defaults.settings[name] for name in names] == ["500", "4", "10000"]


@claim("HA-ST-62", "10 s by default")
def files_are_looked_at_every_10_s_by_default(defaults: Defaults) -> bool:
    return defaults.settings["cleanResourceInterval"] == "10000"


@claim("HA-ST-63", "04 by default", "75 % by default")
def files_are_deleted_at_4_after_72_hours_by_default(defaults: Defaults) -> bool:
    names = ("deleteWhen", "fileReservedTime", "diskMaxUsedSpaceRatio")
    return [defaults.settings[name] for name in names] == ["04", "72", "75"]
