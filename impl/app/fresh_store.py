"""The preparation of a store without a log, before its slave connects. It gets the master's file size, and the start of --from.

The preparation makes the store's max offset the wanted start. The slave then reports this offset, as it always reports its max
offset. A process that ends in between leaves a store without a record; the next start finds it empty, and prepares it again.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from rocketmq_ha.impl.errors import PeerViolation, RocketmqHaError
from rocketmq_ha.impl.net.feed import FeedEnded, Stopped, Unreachable
from rocketmq_ha.impl.net.fresh import FreshStart
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE

_CHECK_S: Final = 2.0  # how long a store that has a log waits for the master's file size; it can do without

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartSettings:
    """The start of a new log, and the size of its files.

    start: "last", "min" or an offset; None: --from is not given. settle_s: how long a put of the master may still wait for a
    slave; an older offset is reported only after this time. file_size: bytes; None: the slave learns the master's.
    """

    start: str | int | None
    settle_s: float
    file_size: int | None


class FreshStore:
    """Prepares the log of a store. Enter this context before the store is opened: an error leaves the store as it was then."""

    def __init__(self, store: Path, start: str | int | None, settle_s: float, file_size: int | None, learns: bool) -> None:
        """file_size: bytes; None: not given. learns: the master's file size is learnt, or compared, also without a start."""
        self._store, self._start, self._settle_s = store, start, settle_s
        self._file_size, self._learns = file_size, learns
        self._missing: list[Path] = []  # the directories and the file that the opening of the store creates
        self._is_refused = False
        self._is_begun = False  # the first call of `prepare` has examined the log
        self._is_prepared = False
        self._search: FreshStart | None = None  # the search at the master, while it runs

    @property
    def state(self) -> str:
        """The state of the search at the master; "" if none runs, or if it has no connection yet."""
        return self._search.state if self._search else ""

    def __enter__(self) -> "FreshStore":
        inner = self._store / COMMIT_LOG_DIR, self._store / LOCK_FILE
        self._missing = [path for path in (*inner, self._store) if not path.exists()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_refused and self._store in self._missing:
            with contextlib.suppress(OSError):  # another process has put a file there
                self._store.rmdir()

    def prepare(
        self,
        commit_log: CommitLog,
        address: tuple[str, int],
        stopped: Callable[[], bool],
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> bool:
        """Give a log that holds no byte the master's file size and the start that was asked for.

        Returns: True when that is done. While the master writes its first file, its size cannot be learnt: call again before
        each connect, because the master may have begun another file meanwhile (HA-S-99).
        Spec: HA-S-80 "A slave MAY be told where a log without a record begins; a log that holds a record MUST go on where it
        ends".
        Raises: NoSuchStart, WrongFileSize; Unreachable, FeedEnded or PeerViolation, after which a retry may succeed; Stopped;
        OSError.
        """
        if self._is_prepared:
            return True
        # A process that prepared the log and ended may have left an empty file: its size was right then.
        told = self._file_size or (commit_log.file_size if commit_log.queue.files else None)
        search = FreshStart(address, told, stopped, self._settle_s, tls, source_address)
        is_first, self._is_begun = not self._is_begun, True
        self._search = search
        try:
            if commit_log.max_offset > (commit_log.min_offset if is_first else 0):
                self._is_prepared = True
                if is_first:
                    self._check_log(commit_log, search)
            elif self._start is not None or self._learns:
                self._is_prepared = self._begin(commit_log, search)
            else:
                self._is_prepared = True
        except (Unreachable, FeedEnded, PeerViolation, Stopped):
            self._is_begun = not is_first
            raise
        except (RocketmqHaError, OSError):
            self._undo()
            raise
        finally:
            self._search = None
        return self._is_prepared

    def _check_log(self, commit_log: CommitLog, search: FreshStart) -> None:
        """Log that --from has no effect on a log with a record, and compare its file size. Raises: as `prepare`."""
        if self._start is not None:
            ends = f"{commit_log.min_offset} to {commit_log.max_offset}"
            log.info("%s: --from %s means nothing here: its log holds %s, and goes on", self._store, self._start, ends)
        # A log of two files or more has the right size. A log of one file still takes the master's size, unless one is given.
        is_of_one_file = commit_log.max_offset <= commit_log.min_offset + commit_log.file_size
        if self._learns and self._file_size is not None and is_of_one_file:
            with contextlib.suppress(Unreachable, FeedEnded, PeerViolation):  # the slave meets the same error, and logs it
                search.check(_CHECK_S)

    def _begin(self, commit_log: CommitLog, search: FreshStart) -> bool:
        """Returns: True if the log has its size and its start. Raises: as `prepare`."""
        start = self._start if self._start is not None else "last"
        base, file_size = search.find(start)
        if file_size not in (None, commit_log.file_size):
            assert file_size is not None
            commit_log.adopt_file_size(file_size)
            log.info("%s: its files are of %d bytes, as the master's", self._store, file_size)
        if base is None:
            return file_size is not None
        commit_log.begin_at(base)
        inside = f", which holds offset {start}" if start not in ("min", base) else ""
        log.info("%s: its log begins with the master's file %d%s", self._store, base, inside)
        return True

    def _undo(self) -> None:
        """HA-S-83 "with the store left as it was": remove what the opening has created, while this process holds the lock."""
        self._is_refused = True
        for path in self._missing:
            with contextlib.suppress(OSError):
                if path.name == COMMIT_LOG_DIR:
                    path.rmdir()
                elif path.name == LOCK_FILE:
                    path.unlink()
