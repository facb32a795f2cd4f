"""Where the fields of a record stand: the figure of HA-ST-2 as a table, for each kind of host. HA-ST-14."""

import pytest

from kit.variant_tables import VARIANTS
from kit.variants import STORED_MS, Variant, name_of
from rocketmq_ha.impl.wire import record_layout
from rocketmq_ha.impl.wire.record_layout import (
    BODY_LENGTH,
    BORN_HOST,
    HEAD,
    MAGIC,
    PHYSICAL_OFFSET,
    STORE_TIMESTAMP,
    Field,
    body_length_at,
    body_position,
    format_of,
    physical_offset_at,
    store_timestamp_at,
    struct_of,
    sys_flag_at,
)

# Position where both hosts are IPv4, size; whether the born host stands before it, and the store host.
FIGURE = {
    "TOTAL_SIZE": (0, 4, 0, 0),
    "MAGIC": (4, 4, 0, 0),
    "BODY_CRC": (8, 4, 0, 0),
    "QUEUE_ID": (12, 4, 0, 0),
    "FLAG": (16, 4, 0, 0),
    "QUEUE_OFFSET": (20, 8, 0, 0),
    "PHYSICAL_OFFSET": (28, 8, 0, 0),
    "SYS_FLAG": (36, 4, 0, 0),
    "BORN_TIMESTAMP": (40, 8, 0, 0),
    "BORN_HOST": (48, 8, 0, 0),
    "STORE_TIMESTAMP": (56, 8, 1, 0),
    "STORE_HOST": (64, 8, 1, 0),
    "RECONSUME_TIMES": (72, 4, 1, 1),
    "PREPARED_TRANSACTION_OFFSET": (76, 8, 1, 1),
    "BODY_LENGTH": (84, 4, 1, 1),
}
HOSTS = ((0x00, 0, 0), (0x10, 12, 0), (0x20, 0, 12), (0x30, 12, 12))  # sysFlag, what the hosts are longer by


@pytest.mark.parametrize("name", FIGURE)
def test_a_field_stands_where_the_figure_has_it(name: str) -> None:
    field: Field = getattr(record_layout, name)
    position, size, behind_born, behind_store = FIGURE[name]
    assert (field.position, field.size, field.end) == (position, size, position + size)
    for sys_flag, born, store in HOSTS:
        for other in (0, -0x31 & ~0x30):  # no other bit counts
            assert field.position_in(sys_flag | other) == position + behind_born * born + behind_store * store


def test_the_head_is_all_of_them_in_order() -> None:
    assert [getattr(record_layout, name) for name in FIGURE] == list(HEAD)
    assert struct_of(*HEAD).size == 88
    assert [body_position(sys_flag) for sys_flag, _, _ in HOSTS] == [88, 100, 100, 112]
    assert body_position(-1) == 112


def test_a_format_skips_what_stands_between() -> None:
    assert format_of(MAGIC, PHYSICAL_OFFSET) == "I20xq"
    assert format_of(MAGIC, PHYSICAL_OFFSET, start=0) == "4xI20xq"
    assert format_of(MAGIC, PHYSICAL_OFFSET, start=4) == "I20xq"
    assert format_of(PHYSICAL_OFFSET, STORE_TIMESTAMP, BODY_LENGTH, sys_flag=0x30) == "q32xq32xi"
    assert format_of(PHYSICAL_OFFSET, STORE_TIMESTAMP, BODY_LENGTH, sys_flag=0x20) == "q20xq32xi"
    assert format_of(BORN_HOST, STORE_TIMESTAMP, sys_flag=0x10) == "8s12xq"


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
@pytest.mark.parametrize("at", (0, 5))
def test_one_field_is_read_from_a_record_anywhere(variant: Variant, at: int) -> None:
    data = b"\xff" * at + variant.record(7_000_000_001)
    assert physical_offset_at(data, at) == 7_000_000_001
    assert sys_flag_at(data, at) == variant.sys_flag
    assert store_timestamp_at(data, at) == STORED_MS
    assert body_length_at(data, variant.sys_flag, at) == len(variant.body)
