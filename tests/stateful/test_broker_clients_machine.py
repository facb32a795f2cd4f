"""Clients and locks of the implementation equal those of the model: heartbeats, unregistrations, closed connections, time.

The requests go through the handlers, with bodies as clients send them. After each step all groups, their consumers and
subscriptions, and the requests 40 that were sent are compared. HA-BT-40 to HA-BT-47, HA-BT-50 to HA-BT-53,
HA-BT-75.
"""

import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kit.examples import machine_settings
from kit.remoting import Quiet
from rocketmq_ha.fuzz.kept_file import MemoryFile
from rocketmq_ha.impl.broker.client_manage import ClientManageProcessor, notify_consumer_ids_changed
from rocketmq_ha.impl.broker.clients import ClientHousekeepingService, ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.consumer_manage import ConsumerManageProcessor
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from rocketmq_ha.impl.broker.lock_manage import LockManageProcessor
from rocketmq_ha.impl.broker.rebalance_lock import RebalanceLockManager
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.reference import broker_clients as model
from rocketmq_ha.reference import broker_tables as model_tables

NOWHERE: Final = Path("/nowhere")
GROUPS: Final = ["g", "h", "quiet"]  # the last one wants no notifications
TOPICS: Final = ["a", "b", "c"]
QUEUES: Final = ["0", "1", "2"]
MAX_LOCKS: Final = 4
connections = st.integers(0, 3)
client_ids = st.sampled_from(["x", "y"])
groups = st.sampled_from(GROUPS)
tags = st.frozensets(st.sampled_from(["t", "u", "ü"]), max_size=2)
subscriptions = st.dictionaries(
    st.sampled_from(TOPICS),
    st.builds(
        model.Subscription,
        st.integers(1, 3),
        st.sampled_from(["*", "t", "t||ü", "t" * 900]),
        tags,
        st.frozensets(st.integers(-2, 2), max_size=2),
        st.sampled_from(["TAG", "SQL92"]),
    ),
    max_size=3,
)
consumer_groups = st.lists(st.tuples(groups, subscriptions, st.booleans()), max_size=3)


class NoQueues:
    """A store without messages."""

    def first_visible_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 0

    def min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return -1

    def check_in_disk_by_consume_offset(self, _topic: str, _queue_id: int, _consume_offset: int) -> bool:
        return False


