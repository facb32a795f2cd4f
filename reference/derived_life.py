"""The life of what is derived from a commit log: its consume queues, its index, and how far the dispatch has come.

`step` takes one event. Records come into the log, and the dispatch follows; a process stops, is killed or loses its machine,
and the next one recovers; files expire, topics are deleted, consumers read. The parts have modules of their own: dispatch.py,
consume_queue.py, index_service.py, store_recovery.py, derived_disk.py, derived_reads.py.

What belongs to the log alone (pages that a power cut takes from it, the checks of its records) is given: a power cut takes whole
records that were not flushed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from rocketmq_ha.reference import (
    consume_queue,
    deleted_topics,
    derived_disk,
    derived_events,
    derived_reads,
    dispatch,
    dispatch_request,
    index_file,
    mapped_file_queue,
    message,
    store,
    store_recovery,
)
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.derived_disk import Disk
from rocketmq_ha.reference.derived_reads import Answer, Known
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings, QueueKey
from rocketmq_ha.reference.mapped_file_queue import Refused
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Step, unique
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE
from rocketmq_ha.spec.profile import Profile

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")  # of every message, as its birthplace and its store


class Phase(Enum):
    DOWN = "down"
    STARTING = "starting"  # recovered, and not yet dispatched: nobody is served
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Small ones reach every boundary."""

    log_file_size: int
    queue_file_size: int
    hash_slot_num: int
    index_num: int
    utc_offset_ms: int = 0  # of the clock by which index files are named


@dataclass(frozen=True, slots=True)
class Life:
    """A store with its process, or without one. While it is down, the queues and the index are what their files hold."""

    now_ms: int
    log: Log
    phase: Phase = Phase.DOWN
    is_master: bool = True
    known: tuple[Known, ...] = ()  # the messages of the log, in its order
    numbers: Mapping[QueueKey, int] = field(default_factory=dict)  # the queue offset of each queue's next message
    missing: bytes = b""  # of a slave's last record
    dispatched: Dispatched = field(default_factory=Dispatched)
    last_stored_ms: int = 0  # of the last message that this process has put
    dispatched_ms: int = 0  # of the last message that it has dispatched
    checkpoint: StoreCheckpoint = field(default_factory=StoreCheckpoint)  # of the process
    on_disk: StoreCheckpoint = field(default_factory=StoreCheckpoint)
    abort: bool = False
    flushed_where: int = 0  # the log before it is on the disk
    disk: Disk = field(default_factory=Disk)
    derived_where: int = 0  # what was dispatched of the log before it is on the disk
    deleted: Mapping[str, int] = field(default_factory=dict)  # by topic: messages before this offset of the log are hidden
    refused: bool = False  # the store could not be opened, or its dispatch cannot go on
    answer: Answer = ()  # of the last event, if it was a question
    injured: frozenset[str] = frozenset()  # what damage has taken, and recovery cannot know of: index, or a queue as "T/0"


Stepped = Step[Life]


def served(profile: Profile) -> Profile:
    """The switches of a profile as they hold for queues and index.

    Classic's dispatch, queues and index lose entries and keys (HA-ST-74, HA-ST-77, HA-ST-79, HA-ST-87); this project's
    implementation keeps them right in both profiles, and so classic differs in how the log is recovered, and in reads by time.
    """
    return replace(profile, stops_at_damage=True, keeps_queues_right=True, keeps_index_right=True)


def step(life: Life, event: derived_events.Event, sizes: Sizes, profile: Profile) -> Stepped:
    """One event. One that does not apply to the present state does nothing: it exercises no clause."""
    life = replace(life, answer=()) if life.answer else life
    match event:
        case derived_events.Tick():
            return Step(replace(life, now_ms=life.now_ms + event.ms))
        case derived_events.Start():
            return on_start(life, event, sizes, profile) if life.phase is Phase.DOWN else Step(life)
        case derived_events.Damage():
            return on_damage(life, event) if life.phase is Phase.DOWN else Step(life)
        case derived_events.Dispatch():
            return on_dispatch(life, event.most, sizes, profile) if life.phase is not Phase.DOWN else Step(life)
        case derived_events.Kill():
            return on_kill(life) if life.phase is not Phase.DOWN else Step(life)
        case derived_events.PowerCut():
            return on_power_cut(life, event) if life.phase is not Phase.DOWN else Step(life)
        case _:
            return on_event_of_a_process(life, event, sizes, profile) if life.phase is Phase.RUNNING else Step(life)


