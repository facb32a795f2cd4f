"""The master's disk is lost and the slave's store is opened: no byte with PUT_OK is missing. HA-G-1; HA-S-60 with a power cut.

`python tests/crash/disk_death.py --rounds 200` is the long run.
"""

from pathlib import Path

import disk_death
import pytest
from disk_death import Trial
from judge import Broken
from producer import IN_FLIGHT

ROUNDS = 2


@pytest.mark.parametrize("trial", (Trial(), Trial(ack="flushed", power_cut=True)), ids=("disk", "disk-and-power"))
def test_no_put_ok_is_missing(tmp_path: Path, trial: Trial) -> None:
    """HA-S-60 "MUST have on its disk all that a report acknowledges", with the power cut."""
    assert trial.promises
    deaths = disk_death.run(ROUNDS, 1, tmp_path, trial)
    assert (deaths.rounds, deaths.lost) == (ROUNDS, [0] * ROUNDS)
    assert deaths.acknowledged > 500
    assert min(deaths.in_flight) >= IN_FLIGHT - 1 >= 64


def test_what_is_only_appended_is_lost_with_the_power(tmp_path: Path) -> None:
    """Without this loss the two tests above would prove nothing."""
    trial = Trial(ack="appended", power_cut=True)
    assert not trial.promises
    deaths = disk_death.run(1, 1, tmp_path, trial)
    assert sum(deaths.lost) > 0


def test_a_message_that_is_missing_or_another_is_noticed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    disk_death.run(1, 2, tmp_path, Trial())
    with disk_death.CommitLog.open(store, file_size=disk_death.FILE_SIZE) as log:
        held = [(offset + size, len(message.body), message.body_crc) for offset, size, message in log.records()]
    assert disk_death.compare(store, held) == held
    end, size, body_crc = held[5]
    assert len(disk_death.compare(store, [*held, (1 << 40, size, body_crc)])) == len(held)
    for wrong in ((end + 1, size, body_crc), (end, size + 1, body_crc), (end, size, body_crc ^ 1)):
        with pytest.raises(Broken, match="acknowledged up to"):
            disk_death.compare(store, [wrong])
