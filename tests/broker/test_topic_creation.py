"""A message for a topic that is not there: whether the topic is created, and with which settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager

NOWHERE = Path("/nowhere")


def manager(**settings: object) -> TopicConfigManager:
    return TopicConfigManager(NOWHERE, replace(TableSettings("b", "c"), **settings), lambda: 5, MemoryFile())  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "nums"), [(4, 4), (8, 8), (9, 8), (0, 0), (-1, 0)])
def test_a_topic_is_created_after_tbw102(asked: int, nums: int) -> None:
    """HA-BT-12 "at most those of the default topic and at least 0; with its `perm` without that bit"."""
    topics = manager()
    registered: list[TopicConfig] = []
    topics.on_change = registered.extend
    made = topics.create_topic_in_send_message_method("orders", "TBW102", "peer", asked, 1)
    assert made == TopicConfig("orders", nums, nums, 6, "SINGLE_TAG", 1)
    assert registered == [made]  # HA-BT-13 "MUST be registered with the name servers at once"
    assert topics.data_version.counter == 1
    assert topics.create_topic_in_send_message_method("orders", "TBW102", "peer", 2, 0) == made
    assert topics.create_topic_in_send_message_method("more", "orders", "peer", 2, 0) is None  # orders has no bit to inherit
    assert topics.data_version.counter == 1


def test_a_topic_takes_the_filter_type_of_its_default() -> None:
    topics = manager()
    topics.update_topic_config(TopicConfig("default", 3, 2, 5, "MULTI_TAG"))
    assert topics.create_topic_in_send_message_method("orders", "default", "peer", 9, 0) == TopicConfig(
        "orders", 2, 2, 4, "MULTI_TAG", 0
    )


@pytest.mark.parametrize("is_in_file", [True, False])
def test_no_topic_is_created_where_that_is_off(is_in_file: bool) -> None:
    """HA-BT-12: with `autoCreateTopicEnable` off, also where the file still has TBW102."""
    topics = manager(auto_create_topic_enable=False)
    if is_in_file:
        topics.update_topic_config(TopicConfig("TBW102", 8, 8, 7))
    assert topics.create_topic_in_send_message_method("orders", "TBW102", "peer", 4, 0) is None
    assert topics.select_topic_config("orders") is None
    found = topics.select_topic_config("TBW102")
    assert (None if found is None else found.perm) == (6 if is_in_file else None)


def test_the_settings_switch_the_systems_topics() -> None:
    """HA-BT-10 "MUST begin with the topics of the table below"."""
    usual = {name: config.perm for name, config in manager().topic_config_table.items()}
    assert usual == {
        "SELF_TEST_TOPIC": 6,
        "TBW102": 7,
        "BenchmarkTest": 6,
        "c": 7,
        "b": 7,
        "OFFSET_MOVED_EVENT": 6,
        "SCHEDULE_TOPIC_XXXX": 6,
        "c_REPLY_TOPIC": 6,
    }
    other = manager(
        auto_create_topic_enable=False, cluster_topic_enable=False, broker_topic_enable=False, trace_topic_enable=True
    )
    expected = {name: perm for name, perm in usual.items() if name != "TBW102"} | {"c": 1, "b": 1, "RMQ_SYS_TRACE_TOPIC": 6}
    assert {name: config.perm for name, config in other.topic_config_table.items()} == expected
