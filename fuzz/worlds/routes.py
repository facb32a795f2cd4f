"""The world of routes: name servers, brokers that register with them, and anybody who asks (reference/routes.py)."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds.drawing import draw_events, draw_weights
from rocketmq_ha.fuzz.worlds.routes_sides import ImplementationRoutes, ReferenceRoutes
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import name_server, route_events, routes
from rocketmq_ha.reference import route_events as events
from rocketmq_ha.reference.kv_config import ORDER_TOPIC_CONFIG
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.route_table import Bounds, DataVersion, QueueData, Registration
from rocketmq_ha.reference.routes import BrokerSettings, Settings
from rocketmq_ha.spec.codes import RequestCode
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

MIN_OPS, MAX_OPS = 60, 160
CLUSTERS: Final = ("c1", "c1", "c2")
GROUPS: Final = ("a", "a", "b")
ADDRESSES: Final = ("h:1", "h:2", "h:3")
TOPICS: Final = ("T", "U", "V", "a", "TBW102")
NAMESPACES: Final = (ORDER_TOPIC_CONFIG, ORDER_TOPIC_CONFIG, "n")
TICKS: Final = (1, 999, 1_000, 1_000, 5_000, 6_000, 10_000, 30_000, 60_000, 119_000, 120_000, 120_001)
# In a Sequence: long silences, in steps that are no pause of the name server's loop, and pauses in a row (HA-T-21).
SILENCES: Final = ((119_000, 1_000, 1_000), (120_001, 1_000), (60_000, 60_000, 1_000, 1_000), (1_001,) * 10, (1_000,) * 4)
QUESTIONS: Final = (
    *((RequestCode.GET_ROUTEINFO_BY_TOPIC,) * 4),
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_NAMESRV_CONFIG,
    9_999,
)

LEGEND: Final = """\
names   brokers by address: group and id, * its master; +n: topics of groups, w of them writable; (n) connections
broker  of each name server: . idle, ? asked, ! asked and due again, ~ due later, x leaving, - off; >n requests, <n answers"""

Draw = Callable[[], tuple[events.Event, ...]]


@dataclass(frozen=True, slots=True)
class RoutesSchedule:
    """The complete input of a run."""

    seed: int
    profile: Profile
    settings: Settings
    events: tuple[events.Event, ...]


class RoutesWorld(World[RoutesSchedule]):
    name = "routes"
    whole = "name_servers"
    schedule_type = RoutesSchedule
    event_types = get_args(route_events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> RoutesSchedule:
        return draw(seed)

    def draw_event(self, rng: random.Random, schedule: RoutesSchedule) -> events.Event:
        said = [event.registration for event in schedule.events if isinstance(event, events.Register)]
        draws = event_draws(rng, schedule.settings, said)
        return rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]()[0]

    def fits(self, schedule: RoutesSchedule, event: events.Event) -> bool:
        """Its name server and its broker are there."""
        settings = schedule.settings
        return getattr(event, "server", 0) < settings.servers and getattr(event, "broker", -1) < len(settings.brokers)

    def fitting(self, event: events.Event) -> str:  # noqa: ARG002
        return "a name server and a broker of the setup"

    def bounds(self, schedule: RoutesSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        most = {"server": schedule.settings.servers - 1, "broker": len(schedule.settings.brokers) - 1, "channel": 2}
        places = {
            (kind, field.name): (0, most[field.name])
            for kind in self.event_types
            for field in fields(kind)
            if most.get(field.name, -1) > 0
        }
        return places | {(events.Tick, "ms"): (0, max(TICKS)), (events.UpdateTopic, "queue_nums"): (1, 8)}

    def open(self, schedule: RoutesSchedule, directory: Path) -> tuple[ReferenceRoutes, ImplementationRoutes]:
        given = schedule.settings, schedule.profile, START_MS
        return ReferenceRoutes(*given), ImplementationRoutes(*given, directory)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def headline(self, schedule: RoutesSchedule) -> str:
        settings = schedule.settings
        bounds, own = (
            settings.server.bounds,
            ", ".join(f"{b.addr} {b.cluster}/{b.name}/{b.broker_id}" for b in settings.brokers),
        )
        return (
            f"{settings.servers} name server(s) for {bounds.brokers} brokers and {bounds.queue_datas} topics of groups, "
            f"{settings.server.text_size} B of texts; brokers: {own}"
        )

    def columns(self, schedule: RoutesSchedule) -> tuple[str, ...]:
        names = [f"names {number}" for number in range(schedule.settings.servers)]
        return (*names, *(f"broker {broker.addr}" for broker in schedule.settings.brokers))

    def cells(self, reference: ReferenceRoutes) -> list[str]:
        return cells(reference.routes)


ROUTES: Final = RoutesWorld()


# --- Schedules -------------------------------------------------------------------------------------------------------


def draw(seed: int) -> RoutesSchedule:
    """Draw the schedule of a seed: first the sizes and the weights, then the events."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    settings = draw_settings(rng)
    draws = event_draws(rng, settings, [])
    weights = draw_weights(rng, draws)
    size = rng.randint(MIN_OPS, MAX_OPS)
    return RoutesSchedule(seed, profile, settings, draw_events(rng, draws, weights, (), size))


