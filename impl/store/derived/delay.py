"""Delay levels: the delivery time of a message in SCHEDULE_TOPIC_XXXX, which is the tags code of its queue entry.

A broker puts a delayed message into that topic, in the queue of its level.

Spec: HA-ST-32, HA-ST-76 "MUST be the store timestamp plus the delay of the level".  Source: 4.9.8
ScheduleMessageService.parseDelayLevel and computeDeliverTimestamp.
"""

import re
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.derived.java_hash import java_text

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # 4.9.8's default
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Java's Integer.parseInt accepts digits of any script that take one UTF-16 unit, with any number of leading zeros.
_LEVEL: Final = re.compile(r"([+-]?)(\d+)")
_INT_DIGITS: Final = 10
_MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays of levels 1, 2, ... in ms. Level 0 and below mean no delay."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = MESSAGE_DELAY_LEVEL) -> "DelayLevels":
        """Read a broker's setting messageDelayLevel.

        Raises: ConfigInvalid for an entry that is no number and unit.

        >>> DelayLevels.parse("1s 2m").delays_ms
        (1000, 120000)
        """
        delays_ms = []
        for entry in text.split():
            number, unit = entry[:-1], entry[-1]
            if unit not in _UNITS_MS or not re.fullmatch(r"[0-9]{1,9}", number):
                raise ConfigInvalid(f"delay level {entry!r}: expected a number and one of s, m, h, d")
            delays_ms.append(int(number) * _UNITS_MS[unit])
        return cls(tuple(delays_ms))

    @property
    def max_level(self) -> int:
        return len(self.delays_ms)

    def deliver_timestamp(self, level_text: bytes, store_timestamp: int) -> int | None:
        """The delivery time in ms of a message with this DELAY property; a level beyond the last counts as the last.

        Returns: None if the property asks for no delay, or is no Java int (4.9.8 would then stop dispatching).
        """
        text = java_text(level_text)
        found = _LEVEL.fullmatch(text)
        if found is None or max(text) > "\uffff":
            return None
        digits = "".join(str(int(digit)) for digit in found[2]).lstrip("0")
        if len(digits) > _INT_DIGITS:
            return None
        level = int(found[1] + (digits or "0"))
        if not -_MAX_INT - 1 <= level <= _MAX_INT:
            return None
        level = min(level, self.max_level)
        if level <= 0:
            return None
        due = store_timestamp + self.delays_ms[level - 1]
        return (due + (1 << 63)) % (1 << 64) - (1 << 63)  # wraps around like a Java long
