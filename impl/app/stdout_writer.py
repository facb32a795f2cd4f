"""Non-blocking writes of lines to standard output. Each line has a mark, which tells how far the reader has taken the output.

A slow or stopped reader must not delay signals, nor the reports to a master. So no write may block: if `poll` says that a pipe
takes bytes, it takes a page without blocking.
"""

import fcntl
import os
import select
import stat
from collections import deque
from pathlib import Path
from typing import Final, Generic, TypeVar

FULL_SIZE: Final = 1 << 20  # pending bytes from which on the caller should pause
STDOUT: Final = "standard output"  # the file name in an error
_PIPE_CHUNK: Final = 4096
_FILE_CHUNK: Final = 1 << 20

Mark = TypeVar("Mark")


class StdoutWriter(Generic[Mark]):
    """Writes lines to a descriptor, and keeps the lines that are not written yet.

    Where a file is continued whose last line a killed process has left without its end, that line is ended first: else the next
    one would be lost in it. Raises: OSError, if the file takes no byte.
    """

    def __init__(self, fd: int) -> None:
        if _is_within_line(fd):
            _write(fd, b"\n")
        self.fd = fd
        self.reached: Mark | None = None  # the mark of the last line that was written whole
        self.pending_size = 0
        self._lines: deque[tuple[memoryview, Mark]] = deque()
        self._chunk = _FILE_CHUNK if stat.S_ISREG(os.fstat(fd).st_mode) else _PIPE_CHUNK
        self._in_line = False  # the first line is partly written
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def is_full(self) -> bool:
        return self.pending_size >= FULL_SIZE

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def put(self, line: bytes, mark: Mark) -> None:
        """Add a line, newline included; or an empty line, which carries a mark alone."""
        self._lines.append((memoryview(line), mark))
        self.pending_size += len(line)
        self._pass_marks()

    def write(self, timeout_ms: int = 0) -> None:
        """Write what the reader takes; wait for it at most timeout_ms. Raises: BrokenPipeError if it has gone; OSError."""
        while True:
            found = self._poll.poll(timeout_ms)
            timeout_ms = 0
            if not found:
                return
            if found[0][1] & (select.POLLERR | select.POLLNVAL):
                raise BrokenPipeError
            if not self._lines:
                return
            data = self._lines[0][0]
            if len(data) < self._chunk:
                data = memoryview(b"".join(self._some()))
            self._count(_write(self.fd, data[: self._chunk]))

    def finish_line(self) -> bool:
        """Drop all lines, except one that is partly written. Returns: True if there is one."""
        while len(self._lines) > self._in_line:
            self.pending_size -= len(self._lines.pop()[0])
        return self._in_line

    def sync(self) -> None:
        """If the output is a file, force what was written to the disk."""
        if self._chunk == _FILE_CHUNK:
            os.fsync(self.fd)

    def _some(self) -> list[memoryview]:
        some, size = [], 0
        for line, _ in self._lines:
            some.append(line)
            size += len(line)
            if size >= self._chunk:
                break
        return some

    def _count(self, written: int) -> None:
        self.pending_size -= written
        while written:
            line, mark = self._lines[0]
            if written < len(line):
                self._lines[0] = (line[written:], mark)
                self._in_line = True
                break
            written -= len(line)
            self._lines.popleft()
            self.reached = mark
            self._in_line = False
        self._pass_marks()

    def _pass_marks(self) -> None:
        while self._lines and not self._lines[0][0]:
            self.reached = self._lines.popleft()[1]


def _write(fd: int, data: bytes | memoryview) -> int:
    try:
        return os.write(fd, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from error


def _is_within_line(fd: int) -> bool:
    """Whether a file is continued behind a byte that is no newline. False where the system does not let us read it."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or not info.st_size:
        return False
    if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND and os.lseek(fd, 0, os.SEEK_CUR) != info.st_size:
        return False
    try:
        with Path(f"/dev/fd/{fd}").open("rb") as file:
            file.seek(info.st_size - 1)
            return file.read(1) != b"\n"
    except OSError:
        return False
