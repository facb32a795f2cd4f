"""What a broker counts of messages put and got: totals, those since midnight, and rates over 10 s, a minute and ten minutes.

Source: 4.9.8 StoreStatsService (getPutTps, getGetTransferedTps), BrokerStats.
"""

from collections import deque
from typing import Final

_SAMPLES: Final = 601  # seconds, and one more to subtract from
_SPANS: Final = (10, 60, 600)  # s
_DAY_MS: Final = 86_400_000


class Counter:
    """One count with its samples, one a second."""

    __slots__ = ("_samples", "today_morning", "total", "yesterday_morning")

    def __init__(self) -> None:
        self.total = 0
        self.today_morning = self.yesterday_morning = 0  # the total at these midnights
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # (ms, total)

    def sample(self, now_ms: int) -> None:
        self._samples.append((now_ms, self.total))

    def tps(self) -> str:
        """The rates a second over the three spans, as text: `12.3 4.5 0.6`. One that is not over counts as far as it goes."""
        return " ".join(map(str, map(self._rate, _SPANS)))

    def _rate(self, span: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        last_ms, last = self._samples[-1]
        first_ms, first = self._samples[max(0, len(self._samples) - 1 - span)]
        return round((last - first) * 1000 / (last_ms - first_ms), 3) if last_ms > first_ms else 0.0


class BrokerStats:
    """The counts of one broker. Messages put by clients, and messages given to them by pulls.

    Args:  now_ms: by the clock that does not step. wall_ms, utc_offset_ms: the time of day, for midnight.
    """

    def __init__(self, now_ms: int, wall_ms: int, utc_offset_ms: int = 0) -> None:
        self.put, self.got = Counter(), Counter()
        self.put_size = 0  # bytes of records put
        self.put_failed = 0
        self.boot_wall_ms = wall_ms
        self._utc_offset_ms = utc_offset_ms
        self._day = (wall_ms + utc_offset_ms) // _DAY_MS
        self._sample_at = now_ms

    def on_tick(self, now_ms: int, wall_ms: int) -> None:
        """Take a sample each second, and the totals at midnight."""
        if now_ms < self._sample_at:
            return
        self._sample_at = now_ms + 1000
        day = (wall_ms + self._utc_offset_ms) // _DAY_MS
        for counter in (self.put, self.got):
            counter.sample(now_ms)
            if day != self._day:
                counter.yesterday_morning, counter.today_morning = counter.today_morning, counter.total
        self._day = day
