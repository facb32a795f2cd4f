"""A process opens a store: recovery of log, queues and index (store_recovery.py), dispatch of the rest, and what changes on
the disk by that.
"""

from typing import Final

from rocketmq_ha.reference import consume_queue, dispatch_request, index_service, message, store_recovery
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.dispatch import Dispatched, do_reput
from rocketmq_ha.reference.dispatch_request import Blank, DispatchRequest
from rocketmq_ha.reference.mapped_file_queue import Refused
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Step
from rocketmq_ha.reference.store import Log, max_offset
from rocketmq_ha.reference.store_state import (
    Path,
    Spare,
    StoreLife,
    StoreSettings,
    images,
    index_images,
    last_message_before,
    loaded,
    of_images,
    profile_of_store,
    queue_images,
    sizes_of,
    starts,
)
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.profile import Profile

CLAUSES: Final = {store_recovery.NO_LOG: "HA-ST-92", store_recovery.MISPLACED: "HA-ST-95"}  # by the reason of a refusal


def on_open(life: StoreLife, settings: StoreSettings, profile: Profile) -> Step[StoreLife]:
    """Recover what is on the disk, or refuse it unchanged.

    Spec: HA-ST-23 "MUST exist from the start of a broker to its clean stop"; HA-ST-73 "MUST be dispatched again, to queues and
    index"; HA-ST-28 "MUST advance only over bytes that a successful sync has covered": an earlier process may have been killed
    before it synced what is found here, so all of it counts as not flushed.
    """
    store_profile = profile_of_store(profile)
    life = replace(life, fails_after=-1, refused="", told=())
    found = images(life)
    clauses = ["HA-ST-1", "HA-ST-5", "HA-ST-21"]
    # GUARD
    if life.shortened is not None:
        return _refused(life, _name(life.shortened[0]) if len(found) > 1 else "length", "HA-ST-21")
    state = store_recovery.Store(
        of_images(life, found).log,
        loaded(life.dispatched, queue_images(life)),
        life.checkpoint_file or StoreCheckpoint(),
        life.abort,
    )
    made_at = f"{life.now_ms:017d}"  # the order of these names is that of their making, whatever they are
    sizes = sizes_of(settings)
    recovered = store_recovery.recover(state, made_at, sizes, store_profile)
    if isinstance(recovered, Refused):
        offset = int(recovered.file) if recovered.reason == store_recovery.NO_LOG else recovered.found
        return _refused(life, f"{recovered.file} at {offset}", CLAUSES.get(recovered.reason, "HA-ST-20"))
    # STATE
    log = recovered.log
    start = 0
    if state.log.base is not None:
        start = store_recovery.start_of_recovery(state.log, not life.abort, state.checkpoint, store_profile)
        clauses += _clauses_of_recovery(life, state, log, store_profile)
    messages = _messages(life, log, start)
    cut = recovered.dispatched
    dispatched = do_reput(cut, log, made_at, sizes, store_profile)
    after = replace(
        life,
        is_open=True,
        log=log,
        spare=Spare.NONE,
        checkpoint=recovered.checkpoint,
        checkpoint_file=recovered.checkpoint,
        abort=True,
        flushed_where=log.base or 0,
        promised=0 if log.base is None else life.promised,  # HA-ST-7: without queues it begins at 0 again
        owes_names=True,
        messages=messages,
        last_stored_ms=max(_last_read(messages, start), recovered.checkpoint.physic_msg_timestamp),
        cleaned_to=0,
        refuses=False,
        recovery_start=start,
        healthy=None,
        is_tainted=life.is_tainted or life.healthy is not None,
        synced_queues=_synced_queues(life, log, cut, dispatched),
        synced_index=_synced_index(life, state, log, cut),
    )
    after = _sync_what_changed(replace(after, spare=_spare(after, found)), found)
    # A queue without an entry knows no number; the record that was cut off, or has no queue, does.
    of_queues = _queue_offsets(dispatched)
    known = {key: number for key, number in of_queues.items() if number}
    queue_offsets = {**of_queues, **_numbers(state, log, start, store_profile), **known}
    after = replace(after, dispatched=_without_empty(dispatched), queue_offsets=queue_offsets)
    if dispatched.reput_from_offset < max_offset(log):
        # Damage before the start of recovery. What the recovery has changed stays changed.
        end = dispatched.reput_from_offset
        where = f"{_name(end - end % log.file_size)} at {end}"
        left = _with_emptied(after.dispatched, _emptied(life, log, cut), settings)
        after = _of_files_there(replace(after, is_open=False, healthy=life.healthy, dispatched=left))
        return _refused(after, where, "HA-ST-73")
    after = _of_files_there(after)
    if dispatched.reput_from_offset > cut.reput_from_offset:
        last_ms = last_message_before(after, dispatched.reput_from_offset)
        after = replace(after, dispatched_ms=max(0, last_ms))  # damage may have made it less
        clauses.append("HA-ST-73" if life.abort else "HA-ST-35")
    else:
        after = replace(after, dispatched_ms=0)
    return Step(after, clauses=tuple(dict.fromkeys([*clauses, "HA-ST-9", "HA-ST-23", "HA-ST-28"])))


