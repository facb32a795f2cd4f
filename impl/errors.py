"""Errors by whose fault it is. A bug of ours is an assert, never one of these, and is never caught."""

# ruff: noqa: N818  (the names say whose fault it is; "Error" at the end would say nothing more)

import errno
import os
from typing import Final

from rocketmq_ha.spec.codes import request_name
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class RocketmqHaError(Exception):
    """Base of all errors that a peer, a file, a configuration or the machine can cause. One line, no traceback."""


class PeerViolation(RocketmqHaError):
    """The other end broke a clause of the wire protocol."""

    def __init__(self, clause: str, peer: str, found: object, expected: object) -> None:
        super().__init__(f"{peer}: found {found}, expected {expected} ({clause})")
        self.clause, self.peer, self.found, self.expected = clause, peer, found, expected


class FrameInvalid(RocketmqHaError):
    """Bytes of a remoting connection that are no frame. Its server closes the connection, and names the peer in a log line."""

    def __init__(self, field: str, found: object, expected: object) -> None:
        super().__init__(f"remoting {field}: found {found}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


class RequestInvalid(RocketmqHaError):
    """A remoting request that cannot be served as it is: a field is missing, or has no value of its type.

    The server answers SYSTEM_ERROR with this text as the remark; the connection goes on.
    """

    def __init__(self, field: str, found: object, expected: object) -> None:
        super().__init__(f"{field}: found {found}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


class RequestFailed(RocketmqHaError):
    """A remoting request of ours that got no answer: no connection, its end, or no answer in time."""

    def __init__(self, address: str, code: int, why: str, *, is_unsent: bool = False, is_late: bool = False) -> None:
        """is_unsent: no byte was written to a connection, so that nobody can have got it. is_late: its time is over."""
        super().__init__(f"{address}: request {request_name(code)}: {why}")
        self.address, self.code, self.why, self.is_unsent, self.is_late = address, code, why, is_unsent, is_late


class RequestRefused(RocketmqHaError):
    """A remoting request of ours that was answered with an error."""

    def __init__(self, address: str, request: str, code: str, remark: str | None) -> None:
        """request, code: RocketMQ's names. remark: of the answer."""
        shown = "".join(each if each.isprintable() else " " for each in (remark or "no remark")[:300])
        super().__init__(f"{address}: request {request}: found the answer {code} ({shown}), expected SUCCESS")
        self.address, self.code = address, code


class NoRoute(RocketmqHaError):
    """No name server knows a broker that has a topic, or none answers."""

    def __init__(self, topic: str, found: str, expected: str) -> None:
        super().__init__(f"topic {topic}: found {found}, expected {expected}")
        self.topic = topic


class OutOfStep(RocketmqHaError):
    """A slave's log is not, or cannot be shown to be, the beginning of its master's: only a new store helps."""

    def __init__(self, peer: str, what: str, found: object, expected: object, first: str = "") -> None:
        """first: what to try before a new store."""
        super().__init__(
            f"{peer}: {what}: found {found}, expected {expected}; "
            f"{first}`rocketmq-ha resync` moves this store aside, to start anew"
        )
        self.peer, self.what, self.found, self.expected = peer, what, found, expected


class FileSizeDiffers(OutOfStep):
    """A slave's commit-log files are not as long as its master's: what it is sent cannot be recovered from such files."""

    def __init__(self, peer: str, file_size: int, masters: int | None) -> None:
        """file_size: bytes, of the slave's files. masters: bytes, of the master's; None for more than the slave's."""
        found = f"more than {file_size} bytes" if masters is None else f"{masters} bytes"
        told = "without --file-size" if masters is None else f"without --file-size, or with --file-size {masters}"
        if masters is None and file_size >= MAPPED_FILE_SIZE_COMMIT_LOG:  # what a slave without the option begins with
            told = "with the master's --file-size, while the master has one file alone"
        RocketmqHaError.__init__(
            self,
            f"{peer}: the master's commit-log files: found {found} each, expected {file_size}, as this store's are; "
            f"`rocketmq-ha resync` moves this store aside, to start anew {told}",
        )
        self.peer, self.what, self.found, self.expected = peer, "file size", found, file_size
        self.masters = masters


class MessageMalformed(RocketmqHaError):
    """Bytes that should be a message record are none. The store turns it into StoreCorrupt with file and offset."""

    def __init__(self, field: str, found: object, expected: object) -> None:
        super().__init__(f"{field}: found {found}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


class MessageIllegal(RocketmqHaError):
    """A message that the record format, or the store that it is put into, cannot hold."""

    def __init__(self, field: str, found: object, expected: object) -> None:
        super().__init__(f"message {field}: found {found}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


class AppendRefused(RocketmqHaError):
    """Replicated bytes have no place in the commit log: they cross the end of a file, or start before file 0."""

    def __init__(self, file: object, offset: int, found: object, expected: object) -> None:
        super().__init__(f"{file}: append at commit-log offset {offset}: found {found}, expected {expected}")
        self.file, self.offset, self.found, self.expected = file, offset, found, expected


class AppendFailed(RocketmqHaError, OSError):
    """The system refused replicated bytes: their file has no room, or its disk does not answer."""

    def __init__(self, file: object, offset: int, error: OSError) -> None:
        OSError.__init__(self, error.errno, error.strerror, str(file))
        self.file, self.offset = file, offset

    def __str__(self) -> str:
        return f"{self.file}: append at commit-log offset {self.offset}: {self.strerror}"

    @property
    def is_for_want_of_room(self) -> bool:
        """Whether more room on the disk, or in a quota, is all that it takes."""
        return self.errno in NO_ROOM


class StoreCorrupt(RocketmqHaError):
    """A file of the store does not hold what its format demands."""

    def __init__(self, file: object, offset: int, found: object, expected: object) -> None:
        super().__init__(f"{file}: at commit-log offset {offset}: found {found}, expected {expected}")
        self.file, self.offset, self.found, self.expected = file, offset, found, expected


class StoreFull(RocketmqHaError, OSError):
    """There is no room for a file that the store needs, or less is free than the floor that it was told to keep.

    An OSError with errno ENOSPC as well: whoever looks for a full disk finds it.
    """

    def __init__(self, file: object, found: object, expected: object) -> None:
        OSError.__init__(self, errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        self.file, self.found, self.expected = file, found, expected

    def __str__(self) -> str:
        return f"{self.file}: {self.strerror}: found {self.found}, expected {self.expected}"


class StoreClosed(RocketmqHaError):
    """The store was closed, or has met an error after which it takes no more messages."""


class RoleRefuses(RocketmqHaError):
    """A put came to a broker whose role takes none. HA-R-5."""

    def __init__(self, where: object, role: str) -> None:
        super().__init__(f"{where}: a put: found the role {role}, expected ASYNC_MASTER or SYNC_MASTER")


class StoreLocked(RocketmqHaError):
    """Another process owns the store."""


class ConfigInvalid(RocketmqHaError):
    """An option, an address, a path or a size that cannot be used."""
