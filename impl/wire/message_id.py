"""The id by which a client of RocketMQ finds a message in its broker: where it is stored, and at which offset.

    store host ip 4 bytes, or 16 of IPv6 | port i32 | commit-log offset i64, all as upper-case hexadecimal digits

Source: MessageDecoder.createMessageId; the answers to puts in the golden transcripts of 4.9.8 and 5.3.3.
"""

from rocketmq_ha.impl.wire.message import Host, pack_host


def message_id(store_host: Host, offset: int) -> str:
    """The id of a message at a commit-log offset.

    >>> message_id(("127.0.0.1", 21100), 5267616)
    '7F0000010000526C00000000005060A0'
    """
    return f"{message_id_prefix(store_host)}{offset:016X}"


def message_id_prefix(store_host: Host) -> str:
    """What all ids of one store host begin with. Raises: MessageIllegal for a host that no record holds."""
    return pack_host("store host", store_host, ":" in store_host[0]).hex().upper()
