"""Settings below, at and above their bounds: which are refused, and which are warned of."""

import logging
from dataclasses import replace

import pytest

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha import settings as module
from rocketmq_ha.impl.ha.settings import check_batch_size, check_replicas, check_settings
from rocketmq_ha.spec.constants import SLAVE_READ_BUFFER_SIZE
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

GOOD = Settings(ha_send_heartbeat_interval_ms=5_000, ha_housekeeping_interval_ms=20_000)


@pytest.mark.parametrize(
    ("replicas", "profile", "told"),
    [
        (-1, HARDENED, "replicas -1: expected at least 1"),
        (0, HARDENED, "replicas 0: expected at least 1"),
        (0, CLASSIC, "replicas 0: expected at least 1"),
        (1, HARDENED, None),
        (1, CLASSIC, None),
        (2, HARDENED, None),
        (2, CLASSIC, "replicas 2: expected 1 in the classic profile, which counts no replicas"),
    ],
)
def test_the_number_of_replicas(replicas: int, profile: Profile, told: str | None) -> None:
    """HA-G-33 "below 1, or in classic other than 1, MUST be refused before it starts"."""
    for check in (lambda: check_replicas(replicas, profile), lambda: check_settings(replace(GOOD, replicas=replicas), profile)):
        if told is None:
            check()
        else:
            with pytest.raises(ConfigInvalid) as found:
                check()
            assert str(found.value) == told


@pytest.mark.parametrize(
    ("size", "buffer_size", "largest"),
    [
        (0, SLAVE_READ_BUFFER_SIZE, 4_194_292),
        (1, SLAVE_READ_BUFFER_SIZE, None),
        (4_194_292, SLAVE_READ_BUFFER_SIZE, None),
        (4_194_293, SLAVE_READ_BUFFER_SIZE, 4_194_292),
        (88, 100, None),
        (89, 100, 88),
    ],
)
def test_the_size_of_a_batch(size: int, buffer_size: int, largest: int | None) -> None:
    """HA-M-38 "below 1, or above the read buffer of a slave less the 12 bytes of a header"."""
    settings = replace(GOOD, ha_transfer_batch_size=size, slave_read_buffer_size=buffer_size)
    for check in (lambda: check_batch_size(size, buffer_size), lambda: check_settings(settings, HARDENED)):
        if largest is None:
            check()
        else:
            with pytest.raises(ConfigInvalid) as found:
                check()
            assert str(found.value) == (
                f"batch size {size} (--ha-transfer-batch-size): expected 1 to {largest} bytes: a slave's read buffer of "
                f"{buffer_size} bytes must hold a frame and its header"
            )


@pytest.mark.parametrize(
    ("heartbeat_ms", "housekeeping_ms", "is_warned"),
    [(5_000, 20_000, False), (5_000, 6_001, False), (5_000, 6_000, True), (5_000, 5_999, True), (20_000, 5_000, True)],
)
def test_a_heartbeat_that_comes_too_late_is_warned_of(
    heartbeat_ms: int, housekeeping_ms: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-T-6 "less than the housekeeping interval of the other, by more than a second"."""
    logger = logging.getLogger(module.__name__)
    logger.addHandler(caplog.handler)
    try:
        settings = replace(GOOD, ha_send_heartbeat_interval_ms=heartbeat_ms, ha_housekeeping_interval_ms=housekeeping_ms)
        check_settings(settings, HARDENED)
    finally:
        logger.removeHandler(caplog.handler)
    told = f"heartbeats every {heartbeat_ms} ms, and {housekeeping_ms} ms of silence end a connection: idle ones will be closed"
    assert {record.getMessage() for record in caplog.records} == ({f"{told} again and again"} if is_warned else set())
