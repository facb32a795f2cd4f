"""Schedules of the world of remoting, drawn from a seed: first the limits and the weights, and then events by those."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds.drawing import draw_events, draw_weights
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference.remoting_clients import Settings
from rocketmq_ha.reference.remoting_events import AT_ONCE, FAULTY, LATER, READS, UNKNOWN, Event, Form, Frame
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

MIN_OPS, MAX_OPS = 80, 180
CODES: Final = (AT_ONCE, AT_ONCE, LATER, LATER, LATER, READS, FAULTY, UNKNOWN)
FLAGS: Final = (0, 0, 0, 0, 2)
NUMBERS: Final = (
    None,
    "0",
    "7",
    "+12",
    "-2147483648",
    "2147483648",
    "00012",
    "1.0",
    "",
    " 1",
    "-",
    "x" * 70,
    "1  \n2",
    "\u0663",
)
BODIES: Final = (0, 0, 0, 1, 20, 200)
PIECES: Final = (1, 3, 4, 7, 8, 50, 120, 400, 2_000)
ALL: Final = 2_000  # more bytes than are ever on the way, mostly
WHOLE: Final[tuple[Form, ...]] = ("command", "bare", "loose")
USUAL: Final[tuple[Form, ...]] = ("command", "command", "command", "command", "command", "command", "command", *WHOLE)
BAD: Final[tuple[Form, ...]] = tuple(form for form in get_args(Form) if form not in WHOLE)
TICKS: Final = (1, 1, 1, 999, 1_000, 1_000, 3_000, 10_000, 10_000, 19_999, 20_000, 40_000, 59_999, 60_000, 119_999, 120_000)
UNFIT: Final = 40_000  # no i16: a binary header does not take this code

# The numbers that a mutation may change.
BOUNDS: Final[Mapping[tuple[type, str], tuple[int, int]]] = {
    (events.Reply, "back"): (-1, 3),
    (events.Reply, "body_size"): (0, 400),
    (events.Take, "nbytes"): (1, 4_000),
    (events.Read, "nbytes"): (1, 4_000),
    (events.Serve, "nth"): (0, 7),
    (events.Serve, "code"): (0, UNFIT),
    (events.Serve, "body_size"): (0, 400),
    (events.Invoke, "in_ms"): (0, 120_000),
    (events.Tick, "ms"): (0, 120_000),
}
Draw = Callable[[], tuple[Event, ...]]


@dataclass(frozen=True, slots=True)
class RemotingSchedule:
    """The complete input of a run. The server behaves alike in both profiles."""

    seed: int
    profile: Profile
    settings: Settings
    events: tuple[Event, ...]


def draw(seed: int) -> RemotingSchedule:
    """Draw the schedule of a seed."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    settings = draw_settings(rng)
    draws = event_draws(rng, settings)
    weights = draw_weights(rng, draws)
    size = rng.randint(MIN_OPS, MAX_OPS)
    begin = [events.Connect(client) for client in range(settings.clients) if client == 0 or rng.random() < 0.8]
    return RemotingSchedule(seed, profile, settings, draw_events(rng, draws, weights, begin, size))


def draw_settings(rng: random.Random) -> Settings:
    """Draw limits so small that a few requests and bytes reach them."""
    pending = rng.choice((1, 2, 3, 5))
    return Settings(
        clients=rng.choice((1, 2, 2, 3)),
        pending=pending,
        pending_in_all=rng.choice((1, pending, pending, pending + 1, pending + 1, 9)),
        unsent=rng.choice((0, 60, 300, 300, 1_000)),
        unfinished=rng.choice((10, 60, 150, 5_000)),
    )


def draw_event(rng: random.Random, drawn: RemotingSchedule) -> Event:
    """Draw an event for a schedule that exists."""
    draws = event_draws(rng, drawn.settings)
    return rng.choice(rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]())


def fits(settings: Settings, event: Event) -> bool:
    """Return True if the client of an event is there."""
    return getattr(event, "client", 0) < settings.clients