def on_event_of_a_process(
    life: Life,
    event: (
        derived_events.Put
        | derived_events.Flush
        | derived_events.Expire
        | derived_events.DeleteTopic
        | derived_events.Get
        | derived_events.Seek
        | derived_events.Query
        | derived_events.Stop
    ),
    sizes: Sizes,
    profile: Profile,
) -> Stepped:
    """An event that needs a process that serves."""
    match event:
        case derived_events.Put():
            return on_put(life, event) if life.is_master else on_replicated(life, event)
        case derived_events.Flush():
            return on_flush(life, event)
        case derived_events.Expire():
            return on_expire(life, event, profile)
        case derived_events.DeleteTopic():
            return on_delete_topic(life, event)
        case derived_events.Stop():
            return on_stop(life, sizes, profile)
        case derived_events.Get():
            answer, clauses = derived_reads.get(life.dispatched, life.log, life.deleted, event)
        case derived_events.Seek():
            answer, clauses = derived_reads.seek(life.dispatched, life.log, life.deleted, life.known, life.now_ms, event, profile)
        case derived_events.Query():
            answer, clauses = derived_reads.query(life.dispatched, life.known, life.now_ms, event)
        case _:
            assert_never(event)
    return Step(replace(life, answer=answer), clauses=clauses)


# --- Records come into the log ---------------------------------------------------------------------------------------


def record_of(event: derived_events.Put, number: int, offset: int, store_timestamp: int) -> Record:
    queued = dispatch_request.is_queued(event.sys_flag)
    return Record(
        event.topic.encode(),
        b"x" * event.size,
        event.properties.encode(),
        event.queue_id,
        queue_offset=number if queued else 0,
        physical_offset=offset,
        sys_flag=event.sys_flag,
        born_host=HOST,
        store_timestamp=store_timestamp,
        store_host=HOST,
    )


def known_of(record: Record, size: int) -> Known:
    properties = dispatch_request.parse_properties(record.properties)
    topic = record.topic.decode()
    return Known(
        record.physical_offset,
        size,
        topic,
        record.queue_id,
        record.queue_offset if dispatch_request.is_queued(record.sys_flag) else None,
        record.store_timestamp,
        dispatch_request.tags_code(topic, properties, record.store_timestamp),
        dispatch_request.index_keys(properties) if dispatch_request.is_indexed(record.sys_flag) else (),
    )


def with_blank(log: Log, size: int) -> tuple[Log, bytes]:
    """A log with room for so many bytes and a BLANK in its last file; and the BLANK that this took, if any.

    HA-ST-3 "When a message and 8 bytes more do not fit in the rest of a file, the rest MUST become a BLANK".
    """
    log = replace(log, base=log.base or 0)
    room = log.file_size - len(log.data) % log.file_size
    blank = store.blank(room) if size + END_FILE_MIN_BLANK_SIZE > room else b""
    return mapped_file_queue.append(log, blank), blank


def on_put(life: Life, event: derived_events.Put) -> Stepped:
    """A master appends a message, or several of one size at once; the dispatch follows later.

    Spec: HA-ST-31 "The entry of the message with queue offset n": the log numbers the messages of each queue. HA-ST-35 "by a
    thread of its own, which puts do not wait for".
    """
    # GUARD
    key, stored_ms = (event.topic, event.queue_id), max(life.now_ms, life.last_stored_ms)
    count = event.count if event.sys_flag == 0 else 1
    size = len(message.encode(record_of(event, 0, 0, stored_ms)))
    if count * size + END_FILE_MIN_BLANK_SIZE > life.log.file_size:
        return Step(life)
    # STATE
    log, blank = with_blank(life.log, count * size)
    known, number = list(life.known), life.numbers.get(key, 0)
    for _ in range(count):
        record = record_of(event, number, max_offset(log), stored_ms)
        log = mapped_file_queue.append(log, message.encode(record))
        known.append(known_of(record, size))
        number += dispatch_request.is_queued(event.sys_flag)
    numbers = {**life.numbers, key: number}
    clauses = ("HA-ST-12", "HA-ST-15", *(("HA-ST-3",) if blank else ()))
    return Step(replace(life, log=log, known=tuple(known), numbers=numbers, last_stored_ms=stored_ms), clauses=clauses)


