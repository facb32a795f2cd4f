"""What a heartbeat may name, and how much memory it takes to keep.

The sizes are about those of Python's objects, and never less: a broker with bounds of 256 MiB holds no more than that.

Spec: HA-BT-49, HA-BT-75.  Source: this project; RocketMQ keeps whatever comes.
"""

from collections.abc import Collection, Iterable
from typing import Final

from rocketmq_ha.impl.broker.groups import GROUP_MAX_LENGTH, RETRY_GROUP_TOPIC_PREFIX
from rocketmq_ha.impl.broker.subscription import SubscriptionData
from rocketmq_ha.impl.errors import RequestInvalid

NAME_MAX: Final = 255  # characters of a client id, a kind of expression
LANGUAGE_MAX: Final = 32  # characters; the names of RocketMQ have up to 7
TOPIC_MAX: Final = len(RETRY_GROUP_TOPIC_PREFIX) + GROUP_MAX_LENGTH  # a consumer subscribes to its retry topic too
EXPRESSION_MAX: Final = 65_536  # characters: at most 256 KiB, which is what the header of a pull has room for
TAGS_MAX: Final = 10_000  # tags, and hash codes, of one subscription

REGISTRATION_SIZE: Final = 2_500  # bytes for a client in a group: its entries in three tables, its names, the group's name
SUBSCRIPTION_SIZE: Final = 500  # bytes without its texts and tags
TAG_SIZE: Final = 100  # bytes for a tag without its text, or for a hash code
_WIDEST: Final = 4  # bytes of a character


def checked_length(name: str, value: str, most: int = NAME_MAX) -> str:
    """The value. HA-BT-49 "that is longer than the table below allows". Raises: RequestInvalid."""
    if len(value) > most:
        raise RequestInvalid(name, f"{len(value)} characters", f"at most {most}")
    return value


def check_count(name: str, values: Collection[object], most: int, what: str) -> None:
    """Raises: RequestInvalid."""
    if len(values) > most:
        raise RequestInvalid(name, f"{len(values)} {what}", f"at most {most}")


def check_tags(tags: Iterable[str]) -> None:
    """HA-BT-49 "anything that is longer than the table below allows". Raises: RequestInvalid."""
    count = sum(map(len, tags))
    if count > EXPRESSION_MAX:
        raise RequestInvalid("tagsSet", f"{count} characters", f"at most {EXPRESSION_MAX}")


def subscription_size(found: SubscriptionData) -> int:
    """Bytes that a subscription takes. HA-BT-75 "100 for each tag and hash code"."""
    texts = map(text_size, (found.topic, found.sub_string, found.expression_type, *found.tags_set))
    return SUBSCRIPTION_SIZE + sum(texts) + TAG_SIZE * (len(found.tags_set) + len(found.code_set))


def text_size(text: str) -> int:
    """Bytes of a text: one wide character makes all others as wide."""
    return len(text) if text.isascii() else _WIDEST * len(text)
