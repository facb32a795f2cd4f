"""For any events of a store, model and implementation are in the same state after every event.

The machine draws its events one by one, so Hypothesis shrinks a failure to the few that matter. The schedules of the world
`store` are drawn whole from a seed, as in a campaign. HA-ST-1 to HA-ST-28, HA-ST-60 to HA-ST-71, HA-ST-89, HA-ST-92, HA-ST-95.
"""

from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kit.examples import machine_settings
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.store_schedule import ALL_PAGES, LONG, PROPERTIES, StoreSchedule, draw
from rocketmq_ha.reference import store_events as events
from rocketmq_ha.reference.store_state import StoreSettings
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

pytestmark = pytest.mark.xdist_group("lock-step")

bodies = st.builds(lambda size, filling: filling * size, st.integers(0, 1500), st.sampled_from((b"x", b"\0")))
queues = st.sampled_from((("T", 0), ("T", 1), ("orders", 0)))
rounds = st.sampled_from(
    (
        events.Flush(0),
        events.Dispatch(),
        events.FlushDerived(),
        events.Prepare(),
        events.Flush(1),
        events.WatchSpace(),
        events.DiskFull(True),
        events.DiskFull(False),
        events.DiskFails(0),
        events.DiskFails(1),
        events.DiskFails(-1),
    )
)
store_settings = st.builds(
    StoreSettings,
    mapped_file_size=st.sampled_from((600, 1024, 2048, 9000)),
    queue_file_size=st.sampled_from((20 * 64, 80)),
    hash_slot_num=st.just(3),
    index_num=st.sampled_from((40, 5)),
    sync_flush=st.booleans(),
    file_reserved_ms=st.sampled_from((None, 0, 2_000)),
    delete_when=st.sampled_from((None, (4,))),
    clean_file_forcibly=st.booleans(),
    max_log_size=st.sampled_from((None, 2_000)),
)
cuts = st.builds(
    events.PowerCut,
    st.sampled_from((ALL_PAGES, 0)) | st.integers(0, ALL_PAGES),
    st.sampled_from((9, 0, 1)),
    st.integers(0, 511),
)


class StoreLifeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()

    @initialize(profile=st.sampled_from((HARDENED, CLASSIC)), settings=store_settings)
    def start(self, profile: Profile, settings: StoreSettings) -> None:
        directory = self._resources.enter_context(lockstep.scratch_directory())
        self.worlds = lockstep.of_schedule(StoreSchedule(0, profile, settings, ()), directory)
        self._resources.callback(self.worlds.close)
        self.happens(events.Open())

    def teardown(self) -> None:
        self._resources.close()

    def happens(self, *given_events: events.Event) -> None:
        for event in given_events:
            outcome = self.worlds.apply(event)
            note(f"{event} -> {outcome.verdict}")
            assert outcome.verdict == VERDICT_OK, outcome.detail

    @rule(queue=queues, body=bodies, properties=st.sampled_from((*PROPERTIES, LONG)), flag=st.sampled_from((0, 0, 0, 4, 12)))
    def put(self, queue: tuple[str, int], body: bytes, properties: str, flag: int) -> None:
        self.happens(events.Put(queue[0], body, properties, queue[1], flag))

    @rule(queue=queues, batch=st.lists(bodies, min_size=1, max_size=4), properties=st.sampled_from(PROPERTIES))
    def put_batch(self, queue: tuple[str, int], batch: list[bytes], properties: str) -> None:
        self.happens(events.PutBatch(queue[0], tuple(batch), properties, queue[1]))

    @rule(ms=st.sampled_from((1, 1000, 3000, 5000, -1, -4000)))
    def tick(self, ms: int) -> None:
        self.happens(events.Tick(ms))

    @rule(event=rounds)
    def serve(self, event: events.Event) -> None:
        self.happens(event)

    @rule()
    def settle(self) -> None:
        self.happens(events.Dispatch(), events.Flush(0), events.FlushDerived())

    @rule(hour=st.sampled_from((4, 5)), percent=st.sampled_from((10, 80, 90)), needed=st.sampled_from((-1, 0, 2000)))
    def clean(self, hour: int, percent: int, needed: int) -> None:
        self.happens(events.Clean(hour, percent, needed))

    @rule(how=st.sampled_from((events.Close(), events.Kill())), cut=st.none() | cuts)
    def end(self, how: events.Event, cut: events.PowerCut | None) -> None:
        self.happens(how, *([cut] if cut else []), events.Open())

    @rule(cut=cuts, again=st.none() | cuts)
    def power_cut(self, cut: events.PowerCut, again: events.PowerCut | None) -> None:
        self.happens(cut, *([again] if again else []), events.Open())

    @rule(
        how=st.sampled_from((events.Close(), events.Kill())),
        harm=st.one_of(
            st.builds(
                events.Damage, st.integers(-2, 2), st.integers(0, 599), st.sampled_from((1, 8, 600)), st.integers(0, 255)
            ),
            st.builds(events.Shorten, st.integers(-2, 2), st.sampled_from((0, 100, 599))),
        ),
    )
    def harm(self, how: events.Event, harm: events.Event) -> None:
        self.happens(how, harm, events.Open(), events.Heal(), events.Open())


TestStoreLife = StoreLifeMachine.TestCase
TestStoreLife.settings = machine_settings(20, steps=30)


@given(seed=st.integers(0, (1 << 63) - 1))
@hypothesis_settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_a_drawn_schedule_ends_in_agreement(seed: int) -> None:
    outcome = lockstep.run(draw(seed))
    assert outcome.verdict == VERDICT_OK, (seed, outcome.last.op_index, outcome.last.detail)
