"""The result of a read by consume queue, with RocketMQ's names.

Source: article 003 section 1.5; 4.9.8 GetMessageStatus, GetMessageResult.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from rocketmq_ha.impl.wire.message import Message, decode


class GetMessageStatus(Enum):
    """RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"  # of a pull with tags alone
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(NamedTuple):
    """The messages of a queue from an offset on.

    records: views of the log, not copied and not checked; they stay valid while they are referenced.
    """

    status: GetMessageStatus
    next_begin_offset: int  # offset of the next read
    min_offset: int  # of the queue
    max_offset: int
    records: tuple[memoryview, ...] = ()

    def messages(self) -> Iterator[Message]:
        """The messages, each checked with its CRC. Raises: MessageMalformed for a damaged record."""
        return map(decode, self.records)
