"""The life of a store, event by event: puts, flushes, dispatch, expiry, stops, crashes, damage (store_events.py).

Every transition is a function of the state (store_state.py), the event, the settings and the profile. An event that does not
apply to the present state does nothing.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from rocketmq_ha.reference import checkpoint as checkpoints
from rocketmq_ha.reference import (
    dispatch,
    dispatch_request,
    index_file,
    message,
    puts,
    retention,
    store,
    store_derived,
    store_events,
    store_opening,
    store_recovery,
)
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.group_transfer import PUT_OK
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.retention import Moment
from rocketmq_ha.reference.step import Step, Transition
from rocketmq_ha.reference.store import max_offset
from rocketmq_ha.reference.store_disk import after_power_cut, left_of_cut, names_after_power_cut
from rocketmq_ha.reference.store_state import (
    Healthy,
    Spare,
    StoreLife,
    StoreSettings,
    begins_file,
    classify,
    file_count,
    images,
    index_images,
    last_message_before,
    loaded,
    log_of,
    min_offset,
    of_images,
    policy_of,
    profile_of_store,
    queue_images,
    sizes_of,
    starts,
)
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE, SECTOR_SIZE
from rocketmq_ha.spec.profile import Profile

HOST: Final = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
ILLEGAL, NO_ROOM, FLUSH_FAILED = "illegal", puts.SERVICE_NOT_AVAILABLE, "flush failed"
FLUSH_TRIES: Final = 2  # of a flush for a put that waits (HA-ST-27)

Told = tuple[str, Step[StoreLife]]  # the event as transitions.json names it, and the step


def on_put(life: StoreLife, event: store_events.Put, settings: StoreSettings, _profile: Profile) -> Told:
    """One message: stored, refused, or stored without being on the disk in time.

    Spec: HA-ST-2 "MUST be one record"; HA-ST-12 "MUST be appended at the end of the log, one at a time"; HA-ST-3 "the rest MUST
    become a BLANK"; HA-ST-15 "MUST be the commit-log offset of the record itself".
    """
    record = Record(
        event.topic.encode(),
        event.body,
        event.properties.encode(),
        event.queue_id,
        sys_flag=event.sys_flag,
        born_host=HOST,
        store_host=HOST,
    )
    name, step = _append(life, [record])
    return name, _waited(step, event.properties, settings)


def on_put_batch(life: StoreLife, event: store_events.PutBatch, settings: StoreSettings, _profile: Profile) -> Told:
    """Several messages behind one another in one file: all of them, or none. HA-ST-3 treats them as one message."""
    properties = event.properties.encode()
    records = [
        Record(event.topic.encode(), body, properties, event.queue_id, born_host=HOST, store_host=HOST) for body in event.bodies
    ]
    name, step = _append(life, records)
    return name.replace("put", "put_batch"), _waited(step, event.properties, settings)


def _append(life: StoreLife, records: list[Record]) -> Told:
    size = sum(len(message.encode(record)) for record in records)
    first = records[0]
    # GUARD
    if _looks_torn(first.topic) or (first.properties and _looks_torn(first.properties)):
        return "put_refused", Step(replace(life, told=(ILLEGAL,)), clauses=("HA-ST-89",))
    if life.refuses:
        return "put_refused", Step(replace(life, told=(NO_ROOM,)), clauses=("HA-ST-67",))
    log = life.log
    room = log.file_size - len(log.data) % log.file_size
    is_last_full = bool(log.data) and room == log.file_size and not begins_file(life)
    rolls = size + END_FILE_MIN_BLANK_SIZE > room
    needs_file = log.base is None or rolls or is_last_full
    if needs_file and size + END_FILE_MIN_BLANK_SIZE > log.file_size:
        return "put_refused", Step(replace(life, told=(ILLEGAL,)), clauses=("HA-ST-3",))
    if needs_file and life.is_full and life.spare is not Spare.PREPARED:
        return "put_refused", Step(replace(life, told=(NO_ROOM,)), clauses=("HA-ST-67",))
    # STATE
    stored_ms = max(life.now_ms, life.last_stored_ms)
    if rolls:  # the padding of a BLANK is zeros here, and HA-ST-17 lets it be anything
        log = replace(log, stale=b"")
    key = (first.topic.decode(), first.queue_id)
    is_queued = dispatch_request.is_queued(first.sys_flag)
    queue_offset = life.queue_offsets.get(key, 0) if is_queued else 0
    ends, begin = [], -1
    for number, record in enumerate(records):
        of_queue = queue_offset + number if is_queued else 0
        placed = replace(record, queue_offset=of_queue, store_timestamp=stored_ms, born_timestamp=life.now_ms)
        if rolls and number == 0:
            log = replace(log, data=log.data + store.blank(room))
        log, offset, record_size = store.append_record(log, placed)
        begin = offset if number == 0 else begin
        ends.append((offset + record_size, stored_ms))
    after = replace(
        life,
        log=log,
        last_stored_ms=stored_ms,
        messages=(*life.messages, *ends),
        spare=Spare.NONE if needs_file or life.spare is Spare.LAST else life.spare,
        owes_names=life.owes_names or needs_file,
        told=(PUT_OK, begin, size, queue_offset, stored_ms, len(records)),
    )
    if is_queued:
        after = replace(after, queue_offsets={**life.queue_offsets, key: queue_offset + len(records)})
    # Written were the file that takes the message, one that a BLANK has ended, and one that was made.
    written = {begin - begin % log.file_size, *({last_start(life)} if rolls else ()), *({*starts(after)} - {*starts(life)})}
    after = replace(after, modified_ms={**life.modified_ms, **dict.fromkeys(written, life.now_ms)})
    clauses: tuple[str, ...] = ("HA-ST-2", "HA-ST-4", "HA-ST-12", "HA-ST-15", *(("HA-ST-31",) if is_queued else ()))
    clauses += ("HA-ST-8",) if needs_file else ()
    return ("put_roll", Step(after, clauses=(*clauses, "HA-ST-3"))) if rolls else ("put", Step(after, clauses=clauses))


def last_start(life: StoreLife) -> int:
    """The start of the file in which the log ends."""
    end = max_offset(life.log)
    return end - end % life.log.file_size


def _looks_torn(text: bytes) -> bool:
    """HA-ST-89 "MUST be refused when its topic or properties end in a zero byte, or have 512 zero bytes in a row"."""
    return text.endswith(b"\0") or bytes(SECTOR_SIZE) in text


def _waited(step: Step[StoreLife], properties: str, settings: StoreSettings) -> Step[StoreLife]:
    """The wait of a put for the disk.

    Spec: HA-ST-25 "a put MUST NOT wait for the disk"; HA-ST-26 "MUST NOT end with PUT_OK before the disk has its message,
    unless the message carries `WAIT=false`"; HA-ST-27 "one thread flushes for all that have gathered".
    """
    life = step.state
    if life.told[0] != PUT_OK:
        return step
    if not settings.sync_flush or not puts.waits(properties):
        return Step(life, clauses=(*step.clauses, "HA-ST-26" if settings.sync_flush else "HA-ST-25"))
    for _ in range(FLUSH_TRIES):
        if life.flushed_where < max_offset(life.log):
            life, _ = flush_log(life, 0)
    if life.flushed_where < max_offset(life.log):
        life = replace(life, told=(puts.FLUSH_DISK_TIMEOUT, *life.told[1:]))
    return Step(life, clauses=(*step.clauses, "HA-ST-26", "HA-ST-27", "HA-ST-28"))


# --- The rounds of the services --------------------------------------------------------------------------------------


def flush_log(life: StoreLife, least_pages: int) -> tuple[StoreLife, bool]:
    """One round of the flush. Returns: the store, and whether no sync failed.

    Spec: HA-ST-28 "MUST advance only over bytes that a successful sync has covered"; HA-ST-24 "the store times up to which
    messages": the first time moves when all of the log is on the disk.
    """
    if life.log.base is not None and life.owes_names:
        life = replace(life, owes_names=False, named=frozenset(starts(life)))
    flushed_where, found, fails_after, has_failed = life.flushed_where, images(life), life.fails_after, False
    synced = dict(life.synced)
    while (advanced := checkpoints.flush(life.log, flushed_where, least_pages, synced=True)) != flushed_where:
        if fails_after == 0:
            has_failed = True
            break
        fails_after -= fails_after > 0
        start = flushed_where - flushed_where % life.log.file_size
        synced[start] = found[start]
        flushed_where = advanced
    life = replace(life, flushed_where=flushed_where, synced=synced, fails_after=fails_after)
    if not has_failed and flushed_where >= max_offset(life.log):
        physic = max(life.checkpoint.physic_msg_timestamp, life.last_stored_ms, life.dispatched_ms)
        life = replace(life, checkpoint=replace(life.checkpoint, physic_msg_timestamp=physic))
    return life, not has_failed


def on_flush(life: StoreLife, event: store_events.Flush, _settings: StoreSettings, _profile: Profile) -> Told:
    """Spec: HA-ST-60 "where a full file or at least `flush_commit_log_least_pages` pages of 4 KiB, 4 by default, have new
    bytes".
    """
    after, is_ok = flush_log(life, event.least_pages)
    after = replace(after, told=() if is_ok else (FLUSH_FAILED,))
    return "flush" if is_ok else "flush_failed", Step(after, clauses=("HA-ST-28", "HA-ST-60"))


def on_dispatch(life: StoreLife, _event: store_events.Dispatch, settings: StoreSettings, profile: Profile) -> Told:
    """Spec: HA-ST-35 "MUST be dispatched to queues and index in the order of the log"."""
    made_at = f"{life.now_ms:017d}"
    dispatched = dispatch.do_reput(life.dispatched, life.log, made_at, sizes_of(settings), profile_of_store(profile))
    after = replace(life, dispatched=dispatched, told=())
    # Messages that have expired before their dispatch are in no queue.
    if dispatched.reput_from_offset <= max(life.dispatched.reput_from_offset, min_offset(life)):
        return "dispatch", Step(after)
    last_ms = last_message_before(after, dispatched.reput_from_offset)
    after = replace(after, dispatched_ms=max(life.dispatched_ms, last_ms))
    return "dispatch", Step(after, clauses=("HA-ST-35",))


def flush_derived(life: StoreLife) -> StoreLife:
    """Queues, index and checkpoint are on the disk.

    Spec: HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"; the third time is "that of the
    end of the last full index file".
    """
    full = [file for file in life.dispatched.index if index_file.is_write_full(file)]
    ends = [index_file.header(file).end_timestamp for file in full]
    told = life.checkpoint
    told = replace(
        told,
        logics_msg_timestamp=max(told.logics_msg_timestamp, life.dispatched_ms),
        index_msg_timestamp=max(told.index_msg_timestamp, *ends, 0),
    )
    return replace(
        life,
        checkpoint=told,
        checkpoint_file=told,
        synced_queues=queue_images(life),
        synced_index=index_images(life),
    )


def on_flush_derived(life: StoreLife, _event: store_events.FlushDerived, _settings: StoreSettings, _profile: Profile) -> Told:
    return "flush_derived", Step(replace(flush_derived(life), told=()), clauses=("HA-ST-24",))


def on_prepare(life: StoreLife, _event: store_events.Prepare, _settings: StoreSettings, _profile: Profile) -> Told:
    """HA-ST-8 "MUST be allocated on the disk before it is mapped": the next file, once the last one is half full."""
    log = life.log
    written = len(log.data) % log.file_size or (log.file_size if log.data and not begins_file(life) else 0)
    if log.base is None or 2 * written < log.file_size or life.spare is not Spare.NONE:
        return "", Step(replace(life, told=()))
    if life.is_full:
        return "prepare_failed", Step(replace(life, told=(NO_ROOM,)), clauses=("HA-ST-67",))
    after = replace(life, spare=Spare.PREPARED, told=())
    start = starts(after)[-1]
    return "prepare", Step(replace(after, modified_ms={**life.modified_ms, start: life.now_ms}), clauses=("HA-ST-8",))


def on_watch_space(life: StoreLife, _event: store_events.WatchSpace, _settings: StoreSettings, _profile: Profile) -> Told:
    """HA-ST-67 "A later put that finds room MUST be stored as if the disk had never been full"."""
    return "watch_space", Step(replace(life, refuses=life.is_full, told=()), clauses=("HA-ST-67",))


def on_clean(life: StoreLife, event: store_events.Clean, settings: StoreSettings, profile: Profile) -> Told:
    """Delete files of the log, and what queues and index have of them.

    Spec: HA-ST-62 "MUST be deleted from the first on, at most ten in a round, and never the last one", which "also keeps the
    file before the last one, while the last one may hold no whole record"; HA-ST-66 "MUST NOT be deleted while a peer needs
    it"; HA-ST-71 "MUST be deleted when all its messages have been deleted from the log".
    """
    log, size = life.log, life.log.file_size
    needed = [max(min_offset(life), max_offset(log) - event.needed_size)] if event.needed_size >= 0 else []
    own = starts(life)[: file_count(life)]
    if len(own) > 1 and not _begins_with_record(life, own[-1]):
        needed.append(own[-2])
    # An empty last file counts as a file.
    counted = replace(log, stale=b"\1") if life.spare is Spare.LAST else log
    moment = Moment(life.now_ms, event.hour, event.used_percent * size, 100 * size)
    modified_ms = [life.modified_ms[start] for start in own]
    cleaned, reasons, held = retention.clean(counted, modified_ms, policy_of(settings), moment, min(needed, default=None))
    after = replace(life, told=(len(reasons),))
    clauses = ["HA-ST-62", "HA-ST-69"]
    if reasons:
        log = replace(cleaned, stale=log.stale)
        gone = set(own[: len(reasons)])
        after = replace(
            after,
            log=log,
            synced={start: data for start, data in life.synced.items() if start not in gone},
            modified_ms={start: at for start, at in life.modified_ms.items() if start not in gone},
            named=frozenset(starts(replace(life, log=log))),
            flushed_where=max(life.flushed_where, store.min_offset(log)),
        )
        clauses += ["HA-ST-13", *(CLAUSES_OF_REASONS[reason] for reason in reasons)]
    if store.min_offset(log) > life.cleaned_to:
        dispatched = dispatch.delete_expired(after.dispatched, log, profile_of_store(profile))
        after = replace(after, dispatched=dispatched, cleaned_to=store.min_offset(log))
        after = _forget_deleted(life, after)
        clauses.append("HA-ST-71")
    if held is not None:
        clauses.append("HA-ST-66")
    return "expire" if reasons else "keep", Step(after, clauses=tuple(dict.fromkeys(clauses)))


CLAUSES_OF_REASONS: Final = {"AGE": "HA-ST-63", "AGE_AND_SPACE": "HA-ST-63", "SPACE": "HA-ST-64", "SIZE": "HA-ST-65"}


def _begins_with_record(life: StoreLife, start: int) -> bool:
    """Whether a file holds a whole record, as far as its first one says how long it is."""
    data = life.log.data[start - min_offset(life) :]
    return message.decode(data) is not None


def _forget_deleted(before: StoreLife, after: StoreLife) -> StoreLife:
    """What was synced of the files of queues and index that are gone."""
    left = queue_images(after)
    gone = len(before.dispatched.index) - len(after.dispatched.index)
    synced_index = before.synced_index[gone:]
    if gone:
        # The checkpoint vouches for the first file that ends at its index time: this one must be there if it becomes the first.
        last, heir = before.dispatched.index[gone - 1], after.dispatched.index[0]
        if index_file.is_write_full(heir) and index_file.header(last).end_timestamp == index_file.header(heir).end_timestamp:
            synced_index = (heir.data, *synced_index[1:])
    return replace(
        after,
        synced_queues={path: data for path, data in before.synced_queues.items() if path in left},
        synced_index=synced_index,
    )


# --- Stops, crashes, damage ------------------------------------------------------------------------------------------


def on_close(life: StoreLife, _event: store_events.Close, _settings: StoreSettings, _profile: Profile) -> Told:
    """Flush everything, and say that the stop was clean, if it is.

    Spec: HA-ST-23 "It MUST stay when the broker stops before all has been dispatched"; it stays as well where something could
    not be flushed.
    """
    if life.spare is Spare.PREPARED:  # it goes
        modified_ms = {start: at for start, at in life.modified_ms.items() if start != starts(life)[-1]}
        life = replace(life, spare=Spare.NONE, modified_ms=modified_ms)
    after, is_ok = flush_log(life, 0)
    if not is_ok:
        return "close_failed", Step(_ended(replace(after, told=(FLUSH_FAILED,))), clauses=("HA-ST-23", "HA-ST-28"))
    after = flush_derived(after)
    is_dispatched = after.dispatched.reput_from_offset >= max_offset(after.log)
    after = _ended(replace(after, abort=not is_dispatched, told=()))
    return "close" if is_dispatched else "close_behind", Step(after, clauses=("HA-ST-22", "HA-ST-23", "HA-ST-24"))


def on_kill(life: StoreLife, _event: store_events.Kill, _settings: StoreSettings, _profile: Profile) -> Told:
    """HA-ST-23 "finding it at the start means that the last stop was not clean"."""
    return "kill", Step(_ended(replace(life, told=())), clauses=("HA-ST-23",))


def _ended(life: StoreLife) -> StoreLife:
    """No process has the store any more; its files stay."""
    return replace(
        life,
        is_open=False,
        fails_after=-1,
        refuses=False,
        promised=max(life.promised, life.flushed_where),
        before=life.log.data,
    )


def on_power_cut(life: StoreLife, event: store_events.PowerCut, _settings: StoreSettings, _profile: Profile) -> Told:
    """What no sync has covered is on the disk or not, sector by sector and name by name.

    Spec: HA-ST-26, HA-ST-28 "only over bytes that a successful sync has covered": the others may be lost.
    """
    if life.is_open:
        life = _ended(life)
    life = replace(life, refused="", told=())
    size, now = life.log.file_size, images(life)
    found: dict[int, bytes] = {}
    is_lost = False
    for start in names_after_power_cut(now, life.named, event.names):
        synced = life.synced.get(start, bytes(size))
        pages, torn = left_of_cut(event.pages, event.torn, is_lost=is_lost)
        found[start], loses = after_power_cut(now.get(start, synced), synced, pages, sectors_of_log(start, size), torn)
        is_lost = is_lost or loses
    after = of_images(life, found)
    modified_ms = {start: life.modified_ms.get(start, 0) for start in found}
    after = replace(after, synced=found, named=frozenset(found), modified_ms=modified_ms)
    return "power_cut", Step(_lose_pages_of_derived(after, event.pages), clauses=("HA-ST-28",))


def sectors_of_log(start: int, file_size: int) -> int:
    """The number of the first sector of a file of the log, for a power cut."""
    return 7 * (start // file_size)


def sectors_of_queue(topic: str, queue_id: int, name: str, file_size: int) -> int:
    return 11 * queue_id + 5 * len(topic) + 3 * (int(name) // file_size)


def sectors_of_index(number: int) -> int:
    return 40 + 9 * number


def _lose_pages_of_derived(life: StoreLife, pages: int) -> StoreLife:
    """Queues and index after a power cut. Their names are on the disk; a file that was never synced has its length."""
    found = {}
    for path, now in queue_images(life).items():
        synced = life.synced_queues.get(path, bytes(len(now)))
        found[path], _ = after_power_cut(now, synced, pages, sectors_of_queue(*path, len(now)))
    files = []
    for number, file in enumerate(life.dispatched.index):
        synced = life.synced_index[number] if number < len(life.synced_index) else bytes(len(file.data))
        data, _ = after_power_cut(file.data, synced, pages, sectors_of_index(number))
        files.append(replace(file, data=data))
    dispatched = loaded(replace(life.dispatched, index=tuple(files)), found)
    return replace(life, dispatched=dispatched, synced_queues=found, synced_index=tuple(file.data for file in files))


def on_damage(life: StoreLife, event: store_events.Damage, _settings: StoreSettings, profile: Profile) -> Told:
    """Bytes of a closed log change, in memory and on the disk alike."""
    found = images(life)
    if not found or life.shortened is not None:
        return "", Step(life)
    size = life.log.file_size
    start = sorted(found)[event.file % len(found)]
    position = event.position % size
    healthy = life.healthy or Healthy(life.log, life.spare, life.synced)
    synced = life.synced.get(start, bytes(size))
    damaged = {side: damage(data, position, event.size, event.mask) for side, data in (("now", found[start]), ("on", synced))}
    now = {**found, start: damaged["now"]}
    if life.abort and moves_recovery(found, now, life.checkpoint_file or StoreCheckpoint(), profile):
        return "", Step(life)
    after = replace(of_images(life, now), healthy=healthy, synced={**life.synced, start: damaged["on"]}, told=())
    return "damage", Step(after)


def moves_recovery(
    before: Mapping[int, bytes], after: Mapping[int, bytes], checkpoint: StoreCheckpoint, profile: Profile
) -> bool:
    """Return True if damage lets a recovery after a crash begin later than without it: such events do nothing.

    Only times say that the messages before a file are in the queues (HA-ST-19), and no CRC shows that one is wrong. So recovery
    may begin behind pages of queues that a power cut has taken, and which entries it finds there is a matter of chance.

    Args:  before, after: the files of the log by their starts, without the damage and with it.
    """
    logs = (log_of(len(next(iter(files.values()))), files) for files in (before, after))
    usual, moved = (store_recovery.start_of_recovery(log, False, checkpoint, profile_of_store(profile)) for log in logs)
    return moved > usual


def damage(data: bytes, position: int, size: int, mask: int) -> bytes:
    """The bytes of a file, some of them changed. mask: see store_events.Damage."""
    part = data[position : position + size]
    part = bytes(byte ^ mask for byte in part) if mask else bytes(len(part))
    return data[:position] + part + data[position + len(part) :]


def on_shorten(life: StoreLife, event: store_events.Shorten, _settings: StoreSettings, _profile: Profile) -> Told:
    found = starts(life) if life.log.base is not None else []
    if not found or life.shortened is not None:
        return "", Step(life)
    start = found[event.file % len(found)]
    healthy = life.healthy or Healthy(life.log, life.spare, life.synced)
    after = replace(life, healthy=healthy, shortened=(start, event.length % life.log.file_size), told=())
    return "shorten", Step(after)


def on_heal(life: StoreLife, _event: store_events.Heal, _settings: StoreSettings, _profile: Profile) -> Told:
    if life.healthy is None:
        return "", Step(life)
    log, spare, synced = life.healthy.log, life.healthy.spare, life.healthy.synced
    after = replace(life, log=log, spare=spare, synced=synced, healthy=None, shortened=None, refused="", told=())
    modified_ms = {start: life.modified_ms.get(start, life.now_ms) for start in starts(after)}
    after = replace(after, modified_ms=modified_ms)
    return "heal", Step(after)


def on_open(life: StoreLife, _event: store_events.Open, settings: StoreSettings, profile: Profile) -> Told:
    name = "recover_abnormally" if life.abort else "recover_normally"
    step = store_opening.on_open(life, settings, profile)
    return name if step.state.is_open else "refuse", step


# --- All -------------------------------------------------------------------------------------------------------------

_WHILE_OPEN: Final[dict[type, Callable[..., Told]]] = {
    store_events.Put: on_put,
    store_events.PutBatch: on_put_batch,
    store_events.Flush: on_flush,
    store_events.Dispatch: on_dispatch,
    store_events.FlushDerived: on_flush_derived,
    store_events.Prepare: on_prepare,
    store_events.WatchSpace: on_watch_space,
    store_events.Clean: on_clean,
    store_events.Close: on_close,
    store_events.Kill: on_kill,
    store_events.PowerCut: on_power_cut,
}
_WHILE_CLOSED: Final[dict[type, Callable[..., Told]]] = {
    store_events.Open: on_open,
    store_events.PowerCut: on_power_cut,
    store_events.Damage: on_damage,
    store_events.Shorten: on_shorten,
    store_events.Heal: on_heal,
}


def step(
    life: StoreLife, event: store_events.Event, settings: StoreSettings, profile: Profile
) -> tuple[StoreLife, tuple[Transition, ...]]:
    """Apply one event. Returns: the store, and the rows of the store, its queues and its index."""
    match event:
        case store_events.Tick():
            return replace(life, now_ms=life.now_ms + event.ms, told=()), ()
        case store_events.DiskFull():
            return replace(life, is_full=event.is_full, told=()), ()
        case store_events.DiskFails():
            return replace(life, fails_after=event.after if life.is_open else life.fails_after, told=()), ()
        case store_events.PowerCut() if life.healthy is not None:
            return replace(life, told=()), ()
        case _:
            pass
    transition: Callable[..., Any] | None = (_WHILE_OPEN if life.is_open else _WHILE_CLOSED).get(type(event))
    if transition is None:
        return replace(life, told=()), ()
    name, found = transition(life, event, settings, profile)
    if not name:
        return replace(found.state, told=()), ()
    before, after = classify(life).value, classify(found.state).value
    end, was = max_offset(found.state.log), max_offset(life.log)
    row = Transition("store_life", 0, name, before, after, end, max(0, end - was), -1, 0, found.clauses)
    return found.state, (row, *store_derived.rows(life, found.state, name))


def broken(life: StoreLife, profile: Profile) -> tuple[str, ...]:
    """The names of the properties of an undamaged store that do not hold.

    Spec: HA-ST-28: what was flushed is there after a crash. HA-ST-5 "Recovery MUST end behind the last whole record": what is
    there is the beginning of what was, and no other bytes. HA-ST-24: the checkpoint vouches for nothing that is not on the
    disk.
    """
    if not life.is_open or life.is_tainted or not profile.keeps_invariants:
        return ()
    found = []
    if max_offset(life.log) < life.promised:
        found.append("flushed_bytes_lost")
    times = [stored_ms for _, stored_ms in life.messages]
    if any(earlier > later for earlier, later in pairwise(times)):
        found.append("times_descend")
    physic = life.checkpoint.physic_msg_timestamp - checkpoints.MARGIN_MS
    durable = max(life.promised, life.flushed_where)
    if any(end > durable and stored_ms <= physic for end, stored_ms in life.messages):
        found.append("checkpoint_vouches_for_lost_messages")
    return tuple(found)