def on_replicated(life: Life, event: derived_events.Put) -> Stepped:
    """A slave appends the bytes of its master's next message; the last of them may be missing until the next.

    Spec: HA-ST-36 "wait at a record of which a part is still missing".
    """
    # GUARD
    key = event.topic, event.queue_id
    stored_ms = max([life.now_ms, *(known.store_timestamp for known in life.known[-1:])])
    size = len(message.encode(record_of(event, 0, 0, stored_ms)))
    if size + END_FILE_MIN_BLANK_SIZE > life.log.file_size:
        return Step(life)
    # STATE
    log, known = mapped_file_queue.append(life.log, life.missing), life.known
    if life.missing:
        found = dispatch_request.record_at(log, begin_of_last(life))
        assert found is not None
        stored_ms = max(stored_ms, found[0].store_timestamp)
        known = (*known, known_of(*found))
    log, _ = with_blank(log, size)
    queued = dispatch_request.is_queued(event.sys_flag)
    number = life.numbers.get(key, 0) + event.skips
    record = record_of(event, number, max_offset(log), stored_ms)
    data = message.encode(record)
    arrived = len(data) - missing_of(event)
    log = mapped_file_queue.append(log, data[:arrived])
    if arrived == size:
        known = (*known, known_of(record, size))
    numbers = {**life.numbers, key: number + 1} if queued else life.numbers
    return Step(replace(life, log=log, known=known, numbers=numbers, missing=data[arrived:]), clauses=("HA-ST-6",))


def missing_of(event: derived_events.Put) -> int:
    """How many bytes of the record are missing: never a part of the topic alone, which would be another topic."""
    behind_topic = len(event.properties.encode()) + 2
    inside = behind_topic < event.missing <= behind_topic + len(event.topic)
    return behind_topic if inside else min(event.missing, behind_topic + len(event.topic) + event.size + 80)


def begin_of_last(life: Life) -> int:
    """Where the record begins of which a slave lacks a part."""
    walked = life.known[-1].offset + life.known[-1].size if life.known else min_offset(life.log)
    match dispatch_request.check_message_and_return_size(life.log, walked):
        case dispatch_request.Blank(next_file):
            return next_file
        case _:
            return walked


# --- The dispatch ----------------------------------------------------------------------------------------------------


def dispatch_settings(sizes: Sizes) -> DispatchSettings:
    return DispatchSettings(sizes.queue_file_size, sizes.hash_slot_num, sizes.index_num)


def on_dispatch(life: Life, most: int, sizes: Sizes, profile: Profile) -> Stepped:
    """The dispatch goes on by some messages, or as far as it can.

    A start that cannot dispatch a message whose queue offset is impossible fails; a process that runs goes on without it.
    """
    before = life.dispatched
    dispatched = dispatch.do_reput(
        before,
        life.log,
        made_at(life.now_ms + sizes.utc_offset_ms),
        dispatch_settings(sizes),
        served(profile),
        is_master=life.is_master,
        most=most or None,
    )
    begin, end = max(before.reput_from_offset, min_offset(life.log)), dispatched.reput_from_offset
    passed = [known for known in life.known if begin <= known.offset < end]
    dispatched_ms = max([life.dispatched_ms, *(known.store_timestamp for known in passed[-1:])])
    next_one = next((known for known in life.known if known.offset >= end), None)
    refused = next_one is not None and next_one.number is not None and (not most or len(passed) < most)
    life = replace(life, dispatched=dispatched, dispatched_ms=dispatched_ms, refused=life.refused or refused)
    clauses = dispatch_clauses(before, dispatched, passed, life.is_master) if passed else ()
    if life.phase is Phase.STARTING and refused:
        return Step(replace(on_kill(life).state, refused=True), clauses=clauses)
    if life.phase is Phase.STARTING and end >= max_offset(life.log):
        return Step(serving(life), clauses=clauses)
    return Step(life, clauses=clauses)


