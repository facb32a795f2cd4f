"""Messages that consumers send back: each check, each answer, and what RocketMQ itself has stored of such messages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker_store import BrokerStore, as_pairs, as_record, broker_store, sorted_properties
from kit.sends import MemoryFile
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager, dlq_topic
from rocketmq_ha.impl.broker.send import Refusal
from rocketmq_ha.impl.broker.send_back import SendBackProcessor, max_reconsume_times, sent_back
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import send_back as model
from rocketmq_ha.reference.delayed import Refusal as ModelRefusal

LEVELS = DelayLevels.parse()
GROUP = "group"
DRAW = 5


class Stand:
    """A handler, its tables and its store, with one message to send back."""

    def __init__(self, store: BrokerStore) -> None:
        self.store = store
        self.group = SubscriptionGroupConfig(GROUP)
        self.settings = TableSettings()
        self.permission, self.is_slave, self.retry_perm = 6, False, 6
        self.offset = store.append(Message("orders", b"body", properties_string="KEYS\x01k", reconsume_times=2)).offset
        [self.message] = store.take()

    def answer(self, **fields: str) -> RemotingCommand:
        settings = self.settings
        groups = SubscriptionGroupManager(Path(), settings, file=MemoryFile())
        if self.group is not None:
            groups.update_subscription_group_config(self.group)
        topics = TopicConfigManager(Path(), settings, file=MemoryFile())
        if self.retry_perm != 6:
            topics.update_topic_config(TopicConfig(f"%RETRY%{GROUP}", 1, 1, self.retry_perm))
        self.topics = topics
        room = settings.max_topics - len(topics.topic_config_table)
        processor = SendBackProcessor(
            self.store,
            topics,
            groups,
            LEVELS,
            broker_permission=self.permission,
            is_slave=self.is_slave,
            choose=lambda count: DRAW % count,
        )
        header = {"offset": str(self.offset), "group": GROUP, "delayLevel": "0", **fields}
        answer = processor.consumer_send_msg_back(None, request(RequestCode.CONSUMER_SEND_MSG_BACK, header), 0)
        code, status = self._modelled(header, room)
        assert answer.code == code
        assert status is None or answer.remark == status
        return answer

    def _modelled(self, header: dict[str, str], room: int) -> tuple[int, str | None]:
        """The model's answer to the request. room: for topics."""
        asked = model.parse(header, 409)
        assert isinstance(asked, model.SendBack)
        group = None
        if self.group is not None and header["group"] == GROUP:
            group = model.Group(GROUP.encode(), self.group.retry_queue_nums, self.group.retry_max_times)
        elif self.settings.auto_create_subscription_group:
            group = model.Group(header["group"].encode())
        retry_perm = self.retry_perm if room > 0 or self.retry_perm != 6 else None
        has_room_for_dlq = room > (1 if self.retry_perm == 6 else 0)
        record = as_record(self.message) if self.offset == self.message.physical_offset else None
        put = model.on_send_back(asked, group, self.permission, retry_perm, has_room_for_dlq, record, DRAW, LEVELS.max_level)
        return model.answer(put, "SERVICE_NOT_AVAILABLE" if self.is_slave or self.store.room == 0 else "PUT_OK")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with broker_store(tmp_path) as store:
        yield Stand(store)


def test_what_is_stored_of_a_message_that_is_sent_back(stand: Stand) -> None:
    """HA-SE-65 "MUST take the code 36"; HA-SE-67 "in a random queue below `retryQueueNums`"; HA-SE-69 "or 3 plus the
    `reconsumeTimes` at the offset if that is 0"; HA-SE-70 "The answer MUST be 0 if the message was stored"."""
    stand.group = SubscriptionGroupConfig(GROUP, retry_queue_nums=3)
    assert stand.answer(originMsgId="x", originTopic="y", unitMode="true").code == 0
    [stored] = stand.store.take()
    assert (stored.topic, stored.queue_id, stored.body, stored.reconsume_times) == ("SCHEDULE_TOPIC_XXXX", 4, b"body", 3)
    assert dict(stored.properties) == {
        "KEYS": "k",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": f"7F00000100002A9F{stand.offset:016X}",
        "WAIT": "false",
        "DELAY": "5",
        "REAL_TOPIC": "%RETRY%group",
        "REAL_QID": "2",
    }
    retry = stand.topics.select_topic_config("%RETRY%group")
    assert retry is not None and (retry.read_queue_nums, retry.topic_sys_flag) == (3, 2)


