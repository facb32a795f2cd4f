"""The commit log of a `master` or `slave` process, which keeps neither consume queues nor an index.

The next program that opens the store, a RocketMQ broker or our MessageStore, must build both from the log. Most releases do so
only after an unclean stop. So the file `abort` stays in the store, and the checkpoint says from which time on to build them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rocketmq_ha.impl.app.topic_watch import TopicWatch
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.ha.overlap import find_overlap
from rocketmq_ha.impl.store.log.checkpoint import CHECKPOINT_FILE, StoreCheckpoint, mark_running, mark_stopped, was_aborted
from rocketmq_ha.impl.store.log.checkpoint_hint import place_hint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import Creator
from rocketmq_ha.impl.store.log.opening import no_hint
from rocketmq_ha.impl.wire.message import decode

logger = logging.getLogger(__name__)


@contextmanager
def bare_log(
    store_dir: Path,
    *,
    file_size: int | None,
    clear_tail: bool,
    strict: bool | None = None,
    replicated: bool,
    create: Creator = MappedFile.create,
) -> Iterator[CommitLog]:
    """Open a store's log for appending, and flush and close it at the end.

    Args:  replicated: True if a master sends what is appended; False if it is put here. create: creates new files of the log.
    Spec: HA-ST-50 "MUST leave `abort` behind. If it has appended nothing, it MUST leave the store as it was"; HA-ST-51 "MUST
    first lower the checkpoint's second time to the least of its three, and MUST set the i64 at byte 40"; HA-ST-52 "MUST have
    `config/topics.json` name the topics".
    Raises: as CommitLog.open; then nothing has changed.
    """
    # A master that lost its place in a log whose first files expired would give out offsets a second time (HA-ST-7). A slave
    # appends at the offsets that its master sends.
    hint = no_hint if replicated else partial(place_hint, store_dir)
    with CommitLog.open(store_dir, file_size=file_size, clear_tail=clear_tail, strict=strict, hint=hint, create=create) as log:
        if not replicated:  # the slaves need files of this size, and perhaps nobody has set it
            logger.info("%s: commit-log files of %d bytes", store_dir, log.file_size)
        was_clean, began_at = not was_aborted(store_dir), log.max_offset
        has_checkpoint = (store_dir / CHECKPOINT_FILE).exists()
        checkpoint = StoreCheckpoint(store_dir)
        logics_msg_timestamp, logics_physical_offset = checkpoint.logics_msg_timestamp, checkpoint.logics_physical_offset
        if has_checkpoint:
            checkpoint.logics_msg_timestamp = checkpoint.least_timestamp
            checkpoint.logics_physical_offset = 0
            checkpoint.flush()
        mark_running(store_dir)
        topics = TopicWatch(store_dir, log, reads=replicated)
        topics.start()
        try:
            yield log
        finally:
            topics.finish()
            log.flush()
            if log.max_offset in (began_at, log.min_offset):  # nothing was appended
                if has_checkpoint:
                    checkpoint.logics_msg_timestamp = logics_msg_timestamp
                    checkpoint.logics_physical_offset = logics_physical_offset
                    checkpoint.flush()
                if was_clean:
                    mark_stopped(store_dir)
            else:
                checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, _last_stored_ms(log))
                checkpoint.flush()


def _last_stored_ms(log: CommitLog) -> int:
    """Return the store timestamp of the last whole record; 0 if there is none."""
    overlap = find_overlap(log, log.recovery.last_offset or 0)
    data = None if overlap is None else log.data_at(overlap.record, log.file_size)
    if data is None:
        return 0
    try:
        return decode(data).store_timestamp
    except MessageMalformed:  # a slave appends what its master sends; the next opening checks it
        return 0