def event_draws(rng: random.Random, settings: Settings) -> list[tuple[int, bool, Draw]]:
    """All events as (weight, a schedule may omit it, function that draws a sequence)."""
    harsh = rng.choice((0.0, 0.02, 0.02, 0.15))  # share of frames that are none
    binary = rng.choice((0.0, 0.5, 0.9))

    def client() -> int:
        return rng.randrange(settings.clients)

    def frame() -> Frame:
        form: Form = rng.choice(BAD) if rng.random() < harsh else rng.choice(USUAL)
        opaque, flag = rng.choice((1, 2, 3, 4, -7)), rng.choice(FLAGS)
        is_binary = rng.random() < binary
        return Frame(rng.choice(CODES), opaque, flag, is_binary, rng.choice(BODIES), rng.choice(NUMBERS), form)

    def frames() -> tuple[Frame, ...]:
        return tuple(frame() for _ in range(rng.choice((1, 1, 2, 4))))

    def talk() -> tuple[Event, ...]:
        """A client takes its answers, or does not; it sends, and the server reads it in pieces."""
        at = client()
        pieces = (*(rng.choice(PIECES) for _ in range(rng.choice((0, 1, 1, 2)))), *rng.choice(((ALL,), (ALL,), (ALL,), ())))
        takes = (events.Take(at, ALL),) if rng.random() < 0.5 else ()
        return (*takes, events.Send(at, frames()), *(events.Read(at, piece) for piece in pieces))

    def drip() -> tuple[Event, ...]:
        """A client sends slowly, and takes what it can."""
        at, first = client(), rng.choice((1_000, 20_000, 40_000, 59_999))
        pieces = (events.Read(at, rng.choice((7, 50))), events.Read(at, rng.choice((50, 120))))
        rests = (events.Tick(first), events.Tick(rng.choice((1, 60_000 - first, 60_000))))
        slowly = (step for pair in zip(pieces, rests, strict=True) for step in (pair[0], events.Take(at, ALL), pair[1]))
        return (events.Send(at, tuple(frame() for _ in range(3))), *slowly, events.Read(at, ALL))

    def crowd() -> tuple[Event, ...]:
        """A client has frames behind what it has to take, or behind requests, while the requests of another take all room."""
        at, other = client(), client()
        first = tuple(frame() for _ in range(rng.choice((2, 3, 4))))
        filling = tuple(Frame(LATER, opaque, is_binary=True) for opaque in range(rng.choice((1, 2, 3))))
        asked = (invoke(at),) if rng.random() < 0.3 else ()
        begin = (events.Send(at, first), events.Read(at, ALL), *asked, events.Send(other, filling), events.Read(other, ALL))
        ends = serve(), serve(), events.End(other), events.Tick(rng.choice((20_000, 60_000, 120_000))), events.Connect(client())
        return (*begin, events.Take(at, rng.choice((ALL, 30))), rng.choice(ends), rng.choice(ends))

    def serve() -> Event:
        return events.Serve(rng.randrange(8), rng.choice((0, 0, 0, 17, UNFIT)), rng.choice(BODIES))

    def invoke(at: int) -> Event:
        return events.Invoke(at, rng.choice((0, 1_000, 3_000, 30_000)))

    def ask() -> tuple[Event, ...]:
        """The server asks a client, which answers, perhaps late or more than once."""
        at, wait = client(), rng.choice((0, 0, 0, 1_000, 3_000))
        replies = tuple(events.Reply(at, 0, rng.choice(BODIES)) for _ in range(rng.choice((1, 1, 2))))
        late = (events.Tick(wait, rng.random() < 0.5),) if wait else ()
        return (invoke(at), events.Take(at, ALL), *late, *replies, events.Read(at, ALL))

    def rest() -> tuple[Event, ...]:
        """Nobody sends or takes a byte for a while."""
        first = rng.choice(TICKS)
        return events.Tick(first), events.Tick(rng.choice((1, 20_000 - min(first, 19_999), 120_000 - min(first, 119_999))))

    def end() -> tuple[Event, ...]:
        at = client()
        return (events.End(at), events.Connect(at)) if rng.random() < 0.7 else (events.End(at),)

    return [
        (14, False, talk),
        (5, False, lambda: (events.Read(client(), rng.choice(PIECES)),)),
        (3, True, lambda: (events.Send(client(), frames()),)),
        (8, True, lambda: (serve(),)),
        (8, True, lambda: (events.Take(client(), rng.choice((ALL, ALL, 200, 30, 1))),)),
        (4, True, ask),
        (2, True, lambda: (invoke(client()),)),
        (2, True, lambda: (events.Reply(client(), rng.choice((-1, 0, 0, 1, 2)), rng.choice(BODIES)),)),
        (2, True, lambda: (events.Notify(client()),)),
        (4, False, lambda: (events.Tick(rng.choice(TICKS), rng.random() < 0.8),)),
        (2, True, rest),
        (2, True, drip),
        (4 if settings.clients > 1 else 0, True, crowd),
        (2, True, end),
        (7, False, lambda: (events.Connect(client()),)),
    ]


def fault_of(event: Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case events.End():
            return "break_connection"
        case events.Send(frames=frames) if any(frame.form not in WHOLE for frame in frames):
            return "bad_frame"
        case events.Reply(back=back) if back < 0:
            return "unknown_answer"
        case _:
            return NO_FAULT
