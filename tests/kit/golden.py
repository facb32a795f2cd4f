"""The stores that releases of RocketMQ wrote (spec/vectors/)."""

from pathlib import Path
from typing import Final

VECTORS: Final = Path(__file__).parents[2] / "spec" / "vectors"
RELEASES: Final = sorted(path.name.removeprefix("rocketmq-") for path in VECTORS.glob("rocketmq-*"))
# Only these releases put a message's tags into the index as a key: HA-ST-47.
WITH_KEYS_OF_TAGS: Final = ("5.4.0",)


def has_keys_of_tags(vectors: Path) -> bool:
    """Whether the release that wrote this store puts tags into the index."""
    return vectors.name.removeprefix("rocketmq-") in WITH_KEYS_OF_TAGS
