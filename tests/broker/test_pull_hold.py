"""Pulls that are held: who is parked, what wakes them, how they are answered, and what becomes of them otherwise."""

from pathlib import Path

import pytest

from rocketmq_ha.fuzz.worlds.pull_stand import (
    PlayedChannel,
    PlayedLog,
    PlayedStore,
    PullStand,
    body_of,
    bytes_of,
    open_queue,
    subscription,
    topic,
)
from rocketmq_ha.impl.broker.arrivals import Arrivals
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.broker.pull_hold import HeldPull, HoldSettings, Parking, PullRequestHoldService
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.java_hash import java_hash
from rocketmq_ha.reference import pull_hold as model
from rocketmq_ha.reference.pull import Subscription
from rocketmq_ha.spec.role import BrokerRole

A, B = java_hash("a"), java_hash("b")
SUSPEND = 4 | 2
KEY = (b"t", 0)


class Held(PullStand):
    """A queue with 5 messages of 10 bytes, of the tag a; `put` adds one, as the dispatch does it."""

    def __init__(self, directory: Path, settings: PullSettings | None = None, hold: HoldSettings | None = None) -> None:
        store = PlayedStore(PlayedLog(0, 1 << 40, 1 << 30))
        super().__init__(store, settings, hold)
        self.queue: ConsumeQueue = open_queue(directory / "q")
        store.found[KEY] = self.queue
        for number in range(5):
            self.queue.put(10 * number, 10, A, number)

    def put(self, tags_code: int = A) -> None:
        number = self.queue.max_offset
        self.queue.put(10 * number, 10, tags_code, number)
        self.arrivals.on_dispatched([KEY, (b"other", 0)])

    def answers(self, now_ms: int) -> list[tuple[int, int, str | None, bytes]]:
        """What the turn answers: opaque, code, remark, body."""
        self.channel.answers.clear()
        self.processor.turn(now_ms)
        return [(each.opaque, each.code, each.remark, body_of(each)) for each in self.channel.answers]


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


@pytest.mark.parametrize(("sys_flag", "is_parked"), [(SUSPEND, True), (SUSPEND | 1, True), (4, False), (4 | 1, False)])
def test_a_pull_at_the_end_is_parked_if_it_may_be_held(held: Held, sys_flag: int, is_parked: bool) -> None:
    """HA-P-16 "A pull with bit 2 that would be answered 19 MUST be parked"; HA-R-29 "MUST NOT answer 19 to a pull"."""
    answer = held.pull(queueOffset=5, sysFlag=sys_flag, commitOffset=3)
    assert (answer is None) == is_parked
    assert held.hold.count == is_parked
    assert answer is None or answer.code == 19
    assert bool(held.committed) == bool(sys_flag & 1)  # HA-P-15: also if it is then parked


@pytest.mark.parametrize(
    ("changed", "code"), [({"queueOffset": 4}, 0), ({"queueOffset": 6}, 21), ({"queueOffset": 0, "subscription": "b"}, 20)]
)
def test_no_other_pull_is_parked(held: Held, changed: dict[str, object], code: int) -> None:
    answer = held.pull(sysFlag=SUSPEND, **changed)
    assert answer is not None
    assert answer.code == code
    assert held.hold.count == 0


def test_a_pull_of_a_queue_that_is_not_there_waits_for_its_first_message(held: Held, tmp_path: Path) -> None:
    assert held.pull(queueId=1, sysFlag=SUSPEND) is None
    assert held.pull(queueId=2, sysFlag=SUSPEND, subscription="a") is None
    assert held.answers(0) == []
    assert isinstance(held.store, PlayedStore)
    for queue_id in (1, 2):
        queue = held.store.found[b"t", queue_id] = open_queue(tmp_path / str(queue_id))
        queue.put(30, 10, A, 0)
        held.arrivals.on_dispatched([(b"t", queue_id)])
        assert held.answers(1) == [(7, 0, "FOUND", bytes_of(30, 10))]


def test_a_message_wakes_a_pull_at_once(held: Held) -> None:
    """HA-P-17 "When a message of the queue has been dispatched"; HA-P-19 "MUST be answered"."""
    assert held.pull(now_ms=1000, queueOffset=5, sysFlag=SUSPEND, opaque=9) is None
    assert held.answers(1000) == []
    held.put()
    assert held.wakes == 1
    assert held.answers(1001) == [(9, 0, "FOUND", bytes_of(50, 10))]
    assert held.hold.count == 0
    held.put()
    assert held.wakes == 1  # nobody waits any more
    assert held.answers(1002) == []


