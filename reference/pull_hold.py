"""The pulls that a broker holds: parked under their queue until a message comes or their time is over.

                 on_park                    on_dispatch (the tag matches), on_tick (any message, or the time is over)
    (arrived) ------------> parked under ------------------------------------------------------> looked at again
                  |         topic@queue  --- on_close ---> dropped
                  +--> refused with SYSTEM_BUSY: beyond a bound

A state is the polls in the order in which they were parked. Whoever is looked at again leaves the table first.
Spec: HA-P-16 to HA-P-22.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_ha.reference.pull import Subscription, matches
from rocketmq_ha.reference.replace import replace

HOLD_INTERVAL_MS = 5_000


@dataclass(frozen=True, slots=True)
class Settings:
    """HA-P-22 "MUST bound the pulls that it parks: in all, of one connection, and the tags of their subscriptions in all"."""

    max_parked: int
    max_parked_of_connection: int
    max_parked_tags: int
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000

    @property
    def interval_ms(self) -> int:
        """HA-P-21 "look at them again every so often"; HA-P-18 "Every 5 s"."""
        return HOLD_INTERVAL_MS if self.long_polling_enable else self.short_polling_time_mills


@dataclass(frozen=True, slots=True)
class Parked:
    """One pull. `poll_id` stands for its request, `channel` for its connection."""

    poll_id: int
    channel: int
    topic: str
    queue_id: int
    pull_from_this_offset: int
    subscription: Subscription
    suspend_timestamp: int  # ms
    timeout_millis: int


@dataclass(frozen=True, slots=True)
class Hold:
    """All parked pulls, and when they are next looked at whatever happens."""

    parked: tuple[Parked, ...] = ()
    next_check_at: int | None = None  # ms; None where nothing is parked


@dataclass(frozen=True, slots=True)
class Refused:
    """The pull is answered with SYSTEM_BUSY."""


@dataclass(frozen=True, slots=True)
class Woken:
    """The pulls that are looked at again, in the order in which they were parked."""

    poll_ids: tuple[int, ...] = ()


def on_park(hold: Hold, poll: Parked, settings: Settings) -> tuple[Hold, Refused | None]:
    """Park a pull that would be answered 19. HA-P-16 "MUST be parked under its topic and queue id".

    HA-P-22 "A pull beyond a bound is answered with SYSTEM_BUSY (2)". HA-P-21 "MUST park pulls for `shortPollingTimeMills`".
    """
    # GUARD
    of_connection = [each for each in hold.parked if each.channel == poll.channel]
    tags = sum(tag_count(each.subscription) for each in (*hold.parked, poll))
    if (
        len(hold.parked) >= settings.max_parked
        or len(of_connection) >= settings.max_parked_of_connection
        or tags > settings.max_parked_tags
    ):
        return hold, Refused()
    # STATE
    if not settings.long_polling_enable:
        poll = replace(poll, timeout_millis=settings.short_polling_time_mills)
    next_check_at = hold.next_check_at
    if next_check_at is None:
        next_check_at = poll.suspend_timestamp + settings.interval_ms
    return Hold((*hold.parked, poll), next_check_at), None


def tag_count(subscription: Subscription) -> int:
    """How many tags are kept for a parked pull: none for one that takes all messages, whatever its subscription lists."""
    takes_all = subscription.sub_string == "*" or subscription.class_filter_mode
    return 0 if takes_all else len(subscription.codes)


def on_dispatch(
    hold: Hold, topic: str, queue_id: int, max_offset: int, tags_code: int, settings: Settings
) -> tuple[Hold, Woken]:
    """A message was dispatched; `max_offset`: of its queue, behind it.

    HA-P-17 "MUST look again at each parked pull of that queue".
    HA-P-21 "and not when a message is dispatched".
    """
    if not settings.long_polling_enable:
        return hold, Woken()

    def is_woken(poll: Parked) -> bool:
        is_of_queue = (poll.topic, poll.queue_id) == (topic, queue_id)
        return is_of_queue and poll.pull_from_this_offset < max_offset and matches(poll.subscription, tags_code)

    return _take(hold, tuple(filter(is_woken, hold.parked)))


def on_tick(hold: Hold, now_ms: int, max_offsets: Mapping[tuple[str, int], int], settings: Settings) -> tuple[Hold, Woken]:
    """Time has passed. `max_offsets`: of the queues. HA-P-18 "MUST look again at each parked pull", "whatever the tags"."""
    # GUARD
    if hold.next_check_at is None or now_ms < hold.next_check_at:
        return hold, Woken()

    def is_woken(poll: Parked) -> bool:
        has_new = poll.pull_from_this_offset < max_offsets.get((poll.topic, poll.queue_id), 0)
        return has_new or now_ms >= poll.suspend_timestamp + poll.timeout_millis

    hold = replace(hold, next_check_at=now_ms + settings.interval_ms)
    return _take(hold, tuple(filter(is_woken, hold.parked)))


def on_close(hold: Hold, channel: int) -> Hold:
    """HA-P-20 "its parked pulls SHOULD be dropped without an answer"."""
    hold, _ = _take(hold, tuple(poll for poll in hold.parked if poll.channel == channel))
    return hold


def on_shutdown(hold: Hold) -> tuple[Hold, Woken]:
    """HA-P-20 "MUST NOT answer the pulls that it has parked"."""
    return replace(hold, parked=(), next_check_at=None), Woken()


def _take(hold: Hold, polls: tuple[Parked, ...]) -> tuple[Hold, Woken]:
    """Take pulls out of the table. HA-P-19 "MUST be answered, as if it had neither bit 1 nor bit 2": it does not come back."""
    left = tuple(poll for poll in hold.parked if poll not in polls)
    return Hold(left, hold.next_check_at if left else None), Woken(tuple(poll.poll_id for poll in polls))
