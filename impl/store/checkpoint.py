"""What an earlier process has left on the disk: `checkpoint` says up to when, `abort` that it did not stop cleanly.

    checkpoint  4,096 bytes = i64 physic_msg_timestamp, i64 logics_msg_timestamp, i64 index_msg_timestamp, zeros; all in ms
    abort       empty

A time says that all messages stored before it are on the disk: in the log, in the consume queues, in the index. It is raised
only after a sync that covered them has succeeded, and never goes back.

Spec: HA-ST-24 "a file of 4,096 bytes that begins with three times in ms, each an i64".
Source: 4.9.8 StoreCheckpoint, DefaultMessageStore.createTempFile; quirk 31.
"""

import os
import struct
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import StoreCorrupt

CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"
CHECKPOINT_SIZE: Final = 4096
# Recovery goes back by this much more, so that clocks and timers may be that wrong.
SAFETY_MS: Final = 3000
_TIMES: Final = struct.Struct(">qqq")


class StoreCheckpoint:
    """The checkpoint of a store that this process owns. Read it with the constructor, write it with `flush`.

    Raises: StoreCorrupt for a file that is shorter than its three times; OSError.
    """

    def __init__(self, store_dir: Path) -> None:
        self.path: Final = store_dir / CHECKPOINT_FILE
        self.physic_msg_timestamp = self.logics_msg_timestamp = self.index_msg_timestamp = 0
        self._written = (0, 0, 0)
        if self.path.exists():
            data = self.path.read_bytes()
            if len(data) < _TIMES.size:
                raise StoreCorrupt(self.path, 0, f"a length of {len(data)} bytes", CHECKPOINT_SIZE)
            self._written = _TIMES.unpack_from(data)
            self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = self._written

    @property
    def min_timestamp(self) -> int:
        """The time from which recovery must look: what was stored before it is in the log and in the consume queues.

        Spec: HA-ST-19 "the lesser of the checkpoint's first two times, less 3 s".
        """
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def flushed_before_ms(self) -> int:
        """What was stored before this time was on the disk, whatever clocks and timers did: HA-ST-20 "stored later than 3 s
        before the checkpoint's first time" may be missing.
        """
        return max(0, self.physic_msg_timestamp - SAFETY_MS + 1)

    def flush(self) -> None:
        """Write the times, and force them to the disk; nothing where they are there already. Raises: OSError."""
        times = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
        if times == self._written and self.path.exists():
            return
        # 24 bytes lie in one sector, so they are written whole or not at all.
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size != CHECKPOINT_SIZE:
                os.pwrite(fd, bytes(CHECKPOINT_SIZE), 0)
            os.pwrite(fd, _TIMES.pack(*times), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._written = times


def was_aborted(store_dir: Path) -> bool:
    """Whether the last process did not come to its clean stop."""
    return (store_dir / ABORT_FILE).exists()


def mark_running(store_dir: Path) -> None:
    """HA-ST-23 "An empty file `abort` MUST exist from the start of a broker to its clean stop"."""
    (store_dir / ABORT_FILE).touch()
    _sync(store_dir)


def mark_stopped(store_dir: Path) -> None:
    """The stop was clean: all is on the disk."""
    (store_dir / ABORT_FILE).unlink(missing_ok=True)
    _sync(store_dir)


def _sync(directory: Path) -> None:
    """An entry of a directory that is not on the disk may come back, or go, with the next power cut."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
