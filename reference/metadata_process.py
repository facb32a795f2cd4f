"""The tables of one broker's process with their files, as the world of metadata has them: each change, and what a start reads.

    topics, groups, deleted   with a version, a log of changes for slaves, and a file that is written at each change
    offsets                   with a log of changes, and a file that is written every 5 s

Entries are JSON objects here, as the files and the answers have them. The process's log counts messages of 100 bytes.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from rocketmq_ha.reference import broker_tables, consumer_offsets, deleted_topics, metadata_changes
from rocketmq_ha.reference.broker_tables import Group, Topic, Version
from rocketmq_ha.reference.consumer_offsets import Key, Offsets
from rocketmq_ha.reference.metadata_changes import ChangeLog
from rocketmq_ha.reference.replace import replace

MESSAGE_SIZE: Final = 100
RETRY_MS: Final = 5_000
SETTINGS: Final = broker_tables.Settings("b", "c")
FIELDS: Final = {"topics": "topicConfigTable", "groups": "subscriptionGroupTable", "deleted": "deletedTopicTable"}
VERSIONED: Final = tuple(FIELDS)  # in the order in which a process makes them
Entries = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class File:
    """content: the version and the entries as they were written last; None for no file. retry_at: after a failure."""

    content: tuple[Version, Entries] | None = None
    is_unsaved: bool = False
    retry_at: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """is_dirty: something was taken of a master that the file lacks."""

    version: Version
    entries: Entries
    log: ChangeLog
    file: File
    is_dirty: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """life: which process of this broker it is, from 1 on. stored: topic and queue of each message of its log.

    most_gone: of the logs of changes. has_changed: the file of the offsets lacks some. hidden: of a deleted topic, where its
    hidden messages end in the log.
    """

    life: int
    most_gone: int
    tables: Mapping[str, Table]
    offsets: Offsets
    offsets_log: ChangeLog
    has_changed: bool = False
    stored: tuple[tuple[str, int], ...] = ()
    is_full: bool = False
    hidden: Mapping[str, int] = field(default_factory=dict)

    @property
    def max_offset(self) -> int:
        return len(self.stored) * MESSAGE_SIZE


def topic_object(name: str, topic: Topic) -> object:
    """The JSON object of a topic."""
    return _entry(broker_tables.table_object(Version(0, 0), "table", "topicName", {name: topic}), name)


def group_object(name: str, group: Group) -> object:
    return _entry(broker_tables.table_object(Version(0, 0), "table", "groupName", {name: group}), name)


def _entry(found: Mapping[str, object], name: str) -> object:
    """The entry of a table's JSON object."""
    return cast("Entries", found["table"])[name]


def file_object(name: str, content: tuple[Version, Entries]) -> dict[str, object]:
    """The JSON object of a file or of an answer. HA-MD-22 "MUST have `dataVersion` and `topicConfigTable`"."""
    version, entries = content
    return {"dataVersion": {"counter": version.counter, "timestamp": version.timestamp}, FIELDS[name]: dict(entries)}


def text_size(found: object) -> int:
    """Bytes of an object as JSON without spaces."""
    return len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())


# --- A process begins ------------------------------------------------------------------------------------------------


def start(old: Process | None, now_ms: int, most_gone: int, *, is_slave: bool, forgets: bool) -> Process:
    """A process over the files of the one before. HA-BT-10, HA-BT-20: what it begins with; then come the files.

    Args:  forgets: of a slave that is told no deletions.
    """
    begun = broker_tables.begin(SETTINGS, now_ms)
    own: dict[str, Entries] = {
        "topics": cast("Entries", broker_tables.topics_object(begun)["topicConfigTable"]),
        "groups": cast("Entries", broker_tables.groups_object(begun)["subscriptionGroupTable"]),
        "deleted": {},
    }
    tables = {}
    for name in VERSIONED:
        file = old.tables[name].file if old else File()
        version, entries = file.content or (Version(0, now_ms), {})
        found = {**own[name], **entries}
        log = ChangeLog()
        for entry in (*own[name], *entries):
            log = metadata_changes.on_set(log, entry)
        tables[name] = Table(version, found, log, File(file.content))
    on_disk = old.offsets.on_disk if old else {}
    log = ChangeLog()
    for key in dict.fromkeys(key for key, _ in on_disk):
        log = metadata_changes.on_set(log, key)
    process = Process(
        old.life + 1 if old else 1,
        most_gone,
        tables,
        consumer_offsets.start(SETTINGS, on_disk, now_ms),
        log,
        stored=old.stored if old else (),
        is_full=old.is_full if old else False,
    )
    had_topics = old is not None and old.tables["topics"].file.content is not None
    return _read_deleted(process, now_ms, knows=not is_slave and had_topics, forgets=forgets)


