"""Whether a loop may let anything expire: not in the second after a pause of its own process. HA-T-21."""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.replace import replace

PAUSE_MS: Final = 1_000
GRACE_MS: Final = 1_000
MOST_IN_A_ROW: Final = 8


@dataclass(frozen=True, slots=True)
class Pauses:
    """looked_ms: the last reading of the clock. until_ms: nothing expires before this time. in_a_row: pauses so far."""

    looked_ms: int | None = None
    until_ms: int | None = None
    in_a_row: int = 0


def on_reading(pauses: Pauses, now_ms: int) -> tuple[Pauses, bool]:
    """A loop reads its clock. Returns: the state, and whether it may let things expire.

    Spec: HA-T-21 "it MUST let nothing expire in the second that follows", "MUST NOT put expiry off for more than 8 pauses in a
    row".
    """
    before_ms = pauses.looked_ms
    pauses = replace(pauses, looked_ms=now_ms)
    if before_ms is not None and now_ms > before_ms + PAUSE_MS and pauses.in_a_row < MOST_IN_A_ROW:
        pauses = replace(pauses, until_ms=now_ms + GRACE_MS, in_a_row=pauses.in_a_row + 1)
    elif pauses.until_ms is not None and pauses.until_ms <= now_ms:
        pauses = replace(pauses, until_ms=None, in_a_row=0)
    return pauses, pauses.until_ms is None