class ClientsMachine(RuleBasedStateMachine):
    """The implementation's handlers and the model, side by side."""

    @initialize(notifies=st.booleans(), limit=st.sampled_from([256 << 20, 14_000, 6_003]))
    def begin(self, notifies: bool, limit: int) -> None:
        self.limit = limit
        settings = TableSettings(max_locks=MAX_LOCKS, notify_consumer_ids_changed_enable=notifies, max_clients_size=self.limit)
        self.topics = TopicConfigManager(NOWHERE, settings, lambda: 0, MemoryFile())
        self.groups = SubscriptionGroupManager(NOWHERE, settings, lambda: 0, MemoryFile())
        self.groups.update_subscription_group_config(
            SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False, retry_queue_nums=3)
        )
        quiet = model_tables.Group(notifyConsumerIdsChangedEnable=False, retryQueueNums=3)
        self.tables = model_tables.update_group(model_tables.begin(model_tables.Settings(), 0), "quiet", quiet, 0)
        self.closed: set[int] = set()
        self.consumers = ConsumerManager(
            lambda channel, group: channel.send(notify_consumer_ids_changed(group)), is_enabled=notifies
        )
        self.producers = ProducerManager()
        self.locks = RebalanceLockManager(settings)
        self.clients = ClientManageProcessor(settings, self.topics, self.groups, self.producers, self.consumers)
        self.offsets = ConsumerManageProcessor(
            ConsumerOffsetManager(NOWHERE, settings, 0, MemoryFile()), self.consumers, NoQueues()
        )
        self.lock_requests = LockManageProcessor(self.locks)
        self.now_ms = 0
        self.housekeeping = ClientHousekeepingService(self.producers, self.consumers, self._close, self.now_ms)
        self.channels = {number: Quiet(("127.0.0.1", 4000 + number)) for number in range(4)}
        self.state = model.Clients()
        self.is_on = notifies

    def _close(self, channel: object, reason: str) -> None:
        assert reason == "no heartbeat for 120 s"
        number = next(number for number, found in self.channels.items() if found is channel)
        self.closed.add(number)
        self.channels[number].close(reason)
        self.housekeeping.on_channel_close(self.channels[number])

    def moved(self, step: model.Step) -> None:
        """Take the model's next state, and compare what was sent over each connection that is open. HA-BT-43, HA-BT-44."""
        self.state = step.clients
        sent = [(number, command) for number, channel in self.channels.items() for command in channel.sent]
        assert all(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway for _, command in sent)
        found = [(number, command.ext_fields["consumerGroup"]) for number, command in sent]
        expected = step.notified if self.is_on else ()
        assert sorted(found) == sorted(pair for pair in expected if self.channels[pair[0]].is_open)
        for channel in self.channels.values():
            channel.sent.clear()

    @rule(number=connections, client_id=client_ids, consumed=consumer_groups, produced=st.lists(groups, max_size=2))
    def beat(
        self,
        number: int,
        client_id: str,
        consumed: list[tuple[str, dict[str, model.Subscription], bool]],
        produced: list[str],
    ) -> None:
        """HA-BT-40; HA-BT-41 "MUST create the group's retry topic"; HA-BT-42 "MUST count for the group"; HA-BT-75."""
        if not self.channels[number].is_open:
            return
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {"groupName": group, "subscriptionDataSet": as_json(subscribed), "unitMode": unit}
                for group, subscribed, unit in consumed
            ],
            "producerDataSet": [{"groupName": group} for group in produced],
        }
        asked = request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        step = model.on_heartbeat(
            self.state,
            number,
            model.Client(client_id, self.now_ms),
            [(group, subscribed, group != "quiet") for group, subscribed, _ in consumed],
            produced,
            self.limit,
        )
        if step is None:
            with pytest.raises(RequestInvalid, match=f"^heartbeat: found .* bytes of .*, expected at most {self.limit}$"):
                self.clients.heart_beat(self.channels[number], asked, self.now_ms)
            self.moved(model.Step(self.state))
            return
        # the channel's own requests 40 come before its answer
        answer = self.channels[number].ask(self.clients.heart_beat, asked, self.now_ms)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        self.moved(step)
        for group, _, unit in consumed:
            self.tables = model_tables.on_consumer(self.tables, group, is_unit=unit, now=0)

    @rule(number=connections, group=groups, is_producer=st.booleans())
    def unregister(self, number: int, group: str, is_producer: bool) -> None:
        """HA-BT-43 "leaves it by request 35"."""
        if not self.channels[number].is_open:
            return
        name = "producerGroup" if is_producer else "consumerGroup"
        asked = request(RequestCode.UNREGISTER_CLIENT, {"clientID": "x", name: group})
        assert self.channels[number].ask(self.clients.unregister_client, asked, self.now_ms) is not None
        if is_producer:
            self.moved(model.on_unregister_producer(self.state, number, group))
        else:
            self.moved(model.on_unregister_consumer(self.state, number, group, is_notify=group != "quiet"))

    @rule(number=connections)
    def close(self, number: int) -> None:
        """HA-BT-44 "MUST be told, whatever their group's settings". HA-BT-53 "the end of a connection frees none"."""
        channel = self.channels[number]
        channel.close("end of stream")
        self.housekeeping.on_channel_close(channel)
        self.moved(model.on_close(self.state, number))
        self.channels[number] = Quiet(("127.0.0.1", 4000 + number))

    @rule(passed_ms=st.sampled_from([0, 1, 9_999, 10_000, 50_000, 60_001, 119_999]))
    def tick(self, passed_ms: int) -> None:
        """HA-BT-45 "MUST look every 10 s": here the time is a multiple of 10 s after each look, or it is not due."""
        self.now_ms += passed_ms
        is_due = self.now_ms >= self.housekeeping.next_scan_ms
        self.closed.clear()
        self.housekeeping.on_tick(self.now_ms)
        self.locks.on_tick(self.now_ms)
        step = model.on_scan(self.state, self.now_ms) if is_due else model.Step(self.state)
        assert self.closed == set(step.closed)
        notified: tuple[tuple[int, str], ...] = step.notified
        clients = step.clients
        for number in step.closed:
            after = model.on_close(clients, number)
            clients, notified = after.clients, notified + after.notified
        for number in step.closed:  # what one of them was told before it was closed itself depends on their order
            self.channels[number].sent.clear()
        self.moved(model.Step(clients, tuple(pair for pair in notified if pair[0] not in step.closed)))
        for number in step.closed:
            self.channels[number] = Quiet(("127.0.0.1", 4000 + number))

    @rule(group=groups, queues=st.lists(st.sampled_from(QUEUES), max_size=4), client_id=client_ids, frees=st.booleans())
    def lock(self, group: str, queues: list[str], client_id: str, frees: bool) -> None:
        """HA-BT-50 "MUST lock each queue"; HA-BT-51 "MUST be free for another client"; HA-BT-52 "MUST free none that"."""
        mqs = [{"topic": "a", "brokerName": "b", "queueId": int(queue)} for queue in queues]
        body = json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": mqs}).encode()
        channel = Quiet()
        if frees:
            assert channel.ask(self.lock_requests.unlock_batch_mq, request(RequestCode.UNLOCK_BATCH_MQ, body=body)) is not None
            self.state = model.unlock(self.state, group, queues, client_id)
            return
        answer = channel.ask(self.lock_requests.lock_batch_mq, request(RequestCode.LOCK_BATCH_MQ, body=body), self.now_ms)
        assert answer is not None
        self.state, got = model.lock(self.state, group, queues, client_id, self.now_ms, MAX_LOCKS)
        found = [str(mq["queueId"]) for mq in json.loads(answer.body)["lockOKMQSet"]]
        assert found == list(dict.fromkeys(got))

    @invariant()
    def sizes_are_equal(self) -> None:
        """HA-BT-75 "by 2,500 bytes for each client in a group"."""
        if hasattr(self, "state"):
            found = self.consumers.size_after(self.channels[0], []) + self.producers.size_after(self.channels[0], [])
            assert found == model.held_size(self.state)
            assert found <= self.limit

    @invariant()
    def tables_are_equal(self) -> None:
        if hasattr(self, "state"):
            assert json.loads(self.topics.encode()) == model_tables.topics_object(self.tables)
            assert json.loads(self.groups.encode()) == model_tables.groups_object(self.tables)

    @invariant()
    def groups_are_equal(self) -> None:
        if not hasattr(self, "state"):
            return
        consumers = {
            name: (
                {self.number(channel): info.client_id for channel, info in found.channel_info_table.items()},
                {
                    topic: model.Subscription(
                        data.sub_version, data.sub_string, data.tags_set, data.code_set, data.expression_type
                    )
                    for topic, data in found.subscription_table.items()
                },
            )
            for name, found in self.consumers.consumer_table.items()
        }
        assert consumers == {
            name: ({number: client.client_id for number, client in found.connections.items()}, dict(found.subscriptions))
            for name, found in self.state.consumers.items()
        }
        producers = {
            name: {self.number(channel): info.client_id for channel, info in found.items()}
            for name, found in self.producers.group_channel_table.items()
        }
        assert producers == {
            name: {number: client.client_id for number, client in found.items()} for name, found in self.state.producers.items()
        }

    @invariant()
    def lists_are_equal(self) -> None:
        """HA-BT-46 "MUST answer the client ids of the group's consumers in `consumerIdList`"."""
        if not hasattr(self, "state"):
            return
        for group in GROUPS:
            answer = self.ask_list(group)
            expected = model.client_ids(self.state, group)
            assert answer.code == (ResponseCode.SUCCESS if expected else ResponseCode.SYSTEM_ERROR)
            assert (json.loads(answer.body)["consumerIdList"] if expected else []) == expected

    def ask_list(self, group: str) -> RemotingCommand:
        asked = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        answer = Quiet().ask(self.offsets.get_consumer_list_by_group, asked)
        assert answer is not None
        return answer

    def number(self, channel: object) -> int:
        return next(number for number, found in self.channels.items() if found is channel)


def as_json(subscribed: dict[str, model.Subscription]) -> list[dict[str, object]]:
    """The subscriptions as a heartbeat has them."""
    return [
        {
            "topic": topic,
            "subVersion": found.version,
            "subString": found.expression,
            "tagsSet": list(found.tags),
            "codeSet": list(found.codes),
            "expressionType": found.expression_type,
        }
        for topic, found in subscribed.items()
    ]


TestBrokerClients = ClientsMachine.TestCase
TestBrokerClients.settings = machine_settings(100, steps=25)