def _read_deleted(process: Process, now_ms: int, *, knows: bool, forgets: bool) -> Process:
    """The deletions of the file that hide something still. knows: it is a master, and has a `topics.json`."""
    known = offsets_of_deleted(process)
    stored = {topic for topic, _ in process.stored}
    topics = process.tables["topics"].entries if knows else None
    after = deleted_topics.start(known, 0, process.max_offset, topics, stored, forgets=forgets)
    process = become_deleted(process, after, now_ms)
    return replace(process, hidden=after)


def offsets_of_deleted(process: Process) -> dict[str, int]:
    entries = cast("Mapping[str, Mapping[str, int]]", process.tables["deleted"].entries)
    return {topic: entry["logOffset"] for topic, entry in entries.items()}


def become_deleted(process: Process, after: Mapping[str, int], now_ms: int) -> Process:
    """The process has these deletions and no other, as one change."""
    entries = {topic: {"logOffset": offset} for topic, offset in after.items()}
    table = process.tables["deleted"]
    if entries == table.entries:
        return process
    return with_table(process, "deleted", changed(_set_all(table, entries, process.most_gone), now_ms, is_full=process.is_full))


# --- Changes ---------------------------------------------------------------------------------------------------------


def put(process: Process, name: str, key: str, entry: object, now_ms: int) -> Process:
    """An entry is created or replaced. HA-BT-17 "MUST replace all settings of the topic"; HA-BT-23 "of the group"."""
    table = process.tables[name]
    table = replace(table, entries={**table.entries, key: entry}, log=metadata_changes.on_set(table.log, key))
    return with_table(process, name, changed(table, now_ms, is_full=process.is_full))


def remove(process: Process, name: str, key: str, now_ms: int) -> Process:
    """An entry is deleted, if it is there. HA-BT-15 "MUST be gone from the table at once"; HA-BT-24."""
    table = process.tables[name]
    if key not in table.entries:
        return process
    left = {other: entry for other, entry in table.entries.items() if other != key}
    table = replace(table, entries=left, log=metadata_changes.on_removed(table.log, key, process.most_gone))
    return with_table(process, name, changed(table, now_ms, is_full=process.is_full))


def delete_topic(process: Process, topic: str, now_ms: int) -> Process:
    """HA-BT-80 "MUST give no message of a deleted topic to consumers": and then the topic is gone from its table."""
    known = offsets_of_deleted(process)
    stored = [(at * MESSAGE_SIZE, queue_id) for at, (name, queue_id) in enumerate(process.stored) if name == topic]
    is_known = topic in process.tables["topics"].entries
    after = deleted_topics.delete_topic(known, topic, stored, process.max_offset, is_known=is_known)
    if after != known:
        process = put(process, "deleted", topic, {"logOffset": after[topic]}, now_ms)
        process = replace(process, hidden=after)
    return remove(process, "topics", topic, now_ms)


def commit(process: Process, topic: str, group: str, queue_id: int, offset: int) -> Process:
    """HA-BT-30 "MUST store the offset whatever it is"."""
    after = consumer_offsets.commit(process.offsets, topic, group, queue_id, offset)
    assert after is not None
    log = metadata_changes.on_set(process.offsets_log, f"{topic}@{group}")
    return replace(process, offsets=after, offsets_log=log, has_changed=True)


