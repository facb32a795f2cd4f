"""A put that may still wait for the disk, and whether a message wants that."""

import time
from typing import Final

from rocketmq_ha.impl.store.log.flush import GroupCommitRequest
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageResult, PutMessageStatus, outcome
from rocketmq_ha.impl.wire.properties import parse_properties

_OK: Final = PutMessageStatus.PUT_OK


class PendingPut:
    """A put whose message is in the log, and which may still wait for the disk.

    Args:  slave: how its wait for a slave has ended.
    """

    __slots__ = ("_request", "_slave", "_timeout_at", "append")

    def __init__(
        self, append: AppendResult, request: GroupCommitRequest | None, timeout_at: float, slave: PutMessageStatus = _OK
    ) -> None:
        self.append = append
        self._request, self._timeout_at, self._slave = request, timeout_at, slave

    @property
    def is_done(self) -> bool:
        """Whether `result` would not wait."""
        return self._request is None or self._request.status is not None

    def result(self) -> PutMessageResult:
        """Wait for the end: PUT_OK, or FLUSH_DISK_TIMEOUT where the disk did not take it in time. It is stored all the same.

        Where it found no slave that is what is said, when the wait for the disk has ended.
        """
        request = self._request
        status = _OK if request is None else request.wait(self._timeout_at - time.monotonic())
        return PutMessageResult(outcome(status, self._slave), self.append)


def waits_for_store(properties_string: str) -> bool:
    """Whether a message wants its put to wait for disk and slaves: it does, unless its property WAIT is other than true."""
    if "WAIT" not in properties_string:
        return True
    return parse_properties(properties_string).get("WAIT", "true").lower() == "true"
