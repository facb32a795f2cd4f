"""The topics of a broker: their queues, permissions and flags, kept in `config/topics.json`.

In a broker's process this is the only writer of that file. A topic is in the file before its first message is stored.

Spec: HA-BT-10 to HA-BT-19.  Source: 4.9.8 TopicConfigManager, TopicConfig, PermName.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.broker.config_file import ConfigFile, KeptFile
from rocketmq_ha.impl.broker.config_table import COUNTS, ConfigTable, read_bool, read_int, read_str
from rocketmq_ha.impl.broker.data_version import DataVersion
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_validator import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    RMQ_SYS_BENCHMARK_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    invalid_topic,
)
from rocketmq_ha.impl.clock import wall_clock_ms

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"
SCHEDULE_TOPIC_QUEUE_NUM: Final = 18
_BENCHMARK_QUEUE_NUM: Final = 1024
_KNOWN: Final = frozenset(("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order"))


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic. unknown: of other releases. HA-BT-8 "SHOULD keep the fields"."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    unknown: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writeable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


def topic_fields(config: TopicConfig) -> dict[str, object]:
    """The JSON object of a topic. HA-BT-7 "MUST have the fields that a Java broker reads"."""
    return {
        **config.unknown,
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic_name,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }


def read_topic(name: str, fields: Mapping[str, object]) -> TopicConfig:
    """A topic from its JSON object; a field that is missing has RocketMQ's default.

    Raises: ConfigInvalid. HA-BT-77 "MUST take a file of `config/` for damaged".
    """
    return TopicConfig(
        name,
        read_int(name, fields, "readQueueNums", 16, COUNTS),
        read_int(name, fields, "writeQueueNums", 16, COUNTS),
        read_int(name, fields, "perm", PERM_READ | PERM_WRITE),
        read_str(name, fields, "topicFilterType", SINGLE_TAG),
        read_int(name, fields, "topicSysFlag", 0),
        read_bool(name, fields, "order", False),
        {field: value for field, value in fields.items() if field not in _KNOWN},
    )


class TopicConfigManager:
    """The topics of one broker.

    on_change: called with the topics that were created or changed and are to be registered now; the broker sets it.
    HA-BT-13 "MUST be registered with the name servers at once". queue_nums_of: of a slave, the number of queues of a topic of
    its log, 0 for none.
    """

    def __init__(
        self,
        store_dir: Path,
        settings: TableSettings,
        wall_clock: Callable[[], int] = wall_clock_ms,
        file: KeptFile | None = None,
    ) -> None:
        file = file or ConfigFile(store_dir / "config" / "topics.json")
        self._settings = settings
        self.table: Final = ConfigTable(file, "topicConfigTable", read_topic, topic_fields, wall_clock)
        self.on_change: Callable[[Collection[TopicConfig]], None] = lambda _: None
        self.queue_nums_of: Callable[[str], int] = lambda _: 0
        for config in system_topics(settings):
            self.table.begin_with(config.topic_name, config)
        # HA-BT-11: topics that this broker makes by itself, which no request may create, change or delete
        self.own_system_topics: Final = frozenset(self.table)

    @property
    def data_version(self) -> DataVersion:
        return self.table.data_version

    @property
    def topic_config_table(self) -> Mapping[str, TopicConfig]:
        """All topics, by name."""
        return self.table.entries

    def load(self) -> bool:
        """Read the file; its topics replace those that every broker begins with. Raises: ConfigInvalid, OSError."""
        return self.table.load()

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """The settings of a topic; None if there is no such topic.

        HA-MD-35 "MUST answer as for a topic with the perm 6": of a slave's log alone.
        """
        found = self.table.get(topic)
        if found is None and (nums := self.queue_nums_of(topic)):
            return TopicConfig(topic, nums, nums)
        return found

    def create_topic_in_send_message_method(
        self, topic: str, default_topic: str, remote_address: str, client_default_topic_queue_nums: int, topic_sys_flag: int,
    ) -> TopicConfig | None:  # fmt: skip
        """The topic of a message that is sent; it is created after its default topic if it is not there.

        HA-BT-12 "MUST create it after the message's default topic".
        Returns: None if it is not there, and may not be created.
        """
        if (found := self.table.get(topic)) is not None:
            return found
        default = self.table.get(default_topic)
        if default is None:
            logger.warning(
                "%s: topic %s is not created: its default topic %s is not there", remote_address, topic, default_topic
            )
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not self._settings.auto_create_topic_enable:
            default = replace(default, perm=PERM_READ | PERM_WRITE)
            self.table.begin_with(default_topic, default)
        if not default.perm & PERM_INHERIT:
            logger.warning("%s: topic %s is not created: found perm %d of %s, expected the bit to inherit", remote_address,
                           topic, default.perm, default_topic)  # fmt: skip
            return None
        queue_nums = max(0, min(client_default_topic_queue_nums, default.write_queue_nums))
        perm = default.perm & ~PERM_INHERIT
        return self._create(TopicConfig(topic, queue_nums, queue_nums, perm, default.topic_filter_type, topic_sys_flag))

    def create_topic_in_send_message_back_method(
        self, topic: str, client_default_topic_queue_nums: int, perm: int, topic_sys_flag: int
    ) -> TopicConfig | None:
        """The retry topic or the dead-letter topic of a group; it is created if it is not there.

        Returns: None if the table is full, or by HA-BT-78 "whose name breaks HA-BT-14 MUST NOT be created".
        """
        if (found := self.table.get(topic)) is not None:
            return found
        if (why := invalid_topic(topic)) is not None:
            logger.debug("topic %.300s is not created: %s", topic, why)
            return None
        nums = max(0, client_default_topic_queue_nums)  # a group's `retryQueueNums` may be negative, a topic's queues not
        return self._create(TopicConfig(topic, nums, nums, perm, topic_sys_flag=topic_sys_flag))

    def create_topic_of_tran_check_max_time(self, client_default_topic_queue_nums: int, perm: int) -> TopicConfig | None:
        """The topic of half messages that were checked too often; it is created if it is not there."""
        return self.create_topic_in_send_message_back_method(
            RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, client_default_topic_queue_nums, perm, 0
        )

    def update_topic_config(self, config: TopicConfig) -> bool:
        """Create a topic, or replace its settings. Returns: False, with nothing done, if the table is full."""
        if config.topic_name not in self.table and self._is_full(config.topic_name):
            return False
        self.table.put(config.topic_name, config)
        self.on_change([config])
        return True

    def update_order_topic_config(self, order_topics: Collection[str]) -> None:
        """HA-BT-16 "MUST have `order` true, and all others false": the topics that the name server lists as ordered."""
        changed = {
            name: replace(config, order=name in order_topics)
            for name, config in self.table.entries.items()
            if config.order != (name in order_topics)
        }
        self.table.put_all(changed)

    def is_order_topic(self, topic: str) -> bool:
        config = self.table.get(topic)
        return config is not None and config.order

    def delete_topic_config(self, topic: str) -> bool:
        """Remove a topic. Returns: whether it was there. HA-BT-15: it is not registered at once."""
        return self.table.remove(topic)

    def note_queues(self, queue_nums: Mapping[str, int]) -> bool:
        """Add topics that the store has queues of, and that the file lacks; HA-BT-18 "MUST add the topics".

        Args:  queue_nums: for each topic the greatest id of its queues, plus one.
        Returns: whether anything changed. A topic that is there gets more queues if the store has more.
        """
        changed = {}
        for name, nums in queue_nums.items():
            config = self.table.get(name) or TopicConfig(name, 0, 0)
            more = replace(
                config, read_queue_nums=max(nums, config.read_queue_nums), write_queue_nums=max(nums, config.write_queue_nums)
            )
            if more != config or name not in self.table:
                changed[name] = more
        self.table.put_all(changed)
        if changed:
            self.on_change(list(changed.values()))
        return bool(changed)

    def encode(self) -> bytes:
        """The answer to GET_ALL_TOPIC_CONFIG. HA-MD-22 "MUST have `dataVersion` and `topicConfigTable`"."""
        return self.table.encode()

    def persist(self) -> bool:
        return self.table.persist()

    def on_tick(self, now_ms: int) -> None:
        """See ConfigTable.on_tick."""
        self.table.on_tick(now_ms)

    def _create(self, config: TopicConfig) -> TopicConfig | None:
        if self._is_full(config.topic_name):
            return None
        self.table.put(config.topic_name, config)
        self.on_change([config])
        return config

    def _is_full(self, topic: str) -> bool:
        full = len(self.table) >= self._settings.max_topics
        if full:
            logger.warning("topic %s is not created: found %d topics, expected fewer", topic, len(self.table))
        return full


def system_topics(settings: TableSettings) -> list[TopicConfig]:
    """The topics that every broker begins with. HA-BT-10 "MUST begin with the topics of the table below"."""
    read_write = PERM_READ | PERM_WRITE
    queue_nums = settings.default_topic_queue_nums
    cluster, broker = settings.broker_cluster_name, settings.broker_name
    topics = [
        TopicConfig(RMQ_SYS_SELF_TEST_TOPIC, 1, 1),
        TopicConfig(RMQ_SYS_BENCHMARK_TOPIC, _BENCHMARK_QUEUE_NUM, _BENCHMARK_QUEUE_NUM),
        TopicConfig(cluster, perm=PERM_INHERIT | (read_write if settings.cluster_topic_enable else 0)),
        TopicConfig(broker, 1, 1, PERM_INHERIT | (read_write if settings.broker_topic_enable else 0)),
        TopicConfig(RMQ_SYS_OFFSET_MOVED_EVENT, 1, 1),
        TopicConfig(RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM, SCHEDULE_TOPIC_QUEUE_NUM),
        TopicConfig(f"{cluster}_REPLY_TOPIC", 1, 1),
    ]
    if settings.auto_create_topic_enable:
        topics.append(TopicConfig(AUTO_CREATE_TOPIC_KEY_TOPIC, queue_nums, queue_nums, PERM_INHERIT | read_write))
    if settings.trace_topic_enable:
        topics.append(TopicConfig(settings.msg_trace_topic_name, 1, 1))
    return topics