def remove_offsets(process: Process, group: str) -> Process:
    """HA-BT-24 "and its offsets in all topics"."""
    log = process.offsets_log
    for topic in consumer_offsets.topics_of(process.offsets, group):
        log = metadata_changes.on_removed(log, f"{topic}@{group}", process.most_gone)
    offsets = consumer_offsets.remove_group(process.offsets, group)
    return replace(process, offsets=offsets, offsets_log=log, has_changed=process.has_changed or offsets != process.offsets)


def set_offsets(process: Process, table: Mapping[Key, int]) -> Process:
    """The table that a slave has by an answer."""
    return replace(process, offsets=replace(process.offsets, in_memory=table), has_changed=True)


def changed(table: Table, now_ms: int, *, is_full: bool) -> Table:
    """HA-BT-2 "MUST count its version on by one"; HA-BT-3 "MUST be written to its file before"."""
    return written(replace(table, version=table.version.after_change(now_ms)), is_full=is_full)


def written(table: Table, *, is_full: bool) -> Table:
    """HA-BT-6 "MUST keep the change in memory and go on"."""
    if is_full:
        return replace(table, file=replace(table.file, is_unsaved=True))
    return replace(table, file=replace(table.file, content=(table.version, table.entries), is_unsaved=False))


def save_offsets(process: Process) -> Process:
    """The file of the offsets is written, if it can be."""
    if process.is_full:
        return process
    return replace(process, offsets=replace(process.offsets, on_disk=process.offsets.in_memory), has_changed=False)


def on_tick(process: Process, now_ms: int) -> Process:
    """HA-BT-33 "then every `flushConsumerOffsetInterval` (5 s)"; HA-BT-6 "it MUST try again until the file is written"."""
    tables = dict(process.tables)
    for name, table in tables.items():
        if table.file.is_unsaved and now_ms >= table.file.retry_at:
            tried = replace(table, file=replace(table.file, retry_at=now_ms + RETRY_MS))
            tables[name] = written(tried, is_full=process.is_full)
    after = consumer_offsets.on_tick(process.offsets, now_ms)
    if after is not process.offsets:
        saved = save_offsets(replace(process, offsets=replace(after, on_disk=process.offsets.on_disk)))
        process = saved
    return replace(process, tables=tables)


def is_kept_in_memory(before: Process, after: Process) -> bool:
    """Whether a table has changed, and its file could not be written."""
    return after is not before and any(
        table.file.is_unsaved and table.entries is not before.tables[name].entries for name, table in after.tables.items()
    )


def clauses_of_tick(process: Process, now_ms: int) -> tuple[str, ...]:
    """The clauses that `on_tick` exercises."""
    files = [table.file for table in process.tables.values()]
    again = any(file.is_unsaved and now_ms >= file.retry_at for file in files)
    return (*(("HA-BT-6",) if again else ()), *(("HA-BT-33",) if now_ms >= process.offsets.persist_at else ()))


# --- What a slave takes of its master --------------------------------------------------------------------------------


def take(table: Table, entries: Entries) -> Table:
    """The entries that a part of an answer leads to."""
    return replace(table, entries=entries, is_dirty=table.is_dirty or dict(entries) != dict(table.entries))


def settle(table: Table, version: Version, *, is_full: bool) -> Table:
    """The table is the master's by now, with its version. HA-MD-28."""
    if not table.is_dirty and version == table.version:
        return table
    return written(replace(table, version=version, is_dirty=False), is_full=is_full)


def _set_all(table: Table, entries: Entries, most_gone: int) -> Table:
    log = table.log
    for key in table.entries:
        if key not in entries:
            log = metadata_changes.on_removed(log, key, most_gone)
    for key, entry in entries.items():
        if table.entries.get(key) != entry:
            log = metadata_changes.on_set(log, key)
    return replace(table, entries=entries, log=log)


def with_table(process: Process, name: str, table: Table) -> Process:
    return replace(process, tables={**process.tables, name: table})


def names_of(offsets: Collection[Key]) -> set[str]:
    return {key for key, _ in offsets}
