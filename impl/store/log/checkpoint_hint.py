"""Where recovery begins: what the checkpoint and `abort` say about a log before it is read.

The cost of recovery grows with the bytes that it reads, so it reads the tail of a log and not all of it. It takes the bytes
before that place as they are: damage there shows when they are read, or to `verify`. Queue offsets come from the consume
queues.

Source: 4.9.8 CommitLog.recoverNormally, recoverAbnormally and isMappedFileMatchedRecover; article 003 section 1.4.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, was_aborted
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.opening import RecoveryHint
from rocketmq_ha.impl.store.log.scan import scan
from rocketmq_ha.impl.wire.record_layout import MAGICS, SIZE_AND_MAGIC, SMALLEST_RECORD, store_timestamp_at
from rocketmq_ha.spec.constants import CONSUME_QUEUE_DIR

# HA-ST-18 "recovery MUST begin three files before the end of the log, or at its first file if there are fewer".
CLEAN_STOP_FILES: Final = 3


def recovery_hint(store_dir: Path, files: Sequence[MappedFile], *, strict: bool = True) -> RecoveryHint:
    """What checkpoint and `abort` of an earlier process say about the files of its log. Changes nothing.

    Raises: StoreCorrupt, OSError.

    Args:  strict: if not, all is as in RocketMQ; see recovery.py.
    """
    checkpoint = StoreCheckpoint(store_dir)
    keeps_place = place_hint(store_dir, files).keeps_place
    if not was_aborted(store_dir):
        return RecoveryHint(max(0, len(files) - CLEAN_STOP_FILES), None, keeps_place)
    return RecoveryHint(first_file(files, checkpoint.min_timestamp, strict=strict), checkpoint.flushed_before_ms, keeps_place)


def place_hint(store_dir: Path, files: Sequence[MappedFile]) -> RecoveryHint:
    """A hint that says only whether a log keeps its place, so that recovery reads every record."""
    return RecoveryHint(keeps_place=bool(files) and files[0].base > 0 and _has_queues(store_dir))


def _has_queues(store_dir: Path) -> bool:
    """Whether consume queues know of messages.

    Spec: HA-ST-7 "a log whose first files have expired keeps its place while there are consume queues". Else its offsets, and
    those of its queues, would be given a second time, and consumers miss what is new.
    """
    return any((store_dir / CONSUME_QUEUE_DIR).glob("*/*/*"))


def first_file(files: Sequence[MappedFile], min_timestamp: int, *, strict: bool = True) -> int:
    """The index of the last file whose first message was stored at a time or before it; 0 where there is none.

    Spec: HA-ST-19 "the last file whose first message has a known magic and a store timestamp that is not 0"; HA-ST-46 "whose
    first message is not whole MUST NOT be the one": a part of a timestamp is an earlier time, and so is a damaged one below 0.
    """
    for index in range(len(files) - 1, 0, -1):
        file = files[index]
        stored_ms = _first_stored_ms(file)
        is_sound = not strict or (stored_ms > 0 and scan(file.mapping, file.base, 0, 1).messages == 1)
        file.close()
        if stored_ms and stored_ms <= min_timestamp and is_sound:
            return index
    return 0


def _first_stored_ms(file: MappedFile) -> int:
    """The store timestamp of the message with which a file begins; 0 where it begins with none."""
    head = bytes(file.view(0, min(file.size, SMALLEST_RECORD)))
    if len(head) < SMALLEST_RECORD or SIZE_AND_MAGIC.unpack_from(head)[1] not in MAGICS:
        return 0
    return store_timestamp_at(head)
