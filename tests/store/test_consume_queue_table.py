"""The consume queues of a store, while one thread adds queues and another one iterates."""

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
