"""The check of one store, or of two against each other. Stores are only read, and may have live writers."""

from dataclasses import dataclass

from rocketmq_ha.impl.app.progress import ShowBytes
from rocketmq_ha.impl.store.derived.verify import DerivedSummary, verify_derived
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, Summary, compare
from rocketmq_ha.impl.store.log.verify import verify as verify_log
from rocketmq_ha.spec.constants import CONSUME_QUEUE_DIR, INDEX_DIR


@dataclass(frozen=True, slots=True)
class Verified:
    """The figures of a store without a fault. derived: None if there are neither consume queues nor an index."""

    summary: Summary
    derived: DerivedSummary | None


def verify_store(reader: LogReader, show_progress: ShowBytes) -> Verified:
    """Check every record, and every entry of the consume queues and of the index. Raises: StoreCorrupt; OSError."""
    return reader.patiently(lambda: _verify_files(reader, show_progress))


def _verify_files(reader: LogReader, show_progress: ShowBytes) -> Verified:
    with show_progress(f"verifying {reader.store_dir}", reader.data_size()) as progress:
        summary = verify_log(reader, lambda offset: progress(offset - reader.min_offset))
    if not any((reader.store_dir / name).exists() for name in (CONSUME_QUEUE_DIR, INDEX_DIR)):
        return Verified(summary, None)  # a log alone, as replication makes it
    with show_progress(f"verifying queues and index of {reader.store_dir}", summary.log_size) as progress:
        return Verified(summary, verify_derived(reader, lambda offset: progress(offset - reader.min_offset)))


def compare_logs(mine: LogReader, theirs: LogReader, show_progress: ShowBytes) -> Comparison:
    """Compare two logs over the offsets that both have."""
    start = max(mine.min_offset, theirs.min_offset)
    end = min(log.max_offset + log.tail_size for log in (mine, theirs))
    with show_progress("comparing", max(0, end - start)) as progress:
        return compare(mine, theirs, lambda offset: progress(offset - start))


def verdict_of(found: Comparison, mine: Summary, theirs: Summary) -> str:
    """DIFFERENT, NO_OVERLAP or EQUAL."""
    if found.difference is not None:
        return "DIFFERENT"
    if found.start == found.stop and (mine.log_size or theirs.log_size):
        return "NO_OVERLAP"  # nothing was compared, so nothing is shown
    return "EQUAL"
