"""The body of a registration, code 103: the topics of a broker, with their version.

The JSON of RocketMQ's RegisterBrokerBody, or a zlib stream of its parts. Nothing else of the body matters to a name server.
"""

import json
import re
import zlib
from typing import Any, Final

from rocketmq_ha.reference.route_table import DataVersion, QueueData

INFLATED_MAX: Final = 16 * 1024 * 1024  # bytes: as long as the longest frame
NAME_MAX: Final = 512  # characters of a topic, group, cluster or address
CRC_MASK: Final = 0x7FFFFFFF
QUEUE_NUMS: Final = 16  # of a topic that does not say them
PERM: Final = 6
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")  # as Java reads one; no i32 has as many digits
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

Topics = tuple[tuple[str, QueueData], ...]


def has_its_crc(body: bytes, body_crc32: int) -> bool:
    """HA-R-33 "whose bodyCrc32 is not 0, and not the CRC-32 of the body as it was sent without its highest bit, MUST be refused
    with SYSTEM_ERROR".
    """
    return body_crc32 in (0, zlib.crc32(body) & CRC_MASK)


def read_body(body: bytes, *, compressed: bool) -> tuple[DataVersion | None, Topics] | None:
    """Read the version, None where it says none, and the topics. Returns: None for a body that is refused.

    Spec: HA-R-34 "MUST read the body of a registration as JSON, and as the zlib stream below if compressed is true", "A body
    that it cannot read MUST be refused with SYSTEM_ERROR, and change nothing".
    """
    if not body:
        return DataVersion(0, 0), ()
    try:
        version, topics = _inflated(body) if compressed else _of_json(_json(body))
    except (ValueError, TypeError, zlib.error, RecursionError):
        return None
    return (version, topics) if all(may_be_kept(name) for name, _ in topics) else None


def may_be_kept(name: str) -> bool:
    """HA-R-56 "or a longer name, or one with a control character"."""
    return len(name) <= NAME_MAX and not any(character < " " or character == "\x7f" for character in name)


def _json(data: bytes) -> Any:
    """Raises: ValueError for what is no JSON, or holds half of a surrogate pair."""

    def refuse(word: str) -> None:
        raise ValueError(word)  # json itself takes NaN

    found = json.loads(data.decode("utf-8"), parse_constant=refuse)
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    return found


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(found)
    return found


def _part(found: dict[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return {} if part is None else _object(part)


def _integer(found: Any, bits: int) -> int:
    if type(found) is not int or not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise ValueError(found)
    return found


def _version(found: Any) -> DataVersion:
    said = _object(found)
    return DataVersion(*(_integer(said.get(name, 0), 64) for name in ("counter", "timestamp", "stateVersion")))


def _of_json(found: Any) -> tuple[DataVersion | None, Topics]:
    """A part that is missing, or null, is empty."""
    wrapper = _part(_object(found), "topicConfigSerializeWrapper")
    version, table = wrapper.get("dataVersion"), _part(wrapper, "topicConfigTable")
    return None if version is None else _version(version), tuple(_topic(config) for config in table.values())


def _topic(found: Any) -> tuple[str, QueueData]:
    config = _object(found)
    name = config.get("topicName")
    if not isinstance(name, str):
        raise TypeError(name)
    defaults = {"readQueueNums": QUEUE_NUMS, "writeQueueNums": QUEUE_NUMS, "perm": PERM, "topicSysFlag": 0}
    return name, QueueData(*(_integer(config.get(field, default), 32) for field, default in defaults.items()))


def _inflated(body: bytes) -> tuple[DataVersion, Topics]:
    """What follows the topics, the filter servers and the mappings of static topics, does not count. HA-R-34 "filter type of a
    topic does not count".
    """
    inflate = zlib.decompressobj()
    data = inflate.decompress(body, INFLATED_MAX)
    if not inflate.eof:
        raise ValueError("the stream is cut, or too long")
    version, at = _sized(data, 0)
    count, at = _number(data, at)
    topics = []
    for _ in range(count):
        config, at = _sized(data, at)
        words = [word.decode("utf-8") for word in config.split(b" ")[:5]]
        name, *numbers, kind = words
        if not all(NUMBER.fullmatch(number) for number in numbers):
            raise ValueError(numbers)
        read, write, perm = (_integer(int(number), 32) for number in numbers)
        if kind not in FILTER_TYPES:
            raise ValueError(kind)
        topics.append((name, QueueData(read, write, perm)))
    return _version(_json(version)), tuple(topics)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An i32, and where the next field begins."""
    if at + 4 > len(data):
        raise ValueError(at)
    return int.from_bytes(data[at : at + 4], "big", signed=True), at + 4


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    """An i32 size with so many bytes, and where the next field begins."""
    size, at = _number(data, at)
    if size < 0 or at + size > len(data):
        raise ValueError(size)
    return data[at : at + size], at + size
