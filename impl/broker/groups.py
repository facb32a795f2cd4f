"""The consumer groups of a broker with their settings, kept in `config/subscriptionGroup.json`.

Spec: HA-BT-20 to HA-BT-23.  Source: 4.9.8 SubscriptionGroupManager, SubscriptionGroupConfig, MixAll.isSysConsumerGroup.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.broker import body_fields
from rocketmq_ha.impl.broker.config_file import ConfigFile, KeptFile
from rocketmq_ha.impl.broker.config_table import I64, ConfigTable, read_bool, read_int
from rocketmq_ha.impl.broker.data_version import DataVersion
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_validator import is_topic_or_group_illegal
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import RequestInvalid

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

CID_RMQ_SYS_PREFIX: Final = "CID_RMQ_SYS_"
RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
SYSTEM_GROUPS: Final = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
    *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
)
GROUP_MAX_LENGTH: Final = 255  # characters: what clients of 4.9.8 allow
# the fields of a group's JSON object besides its name: field, attribute, default
GROUP_FIELDS: Final[tuple[tuple[str, str, bool | int], ...]] = (
    ("brokerId", "broker_id", 0),
    ("consumeBroadcastEnable", "consume_broadcast_enable", True),
    ("consumeEnable", "consume_enable", True),
    ("consumeFromMinEnable", "consume_from_min_enable", True),
    ("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", True),
    ("retryMaxTimes", "retry_max_times", 16),
    ("retryQueueNums", "retry_queue_nums", 1),
    ("whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", 1),
)
_KNOWN: Final = frozenset(("groupName", *(field for field, _, _ in GROUP_FIELDS)))


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """The settings of a consumer group. unknown: fields of other releases (HA-BT-8 "SHOULD keep the fields")."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0  # the broker that a consumer is told to pull from next
    which_broker_when_consume_slowly: int = 1  # the same for a consumer that lags by more than the memory bound
    notify_consumer_ids_changed_enable: bool = True
    unknown: Mapping[str, object] = field(default_factory=dict, hash=False)


def group_fields(config: SubscriptionGroupConfig) -> dict[str, object]:
    """The JSON object of a group. HA-BT-7 "MUST have the fields that a Java broker reads"."""
    known = {field: getattr(config, attribute) for field, attribute, _ in GROUP_FIELDS}
    return {**config.unknown, "groupName": config.group_name, **known}


def read_group(name: str, fields: Mapping[str, object]) -> SubscriptionGroupConfig:
    """A group from its JSON object; a field that is missing has RocketMQ's default. Raises: ConfigInvalid."""
    return SubscriptionGroupConfig(
        name,
        read_bool(name, fields, "consumeEnable", True),
        read_bool(name, fields, "consumeFromMinEnable", True),
        read_bool(name, fields, "consumeBroadcastEnable", True),
        read_int(name, fields, "retryQueueNums", 1),
        read_int(name, fields, "retryMaxTimes", 16),
        read_int(name, fields, "brokerId", 0, I64),
        read_int(name, fields, "whichBrokerWhenConsumeSlowly", 1, I64),
        read_bool(name, fields, "notifyConsumerIdsChangedEnable", True),
        {field: value for field, value in fields.items() if field not in _KNOWN},
    )


class SubscriptionGroupManager:
    """The groups of one broker. HA-BT-20 "MUST begin with the groups"."""

    def __init__(
        self,
        store_dir: Path,
        settings: TableSettings,
        wall_clock: Callable[[], int] = wall_clock_ms,
        file: KeptFile | None = None,
    ) -> None:
        file = file or ConfigFile(store_dir / "config" / "subscriptionGroup.json")
        self._settings = settings
        self.table: Final = ConfigTable(file, "subscriptionGroupTable", read_group, group_fields, wall_clock)
        for name in SYSTEM_GROUPS:
            self.table.begin_with(name, SubscriptionGroupConfig(name))

    @property
    def data_version(self) -> DataVersion:
        return self.table.data_version

    @property
    def subscription_group_table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups, by name."""
        return self.table.entries

    def load(self) -> bool:
        """Read the file; its groups replace those that every broker begins with. Raises: ConfigInvalid, OSError."""
        return self.table.load()

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """The settings of a group. HA-BT-21 "that is not there MUST be created with the defaults".

        Returns: None if it is not there, and may not be created.
        Raises: RequestInvalid if it would be created with a name that is no group's (HA-BT-22).
        """
        found = self.table.get(group)
        if found is not None:
            return found
        if not self._settings.auto_create_subscription_group and not group.startswith(CID_RMQ_SYS_PREFIX):
            return None
        check_group_name(group)
        if self._is_full(group):
            return None
        config = SubscriptionGroupConfig(group)
        self.table.put(group, config)
        return config

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> bool:
        """Create a group, or replace its settings. Returns: False, with nothing done, if the table is full."""
        if config.group_name not in self.table and self._is_full(config.group_name):
            return False
        self.table.put(config.group_name, config)
        return True

    def delete_subscription_group_config(self, group: str) -> bool:
        """Remove a group. Returns: whether it was there."""
        return self.table.remove(group)

    def encode(self) -> bytes:
        """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG. HA-MD-25 "MUST have `subscriptionGroupTable` and `dataVersion`"."""
        return self.table.encode()

    def persist(self) -> bool:
        return self.table.persist()

    def on_tick(self, now_ms: int) -> None:
        """See ConfigTable.on_tick."""
        self.table.on_tick(now_ms)

    def _is_full(self, group: str) -> bool:
        full = len(self.table) >= self._settings.max_groups
        if full:
            logger.warning("group %s is not created: found %d groups, expected fewer", group, len(self.table))
        return full


def check_group_name(name: str) -> None:
    """HA-BT-22 "MUST be refused with SYSTEM_ERROR". Raises: RequestInvalid."""
    if not name or len(name) > GROUP_MAX_LENGTH or is_topic_or_group_illegal(name):
        raise RequestInvalid(
            "groupName", body_fields.shown(name), f"1 to {GROUP_MAX_LENGTH} of the characters ^[%|a-zA-Z0-9_-]+$"
        )


def retry_topic(group: str) -> str:
    """The topic of messages that a group will consume again."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of messages that a group has failed to consume too often."""
    return DLQ_GROUP_TOPIC_PREFIX + group
