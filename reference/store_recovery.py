"""The recovery of a whole store: from its files to a log, queues and an index that agree with each other.

    no `abort` file: the last stop was clean       from three files before the end of the log
    `abort`: it was not                            from the last file before which all is on the disk

Only the log behind that start is read, so the cost grows with the tail, not with the log. In both profiles `store.recover` cuts
the log; spec/5-store.md lists its checks. The profiles differ in how they recover queues and index.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rocketmq_ha.reference import checkpoint as checkpoints
from rocketmq_ha.reference import consume_queue, dispatch_request, index_file, index_service, mapped_file_queue, message, store
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.consume_queue import ConsumeQueue
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings, do_reput
from rocketmq_ha.reference.dispatch_request import Blank, DispatchRequest
from rocketmq_ha.reference.mapped_file_queue import Refused
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.profile import Profile

RECOVERED_FILES = 3
MAGICS = tuple(code.to_bytes(4, "big") for code in (constants.MESSAGE_MAGIC_CODE, constants.MESSAGE_MAGIC_CODE_V2))
END_OF_MAGIC = 8
STORE_TIMESTAMP_POSITION = 56  # behind an IPv4 born host
NO_LOG = "no record, and no magic of one"
MISPLACED = "a record of another place"


@dataclass(frozen=True, slots=True)
class Store:
    """A broker's store: the log, its queues and index, and the positions known to be on the disk.

    `abort`: HA-ST-23 "finding it at the start means that the last stop was not clean".
    """

    log: Log
    dispatched: Dispatched = field(default_factory=Dispatched)
    checkpoint: StoreCheckpoint = field(default_factory=StoreCheckpoint)
    abort: bool = False
    flushed_where: int = 0


# --- Start, flush, stop ----------------------------------------------------------------------------------------------


def start(state: Store) -> Store:
    """After the recovery: HA-ST-23 "MUST exist from the start of a broker to its clean stop"."""
    return replace(state, abort=True)


def flush(state: Store, *, synced: bool = True) -> Store:
    """Flush log, queues and index, then the checkpoint. This order keeps the checkpoint from claiming unflushed data.

    Spec: HA-ST-24 "up to which messages, then consume queues, then the index are on the disk".
    """
    flushed_where = state.flushed_where
    while (advanced := checkpoints.flush(state.log, flushed_where, 0, synced)) != flushed_where:
        flushed_where = advanced
    if not synced:
        return replace(state, flushed_where=flushed_where)
    full = [file for file in state.dispatched.index if index_file.is_write_full(file)]
    checkpoint = StoreCheckpoint(
        checkpoints.last_store_timestamp(state.log, flushed_where) or state.checkpoint.physic_msg_timestamp,
        state.dispatched.store_timestamp or state.checkpoint.logics_msg_timestamp,
        index_file.header(full[-1]).end_timestamp if full else state.checkpoint.index_msg_timestamp,
        state.checkpoint.logics_physical_offset,
    )
    return replace(state, flushed_where=flushed_where, checkpoint=checkpoint)


def stop(state: Store) -> Store:
    """A clean stop: flush everything, and remove `abort` if every byte of the log has been dispatched.

    A slave that holds a partial record has not dispatched it, so its next start recovers as after a crash (quirk 31).

    Spec: HA-ST-23 "MUST stay when the broker stops before all has been dispatched".
    """
    state = flush(state)
    return replace(state, abort=state.dispatched.reput_from_offset < max_offset(state.log))


def start_bare(state: Store) -> Store:
    """A process begins to append to the log alone: HA-ST-51 "MUST first lower the checkpoint's second time to the least of its
    three, and MUST set the i64 at byte 40", so that the next recovery begins where queues and index can both be made again.
    """
    told = state.checkpoint
    least = min(told.physic_msg_timestamp, told.logics_msg_timestamp, told.index_msg_timestamp)
    return replace(state, checkpoint=replace(told, logics_msg_timestamp=least, logics_physical_offset=0), abort=True)


def stop_bare(state: Store, before: Store) -> Store:
    """The clean stop of `start_bare`: HA-ST-50 "MUST leave `abort` behind. If it has appended nothing, it MUST leave the store
    as it was".

    Args:  before: the store when it was opened.
    """
    if state.log == before.log:
        return before
    flushed_where = max_offset(state.log)
    physic = checkpoints.last_store_timestamp(state.log, flushed_where) or state.checkpoint.physic_msg_timestamp
    checkpoint = replace(state.checkpoint, physic_msg_timestamp=physic)
    return replace(state, flushed_where=flushed_where, checkpoint=checkpoint)


# --- Where to begin --------------------------------------------------------------------------------------------------


def start_of_recovery(log: Log, last_exit_ok: bool, checkpoint: StoreCheckpoint, profile: Profile) -> int:
    """The offset of the file at which recovery begins to read the log.

    Spec: HA-ST-18 "MUST begin three files before the end of the log, or at its first file if there are fewer"; HA-ST-19
    "recovery MUST begin at the last file" that the checkpoint vouches for, "where there is none, at the first file"; HA-ST-46
    "A file whose first message is not whole MUST NOT be the one", since a partial store timestamp reads as an earlier time.
    """
    assert log.base is not None
    images = list(mapped_file_queue.files(log).values())
    if last_exit_ok:
        index = max(0, len(images) - RECOVERED_FILES)
    else:
        matched = [
            index
            for index, image in enumerate(images)
            if is_mapped_file_matched_recover(image, checkpoint)
            and (not profile.checks_recovery or begins_with_sound_message(image, log.base + index * log.file_size))
        ]
        index = matched[-1] if matched else 0
    return log.base + index * log.file_size


def is_mapped_file_matched_recover(image: bytes, checkpoint: StoreCheckpoint) -> bool:
    """Return True if everything before this file is on the disk.

    Spec: HA-ST-19 "whose first message has a known magic and a store timestamp that is not 0 and not after the lesser of the
    checkpoint's first two times, less 3 s".
    """
    sys_flag = int.from_bytes(image[36:40], "big")
    position = STORE_TIMESTAMP_POSITION + bool(sys_flag & constants.SYS_FLAG_BORN_HOST_V6) * constants.IPV6_EXTRA_SIZE
    store_timestamp = int.from_bytes(image[position : position + 8], "big", signed=True)
    return image[4:8] in MAGICS and store_timestamp != 0 and store_timestamp <= checkpoints.min_timestamp(checkpoint)


def begins_with_sound_message(image: bytes, base: int) -> bool:
    """Return True if a file begins with a whole message that holds its own offset and was stored after 1970."""
    found = message.decode(image, 0)
    return found is not None and found[0].physical_offset == base and found[0].store_timestamp > 0


# --- The log ---------------------------------------------------------------------------------------------------------


def recover_log(log: Log, start_offset: int, profile: Profile) -> Log:
    """Cut the log as `store.recover` does, but read it only from the file at `start_offset` on; the part before is kept."""
    assert log.base is not None
    size = start_offset - log.base
    tail = store.recover(replace(log, base=start_offset, data=log.data[size:]), profile).state
    if size == 0:
        return tail
    return replace(log, data=log.data[:size] + tail.data, stale=tail.stale)


def before_a_hole(log: Log, start_offset: int, checkpoint: StoreCheckpoint, sector_size: int, profile: Profile) -> Log:
    """Hardened, after a crash: cut the log before the first record with a lost sector that no length and no CRC covers.

    A sector that never reached the disk reads as zeros. It is larger than the fields before a body, so it destroys a magic, a
    length or a part of the body, unless it begins in the topic or the properties. A record without properties ends in two zero
    bytes of its own, which are no lost sector. Records that the checkpoint covers have no lost sectors. Not seen: a sector that
    begins at the low byte of a topic's length, where that byte is 0, as in a V2 record with a topic of 512 bytes.

    Spec: HA-ST-10 "it MUST cut off as well any record", "nothing but zeros from a multiple of 512 in its file to the next
    one, or to the end of the record".
    """
    offset = start_offset
    while offset < max_offset(log):
        match dispatch_request.check_message_and_return_size(log, offset):
            case DispatchRequest() as request:
                if _has_hole(log, request, checkpoint, sector_size):
                    return mapped_file_queue.truncate_dirty_files(log, offset, profile)
                offset += request.msg_size
            case Blank(next_file):
                offset = next_file
            case None:
                break
    return log


def _has_hole(log: Log, request: DispatchRequest, checkpoint: StoreCheckpoint, sector_size: int) -> bool:
    found = dispatch_request.record_at(log, request.commit_log_offset)
    assert found is not None
    end, properties_size = request.commit_log_offset + request.msg_size, len(found[0].properties)
    topic_end = end - properties_size - 2
    stop = end if properties_size else topic_end
    is_known = checkpoints.vouches_for(checkpoint, request.store_timestamp)
    return not is_known and _has_zero_sector(log, topic_end - len(found[0].topic), stop, sector_size)


def cut_record(before: Store, log: Log, profile: Profile, sector_size: int = constants.SECTOR_SIZE) -> DispatchRequest | None:
    """Hardened: the last record of the log that was found, if recovery has cut it off for its end alone; else None.

    Its queue offset is still that of the next message of its queue. One with a lost sector tells nothing.

    Spec: HA-ST-10 "end in a zero byte is not whole".
    """
    if not profile.checks_recovery or log.base is None or max_offset(log) >= max_offset(before.log):
        return None
    end = max_offset(log)
    if message.decode(before.log.data, end - log.base) is None:
        return None
    match dispatch_request.check_message_and_return_size(before.log, end, is_own=True):
        case DispatchRequest() as request:
            is_last = not any(before.log.data[end + request.msg_size - log.base :])
            is_torn = before.abort and _has_hole(before.log, request, before.checkpoint, sector_size)
            return request if is_last and not is_torn else None
    return None


def _has_zero_sector(log: Log, start: int, end: int, sector_size: int) -> bool:
    """Return True if a sector that begins at or after `start` holds only zeros before `end`."""
    first = start + -(start % log.file_size) % sector_size
    sectors = (log.data[at - min_offset(log) :][: min(sector_size, end - at)] for at in range(first, end, sector_size))
    return any(not any(sector) for sector in sectors)


def whole_records_behind(log: Log, end: int) -> Iterator[tuple[int, int]]:
    """(offset, store timestamp) of each whole record behind `end` that holds its own offset; without the one at `end`."""
    assert log.base is not None
    image = b"".join(mapped_file_queue.files(log).values())
    begin, stop = end - log.base + 1, len(image) - END_OF_MAGIC
    for place in sorted(place for magic in MAGICS for place in _places(image, magic, begin + 4, stop + 4)):
        position = place - 4
        found = message.decode(image, position)
        rest_of_file = log.file_size - position % log.file_size
        if found and found[0].physical_offset == log.base + position and found[1] <= rest_of_file:
            yield log.base + position, found[0].store_timestamp


def _places(image: bytes, magic: bytes, begin: int, stop: int) -> Iterator[int]:
    """The positions of a magic that begin before `stop`."""
    while (begin := image.find(magic, begin, stop + len(magic) - 1)) >= 0:
        yield begin
        begin += 1


def damage(log: Log, end: int, last_exit_ok: bool, checkpoint: StoreCheckpoint) -> Refused | None:
    """Hardened: the reason why the log must not be cut at `end`, or None.

    Spec: HA-ST-20 "A log in which a whole record of its own place stands behind one that is not whole MUST be refused". After a
    crash of the machine whole records may stand there, since pages reach the disk in any order; then only records that the
    checkpoint covers prove damage: HA-ST-20 "stored later than 3 s before the checkpoint's first time", "where that
    time is 0, none does".
    """
    is_known = last_exit_ok or checkpoints.flushed_before_ms(checkpoint) > 0  # a damaged store timestamp may be less than 0
    for offset, store_timestamp in whole_records_behind(log, end) if is_known else ():
        if last_exit_ok or checkpoints.vouches_for(checkpoint, store_timestamp):
            name = f"{end - end % log.file_size:0{constants.FILE_NAME_DIGITS}d}"
            return Refused("no record, and a whole one behind it", name, end, offset)
    return None


def misplaced(log: Log, end: int) -> Refused | None:
    """Hardened: the reason why the log must not be cut at a record that tells another place than its own, or None.

    Spec: HA-ST-95 "MUST be refused, unchanged, with an error that names the file and the offset".
    """
    assert log.base is not None
    found = message.decode(log.data[end - log.base :][: log.file_size - end % log.file_size])
    if found is None or found[0].physical_offset == end:
        return None
    name = f"{end - end % log.file_size:0{constants.FILE_NAME_DIGITS}d}"
    return Refused(MISPLACED, name, end, found[0].physical_offset)


def no_log(log: Log) -> Refused | None:
    """Hardened: the reason why a log without a whole record must not be removed, or None.

    Spec: HA-ST-92 "MUST be refused, unchanged".
    """
    assert log.base is not None
    magic = b"".join(mapped_file_queue.files(log).values())[4:END_OF_MAGIC].rstrip(b"\0")
    if any(known.startswith(magic) for known in (*MAGICS, constants.BLANK_MAGIC_CODE.to_bytes(4, "big"))):
        return None
    name = f"{log.base:0{constants.FILE_NAME_DIGITS}d}"
    return Refused(NO_LOG, name, int.from_bytes(magic, "big"), constants.MESSAGE_MAGIC_CODE)


# --- The store -------------------------------------------------------------------------------------------------------


def load(
    file_size: int, commit_log: Mapping[str, bytes], dispatched: Dispatched, checkpoint: bytes, *, abort: bool
) -> Store | Refused:
    """A store loaded from its files, each taken as full. The queues of `dispatched` come from `mapped_file_queue.load`, too."""
    log = mapped_file_queue.load(file_size, commit_log)
    if isinstance(log, Refused):
        return log
    return Store(log, dispatched, checkpoints.decode(checkpoint) if checkpoint else StoreCheckpoint(), abort)


def recover(
    state: Store, made_at: str, settings: DispatchSettings, profile: Profile, sector_size: int = constants.SECTOR_SIZE
) -> Store | Refused:
    """Recover log, queues and index at a start, and set where the dispatch goes on. `made_at` names a new index file.

    Spec: HA-ST-73 "the records from the start of recovery (HA-ST-19) on MUST be dispatched again".
    """
    last_exit_ok, index = not state.abort, state.dispatched.index
    if not profile.keeps_index_right:
        index = index_service.load(index, last_exit_ok, state.checkpoint.index_msg_timestamp)
    if state.log.base is None:
        # HA-ST-38 "without commit-log files there are no consume queues"; classic leaves the index alone.
        dispatched = Dispatched(index=() if profile.keeps_index_right else index)
        checkpoint = _of_nothing(state.checkpoint) if profile.keeps_queues_right else state.checkpoint
        return replace(state, dispatched=dispatched, checkpoint=checkpoint, flushed_where=0)
    start_offset = start_of_recovery(state.log, last_exit_ok, state.checkpoint, profile)
    log = recover_log(state.log, start_offset, profile)
    if profile.checks_recovery:
        if not last_exit_ok:
            log = before_a_hole(log, start_offset, state.checkpoint, sector_size, profile)
        end = state.log.base if log.base is None else max_offset(log)
        refused = misplaced(state.log, end) or damage(state.log, end, last_exit_ok, state.checkpoint)
        if refused:
            return refused
        if end == state.log.base and (refused := no_log(state.log)):
            return refused
        if log.base is None and state.log.base > 0 and _has_queues(state.dispatched):
            log = replace(log, base=state.log.base)
    if profile.keeps_queues_right:
        index_msg_timestamp = state.checkpoint.index_msg_timestamp
        dispatched = _agree(state.dispatched, log, start_offset, last_exit_ok, index_msg_timestamp, profile)
        kept = _kept(state, log, dispatched, start_offset)
        state = replace(state, checkpoint=_of_nothing(kept) if log.base is None else kept)
    else:
        dispatched = _dispatch_again(
            replace(state.dispatched, index=index), log, start_offset, last_exit_ok, made_at, settings, profile
        )
    return replace(state, log=log, dispatched=dispatched, flushed_where=max_offset(log))


def _dispatch_again(
    dispatched: Dispatched,
    log: Log,
    start_offset: int,
    last_exit_ok: bool,
    made_at: str,
    settings: DispatchSettings,
    profile: Profile,
) -> Dispatched:
    """Classic: recover each queue alone; after a crash dispatch the part of the log that is read; then cut entries beyond its
    end.

    The index gets no key from before `start_offset`, so keys between its last full file and that offset are lost.
    """
    queues = {key: consume_queue.recover(queue, profile) for key, queue in dispatched.queues.items()}
    max_phy_offset = max((queue.max_physic_offset for queue in queues.values()), default=-1)
    dispatched = replace(dispatched, queues=queues, reput_from_offset=start_offset)
    if not last_exit_ok:
        dispatched = do_reput(dispatched, log, made_at, settings, profile)
    queues = dict(dispatched.queues)
    if max_phy_offset >= max_offset(log):
        queues = {key: consume_queue.truncate_dirty_logic_files(queue, max_offset(log)) for key, queue in queues.items()}
    queues = {key: consume_queue.correct_min_offset(queue, min_offset(log), profile) for key, queue in queues.items()}
    reached = max((queue.max_physic_offset for queue in queues.values()), default=-1)
    return replace(dispatched, queues=queues, reput_from_offset=max(reached, min_offset(log)))


def _has_queues(dispatched: Dispatched) -> bool:
    """Return True if consume queues exist, so that a log whose first files have expired must keep its place.

    Spec: HA-ST-7 "a log whose first files have expired keeps its place while there are consume queues".
    """
    return any(queue.mapped_file_queue.base is not None for queue in dispatched.queues.values())


def _agree(
    dispatched: Dispatched, log: Log, start_offset: int, last_exit_ok: bool, index_msg_timestamp: int, profile: Profile
) -> Dispatched:
    """Hardened: keep the part of queues and index that is known to be right, and let the dispatch make the rest again.

    After a crash that part is: the entries that the checkpoint covers, those of messages before `start_offset`, and full index
    files. The dispatch begins there and does not add existing entries again. Our checkpoint moves its second time only when
    queues and index are both on the disk, so no key is lost. An index that another program wrote may lack keys, so it is kept
    only as far as it is in order, and the dispatch begins where that ends.

    Spec: HA-ST-38 "After a recovery a consume queue MUST NOT name a message beyond the end of the commit log".
    """
    profile = replace(profile, clears_tail=True)  # of the queues, whatever becomes of the log
    known = max_offset(log) if last_exit_ok else min(start_offset, max_offset(log))
    if last_exit_ok or known > min_offset(log):
        queues = {
            key: consume_queue.recover(queue, profile) if last_exit_ok else queue for key, queue in dispatched.queues.items()
        }
        queues = {key: consume_queue.cut(queue, log, known, profile, is_clean=last_exit_ok) for key, queue in queues.items()}
    else:
        firsts = {key: found[0] for key, found in _queue_offsets(log, min_offset(log)).items()}
        queues = {
            key: consume_queue.keep_expired(queue, log, firsts.get(key), profile) for key, queue in dispatched.queues.items()
        }
    queues = {key: consume_queue.correct_min_offset(queue, min_offset(log), profile) for key, queue in queues.items()}
    vouched = index_service.count_vouched(dispatched.index, None if last_exit_ok else index_msg_timestamp, max_offset(log))
    index, in_order = index_service.cut(dispatched.index, log, known, vouched)
    reached = max((queue.max_physic_offset for queue in queues.values()), default=-1)
    reput_from_offset = _record_at_or_before(log, min(reached if last_exit_ok else known, in_order))
    queues = {key: queue for key, queue in queues.items() if queue.mapped_file_queue.base is not None}
    if ends := ends_of_lacking(queues, log, start_offset, reput_from_offset, last_exit_ok):
        # Of the least alone: damage may hide the record at or before another, and then the search begins with its file.
        reput_from_offset = min(reput_from_offset, _record_at_or_before(log, max(min(ends), min_offset(log))))
    return Dispatched(queues, index, reput_from_offset)


def ends_of_lacking(
    queues: Mapping[tuple[str, int], ConsumeQueue], log: Log, start_offset: int, reput_from_offset: int, last_exit_ok: bool
) -> list[int]:
    """Hardened: the ends, in the log, of the queues that would get fillers for messages that the log has.

    A queue that is cut at a broken entry lacks the messages behind it. It shows where the first message to be dispatched is
    not its next one, or where nothing is to be dispatched and the part of the log that was read has a later message.
    A queue without an entry counts after a clean stop alone.

    Spec: HA-ST-90 "MUST begin no later than behind the last message that this queue has".
    """
    walked = _queue_offsets(log, start_offset)
    firsts = {key: found[0] for key, found in _queue_offsets(log, reput_from_offset).items()}
    ends = []
    for key, found in walked.items():
        queue = queues.get(key)
        end = 0 if queue is None else consume_queue.max_offset_in_queue(queue)
        if end <= found[-1] and firsts.get(key, end + 1) > end and (last_exit_ok or queue is not None):
            ends.append(0 if queue is None else queue.max_physic_offset)
    return ends


def _queue_offsets(log: Log, offset: int) -> dict[tuple[str, int], list[int]]:
    """The queue offsets of each queue's messages in the log, from an offset on."""
    found: dict[tuple[str, int], list[int]] = {}
    while offset < max_offset(log):
        match dispatch_request.check_message_and_return_size(log, offset, is_own=True):
            case DispatchRequest() as request:
                if dispatch_request.has_queue(request):
                    found.setdefault((request.topic, request.queue_id), []).append(request.consume_queue_offset)
                offset += request.msg_size
            case Blank(next_file):
                offset = next_file
            case None:
                break
    return found


