"""How a put ends, in RocketMQ's words.

A put that stored its message returns a status, even where a flush or a slave was late: the message is stored all the same.
A put that stored nothing raises; `status_of` has RocketMQ's word for such an error, for whoever must answer a client in it.

Source: article 003 section 2; 4.9.8 PutMessageStatus, PutMessageResult, AppendMessageResult.
"""

import errno
from enum import Enum
from typing import NamedTuple

from rocketmq_ha.impl.errors import MessageIllegal, RoleRefuses, StoreClosed, StoreFull


class PutMessageStatus(Enum):
    """RocketMQ's names. In the first four the message is stored; in the others it is not."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    __hash__ = object.__hash__  # that of Enum is a function in Python, and a put would call it three times

    @property
    def is_stored(self) -> bool:
        """Whether the log has the message."""
        return self in _STORED


_STORED = frozenset(
    (
        *(PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT),
        *(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE),
    )
)


class AppendResult(NamedTuple):
    """Where a message, or a batch of them, went."""

    offset: int  # commit-log offset of its first byte
    size: int  # bytes, of the whole batch
    queue_offset: int  # its index in its queue, or that of a batch's first; 0 for prepared and rolled-back messages
    store_timestamp: int  # ms, as the record has it
    messages: int = 1

    @property
    def next_offset(self) -> int:
        """The offset behind it: what flush and slaves must reach."""
        return self.offset + self.size


class PutMessageResult(NamedTuple):
    """The end of a put whose messages are stored."""

    status: PutMessageStatus
    append: AppendResult

    @property
    def is_ok(self) -> bool:
        """Whether all that was asked for was done, flush and slaves included."""
        return self.status is PutMessageStatus.PUT_OK


def outcome(disk: PutMessageStatus, slave: PutMessageStatus) -> PutMessageStatus:
    """What the producer hears of its two waits.

    Spec: HA-G-41 "MUST end with the outcome of its wait for a slave if that is not PUT_OK, and else with that of its wait for
    the disk".
    """
    return disk if slave is PutMessageStatus.PUT_OK else slave


def status_of(error: BaseException) -> PutMessageStatus:
    """RocketMQ's word for an error of a put that stored nothing."""
    match error:
        case MessageIllegal(field="properties"):
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        case MessageIllegal():
            return PutMessageStatus.MESSAGE_ILLEGAL
        case StoreFull() | StoreClosed() | RoleRefuses() | OSError(errno=errno.EROFS):
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        case OSError():
            return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    return PutMessageStatus.UNKNOWN_ERROR
