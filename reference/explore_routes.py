"""The transitions of name servers and of brokers that register, found by exploring small scopes (transitions.py).

Each scope is a list of events that may come in any order, and a way to take a state for another that behaves the same: ages and
times count only as over or not, numbers of requests and versions not at all.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Final

from rocketmq_ha.reference import name_server, routes
from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.broker_tables import Version
from rocketmq_ha.reference.kv_config import ORDER_TOPIC_CONFIG
from rocketmq_ha.reference.name_server import NameServer
from rocketmq_ha.reference.pauses import Pauses
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.route_table import Bounds, DataVersion, QueueData, Registration
from rocketmq_ha.reference.routes import FIRST_OF_BROKERS, Broker, BrokerSettings, Link, Routes, Settings
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.codes import RequestCode
from rocketmq_ha.spec.profile import CLASSIC, Profile

X, Y, A, B = "h:1", "h:2", "a", "b"
OLD, NEW = DataVersion(1, 1, 0), DataVersion(1, 1, 1)
T6, T4 = (("T", QueueData(4, 4, 6, 1)),), (("T", QueueData(4, 4, 4, 3)),)
PAUSE_MS: Final = 121_000
LATE_MS: Final = 6_000  # of a broker's request
PERIOD_MS: Final = 10_000
Rows = frozenset[Transition]


def _register(
    addr: str, broker_id: int, version: DataVersion | None = OLD, group: str = A, channel: int = 0, **said: object
) -> events.Register:
    found = Registration("c", group, broker_id, addr, addr + "0", version, **said)  # type: ignore[arg-type]
    return events.Register(0, channel, found)


_DAMAGED: Final = events.Register(0, 0, _register(X, 0).registration, damage="crc")
_TICKS: Final = (events.Tick(1), events.Tick(1_000), events.Tick(PAUSE_MS))
_BROKERS: Final[tuple[events.Event, ...]] = (
    *(_register(X, broker_id, version) for broker_id in (0, 1) for version in (OLD, NEW)),
    _register(X, 0, heartbeat_timeout_ms=0),
    _register(X, 1, heartbeat_timeout_ms=0),
    *(_register(X, broker_id, group=B) for broker_id in (0, 1)),
    _register(Y, 0, channel=1),
    _register(Y, 0, NEW, channel=1),
    _register(Y, 1, channel=0),
    _DAMAGED,
    *(replace(_DAMAGED, damage=damage) for damage in ("cut", "control")),
    replace(_DAMAGED, damage="", lacks="brokerId"),
    events.Unregister(0, 0, A, X),
    events.Unregister(0, 0, B, X),
    events.SignOfLife(0, 0, X),
    events.QueryVersion(0, 0, X, OLD),
    events.Close(0, 0),
    events.Close(0, 1),
    events.RestartServer(0),
    *_TICKS,
)
_TOPICS: Final[tuple[events.Event, ...]] = (
    *(_register(X, 0, version, topics=topics) for version in (OLD, NEW) for topics in (T6, T4)),
    _register(X, 0, group=B),
    _register(Y, 1, channel=1, topics=T6),
    _register(Y, 1, channel=1, topics=T4, gives_acting_master=True),
    _register(Y, 0, channel=1, topics=(*T6, ("U", QueueData(1, 1, 6)), ("V", QueueData(1, 1, 6)))),
    events.Unregister(0, 0, A, X),
    events.Close(0, 0),
    events.Close(0, 1),
    events.RestartServer(0),
    events.Change(0, RequestCode.WIPE_WRITE_PERM_OF_BROKER, A),
    events.Change(0, RequestCode.ADD_WRITE_PERM_OF_BROKER, A),
    *(events.Change(0, RequestCode.DELETE_TOPIC_IN_NAMESRV, "T", cluster) for cluster in (None, "of nobody")),
    events.Change(0, RequestCode.REGISTER_TOPIC_IN_NAMESRV, "T", None, ((A, T6[0][1]),)),
    events.Change(0, RequestCode.REGISTER_TOPIC_IN_NAMESRV, "T", None, ((A, T4[0][1]),)),
    events.Change(0, RequestCode.REGISTER_TOPIC_IN_NAMESRV, "U", None, ((A, T4[0][1]),)),
    events.Change(0, RequestCode.UPDATE_NAMESRV_CONFIG, "T"),
    *(
        events.Ask(0, code, argument, "T")
        for code, argument in (
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, "T"),
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, None),
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ""),
            (RequestCode.GET_NAMESRV_CONFIG, ""),
            (RequestCode.GET_KV_CONFIG, "n"),
            (9_999, ""),
        )
    ),
    *_TICKS,
)
_TEXTS: Final[tuple[events.Event, ...]] = (
    *(events.PutText(0, ORDER_TOPIC_CONFIG, "T", value) for value in ("v", "w", "x" * 60)),
    events.PutText(0, ORDER_TOPIC_CONFIG, "k\n", "v"),
    events.DeleteText(0, ORDER_TOPIC_CONFIG, "T"),
    events.Ask(0, RequestCode.GET_KV_CONFIG, ORDER_TOPIC_CONFIG, "T"),
    events.Disk(0, is_full=True),
    events.Disk(0, is_full=False),
    events.RestartServer(0),
    _register(X, 0),
)
_REGISTRATIONS: Final[tuple[events.Event, ...]] = (
    events.StartBroker(0),
    *(events.StopBroker(0, how) for how in ("clean", "kill", "power")),
    events.UpdateTopic(0, "T", 4, 6),
    events.DropTopic(0, "T"),
    events.Deliver(0, 0),
    events.Answer(0, 0),
    events.Cut(0, 0, is_told=True),
    events.Cut(0, 0, is_told=False),
    events.CloseStale(0),
    events.RestartServer(0),
    _register(Y, 0, group=B),
    events.Close(0, 0),
    events.PutText(0, ORDER_TOPIC_CONFIG, "T", "v"),
    *(events.Tick(ms) for ms in (500, 1_000, LATE_MS, PERIOD_MS)),
)
_SENDING: Final = (events.UpdateTopic, events.StartBroker, events.StopBroker, events.Tick)
_ONE_BROKER: Final = (BrokerSettings("c", A, 1, X, period_ms=1),)
_OF_A_SLAVE: Final[tuple[events.Event, ...]] = (
    _register(Y, 0, channel=1),
    events.StartBroker(0),
    events.UpdateTopic(0, "T", 4, 6),
    events.Deliver(0, 0),
    events.Answer(0, 0),
)
_READ_ONLY: Final = (BrokerSettings("c", A, 1, X, permission=4),)


def _settings(brokers: int, queue_datas: int, text_size: int, own: tuple[BrokerSettings, ...] = ()) -> Settings:
    return Settings(name_server.Settings(Bounds(brokers, queue_datas), text_size), 1, own, LATE_MS)


@cache
def of_name_servers() -> Rows:
    """The rows of name servers, which are the same in every profile."""
    found: set[Transition] = set()
    for alphabet, settings in (
        (_BROKERS, _settings(2, 9, 999)),
        (_TOPICS, _settings(1, 2, 999)),
        (_TOPICS, _settings(2, 2, 999)),
        (_TEXTS, _settings(9, 9, 70)),
    ):
        found |= _explore(alphabet, settings, CLASSIC)
    return frozenset(found)


@cache
def of_registrations(profile: Profile) -> Rows:
    """The rows of a broker that registers with one name server, which may be full, and of a slave that hears of its master."""
    alone = _explore(_REGISTRATIONS, _settings(1, 50, 999, _ONE_BROKER), profile)
    return alone | _explore(_OF_A_SLAVE, _settings(2, 50, 999, _READ_ONLY), profile)


def rows(profile: Profile) -> Rows:
    """The rows of all machines of the world."""
    return of_name_servers() | of_registrations(profile)


def _explore(alphabet: tuple[events.Event, ...], settings: Settings, profile: Profile) -> Rows:
    rows: set[Transition] = set()

    def successors(state: Routes) -> Iterator[Routes]:
        for event in alphabet:
            if isinstance(event, _SENDING) and _is_busy(state):
                continue
            after, transitions = routes.step(state, event, settings, profile)
            rows.update(transitions)
            yield _normal(after)

    _visit(routes.new_routes(settings, 0), successors, _key)
    return frozenset(rows)


def _visit(start: Routes, successors: Callable[[Routes], Iterator[Routes]], key: Callable[[Routes], Hashable]) -> None:
    """Visit every state that can be reached, one of each key."""
    seen, frontier = {key(start)}, [start]
    while frontier:
        for state in successors(frontier.pop()):
            if (name := key(state)) not in seen:
                seen.add(name)
                frontier.append(state)


def _is_busy(state: Routes) -> bool:
    """Whether so much is on its way that more would tell nothing new."""
    return any(len(link.sent) + len(link.answers) > 1 for broker in state.brokers for link in broker.links)


def _normal(state: Routes) -> Routes:
    """A state that behaves as this one, at the time 0."""
    servers = tuple(_normal_server(server, state.now_ms) for server in state.servers)
    brokers = tuple(_normal_broker(broker, state.now_ms) for broker in state.brokers)
    in_use = {link.channel for broker in state.brokers for link in broker.links}
    numbers = {channel: FIRST_OF_BROKERS + (channel not in in_use) for channel in state.channels[0] if channel > 2}
    used = {broker.channel for broker in state.servers[0].table.brokers.values()} | in_use  # the close of another does nothing
    channels = (tuple(sorted({numbers.get(one, one) for one in state.channels[0] if one in used})),)
    servers = tuple(
        replace(
            server,
            table=replace(
                server.table,
                brokers={
                    addr: replace(broker, channel=numbers.get(broker.channel, broker.channel))
                    for addr, broker in server.table.brokers.items()
                },
            ),
        )
        for server in servers
    )
    return Routes(0, servers, channels, brokers, FIRST_OF_BROKERS + 2, 10)


def _normal_server(server: NameServer, now_ms: int) -> NameServer:
    """What it holds, with ages that are over or 0."""
    brokers = {
        addr: replace(
            broker,
            last_update_ms=-broker.timeout_ms - 1 if now_ms - broker.last_update_ms > broker.timeout_ms else 0,
        )
        for addr, broker in server.table.brokers.items()
    }
    until_ms = server.pauses.until_ms
    paused = Pauses(0, until_ms and 1_000, min(server.pauses.in_a_row, 1))
    next_scan_ms = 2_000 if server.next_scan_ms > now_ms else 0
    return replace(server, table=replace(server.table, brokers=brokers), pauses=paused, next_scan_ms=next_scan_ms)


def _normal_broker(broker: Broker, now_ms: int) -> Broker:
    """What it has with its name servers; what is due later is due in full time."""
    if (state := broker.registering) is not None:
        later = tuple(
            replace(server, again_ms=server.again_ms and (1_000 if server.again_ms > now_ms else 0)) for server in state.servers
        )
        state = replace(state, servers=later, next_ms=PERIOD_MS if state.next_ms > now_ms else 0)
    version = Version(0, 0)
    tables, saved = (table and replace(table, topic_version=version, registered=()) for table in (broker.tables, broker.saved))
    return replace(
        broker, registering=state, tables=tables, saved=saved, links=tuple(map(_normal_link, broker.links)), master=("", "")
    )


def _normal_link(link: Link) -> Link:
    """Its requests are numbered anew, from 1 on."""
    numbers = {number: at for at, number in enumerate(sorted({*_numbers(link)}), 1)}
    sent, waiting = (
        tuple(replace(question, number=numbers[question.number], deadline_ms=LATE_MS) for question in questions)
        for questions in (link.sent, link.waiting)
    )
    answers = tuple((numbers[number], answered) for number, answered in link.answers)
    return Link(-1 if link.channel == -1 else FIRST_OF_BROKERS, sent, waiting, answers)


def _numbers(link: Link) -> Iterator[int]:
    yield from (question.number for question in (*link.sent, *link.waiting))
    yield from (number for number, _ in link.answers)


def _key(state: Routes) -> Hashable:
    """What tells a state apart from others; versions and bodies of brokers do not."""
    server = state.servers[0]
    table, texts = server.table, server.texts.table
    return (
        frozenset((addr, broker) for addr, broker in table.brokers.items())
        if not state.brokers
        else tuple(sorted(table.brokers)),
        frozenset(table.queues.items()),
        frozenset((name, frozenset(found)) for name, found in texts.items()),
        server.is_full,
        server.pauses,
        server.next_scan_ms,
        state.channels,
        tuple((b.registering, b.is_leaving, b.saved is None, tuple(map(_key_of_link, b.links))) for b in state.brokers),
    )


def _key_of_link(link: Link) -> Hashable:
    return (
        link.channel,
        tuple((question.number, question.code) for question in link.sent),
        tuple((question.number, question.code) for question in link.waiting),
        tuple((number, answered.code, bool(answered.body)) for number, answered in link.answers),
    )
