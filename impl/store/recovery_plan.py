"""What opening a store would do to it, told without doing it.

The same code decides as at an opening: where recovery begins (knowledge.py) and where the log ends (recovery.py). What it
would make of queues and index is counted here. A live writer's store can be looked at too; what is counted is then of a
moment that has passed.

Spec: HA-ST-5, HA-ST-18 to HA-ST-20, HA-ST-38.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.checkpoint import was_aborted
from rocketmq_ha.impl.store.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.index_service import IndexService
from rocketmq_ha.impl.store.knowledge import known_of
from rocketmq_ha.impl.store.layout import file_name, read_layout
from rocketmq_ha.impl.store.mapped_file import MappedFile
from rocketmq_ha.impl.store.recovery import recover

Progress = Callable[[int], None]  # takes the commit-log offset that was reached


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What an opening would find, and do."""

    store_dir: Path
    is_clean: bool  # whether the last stop was; else there is a file `abort`
    files: int
    min_offset: int
    start: int  # where recovery looks from
    end: int  # where the log would end
    messages: int  # that it looks at
    cut_size: int  # bytes from there to the last that is not zero, which would be cut off
    dispatch_from: int  # where dispatch would begin anew
    entries_cut: int  # of consume queues, which name messages beyond the end
    keys_cut: int  # of the index, likewise

    @property
    def changes_something(self) -> bool:
        """Whether an opening would change more than it always does."""
        return not self.is_clean or bool(self.cut_size or self.entries_cut or self.keys_cut) or self.dispatch_from < self.end


def plan_recovery(store_dir: Path, progress: Progress | None = None) -> RecoveryPlan:
    """Look at a store as an opening would.

    Raises: ConfigInvalid where there is no store; StoreCorrupt (file, offset) where an opening would refuse it; OSError.
    """
    layout = read_layout(store_dir)
    if layout is None:
        raise ConfigInvalid(f"{store_dir}: no commitlog in it, expected the root of a RocketMQ store")
    size = layout.file_size or 0
    files = [MappedFile(layout.directory / file_name(base), base, size, writable=False) for base in layout.bases]
    table = ConsumeQueueTable(store_dir, writable=False)
    index = IndexService(store_dir, writable=False)
    try:
        known = known_of(store_dir, files)
        found = recover(
            _Watched(files, progress or (lambda _: None)),
            strict=True,
            first=known.first,
            flushed_before_ms=known.flushed_before_ms,
        )
        min_offset = files[0].base if files else 0
        is_clean = not was_aborted(store_dir)
        table.recover(min_offset, None)
        dispatched = table.max_physic_offset if is_clean else found.start
        return RecoveryPlan(
            store_dir,
            is_clean,
            len(files),
            min_offset,
            found.start,
            found.end,
            found.messages,
            found.cut_size,
            min(max(dispatched, min_offset), found.end),
            sum(queue.count_at_or_behind(found.end) for _, queue in table),
            index.count_at_or_behind(found.end),
        )
    finally:
        for file in files:
            file.close()
        table.close()
        index.close()


class _Watched(Sequence[MappedFile]):
    """Files that tell when they are looked at."""

    def __init__(self, files: Sequence[MappedFile], progress: Progress) -> None:
        self._files, self._progress = files, progress

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, index: int) -> MappedFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MappedFile]: ...
    def __getitem__(self, index: int | slice) -> MappedFile | Sequence[MappedFile]:
        if isinstance(index, slice):
            return self._files[index]
        self._progress(self._files[index].base)
        return self._files[index]
