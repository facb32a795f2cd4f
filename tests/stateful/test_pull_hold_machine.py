"""The hold of model and implementation, in lock-step: parking, messages, time, closed connections, bounds.

After each step both have the same pulls parked, and have let go of the same ones. Messages come one by one or several at once;
the implementation is told of queues, the model of messages. HA-P-16 to HA-P-22.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kit.examples import machine_settings
from rocketmq_ha.impl.broker.arrivals import Arrivals
from rocketmq_ha.impl.broker.pull_hold import HeldPull, HoldSettings, Parking, PullRequestHoldService
from rocketmq_ha.impl.store.pull import TagCodes
from rocketmq_ha.reference import pull_hold as model
from rocketmq_ha.reference.pull import Subscription

QUEUES = [("t", 0), ("t", 1), ("u", 0)]
CODES = [1, 2, -3]
subscriptions = st.one_of(
    st.just(Subscription()),
    st.builds(Subscription, st.just("x"), st.frozensets(st.sampled_from(CODES), max_size=2)),
)


class HoldMachine(RuleBasedStateMachine):
    """`tags`: the tags codes of the messages of each queue, by queue offset."""

    @initialize(long_polling=st.sampled_from([True, True, False]), short_ms=st.integers(1, 3000))
    def begin(self, long_polling: bool, short_ms: int) -> None:
        self.tags: dict[tuple[str, int], list[int]] = {key: [] for key in QUEUES}
        self.now_ms = 1000
        self.next_id = 0
        self.wakes = 0
        self.model_settings = model.Settings(6, 4, 5, long_polling, short_ms)
        self.model = model.Hold()
        self.arrivals = Arrivals(self._wake)
        settings = HoldSettings(long_polling, short_ms, 6, 4, 5)
        self.hold = PullRequestHoldService(self._max_offset_of, self._has_message_for, self.arrivals, settings)

    def _wake(self) -> None:
        self.wakes += 1

    def _max_offset_of(self, key: tuple[bytes, int]) -> int:
        return len(self.tags[key[0].decode(), key[1]])

    def _has_message_for(self, key: tuple[bytes, int], queue_offset: int, codes: TagCodes) -> tuple[bool, int]:
        tags = self.tags[key[0].decode(), key[1]]
        there = [code for code in tags[queue_offset:] if codes is None or code in codes]
        return bool(there), len(tags)

    def _woken_are(self, woken: list[HeldPull], expected: tuple[int, ...]) -> None:
        """The order is that of the parking within each queue."""
        found: list[Any] = [pull.request for pull in woken]
        assert sorted(found) == sorted(expected)
        for key in QUEUES:
            of_queue = [pull.request for pull in woken if pull.key == (key[0].encode(), key[1])]
            assert of_queue == [poll_id for poll_id in expected if poll_id in of_queue]

    @rule(
        key=st.sampled_from(QUEUES),
        channel=st.integers(0, 2),
        subscription=subscriptions,
        timeout_ms=st.sampled_from([0, 1, 4999, 5000, 5001, 15_000]),
    )
    def park(self, key: tuple[str, int], channel: int, subscription: Subscription, timeout_ms: int) -> None:
        offset = len(self.tags[key])
        poll = model.Parked(self.next_id, channel, *key, offset, subscription, self.now_ms, timeout_ms)
        codes = None if subscription.sub_string == "*" else subscription.codes
        pull = HeldPull(channel, (key[0].encode(), key[1]), offset, codes, self.next_id)
        self.next_id += 1
        self.model, refused = model.on_park(self.model, poll, self.model_settings)
        parking = self.hold.suspend_pull_request(pull, timeout_ms, self.now_ms)
        assert (parking is Parking.FULL) == (refused is not None)

    @rule(keys=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4), data=st.data())
    def dispatch(self, keys: list[tuple[str, int]], data: st.DataObject) -> None:
        """A round of the dispatch: messages of several queues, of which the implementation hears together."""
        expected: tuple[int, ...] = ()
        waited_for = {(poll.topic, poll.queue_id) for poll in self.model.parked}
        for key in keys:
            code = data.draw(st.sampled_from(CODES))
            self.tags[key].append(code)
            self.model, woken = model.on_dispatch(self.model, *key, len(self.tags[key]), code, self.model_settings)
            expected += woken.poll_ids
        wakes = self.wakes
        self.arrivals.on_dispatched({(topic.encode(), queue_id): None for topic, queue_id in keys}.keys())
        is_told = self.model_settings.long_polling_enable and not waited_for.isdisjoint(keys)
        assert self.wakes == wakes + is_told
        self._woken_are(self.hold.on_dispatch(self.arrivals.take()), tuple(sorted(expected)))

    @rule(past_ms=st.sampled_from([0, 1, 999, 1000, 4999, 5000, 5001, 15_000]))
    def tick(self, past_ms: int) -> None:
        self.now_ms += past_ms
        max_offsets = {key: len(tags) for key, tags in self.tags.items()}
        self.model, woken = model.on_tick(self.model, self.now_ms, max_offsets, self.model_settings)
        self._woken_are(self.hold.turn(self.now_ms), woken.poll_ids)

    @rule(channel=st.integers(0, 2))
    def close(self, channel: int) -> None:
        self.model = model.on_close(self.model, channel)
        self.hold.on_close(channel)

    @rule(is_due=st.sampled_from([False, False, False, True]))
    def shutdown(self, is_due: bool) -> None:
        if is_due:
            self.model, woken = model.on_shutdown(self.model)
            assert woken.poll_ids == ()
            self.hold.shutdown()

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        parked = {poll.poll_id for poll in self.model.parked}
        for table in (self.hold._table, self.hold._of_channel):
            assert {pull.request for held in table.values() for pull in held} == parked
            assert all(table.values())
        assert self.hold.count == len(parked)
        assert self.hold._tag_count == sum(len(poll.subscription.codes) for poll in self.model.parked)
        assert self.hold.next_check_at_ms == self.model.next_check_at
        if self.model_settings.long_polling_enable:
            assert self.arrivals._waited_for == set(self.hold._table)


TestHoldMachine = HoldMachine.TestCase
TestHoldMachine.settings = machine_settings(60, steps=40)
