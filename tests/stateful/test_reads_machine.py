"""A broker that consumers read from: model and implementation give the same answers, and hold the same pulls, at every event.

Hypothesis draws the events one by one, so that it shrinks a failure to the few that matter. The schedules of the world `reads`
are drawn whole from a seed, and reach further.
"""

from hypothesis import example, given, note
from hypothesis import strategies as st

from kit.examples import machine_settings
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds.reads import READS
from rocketmq_ha.fuzz.worlds.reads_schedule import SUBSCRIPTIONS, TAGS, UNREAD, ReadsSchedule
from rocketmq_ha.reference import read_events as events
from rocketmq_ha.reference.reads_state import ReadsSetup
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import HARDENED

queues = st.integers(0, 1)
small = st.sampled_from
MESSAGES = st.builds(events.Message, queues, st.integers(1, 30), small(TAGS), small((0, 90)), small((0, 0, 2)), small((0, 1)))
PULLS = st.builds(
    events.Pull,
    channel=st.integers(0, 2),
    queue_id=queues | small((0, 0, -1, 3)),
    at=small(("max", "min", "zero")),
    more=small((0, 0, -1, 1, -3)),
    max_msg_nums=small((32, 1, 0, 900, -1)),
    sys_flag=st.integers(0, 31),
    suspend_timeout_millis=small((15_000, 5_000, 0)),
    subscription=small((*SUBSCRIPTIONS, *UNREAD)),
    expression_type=small((None, "TAG", "", "SQL92")),
    sub_version=small((0, 3)),
    commit_offset=st.integers(0, 9),
    lite=st.booleans(),
)
EVENTS = st.one_of(
    st.builds(events.Dispatch, st.lists(MESSAGES, min_size=1, max_size=3).map(tuple)),
    PULLS,
    PULLS,
    st.builds(events.Tick, small((0, 1_000, 4_999, 5_000, 15_000))),
    st.builds(events.CloseChannel, st.integers(0, 2)),
    st.builds(events.Expire, st.integers(1, 3), st.booleans()),
    st.builds(events.SetTopic, st.booleans(), small((6, 4, 2)), st.integers(0, 2)),
    st.builds(events.SetGroup, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2), st.integers(0, 2)),
    st.builds(
        events.SetConsumers,
        connected=st.booleans(),
        is_broadcasting=st.booleans(),
        has_subscribed=st.booleans(),
        sub_string=small(("*", "a", "a||b")),
        sub_version=small((2, 3)),
        expression_type=small(("TAG", "SQL92")),
        class_filter_mode=st.booleans(),
    ),
    st.builds(events.MasterLink, st.booleans()),
    st.just(events.Restart()),
)
SETUPS = st.builds(
    ReadsSetup,
    is_slave=st.booleans(),
    permission=small((6, 6, 2)),
    slave_read_enable=st.booleans(),
    offset_check_in_slave=st.booleans(),
    queues=st.just(2),
    file_entries=small((8, 2)),
    memory=small((1 << 40, 40, 0)),
    messages_in_memory=small((32, 2)),
    bytes_in_memory=small((262_144, 40)),
    messages_on_disk=small((8, 1)),
    max_parked=small((6, 2)),
    max_parked_of_connection=small((4, 1)),
    max_parked_tags=small((5, 1)),
    long_polling_enable=st.booleans(),
)
SLAVE = ReadsSetup(is_slave=True)
TWO = events.Dispatch((events.Message(0, 10, "a"), events.Message(0, 10, "b")))
MORE = events.Dispatch((events.Message(0, 10, "b"),))


@example(SLAVE, [TWO, events.Pull(0, 0, "min", -1, sys_flag=6)])  # was answered at once, as often as the consumer asked
@example(SLAVE, [TWO, events.Pull(0, 0, "min", -1, sys_flag=6, subscription="a"), MORE, events.Tick(5_000)])
@example(  # tags that a class filter does not look at are not kept, and count for no bound
    ReadsSetup(max_parked_tags=1),
    [events.SetConsumers(sub_string="a||b", class_filter_mode=True), events.Pull(0, 0, "max", sys_flag=2)],
)
@given(setup=SETUPS, drawn=st.lists(EVENTS, min_size=1, max_size=60))
@machine_settings(250, steps=1)
def test_model_and_implementation_agree_on_every_pull(setup: ReadsSetup, drawn: list[events.Event]) -> None:
    """HA-P-1 to HA-P-22, HA-R-20 to HA-R-31, HA-R-57."""
    outcome = lockstep.run(ReadsSchedule(0, HARDENED, setup, tuple(drawn)))
    for step in outcome.steps:
        note(f"{READS.describe(step.event)}: {step.verdict}")
    assert outcome.verdict == VERDICT_OK, f"{outcome.last.signature}: {outcome.last.detail}"
