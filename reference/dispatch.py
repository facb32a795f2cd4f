"""ReputMessageService: dispatch the commit log to consume queues and index, record by record.

    commit log   | record | record | BLANK    | record | rec..
                          ^ reput_from_offset          ^ the dispatch waits here for the rest

Spec: HA-ST-35 "MUST be dispatched to queues and index in the order of the log", HA-ST-36 "MUST dispatch the records
that it has appended": the dispatch is the same on master and slave, except for one step of classic on a master.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_ha.reference import consume_queue, dispatch_request, index_file, index_service
from rocketmq_ha.reference.consume_queue import ConsumeQueue, Entry, Placed
from rocketmq_ha.reference.dispatch_request import Blank, DispatchRequest
from rocketmq_ha.reference.index_service import Index
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec.profile import Profile

QueueKey = tuple[str, int]  # (topic, queue id)


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Sizes; small ones reach every boundary. `counts_every_put`: as 4.3 and 4.5.2 count `hash_slot_count`."""

    mapped_file_size_consume_queue: int = consume_queue.MAPPED_FILE_SIZE_CONSUME_QUEUE
    max_hash_slot_num: int = index_file.MAX_HASH_SLOT_NUM
    max_index_num: int = index_file.MAX_INDEX_NUM
    message_delay_level: str = dispatch_request.MESSAGE_DELAY_LEVEL
    counts_every_put: bool = False


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The queues and the index made from a log so far, and the offset at which the dispatch goes on."""

    queues: Mapping[QueueKey, ConsumeQueue] = field(default_factory=dict)
    index: Index = ()
    reput_from_offset: int = 0
    store_timestamp: int = 0  # of the last message put into a queue; the checkpoint's second time comes from it


def do_dispatch(
    state: Dispatched, request: DispatchRequest, made_at: str, settings: DispatchSettings, profile: Profile
) -> tuple[Dispatched, Placed | None]:
    """Put one message into its queue and the index. Both ignore what they have already.

    Spec: HA-ST-29 "Each queue of a topic MUST have a consume queue of its own". `made_at` names a new index file, if
    one is needed.
    """
    queues, placed, store_timestamp = state.queues, None, state.store_timestamp
    if dispatch_request.has_queue(request):
        key = (request.topic, request.queue_id)
        queue = queues.get(key) or consume_queue.empty(*key, settings.mapped_file_size_consume_queue)
        entry = Entry(request.commit_log_offset, request.msg_size, request.tags_code)
        queue, placed = consume_queue.put_message_position_info(queue, entry, request.consume_queue_offset, profile)
        if placed is Placed.REFUSED:
            return state, placed
        queues, store_timestamp = {**queues, key: queue}, request.store_timestamp
    index = index_service.build_index(
        state.index,
        request,
        made_at,
        profile,
        settings.max_hash_slot_num,
        settings.max_index_num,
        counts_every_put=settings.counts_every_put,
    )
    return replace(state, queues=queues, index=index, store_timestamp=store_timestamp), placed


def do_reput(
    state: Dispatched,
    log: Log,
    made_at: str,
    settings: DispatchSettings,
    profile: Profile,
    *,
    is_master: bool = True,
    most: int | None = None,
) -> Dispatched:
    """Dispatch at most `most` messages of the log from `reput_from_offset` on.

    Spec: HA-ST-36 "MUST dispatch the records": up to the last whole one, since a frame may end inside a record. A classic
    master, HA-ST-79 "skips all that its file holds at that moment", and these messages reach no queue. Hardened waits in either
    role, and also before an impossible queue offset.
    """
    count = 0
    state = replace(state, reput_from_offset=max(state.reput_from_offset, min_offset(log)))
    while state.reput_from_offset < max_offset(log) and (most is None or count < most):
        offset = state.reput_from_offset
        is_own = profile.stops_at_damage
        match dispatch_request.check_message_and_return_size(log, offset, settings.message_delay_level, is_own=is_own):
            case DispatchRequest() as request:
                state, placed = do_dispatch(state, request, made_at, settings, profile)
                if placed is Placed.REFUSED:
                    break
                state = replace(state, reput_from_offset=offset + request.msg_size)
                count += 1
            case Blank(next_file):
                state = replace(state, reput_from_offset=next_file)
            case None if is_master and not profile.stops_at_damage:
                end_of_file = offset - offset % log.file_size + log.file_size
                state = replace(state, reput_from_offset=min(end_of_file, max_offset(log)))
            case None:
                break
    return state


def get_message(state: Dispatched, log: Log, topic: str, queue_id: int, cq_offset: int) -> bytes:
    """The record of one message: HA-ST-37 "MUST go through the consume queue, which says where to read, to the commit log".

    Empty if the queue has no such entry, or the log no such message.
    """
    queue = state.queues.get((topic, queue_id))
    entry = consume_queue.entry_at(queue, cq_offset) if queue else None
    if entry is None or consume_queue.is_filler(entry) or not min_offset(log) <= entry.offset < max_offset(log):
        return b""
    position = entry.offset - min_offset(log)
    return log.data[position : position + entry.size]


def delete_expired(state: Dispatched, log: Log, profile: Profile) -> Dispatched:
    """Delete the files of queues and index whose messages have all left the log."""
    queues = {key: consume_queue.delete_expired_file(queue, min_offset(log), profile) for key, queue in state.queues.items()}
    return replace(state, queues=queues, index=index_service.delete_expired_file(state.index, min_offset(log)))
