"""The route of a topic as a client reads it, and the queues that it means. Nothing here does I/O.

Source: 4.9.8 TopicRouteData, MQClientInstance.topicRouteData2TopicPublishInfo and topicRouteData2TopicSubscribeInfo.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import body_json

MASTER_ID: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2
TBW102: Final = "TBW102"
DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
MOST_QUEUES: Final = 65_536  # of one topic

_I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class MessageQueue(NamedTuple):
    """A queue. broker_name: the name of its group of brokers."""

    topic: str
    broker_name: str
    queue_id: int


class QueueData(msgspec.Struct, frozen=True, rename="camel"):
    """What a group has of the topic."""

    broker_name: str
    read_queue_nums: _I32 = 0
    write_queue_nums: _I32 = 0
    perm: _I32 = 0


class BrokerData(msgspec.Struct, frozen=True, rename="camel"):
    """A group: the addresses of its brokers by id."""

    broker_name: str
    broker_addrs: dict[int, str]
    cluster: str | None = None


class TopicRoute(msgspec.Struct, frozen=True, rename="camel"):
    """A route. order_topic_conf: `name:count;name:count`, for an ordered topic."""

    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    order_topic_conf: str | None = None

    def addrs(self, broker_name: str) -> dict[int, str]:
        """The addresses of a group by id; none for a group that is not in the route."""
        return next((data.broker_addrs for data in self.broker_datas if data.broker_name == broker_name), {})


def read_route(body: bytes) -> TopicRoute:
    """Read the answer to 105.

    Raises: RequestInvalid, also for more queues than a topic can sensibly have: their list would be made.
    Spec: HA-C-15 "MUST bound what an answer can make it hold: the queues of a route".
    """
    route: TopicRoute = body_json.read_as(body, TopicRoute, "route")
    for name, nums in (
        ("readQueueNums", sum(max(0, data.read_queue_nums) for data in route.queue_datas)),
        ("writeQueueNums", sum(max(0, data.write_queue_nums) for data in route.queue_datas)),
        ("orderTopicConf", sum(max(0, nums) for _, nums in _order_topic_conf(route.order_topic_conf))),
    ):
        if nums > MOST_QUEUES:
            raise RequestInvalid(f"route {name}", f"{nums} queues", f"at most {MOST_QUEUES}")
    return route


def _order_topic_conf(text: str | None) -> list[tuple[str, int]]:
    """The groups and counts of an orderTopicConf. Raises: RequestInvalid."""
    items = []
    for part in (text or "").split(";"):
        if not part:
            continue
        name, _, nums = part.partition(":")
        if not (nums.isascii() and nums.isdecimal() and len(nums) < 10):
            raise RequestInvalid("orderTopicConf", repr((text or "")[:60]), "name:count, several with ; between")
        items.append((name, int(nums)))
    return items


def default_route(route: TopicRoute) -> TopicRoute:
    """The route of a topic that a broker is to make. HA-C-3 "with no more than 4 queues of each broker"."""
    datas = []
    for data in route.queue_datas:
        nums = min(DEFAULT_TOPIC_QUEUE_NUMS, data.read_queue_nums)
        datas.append(msgspec.structs.replace(data, read_queue_nums=nums, write_queue_nums=nums))
    return msgspec.structs.replace(route, queue_datas=datas)


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues to send to, in their order.

    Spec: HA-C-4 "MUST send only to the write queues of groups that may be written", "to the queues that it names"; HA-C-5
    "sorted by the name of their group and their number".
    """
    if route.order_topic_conf:
        conf = _order_topic_conf(route.order_topic_conf)
        return [MessageQueue(topic, name, queue_id) for name, nums in conf for queue_id in range(nums)]
    queues = []
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        if data.perm & PERM_WRITE and MASTER_ID in route.addrs(data.broker_name):
            queues += [MessageQueue(topic, data.broker_name, queue_id) for queue_id in range(data.write_queue_nums)]
    return queues


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues to pull from: the read queues of the groups that may be read."""
    readable = (data for data in route.queue_datas if data.perm & PERM_READ)
    return sorted(MessageQueue(topic, data.broker_name, at) for data in readable for at in range(data.read_queue_nums))
