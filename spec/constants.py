"""Constants of the protocol and of the files, with their sources. Data only: no codec, no arithmetic.

A source is one of the five articles by its number (000 to 004), or the Apache RocketMQ release in which a value was observed.
"""

from typing import Final

# --- The wire (spec/1-wire.md) ---------------------------------------------------------------------------------------
REPORT_SIZE: Final = 8  # bytes: i64 slave max physical offset (000 section 5.1.2)
TRANSFER_HEADER_SIZE: Final = 12  # bytes: i64 physical offset, i32 body size (000 section 5.1.3)
HEARTBEAT_BODY_SIZE: Final = 0  # a frame of this body size is a heartbeat

# --- Remoting (spec/11-remoting.md; 4.9.8) ---------------------------------------------------------------------------
REMOTING_VERSION: Final = 409  # MQVersion of 4.9.8: what we announce
REMOTING_FRAME_MAX: Final = 16 * 1024 * 1024  # bytes, the length of 4 bytes included
REMOTING_HEADER_MAX: Final = 256 * 1024  # bytes; a header with the longest properties, all escaped, fits (HA-RM-20)
REMOTING_HEADER_DEPTH_MAX: Final = 32  # levels of arrays and objects in a JSON header (HA-RM-21)
REMOTING_IDLE_MS: Final = 120_000

# --- Defaults of the settings (001; 4.9.8 for those that no article names) -------------------------------------------
HA_LISTEN_PORT: Final = 10912
HA_SEND_HEARTBEAT_INTERVAL_MS: Final = 5_000
HA_HOUSEKEEPING_INTERVAL_MS: Final = 20_000
HA_TRANSFER_BATCH_SIZE: Final = 32 * 1024
HA_SLAVE_FALLBEHIND_MAX: Final = 256 * 1024 * 1024
MASTER_READ_BUFFER_SIZE: Final = 1024 * 1024
SLAVE_READ_BUFFER_SIZE: Final = 4 * 1024 * 1024  # 000 says 4 GB; the code and the other articles say 4 MiB
SYNC_FLUSH_TIMEOUT_MS: Final = 5_000
GROUP_TRANSFER_WAITS: Final = 5  # each of GROUP_TRANSFER_WAIT_MS (001, doWaitTransfer)
GROUP_TRANSFER_WAIT_MS: Final = 1_000
REPORT_WRITE_TRIES: Final = 3

# --- The commit log (spec/5-store.md; article 003 section 1.1, 4.9.8) ------------------------------------------------
MAPPED_FILE_SIZE_COMMIT_LOG: Final = 1024 * 1024 * 1024
# The name of its setting in a broker's configuration: from 4.5.2 on, and until 4.5.1 (MessageStoreConfig of each tag).
FILE_SIZE_SETTING: Final = "mappedFileSizeCommitLog"
FILE_SIZE_SETTING_UNTIL_4_5_1: Final = "mapedFileSizeCommitLog"
FILE_NAME_DIGITS: Final = 20
MESSAGE_MAGIC_CODE: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB  # from 5.1.0 on: two-byte topic length
BLANK_MAGIC_CODE: Final = 0xCBD43194
END_FILE_MIN_BLANK_SIZE: Final = 8  # bytes: i32 total size, i32 magic
MESSAGE_FIXED_SIZE: Final = 91  # bytes of a V1 message with IPv4 hosts and no body, topic or properties
IPV6_EXTRA_SIZE: Final = 12  # additional bytes for each IPv6 host
BODY_CRC_MASK: Final = 0x7FFFFFFF
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
MAX_BATCH_SIZE: Final = 16 * 1024 * 1024  # bytes of the records of one batch (HA-SE-23)
MAX_TOPIC_LENGTH: Final = 127
MAX_PROPERTIES_LENGTH: Final = 32_767
SECTOR_SIZE: Final = (
    512  # bytes: the smallest unit that a disk writes atomically; larger sectors are multiples of it (HA-ST-10)
)
PROPERTY_NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

# Bits of sysFlag.
SYS_FLAG_COMPRESSED: Final = 0x1
SYS_FLAG_BORN_HOST_V6: Final = 0x10
SYS_FLAG_STORE_HOST_V6: Final = 0x20

# --- The store's directory -------------------------------------------------------------------------------------------
COMMIT_LOG_DIR: Final = "commitlog"
CONSUME_QUEUE_DIR: Final = "consumequeue"
INDEX_DIR: Final = "index"
LOCK_FILE: Final = "lock"
