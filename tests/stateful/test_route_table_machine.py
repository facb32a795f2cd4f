"""The route table of the implementation is the model's after every registration, close, sign of life and tick, in any order.

Few names, ids, addresses, connections and versions, so that brokers change ids and groups, take each other's place, come by one
connection or by two, and connections close that a newer registration has left behind. HA-R-35 to HA-R-46, HA-R-51, HA-R-56.
"""

import json
from pathlib import Path
from typing import Any

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kit.examples import machine_settings
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.registration import Registration
from rocketmq_ha.impl.namesrv.route_data import DataVersion, QueueData
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager, RouteLimits
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.reference import name_server_answers as answers
from rocketmq_ha.reference import route_table as model

names = st.sampled_from(["a", "a", "b"])
clusters = st.sampled_from(["c1", "c2"])
addresses = st.sampled_from(["h:1", "h:2", "h:3"])
ids = st.sampled_from([0, 0, 1, 2])
channels = st.sampled_from([1, 1, 2])
topics = st.sampled_from(["T", "U", "V", "a"])
some_version = st.builds(model.DataVersion, st.integers(0, 1), st.integers(0, 1), st.sampled_from([0, 0, 1]))
versions = st.none() | some_version | some_version
queues = st.builds(
    model.QueueData, st.integers(0, 2), st.just(4), st.sampled_from([2, 4, 6, 7]), st.sampled_from([0, 0, 1, 2, 3])
)
timeouts = st.none() | st.sampled_from([0, 1_000, 500_000])
brokers = st.fixed_dictionaries(
    {
        "name": names,
        "cluster": clusters,
        "broker_id": ids,
        "addr": addresses,
        "version": versions,
        "table": st.dictionaries(topics, queues, max_size=3),
        "timeout_ms": timeouts,
        "acting": st.booleans(),
        "channel": channels,
    }
)


def of_impl(queue: model.QueueData, group: str) -> QueueData:
    return QueueData(group, queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)


def of_model(queue: QueueData) -> model.QueueData:
    return model.QueueData(queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)


def version_of_impl(version: model.DataVersion | None) -> DataVersion | None:
    return None if version is None else DataVersion(version.counter, version.timestamp, version.state_version)


