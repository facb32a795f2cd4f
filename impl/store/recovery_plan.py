"""Report what opening a store would do to it, without doing it.

The code of an opening decides where recovery begins (checkpoint_hint.py) and where the log ends (recovery.py). The changes to
queues and index are counted here.

A store that another process has open can be examined, too. It cannot be opened, so nothing would be cut: bytes behind the end
are being written, and entries beyond it came after the examination. So only the observed positions are reported.

Spec: HA-ST-5, HA-ST-18 to HA-ST-20, HA-ST-38; HA-ST-49 "MUST report no damage and nothing to cut",
"MUST report how far that store has come".
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, overload

from rocketmq_ha.impl.errors import StoreCorrupt, StoreLocked
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.rebuild import DerivedRecovery, RecoveredLog
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, was_aborted
from rocketmq_ha.impl.store.log.checkpoint_hint import recovery_hint
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.lock import lock_holder
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.reader import read_layout_patiently
from rocketmq_ha.impl.store.log.recovery import recover

_LOOKS: Final = 3  # tries on a store that is being written
_LOOK_AGAIN_S: Final = 0.1
Progress = Callable[[int], None]  # called with the commit-log offset reached


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The findings and actions of an opening."""

    store_dir: Path
    holder: int | None  # id of the process that has the store open; see lock.py
    is_clean: bool  # no file `abort`
    files: int
    min_offset: int
    start: int  # offset at which recovery begins
    end: int  # offset at which the log would end
    messages: int  # that recovery walks over, from `start` on
    cut_size: int  # bytes from there to the last that is not zero, which would be cut off; 0 of a store that is open
    dispatch_from: int  # where dispatch would begin anew; of a store that is open, how far it has come
    entries_cut: int  # of consume queues, which name messages beyond the end
    keys_cut: int  # of the index, likewise
    files_removed: int  # that hold no whole record, so that offsets begin at 0 again: all of them, or none

    @property
    def stop(self) -> str:
        """What is known of the last stop: running, clean or unclean."""
        if self.holder is not None:
            return "running"
        return "clean" if self.is_clean else "unclean"

    @property
    def changes_something(self) -> bool:
        """Whether an opening would change more than it always does."""
        return (
            not self.is_clean
            or bool(self.cut_size or self.entries_cut or self.keys_cut or (self.files_removed and self.start))
            or self.dispatch_from < self.end
        )


def plan_recovery(store_dir: Path, progress: Progress | None = None, *, is_ours: bool = False) -> RecoveryPlan:
    """Look at a store as an opening would.

    Args:  is_ours: the caller has the lock, or there is none; else it is looked who has.
    Raises: ConfigInvalid where there is no store; StoreCorrupt (file, offset) where an opening would refuse it; StoreLocked
    where processes open and close it all the time; OSError.
    """
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_AGAIN_S)
        holder = None if is_ours else lock_holder(store_dir)
        try:
            plan = _plan(store_dir, holder, progress or (lambda _: None))
        except (StoreCorrupt, FileNotFoundError):
            # Beside a writer it is damage only if it stays: files come and go, and each is read at another moment.
            if look == _LOOKS - 1 or is_ours or holder is None is lock_holder(store_dir):
                raise
        else:
            if is_ours or lock_holder(store_dir) == holder:
                return plan
    raise StoreLocked(f"{store_dir}: processes open and close it, expected one that has it open, or none")


def _plan(store_dir: Path, holder: int | None, progress: Progress) -> RecoveryPlan:
    layout = read_layout_patiently(store_dir)
    size = layout.file_size or 0
    files = [MappedFile(layout.directory / file_name(base), base, size, writable=False) for base in layout.bases]
    table = ConsumeQueueTable(store_dir, writable=False)
    index = IndexService(store_dir, writable=False)
    try:
        found_hint = recovery_hint(store_dir, files)
        found = recover(
            _Watched(files, progress),
            strict=True,
            first=found_hint.first,
            flushed_before_ms=found_hint.flushed_before_ms,
        )
        min_offset = files[0].base if files else 0
        is_clean = not was_aborted(store_dir)
        table.recover(min_offset, None)
        is_open = holder is not None
        end = found.end
        is_removed = bool(files) and end == min_offset and not found_hint.keeps_place and not is_open
        if is_removed:  # HA-ST-7 "a store without a whole record MUST have no files"
            min_offset = end = 0
        entries_cut = 0 if is_open else sum(queue.count_at_or_behind(end) for _, queue in table)
        if is_open:
            dispatched = min(max(table.max_physic_offset, min_offset), end)
        else:
            log = RecoveredLog((), found, 0) if is_removed else RecoveredLog(files, found, end)
            dispatched = DerivedRecovery(log, table, index, StoreCheckpoint(store_dir), writable=False).run(is_clean=is_clean)
        return RecoveryPlan(
            store_dir,
            holder,
            is_clean,
            len(files),
            min_offset,
            found.start,
            end,
            found.messages,
            0 if is_open else found.cut_size,
            dispatched,
            entries_cut,
            0 if is_open else index.count_at_or_behind(end),
            len(files) if is_removed else 0,
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
