"""The tables of topics and consumer groups of a broker: what they begin with, and what each request makes of them.

The tables are values: each function returns new ones. A table's object, as its file and its answer have it, is `table_object`.

Spec: HA-BT-1 to HA-BT-8, HA-BT-10 to HA-BT-24, HA-BT-60, HA-BT-77, HA-BT-78.
Source: 4.9.8 TopicConfigManager, SubscriptionGroupManager, TopicValidator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from string import ascii_letters, digits
from typing import Final

from rocketmq_ha.reference.replace import replace

READ: Final = 4
WRITE: Final = 2
INHERIT: Final = 1
SYSTEM_TOPICS: Final = (
    *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
)
SYSTEM_GROUPS: Final = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
    *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
)
NAME_CHARACTERS: Final = frozenset(ascii_letters + digits + "%|_-")


@dataclass(frozen=True, slots=True)
class Settings:
    """The broker's settings that the tables depend on, and their bounds."""

    broker_name: str = "DEFAULT_BROKER"
    cluster_name: str = "DefaultCluster"
    auto_create_topic: bool = True
    default_topic_queue_nums: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: str | None = None  # the topic of traces, if there is one
    auto_create_group: bool = True
    notify_ids_changed: bool = True
    max_topics: int = 37_000
    max_groups: int = 20_000
    max_offset_entries: int = 1_000_000
    max_offset_key_length: int = 518
    max_offset_size: int = 16_000_000
    max_locks: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Version:
    """HA-BT-1 "MUST each have a DataVersion, a counter and a timestamp". HA-MD-12 "MUST count as equal if": both are."""

    counter: int
    timestamp: int

    def after_change(self, now: int) -> "Version":
        """HA-BT-2 "MUST count its version on by one, and set the timestamp to the time of day"."""
        return Version(self.counter + 1, now)


