"""What a pull asks of the broker's tables and of a client's connection. The tables have more."""

from collections.abc import Hashable
from typing import Protocol

from rocketmq_ha.impl.broker.filter import Subscription
from rocketmq_ha.impl.remoting.command import RemotingCommand


class Topic(Protocol):
    """The configuration of a topic."""

    @property
    def perm(self) -> int: ...
    @property
    def read_queue_nums(self) -> int: ...


class Topics(Protocol):
    """topic_config.py."""

    def select_topic_config(self, topic: str) -> Topic | None: ...


class Group(Protocol):
    """The configuration of a consumer group."""

    @property
    def consume_enable(self) -> bool: ...
    @property
    def consume_broadcast_enable(self) -> bool: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def which_broker_when_consume_slowly(self) -> int: ...


class Groups(Protocol):
    """groups.py."""

    def find_subscription_group_config(self, group: str) -> Group | None: ...


class ConsumerGroup(Protocol):
    """How the connected consumers of a group consume."""

    @property
    def message_model(self) -> str: ...


class Consumers(Protocol):
    """clients.py."""

    def get_consumer_group_info(self, group: str) -> ConsumerGroup | None: ...
    def find_subscription_data(self, group: str, topic: str) -> Subscription | None: ...


class Offsets(Protocol):
    """consumer_offsets.py."""

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> object: ...


class Channel(Hashable, Protocol):
    """A connection of a client."""

    @property
    def peer(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    def answer(self, response: RemotingCommand) -> None: ...
