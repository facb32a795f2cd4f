"""The two sides of the world of routes: the model, and the real tables, handlers and registrations without sockets.

The world plays the network, the disk and the clock. A request goes to a name server as a frame, by the server's own dispatcher.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, assert_never

from rocketmq_ha.impl.broker.registration import BrokerOuterAPI, OnAnswer, RegistrationSettings
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.name_server import NameServer
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager, RouteLimits
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, encode_whole
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.reference import broker_tables, remoting, route_requests, routes
from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.routes import FIRST_OF_BROKERS, Routes, Settings
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.profile import Profile

KV_FILE: Final = "kvConfig.json"
Fields = tuple[tuple[str, str], ...]


# --- What both sides show --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """An answer. body: bytes, or what its JSON stands for."""

    server: int
    channel: int
    code: int
    ext_fields: Fields
    body: object


@dataclass(frozen=True, slots=True)
class ObservedServer:
    """brokers: address -> (name, id, haServerAddr, version, connection, last sign of life, time). queues: (topic, group) ->
    (readQueueNums, writeQueueNums, perm, topicSysFlag).
    """

    brokers: Mapping[str, tuple[object, ...]]
    clusters: frozenset[tuple[str, str]]
    cluster_of: Mapping[str, str]
    queues: Mapping[tuple[str, str], tuple[int, int, int, int]]
    queue_data_count: int
    texts: Mapping[str, Mapping[str, str]]
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """topics: the JSON text of the table, b"" while it does not run. servers: of each name server: asked, due, when again."""

    is_running: bool
    is_leaving: bool
    master: tuple[str, str]
    topics: bytes
    servers: tuple[tuple[bool, bool, int | None], ...]
    waiting: tuple[tuple[int, ...], ...]  # by name server: deadlines of the requests that it waits for
    sent: tuple[tuple[tuple[int, Fields, bytes], ...], ...]  # by name server: the requests on their way
    answers: tuple[int, ...]  # by name server: how many are on their way


@dataclass(frozen=True, slots=True)
class Observation:
    ACTOR: ClassVar[str] = "routes"
    answers: tuple[ObservedAnswer, ...]
    dropped: tuple[tuple[int, int], ...]
    servers: tuple[ObservedServer, ...]
    brokers: tuple[ObservedBroker, ...]


# --- The model -------------------------------------------------------------------------------------------------------


class ReferenceRoutes:
    """The model. `routes` is its state."""

    def __init__(self, settings: Settings, profile: Profile, now_ms: int) -> None:
        self._settings, self._profile = settings, profile
        self.routes: Routes = routes.new_routes(settings, now_ms)
        self._texts: dict[int, tuple[object, bytes]] = {}  # by broker: its tables, and their text
        self._servers: dict[int, tuple[object, object, ObservedServer]] = {}  # as shown last, with what was shown
        self._brokers: dict[int, tuple[routes.Broker, ObservedBroker]] = {}

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.routes, transitions = routes.step(self.routes, event, self._settings, self._profile)
        return transitions

    def broken(self) -> tuple[str, ...]:
        """What must hold of every table, whatever came: each group of a topic has a broker, and each broker a cluster."""
        found = []
        for server in self.routes.servers:
            groups = {broker.broker_name for broker in server.table.brokers.values()}
            if not {group for _, group in server.table.queues} <= groups:
                found.append("topics_have_brokers")
            if groups != set(server.table.cluster_of) or {name for _, name in server.table.clusters} != groups:
                found.append("groups_have_clusters")
            ids = [(broker.broker_name, broker.broker_id) for broker in server.table.brokers.values()]
            if len(set(ids)) < len(ids):
                found.append("ids_are_taken_once")
        return tuple(dict.fromkeys(found))

    def observe(self) -> Observation:
        state = self.routes
        return Observation(
            tuple(
                ObservedAnswer(server, channel, answered.code, tuple(sorted(answered.ext_fields)), answered.body)
                for server, channel, answered in state.answers
            ),
            state.dropped,
            tuple(self._server(number) for number in range(len(state.servers))),
            tuple(self._broker(number, broker) for number, broker in enumerate(state.brokers)),
        )

    def _server(self, number: int) -> ObservedServer:
        """A state of the model never changes, so that of a name server is shown once."""
        server, channels = self.routes.servers[number], self.routes.channels[number]
        held = self._servers.get(number)
        if held is not None and held[0] is server and held[1] is channels:
            return held[2]
        table = server.table
        shown = ObservedServer(
            {
                addr: (
                    broker.broker_name,
                    broker.broker_id,
                    broker.ha_server_addr,
                    broker.version and (broker.version.counter, broker.version.timestamp, broker.version.state_version),
                    broker.channel,
                    broker.last_update_ms,
                    broker.timeout_ms,
                )
                for addr, broker in table.brokers.items()
            },
            table.clusters,
            table.cluster_of,
            {
                key: (queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)
                for key, queue in table.queues.items()
            },
            len(table.queues),
            server.texts.table,
            tuple(sorted(channels)),
        )
        self._servers[number] = server, channels, shown
        return shown

    def _broker(self, number: int, broker: routes.Broker) -> ObservedBroker:
        held = self._brokers.get(number)
        if held is None or held[0] is not broker:
            held = self._brokers[number] = broker, self._shown(number, broker)
        return held[1]

    def _shown(self, number: int, broker: routes.Broker) -> ObservedBroker:
        state = broker.registering
        return ObservedBroker(
            state is not None,
            broker.is_leaving,
            broker.master,
            self._text(number, broker) if state else b"",
            tuple((each.asked, each.due, each.again_ms) for each in state.servers) if state else (),
            tuple(tuple(question.deadline_ms for question in link.waiting) for link in broker.links),
            tuple(tuple((question.code, question.fields, question.body) for question in link.sent) for link in broker.links),
            tuple(len(link.answers) for link in broker.links),
        )

    def _text(self, number: int, broker: routes.Broker) -> bytes:
        """The text of a broker's topics, which is made once for each table."""
        held = self._texts.get(number)
        if held is None or held[0] is not broker.tables:
            assert broker.tables is not None
            held = self._texts[number] = broker.tables, topics_text(broker.tables)
        return held[1]