def test_a_message_of_another_tag_does_not_wake_a_pull(held: Held) -> None:
    """HA-P-17 "matches the tags code of the message"."""
    assert held.pull(queueOffset=5, sysFlag=SUSPEND, subscription="b") is None
    held.put(A)
    assert held.answers(1) == []
    held.put(B)
    held.put(A)
    assert held.answers(2) == [(7, 0, "FOUND", bytes_of(60, 10))]


def test_messages_are_looked_at_once_for_each_pull(held: Held) -> None:
    looked: list[tuple[int, int]] = []
    has_message_for = held.hold._has_message_for

    def noting(key: tuple[bytes, int], queue_offset: int, codes: frozenset[int] | None) -> tuple[bool, int]:
        found = has_message_for(key, queue_offset, codes)
        looked.append((queue_offset, found[1]))
        return found

    held.hold._has_message_for = noting
    held.pull(queueOffset=5, sysFlag=SUSPEND, subscription="b")
    for _ in range(3):
        held.put(A)
        held.answers(1)
    assert looked == [(5, 6), (6, 7), (7, 8)]


def test_every_5_s_a_message_of_any_tag_counts(held: Held) -> None:
    """HA-P-18 "Every 5 s a broker MUST look again at each parked pull", "whatever the tags"."""
    assert held.pull(now_ms=1000, queueOffset=5, sysFlag=SUSPEND, subscription="b") is None
    assert held.hold.next_check_at_ms == 6000
    held.put(A)
    assert held.answers(5999) == []
    assert held.answers(6000) == [(7, 20, "NO_MATCHED_MESSAGE", b"")]
    assert held.hold.next_check_at_ms is None


@pytest.mark.parametrize(
    ("suspend_timeout_ms", "at"), [(15_000, 15_000), (14_999, 15_000), (15_001, 20_000), (1, 5000), (0, 5000), (-9, 5000)]
)
def test_a_pull_whose_time_is_over_is_answered_19(held: Held, suspend_timeout_ms: int, at: int) -> None:
    """HA-P-18 "parked for its `suspendTimeoutMillis` or longer"; HA-R-29 "or `suspendTimeoutMillis` has passed"."""
    assert held.pull(queueOffset=5, sysFlag=SUSPEND, suspendTimeoutMillis=suspend_timeout_ms) is None
    answered = {now_ms: held.answers(now_ms) for now_ms in range(0, 25_000, 1000)}
    assert {now_ms: found for now_ms, found in answered.items() if found} == {at: [(7, 19, "OFFSET_OVERFLOW_ONE", b"")]}
    settings = model.Settings(9, 9, 9)
    hold, _ = model.on_park(model.Hold(), model.Parked(7, 1, "t", 0, 5, Subscription(), 0, suspend_timeout_ms), settings)
    woken: dict[int, tuple[int, ...]] = {}
    for now_ms in range(0, 25_000, 1000):
        hold, looked = model.on_tick(hold, now_ms, {("t", 0): 5}, settings)
        woken |= {now_ms: looked.poll_ids} if looked.poll_ids else {}
    assert woken == {at: (7,)}


def test_a_pull_that_is_looked_at_again_neither_waits_nor_commits(held: Held) -> None:
    """HA-P-19 "as if it had neither bit 1 nor bit 2"."""
    assert held.pull(queueOffset=5, sysFlag=SUSPEND | 1, commitOffset=4, suspendTimeoutMillis=10) is None
    assert len(held.committed) == 1
    assert [code for _, code, _, _ in held.answers(5000)] == [19]
    assert len(held.committed) == 1
    assert held.hold.count == 0


def test_all_checks_are_made_again(held: Held) -> None:
    """HA-P-19 "all checks are made again"."""
    assert held.pull(queueOffset=5, sysFlag=SUSPEND) is None
    del held.topics["t"]
    held.put()
    assert [code for _, code, _, _ in held.answers(1)] == [17]
    held.topics["t"] = topic()
    held.models["g"] = "CLUSTERING"
    held.subscriptions["g", "t"] = subscription()
    assert held.pull(queueOffset=6, sysFlag=2, subscription=None) is None
    held.models.clear()
    held.put()
    assert [code for _, code, _, _ in held.answers(1)] == [24]


def test_a_pull_that_waited_for_a_message_of_its_tags_gets_these_alone(held: Held) -> None:
    """The subscription of the request is kept, though not its text."""
    assert held.pull(queueOffset=5, sysFlag=SUSPEND, subscription="b||x") is None
    for code in (A, B, A):
        held.put(code)
    assert held.answers(1) == [(7, 0, "FOUND", bytes_of(60, 10))]


