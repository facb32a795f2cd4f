"""The consume queues of a store together: what a clean stop keeps of each, and a queue that is added amid a read."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest

SIZE = 100  # of a file
QUEUES = 50
READS: dict[str, Callable[[ConsumeQueueTable], object]] = {
    "iter": list,
    "queue_offsets": ConsumeQueueTable.queue_offsets,
    "max_physic_offset": lambda table: table.max_physic_offset,
}


def request(queue_id: int) -> DispatchRequest:
    return DispatchRequest(b"t", queue_id, queue_id * 100, 100, 0, 0, 0, "", "", 0, 0)


@pytest.mark.parametrize(("max_offset", "kept"), [(100, 1), (101, 2), (200, 2), (201, 3), (300, 3), (301, 3)])
def test_after_a_clean_stop_no_entry_stays_of_a_message_at_the_end_of_the_log(
    max_offset: int, kept: int, tmp_path: Path
) -> None:
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id)._replace(queue_id=5, queue_offset=queue_id) for queue_id in range(3)])
    table.flush()
    table.close()
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.recover(0, max_offset)
    assert table.queue_offsets() == {(5, b"t"): kept}
    table.close()


@pytest.mark.parametrize("name", READS)
def test_a_queue_that_is_added_amid_a_read_does_not_disturb_it(name: str, tmp_path: Path) -> None:
    """The dispatch of a store adds queues in a thread of its own. What garbage collection calls may let it take its turn."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id) for queue_id in range(QUEUES)])

    def add(*_: object) -> None:
        table.put([request(table.count)])

    threshold = gc.get_threshold()
    gc.collect()  # also frees the tuples that CPython keeps for the next use, which cause no collection
    gc.callbacks.append(add)
    gc.set_threshold(1)
    try:
        READS[name](table)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(add)
    assert table.count > QUEUES
    table.close()
