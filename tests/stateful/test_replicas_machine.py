"""Puts that wait for the disk and for several replicas: model and implementation are in the same state after every event.

Hypothesis draws the events one by one, so that it shrinks a failure to the few that matter. The schedules of the world
`replicas` are drawn whole from a seed, and reach further.
"""

import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st

from kit.examples import machine_settings
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.replicas import REPLICAS
from rocketmq_ha.fuzz.worlds.replicas_schedule import NO_WAITS, NOTHING, WAITS, ReplicasSchedule
from rocketmq_ha.reference import replica_events as events
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

pytestmark = pytest.mark.xdist_group("replicas")  # it takes long: it begins early

TIMEOUT_MS = 700
places = st.integers(-1, 5)
messages = st.sampled_from((0, 0, 1, 2, 5, NOTHING))
EVENTS = st.one_of(
    st.builds(events.Put, st.sampled_from((8, 0, 300)), st.sampled_from((*WAITS, *NO_WAITS)), st.booleans()),
    st.builds(events.Accept, st.integers(0, 2), st.sampled_from((-1, -1, 0, 1))),
    st.builds(events.Transfer, places),
    st.builds(events.Report, places, messages),
    st.builds(events.Report, places, messages, st.sampled_from((0, 1, -1, -90, 1 << 40, -(1 << 41))), st.just(False)),
    st.builds(events.Close, places),
    st.just(events.Sync()),
    st.builds(events.Flush, st.sampled_from((0, 0, 1, 2))),
    st.builds(events.Tick, st.sampled_from((0, 1, 300, TIMEOUT_MS, TIMEOUT_MS + 1, 1000, 20_001))),
    st.builds(events.Restart, st.booleans(), st.booleans()),
)
# A slave that has acknowledged a message, of which the rest of the schedule then makes something.
SLAVE = (events.Accept(0), events.Report(-1, NOTHING), events.Transfer(-1), events.Put(8, "WAIT\x01false"))
SLAVE += (events.Transfer(-1), events.Report(-1, 0))


@st.composite
def settings_of(draw: st.DrawFn, profile: Profile) -> Settings:
    return Settings(
        mapped_file_size=draw(st.sampled_from((4000, 700))),
        ha_slave_fallbehind_max=draw(st.sampled_from((1 << 28, 250))),
        sync_flush_timeout_ms=TIMEOUT_MS,
        master_read_buffer_size=draw(st.sampled_from((8, 64))),
        replicas=draw(st.sampled_from((1, 2, 3))) if profile.counts_replicas else 1,
    )


@st.composite
def schedules(draw: st.DrawFn) -> ReplicasSchedule:
    profile = draw(st.sampled_from((HARDENED, CLASSIC)))
    settings = draw(settings_of(profile))
    begin = SLAVE * draw(st.integers(0, 2))
    drawn = draw(st.lists(EVENTS, min_size=1, max_size=60))
    return ReplicasSchedule(0, profile, settings, draw(st.booleans()), draw(st.booleans()), (*begin, *drawn))


PUT = events.Put(8)


@example(  # a flush covers a put that came when it was under way, and the next one, which is for another put, is not waited for
    ReplicasSchedule(
        *(0, HARDENED, Settings(4000), False, True),
        (PUT, PUT, events.Sync(), PUT, events.Flush(), events.Flush(2)),
    )
)
@example(  # ... and classic tells such a put of its flush before it looks for slaves
    ReplicasSchedule(
        *(0, CLASSIC, Settings(4000), True, True),
        (*SLAVE, PUT, PUT, events.Sync(), PUT, events.Flush(), events.Transfer(0), events.Report(0, 1), events.Tick(5001)),
    )
)
@given(schedule=schedules())
@machine_settings(250, steps=1)
def test_model_and_implementation_agree_on_every_put(schedule: ReplicasSchedule) -> None:
    """HA-G-1 to HA-G-8, HA-G-12 to HA-G-15, HA-G-20, HA-G-30 to HA-G-32, HA-G-40 to HA-G-46, and hardened's invariants."""
    outcome = lockstep.run(schedule)
    for step in outcome.steps:
        note(f"{REPLICAS.describe(step.event)}: {step.verdict}")
    assert outcome.verdict == VERDICT_OK, f"{outcome.last.signature}: {outcome.last.detail}"
