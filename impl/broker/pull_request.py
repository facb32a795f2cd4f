"""The fields of a pull.

Source: 4.9.8 PullMessageRequestHeader, PullSysFlag.
"""

from typing import Final, NamedTuple

from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.command import RemotingCommand

# Bits of sysFlag. HA-P-2 "MUST read three bits of `sysFlag`".
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4


class PullRequest(NamedTuple):
    """The fields of a request. HA-P-1 "A field of the table that is required"."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None
    expression_type: str | None


def read_request(request: RemotingCommand) -> PullRequest:
    """Read the fields. Raises: RequestInvalid."""
    return PullRequest(
        fields.text(request, "consumerGroup"),
        fields.text(request, "topic"),
        fields.i32(request, "queueId"),
        fields.i64(request, "queueOffset"),
        fields.i32(request, "maxMsgNums"),
        fields.i32(request, "sysFlag"),
        fields.i64(request, "commitOffset"),
        fields.i64(request, "suspendTimeoutMillis"),
        fields.i64(request, "subVersion"),
        request.ext_fields.get("subscription"),
        request.ext_fields.get("expressionType"),
    )
