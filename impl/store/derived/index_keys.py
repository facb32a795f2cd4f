"""Which keys of a message the index has: three sets of them, by the release that put them.

A set does not say which messages are indexed, nor in which files: there the releases agree.

Spec: HA-ST-47 "MUST all be of one of these sets".
Source: RocketMQ 4.3.0 to 5.3.4 and 5.4.0 to 5.5.1 `IndexService.buildIndex`; rocketmq-rust 0.7.0 to 0.9.0 `build_index`.
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_service import words_of
from rocketmq_ha.impl.store.derived.java_hash import index_key_hash, java_text
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK

UNIQUE_TYPE: Final = "U#"  # stands before a unique key
TAG_TYPE: Final = "T#"  # stands before tags


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that some releases put."""

    releases: str  # of RocketMQ, where no other name stands there
    has_tags: bool  # the tags are a key
    marks_unique: bool  # the unique key has its type before it


# The first is also what this project's dispatch puts.
KEY_SETS: Final = (
    KeySet("4.3.0-5.3.4", has_tags=False, marks_unique=False),
    KeySet("5.4.0-5.5.1", has_tags=True, marks_unique=False),
    KeySet("rocketmq-rust-0.9.0", has_tags=True, marks_unique=True),
)


class MessageKeys:
    """The hashes of one message's keys, by set. Each text is hashed when a set first needs it."""

    def __init__(self, request: DispatchRequest, properties: bytes) -> None:
        self._request, self._properties = request, properties
        self._is_indexed = request.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        self._topic = java_text(request.topic)
        self._words: list[int] | None = None
        self._unique: dict[bool, list[int]] = {}
        self._tags: list[int] | None = None

    def hashes(self, key_set: KeySet) -> list[int]:
        """In the order in which a broker puts them."""
        if not self._is_indexed:
            return []
        return [*self._of_unique(key_set.marks_unique), *self._of_words(), *(self._of_tags() if key_set.has_tags else ())]

    def _of_unique(self, is_marked: bool) -> list[int]:
        unique = self._request.uniq_key
        if unique and is_marked not in self._unique:
            self._unique[is_marked] = [self._hash(f"{UNIQUE_TYPE}{unique}" if is_marked else unique)]
        return self._unique.get(is_marked, [])

    def _of_words(self) -> list[int]:
        if self._words is None:
            self._words = [self._hash(word) for word in words_of(self._request.keys, None)]
        return self._words

    def _of_tags(self) -> list[int]:
        if self._tags is None:
            tags = _tags_of(self._properties)
            self._tags = [self._hash(f"{TAG_TYPE}{tags}")] if tags else []
        return self._tags

    def _hash(self, key: str) -> int:
        return index_key_hash(f"{self._topic}#{key}")


def _tags_of(properties: bytes) -> str:
    """The property TAGS, the last that is not empty, as RocketMQ reads properties; "" where there is none."""
    found = b""
    if b"TAGS\x01" in properties:
        for pair in properties.split(b"\x02"):
            name, _, value = pair.partition(b"\x01")
            if name == b"TAGS" and value:
                found = value
    return java_text(found)