@pytest.mark.parametrize(
    ("times", "asked", "version", "level", "is_dead"),
    [
        (15, None, 409, 0, False),
        (16, None, 409, 0, True),
        (2, None, 409, -1, True),
        (2, "2", 409, 0, True),
        (2, "3", 409, 0, False),
        (2, "2", 121, 0, True),
        (2, "2", 120, 0, False),
        (16, "-1", 409, 5, True),
    ],
)
def test_when_a_message_becomes_a_dead_letter(
    stand: Stand, times: int, asked: str | None, version: int, level: int, is_dead: bool
) -> None:
    """HA-SE-68 "if `delayLevel` is below 0 or the `reconsumeTimes` at the offset have reached the greatest number"."""
    asked_for = None if asked is None else int(asked)
    found, _ = sent_back(
        replace(stand.message, reconsume_times=times),
        stand.group,
        level,
        max_reconsume_times(stand.group, version, asked_for),
        0,
    )
    assert (found.topic == dlq_topic(GROUP)) is is_dead
    assert found.properties["DELAY"] == ("0" if is_dead else str(level or 3 + times))


def refuse_group(stand: Stand) -> None:
    stand.group = None  # type: ignore[assignment]
    stand.settings = TableSettings(auto_create_subscription_group=False)


def refuse_broker(stand: Stand) -> None:
    stand.permission = 4


def want_no_retries(stand: Stand) -> None:
    stand.group = SubscriptionGroupConfig(GROUP, retry_queue_nums=0)


def refuse_topic(stand: Stand) -> None:
    stand.settings = TableSettings(max_topics=3)


def close_topic(stand: Stand) -> None:
    stand.retry_perm = 4


def lose_message(stand: Stand) -> None:
    stand.offset += 1


def refuse_put(stand: Stand) -> None:
    stand.store.room = 0


def be_a_slave(stand: Stand) -> None:
    stand.is_slave = True


CHECKS = [refuse_group, refuse_broker, want_no_retries, refuse_topic, close_topic, lose_message]


@pytest.mark.parametrize(
    ("change", "code"), list(zip([*CHECKS, refuse_put, be_a_slave], [26, 16, 0, 1, 16, 1, 1, 1], strict=True))
)
def test_a_message_that_is_refused(stand: Stand, change: object, code: int) -> None:
    """HA-SE-66 "and answer with the code of the first that applies"; HA-SE-70 "and else 1 with the status of the put"."""
    assert callable(change)
    change(stand)
    answer = stand.answer()
    assert (answer.code, stand.store.take()) == (code, [])
    if change in (refuse_put, be_a_slave):
        assert answer.remark == "SERVICE_NOT_AVAILABLE"
        assert (answer.code, answer.remark) == model.answer(as_record(stand.message), "SERVICE_NOT_AVAILABLE")


@pytest.mark.parametrize("level", [1, -1])
@pytest.mark.parametrize(("length", "code"), [(120, 0), (121, 1), (255, 1)])
def test_a_group_whose_retry_topic_is_too_long_is_refused(stand: Stand, length: int, code: int, level: int) -> None:
    """HA-SE-66: the message was answered with 0 and lost when it was due, since no record has room for its topic."""
    answer = stand.answer(group="g" * length, delayLevel=str(level))
    assert answer.code == code
    assert len(stand.store.take()) == (code == 0)
    if code:
        assert answer.remark == f"topic %RETRY%{'g' * 53}: found {length + 7} characters, expected at most 127"


@pytest.mark.parametrize("first", range(len(CHECKS) - 1))
def test_the_first_check_that_applies_gives_the_code(stand: Stand, first: int) -> None:
    """HA-SE-66 "MUST make the checks of the table below in their order": with this and the next fault, this one is named."""
    order = [26, 16, 0, 1, 16, 1]
    CHECKS[first + 1](stand)
    CHECKS[first](stand)
    if CHECKS[first] is refuse_topic:  # the next fault needs the topic, which is not there
        stand.retry_perm = 6
    assert stand.answer().code == order[first]


def test_a_table_without_room_for_dead_letters(stand: Stand) -> None:
    """HA-SE-66 "MUST make the checks of the table below": the last of them."""
    known = len(TopicConfigManager(Path(), TableSettings(), file=MemoryFile()).topic_config_table)
    stand.settings = TableSettings(max_topics=known + 1)
    answer = stand.answer(delayLevel="-1")
    assert (answer.code, stand.store.take()) == (1, [])
    assert stand.answer().code == 0


@pytest.mark.parametrize("fields", [{"offset": "x"}, {"delayLevel": "2147483648"}, {"maxReconsumeTimes": "x"}, {"offset": ""}])
def test_a_request_with_a_field_that_is_none_is_refused(stand: Stand, fields: dict[str, str]) -> None:
    """HA-SE-65 "with the header fields of the table below": so does the model."""
    with pytest.raises(RequestInvalid):
        stand.answer(**fields)
    assert model.parse({"offset": "0", "group": GROUP, "delayLevel": "0", **fields}, 409) == ModelRefusal(1)


