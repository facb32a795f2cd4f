"""Which names a topic may have, and which topics are the broker's own.

Spec: HA-BT-11, HA-BT-14.  Source: 4.9.8 TopicValidator.
"""

import re
from collections.abc import Collection
from typing import Final

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
RMQ_SYS_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_BENCHMARK_TOPIC: Final = "BenchmarkTest"
RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
RMQ_SYS_SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
RMQ_SYS_OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_TOPIC_SET: Final = frozenset(
    (
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_BENCHMARK_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRACE_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
    )
)
NOT_ALLOWED_SEND_TOPIC_SET: Final = frozenset(
    (
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
    )
)
TOPIC_MAX_LENGTH: Final = 127  # characters, which are all ASCII
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_topic_or_group_illegal(name: str) -> bool:
    """Whether a name has a character that no topic and no group may have. The empty name has none."""
    return bool(name) and _LEGAL.fullmatch(name) is None


def invalid_topic(topic: str) -> str | None:
    """Why a name can be no topic's: the remark of the refusal; None if it can. HA-BT-14 "MUST be refused with SYSTEM_ERROR"."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if is_topic_or_group_illegal(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return f"The specified topic is longer than topic max length {TOPIC_MAX_LENGTH}."
    return None


def is_system_topic(topic: str, own: Collection[str] = ()) -> bool:
    """Whether a topic is one that no request may create, change or delete. own: those that this broker has made by itself."""
    return topic in SYSTEM_TOPIC_SET or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in own


def is_not_allowed_send_topic(topic: str) -> bool:
    """Whether a client may not send to a topic: the broker writes there itself."""
    return topic in NOT_ALLOWED_SEND_TOPIC_SET