def _refused(life: StoreLife, where: str, clause: str) -> Step[StoreLife]:
    """HA-ST-20, HA-ST-92 "MUST be refused, unchanged"; HA-ST-21 "of another length than the others MUST be refused"."""
    return Step(replace(life, refused=where, told=("refused", where)), clauses=(clause,))


def _name(start: int) -> str:
    return f"{start:0{constants.FILE_NAME_DIGITS}d}"


def _clauses_of_recovery(life: StoreLife, state: store_recovery.Store, log: Log, profile: Profile) -> list[str]:
    """What this recovery met."""
    clauses = ["HA-ST-19", "HA-ST-24"] if life.abort else ["HA-ST-18"]
    if life.abort and profile.checks_recovery:
        clauses += ["HA-ST-46", "HA-ST-82", "HA-ST-45"]
    if not life.abort:
        clauses.append("HA-ST-38")
    if profile.checks_recovery and message.decode(state.log.data, len(log.data)) is not None:
        clauses.append("HA-ST-10")  # whole as far as lengths and CRC tell, and cut off
    if profile.clears_tail and state.log.data[len(log.data) :].strip(b"\0"):
        clauses.append("HA-ST-7")
    return clauses


def _spare(life: StoreLife, found: dict[int, bytes]) -> Spare:
    """A file that begins where the log ends stays, as its last one."""
    is_there = life.log.base is not None and bool(life.log.data) and max_offset(life.log) in found
    return Spare.LAST if is_there and max_offset(life.log) not in starts(life) else Spare.NONE


def _sync_what_changed(life: StoreLife, found: dict[int, bytes]) -> StoreLife:
    """The zeros in place of what was cut off, and the names of the files that went, are on the disk at once.

    HA-ST-7 "What recovery cuts off MUST be set to zero": what came back after a power cut would stand where new bytes are to
    stand.
    """
    left = images(life)
    synced = {start: life.synced[start] for start in left if start in life.synced}
    changed = [start for start, image in left.items() if image != found[start]]
    synced |= {start: left[start] for start in changed}
    modified_ms = {start: life.modified_ms[start] for start in left} | dict.fromkeys(changed, life.now_ms)
    named = life.named if left.keys() == found.keys() else frozenset(left)
    return replace(life, synced=synced, modified_ms=modified_ms, named=named)


def _synced_queues(life: StoreLife, log: Log, cut: Dispatched, dispatched: Dispatched) -> dict[Path, bytes]:
    """What of the files of queues that are kept a sync has covered. The others are made anew.

    An emptied file is made anew, too, if its queue now begins with another file: then it went before the first entry came.
    """
    kept = set(queue_images(replace(life, dispatched=cut)))
    for path in _emptied(life, log, cut):
        queue = dispatched.queues.get(path[:2])
        if queue is None or queue.mapped_file_queue.base in (None, int(path[2])):
            kept.add(path)
    return {path: data for path, data in life.synced_queues.items() if path in kept}


def _emptied(life: StoreLife, log: Log, cut: Dispatched) -> list[Path]:
    """The files that recovery empties and keeps: after a stop that was not clean the first one of a queue that keeps no entry.

    Without a commit log there is none: HA-ST-38 "without commit-log files there are no consume queues".
    """
    firsts: dict[tuple[str, int], Path] = {}
    for path in sorted(queue_images(life)):
        firsts.setdefault(path[:2], path)
    return [path for key, path in firsts.items() if life.abort and log.base is not None and cut.queues.get(key) is None]


