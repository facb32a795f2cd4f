"""Profiles and settings: what the model and the implementation are both told. Data only.

A profile is a frozen value of named switches. `CLASSIC` is the behaviour that the articles describe (RocketMQ 4.5.2), its
quirks included; `HARDENED` puts the same bytes on the wire and mends what a compatible endpoint may mend. The numbers in the
comments are those of the catalogue of quirks in spec/violations.md.
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.spec import constants


@dataclass(frozen=True, slots=True)
class Profile:
    """Named switches; each is False in CLASSIC and True in HARDENED."""

    name: str
    reports_on_connect: bool  # HA-S-3; classic stays silent until the first interval has passed
    coalesces_reports: bool  # HA-S-7; classic reports after every frame
    checks_overlap: bool  # HA-S-61 to HA-S-63; quirks 7 and 9: classic compares offsets alone
    checks_reports: bool  # HA-M-11; quirks 1, 4, 7, 9
    checks_frames: bool  # HA-S-11; quirks 17 to 24
    checks_file_size: bool  # HA-S-90 to HA-S-93; quirk 19: classic acknowledges what its own files cannot hold
    checks_appends: bool  # HA-S-38; quirk 42: classic acknowledges what its disk did not take
    detects_silent_master: bool  # HA-S-12; classic counts its own reports as signs of life
    forgets_lost_slaves: bool  # HA-G-5; quirks 2 and 3: acks and counts outlive, or precede, a replica
    serves_by_deadline: bool  # HA-G-7; quirks 32 and 33: classic gives each request five waits, one request after the other
    checks_flush: bool  # HA-G-44, HA-G-46; quirk 36: classic ends with PUT_OK a put whose flush has failed
    clears_tail: bool  # HA-ST-7, HA-ST-10; quirk 35


CLASSIC: Final = Profile("classic", False, False, False, False, False, False, False, False, False, False, False, False)
HARDENED: Final = Profile("hardened", True, True, True, True, True, True, True, True, True, True, True, True)
PROFILES: Final = {profile.name: profile for profile in (CLASSIC, HARDENED)}


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes and intervals in milliseconds. Small ones reach every boundary of the state machines."""

    mapped_file_size: int = constants.MAPPED_FILE_SIZE_COMMIT_LOG
    ha_transfer_batch_size: int = constants.HA_TRANSFER_BATCH_SIZE
    ha_send_heartbeat_interval_ms: int = constants.HA_SEND_HEARTBEAT_INTERVAL_MS
    ha_housekeeping_interval_ms: int = constants.HA_HOUSEKEEPING_INTERVAL_MS
    ha_slave_fallbehind_max: int = constants.HA_SLAVE_FALLBEHIND_MAX
    sync_flush_timeout_ms: int = constants.SYNC_FLUSH_TIMEOUT_MS
    master_read_buffer_size: int = constants.MASTER_READ_BUFFER_SIZE  # a multiple of 8 (HA-M-10, quirk 5)
    slave_read_buffer_size: int = constants.SLAVE_READ_BUFFER_SIZE  # no frame can be larger (quirk 23)
    slave_file_size: int = 0  # of a slave's commit-log files; 0: as large as the master's, which is mapped_file_size
    adopts_file_size: bool = False  # the slave was told no size: it takes the master's (HA-S-91)
    replicas: int = 1  # that must have a put which waits before it ends with PUT_OK (HA-G-30); 1 in classic (HA-G-33)
