"""kill -9 with at least 64 puts in flight: no acknowledged message is missing. HA-ST-5, HA-ST-26.

`python tests/crash/kill9.py --rounds 100` is the long run.
"""

import random
from pathlib import Path

import kill9
import pytest
from judge import Broken

ROUNDS = 5


def test_nothing_acknowledged_is_missing_after_kills_amid_puts_open_and_close(tmp_path: Path) -> None:
    killed = kill9.run(ROUNDS, 1, tmp_path)
    assert killed.rounds == {"puts": 3, "open": 1, "close": 1}
    assert killed.acknowledged > 500
    assert min(killed.in_flight) >= 64


def test_a_message_that_is_missing_is_noticed(tmp_path: Path) -> None:
    ledger = kill9.kill_once(tmp_path / "s", "x", 300, 0.0, sync=True)
    acknowledged = ledger.acknowledged
    assert len(acknowledged) >= 300
    kill9.compare(tmp_path / "s", acknowledged, random.Random(1))
    offset, size, body_crc, queue_id, queue_offset = acknowledged[100]
    for wrong in (
        (offset + 1, size, body_crc, queue_id, queue_offset),
        (offset, size, body_crc ^ 1, queue_id, queue_offset),
        (offset, size, body_crc, queue_id, queue_offset + 1),
        (1 << 40, size, body_crc, queue_id, queue_offset),
    ):
        with pytest.raises(Broken, match="acknowledged at"):
            kill9.compare(tmp_path / "s", [*acknowledged, wrong], random.Random(1))