@pytest.mark.parametrize("name", ["offset", "group", "delayLevel"])
def test_a_request_without_a_field_is_refused(stand: Stand, name: str) -> None:
    """HA-SE-65 "with the header fields of the table below"."""
    header = {"offset": "0", "group": GROUP, "delayLevel": "0"}
    del header[name]
    stand.answer()
    processor = SendBackProcessor(
        stand.store, stand.topics, SubscriptionGroupManager(Path(), stand.settings, file=MemoryFile()), LEVELS
    )
    with pytest.raises(RequestInvalid, match=name):
        processor.consumer_send_msg_back(None, request(RequestCode.CONSUMER_SEND_MSG_BACK, header), 0)
    assert model.parse(header, 409) == ModelRefusal(1)


@pytest.mark.parametrize("times", [0, 2, 3, 16])
@pytest.mark.parametrize("asked", [None, 3])
@pytest.mark.parametrize("group", [GROUP, None])
@pytest.mark.parametrize("has_room", [True, False])
def test_a_send_to_a_retry_topic(stand: Stand, times: int, asked: int | None, group: str | None, has_room: bool) -> None:
    """HA-SE-71 "it is put into queue 0 of `%DLQ%` + group without delay"; and so says the model."""
    known = len(TopicConfigManager(Path(), TableSettings(), file=MemoryFile()).topic_config_table)
    settings = TableSettings(auto_create_subscription_group=group is not None, max_topics=known + has_room)
    topics = TopicConfigManager(Path(), settings, file=MemoryFile())
    groups = SubscriptionGroupManager(Path(), settings, file=MemoryFile())
    processor = SendBackProcessor(stand.store, topics, groups, LEVELS)
    properties = {"DELAY": "4", "WAIT": "false", "KEYS": "k"}
    message = Message("%RETRY%group", b"", queue_id=1, reconsume_times=times, properties_string="DELAY\x014\x02KEYS\x01k")
    found = processor.retried(message, properties, 409, asked)
    known_group = None if group is None else model.Group(GROUP.encode())
    expected = model.on_retry(as_record(message), as_pairs(properties), known_group, asked, 409, has_room)
    if isinstance(expected, ModelRefusal):
        assert isinstance(found, Refusal) and found.code == expected.code
        return
    assert not isinstance(found, Refusal)
    assert as_record(found[0]) == sorted_properties(expected[0])
    assert as_pairs(found[1]) == expected[1]


def test_a_send_to_another_topic_is_left_as_it_is(stand: Stand) -> None:
    groups = SubscriptionGroupManager(Path(), TableSettings(auto_create_subscription_group=False), file=MemoryFile())
    processor = SendBackProcessor(stand.store, TopicConfigManager(Path(), TableSettings(), file=MemoryFile()), groups, LEVELS)
    message, properties = Message("orders", b"", reconsume_times=99), {"DELAY": "1"}
    assert processor.retried(message, properties, 409, 1) == (message, properties)


def test_what_is_sent_back_is_what_rocketmq_stored(golden: Path) -> None:
    """HA-SE-67 "MUST be the message at the offset", HA-SE-68 and HA-SE-69, of RocketMQ's own records."""
    with LogReader(golden) as reader:
        reader.walk()
        records = [message for _, _, message in reader.records(reader.min_offset)]
    stored = {}
    for message in records:
        stored.setdefault((message.properties.get("UNIQ_KEY"), message.reconsume_times, message.topic), message)
    count = 0
    for (key, times, topic), found in stored.items():
        if found.properties.get("RETRY_TOPIC") is None or not (topic == "SCHEDULE_TOPIC_XXXX" or topic.startswith("%DLQ%")):
            continue
        previous = [other for (name, n, where), other in stored.items() if (name, n) == (key, times - 1)
                    and where != "SCHEDULE_TOPIC_XXXX"]  # fmt: skip
        assert len(previous) == 1, found
        group = (found.properties.get("REAL_TOPIC") or "").removeprefix("%RETRY%")
        if topic.startswith("%DLQ%"):
            group = topic.removeprefix("%DLQ%")
        level = int(found.properties["DELAY"])
        config = SubscriptionGroupConfig(group)
        again, _ = sent_back(previous[0], config, -1 if topic.startswith("%DLQ%") else level, 16, 0)
        count += 1
        assert (again.body, again.flag, again.sys_flag, again.born_timestamp, again.reconsume_times) == (
            found.body, found.flag, found.sys_flag, found.born_timestamp, found.reconsume_times)  # fmt: skip
        ours = dict(again.properties)
        ours |= {name: found.properties[name] for name in ("REAL_TOPIC", "REAL_QID") if name in found.properties}
        assert ours == dict(found.properties)
    assert count > 0
