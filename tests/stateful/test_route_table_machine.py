"""Name servers of both sides have the same tables and give the same answers, whatever is registered, asked and lost.

Few names, ids, addresses, connections and versions, so that brokers change ids and groups, take each other's place, come by one
connection or by two, and connections close that a newer registration has left behind. HA-R-35 to HA-R-46, HA-R-51, HA-R-56.
Schedules draw the same events from a seed (fuzz/worlds/routes.py); here Hypothesis shrinks a failure to the few that matter.
"""

from contextlib import ExitStack
from typing import Any

from hypothesis import event as note_event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kit.examples import machine_settings
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.routes import QUESTIONS, RoutesSchedule
from rocketmq_ha.reference import name_server
from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.kv_config import ORDER_TOPIC_CONFIG
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.route_table import Bounds, DataVersion, QueueData, Registration
from rocketmq_ha.reference.routes import BrokerSettings, Routes, Settings
from rocketmq_ha.spec.codes import RequestCode
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

names, clusters = st.sampled_from(["a", "a", "b"]), st.sampled_from(["c1", "c2"])
addresses, ids = st.sampled_from(["h:1", "h:2", "h:3"]), st.sampled_from([0, 0, 1, 2])
channels, topics = st.sampled_from([0, 0, 1]), st.sampled_from(["T", "U", "V", "a"])
some_version = st.builds(DataVersion, st.integers(0, 1), st.integers(0, 1), st.sampled_from([0, 0, 1]))
queues = st.builds(QueueData, st.integers(0, 2), st.just(4), st.sampled_from([2, 4, 6, 7]), st.sampled_from([0, 0, 1, 2, 3]))
tables = st.lists(st.tuples(topics, queues), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
registrations = st.builds(
    lambda cluster, name, broker_id, addr, *rest: Registration(cluster, name, broker_id, addr, addr + "0", *rest),
    clusters,
    names,
    ids,
    addresses,
    st.none() | some_version | some_version,
    tables,
    st.none() | st.sampled_from([0, 1_000, 500_000]),
    st.booleans(),
)
brokers, numbers = st.sampled_from([0, 1]), st.sampled_from([0, 0, 1])  # numbers: of name servers


class NameServers(RuleBasedStateMachine):
    """Two name servers and two brokers of each side. The rules are the events of reference/route_events.py."""

    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()

    def teardown(self) -> None:
        self._resources.close()

    @initialize(
        profile=st.sampled_from([HARDENED, CLASSIC]),
        bounds=st.builds(Bounds, st.sampled_from([100, 4, 3, 2]), st.sampled_from([100, 11, 5, 3])),
        text_size=st.sampled_from([1 << 20, 60]),
        order=st.booleans(),
        own=st.tuples(names, ids, names, ids),
        permission=st.sampled_from([6, 4, 2]),
    )
    def start(
        self, profile: Profile, bounds: Bounds, text_size: int, order: bool, own: tuple[str, int, str, int], permission: int
    ) -> None:
        settings = Settings(
            name_server.Settings(bounds, text_size, order),
            2,
            (BrokerSettings("c1", *own[:2], "h:1", permission), BrokerSettings("c2", *own[2:], "h:2", 6, 10_000)),
        )
        directory = self._resources.enter_context(lockstep.scratch_directory())
        self.both = lockstep.of_schedule(RoutesSchedule(0, profile, settings, ()), directory)
        self._resources.callback(self.both.close)

    @property
    def routes(self) -> Routes:
        found: Routes = self.both.reference.routes  # type: ignore[attr-defined]
        return found

    def agree(self, event: events.Event) -> None:
        outcome = self.both.apply(event)
        for row in outcome.transitions:
            note_event(f"{row.actor} {row.from_state} {row.event} {row.to_state}")
        assert outcome.verdict == VERDICT_OK, f"{outcome.signature}: {outcome.detail}"

    # --- Requests ----------------------------------------------------------------------------------------------------

    @rule(
        server=numbers,
        said=st.lists(registrations, min_size=1, max_size=3),
        channel=channels,
        form=st.sampled_from(["json", "json", "compressed", "none"]),
    )
    def register_some(self, server: int, said: list[Registration], channel: int, form: events.Form) -> None:
        for registration in said:
            self.agree(events.Register(server, channel, registration, form))

    @rule(
        server=numbers,
        said=registrations,
        damage=st.sampled_from(["", "crc", "cut", "control", "long"]),
        lacks=st.sampled_from(["", "brokerName", "clusterName", "brokerAddr", "haServerAddr", "brokerId"]),
    )
    def register_badly(self, server: int, said: Registration, damage: events.Damage, lacks: events.Lacks) -> None:
        self.agree(events.Register(server, 0, said, damage=damage, lacks=lacks))

    @precondition(lambda self: self.routes.servers[0].table.brokers)
    @rule(data=st.data(), table=tables, channel=channels, acting=st.booleans())
    def register_again(self, data: st.DataObject, table: tuple[tuple[str, QueueData], ...], channel: int, acting: bool) -> None:
        """A broker with the group, the id and the version that it has, as every 30 s."""
        known = self.routes.servers[0].table
        addr = data.draw(st.sampled_from(sorted(known.brokers)))
        broker = known.brokers[addr]
        said = Registration(
            known.cluster_of[broker.broker_name], broker.broker_name, broker.broker_id, addr, addr + "0", broker.version, table
        )
        self.agree(events.Register(0, channel, replace(said, gives_acting_master=acting)))

    @rule(server=numbers, name=names, addr=addresses)
    def unregister(self, server: int, name: str, addr: str) -> None:
        self.agree(events.Unregister(server, 0, name, addr))

    @rule(server=numbers, addr=addresses, version=some_version)
    def signs_of_life(self, server: int, addr: str, version: DataVersion) -> None:
        self.agree(events.SignOfLife(server, 0, addr))
        self.agree(events.QueryVersion(server, 0, addr, version))

    @rule(server=numbers, topic=topics, cluster=st.none() | clusters)
    def delete_topic(self, server: int, topic: str, cluster: str | None) -> None:
        self.agree(events.Change(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic, cluster))

    @rule(
        server=numbers,
        name=names,
        code=st.sampled_from([RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER]),
    )
    def change_permissions(self, server: int, name: str, code: int) -> None:
        self.agree(events.Change(server, code, name))

    @rule(server=numbers, topic=topics, table=st.lists(st.tuples(names, queues), max_size=3).map(tuple))
    def register_topic(self, server: int, topic: str, table: tuple[tuple[str, QueueData], ...]) -> None:
        self.agree(events.Change(server, RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic, None, table))

    @rule(server=numbers, key=topics, value=st.sampled_from(["v", "x" * 30]), space=st.sampled_from([ORDER_TOPIC_CONFIG, "n"]))
    def put_text(self, server: int, key: str, value: str, space: str) -> None:
        self.agree(events.PutText(server, space, key, value))

    @rule(server=numbers, key=topics, space=st.sampled_from([ORDER_TOPIC_CONFIG, "n"]))
    def delete_text(self, server: int, key: str, space: str) -> None:
        self.agree(events.DeleteText(server, space, key))

    @rule(server=numbers, argument=st.sampled_from(["T", "U", "V", "a", "b", "c1", "c2", ORDER_TOPIC_CONFIG, "nobody's"]))
    def ask_all(self, server: int, argument: str) -> None:
        """Every question, of one name. HA-R-49, HA-R-50 "as it says"."""
        for code in dict.fromkeys(QUESTIONS):
            self.agree(events.Ask(server, int(code), argument, "T"))

    # --- Brokers, connections, time ----------------------------------------------------------------------------------

    @rule(broker=brokers)
    def start_broker(self, broker: int) -> None:
        self.agree(events.StartBroker(broker))

    @precondition(lambda self: any(broker.registering for broker in self.routes.brokers))
    @rule(broker=brokers, how=st.sampled_from(["clean", "kill", "power"]))
    def stop_broker(self, broker: int, how: Any) -> None:
        self.agree(events.StopBroker(broker, how))

    @precondition(lambda self: any(broker.registering for broker in self.routes.brokers))
    @rule(broker=brokers, name=topics, perm=st.none() | st.sampled_from([2, 4, 6]))
    def change_topic(self, broker: int, name: str, perm: int | None) -> None:
        self.agree(events.DropTopic(broker, name) if perm is None else events.UpdateTopic(broker, name, 4, perm))

    @precondition(lambda self: any(link.sent or link.answers for broker in self.routes.brokers for link in broker.links))
    @rule(broker=brokers, server=numbers, is_answered=st.booleans())
    def deliver(self, broker: int, server: int, is_answered: bool) -> None:
        self.agree(events.Deliver(broker, server))
        if is_answered:
            self.agree(events.Answer(broker, server))

    @precondition(lambda self: any(link.channel != -1 for broker in self.routes.brokers for link in broker.links))
    @rule(broker=brokers, server=numbers, is_told=st.booleans())
    def cut(self, broker: int, server: int, is_told: bool) -> None:
        self.agree(events.Cut(broker, server, is_told))

    @rule(server=numbers, channel=channels)
    def close(self, server: int, channel: int) -> None:
        self.agree(events.Close(server, channel))
        self.agree(events.CloseStale(server))

    @rule(server=numbers, is_full=st.booleans())
    def fill_disk(self, server: int, is_full: bool) -> None:
        self.agree(events.Disk(server, is_full))

    @rule(server=numbers)
    def restart(self, server: int) -> None:
        self.agree(events.RestartServer(server))

    @rule(ms=st.lists(st.sampled_from([1, 999, 1_000, 60_000, 119_999, 120_000, 120_001]), min_size=1, max_size=3))
    def time_passes(self, ms: list[int]) -> None:
        for one in ms:
            self.agree(events.Tick(one))


TestNameServers: Any = NameServers.TestCase
TestNameServers.settings = machine_settings(60, steps=30)