def draw_settings(rng: random.Random) -> Settings:
    """Draw brokers that sometimes claim the same place, and bounds that are sometimes reached."""
    brokers = tuple(
        BrokerSettings(
            rng.choice(CLUSTERS),
            rng.choice(GROUPS),
            rng.choice((0, 0, 1, 2)),
            addr,
            rng.choice((6, 6, 6, 4, 2)),
            rng.choice((1, 10_000, 30_000, 99_000)),
        )
        for addr in ADDRESSES[: rng.choice((0, 1, 2, 2))]
    )
    bounds = Bounds(rng.choice((2, 3, 4, 100)), rng.choice((4, 11, 20, 200)))
    server = name_server.Settings(bounds, rng.choice((60, 200, 100_000)), rng.random() < 0.5)
    return Settings(server, rng.choice((1, 1, 2)), brokers)


def event_draws(rng: random.Random, settings: Settings, said: list[Registration]) -> list[tuple[int, bool, Draw]]:
    """All events as (weight, a schedule may omit it, function that draws a sequence).

    said: registrations that were drawn before, which a broker often repeats.
    """
    brokers = len(settings.brokers)

    def server() -> int:
        return rng.randrange(settings.servers)

    def broker() -> int:
        return rng.randrange(brokers)

    def channel() -> int:
        return rng.choice((0, 0, 1, 2))

    def version() -> DataVersion:
        return DataVersion(rng.randrange(3), rng.randrange(2), rng.choice((0, 0, 0, 1)))

    def queue() -> QueueData:
        return QueueData(rng.randrange(3), 4, rng.choice((2, 4, 6, 7)), rng.choice((0, 0, 1, 2, 3)))

    def topics() -> tuple[tuple[str, QueueData], ...]:
        return tuple((name, queue()) for name in rng.sample(TOPICS, rng.choice((0, 1, 2, 3, 5))))

    def registration() -> Registration:
        if said and rng.random() < 0.5:
            again = rng.choice(said)
            return replace(again, topics=topics()) if rng.random() < 0.4 else again
        addr = rng.choice(ADDRESSES)
        found = Registration(
            rng.choice(CLUSTERS),
            rng.choice(GROUPS),
            rng.choice((0, 0, 1, 2)),
            addr,
            addr + "0",
            None if rng.random() < 0.15 else version(),
            topics(),
            rng.choice((None, None, None, 0, 1_000, 500_000)),
            rng.random() < 0.3,
        )
        said.append(found)
        return found

    def register() -> tuple[events.Event, ...]:
        form: events.Form = rng.choice(("json", "json", "json", "compressed", "none"))
        found = registration()
        if rng.random() < 0.08:
            damage: events.Damage = rng.choice(("crc", "cut", "control", "long"))
            return (events.Register(server(), channel(), found, form, damage),)
        if rng.random() < 0.06:
            lacks: events.Lacks = rng.choice(("brokerName", "clusterName", "brokerAddr", "haServerAddr", "brokerId"))
            return (events.Register(server(), channel(), found, form, lacks=lacks),)
        return (events.Register(server(), channel(), found, form),)

    def query() -> tuple[events.Event, ...]:
        if said and rng.random() < 0.7:
            known = rng.choice(said)
            return (events.QueryVersion(server(), channel(), known.broker_addr, known.version or DataVersion(0, 0)),)
        return (events.QueryVersion(server(), channel(), rng.choice(ADDRESSES), version()),)

    def ask() -> tuple[events.Event, ...]:
        code = int(rng.choice(QUESTIONS))
        argument: str | None = rng.choice((*TOPICS, *GROUPS, "c1", "c2", "nobody's"))
        if code in (RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE):
            argument = rng.choice((*NAMESPACES, "empty"))
        elif code == RequestCode.GET_TOPICS_BY_CLUSTER:
            argument = rng.choice(("c1", "c2", "c3"))
        if rng.random() < 0.03:
            argument = None
        return (events.Ask(server(), code, argument, rng.choice(TOPICS)),)

    def change() -> tuple[events.Event, ...]:
        name = rng.choice(TOPICS[:4])
        cases: tuple[Callable[[], events.Event], ...] = (
            lambda: events.Change(server(), int(RequestCode.WIPE_WRITE_PERM_OF_BROKER), rng.choice(GROUPS)),
            lambda: events.Change(server(), int(RequestCode.ADD_WRITE_PERM_OF_BROKER), rng.choice(GROUPS)),
            lambda: events.Change(server(), int(RequestCode.DELETE_TOPIC_IN_NAMESRV), name, rng.choice((None, "", "c1", "c2"))),
            lambda: events.Change(server(), int(RequestCode.UPDATE_NAMESRV_CONFIG), name),
            lambda: events.Change(
                server(),
                int(RequestCode.REGISTER_TOPIC_IN_NAMESRV),
                name if rng.random() < 0.9 else "n" * 513,
                None,
                tuple((rng.choice(GROUPS), queue()) for _ in range(rng.randrange(4))),
            ),
        )
        return (rng.choice(cases)(),)

    def put() -> tuple[events.Event, ...]:
        key = rng.choice(TOPICS) if rng.random() < 0.95 else "k\n"
        return (events.PutText(server(), rng.choice(NAMESPACES), key, rng.choice(("a:4", "a:4;b:2", "ü" * 20))),)

    def deliver() -> tuple[events.Event, ...]:
        at = broker(), server()
        if rng.random() < 0.6:
            return events.Deliver(*at), events.Answer(*at)
        return (events.Deliver(*at),)

    def silence() -> tuple[events.Event, ...]:
        return tuple(events.Tick(ms) for ms in rng.choice(SILENCES))

    of_all: list[tuple[int, bool, Draw]] = [
        (20, False, register),
        (4, True, lambda: (events.Unregister(server(), channel(), rng.choice(GROUPS), rng.choice(ADDRESSES)),)),
        (4, True, lambda: (events.SignOfLife(server(), channel(), rng.choice(ADDRESSES)),)),
        (5, True, query),
        (8, False, ask),
        (8, True, change),
        (5, True, put),
        (2, True, lambda: (events.DeleteText(server(), rng.choice((*NAMESPACES, "empty")), rng.choice(TOPICS)),)),
        (4, True, lambda: (events.Close(server(), channel()),)),
        (2, True, lambda: (events.Disk(server(), rng.random() < 0.5),)),
        (1, True, lambda: (events.RestartServer(server()),)),
        (8, False, lambda: (events.Tick(rng.choice(TICKS)),)),
        (2, True, silence),
    ]
    if not brokers:
        return of_all
    return [
        *of_all,
        (4, False, lambda: (events.StartBroker(broker()),)),
        (2, True, lambda: (events.StopBroker(broker(), rng.choice(("clean", "clean", "kill", "power"))),)),
        (5, True, lambda: (events.UpdateTopic(broker(), rng.choice(TOPICS), rng.randint(1, 8), rng.choice((2, 4, 6))),)),
        (2, True, lambda: (events.DropTopic(broker(), rng.choice(TOPICS)),)),
        (16, False, deliver),
        (8, True, lambda: (events.Answer(broker(), server()),)),
        (3, True, lambda: (events.Cut(broker(), server(), rng.random() < 0.5),)),
        (2, True, lambda: (events.CloseStale(server()),)),
    ]


