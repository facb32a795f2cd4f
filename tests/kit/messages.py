"""A message whose fields all differ, so that two that are exchanged show."""

from rocketmq_ha.impl.wire.message import Message

EVERY_FIELD = Message(
    topic="orders",
    body=b"hello",
    queue_id=11,
    queue_offset=12,
    physical_offset=13,
    flag=14,
    sys_flag=8,
    born_timestamp=1_700_000_000_015,
    born_host=("10.0.0.16", 17),
    store_timestamp=1_700_000_001_018,
    store_host=("10.0.0.19", 20),
    reconsume_times=21,
    prepared_transaction_offset=22,
    properties_string="KEYS\x01k1  k2\x02TAGS\x01a\x02other\x01b",
)
