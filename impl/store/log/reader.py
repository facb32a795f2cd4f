"""Read a store beside whoever writes it: no lock, nothing created, up to the end that the store has now.

A reader cannot ask the writer where the log ends; it sees bytes. Where the walk meets no whole record, it is

- the end, if all bytes from there on are zero, in later files too;
- the end with a tail, if they begin a record that is not complete (fragment.py) and all behind them are zero: a slave
  that holds part of a record;
- perhaps a write that is being made: the bytes are read again for up to half a second, and if a record stands there by
  then, the walk goes on, as far as there was data at the first look;
- else damage: StoreCorrupt with file and offset.

A file that is listed may be deleted before it is read: by retention, or by a slave that begins its log anew (HA-S-80). The
files are then listed again, and a walk begins again with the first of them.

Source: article 003 section 1.1; 4.9.8.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.log.find_record import explain
from rocketmq_ha.impl.store.log.fragment import is_fragment
from rocketmq_ha.impl.store.log.layout import Layout, file_name, read_layout
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.scan import Stop, scan
from rocketmq_ha.impl.wire.message import Message, decode, read_header
from rocketmq_ha.impl.wire.record_layout import SMALLEST_RECORD
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE

LOOKS: Final = 25
LOOK_AGAIN_S: Final = 0.02
# Bytes walked between two calls of a progress function.
STRIDE: Final = 8 << 20
T = TypeVar("T")


class LogReader:
    """A commit log, read-only. max_offset and tail_size are known once a walk has come to the end.

    Args:  store_dir: the root of a RocketMQ store, with commitlog/ in it.
    Raises: ConfigInvalid where there is no store; StoreCorrupt for a file of a wrong name or length; OSError.
    """

    def __init__(self, store_dir: Path) -> None:
        self.store_dir = store_dir
        self._list_files()

    def _list_files(self) -> None:
        layout = read_layout_patiently(self.store_dir)
        self.directory = layout.directory
        self.file_size = layout.file_size or 0  # bytes; 0 where there are no files
        self.files = _files_of(layout)
        self.max_offset = self.min_offset
        self.tail_size = 0  # bytes of a record that is not complete, at max_offset
        self.messages = 0
        self.blanks: list[tuple[int, int]] = []  # (offset of a BLANK, offset of the end of its file)
        self._seen_end: int | None = None  # where data ended at the first look behind the walk

    @property
    def min_offset(self) -> int:
        """The offset at which the first file starts; 0 where there is none."""
        return self.files[0].base if self.files else 0

    def patiently(self, read: Callable[[], T]) -> T:
        """Call a function that reads the files. Where one is deleted meanwhile, list the files again, and call it again.

        Returns: what the function does.
        Raises: FileNotFoundError after 25 calls.
        """
        for look in range(LOOKS):
            try:
                return read()
            except FileNotFoundError as error:
                self._list_anew(look, error)
        raise AssertionError("the last look returns or raises")

    def data_size(self) -> int:
        """Bytes from the first offset to the last byte that is not zero: what a walk has before it."""
        return self.patiently(self._data_size)

    def walk(self, progress: Callable[[int], None] | None = None) -> None:
        """Check every record: size, magic, CRC, physical offset; then that nothing follows. Counts as it goes.

        Args:  progress: called with the offset that was reached, every 8 MiB and at the end of a file.
        Raises: StoreCorrupt (file, offset); OSError.
        """
        self.patiently(lambda: self._walk(progress))

    def _data_size(self) -> int:
        for file in reversed(self.files):
            if file.has_data():
                return file.base + file.data_end(0) - self.min_offset
        return 0

    def _walk(self, progress: Callable[[int], None] | None) -> None:
        index, position = 0, 0
        last_position: int | None = None  # of the last message in this file
        while index < len(self.files):
            file = self.files[index]
            found = scan(file.mapping, file.base, position, position + STRIDE)
            position = found.position
            last_position = last_position if found.last_position is None else found.last_position
            self.messages += found.messages
            if progress is not None:
                progress(file.base + position)
            is_cut = (
                last_position is not None
                and found.blank_position is None
                and not self._is_there(index, last_position, position)
            )
            if found.stop is Stop.FULL and not is_cut:
                if found.blank_position is not None:
                    self.blanks.append((file.base + found.blank_position, file.base + file.size))
                index, position, last_position = self._next_file(index), 0, None
            elif found.stop is not Stop.BOUND:
                if is_cut and last_position is not None:
                    position, last_position = last_position, None
                    self.messages -= 1
                if not self._goes_on(index, position):
                    return

    def records(self, start: int = 0) -> Iterator[tuple[int, int, Message]]:
        """Every message that begins at or behind an offset: (offset, size in bytes, message).

        Raises: StoreCorrupt (file, offset), after the messages before it; OSError.
        """
        for look in range(LOOKS):
            try:
                yield from self._records(start)  # the files before a deleted one are deleted: no message comes twice
                return
            except FileNotFoundError as error:
                self._list_anew(look, error)

    def _records(self, start: int) -> Iterator[tuple[int, int, Message]]:
        index = max(0, start - self.min_offset) // self.file_size if self.files else 0
        while index < len(self.files):
            file = self.files[index]
            position = _skip(file, start)
            while True:
                found = scan(file.mapping, file.base, position, position + 1)
                if found.messages and self._is_there(index, position, found.position):
                    yield file.base + position, found.position - position, decode(file.view(position, found.position))
                    position = found.position
                elif found.stop is Stop.FULL:
                    index = self._next_file(index)
                    break
                elif not self._goes_on(index, position):
                    return

    def data_at(self, offset: int, limit: int) -> bytes:
        """A copy of the log's bytes from an offset on, at most limit, within one file; the offset must be in a file."""
        index, position = divmod(offset - self.min_offset, self.file_size)
        return self.files[index].mapping[position : position + limit]

    def message_at(self, offset: int) -> tuple[int, int, Message] | None:
        """The message that stands at an offset: (offset, size in bytes, message); None where none does. Raises: OSError."""
        if not self.files or not self.min_offset <= offset < self.files[-1].base + self.file_size:
            return None
        index = (offset - self.min_offset) // self.file_size
        file = self.files[index]
        position = offset - file.base
        try:
            found = scan(file.mapping, file.base, position, position + 1)
            if not found.messages or not self._is_there(index, position, found.position):
                return None
            return offset, found.position - position, decode(file.view(position, found.position))
        except FileNotFoundError:  # deleted since it was listed
            return None

    def file_at(self, offset: int) -> Path:
        """The file that holds an offset."""
        return self.files[(offset - self.min_offset) // self.file_size].path

    def close(self) -> None:
        """Unmap the files; a second call does nothing."""
        for file in self.files:
            file.close()

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def reopen(self) -> None:
        """Take the files that the store has now, and forget what was counted. Raises: as the constructor."""
        self.close()
        self._list_files()

    def _list_anew(self, look: int, error: FileNotFoundError) -> None:
        """Reopen, after a file that was listed has been deleted. Raises: the error, at the last look."""
        if look == LOOKS - 1:
            raise error
        time.sleep(LOOK_AGAIN_S)
        self.reopen()

    def _next_file(self, index: int) -> int:
        """Leave a file that is full; a writer may have added files since they were listed."""
        file = self.files[index]
        self.max_offset = file.base + file.size
        file.close()
        if index + 1 == len(self.files):
            known = {file.base for file in self.files}
            layout = read_layout_patiently(self.store_dir)
            self.files += [file for file in _files_of(layout) if file.base > max(known)]
        return index + 1

    def _goes_on(self, index: int, position: int) -> bool:
        """Judge bytes that are no whole record. Returns: True if by now they are one; False if the log ends here.

        Raises: StoreCorrupt.
        """
        file = self.files[index]
        offset = file.base + position
        tail_size = 0  # as it was at the look before, if it could be one
        for look in range(LOOKS):
            if look:
                time.sleep(LOOK_AGAIN_S)
                file.close()  # another file may have its name by now
            if self._stands(index, position):
                if self._seen_end is not None and offset >= self._seen_end:
                    return self._end(offset, 0)  # all that was there at the first look is checked
                return True
            if 0 < look < LOOKS - 1 and not tail_size:
                continue  # neither the end nor a tail; to see whether it is being written, the record alone will do
            data_end = file.data_end(position)
            later = [other for other in self.files[index + 1 :] if other.has_data()]
            if self._seen_end is None:
                self._seen_end = later[-1].base + later[-1].data_end(0) if later else file.base + data_end
            if not later and data_end == position:
                return self._end(offset, 0)
            size = data_end - position
            if later or not is_fragment(file.view(position, file.size), size, offset):
                tail_size = 0
            elif size == tail_size:
                return self._end(offset, size)
            else:
                tail_size = size
        if tail_size:  # a slave that takes its bytes drop by drop: it has shown a tail at every look
            return self._end(offset, tail_size)
        error = explain(file, position)
        if error is not None and error.found != "zero bytes":
            raise error
        if error is None and self._stands(index, position):
            return True  # at the last moment
        raise StoreCorrupt(file.path, offset, f"zero bytes, and data behind, up to {self._seen_end}", "a whole record")

    def _stands(self, index: int, position: int) -> bool:
        """Whether a record, all of it, or a BLANK stands at a position."""
        file = self.files[index]
        found = scan(file.mapping, file.base, position, position + 1)
        return found.position > position and (not found.messages or self._is_there(index, position, found.position))

    def _is_there(self, index: int, position: int, end: int) -> bool:
        """Whether a record that looks whole has the end of its topic and properties too; see fragment.py."""
        file = self.files[index]
        if file.mapping[end - 1] or any(file.mapping[end : end + END_FILE_MIN_BLANK_SIZE]):
            return True
        if any(later.has_data() for later in self.files[index + 1 :]):
            return True
        size = file.data_end(position) - position
        return size >= end - position or not is_fragment(file.view(position, file.size), size, file.base + position)

    def _end(self, offset: int, tail_size: int) -> bool:
        self.max_offset, self.tail_size = offset, tail_size
        return False


def _skip(file: MappedFile, start: int) -> int:
    """The position of the first record at or behind an offset, by headers alone; or of what looks like no record."""
    position = 0
    while file.base + position < start and position + END_FILE_MIN_BLANK_SIZE <= file.size:
        size, magic = read_header(file.mapping, position)
        if magic == BLANK_MAGIC_CODE or not SMALLEST_RECORD <= size <= file.size - position:
            break
        position += size
    return position


def _files_of(layout: Layout) -> list[MappedFile]:
    directory, size = layout.directory, layout.file_size or 0
    return [MappedFile(directory / file_name(base), base, size, writable=False) for base in layout.bases]


def read_layout_patiently(store_dir: Path) -> Layout:
    """List the files of a store that a process may have open.

    A file that it is just making has no length yet, and a file that it has just deleted is gone after it was listed: so look
    again before judging. Raises: as `read_layout`; ConfigInvalid if there is no store.
    """
    for look in range(LOOKS):
        try:
            layout = read_layout(store_dir)
            break
        except (StoreCorrupt, FileNotFoundError):
            if look == LOOKS - 1:
                raise
            time.sleep(LOOK_AGAIN_S)
    if layout is None:
        found = "no commitlog in it" if store_dir.exists() else "no such directory"
        raise ConfigInvalid(f"{store_dir}: {found}, expected the root of a RocketMQ store")
    return layout
