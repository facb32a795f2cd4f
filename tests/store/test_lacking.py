"""Which queues lack messages that the log has, by table: HA-ST-90 "MUST begin no later than behind the last message"."""

from pathlib import Path

import pytest

from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.lacking import end_of_lacking

PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12


def request(queue_id: int, queue_offset: int, offset: int, sys_flag: int = 0, topic: bytes = b"t") -> DispatchRequest:
    return DispatchRequest(topic, queue_id, offset, 100, 0, 0, queue_offset, "", None, sys_flag, 0)


@pytest.mark.parametrize(
    ("walked", "requests", "clean", "unclean"),
    [
        pytest.param({}, [], None, None, id="nothing was read"),
        pytest.param({0: 2, 1: 3}, [], None, None, id="whole"),
        pytest.param({0: 1}, [], None, None, id="more than the log has"),
        pytest.param({0: 3}, [], 300, 300, id="no last entry"),
        pytest.param({0: 3}, [(0, 2, 400)], None, None, id="the next message is to be dispatched"),
        pytest.param({0: 4}, [(0, 3, 400)], 300, 300, id="the next message but one is to be dispatched"),
        pytest.param({0: 4}, [(1, 3, 400)], 300, 300, id="a message of another queue"),
        pytest.param({0: 4}, [(0, 2, 400), (0, 9, 500)], None, None, id="a gap of the log itself"),
        pytest.param({0: 4}, [(0, 2, 400, PREPARED)], 300, 300, id="a prepared message"),
        pytest.param({0: 4}, [(0, 2, 400, ROLLED_BACK)], 300, 300, id="a rolled-back message"),
        pytest.param({0: 4}, [(0, 2, 400, COMMITTED)], None, None, id="a committed message"),
        pytest.param({0: 3, 1: 9}, [], 300, 300, id="two queues"),
        pytest.param({0: 3, 1: 9}, [(0, 2, 600)], 500, 500, id="two queues, one of which goes on"),
        pytest.param({2: 1}, [], 0, None, id="a queue without an entry"),
        pytest.param({2: 1}, [(2, 0, 600)], None, None, id="a new queue"),
        pytest.param({2: 8}, [(2, 7, 600)], 0, None, id="a queue that is known from its eighth message on"),
    ],
)
def test_the_end_of_a_queue_that_lacks_messages(
    tmp_path: Path,
    walked: dict[int, int],
    requests: list[tuple[int, ...]],
    clean: int | None,
    unclean: int | None,
) -> None:
    """Queue 0 has two messages, to offset 300, and queue 1 three, to 500."""
    queues = ConsumeQueueTable(tmp_path, 60, writable=True)
    queues.put([request(0, 0, 0), request(1, 0, 100), request(0, 1, 200), request(1, 1, 300), request(1, 2, 400)])
    told = {(queue_id, b"t"): next_offset for queue_id, next_offset in walked.items()}
    for is_clean, expected in ((True, clean), (False, unclean)):
        found = end_of_lacking(queues, told, iter([request(*each) for each in requests]), is_clean=is_clean)
        assert found == expected
    assert end_of_lacking(queues, {(0, b".."): 1}, iter([]), is_clean=True) is None  # such a topic never has a queue
    queues.close()
