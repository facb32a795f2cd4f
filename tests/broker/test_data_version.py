"""The version of a table: two are equal or not, and no clock that steps makes a new one equal to an old one."""

from itertools import product

import pytest

from rocketmq_ha.impl.broker.data_version import DataVersion, read_data_version
from rocketmq_ha.reference.broker_tables import Version


@pytest.mark.parametrize(("ours", "theirs"), list(product([(1, 5), (1, 6), (2, 5), (0, 0)], repeat=2)))
def test_versions_are_equal_by_both_parts(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    """HA-MD-12 "MUST count as equal if their counters and their timestamps are"."""
    assert (DataVersion(*ours) == DataVersion(*theirs)) == (Version(*ours) == Version(*theirs)) == (ours == theirs)


@pytest.mark.parametrize("now_ms", [0, 4, 5, 6, 1 << 60])
def test_a_change_makes_a_version_that_was_not_there_before(now_ms: int) -> None:
    """HA-BT-2 "MUST count its version on by one, and set the timestamp": also where the clock was set back."""
    first = DataVersion(7, 5)
    second = first.next_version(now_ms)
    assert (second.counter, second.timestamp) == (8, now_ms)
    after = Version(7, 5).after_change(now_ms)
    assert second.fields() == {"counter": after.counter, "timestamp": after.timestamp}
    assert len({first, second, second.next_version(5), second.next_version(now_ms)}) >= 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, DataVersion(3, 4)),
        ({}, DataVersion(3, 4)),
        ({"counter": 9}, DataVersion(9, 4)),
        ({"counter": 9, "timestamp": 8, "stateVersion": 7}, DataVersion(9, 8)),
    ],
)
def test_a_version_is_read_from_its_object(content: object, expected: DataVersion) -> None:
    """HA-BT-1 "a DataVersion, a counter and a timestamp": a part of 5.x is passed over."""
    assert read_data_version(content, DataVersion(3, 4)) == expected