def topics_text(tables: broker_tables.Tables) -> bytes:
    """The answer to 21, as the implementation writes it: the fields of a topic sorted by name."""
    found = broker_tables.topics_object(tables)
    table = found["topicConfigTable"]
    assert isinstance(table, dict)
    sorted_table = {name: dict(sorted(fields.items())) for name, fields in table.items()}
    return route_requests.to_bytes({"dataVersion": found["dataVersion"], "topicConfigTable": sorted_table})


# --- The implementation ----------------------------------------------------------------------------------------------


class _Server(RemotingServer):
    """A server without listening sockets: the world brings the frames, and closes what is dropped."""

    def __init__(self) -> None:
        super().__init__(())
        self.given_up: list[Channel] = []
        self._of_all = Totals()

    def channel(self, number: int, now_ms: int) -> Channel:
        return Channel(("127.0.0.1", number), f"c{number}", self.limits, self._of_all, lambda _: None, now_ms)

    def serve(self, channel: Channel, frame: bytes, now_ms: int) -> RemotingCommand:
        """Take a whole frame. Returns: the answer."""
        channel.on_bytes(frame, now_ms)
        self._dispatcher.dispatch(channel, self._peers, now_ms, 1)
        answer = b"".join(channel.out)
        channel.on_sent(len(answer), now_ms)
        return decode(answer[4:])

    def drop(self, channel: Channel, reason: str) -> None:
        del reason
        self.given_up.append(channel)

    def on_end(self, channel: Channel) -> None:
        channel.close("closed")
        for told in self.on_close:
            told(channel)


