"""What a consumer group subscribes to in a topic, as its heartbeat says.

Source: 4.9.8 SubscriptionData.
"""

from dataclasses import dataclass

TAG: str = "TAG"
SUB_ALL: str = "*"


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A subscription. code_set: hash codes of the tags, i32; empty for all messages. sub_version: ms; the greater is newer."""

    topic: str
    sub_string: str = SUB_ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    def fields(self) -> dict[str, object]:
        """The fields of its JSON object."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }
