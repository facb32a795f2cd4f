"""The messages of a topic that have a key, found by the index and, behind its last message, by reading the log."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.app.progress import ShowBytes
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.query import Found, query

_REPORTED_EVERY: Final = 4096  # records


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """begin, end: store timestamps in ms, both included. limit: return at most this number, the newest."""

    topic: str
    key: str
    begin: int
    end: int
    limit: int


def find_messages(store: Path, wanted: KeyQuery, show_progress: ShowBytes, *, scan: bool) -> list[Found]:
    """Find messages. The store is only read, and may have a live writer.

    Args:  scan: read the whole log, and ask no index.
    Raises: ConfigInvalid if there is no store; StoreCorrupt; OSError.
    """
    with LogReader(store) as reader:
        index = None if scan else IndexService(store, writable=False)
        try:
            start = max(index.end_phy_offset if index is not None else 0, reader.min_offset)
            total = max(0, reader.min_offset + reader.data_size() - start)
            with show_progress(f"looking through {store}", total) as progress:
                found = query(
                    index,
                    reader.message_at,
                    wanted.topic,
                    wanted.key,
                    max_num=wanted.limit,
                    begin=wanted.begin,
                    end=wanted.end,
                    unindexed=_watched(reader.records(start), lambda offset: progress(offset - start)),
                )
                progress(total)
                return found
        finally:
            if index is not None:
                index.close()


def _watched(records: Iterator[Found], progress: Callable[[int], None]) -> Iterator[Found]:
    """The same records; the progress is told each 4,096th offset."""
    for number, found in enumerate(records):
        if number % _REPORTED_EVERY == 0:
            progress(found[0])
        yield found
