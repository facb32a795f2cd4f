"""The pulls that the broker holds, until a message comes or their time is over.

A pull is parked under its queue. A message of the queue wakes those that want it; every 5 s all are looked at whose queue has
something new, or whose time is over. Whatever is woken leaves the table, and is answered by pull.py.

Source: 4.9.8 PullRequestHoldService, ManyPullRequest.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from rocketmq_ha.impl.broker.arrivals import Arrivals
from rocketmq_ha.impl.store.derived.dispatch_round import QueueKey
from rocketmq_ha.impl.store.pull import TagCodes

HOLD_INTERVAL_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """RocketMQ's settings of the hold, and what a broker parks at most. Hardened: RocketMQ has no bounds (HA-P-22)."""

    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    # Less than a server lets wait (impl/remoting/limits.py): beyond that it would read no other request either.
    max_parked: int = 49_152
    max_parked_of_connection: int = 3_072
    max_parked_tags: int = 1_000_000  # of all parked pulls; some 60 bytes each

    @property
    def interval_ms(self) -> int:
        """HA-P-21 "look at them again every so often"."""
        return HOLD_INTERVAL_MS if self.long_polling_enable else self.short_polling_time_mills


class Parking(Enum):
    """What became of a pull that was to be parked."""

    PARKED = "parked"
    FULL = "full"


@dataclass(slots=True, eq=False)
class HeldPull:
    """A parked pull.

    request: what pull.py needs to answer it; the hold does not look at it. deadline_ms: when its time is over. seen_up_to: the
    max offset of the queue when the pull was read. What was there then does not wake it, even if it begins before that.
    """

    channel: Hashable
    key: QueueKey
    pull_from_this_offset: int
    codes: TagCodes
    request: object
    deadline_ms: int = 0
    seen_up_to: int = 0
    looked_up_to: int = field(init=False)  # the queue has no message for it before this queue offset

    def __post_init__(self) -> None:
        self.looked_up_to = max(self.pull_from_this_offset, self.seen_up_to)

    @property
    def tag_count(self) -> int:
        return 0 if self.codes is None else len(self.codes)


Key = TypeVar("Key")
Held = dict[HeldPull, None]  # in the order in which they were parked


class PullRequestHoldService:
    """All parked pulls. One thread's own: the loop's.

    Args:  max_offset_of: of a queue; 0 if there is none. has_message_for: whether a queue has a message of these tags from an
           offset on, and up to which offset there is none.
    """

    def __init__(
        self,
        max_offset_of: Callable[[QueueKey], int],
        has_message_for: Callable[[QueueKey, int, TagCodes], tuple[bool, int]],
        arrivals: Arrivals,
        settings: HoldSettings,
    ) -> None:
        self.settings: Final = settings
        self.next_check_at_ms: int | None = None  # None where nothing is parked
        self.count = 0  # parked pulls
        self._max_offset_of, self._has_message_for, self._arrivals = max_offset_of, has_message_for, arrivals
        self._table: dict[QueueKey, Held] = {}
        self._of_channel: dict[Hashable, Held] = {}
        self._tag_count = 0

    def __iter__(self) -> Iterator[HeldPull]:
        """The parked pulls, by queue."""
        return (pull for held in self._table.values() for pull in held)

    def suspend_pull_request(self, pull: HeldPull, timeout_ms: int, now_ms: int) -> Parking:
        """Park a pull. HA-P-16 "MUST be parked under its topic and queue id".

        A message that comes meanwhile is not missed: the next turn finds it.
        Spec: HA-P-22 "MUST bound the pulls that it parks: in all, of one connection, and the tags".
        """
        settings = self.settings
        of_channel = self._of_channel.get(pull.channel, {})
        if (
            self.count >= settings.max_parked
            or len(of_channel) >= settings.max_parked_of_connection
            or self._tag_count + pull.tag_count > settings.max_parked_tags
        ):
            return Parking.FULL
        # HA-P-21 "MUST park pulls for `shortPollingTimeMills`, 1,000 ms by default".
        pull.deadline_ms = now_ms + (timeout_ms if settings.long_polling_enable else settings.short_polling_time_mills)
        if self.next_check_at_ms is None:
            self.next_check_at_ms = now_ms + settings.interval_ms
        self._table.setdefault(pull.key, {})[pull] = None
        self._of_channel.setdefault(pull.channel, {})[pull] = None
        self.count += 1
        self._tag_count += pull.tag_count
        if settings.long_polling_enable:
            self._arrivals.wait_for(pull.key)
            if self._max_offset_of(pull.key) > pull.looked_up_to:
                self._arrivals.note(pull.key)
        return Parking.PARKED

    def turn(self, now_ms: int) -> list[HeldPull]:
        """The pulls that are to be answered now. They are parked no more."""
        return self.on_dispatch(self._arrivals.take()) + self.on_tick(now_ms)

    def turn_again(self) -> None:
        """Have the loop run another turn at once."""
        self._arrivals.wake()

    def on_dispatch(self, keys: Iterable[QueueKey]) -> list[HeldPull]:
        """Queues have got messages. HA-P-17 "whose subscription matches the tags code of the message"."""
        woken = []
        for key in keys:
            for pull in self._table.get(key, {}):
                is_there, pull.looked_up_to = self._has_message_for(key, pull.looked_up_to, pull.codes)
                if is_there:
                    woken.append(pull)
        return self._take(woken)

    def on_tick(self, now_ms: int) -> list[HeldPull]:
        """Time has passed. HA-P-18 "whatever the tags, and at each that has been parked for its `suspendTimeoutMillis`"."""
        if self.next_check_at_ms is None or now_ms < self.next_check_at_ms:
            return []
        self.next_check_at_ms = now_ms + self.settings.interval_ms
        woken = []
        for key, held in self._table.items():
            max_offset = self._max_offset_of(key)
            woken += [pull for pull in held if pull.pull_from_this_offset < max_offset or now_ms >= pull.deadline_ms]
        return self._take(woken)

    def on_close(self, channel: Hashable) -> None:
        """Forget the pulls of a connection. HA-P-20 "its parked pulls SHOULD be dropped without an answer"."""
        self._take(list(self._of_channel.get(channel, ())))

    def shutdown(self) -> None:
        """Forget all pulls. HA-P-20 "MUST NOT answer the pulls that it has parked"."""
        self._take(list(self))

    def _take(self, pulls: list[HeldPull]) -> list[HeldPull]:
        for pull in pulls:
            _remove(self._table, pull.key, pull)
            _remove(self._of_channel, pull.channel, pull)
            if pull.key not in self._table:
                self._arrivals.forget(pull.key)
            self.count -= 1
            self._tag_count -= pull.tag_count
        if not self.count:
            self.next_check_at_ms = None
        return pulls


def _remove(table: dict[Key, Held], key: Key, pull: HeldPull) -> None:
    held = table[key]
    del held[pull]
    if not held:
        del table[key]
