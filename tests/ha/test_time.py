"""Clauses of chapter 8 (intervals and the clock) that no other test checks."""

import time

from rocketmq_ha.impl import clock
from rocketmq_ha.impl.net import client, server
from rocketmq_ha.spec.profile import Settings


def test_time_is_measured_by_a_clock_that_nobody_sets() -> None:
    """HA-T-3 "MUST be measured by a clock that does not step": the same for both ends, and in milliseconds."""
    before = time.monotonic_ns() // 1_000_000
    found = clock.clock_ms()
    assert before <= found <= time.monotonic_ns() // 1_000_000
    assert not time.get_clock_info("monotonic").adjustable
    assert time.get_clock_info("monotonic").monotonic
    assert vars(client)["clock_ms"] is vars(server)["clock_ms"] is clock.clock_ms


def test_the_defaults_are_those_of_the_table() -> None:
    """HA-T-4 "MUST be 5 s by default"; HA-T-5 "MUST be 20 s by default"."""
    assert Settings().ha_send_heartbeat_interval_ms == 5_000
    assert Settings().ha_housekeeping_interval_ms == 20_000
