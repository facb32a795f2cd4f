"""The properties of messages that the broker itself reads and writes, by RocketMQ's names.

Source: 4.9.8 MessageConst.
"""

import re
from typing import Final

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"  # WAIT_STORE_MSG_OK
DELAY: Final = "DELAY"  # DELAY_TIME_LEVEL
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
UNIQ_KEY: Final = "UNIQ_KEY"  # UNIQ_CLIENT_MESSAGE_ID_KEYIDX
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# A 5.x client's delays, for the timer wheel of a 5.x broker.
TIMERS: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def number(text: str | None, bits: int = 32) -> int | None:
    """The integer of a property, in ASCII digits; None if there is none that fits into so many bits, with its sign.

    >>> number("+7"), number("-1"), number("7s"), number("2147483648"), number("2147483648", 64), number(None)
    (7, -1, None, None, 2147483648, None)
    """
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None