class RouteTables(RuleBasedStateMachine):
    """One table of each, and one clock."""

    @initialize(brokers=st.sampled_from([2, 3, 4]), queue_datas=st.sampled_from([3, 5, 100]))
    def start(self, brokers: int, queue_datas: int) -> None:
        self.bounds = model.Bounds(brokers, queue_datas)
        self.model = model.RouteTable()
        self.impl = RouteInfoManager(RouteLimits(brokers, queue_datas))
        kv_config = KVConfigManager(Path("/nonexistent/kvConfig.json"))
        self.handlers = DefaultRequestProcessor(self.impl, kv_config, {}).handlers()
        self.now_ms = 0

    @rule(ms=st.sampled_from([1, 999, 1_000, 60_000, 119_999, 120_000, 120_001]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(brokers=st.lists(brokers, min_size=1, max_size=3))
    def register_some(self, brokers: list[dict[str, Any]]) -> None:
        for broker in brokers:
            self.register(**broker)

    def register(
        self,
        name: str,
        cluster: str,
        broker_id: int,
        addr: str,
        version: model.DataVersion | None,
        table: dict[str, model.QueueData],
        timeout_ms: int | None,
        acting: bool,
        channel: int,
    ) -> None:
        ha = f"{addr}/ha"
        said = model.Registration(
            cluster, name, broker_id, addr, ha, version, tuple(table.items()), timeout_ms, gives_acting_master=acting
        )
        before = self.model
        self.model, expected = model.register(self.model, said, channel, self.now_ms, self.bounds)
        registration = Registration(
            cluster,
            name,
            broker_id,
            addr,
            ha,
            version_of_impl(version),
            {topic: of_impl(queue, name) for topic, queue in table.items()},
            timeout_ms,
            gives_acting_master=acting,
        )
        try:
            found = self.impl.register_broker(registration, channel, self.now_ms)
        except RequestInvalid:
            event("refused")
            assert expected is None
            assert self.model is before
            return
        assert expected is not None
        assert (found.ha_server_addr, found.master_addr) == (expected.ha_server_addr, expected.master_addr)
        event("a slave hears of its master" if expected.master_addr else "registered")

    @rule(data=st.data(), table=st.dictionaries(topics, queues, max_size=3), channel=channels)
    def register_again(self, data: st.DataObject, table: dict[str, model.QueueData], channel: int) -> None:
        """A broker with the group, the id and the version that it has, as every 30 s."""
        if not self.model.brokers:
            return
        addr = data.draw(st.sampled_from(sorted(self.model.brokers)))
        broker = self.model.brokers[addr]
        cluster = self.model.cluster_of[broker.broker_name]
        acting = data.draw(st.booleans())
        event("a broker registers again")
        self.register(
            broker.broker_name, cluster, broker.broker_id, addr, broker.version, table, broker.timeout_ms, acting, channel
        )

    @rule(channel=channels)
    def close(self, channel: int) -> None:
        event(f"a close of {sum(broker.channel == channel for broker in self.model.brokers.values())} brokers")
        self.model = model.on_close(self.model, channel)
        self.impl.on_channel_close(channel, self.now_ms)

    @rule(name=names, addr=addresses)
    def unregister(self, name: str, addr: str) -> None:
        self.model = model.unregister(self.model, name, addr)
        self.impl.unregister_broker(name, addr, self.now_ms)

    @rule()
    def scan(self) -> None:
        self.model, closed = model.expire(self.model, self.now_ms)
        assert set(self.impl.scan_not_active_broker(self.now_ms)) == closed
        if closed:
            event("connections are closed")

    @rule(addr=addresses)
    def heartbeat(self, addr: str) -> None:
        self.model = model.heartbeat(self.model, addr, self.now_ms)
        self.impl.update_broker_info_update_timestamp(addr, self.now_ms)

    @rule(addr=addresses, version=some_version)
    def query(self, addr: str, version: model.DataVersion) -> None:
        self.model, changed, known = model.query_data_version(self.model, addr, version, self.now_ms)
        asked = version_of_impl(version)
        assert asked is not None
        assert self.impl.query_broker_topic_config(addr, asked, self.now_ms) == (changed, version_of_impl(known))
        event(f"changed: {changed}")

    @rule(topic=topics, cluster=st.none() | clusters)
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.model = model.delete_topic(self.model, topic, cluster)
        self.impl.delete_topic(topic, cluster)

    @rule(name=names)
    def wipe_write_perm(self, name: str) -> None:
        self.model, count = model.wipe_write_perm(self.model, name)
        assert self.impl.wipe_write_perm_of_broker(name) == count

    @rule(name=names)
    def add_write_perm(self, name: str) -> None:
        self.model, count = model.add_write_perm(self.model, name)
        assert self.impl.add_write_perm_of_broker(name) == count

    @rule(topic=topics, table=st.lists(st.tuples(names, queues), max_size=3))
    def register_topic(self, topic: str, table: list[tuple[str, model.QueueData]]) -> None:
        after = model.register_topic(self.model, topic, table, self.bounds)
        try:
            self.impl.register_topic(topic, [of_impl(queue, group) for group, queue in table])
        except RequestInvalid:
            event("refused: too many topics")
            assert after is None
            return
        assert after is not None
        self.model = after

    @invariant()
    def the_tables_are_equal(self) -> None:
        if not hasattr(self, "impl"):
            return
        live = {
            addr: (b.broker_name, b.broker_id, b.ha_server_addr, b.data_version, b.channel, b.last_update_ms, b.timeout_ms)
            for addr, b in self.impl.broker_live_table.items()
        }
        assert live == {
            addr: (
                b.broker_name,
                b.broker_id,
                b.ha_server_addr,
                version_of_impl(b.version),
                b.channel,
                b.last_update_ms,
                b.timeout_ms,
            )
            for addr, b in self.model.brokers.items()
        }
        found = {
            (topic, group): of_model(queue)
            for topic, table in self.impl.topic_queue_table.items()
            for group, queue in table.items()
        }
        assert found == self.model.queues
        assert self.impl.queue_data_count == len(self.model.queues)

    @invariant()
    def the_answers_are_equal(self) -> None:
        """The JSON of each answer is what the model says that it stands for. HA-R-49, HA-R-50 "as it says"."""
        if not hasattr(self, "impl"):
            return
        state = self.model
        for topic in ("T", "U", "V", "a", "nobody's"):
            route = model.route(state, topic)
            self.is_answered(105, route and answers.topic_route(route), topic=topic)
        self.is_answered(106, answers.cluster_info(state))
        self.is_answered(206, answers.topic_list(model.all_topics(state)))
        self.is_answered(304, answers.topic_list(model.system_topics(state), min(state.brokers, default=None)))
        for cluster in ("c1", "c2", "c3"):
            self.is_answered(224, answers.topic_list(model.topics_by_cluster(state, cluster)), cluster=cluster)
        for code, wanted, unwanted in ((311, model.UNIT, 0), (312, model.UNIT_SUB, 0), (313, model.UNIT_SUB, model.UNIT)):
            self.is_answered(code, answers.topic_list(model.unit_topics(state, wanted, unwanted)))
        for name in ("a", "b", "c"):
            self.is_answered(901, answers.member_group(state, "c1", name), brokerName=name, clusterName="c1")

    def is_answered(self, code: int, expected: answers.Json | None, **fields: str) -> None:
        """expected: None for TOPIC_NOT_EXIST."""
        found = self.handlers[code]("x", RemotingCommand(code, ext_fields=fields), self.now_ms)
        assert found.code == (ResponseCode.TOPIC_NOT_EXIST if expected is None else ResponseCode.SUCCESS)
        assert expected is None or json.loads(found.body) == expected


TestRouteTables: Any = RouteTables.TestCase
TestRouteTables.settings = machine_settings(60, steps=30)
