"""The profiles and settings of both the model and the implementation. Data only.

A profile is a frozen value of named switches, one for each difference. `CLASSIC` is the behaviour that the articles describe
(RocketMQ 4.5.2), with its quirks. `HARDENED` puts the same bytes on the wire, and corrects every quirk that a compatible
endpoint may correct. The comments number the quirks as spec/violations.md does. Code reads switches, never the name of a
profile.
"""

from dataclasses import dataclass, fields
from typing import Final

from rocketmq_ha.spec import constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Named switches. Each is False in CLASSIC and True in HARDENED."""

    name: str
    # The slave.
    reports_on_connect: bool  # HA-S-3; classic stays silent until the first interval has passed
    coalesces_reports: bool  # HA-S-7; classic reports after every frame
    checks_overlap: bool  # HA-S-61 to HA-S-63; quirks 7 and 9: classic compares only offsets
    checks_frames: bool  # HA-S-11; quirks 18 to 24
    ignores_heartbeats: bool  # HA-S-10; quirk 17: classic appends a heartbeat as 0 bytes, which may make a file
    checks_file_size: bool  # HA-S-90 to HA-S-93; quirk 19: classic acknowledges bytes that its own files cannot hold
    checks_appends: bool  # HA-S-33, HA-S-38; quirks 25, 42: classic acknowledges bytes that its log refused or could not write
    detects_silent_master: bool  # HA-S-12; classic counts its own reports as signs of life
    has_frame_deadline: bool  # HA-S-50; classic waits for ever for the rest of a frame
    # The master.
    checks_reports: bool  # HA-M-11, HA-M-12; quirks 1, 4, 7, 9
    limits_peers: bool  # HA-M-50 to HA-M-54: classic serves every peer, in any number and for any time
    offers_tls: bool  # HA-M-70, HA-M-86, HA-S-70: TLS, at either end; classic has none
    # Puts that wait for a slave.
    forgets_lost_slaves: bool  # HA-G-5; quirks 2, 3: in classic acks outlive a slave, and a mere socket counts as one
    counts_replicas: bool  # HA-G-30 to HA-G-33: a put may need several replicas; classic counts connections
    serves_by_deadline: bool  # HA-G-7; quirks 32 and 33: classic gives each request five waits, one request after another
    joins_at_append: bool  # HA-G-7; quirk 32: in classic another put may overtake one between its append and its wait
    waits_at_once: bool  # HA-G-42; classic waits for the disk, and then for a slave (HA-G-43)
    checks_flush: bool  # HA-G-44, HA-G-46; quirk 36: classic answers PUT_OK to a put whose flush has failed
    # The store.
    clears_tail: bool  # HA-ST-7; quirk 35: classic leaves old bytes after the end of the log and of the queues
    checks_recovery: bool  # HA-ST-10, HA-ST-20; quirk 40: classic accepts a torn record as whole, and cuts at any damage
    stops_at_damage: bool  # HA-ST-79; quirk 29: classic's dispatch skips the rest of a file after an incomplete record
    keeps_queues_right: bool  # HA-ST-71, HA-ST-75; classic misplaces entries after a gap, and may not move the min offset
    keeps_index_right: bool  # HA-ST-87; after a crash classic loses some keys and adds others twice
    # The broker's tables, at a slave and its master.
    asks_changes: bool  # HA-MD-27 to 31, 34, 36; classic asks for whole tables every 10 s, and learns of no deletion
    keeps_offsets: bool  # HA-MD-32, 33; classic takes back what consumers have committed to a slave
    serves_topics_of_log: bool  # HA-MD-35; a slave of classic does not know a topic that its master has not told it
    registers_again: bool  # HA-R-58; classic is on no route until its next period, if a name server gave no answer

    @property
    def keeps_invariants(self) -> bool:
        """True if every switch is on. Only then do all properties of chapter 9 hold."""
        return all(getattr(self, switch) for switch in SWITCHES)


SWITCHES: Final = tuple(field.name for field in fields(Profile) if field.name != "name")
CLASSIC: Final = Profile(
    name="classic",
    reports_on_connect=False,
    coalesces_reports=False,
    checks_overlap=False,
    checks_frames=False,
    ignores_heartbeats=False,
    checks_file_size=False,
    checks_appends=False,
    detects_silent_master=False,
    has_frame_deadline=False,
    checks_reports=False,
    limits_peers=False,
    offers_tls=False,
    forgets_lost_slaves=False,
    counts_replicas=False,
    serves_by_deadline=False,
    joins_at_append=False,
    waits_at_once=False,
    checks_flush=False,
    clears_tail=False,
    checks_recovery=False,
    stops_at_damage=False,
    keeps_queues_right=False,
    keeps_index_right=False,
    asks_changes=False,
    keeps_offsets=False,
    serves_topics_of_log=False,
    registers_again=False,
)
HARDENED: Final = Profile(
    name="hardened",
    reports_on_connect=True,
    coalesces_reports=True,
    checks_overlap=True,
    checks_frames=True,
    ignores_heartbeats=True,
    checks_file_size=True,
    checks_appends=True,
    detects_silent_master=True,
    has_frame_deadline=True,
    checks_reports=True,
    limits_peers=True,
    offers_tls=True,
    forgets_lost_slaves=True,
    counts_replicas=True,
    serves_by_deadline=True,
    joins_at_append=True,
    waits_at_once=True,
    checks_flush=True,
    clears_tail=True,
    checks_recovery=True,
    stops_at_damage=True,
    keeps_queues_right=True,
    keeps_index_right=True,
    asks_changes=True,
    keeps_offsets=True,
    serves_topics_of_log=True,
    registers_again=True,
)
PROFILES: Final = {profile.name: profile for profile in (CLASSIC, HARDENED)}


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes and intervals in milliseconds. Small values reach every boundary of the state machines in few steps."""

    mapped_file_size: int = constants.MAPPED_FILE_SIZE_COMMIT_LOG
    ha_transfer_batch_size: int = constants.HA_TRANSFER_BATCH_SIZE
    ha_send_heartbeat_interval_ms: int = constants.HA_SEND_HEARTBEAT_INTERVAL_MS
    ha_housekeeping_interval_ms: int = constants.HA_HOUSEKEEPING_INTERVAL_MS
    ha_slave_fallbehind_max: int = constants.HA_SLAVE_FALLBEHIND_MAX
    sync_flush_timeout_ms: int = constants.SYNC_FLUSH_TIMEOUT_MS
    master_read_buffer_size: int = constants.MASTER_READ_BUFFER_SIZE  # a multiple of 8 (HA-M-10, quirk 5)
    slave_read_buffer_size: int = constants.SLAVE_READ_BUFFER_SIZE  # no frame can be larger (quirk 23)
    slave_file_size: int = 0  # size of a slave's commit-log files; 0 means the master's, mapped_file_size
    adopts_file_size: bool = False  # True if the slave's size is not configured: it uses the master's (HA-S-91)
    replicas: int = 1  # replicas that a waiting put needs for PUT_OK (HA-G-30); 1 in classic (HA-G-33)
