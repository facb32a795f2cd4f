"""What a name server holds and answers, as RocketMQ's JSON: the field names are RocketMQ's, in snake case here."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class DataVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How often a broker's topics have changed, when, and under which term of a controller.

    Two are equal as HA-MD-12 says; releases before 5.0.0 have no stateVersion, which then is 0.
    """

    counter: I64 = 0
    timestamp: I64 = 0
    state_version: I64 = 0


class QueueData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a group has of a topic."""

    broker_name: str
    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    perm: I32 = 0
    topic_sys_flag: I32 = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """A group: the addresses of its brokers by id. cluster: the one that it was first registered with."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class TopicRouteData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to code 105. Since 4.3.0 there are no filter servers, but clients look for their table."""

    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: Mapping[str, list[str]]
    order_topic_conf: str | None = None


_ENCODER: Final = msgspec.json.Encoder()


def to_json(value: object) -> bytes:
    """Standard JSON. HA-R-49 "all its keys in quotes": broker ids too."""
    return _ENCODER.encode(value)
