"""What a broker says of itself in a registration, code 103: the fields of its header, and its topics in the body.

    i32 size, DataVersion as JSON
    i32 count, and for each:  i32 size, "name readQueueNums writeQueueNums perm topicFilterType", of 5.x with attributes behind
    then what a name server does not use: filter servers, mappings of static topics

is the compressed form of the body, a zlib stream; else it is JSON.
"""

import re
import zlib
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import msgspec

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.namesrv.route_data import I32, DataVersion, QueueData
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.spec.constants import BODY_CRC_MASK, REMOTING_FRAME_MAX

NAME_MAX: Final = 512  # characters of a topic, group, cluster or address
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SIZE: Final = Struct(">i")
_TOPIC: Final = re.compile(
    rb"([^ ]*) ([+-]?[0-9]{1,20}) ([+-]?[0-9]{1,20}) ([+-]?[0-9]{1,20}) (?:SINGLE_TAG|MULTI_TAG)(?: .*)?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Registration:
    """data_version: None where the broker says none. topics: each by its name."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    data_version: DataVersion | None
    topics: dict[str, QueueData] = field(default_factory=dict)
    heartbeat_timeout_ms: int | None = None
    gives_acting_master: bool = False  # whether it has the field enableActingMaster, of whatever value


class _TopicConfig(msgspec.Struct, gc=False, rename="camel"):
    topic_name: str
    read_queue_nums: I32 = 16
    write_queue_nums: I32 = 16
    perm: I32 = 6
    topic_sys_flag: I32 = 0


class _Wrapper(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, _TopicConfig] | None = None
    data_version: DataVersion | None = None


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper | None = None


def read_registration(request: RemotingCommand, max_topics: int) -> Registration:
    """Read a request of code 103.

    Raises: RequestInvalid, also for more than `max_topics`, of which no more than their count is read then.
    Spec: HA-R-32 "MUST refuse a registration, code 103, whose header lacks a field of the table that is not optional".
    """
    name = short(fields.text(request, "brokerName"), "brokerName")
    check_crc(request.body, fields.optional_i32(request, "bodyCrc32", 0))
    compressed = fields.optional_boolean(request, "compressed")
    data_version, topics = read_body(request.body, name, max_topics, compressed=compressed)
    return Registration(
        short(fields.text(request, "clusterName"), "clusterName"),
        name,
        fields.i64(request, "brokerId"),
        short(fields.text(request, "brokerAddr"), "brokerAddr"),
        short(fields.text(request, "haServerAddr"), "haServerAddr"),
        data_version,
        topics,
        fields.optional_i64(request, "heartbeatTimeoutMillis"),
        "enableActingMaster" in request.ext_fields,
    )


def short(name: str, what: str) -> str:
    """Return a name that is to be kept. Raises: RequestInvalid.

    Spec: HA-R-56 "or a longer name, or one with a control character": names are written to the log.
    """
    if len(name) > NAME_MAX:
        raise RequestInvalid(what, f"{len(name)} characters", f"at most {NAME_MAX}")
    if not name.isprintable() and (found := _CONTROL.search(name)) is not None:
        raise RequestInvalid(what, f"the character {ord(found[0])}", "none below 32, and not 127")
    return name


def check_crc(body: bytes, body_crc32: int) -> None:
    """Raises: RequestInvalid.

    Spec: HA-R-33 "whose bodyCrc32 is not 0, and not the CRC-32 of the body as it was sent without its highest bit, MUST be
    refused with SYSTEM_ERROR".
    """
    found = zlib.crc32(body) & BODY_CRC_MASK
    if body_crc32 not in (0, found):
        raise RequestInvalid("bodyCrc32", body_crc32, f"{found}, the CRC-32 of the body")


def read_body(
    body: bytes, broker_name: str, max_topics: int, *, compressed: bool
) -> tuple[DataVersion | None, dict[str, QueueData]]:
    """Read the version and the topics, as the queues of the group `broker_name`.

    Raises: RequestInvalid.
    Spec: HA-R-34 "MUST read the body of a registration as JSON, and as the zlib stream below if compressed is true", "A body
    that it cannot read MUST be refused with SYSTEM_ERROR, and change nothing".
    """
    if not body:
        return DataVersion(), {}
    if compressed:
        return _inflated(body, broker_name, max_topics)
    found: _Body = body_json.read_as(body, _Body)
    wrapper = found.topic_config_serialize_wrapper or _Wrapper()
    table = wrapper.topic_config_table or {}
    _check_count(len(table), max_topics)
    topics = {
        short(config.topic_name, "topic"): QueueData(
            broker_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
        )
        for config in table.values()
    }
    return wrapper.data_version, topics


def _check_count(count: int, max_topics: int) -> None:
    """HA-R-56 "so MUST a registration that names more topics": it must not hold up the others. Raises: RequestInvalid."""
    if count > max_topics:
        raise RequestInvalid("topics", count, f"at most {max_topics} (--max-topics)")


def _inflated(body: bytes, broker_name: str, max_topics: int) -> tuple[DataVersion, dict[str, QueueData]]:
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(body, REMOTING_FRAME_MAX)
    except zlib.error:
        raise RequestInvalid("body", "bytes that are none", "a zlib stream, since compressed is true") from None
    if not inflate.eof:
        found = f"more than {REMOTING_FRAME_MAX} bytes" if len(data) == REMOTING_FRAME_MAX else "a stream that is cut"
        raise RequestInvalid("body", found, "a zlib stream of fewer")
    items = _Items(data)
    data_version: DataVersion = body_json.read_as(items.sized(), DataVersion, "dataVersion")
    topics = {}
    count = items.number()
    _check_count(count, max_topics)
    for _ in range(count):
        name, queue_data = _topic(items.sized(), broker_name)
        topics[short(name, "topic")] = queue_data
    return data_version, topics


class _Items:
    """Reads the parts of an inflated body one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self) -> int:
        """Raises: RequestInvalid."""
        self._need(_SIZE.size)
        (number,) = _SIZE.unpack_from(self._data, self._at)
        self._at += _SIZE.size
        return int(number)

    def sized(self) -> bytes:
        """Raises: RequestInvalid."""
        size = self.number()
        self._need(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def _need(self, size: int) -> None:
        left = len(self._data) - self._at
        if not 0 <= size <= left:
            raise RequestInvalid("body", f"a part of {size} bytes where {left} are left", "whole parts")


def _topic(config: bytes, broker_name: str) -> tuple[str, QueueData]:
    """HA-R-34 "filter type of a topic does not count". Raises: RequestInvalid."""
    if (found := _TOPIC.fullmatch(config)) is None:
        raise RequestInvalid("topic", repr(config[:100]), "its name, three numbers and SINGLE_TAG or MULTI_TAG")
    numbers = [int(number) for number in found.groups()[1:]]
    if not all(-(1 << 31) <= number < 1 << 31 for number in numbers):
        raise RequestInvalid("topic", repr(config[:100]), "numbers of 32 bits")
    try:
        return found[1].decode("utf-8"), QueueData(broker_name, *numbers)
    except UnicodeDecodeError:
        raise RequestInvalid("topic", repr(config[:100]), "a name in UTF-8") from None