# --- For replays and the event log -----------------------------------------------------------------------------------


def fault_of(event: events.Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case events.Register():
            return f"damage_{event.damage}" if event.damage else "lacking_field" if event.lacks else NO_FAULT
        case events.Close() | events.CloseStale():
            return "close"
        case events.StopBroker():
            return f"{event.how}_broker"
        case events.Cut():
            return "cut_told" if event.is_told else "cut_untold"
        case events.Disk():
            return "fill_disk" if event.is_full else NO_FAULT
        case events.RestartServer():
            return "restart_server"
        case _:
            return NO_FAULT


def describe(event: events.Event) -> str:
    match event:
        case events.Register():
            said = event.registration
            wrong = f", damaged: {event.damage}" if event.damage else f", without {event.lacks}" if event.lacks else ""
            version = "no version" if said.version is None else f"version {said.version.counter}/{said.version.timestamp}"
            return (
                f"{said.broker_addr} registers as {said.cluster_name}/{said.broker_name}/{said.broker_id} with "
                f"{len(said.topics)} topics, {version}, by {event.channel}{wrong}"
            )
        case events.Unregister():
            return f"{event.broker_addr} leaves {event.broker_name}"
        case events.SignOfLife():
            return f"{event.broker_addr} is alive"
        case events.QueryVersion():
            return f"{event.broker_addr} asks whether {event.version.counter}/{event.version.timestamp} is known"
        case events.Ask():
            return f"question {event.code} of {event.argument}"
        case events.Change():
            return f"change {event.code} of {event.name[:8]}"
        case events.PutText():
            return f"text {event.namespace}/{event.key!r} is {event.value[:8]}"
        case events.DeleteText():
            return f"text {event.namespace}/{event.key} is forgotten"
        case events.Close():
            return f"connection {event.channel} closes"
        case events.StartBroker():
            return f"broker {event.broker} starts"
        case events.StopBroker():
            return f"broker {event.broker} ends: {event.how}"
        case events.UpdateTopic():
            return f"broker {event.broker} has {event.name} with {event.queue_nums} queues, perm {event.perm}"
        case events.DropTopic():
            return f"broker {event.broker} deletes {event.name}"
        case events.Deliver():
            return f"request of broker {event.broker} reaches {event.server}"
        case events.Answer():
            return f"answer of {event.server} reaches broker {event.broker}"
        case events.Cut():
            return f"broker {event.broker} loses {event.server}, told: {event.is_told}"
        case events.CloseStale():
            return f"name server {event.server} sees an old close"
        case events.Disk():
            return f"disk of {event.server} {'is full' if event.is_full else 'has room again'}"
        case events.RestartServer():
            return f"name server {event.server} restarts"
        case events.Tick():
            return f"{event.ms} ms pass"


_MARKS: Final = {"off": "-", "idle": ".", "asked": "?", "asked_again": "!", "later": "~", "leaving": "x"}


def cells(state: routes.Routes) -> list[str]:
    """The columns of a replay after an event."""
    row = []
    for server, channels in zip(state.servers, state.channels, strict=True):
        table = server.table
        listed = [f"{addr} {b.broker_name}{b.broker_id or '*'}" for addr, b in sorted(table.brokers.items())]
        writable = sum(queue.perm & 2 > 0 for queue in table.queues.values())
        row.append(f"{', '.join(listed) or 'none'} +{len(table.queues)} w{writable} ({len(channels)})")
    for broker in state.brokers:
        marks = [_MARKS[routes.classify(broker, number).value] for number in range(len(state.servers))]
        sent, back = sum(len(link.sent) for link in broker.links), sum(len(link.answers) for link in broker.links)
        row.append("".join(marks) + (f" >{sent}" if sent else "") + (f" <{back}" if back else ""))
    return row
