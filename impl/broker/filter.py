"""Which messages a consumer wants: its subscription as the hashes of its tags.

The broker compares hashes alone, by queue entry; the consumer compares the tags themselves.

Source: 4.9.8 FilterAPI, ExpressionMessageFilter.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.store.derived.java_hash import java_hash
from rocketmq_ha.impl.store.pull import TagCodes

SUB_ALL: Final = "*"
TAG: Final = "TAG"
_BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim takes away
_SHOWN: Final = 150  # characters of a text of the peer that a remark repeats; a topic or a group has 127 at most


class Refusal(NamedTuple):
    """An answer without messages: its code and its remark."""

    code: ResponseCode
    remark: str


class Subscription(Protocol):
    """A subscription of a heartbeat: clients.py keeps them."""

    @property
    def sub_string(self) -> str: ...
    @property
    def code_set(self) -> Collection[int]: ...
    @property
    def sub_version(self) -> int: ...
    @property
    def expression_type(self) -> str: ...
    @property
    def class_filter_mode(self) -> bool: ...


def of_request(sub_string: str | None, expression_type: str | None) -> TagCodes | Refusal:
    """The hashes that a request asks for. HA-P-4 "A subscription in the request MUST be built as follows".

    Returns: None for all messages.
    """
    if expression_type is not None and expression_type != TAG:
        if not sub_string:
            return _unparsed(sub_string)
        return _unless_sql(expression_type) or (None if sub_string == SUB_ALL else frozenset())
    if sub_string is None or sub_string in ("", SUB_ALL):
        return None
    parts = sub_string.split("||")
    if not any(parts):  # HA-P-4 "An expression that consists of `||` alone cannot be built"
        return _unparsed(sub_string)
    return frozenset(java_hash(tag) for part in parts if (tag := part.strip(_BLANKS)))


def of_heartbeat(subscription: Subscription) -> TagCodes | Refusal:
    """The hashes that the heartbeats of a group ask for. HA-P-5 "its subscription is of the class-filter mode"."""
    refusal = _unless_sql(subscription.expression_type)
    if refusal is not None:
        return refusal
    if subscription.class_filter_mode or subscription.sub_string == SUB_ALL:
        return None
    return frozenset(subscription.code_set)


def _unless_sql(expression_type: str | None) -> Refusal | None:
    """HA-P-6 "MUST answer a pull that has one with SYSTEM_ERROR (1)"."""
    if expression_type in (None, "", TAG):
        return None
    found = shown(expression_type)
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"expressionType: found {found}, expected {TAG}: this broker filters by tags alone"
    )


def _unparsed(sub_string: str | None) -> Refusal:
    found = shown(sub_string)
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"subscription: found {found}, expected * or tags separated by ||")


def shown(text: str | None) -> str:
    """A text of the peer for a remark: in quotes, on one line, and cut if it is long."""
    return repr(text)[:_SHOWN]