def dispatch_clauses(before: Dispatched, after: Dispatched, passed: list[Known], is_master: bool) -> tuple[str, ...]:
    """The clauses by which these messages came into queues and index."""
    found = ["HA-ST-35" if is_master else "HA-ST-36"]
    for known in passed:
        if known.number is None:
            found.append("HA-ST-34")
            if known.keys:
                found.append("HA-ST-78")
            continue
        found.append("HA-ST-76" if known.topic == dispatch_request.SCHEDULE_TOPIC else "HA-ST-32")
    for key, queue in after.queues.items():
        old = before.queues.get(key)
        if queue is old:
            continue
        found += ("HA-ST-29", "HA-ST-31")
        end = mapped_file_queue.end(old.mapped_file_queue) if old else 0
        data = queue.mapped_file_queue.data
        added = data if old is None or old.mapped_file_queue.base is None else data[len(old.mapped_file_queue.data) :]
        if consume_queue.FILLER in consume_queue.entries(added):
            found.append("HA-ST-75" if end else "HA-ST-33")
        if old is None or len(derived_disk.queue_files(queue)) > len(derived_disk.queue_files(old)):
            found.append("HA-ST-30")
    if after.index is not before.index:
        found += ("HA-ST-39", "HA-ST-40", "HA-ST-41", "HA-ST-42", "HA-ST-47")
        made = len(after.index) - len(before.index)
        if made:
            found += ("HA-ST-43", "HA-ST-83")
        if made and before.index:
            found += ("HA-ST-84", "HA-ST-88")
    return unique(found)


def made_at(now_ms: int) -> str:
    """The name of an index file: HA-ST-43 "named by the time of its making, `yyyyMMddHHmmssSSS`".

    >>> made_at(0), made_at(951_782_400_000 - 1), made_at(1_709_210_096_789)
    ('19700101000000000', '20000228235959999', '20240229123456789')
    """
    days, ms = divmod(now_ms, 86_400_000)
    # Days since 1 March of the year 0, by eras of 400 years; a year that begins in March has its leap day at its end.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    year = year_of_era + 400 * era + (month <= 2)
    hour, minute, second = ms // 3_600_000, ms // 60_000 % 60, ms // 1000 % 60
    return f"{year:04d}{month:02d}{day:02d}{hour:02d}{minute:02d}{second:02d}{ms % 1000:03d}"


# --- Flush, expiry, deletion -----------------------------------------------------------------------------------------


def on_flush(life: Life, event: derived_events.Flush) -> Stepped:
    """HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"."""
    told = life.checkpoint
    if event.what == "log":
        stored_ms = max(life.last_stored_ms, life.dispatched_ms, told.physic_msg_timestamp)
        checkpoint = replace(told, physic_msg_timestamp=stored_ms)
        return Step(replace(life, flushed_where=max_offset(life.log), checkpoint=checkpoint), clauses=("HA-ST-28",))
    if event.what == "full_files":
        disk = derived_disk.flush_full_files(life.disk, life.dispatched)
        return Step(replace(life, disk=disk, on_disk=told), clauses=("HA-ST-24",))
    full = [file for file in life.dispatched.index if index_file.is_write_full(file)]
    checkpoint = replace(
        told,
        logics_msg_timestamp=max(told.logics_msg_timestamp, life.dispatched_ms),
        index_msg_timestamp=max([told.index_msg_timestamp, *(index_file.header(file).end_timestamp for file in full)]),
    )
    disk, reached = derived_disk.flush(life.disk, life.dispatched), life.dispatched.reput_from_offset
    flushed = replace(life, disk=disk, derived_where=reached, checkpoint=checkpoint, on_disk=checkpoint)
    return Step(flushed, clauses=("HA-ST-24",))


