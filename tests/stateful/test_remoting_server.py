"""Remoting in lock-step: for any bytes, answers and times the model's server and ours are in the same state.

The machine draws its events one by one, so Hypothesis shrinks a failure to the few that matter; the sides are those of the
world `remoting`. HA-RM-1 to HA-RM-8, HA-RM-10 to HA-RM-18, HA-RM-20, HA-RM-21, and HA-RM-23 to HA-RM-26, with limits of a few
requests and bytes.
"""

from pathlib import Path
from typing import Final, get_args

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kit.examples import machine_settings
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.remoting_schedule import BAD, CODES, NUMBERS, UNFIT, RemotingSchedule
from rocketmq_ha.fuzz.worlds.remoting_sides import ReferenceRemoting
from rocketmq_ha.reference import remoting_clients, remoting_server
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference.remoting_clients import Settings, frame_bytes
from rocketmq_ha.reference.remoting_events import LATER, Form, Frame
from rocketmq_ha.reference.remoting_server import Closed, Connection, Limits, Server
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import HARDENED

pytestmark = pytest.mark.xdist_group("lock-step")

CLIENTS = 2
clients = st.sampled_from(range(CLIENTS))
limits = st.builds(
    Settings,
    clients=st.just(CLIENTS),
    pending=st.sampled_from((1, 3)),
    pending_in_all=st.sampled_from((1, 4)),
    unsent=st.sampled_from((300, 0)),
    unfinished=st.sampled_from((90, 10)),
)
requests = st.builds(
    Frame,
    code=st.sampled_from(CODES),
    opaque=st.integers(1, 4),
    flag=st.sampled_from((0, 0, 0, 1, 2)),
    is_binary=st.booleans(),
    body_size=st.sampled_from((0, 20)),
    number=st.sampled_from(NUMBERS),
    form=st.sampled_from(("command", "command", "bare", "loose")),
)
bad = st.builds(Frame, code=st.just(0), opaque=st.just(0), form=st.sampled_from(BAD))
frames = st.integers(0, 29).flatmap(lambda kind: requests if kind else bad)
sizes = st.sampled_from((2_000, 400, 120, 50, 7))  # of one read


class LockStep(RuleBasedStateMachine):
    @initialize(settings=limits)
    def begin(self, settings: Settings) -> None:
        self.both = lockstep.of_schedule(RemotingSchedule(0, HARDENED, settings, ()), Path("/nowhere"))
        self.happens(*(events.Connect(client) for client in range(CLIENTS)))

    def happens(self, *given: events.Event) -> None:
        for event in given:
            outcome = self.both.apply(event)
            note(f"{event} -> {outcome.verdict}")
            assert outcome.verdict == VERDICT_OK, (outcome.signature, outcome.detail)

    @property
    def state(self) -> remoting_clients.Remoting:
        assert isinstance(self.both.reference, ReferenceRemoting)
        return self.both.reference.state

    @rule(client=clients, sent=st.lists(frames, min_size=1, max_size=4), size=sizes)
    def send(self, client: int, sent: list[Frame], size: int) -> None:
        """A client sends frames, and the server reads some bytes of what it has sent, unless it may not."""
        self.happens(events.Send(client, tuple(sent)), events.Read(client, size))

    @rule(client=clients, size=sizes)
    def read(self, client: int, size: int) -> None:
        self.happens(events.Read(client, size))

    @precondition(lambda self: self.state.held)
    @rule(nth=st.integers(0, 7), code=st.sampled_from((0, 17, UNFIT)), body_size=st.sampled_from((0, 100)))
    def serve(self, nth: int, code: int, body_size: int) -> None:
        """A handler answers a request that it was given before; perhaps the client has gone, or wants no answer."""
        self.happens(events.Serve(nth, code, body_size))

    @rule(client=clients, in_ms=st.sampled_from((0, 1_000, 30_000)), back=st.none() | st.sampled_from((-1, 0, 1)))
    def ask(self, client: int, in_ms: int, back: int | None) -> None:
        """Ask the client, which may answer this request, another one, or none."""
        self.happens(events.Invoke(client, in_ms), *(() if back is None else (events.Reply(client, back),)))

    @rule(client=clients)
    def notify(self, client: int) -> None:
        self.happens(events.Notify(client))

    @rule(client=clients, most=st.sampled_from((2_000, 200, 1)))
    def take(self, client: int, most: int) -> None:
        self.happens(events.Take(client, most))

    @rule(
        ms=st.sampled_from((1, 1, 999, 1_000, 10_000, 20_000, 40_000, 60_000, 120_000)),
        looks=st.sampled_from((True, True, False)),
    )
    def tick(self, ms: int, looks: bool) -> None:
        self.happens(events.Tick(ms, looks))

    @rule(client=clients)
    def end(self, client: int) -> None:
        self.happens(events.End(client))

    @rule(client=clients)
    def connect(self, client: int) -> None:
        self.happens(events.Connect(client))


TestLockStep = LockStep.TestCase
TestLockStep.settings = machine_settings(100, steps=50)


CLAUSES: Final[dict[Form, str]] = {  # by which a form is refused; none for one that is taken
    "serialize_type": "HA-RM-1",
    "short": "HA-RM-2",
    "beyond": "HA-RM-2",
    "http": "HA-MD-19",
    "behind": "HA-RM-7",
    "cut_off": "HA-RM-7",
    "long_header": "HA-RM-20",
    "deep": "HA-RM-21",
    "json": "HA-MD-20",
    "no_opaque": "HA-MD-20",
    "command": "",
    "bare": "",
    "loose": "",
}


@pytest.mark.parametrize(("form", "clause"), CLAUSES.items())
def test_each_form_of_a_frame_is_refused_by_its_clause_or_taken(form: Form, clause: str) -> None:
    """So the rows of a campaign name the clause that a bad frame meets."""
    server = Server(Limits(9, 9, 1 << 20, 1 << 20, 1, 1, 1), frozenset(), frozenset({LATER}), connections={0: Connection()})
    _, outputs = remoting_server.on_bytes(server, 0, frame_bytes(Frame(LATER, 1, form=form)), 0)
    assert [output.clause for output in outputs if isinstance(output, Closed)] == ([clause] if clause else [])


def test_every_form_has_its_case() -> None:
    assert CLAUSES.keys() == set(get_args(Form))
    assert {form for form, clause in CLAUSES.items() if clause} == set(BAD)