@dataclass(frozen=True, slots=True)
class Topic:
    """HA-BT-7 "MUST have the fields that a Java broker reads". other: unknown ones (HA-BT-8 "SHOULD keep the fields")."""

    readQueueNums: int = 16  # noqa: N815  (the names of the JSON)
    writeQueueNums: int = 16  # noqa: N815
    perm: int = READ + WRITE
    topicFilterType: str = "SINGLE_TAG"  # noqa: N815
    topicSysFlag: int = 0  # noqa: N815
    order: bool = False
    other: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The settings of a consumer group, with the defaults of HA-BT-7. other: fields that are not known."""

    consumeEnable: bool = True  # noqa: N815
    consumeFromMinEnable: bool = True  # noqa: N815
    consumeBroadcastEnable: bool = True  # noqa: N815
    retryQueueNums: int = 1  # noqa: N815
    retryMaxTimes: int = 16  # noqa: N815
    brokerId: int = 0  # noqa: N815
    whichBrokerWhenConsumeSlowly: int = 1  # noqa: N815
    notifyConsumerIdsChangedEnable: bool = True  # noqa: N815
    other: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """The topics and the groups. registered: the topics to register now, after the last step (HA-BT-13)."""

    settings: Settings
    topics: Mapping[str, Topic]
    topic_version: Version
    groups: Mapping[str, Group]
    group_version: Version
    registered: tuple[str, ...] = field(default=(), compare=False)


def begin(settings: Settings, now: int) -> Tables:
    """A broker begins. HA-BT-10 "MUST begin with the topics of the table below"; HA-BT-20 "MUST begin with the groups"."""
    usable = INHERIT + READ + WRITE
    topics = {
        "SELF_TEST_TOPIC": Topic(1, 1),
        "BenchmarkTest": Topic(1024, 1024),
        settings.cluster_name: Topic(perm=usable if settings.cluster_topic else INHERIT),
        settings.broker_name: Topic(1, 1, usable if settings.broker_topic else INHERIT),
        "OFFSET_MOVED_EVENT": Topic(1, 1),
        "SCHEDULE_TOPIC_XXXX": Topic(18, 18),
        settings.cluster_name + "_REPLY_TOPIC": Topic(1, 1),
    }
    if settings.auto_create_topic:
        topics["TBW102"] = Topic(settings.default_topic_queue_nums, settings.default_topic_queue_nums, usable)
    if settings.trace_topic is not None:
        topics[settings.trace_topic] = Topic(1, 1)
    return Tables(settings, topics, Version(0, now), {name: Group() for name in SYSTEM_GROUPS}, Version(0, now))


# --- Topics ----------------------------------------------------------------------------------------------------------


def is_topic_name(name: str) -> bool:
    """False for names that HA-BT-14 "MUST be refused with SYSTEM_ERROR" is about."""
    return 0 < len(name) < 128 and all(character in NAME_CHARACTERS for character in name)


def is_system_topic(tables: Tables, name: str) -> bool:
    """HA-BT-11 "a system topic MUST be refused with SYSTEM_ERROR": whether it is one."""
    return name in SYSTEM_TOPICS or name.startswith("rmq_sys_") or name in begin(tables.settings, 0).topics


def create_topic_for_message(tables: Tables, name: str, default: str, client_nums: int, flag: int, now: int) -> Tables:
    """HA-BT-12 "MUST create it after the message's default topic": the topic is in the result if the message may be stored."""
    # GUARD
    if name in tables.topics or default not in tables.topics:
        return replace(tables, registered=())
    model = tables.topics[default]
    topics = tables.topics
    if default == "TBW102" and not tables.settings.auto_create_topic:
        model = replace(model, perm=READ + WRITE)
        topics = {**topics, default: model}
        tables = replace(tables, topics=topics)
    if model.perm % 2 == 0 or len(topics) >= tables.settings.max_topics:
        return replace(tables, registered=())
    # STATE
    nums = client_nums if client_nums < model.writeQueueNums else model.writeQueueNums
    nums = nums if nums > 0 else 0
    made = Topic(nums, nums, model.perm - INHERIT, model.topicFilterType, flag)
    return _changed(tables, {**topics, name: made}, (name,), now)


def create_topic_for_group(tables: Tables, name: str, nums: int, perm: int, flag: int, now: int) -> Tables:
    """A retry topic or a dead-letter topic, if it is not there. HA-BT-13 "MUST be registered with the name servers at once".

    HA-BT-78 "whose name breaks HA-BT-14 MUST NOT be created". Less than no queue is none.
    """
    nums = 0 if nums < 0 else nums
    if name in tables.topics or not is_topic_name(name) or len(tables.topics) >= tables.settings.max_topics:
        return replace(tables, registered=())
    return _changed(tables, {**tables.topics, name: Topic(nums, nums, perm, "SINGLE_TAG", flag)}, (name,), now)


def update_topic(tables: Tables, name: str, topic: Topic, now: int) -> Tables:
    """HA-BT-17 "MUST replace all settings of the topic, or create it". HA-BT-60 "MUST bound each of its tables"."""
    if name not in tables.topics and len(tables.topics) >= tables.settings.max_topics:
        return replace(tables, registered=())
    return _changed(tables, {**tables.topics, name: topic}, (name,), now)


def delete_topic(tables: Tables, name: str, now: int) -> Tables:
    """HA-BT-15 "MUST be gone from the table at once"; nothing is registered."""
    if name not in tables.topics:
        return replace(tables, registered=())
    return _changed(tables, {key: topic for key, topic in tables.topics.items() if key != name}, (), now)


def order_topics(tables: Tables, ordered: frozenset[str], now: int) -> Tables:
    """HA-BT-16 "MUST have `order` true, and all others false"."""
    topics = {name: replace(topic, order=name in ordered) for name, topic in tables.topics.items()}
    return replace(tables, registered=()) if topics == tables.topics else _changed(tables, topics, (), now)


def note_queues(tables: Tables, queue_nums: Mapping[str, int], now: int) -> Tables:
    """HA-BT-18 "MUST add the topics of its consume queues that `topics.json` lacks"."""
    topics = dict(tables.topics)
    for name, nums in queue_nums.items():
        old = topics.get(name)
        if old is None:
            topics[name] = Topic(nums, nums)
        elif nums > min(old.readQueueNums, old.writeQueueNums):
            topics[name] = replace(
                old, readQueueNums=max(nums, old.readQueueNums), writeQueueNums=max(nums, old.writeQueueNums)
            )
    changed = tuple(name for name, topic in topics.items() if tables.topics.get(name) != topic)
    return _changed(tables, topics, changed, now) if changed else replace(tables, registered=())


def _changed(tables: Tables, topics: Mapping[str, Topic], registered: tuple[str, ...], now: int) -> Tables:
    """A change of the topics. HA-BT-3 "MUST be written to its file before the request that caused it is answered"."""
    return replace(tables, topics=topics, topic_version=tables.topic_version.after_change(now), registered=registered)


# --- Groups ----------------------------------------------------------------------------------------------------------


def is_group_name(name: str) -> bool:
    """False for names that HA-BT-22 "MUST be refused with SYSTEM_ERROR" is about."""
    return 0 < len(name) < 256 and all(character in NAME_CHARACTERS for character in name)


def find_group(tables: Tables, name: str, now: int) -> Tables:
    """HA-BT-21 "MUST be created with the defaults": the group is in the result if it may be used."""
    may_create = tables.settings.auto_create_group or name.startswith("CID_RMQ_SYS_")
    if name in tables.groups or not may_create or not is_group_name(name) or len(tables.groups) >= tables.settings.max_groups:
        return tables
    return replace(tables, groups={**tables.groups, name: Group()}, group_version=tables.group_version.after_change(now))


def update_group(tables: Tables, name: str, group: Group, now: int) -> Tables:
    """HA-BT-23 "MUST replace all settings of the group"."""
    if name not in tables.groups and len(tables.groups) >= tables.settings.max_groups:
        return tables
    return replace(tables, groups={**tables.groups, name: group}, group_version=tables.group_version.after_change(now))


def delete_group(tables: Tables, name: str, now: int) -> Tables:
    """HA-BT-24 "MUST delete the group"; `consumer_offsets.remove_group` deletes its offsets."""
    if name not in tables.groups:
        return tables
    groups = {key: group for key, group in tables.groups.items() if key != name}
    return replace(tables, groups=groups, group_version=tables.group_version.after_change(now))


def on_consumer(tables: Tables, group: str, *, is_unit: bool, now: int) -> Tables:
    """A heartbeat names a consumer group. HA-BT-41 "MUST create the group's retry topic, `%RETRY%` and the group's name"."""
    tables = find_group(tables, group, now)
    config = tables.groups.get(group)
    if config is None:
        return tables
    return create_topic_for_group(tables, "%RETRY%" + group, config.retryQueueNums, READ + WRITE, 2 if is_unit else 0, now)


# --- What the files and the answers have -----------------------------------------------------------------------------


def is_name_in_file(name: str) -> bool:
    """Whether a file of topics or groups may have it. HA-BT-77 "that has a value outside the table below"."""
    return name not in (".", "..") and not set(name) & {"/", "\0"} and 1 <= len(name) <= 262


def is_number_in_file(field: str, number: int) -> bool:
    """Whether a field of a file may have it. HA-BT-77 "MUST take a file of `config/` for damaged" otherwise."""
    if field in ("readQueueNums", "writeQueueNums"):
        return 0 <= number < 2**31
    bits = 64 if field in ("brokerId", "whichBrokerWhenConsumeSlowly", "offset") else 32
    return abs(2 * number + 1) < 1 << bits


def topics_object(tables: Tables) -> dict[str, object]:
    """The object of topics.json and of the answer to 21. HA-MD-22 "MUST have `dataVersion` and `topicConfigTable`"."""
    return table_object(tables.topic_version, "topicConfigTable", "topicName", tables.topics)


def groups_object(tables: Tables) -> dict[str, object]:
    """The object of subscriptionGroup.json and of the answer to 201. HA-MD-25 "MUST have `subscriptionGroupTable`"."""
    return table_object(tables.group_version, "subscriptionGroupTable", "groupName", tables.groups)


def table_object(version: Version, table: str, name: str, entries: Mapping[str, Topic | Group]) -> dict[str, object]:
    objects = {key: {**_known(entry), **dict(entry.other), name: key} for key, entry in entries.items()}
    return {"dataVersion": {"counter": version.counter, "timestamp": version.timestamp}, table: objects}


def _known(entry: Topic | Group) -> dict[str, object]:
    """The fields of an entry but for `other`. They are flat; `asdict`, which copies them deeply, takes ten times as long."""
    return {name: getattr(entry, name) for name in _FIELDS[type(entry)]}


_FIELDS: Final = {kind: tuple(part.name for part in fields(kind) if part.name != "other") for kind in (Topic, Group)}