def on_expire(life: Life, event: derived_events.Expire, profile: Profile) -> Stepped:
    """Files of the log are deleted, and then those of queues and index that only had their messages.

    HA-ST-62 "hardened also keeps the file before the last one, while the last one may hold no whole record": this project does so
    in both profiles. A file whose messages were dispatched since the last flush of queues and index stays: files are kept for hours, and flushes
    come every 10 s.

    Spec: HA-ST-71 "MUST be deleted when all its messages have been deleted from the log", HA-ST-13 "the start of its first file".
    """
    last = mapped_file_queue.file_count(life.log) - 1
    begins_whole = any(known.offset == min_offset(life.log) + last * life.log.file_size for known in life.known)
    count = min(event.files, last if begins_whole else last - 1)
    if life.dispatched.reput_from_offset > life.derived_where:
        count = min(count, (life.derived_where - min_offset(life.log)) // life.log.file_size)
    log = mapped_file_queue.delete_first_files(life.log, max(0, count))
    flushed_where = max(life.flushed_where, min_offset(log))
    known = tuple(known for known in life.known if known.offset >= min_offset(log))
    dispatched = dispatch.delete_expired(life.dispatched, log, served(profile)) if event.cleans else life.dispatched
    clauses = (*(("HA-ST-13",) if count > 0 else ()), *(("HA-ST-71",) if event.cleans else ()))
    return Step(replace(life, log=log, known=known, flushed_where=flushed_where, dispatched=dispatched), clauses=clauses)


def on_delete_topic(life: Life, event: derived_events.DeleteTopic) -> Stepped:
    """HA-BT-80 "MUST give no message of a deleted topic": none that the log has by now."""
    deleted = deleted_topics.delete_topic(life.deleted, event.topic, (), max_offset(life.log), is_known=True)
    return Step(replace(life, deleted=deleted), clauses=("HA-BT-80",))


# --- The end of a process --------------------------------------------------------------------------------------------


def on_stop(life: Life, sizes: Sizes, profile: Profile) -> Stepped:
    """A clean stop: HA-ST-23 "MUST stay when the broker stops before all has been dispatched"."""
    life = on_dispatch(life, 0, sizes, profile).state
    for what in ("log", "all"):
        life = on_flush(life, derived_events.Flush(what)).state
    abort = life.dispatched.reput_from_offset < max_offset(life.log)
    return Step(replace(on_kill(life).state, abort=abort), clauses=("HA-ST-23",))


def on_kill(life: Life) -> Stepped:
    """The process ends: its files stay as they were written, and what it knew besides is gone."""
    queues = {key: derived_disk.loaded(queue) for key, queue in life.dispatched.queues.items()}
    left = Life(
        life.now_ms,
        life.log,
        is_master=life.is_master,
        known=life.known,
        dispatched=Dispatched(queues, life.dispatched.index),
        on_disk=life.on_disk,
        abort=True,
        flushed_where=life.flushed_where,
        disk=life.disk,
        derived_where=life.derived_where,
        deleted=life.deleted,
        injured=life.injured,
    )
    return Step(left)


def on_power_cut(life: Life, event: derived_events.PowerCut) -> Stepped:
    """The machine fails: what was flushed is there. Of the log, records at its end are lost; of the rest, any sector may be."""
    life = on_kill(life).state
    starts = [known.offset for known in life.known[::-1][: event.lost]] if event.lost else []
    end = max([life.flushed_where, *starts[-1:]]) if starts else max_offset(life.log)
    log = life.log if life.log.base is None else replace(life.log, data=life.log.data[: end - life.log.base], stale=b"")
    known = tuple(known for known in life.known if known.offset + known.size <= end)
    dispatched = derived_disk.power_cut(life.dispatched, life.disk, event)
    return Step(replace(life, log=log, known=known, dispatched=dispatched))


def on_damage(life: Life, event: derived_events.Damage) -> Stepped:
    """Somebody damages files. What no recovery can notice counts as injured: it is as the damage has left it.

    Queues lose what they have only after a clean stop, or as a whole: after another stop, what the checkpoint vouches for is
    believed.
    """
    dispatched = life.dispatched
    if event.what in ("index_entry", "index_file"):
        if not dispatched.index:
            return Step(life)
        last = dispatched.index[-1]
        kept = (derived_disk.damaged_index(last, event),) if event.what == "index_entry" else ()
        index = (*dispatched.index[:-1], *kept)
        return Step(replace(life, dispatched=replace(dispatched, index=index), injured=life.injured | {"index"}))
    key = event.topic, event.queue_id
    queue = dispatched.queues.get(key)
    if queue is None or queue.mapped_file_queue.base is None or (life.abort and event.what != "queue"):
        return Step(life)
    files = derived_disk.damaged_queue(derived_disk.queue_files(queue), event)
    damaged = derived_disk.with_files(queue, files)
    queues = {**dispatched.queues, key: damaged} if files else {k: q for k, q in dispatched.queues.items() if k != key}
    injured = life.injured | {f"{event.topic}/{event.queue_id}"}
    return Step(replace(life, dispatched=replace(dispatched, queues=queues), injured=injured))


# --- The next process ------------------------------------------------------------------------------------------------


def on_start(life: Life, event: derived_events.Start, sizes: Sizes, profile: Profile) -> Stepped:
    """A process opens the store, recovers it, and begins to dispatch what is not dispatched yet.

    Spec: HA-ST-73 "MUST be dispatched again, to queues and index"; HA-ST-38 "MUST NOT name a message beyond the end of the commit
    log".
    """
    # GUARD
    before = store_recovery.Store(life.log, life.dispatched, life.on_disk, life.abort)
    found = store_recovery.recover(before, "", dispatch_settings(sizes), served(profile))
    if isinstance(found, Refused):
        return Step(replace(life, refused=True, is_master=event.is_master), clauses=("HA-ST-20",))
    # STATE
    log, dispatched = found.log, found.dispatched
    # Classic leaves bytes behind the end of the log alone; queues have none (HA-ST-7) in either profile.
    queues = {
        key: replace(queue, mapped_file_queue=replace(queue.mapped_file_queue, stale=b""))
        for key, queue in dispatched.queues.items()
    }
    dispatched = replace(dispatched, queues=queues)
    known = tuple(walk(log))
    start = store_recovery.start_of_recovery(life.log, not life.abort, life.on_disk, served(profile)) if life.known else 0
    walked = [one for one in known if one.offset >= start]
    numbers = {(one.topic, one.queue_id): one.number + 1 for one in walked if one.number is not None}
    if (part := part_behind(life.log, max_offset(log))) is not None and dispatch_request.is_queued(part.sys_flag):
        numbers[part.topic.decode(), part.queue_id] = part.queue_offset  # so that it is given to the next message
    recovered = replace(
        life,
        log=log,
        phase=Phase.STARTING,
        is_master=event.is_master,
        known=known,
        numbers=numbers,
        dispatched=dispatched,
        last_stored_ms=walked[-1].store_timestamp if walked else 0,
        checkpoint=found.checkpoint,
        on_disk=found.checkpoint,
        abort=True,
        refused=False,
        flushed_where=min(life.flushed_where, max_offset(log)),
        disk=replace(life.disk, index=derived_disk.index_files(dispatched.index)),  # it was flushed as it was cut
        derived_where=min(life.derived_where, dispatched.reput_from_offset),
        deleted=deleted_topics.open_log(life.deleted, max_offset(log)),
    )
    begun = on_dispatch(recovered, event.most, sizes, profile)
    return Step(begun.state, clauses=unique((*start_clauses(life, recovered, profile), *begun.clauses)))


def start_clauses(before: Life, after: Life, profile: Profile) -> tuple[str, ...]:
    """The clauses of a recovery."""
    found = ["HA-ST-23", "HA-ST-5", "HA-ST-38"]
    found += ("HA-ST-19", "HA-ST-73", "HA-ST-82", "HA-ST-45", "HA-ST-51") if before.abort else ("HA-ST-18",)
    if before.abort and profile.checks_recovery:
        found.append("HA-ST-46")
    if max_offset(after.log) < max_offset(before.log) and profile.clears_tail:
        found.append("HA-ST-7")
    if not before.abort and after.dispatched.reput_from_offset < max_offset(after.log):
        found.append("HA-ST-90")
    return tuple(found)


def serving(life: Life) -> Life:
    """All has been dispatched: the process serves. Each queue goes on behind the last message that the log or it knows of."""
    numbers = dict(life.numbers)
    for key, queue in life.dispatched.queues.items():
        numbers[key] = max(numbers.get(key, 0), consume_queue.max_offset_in_queue(queue))
    return replace(life, phase=Phase.RUNNING, numbers=numbers)


def walk(log: Log) -> list[Known]:
    """The messages of a log."""
    found, offset = [], min_offset(log)
    while offset < max_offset(log):
        match dispatch_request.check_message_and_return_size(log, offset):
            case dispatch_request.DispatchRequest():
                record = dispatch_request.record_at(log, offset)
                assert record is not None
                found.append(known_of(*record))
                offset += record[1]
            case dispatch_request.Blank(next_file):
                offset = next_file
            case None:
                break
    return found


def part_behind(log: Log, end: int) -> Record | None:
    """The record that was cut at the end although it seems whole: HA-ST-10 "whose topic, or whose properties if it has any, end in
    a zero byte is not whole".
    """
    if log.base is None or end >= max_offset(log):
        return None
    position = end - log.base
    image = log.data + log.stale + bytes(log.file_size)
    found = message.decode(image[position : position + log.file_size - position % log.file_size])
    return found[0] if found else None
