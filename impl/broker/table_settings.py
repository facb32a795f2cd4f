"""The settings of the broker's tables, by RocketMQ's names in snake case with RocketMQ's defaults, and the tables' bounds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings of BrokerConfig. The bounds at the end are ours: RocketMQ has none (HA-BT-60)."""

    broker_name: str = "DEFAULT_BROKER"
    broker_cluster_name: str = "DefaultCluster"
    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    auto_create_subscription_group: bool = True
    notify_consumer_ids_changed_enable: bool = True
    flush_consumer_offset_interval: int = 5_000  # ms

    max_topics: int = 37_000  # each of 419 bytes as JSON, at most: the answer to 21 is a frame, of 16 MiB
    max_queue_nums: int = 8_192  # read or write queues of one topic that a request creates
    max_groups: int = 20_000  # each of 792 bytes: the same for the answer to 201
    max_offset_entries: int = 1_000_000  # offsets of consumers, each of one group and queue
    max_offset_key_length: int = 518  # characters of topic@group: the longest retry topic, and the longest group
    max_offset_size: int = 16_000_000  # bytes of all offsets as JSON: the answer to 43 is a frame, of 16 MiB (HA-BT-76)
    max_client_groups: int = 1_000  # producer and consumer groups of one connection
    max_subscriptions: int = 10_000  # topics that one consumer group subscribes to
    max_clients_size: int = 256 << 20  # bytes, about: what the heartbeats of all connections make the broker hold (HA-BT-75)
    max_locks: int = 1_000_000  # queues that consumers hold locks of