def test_a_message_that_comes_as_the_pull_is_parked_is_not_missed(held: Held) -> None:
    """The dispatch has put its entry before the queue was entered as waited for, so nobody tells of it."""
    max_offset_of = held.hold._max_offset_of

    def between(key: tuple[bytes, int]) -> int:
        held.hold._max_offset_of = max_offset_of
        held.queue.put(50, 10, A, 5)
        return max_offset_of(key)

    held.hold._max_offset_of = between
    assert held.pull(queueOffset=5, sysFlag=SUSPEND) is None
    assert held.wakes == 1
    assert held.answers(0) == [(7, 0, "FOUND", bytes_of(50, 10))]


def test_the_loop_is_not_woken_for_queues_that_nobody_waits_for(held: Held) -> None:
    held.put()
    assert held.pull(queueOffset=6, sysFlag=SUSPEND) is None
    held.arrivals.on_dispatched([(b"t", 1), (b"u", 0)])
    assert held.wakes == 0
    assert held.arrivals.take() == []
    held.arrivals.on_dispatched([(b"t", 1), KEY])
    held.arrivals.on_dispatched([KEY])
    assert held.arrivals.take() == [KEY]


def test_several_pulls_of_a_queue_are_answered_in_their_order(held: Held) -> None:
    for opaque, sub_string in ((1, "*"), (2, "b"), (3, "a"), (4, "*")):
        assert held.pull(opaque=opaque, queueOffset=5, sysFlag=SUSPEND, subscription=sub_string) is None
    held.put(A)
    assert [opaque for opaque, _, _, _ in held.answers(1)] == [1, 3, 4]
    held.put(B)
    assert [opaque for opaque, _, _, _ in held.answers(1)] == [2]


def test_a_turn_answers_so_many_pulls_and_the_next_one_the_others(held: Held) -> None:
    for _ in range(600):
        assert held.pull(queueOffset=5, sysFlag=SUSPEND) is None
    held.put()
    assert held.wakes == 1
    assert len(held.answers(3)) == 512
    assert held.wakes == 2
    assert len(held.answers(3)) == 88
    assert held.wakes == 2


# --- Ends ------------------------------------------------------------------------------------------------------------


def test_a_connection_that_closes_takes_its_pulls_along(held: Held) -> None:
    """HA-P-20 "its parked pulls SHOULD be dropped without an answer"."""
    other = PlayedChannel("127.0.0.1:4712")
    for channel in (held.channel, other, held.channel):
        assert held.pull(channel=channel, queueOffset=5, sysFlag=SUSPEND) is None
    other.is_open = False
    held.processor.on_close(other)
    assert held.hold.count == 2
    held.put()
    assert len(held.answers(1)) == 2
    assert other.answers == []
    held.processor.on_close(other)  # it has none any more


def test_a_pull_that_is_woken_as_its_connection_closes_is_dropped(held: Held) -> None:
    for _ in range(513):
        held.pull(queueOffset=5, sysFlag=SUSPEND)
    held.put()
    assert len(held.answers(1)) == 512
    held.channel.is_open = False
    assert held.wakes == 2
    assert held.answers(1) == []
    assert held.wakes == 2


def test_the_last_pull_of_a_queue_that_is_dropped_ends_the_waiting(held: Held) -> None:
    held.pull(queueOffset=5, sysFlag=SUSPEND)
    held.processor.on_close(held.channel)
    held.put()
    assert held.wakes == 0
    assert held.hold.next_check_at_ms is None


def test_a_shutdown_answers_nobody(held: Held) -> None:
    """HA-P-20 "A broker that shuts down MUST NOT answer the pulls that it has parked"."""
    held.pull(queueOffset=5, sysFlag=SUSPEND)
    held.processor.shutdown()
    held.put()
    assert held.answers(100_000) == []
    assert held.hold.count == 0


# --- Bounds ----------------------------------------------------------------------------------------------------------


def codes(stand: PullStand, channels: list[PlayedChannel], **changed: object) -> list[int | None]:
    answers = [stand.pull(channel=channel, queueOffset=5, sysFlag=SUSPEND, **changed) for channel in channels]
    return [None if answer is None else answer.code for answer in answers]