class _NameServer:
    """One process of a name server."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        bounds = settings.server.bounds
        self.routes = RouteInfoManager(RouteLimits(bounds.brokers, bounds.queue_datas))
        self.texts = KVConfigManager(directory / KV_FILE, settings.server.text_size)
        processor = DefaultRequestProcessor(
            self.routes,
            self.texts,
            {"listenPort": str(settings.server.listen_port)},
            order_message_enable=settings.server.order_message_enable,
        )
        self.server = _Server()
        self.loop = NameServer(self.server, self.routes, processor)
        self.channels: dict[int, Channel] = {}


class _Client:
    """What a broker asks by: the world carries the requests."""

    def __init__(self, world: "ImplementationRoutes", number: int) -> None:
        self._world, self._number = world, number

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        self._world.ask(self._number, int(address.rpartition(":")[2]), command, deadline_ms, on_answer)


class _Link:
    def __init__(self) -> None:
        self.channel = -1
        self.sent: list[RemotingCommand] = []
        self.waiting: dict[int, tuple[int, RemotingCommand, OnAnswer]] = {}
        self.answers: list[tuple[int, RemotingCommand]] = []


class _Broker:
    """One process of a broker."""

    def __init__(self, topics: TopicConfigManager, registrations: BrokerOuterAPI) -> None:
        self.topics, self.registrations = topics, registrations
        self.is_leaving = False
        self.master = ("", "")

    def on_master(self, ha_server_addr: str, master_addr: str) -> None:
        self.master = ha_server_addr, master_addr


class ImplementationRoutes:
    """The real tables, handlers and registrations, with files in `directory`. The caller must close it."""

    def __init__(self, settings: Settings, profile: Profile, now_ms: int, directory: Path) -> None:
        self._settings, self._profile, self._now_ms = settings, profile, now_ms
        self._directory = directory
        for number in range(settings.servers):
            self._path(number).mkdir()
        self._servers = [_NameServer(self._path(number), settings) for number in range(settings.servers)]
        self._brokers: list[_Broker | None] = [None] * len(settings.brokers)
        self._links = [[_Link() for _ in range(settings.servers)] for _ in settings.brokers]
        self._next_channel, self._requests = FIRST_OF_BROKERS, 0
        self._answers: list[ObservedAnswer] = []
        self._dropped: list[tuple[int, int]] = []

    def _path(self, number: int) -> Path:
        return self._directory / f"name-server-{number}"

    def close(self) -> None:
        for server in self._servers:
            server.server.close()

    def apply(self, event: events.Event) -> None:
        self._answers, self._dropped = [], []
        match event:
            case events.Register() | events.Unregister() | events.SignOfLife() | events.QueryVersion():
                self._request(event, event.channel)
            case events.Ask() | events.Change() | events.PutText() | events.DeleteText():
                self._request(event, 0)
            case events.Close():
                self._close(event.server, event.channel)
            case events.CloseStale():
                self._close_stale(event.server)
            case events.StartBroker():
                self._start_broker(event.broker)
            case events.StopBroker():
                self._stop_broker(event.broker, event.how)
            case events.UpdateTopic() | events.DropTopic():
                self._change_topic(event)
            case events.Deliver():
                self._deliver(event.broker, event.server)
            case events.Answer():
                self._answer(event.broker, event.server)
            case events.Cut():
                self._cut(event.broker, event.server, is_told=event.is_told)
            case events.Disk():
                self._fill_disk(event.server, event.is_full)
            case events.RestartServer():
                self._restart_server(event.server)
            case events.Tick():
                self._tick(event.ms)
            case _:
                assert_never(event)
        self._turn()

    def _turn(self) -> None:
        """Every broker that runs has a turn of its loop."""
        for broker in self._brokers:
            if broker is not None and not broker.is_leaving:
                broker.registrations.on_turn(self._now_ms)

    # --- Name servers ----------------------------------------------------------------------------------------------------

    def _request(self, event: route_requests.Request, channel: int) -> None:
        self._requests += 1
        frame = remoting.encode(route_requests.request_of(event, self._requests))
        answer = self._serve(event.server, channel, frame)
        assert answer.opaque == self._requests
        fields = tuple(sorted(answer.ext_fields.items()))
        self._answers.append(ObservedAnswer(event.server, channel, answer.code, fields, _meaning(answer.body)))

    def _serve(self, number: int, channel: int, frame: bytes) -> RemotingCommand:
        server = self._servers[number]
        if channel not in server.channels:
            server.channels[channel] = server.server.channel(channel, self._now_ms)
        return server.server.serve(server.channels[channel], frame, self._now_ms)

    def _close(self, number: int, channel: int) -> None:
        server = self._servers[number]
        if channel in server.channels:
            server.server.on_end(server.channels.pop(channel))

    def _close_stale(self, number: int) -> None:
        in_use = {links[number].channel for links in self._links}
        stale = [channel for channel in self._servers[number].channels if channel >= FIRST_OF_BROKERS and channel not in in_use]
        if stale:
            self._close(number, stale[0])

    def _fill_disk(self, number: int, is_full: bool) -> None:
        """A directory in place of the new file lets every write fail."""
        obstacle = self._path(number) / f"{KV_FILE}.tmp"
        if is_full and not obstacle.is_dir():
            obstacle.mkdir()
        elif not is_full and obstacle.is_dir():
            obstacle.rmdir()

    def _restart_server(self, number: int) -> None:
        self._servers[number].server.close()
        self._servers[number] = _NameServer(self._path(number), self._settings)
        for broker in range(len(self._brokers)):
            self._lose_link(broker, number)

    # --- Brokers ---------------------------------------------------------------------------------------------------------

    def _start_broker(self, number: int) -> None:
        if self._brokers[number] is not None:
            self._stop_broker(number, "kill")
        own = self._settings.brokers[number]
        store = self._directory / f"broker-{number}"
        table_settings = TableSettings(own.name, own.cluster)
        topics = TopicConfigManager(store, table_settings, lambda: self._now_ms)
        topics.load()
        settings = RegistrationSettings(
            own.cluster,
            own.name,
            own.broker_id,
            own.addr,
            own.ha_addr,
            tuple(f"s:{server}" for server in range(self._settings.servers)),
            own.period_ms,
            self._settings.timeout_ms,
            own.permission,
            self._profile.registers_again,
        )
        registrations = BrokerOuterAPI(settings, topics, _Client(self, number))
        broker = self._brokers[number] = _Broker(topics, registrations)
        registrations.on_master = broker.on_master
        topics.on_change = lambda _: registrations.topics_changed()
        registrations.start(self._now_ms)

    def _stop_broker(self, number: int, how: str) -> None:
        broker = self._brokers[number]
        if broker is None:
            return
        if how == "clean":
            if not broker.is_leaving:
                broker.is_leaving = True
                broker.registrations.unregister_broker_all(self._now_ms)
            return
        links, self._links[number] = self._links[number], [_Link() for _ in range(self._settings.servers)]
        self._brokers[number] = None
        if how == "kill":
            for server, link in enumerate(links):
                self._close(server, link.channel)

    def _change_topic(self, event: events.UpdateTopic | events.DropTopic) -> None:
        broker = self._brokers[event.broker]
        if broker is None or broker.is_leaving:
            return
        if isinstance(event, events.UpdateTopic):
            broker.topics.update_topic_config(TopicConfig(event.name, event.queue_nums, event.queue_nums, event.perm))
        else:
            broker.topics.delete_topic_config(event.name)

    def ask(self, number: int, server: int, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        """A broker asks a name server."""
        self._requests += 1
        command.opaque = self._requests
        link = self._links[number][server]
        link.sent.append(command)
        link.waiting[command.opaque] = deadline_ms, command, on_answer

    def _deliver(self, number: int, server: int) -> None:
        link = self._links[number][server]
        if not link.sent:
            return
        if link.channel == -1:
            link.channel = self._next_channel
            self._next_channel += 1
        command = link.sent.pop(0)
        link.answers.append((command.opaque, self._serve(server, link.channel, encode_whole(command))))

    def _answer(self, number: int, server: int) -> None:
        link = self._links[number][server]
        if not link.answers:
            return
        opaque, answer = link.answers.pop(0)
        if opaque in link.waiting:
            link.waiting.pop(opaque)[2](answer)

    def _lose_link(self, number: int, server: int) -> None:
        link = self._links[number][server]
        self._links[number][server] = _Link()
        for _, command, on_answer in link.waiting.values():
            on_answer(RequestFailed(f"s:{server}", command.code, "the connection broke"))
            self._turn()

    def _cut(self, number: int, server: int, *, is_told: bool) -> None:
        link = self._links[number][server]
        if link.channel == -1:
            return
        if is_told:
            self._close(server, link.channel)
        self._lose_link(number, server)

    # --- Time ------------------------------------------------------------------------------------------------------------

    def _tick(self, ms: int) -> None:
        self._now_ms += ms
        self._turn()
        for number, server in enumerate(self._servers):
            server.loop.turn(self._now_ms)
            given_up, server.server.given_up = server.server.given_up, []
            found = {channel: name for name, channel in server.channels.items()}
            for name in sorted(found[channel] for channel in given_up):
                self._dropped.append((number, name))
                self._close(number, name)
                for broker in range(len(self._brokers)):
                    if self._links[broker][number].channel == name:
                        self._lose_link(broker, number)
        for links in self._links:
            for server_number, link in enumerate(links):
                for opaque in [opaque for opaque, (deadline_ms, _, _) in link.waiting.items() if deadline_ms <= self._now_ms]:
                    _, command, on_answer = link.waiting.pop(opaque)
                    on_answer(RequestFailed(f"s:{server_number}", command.code, "no answer in time", is_late=True))

    # --- Observation -----------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        return Observation(
            tuple(self._answers),
            tuple(self._dropped),
            tuple(_observed_server(server) for server in self._servers),
            tuple(self._observed_broker(number) for number in range(len(self._brokers))),
        )

    def _observed_broker(self, number: int) -> ObservedBroker:
        broker, links = self._brokers[number], self._links[number]
        servers = broker.registrations._servers if broker else ()
        return ObservedBroker(
            broker is not None,
            broker is not None and broker.is_leaving,
            broker.master if broker else ("", ""),
            broker.topics.encode() if broker else b"",
            tuple((server.is_asked, server.is_due, server.again_ms) for server in servers),
            tuple(tuple(deadline_ms for deadline_ms, _, _ in link.waiting.values()) for link in links),
            tuple(
                tuple((int(command.code), tuple(sorted(command.ext_fields.items())), command.body) for command in link.sent)
                for link in links
            ),
            tuple(len(link.answers) for link in links),
        )


def _observed_server(server: _NameServer) -> ObservedServer:
    routes_of = server.routes
    numbers = {channel: number for number, channel in server.channels.items()}
    return ObservedServer(
        {
            addr: (
                live.broker_name,
                live.broker_id,
                live.ha_server_addr,
                live.data_version and (live.data_version.counter, live.data_version.timestamp, live.data_version.state_version),
                numbers.get(live.channel, -1),  # type: ignore[call-overload]
                live.last_update_ms,
                live.timeout_ms,
            )
            for addr, live in routes_of.broker_live_table.items()
        },
        frozenset((cluster, name) for cluster, names in routes_of.cluster_addr_table.items() for name in names),
        {name: group.cluster for name, group in routes_of.broker_addr_table.items()},
        {
            (topic, group): (queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)
            for topic, table in routes_of.topic_queue_table.items()
            for group, queue in table.items()
        },
        routes_of.queue_data_count,
        server.texts._table,
        tuple(sorted(server.channels)),
    )


def _meaning(body: bytes) -> Any:
    """What the JSON of an answer stands for; a body that is none is its bytes."""
    return json.loads(body) if body.startswith(b"{") else body
