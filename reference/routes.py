"""Name servers, the brokers that register with them, and the network between: `step(routes, event)`.

A link is what a broker has to one name server: its requests on the way there, the answers on the way back, and the connection
they take. A broker that runs has a turn of its loop after each event, a name server when time passes.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from rocketmq_ha.reference import broker_registration, broker_tables, name_server, route_entries, route_requests, route_table
from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.broker_registration import PERM_READ_WRITE, Registering
from rocketmq_ha.reference.broker_tables import Tables, Topic
from rocketmq_ha.reference.name_server import Answered, NameServer
from rocketmq_ha.reference.registration import CRC_MASK
from rocketmq_ha.reference.remoting import Command
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.codes import RequestCode, ResponseCode
from rocketmq_ha.spec.profile import Profile

UNREGISTER_TIMEOUT_MS: Final = 3_000
FIRST_OF_BROKERS: Final = 100  # the number of the first connection of a broker; 0 to 2 are anybody's
NAMES: Final = {
    RequestCode.REGISTER_BROKER: "register",
    RequestCode.UNREGISTER_BROKER: "unregister",
    RequestCode.BROKER_HEARTBEAT: "heartbeat",
    RequestCode.QUERY_DATA_VERSION: "query",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "wipe",
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "add",
    RequestCode.DELETE_TOPIC_IN_NAMESRV: "delete",
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: "register_topic",
}


class RegisteringState(Enum):
    """What a broker has with one name server. AGAIN: the topics have changed since it was asked. LATER: it gave no answer."""

    OFF = "off"
    IDLE = "idle"
    ASKED = "asked"
    AGAIN = "asked_again"
    LATER = "later"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Who a broker is."""

    cluster: str
    name: str
    broker_id: int
    addr: str
    permission: int = 6
    period_ms: int = 30_000

    @property
    def ha_addr(self) -> str:
        """HA-R-13: "brokerIP2:haListenPort"."""
        return self.addr + "0"


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change in a run. timeout_ms: of a registration."""

    server: name_server.Settings
    servers: int
    brokers: tuple[BrokerSettings, ...]
    timeout_ms: int = 6_000


@dataclass(frozen=True, slots=True)
class Question:
    """A request of a broker. number: among all of the run."""

    number: int
    code: int
    fields: tuple[tuple[str, str], ...]
    body: bytes
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Link:
    """channel: the number of the connection; -1 for none. sent: on the way to the name server. waiting: those that the broker
    waits for. answers: on the way back, with the numbers of their questions.
    """

    channel: int = -1
    sent: tuple[Question, ...] = ()
    waiting: tuple[Question, ...] = ()
    answers: tuple[tuple[int, Answered], ...] = ()


@dataclass(frozen=True, slots=True)
class Broker:
    """registering: None while it does not run. tables: its topics, as in its file while it does not run; None before its first
    start. master: haServerAddr and masterAddr as it was told last.
    """

    links: tuple[Link, ...]
    registering: Registering | None = None
    is_leaving: bool = False
    tables: Tables | None = None
    saved: Tables | None = None  # what its file has
    master: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Routes:
    """channels: of each name server the connections that it has, the oldest first. answers: of the last step, to requests of
    anybody: the name server, the connection and the answer. dropped: the connections that name servers have closed in it.
    """

    now_ms: int
    servers: tuple[NameServer, ...]
    channels: tuple[tuple[int, ...], ...]
    brokers: tuple[Broker, ...]
    next_channel: int = FIRST_OF_BROKERS
    requests: int = 0
    answers: tuple[tuple[int, int, Answered], ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()


def new_routes(settings: Settings, now_ms: int) -> Routes:
    """Name servers that know nothing, and brokers that do not run."""
    brokers = tuple(Broker((Link(),) * settings.servers) for _ in settings.brokers)
    return Routes(now_ms, (NameServer(),) * settings.servers, ((),) * settings.servers, brokers)


def step(routes: Routes, event: events.Event, settings: Settings, profile: Profile) -> tuple[Routes, tuple[Transition, ...]]:
    """One event, and all that it sets in motion. An event that does not apply does nothing."""
    work = _Work(routes, settings, profile)
    match event:
        case events.Register() | events.Unregister() | events.SignOfLife() | events.QueryVersion():
            work.request(event, event.channel)
        case events.Ask() | events.Change() | events.PutText() | events.DeleteText():
            work.request(event, 0)
        case events.Close():
            work.close(event.server, event.channel)
        case events.CloseStale():
            work.close_stale(event.server)
        case events.StartBroker():
            work.start_broker(event.broker)
        case events.StopBroker():
            work.stop_broker(event.broker, event.how)
        case events.UpdateTopic():
            topic = Topic(event.queue_nums, event.queue_nums, event.perm)
            work.change_topics(event.broker, event.name, topic)
        case events.DropTopic():
            work.change_topics(event.broker, event.name, None)
        case events.Deliver():
            work.deliver(event.broker, event.server)
        case events.Answer():
            work.answer(event.broker, event.server)
        case events.Cut():
            work.cut(event.broker, event.server, is_told=event.is_told)
        case events.Disk():
            work.servers[event.server] = replace(work.servers[event.server], is_full=event.is_full)
        case events.RestartServer():
            work.restart_server(event.server)
        case events.Tick():
            work.tick(event.ms)
        case _:
            assert_never(event)
    return work.routes(), tuple(work.transitions)


def registration_body(tables: Tables, permission: int) -> bytes:
    """The body of a broker's registration. HA-SE-40 "MUST register every topic with its `brokerPermission`"."""
    topics = {
        name: replace(topic, perm=broker_registration.registered_perm(topic.perm, permission))
        for name, topic in tables.topics.items()
    }
    found = broker_tables.topics_object(replace(tables, topics=topics))
    table = found["topicConfigTable"]
    assert isinstance(table, dict)
    wrapper = {
        "dataVersion": found["dataVersion"],
        "topicConfigTable": {name: dict(sorted(fields.items())) for name, fields in table.items()},
    }
    return route_requests.to_bytes({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def classify(broker: Broker, server: int) -> RegisteringState:
    """The state of a broker's registrations with a name server."""
    if broker.registering is None:
        return RegisteringState.OFF
    if broker.is_leaving:
        return RegisteringState.LEAVING
    state = broker.registering.servers[server]
    if state.asked:
        return RegisteringState.AGAIN if state.due else RegisteringState.ASKED
    return RegisteringState.IDLE if state.again_ms is None else RegisteringState.LATER


class _Work:
    """The routes of one step while they are being made. Nothing of it outlives the step."""

    def __init__(self, routes: Routes, settings: Settings, profile: Profile) -> None:
        self.settings, self.profile = settings, profile
        self.now_ms = routes.now_ms
        self.servers, self.channels = list(routes.servers), list(routes.channels)
        self.brokers = list(routes.brokers)
        self.next_channel, self.requests = routes.next_channel, routes.requests
        self.answers: list[tuple[int, int, Answered]] = []
        self.dropped: list[tuple[int, int]] = []
        self.transitions: list[Transition] = []

    def routes(self) -> Routes:
        return Routes(
            self.now_ms,
            tuple(self.servers),
            tuple(self.channels),
            tuple(self.brokers),
            self.next_channel,
            self.requests,
            tuple(self.answers),
            tuple(self.dropped),
        )

    # --- Name servers ----------------------------------------------------------------------------------------------------

    def request(self, event: route_requests.Request, channel: int) -> None:
        self.requests += 1
        command = route_requests.request_of(event, self.requests)
        self.answers.append((event.server, channel, self.serve(event.server, channel, command)))

    def serve(self, server: int, channel: int, command: Command) -> Answered:
        """A request arrives at a name server."""
        if channel not in self.channels[server]:
            self.channels[server] += (channel,)
        before = self.servers[server]
        after, answered, clauses = name_server.on_request(before, self.settings.server, channel, command, self.now_ms)
        self.servers[server] = after
        self.transitions += transitions_of(server, command, before, after, answered, clauses, self.now_ms)
        return answered

    def close(self, server: int, channel: int) -> None:
        """A name server sees that a connection has closed."""
        if channel not in self.channels[server]:
            return
        self.channels[server] = tuple(other for other in self.channels[server] if other != channel)
        before = self.servers[server]
        after, clauses = name_server.on_close(before, channel)
        self.servers[server] = after
        old, new = route_entries.of_server(before), route_entries.of_server(after)
        self.transitions.append(route_entries.row("name_server", server, "close", old, new, clauses, 0))
        self.transitions += _of_tables(server, "close", before, after, (self.now_ms, self.now_ms), clauses)

    def close_stale(self, server: int) -> None:
        in_use = {broker.links[server].channel for broker in self.brokers}
        stale = [channel for channel in self.channels[server] if channel >= FIRST_OF_BROKERS and channel not in in_use]
        if stale:
            self.close(server, stale[0])

    def restart_server(self, server: int) -> None:
        before = self.servers[server]
        self.servers[server] = after = name_server.restart(before)
        self.channels[server] = ()
        for number in range(len(self.brokers)):
            self.lose_link(number, server)
        for key in route_entries.all_texts(before):
            self.transitions.append(route_entries.texts(server, "restart", before, after, key, ("HA-R-53",)))
        self.transitions.append(
            route_entries.row(
                "name_server",
                server,
                "restart",
                route_entries.of_server(before),
                route_entries.of_server(after),
                ("HA-R-47", "HA-R-53"),
                0,
            )
        )
        self.transitions += _of_tables(server, "restart", before, after, (self.now_ms, self.now_ms), ("HA-R-47",))

    def scan(self, server: int, old_ms: int) -> None:
        before = self.servers[server]
        after, closed, clauses = name_server.on_tick(before, self.now_ms)
        self.servers[server] = after
        old, new = route_entries.of_server(before), route_entries.of_server(after)
        if old is not new or closed:
            self.transitions.append(route_entries.row("name_server", server, "tick", old, new, clauses, 0))
        self.transitions += _of_tables(server, "tick", before, after, (old_ms, self.now_ms), clauses)
        for channel in sorted(closed):
            self.dropped.append((server, channel))
            self.channels[server] = tuple(other for other in self.channels[server] if other != channel)
            for number, broker in enumerate(self.brokers):
                if broker.links[server].channel == channel:
                    self.lose_link(number, server)

    # --- Brokers ---------------------------------------------------------------------------------------------------------

    def start_broker(self, number: int) -> None:
        if self.brokers[number].registering is not None:
            self.stop_broker(number, "kill")
        broker, own = self.brokers[number], self.settings.brokers[number]
        tables = broker_tables.begin(broker_tables.Settings(own.name, own.cluster), self.now_ms)
        if (saved := broker.saved) is not None:
            tables = replace(tables, topics={**tables.topics, **saved.topics}, topic_version=saved.topic_version)
        self.brokers[number] = replace(broker, tables=tables, master=("", ""))
        step = broker_registration.on_start(
            self.settings.servers, own.period_ms, self.now_ms, registers_again=self.profile.registers_again
        )
        self.take(number, "start", step, ("HA-R-15", "HA-R-16"))

    def stop_broker(self, number: int, how: str) -> None:
        broker = self.brokers[number]
        if broker.registering is None:
            return
        if how == "clean":
            if not broker.is_leaving:
                self.leave(number)
            return
        states = [classify(broker, server) for server in range(self.settings.servers)]
        self.brokers[number] = replace(
            broker, registering=None, is_leaving=False, links=(Link(),) * self.settings.servers, tables=None, master=("", "")
        )
        for server, state in enumerate(states):
            self.row(number, server, how, state, RegisteringState.OFF, ())
        if how == "kill":
            for server, link in enumerate(broker.links):
                self.close(server, link.channel)

    def leave(self, number: int) -> None:
        """HA-R-18 "SHOULD unregister, with code 104": with each name server, whatever it has answered."""
        broker, own = self.brokers[number], self.settings.brokers[number]
        assert broker.registering is not None
        states = [classify(broker, server) for server in range(self.settings.servers)]
        idle = tuple(replace(state, due=False, again_ms=None) for state in broker.registering.servers)
        registering = replace(broker.registering, servers=idle, registers_again=False)
        self.brokers[number] = replace(broker, registering=registering, is_leaving=True)
        for server, state in enumerate(states):
            self.ask(number, server, RequestCode.UNREGISTER_BROKER, _names(own), b"", self.now_ms + UNREGISTER_TIMEOUT_MS)
            self.row(number, server, "leave", state, RegisteringState.LEAVING, ("HA-R-18",))

    def change_topics(self, number: int, name: str, topic: Topic | None) -> None:
        broker = self.brokers[number]
        if broker.tables is None or broker.registering is None or broker.is_leaving:
            return
        if topic is None:
            tables = broker_tables.delete_topic(broker.tables, name, self.now_ms)
        else:
            tables = broker_tables.update_topic(broker.tables, name, topic, self.now_ms)
        if tables.topic_version != broker.tables.topic_version:
            self.brokers[number] = replace(broker, tables=tables, saved=tables)
            if topic is None:  # HA-BT-15 "The name servers are not told"
                for server in range(self.settings.servers):
                    state = classify(broker, server)
                    self.row(number, server, "drop", state, state, ("HA-BT-15",))
        if tables.registered:
            self.take(number, "change", broker_registration.on_change(broker.registering), ("HA-BT-13",))

    def take(self, number: int, event: str, step: broker_registration.Step, clauses: tuple[str, ...], server: int = -1) -> None:
        """Take a broker's next state, and send what it asks. server: the one that the event is about, or -1 for all."""
        broker, own = self.brokers[number], self.settings.brokers[number]
        states = [classify(broker, at) for at in range(self.settings.servers)]
        registering, asked = step
        self.brokers[number] = replace(broker, registering=registering)
        assert broker.tables is not None
        for at in asked:
            body = registration_body(broker.tables, own.permission)
            fields = (
                *_names(own),
                ("haServerAddr", own.ha_addr),
                ("compressed", "false"),
                ("bodyCrc32", str(zlib.crc32(body) & CRC_MASK)),
            )
            self.ask(number, at, RequestCode.REGISTER_BROKER, fields, body, self.now_ms + self.settings.timeout_ms)
        for at, before in enumerate(states):
            after = classify(self.brokers[number], at)
            if at == server or at in asked or before is not after:
                said = (*clauses, *self.clauses_of_asking(own, before)) if at in asked else clauses
                self.row(number, at, event, before, after, said)

    def clauses_of_asking(self, own: BrokerSettings, before: RegisteringState) -> tuple[str, ...]:
        """The clauses of a registration that is sent, by the broker's state before it."""
        again = ("HA-SE-41",) if before is RegisteringState.AGAIN else ()
        permission = ("HA-SE-40",) if own.permission & PERM_READ_WRITE != PERM_READ_WRITE else ()
        return (*again, "HA-R-15", "HA-R-13", *permission)

    def row(
        self,
        number: int,
        server: int,
        event: str,
        before: RegisteringState,
        after: RegisteringState,
        clauses: tuple[str, ...],
    ) -> None:
        """Add a row of a broker's registering with one name server."""
        instance = number * self.settings.servers + server
        self.transitions.append(route_entries.row("registering", instance, event, before, after, clauses, 0))

    def ask(
        self, number: int, server: int, code: int, fields: tuple[tuple[str, str], ...], body: bytes, deadline_ms: int
    ) -> None:
        self.requests += 1
        question = Question(self.requests, int(code), tuple(sorted(fields)), body, deadline_ms)
        link = self.brokers[number].links[server]
        self.link(number, server, replace(link, sent=(*link.sent, question), waiting=(*link.waiting, question)))

    def link(self, number: int, server: int, link: Link) -> None:
        broker = self.brokers[number]
        self.brokers[number] = replace(broker, links=(*broker.links[:server], link, *broker.links[server + 1 :]))

    def deliver(self, number: int, server: int) -> None:
        """The first request is also what opens the connection."""
        link = self.brokers[number].links[server]
        if not link.sent:
            return
        if link.channel == -1:
            link = replace(link, channel=self.next_channel)
            self.next_channel += 1
        question = link.sent[0]
        command = Command(question.code, question.number, ext_fields=question.fields, body=question.body)
        answered = self.serve(server, link.channel, command)
        self.link(number, server, replace(link, sent=link.sent[1:], answers=(*link.answers, (question.number, answered))))

    def answer(self, number: int, server: int) -> None:
        link = self.brokers[number].links[server]
        if not link.answers:
            return
        (asked, answered), rest = link.answers[0], link.answers[1:]
        found = [question for question in link.waiting if question.number == asked]
        waiting = tuple(question for question in link.waiting if question.number != asked)
        self.link(number, server, replace(link, answers=rest, waiting=waiting))
        if found and found[0].code == RequestCode.REGISTER_BROKER:
            self.on_answer(number, server, answered)

    def on_answer(self, number: int, server: int, answered: Answered) -> None:
        """A name server has answered a registration. HA-R-14 "MUST connect to the HA address, haServerAddr, of its master"."""
        clauses: tuple[str, ...] = ()
        is_taken = answered.code == ResponseCode.SUCCESS
        if is_taken:
            told = dict(answered.ext_fields)
            master = told.get("haServerAddr", ""), told.get("masterAddr", "")
            self.brokers[number] = replace(self.brokers[number], master=master)
            is_slave = self.settings.brokers[number].broker_id != route_table.MASTER_ID
            clauses = (*(("HA-R-14",) if is_slave and master[0] else ()), *self.take_order(number, answered))
        registering = self.brokers[number].registering
        assert registering is not None
        step = broker_registration.on_answer(registering, server)
        self.take(number, "answer" if is_taken else "refused", step, clauses, server)

    def take_order(self, number: int, answered: Answered) -> tuple[str, ...]:
        """Take the topics that a name server lists as ordered, if it lists any. Returns: the clauses."""
        if isinstance(answered.body, bytes):
            return ()
        broker, table = self.brokers[number], answered.body["table"]
        assert broker.tables is not None
        assert isinstance(table, dict)
        tables = broker_tables.order_topics(broker.tables, frozenset(table), self.now_ms)
        if tables.topic_version != broker.tables.topic_version:
            self.brokers[number] = replace(broker, tables=tables, saved=tables)
        return ("HA-BT-16",)

    def fail(self, number: int, server: int, lost: Iterable[Question]) -> None:
        """These requests get no answer."""
        for question in lost:
            if question.code == RequestCode.REGISTER_BROKER:
                broker = self.brokers[number]
                assert broker.registering is not None
                step = broker_registration.on_failure(broker.registering, server, self.now_ms)
                again = self.profile.registers_again and not broker.is_leaving
                self.take(number, "failure", step, ("HA-R-58",) if again else (), server)

    def lose_link(self, number: int, server: int) -> None:
        """The broker sees the end of its connection."""
        link = self.brokers[number].links[server]
        self.link(number, server, Link())
        self.fail(number, server, link.waiting)

    def cut(self, number: int, server: int, *, is_told: bool) -> None:
        link = self.brokers[number].links[server]
        if link.channel == -1:
            return
        if is_told:
            self.close(server, link.channel)
        self.lose_link(number, server)

    # --- Time ------------------------------------------------------------------------------------------------------------

    def tick(self, ms: int) -> None:
        old_ms, self.now_ms = self.now_ms, self.now_ms + ms
        for number in range(len(self.brokers)):
            self.turn(number)
        for server in range(self.settings.servers):
            self.scan(server, old_ms)
        for number in range(len(self.brokers)):
            for server in range(self.settings.servers):
                link = self.brokers[number].links[server]
                late = tuple(question for question in link.waiting if question.deadline_ms <= self.now_ms)
                if not late:
                    continue
                left = tuple(question for question in link.waiting if question.deadline_ms > self.now_ms)
                self.link(number, server, replace(link, waiting=left))
                self.fail(number, server, late)
            self.turn(number)

    def turn(self, number: int) -> None:
        broker = self.brokers[number]
        if broker.registering is not None and not broker.is_leaving:
            clause = "HA-R-16" if self.now_ms >= broker.registering.next_ms else "HA-R-58"
            self.take(number, "tick", broker_registration.on_tick(broker.registering, self.now_ms), (clause,))


def _names(own: BrokerSettings) -> tuple[tuple[str, str], ...]:
    return (
        ("brokerName", own.name),
        ("brokerAddr", own.addr),
        ("clusterName", own.cluster),
        ("brokerId", str(own.broker_id)),
    )


# --- The transitions of a name server's steps ------------------------------------------------------------------------


def transitions_of(
    instance: int,
    command: Command,
    before: NameServer,
    after: NameServer,
    answered: Answered,
    clauses: tuple[str, ...],
    now_ms: int,
) -> Iterable[Transition]:
    """The rows of a request: of the broker, the topics or the text that it is about, or else of the name server."""
    fields = dict(command.ext_fields)
    is_refused = answered.code == ResponseCode.SYSTEM_ERROR
    name = NAMES.get(RequestCode(command.code)) if command.code in NAMES else None
    times = (now_ms, now_ms)
    if command.code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        event = "put" if command.code == RequestCode.PUT_KV_CONFIG else "delete"
        key = (fields["namespace"], fields["key"])
        yield route_entries.texts(instance, f"{event}_refused" if is_refused else event, before, after, key, clauses)
    elif name in ("register", "unregister", "heartbeat", "query"):
        subject = fields.get("brokerAddr", "")
        event = f"{name}_refused" if is_refused else name
        yield from route_entries.brokers(instance, event, before.table, after.table, times, subject or "?", clauses)
        yield from route_entries.topics(instance, event, before.table, after.table, (), clauses)
    elif name is not None and not is_refused:
        group = fields.get("brokerName")
        subjects = [key for key in before.table.queues if group == key[1] or fields.get("topic") == key[0]]
        yield from route_entries.topics(instance, name, before.table, after.table, subjects, clauses)
    elif name is not None:
        name = None
    state = route_entries.of_server(before), route_entries.of_server(after)
    if state[0] is not state[1] or (
        name is None and command.code not in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG)
    ):
        yield route_entries.row(
            "name_server", instance, _of_question(command.code, answered, name), *state, clauses, len(command.body)
        )


def _of_question(code: int, answered: Answered, name: str | None) -> str:
    """The event of the name server: questions by their kind, and whether they were answered."""
    if name is not None:
        return name
    if answered.code == ResponseCode.SUCCESS:
        return "route" if code == RequestCode.GET_ROUTEINFO_BY_TOPIC else "question"
    return {ResponseCode.TOPIC_NOT_EXIST: "no_route", ResponseCode.QUERY_NOT_FOUND: "no_text"}.get(
        ResponseCode(answered.code), "refused"
    )


def _of_tables(
    instance: int, event: str, before: NameServer, after: NameServer, times: tuple[int, int], clauses: tuple[str, ...]
) -> Iterable[Transition]:
    yield from route_entries.brokers(instance, event, before.table, after.table, times, "", clauses)
    yield from route_entries.topics(instance, event, before.table, after.table, (), clauses)
