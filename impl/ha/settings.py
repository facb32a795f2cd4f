"""Check settings: refuse impossible ones, warn of harmful ones."""

import logging

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.spec.constants import SLAVE_READ_BUFFER_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

# The longest time after which an idle end checks the clock again (HA-M-25, HA-S-35).
LOOK_MS = 1_000

log = logging.getLogger(__name__)


def check_replicas(replicas: int, profile: Profile) -> None:
    """Refuse an impossible number of replicas.

    Raises: ConfigInvalid. HA-G-33 "below 1, or in classic other than 1, MUST be refused before it starts".
    """
    if replicas < 1:
        raise ConfigInvalid(f"replicas {replicas}: expected at least 1")
    if replicas > 1 and not profile.counts_replicas:
        raise ConfigInvalid(f"replicas {replicas}: expected 1 in the {profile.name} profile, which counts no replicas")


def check_batch_size(size: int, slave_read_buffer_size: int = SLAVE_READ_BUFFER_SIZE) -> None:
    """Refuse frames that stop a link: of size 0 (quirk 11), and those that no slave can take (quirk 23).

    Raises: ConfigInvalid, in both profiles.
    Spec: HA-M-38 "below 1, or above the read buffer of a slave less the 12 bytes of a header, MUST be refused before the
    master starts".
    """
    largest = slave_read_buffer_size - TRANSFER_HEADER_SIZE
    if not 1 <= size <= largest:
        raise ConfigInvalid(
            f"batch size {size} (--ha-transfer-batch-size): expected 1 to {largest} bytes: a slave's read buffer of "
            f"{slave_read_buffer_size} bytes must hold a frame and its header"
        )


def check_settings(settings: Settings, profile: Profile) -> None:
    """Refuse impossible settings, and warn of intervals that close idle connections repeatedly.

    The check assumes the same intervals at the other end, since the protocol does not transmit them.
    Raises: ConfigInvalid.
    Spec: HA-T-6 "The heartbeat interval of either end SHOULD be less than the housekeeping interval of the other, by more than
    a second".
    """
    check_batch_size(settings.ha_transfer_batch_size, settings.slave_read_buffer_size)
    check_replicas(settings.replicas, profile)
    heartbeat_ms, housekeeping_ms = settings.ha_send_heartbeat_interval_ms, settings.ha_housekeeping_interval_ms
    if heartbeat_ms + LOOK_MS >= housekeeping_ms:
        log.warning(
            "heartbeats every %d ms, and %d ms of silence end a connection: idle ones will be closed again and again",
            heartbeat_ms,
            housekeeping_ms,
        )