def test_the_parked_pulls_are_bounded_in_all_and_of_a_connection(tmp_path: Path) -> None:
    """HA-P-22 "MUST bound the pulls that it parks: in all, of one connection"; "is answered with SYSTEM_BUSY (2)"."""
    held = Held(tmp_path, hold=HoldSettings(max_parked=3, max_parked_of_connection=2))
    first, second = held.channel, PlayedChannel()
    assert codes(held, [first, first, first, second, second]) == [None, None, 2, None, 2]
    assert held.hold.count == 3
    held.put()
    assert len(held.answers(1)) == 2
    assert held.pull(queueOffset=6, sysFlag=SUSPEND) is None  # there is room again


@pytest.mark.parametrize(
    ("bounds", "pulls", "parked"),
    [
        ((3, 9, 9), [(1, 0), (2, 0), (3, 0), (4, 0)], [True, True, True, False]),
        ((9, 2, 9), [(1, 0), (1, 0), (1, 0), (2, 0), (2, 0), (2, 0)], [True, True, False, True, True, False]),
        ((9, 9, 3), [(1, 2), (1, 1), (2, 1), (1, 0)], [True, True, False, True]),
        ((9, 9, 3), [(1, 4), (1, 3), (2, 1)], [False, True, False]),
        ((1, 1, 0), [(1, 1), (1, 0), (1, 0)], [False, True, False]),
    ],
)
def test_each_bound_of_the_parked_pulls_is_that_of_the_model(
    bounds: tuple[int, int, int], pulls: list[tuple[int, int]], parked: list[bool]
) -> None:
    """HA-P-22 "MUST bound the pulls that it parks: in all, of one connection, and the tags". pulls: connection, tags."""
    service = PullRequestHoldService(
        lambda _: 0, lambda _key, at, _codes: (False, at), Arrivals(lambda: None), HoldSettings(True, 1_000, *bounds)
    )
    hold, found, expected = model.Hold(), [], []
    for number, (connection, tags) in enumerate(pulls):
        codes = frozenset(range(tags))
        pull = HeldPull(connection, KEY, 0, codes or None, number)
        found.append(service.suspend_pull_request(pull, 15_000, 0) is Parking.PARKED)
        poll = model.Parked(number, connection, "t", 0, 0, Subscription("x" if tags else "*", codes), 0, 15_000)
        hold, refused = model.on_park(hold, poll, model.Settings(*bounds))
        expected.append(refused is None)
    assert found == expected == parked


def test_the_tags_of_the_parked_pulls_are_bounded(tmp_path: Path) -> None:
    """HA-P-22 "and the tags of their subscriptions in all"."""
    held = Held(tmp_path, hold=HoldSettings(max_parked_tags=3))
    assert codes(held, [held.channel] * 2, subscription="x||y") == [None, 2]
    assert codes(held, [held.channel] * 2, subscription="x") == [None, 2]
    assert codes(held, [held.channel] * 2, subscription="*") == [None, None]
    held.processor.on_close(held.channel)
    assert codes(held, [held.channel], subscription="x||y||z") == [None]


def test_a_parked_pull_keeps_nothing_large(held: Held) -> None:
    held.pull(queueOffset=5, sysFlag=SUSPEND, subscription="x||" * 1000, unknown="y" * 1000)
    [pull] = held.hold._table[KEY]
    assert len(repr(pull.request)) < 1000


# --- Settings --------------------------------------------------------------------------------------------------------


def test_without_long_polling_a_pull_is_looked_at_again_after_a_second(tmp_path: Path) -> None:
    """HA-P-21 "MUST park pulls for `shortPollingTimeMills`, 1,000 ms by default", "not when a message is dispatched"."""
    held = Held(tmp_path, hold=HoldSettings(long_polling_enable=False))
    held.pull(queueOffset=5, sysFlag=SUSPEND, opaque=1)
    held.pull(queueOffset=0, sysFlag=SUSPEND, opaque=2, queueId=3)
    held.put()
    assert held.wakes == 0
    assert held.answers(999) == []
    assert [each[:2] for each in held.answers(1000)] == [(1, 0), (2, 19)]


def test_the_usual_settings() -> None:
    assert (HoldSettings().interval_ms, HoldSettings(long_polling_enable=False).interval_ms) == (5000, 1000)
    assert HoldSettings(long_polling_enable=False, short_polling_time_mills=300).interval_ms == 300


def test_a_slave_holds_pulls_as_well(tmp_path: Path) -> None:
    held = Held(tmp_path, PullSettings(role=BrokerRole.SLAVE))
    held.pull(queueOffset=5, sysFlag=SUSPEND | 1)
    assert held.committed == []
    held.put()
    assert held.answers(1) == [(7, 0, "FOUND", bytes_of(50, 10))]
