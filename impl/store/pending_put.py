"""A put that may still wait for the disk."""

import time
from typing import Final

from rocketmq_ha.impl.store.log.flush import GroupCommitRequest
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageResult, PutMessageStatus, outcome
from rocketmq_ha.impl.wire.properties import parse_properties

_OK: Final = PutMessageStatus.PUT_OK


class PendingPut:
    """A put whose message is in the log, but perhaps not on the disk yet.

    Args:  slave: the status of its wait for a slave.
    """

    __slots__ = ("_request", "_slave", "_timeout_at", "append")

    def __init__(
        self, append: AppendResult, request: GroupCommitRequest | None, timeout_at: float, slave: PutMessageStatus = _OK
    ) -> None:
        self.append = append
        self._request, self._timeout_at, self._slave = request, timeout_at, slave

    @property
    def is_done(self) -> bool:
        """Return True if `result` does not have to wait."""
        return self._request is None or self._request.status is not None

    def result(self) -> PutMessageResult:
        """Wait for the disk. Returns: PUT_OK, or FLUSH_DISK_TIMEOUT; the message is stored in either case.

        If the put's wait for a slave ended in another status than PUT_OK, that status is returned instead.
        """
        request = self._request
        status = _OK if request is None else request.wait(self._timeout_at - time.monotonic())
        return PutMessageResult(outcome(status, self._slave), self.append)


def waits_for_store(properties_string: str) -> bool:
    """Return True if the put waits for disk and slaves. It does not if the property WAIT is set to anything but true."""
    if "WAIT" not in properties_string:
        return True
    return parse_properties(properties_string).get("WAIT", "true").lower() == "true"
