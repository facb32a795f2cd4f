"""The log of `master` and `slave`, to which they append without keeping consume queues and index.

Whoever opens the store next, a broker of RocketMQ or our MessageStore, must make them from the log. Most releases do that only
where the last stop was not clean, so `abort` stays behind, and the checkpoint says from where on they must look.
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
    store_dir: Path, *, file_size: int | None, clear_tail: bool, replicated: bool, create: Creator = MappedFile.create
) -> Iterator[CommitLog]:
    """Open a store's log for appending, and flush and close it at the end.

    Args:  replicated: what is appended comes from a master; else it is put. create: makes its new files.
    Spec: HA-ST-50 "MUST leave `abort` behind. If it has appended nothing, it MUST leave the store as it was"; HA-ST-51 "MUST
    first lower the checkpoint's second time to the least of its three, and MUST set the i64 at byte 40"; HA-ST-52 "MUST have
    `config/topics.json` name the topics".
    Raises: as CommitLog.open; then nothing has changed.
    """
    # A slave is told by its master where its log goes on; a master would give offsets a second time (HA-ST-7).
    hint = no_hint if replicated else partial(place_hint, store_dir)
    with CommitLog.open(store_dir, file_size=file_size, clear_tail=clear_tail, hint=hint, create=create) as log:
        if not replicated:  # a master's slaves must have files of this size, and nobody may have told it
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
    """The store timestamp of the last whole record; 0 where there is none."""
    overlap = find_overlap(log, log.recovery.last_offset or 0)
    data = None if overlap is None else log.data_at(overlap.record, log.file_size)
    if data is None:
        return 0
    try:
        return decode(data).store_timestamp
    except MessageMalformed:  # a slave takes what its master sends; the next opening looks at it
        return 0
