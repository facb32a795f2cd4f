"""What an earlier process has left on the disk: `checkpoint` says up to when, `abort` that it did not stop cleanly.

    checkpoint  4,096 bytes = i64 physic_msg_timestamp, i64 logics_msg_timestamp, i64 index_msg_timestamp, all in ms;
                two i64 of RocketMQ 5.x, which stay as they are; i64 logics_physical_offset; zeros
    abort       empty

A time says that all messages stored before it are on the disk: in the log, in the consume queues, in the index. It is raised
only after a sync that covered them has succeeded, and never goes back. logics_physical_offset is RocketMQ 5.5.1's: up to there
the consume queues are on the disk. 5.5.1 believes it and not the times, so it is set to 0 where they go back.

Spec: HA-ST-24 "a file of 4,096 bytes that begins with three times in ms, each an i64"; HA-ST-51.
Source: 4.9.8 StoreCheckpoint, DefaultMessageStore.createTempFile; quirk 31.
"""

import os
import struct
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.store.log.layout import CREATING_SUFFIX, sync_directory

CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"
CHECKPOINT_SIZE: Final = 4096
# Recovery goes back by this much more, so that clocks and timers may be that wrong.
SAFETY_MS: Final = 3000
_TIMES: Final = struct.Struct(">qqq")
_OFFSET: Final = struct.Struct(">q")
_OFFSET_POSITION: Final = 40


class StoreCheckpoint:
    """The checkpoint of a store that this process owns. Read it with the constructor, write it with `flush`.

    A file that is too short for its times says nothing: RocketMQ leaves an empty one when it is killed in its first moments.

    Raises: OSError.
    """

    def __init__(self, store_dir: Path) -> None:
        self.path: Final = store_dir / CHECKPOINT_FILE
        self.physic_msg_timestamp = self.logics_msg_timestamp = self.index_msg_timestamp = 0
        self.logics_physical_offset = 0
        self._others = bytes(_OFFSET_POSITION - _TIMES.size)  # what stands between the times and that offset
        self._written: bytes | None = None  # the first bytes of a whole file on the disk
        if self.path.exists():
            data = self.path.read_bytes()
            times = _TIMES.unpack_from(data) if len(data) >= _TIMES.size else (0, 0, 0)
            self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = times
            if len(data) >= CHECKPOINT_SIZE:
                self._others = data[_TIMES.size : _OFFSET_POSITION]
                (self.logics_physical_offset,) = _OFFSET.unpack_from(data, _OFFSET_POSITION)
                self._written = data[: _OFFSET_POSITION + _OFFSET.size]

    @property
    def min_timestamp(self) -> int:
        """The time from which recovery must look: what was stored before it is in the log and in the consume queues.

        Spec: HA-ST-19 "the lesser of the checkpoint's first two times, less 3 s".
        """
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def least_timestamp(self) -> int:
        """What was stored before it is in the log, in the consume queues and in index files that are full."""
        return min(self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)

    @property
    def flushed_before_ms(self) -> int:
        """What was stored before this time was on the disk, whatever clocks and timers did: HA-ST-20 "stored later than 3 s
        before the checkpoint's first time" may be missing.
        """
        return max(0, self.physic_msg_timestamp - SAFETY_MS + 1)

    def flush(self) -> None:
        """Write what has changed, and force it to the disk; nothing where it is there already. Raises: OSError."""
        times = _TIMES.pack(self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
        data = times + self._others + _OFFSET.pack(self.logics_physical_offset)
        if self._written is None or not self.path.exists():
            # The file gets its name when it is whole: whoever is killed in between leaves none.
            creating = self.path.with_name(self.path.name + CREATING_SUFFIX)
            _write(creating, data.ljust(CHECKPOINT_SIZE, b"\0"), os.O_CREAT | os.O_TRUNC)
            creating.replace(self.path)
            sync_directory(self.path.parent)
        elif data != self._written:
            _write(self.path, data)  # 48 bytes lie in one sector: they are written whole or not at all
        self._written = data


def _write(path: Path, data: bytes, flags: int = 0) -> None:
    """Have bytes at the start of a file on the disk. Raises: OSError, which names it."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    try:
        os.pwrite(fd, data, 0)
        os.fsync(fd)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(fd)


def was_aborted(store_dir: Path) -> bool:
    """Whether the last process did not come to its clean stop."""
    return (store_dir / ABORT_FILE).exists()


def mark_running(store_dir: Path) -> None:
    """HA-ST-23 "A file `abort` MUST exist from the start of a broker to its clean stop"."""
    (store_dir / ABORT_FILE).touch()
    sync_directory(store_dir)


def mark_stopped(store_dir: Path) -> None:
    """The stop was clean: all is on the disk."""
    (store_dir / ABORT_FILE).unlink(missing_ok=True)
    sync_directory(store_dir)
