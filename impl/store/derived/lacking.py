"""Whether queues lack messages that the log has, so that the dispatch has to begin earlier.

A queue ends at its first broken entry. The dispatch would go on behind the furthest queue, or where recovery began, and put
fillers in the places of the messages in between. Recovery has looked at the last files of the log, and so knows where the
queues of their messages should end. A queue that is whole up to there costs nothing more.

Spec: HA-ST-90 "MUST begin no later than behind the last message that this queue has".
"""

from collections.abc import Iterator, Sequence

from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable, is_directory_name
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, RequestMaker, read_requests
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.scan import QueueOffsets
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, UNQUEUED_TYPES

_BATCH = 1024


def end_of_lacking(
    queues: ConsumeQueueTable, walked: QueueOffsets, requests: Iterator[DispatchRequest], *, is_clean: bool
) -> int | None:
    """The end of the last message of a queue that lacks others, the least of all such queues; None where none lacks any.

    A queue without an entry counts after a clean stop alone. After another stop its first messages may be the next to be
    dispatched.

    Args:  walked: (queue id, topic) -> the queue offset behind its last message in the log. requests: what would be dispatched.
    """
    behind: dict[tuple[bytes, int], tuple[int, int]] = {}  # where the queue ends: as a queue offset, and in the log
    for (queue_id, topic), next_offset in walked.items():
        queue = queues.get(topic, queue_id)
        end, physic = (queue.max_offset, queue.max_physic_offset) if queue is not None else (0, 0)
        if end < next_offset and (is_clean or physic) and is_directory_name(topic):
            behind[topic, queue_id] = end, physic
    ends = []
    while behind and (request := next(requests, None)) is not None:
        if request.sys_flag & TRANSACTION_MASK not in UNQUEUED_TYPES:
            end, physic = behind.pop((request.topic, request.queue_id), (request.queue_offset, 0))
            if end < request.queue_offset:
                ends.append(physic)
    return min((*ends, *(physic for _, physic in behind.values())), default=None)


def requests_from(files: Sequence[MappedFile], offset: int, end: int) -> Iterator[DispatchRequest]:
    """The messages of a log from one offset to another, as the dispatch reads them."""
    make = RequestMaker(DelayLevels.parse())
    for file in files:
        reached = max(offset, file.base)
        while reached < min(file.base + file.size, end):
            requests: list[DispatchRequest] = []
            position, room = reached - file.base, file.base + file.size - reached
            view = file.view(position, min(file.size, end - file.base))
            start = reached
            reached, _ = read_requests(view, start, room, end, _BATCH, make, requests)
            yield from requests
            if reached == start:
                return