def _kept(state: Store, log: Log, dispatched: Dispatched, start_offset: int) -> StoreCheckpoint:
    """Hardened: lower the checkpoint to the part that is kept, until the rest has been flushed again.

    Otherwise, after a second crash with only the log flushed, the next recovery would begin behind messages not dispatched
    again.

    Spec: HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"; HA-ST-51 "A recovery after which
    messages are dispatched again MUST clear that i64 as well".
    """
    told, index = state.checkpoint, dispatched.index
    logics, vouched_until = told.logics_msg_timestamp, max_offset(log)
    whole = index_service.count_vouched(state.dispatched.index, None, max_offset(log))
    if state.abort:
        whole = index_service.count_vouched(state.dispatched.index, told.index_msg_timestamp, max_offset(log))
        logics, vouched_until = min(told.physic_msg_timestamp, logics), min(start_offset, max_offset(log))
    offset = 0 if dispatched.reput_from_offset < max_offset(log) else told.logics_physical_offset
    if dispatched.reput_from_offset < vouched_until:
        logics = min(logics, max(0, dispatch_request.stored_ms(log, dispatched.reput_from_offset)))  # less than 0 after damage
    end_timestamp = index_file.header(index[whole - 1]).end_timestamp if whole else 0
    if not state.abort and whole == len(state.dispatched.index):  # nothing is cut; the last file may tell no time
        end_timestamp = told.index_msg_timestamp
    times = {"logics_msg_timestamp": logics, "index_msg_timestamp": min(told.index_msg_timestamp, end_timestamp)}
    return replace(told, **times, logics_physical_offset=offset)


def _of_nothing(checkpoint: StoreCheckpoint) -> StoreCheckpoint:
    """Hardened: the checkpoint of a log without files. Nothing of it is in a queue or in the index; the next messages may have
    earlier store times than the last ones had.
    """
    return StoreCheckpoint(physic_msg_timestamp=checkpoint.physic_msg_timestamp)


def _record_at_or_before(log: Log, offset: int) -> int:
    """The start of the message at or before an offset, or the log's end. Queues may end before a BLANK, an index anywhere."""
    if isinstance(dispatch_request.check_message_and_return_size(log, offset, is_own=True), DispatchRequest):
        return offset  # whatever stands before it
    found = at = max(min_offset(log), offset - offset % log.file_size)
    while at <= offset < max_offset(log):
        request = dispatch_request.check_message_and_return_size(log, at, is_own=True)
        if not isinstance(request, DispatchRequest):
            break
        found = at
        at += request.msg_size
    return found if offset < max_offset(log) else max_offset(log)