def _with_emptied(dispatched: Dispatched, emptied: list[Path], settings: StoreSettings) -> Dispatched:
    """What a dispatch that has ended early leaves: the emptied files that no entry has come into are still there."""
    queues, size = dict(dispatched.queues), settings.queue_file_size
    for topic, queue_id, name in emptied:
        if (topic, queue_id) not in queues:
            files = Log(size, int(name), bytes(size))
            queues[topic, queue_id] = replace(consume_queue.empty(topic, queue_id, size), mapped_file_queue=files)
    return replace(dispatched, queues=queues)


def _of_files_there(life: StoreLife) -> StoreLife:
    """What a sync has covered of a queue's file that is gone says nothing of a later one with its name."""
    there = queue_images(life)
    return replace(life, synced_queues={path: data for path, data in life.synced_queues.items() if path in there})


def _synced_index(life: StoreLife, state: store_recovery.Store, log: Log, cut: Dispatched) -> tuple[bytes, ...]:
    """What of the index files a sync has covered: what recovery leaves of them, for it has synced what it has cut.

    After a stop that was not clean the last one that the checkpoint vouches for may be on no disk: its time alone says that it
    is there, and a file that was synced and has expired may have ended in the same ms.
    """
    found = list(index_images(replace(life, dispatched=cut)))
    if life.abort and log.base is not None:
        number = index_service.count_vouched(state.dispatched.index, state.checkpoint.index_msg_timestamp, max_offset(log)) - 1
        if number >= 0:
            found[number] = life.synced_index[number] if number < len(life.synced_index) else bytes(len(found[number]))
    return tuple(found)


def _without_empty(dispatched: Dispatched) -> Dispatched:
    """A queue without a file is none."""
    queues = {key: queue for key, queue in dispatched.queues.items() if queue.mapped_file_queue.base is not None}
    return replace(dispatched, queues=queues)


def _queue_offsets(dispatched: Dispatched) -> dict[tuple[str, int], int]:
    """HA-ST-31 "MUST be entry n of its queue": the next message of a queue has the number behind its last entry."""
    return {key: consume_queue.max_offset_in_queue(queue) for key, queue in dispatched.queues.items()}


def _numbers(state: store_recovery.Store, log: Log, start: int, profile: Profile) -> dict[tuple[str, int], int]:
    """The numbers of the next messages of the queues, as the records from an offset on say, and the one that was cut off."""
    found, offset = {}, start
    while offset < max_offset(log):
        match dispatch_request.check_message_and_return_size(log, offset, is_own=True):
            case DispatchRequest() as request:
                if dispatch_request.is_queued(request.sys_flag):
                    found[request.topic, request.queue_id] = request.consume_queue_offset + 1
                offset += request.msg_size
            case Blank(next_file):
                offset = next_file
            case None:
                break
    cut = store_recovery.cut_record(state, log, profile)
    if cut is not None and dispatch_request.is_queued(cut.sys_flag):
        found[cut.topic, cut.queue_id] = cut.consume_queue_offset
    return found


def _last_read(messages: tuple[tuple[int, int], ...], start: int) -> int:
    """The store timestamp of the last message, if recovery has read it."""
    return messages[-1][1] if messages and messages[-1][0] > start else 0


def _messages(life: StoreLife, log: Log, start: int) -> tuple[tuple[int, int], ...]:
    """End and store timestamp of each message: those before the start of recovery are believed."""
    if log.base is None:
        return ()
    found = [message for message in life.messages if log.base < message[0] <= start]
    position, data = max(0, start - log.base), log.data
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if int.from_bytes(data[position + 4 : position + 8], "big") == constants.BLANK_MAGIC_CODE:
            position += log.file_size - position % log.file_size
            continue
        stored_at = position + store_recovery.STORE_TIMESTAMP_POSITION  # all messages here have a born host in IPv4
        position += size
        found.append((log.base + position, int.from_bytes(data[stored_at : stored_at + 8], "big", signed=True)))
    return tuple(found)
