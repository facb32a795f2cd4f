"""The two clocks: one that measures, and one that tells the time of day."""

import time


def clock_ms() -> int:
    """The monotonic clock: for intervals and deadlines. Its zero is arbitrary.

    HA-T-2 "in milliseconds of one clock on each machine"; HA-T-3 "MUST be measured by a clock that does not step".
    """
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970, for timestamps that are stored. Somebody may set this clock back."""
    return time.time_ns() // 1_000_000


def utc_offset_ms() -> int:
    """By how much the time of day of this machine is ahead of UTC now."""
    return time.localtime().tm_gmtoff * 1000
