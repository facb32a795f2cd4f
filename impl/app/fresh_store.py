"""The preparation of a store without a log, before its slave connects: its file size is the master's, and its start what --from
says.

`--from` prepares it so that its max offset is the wanted start; then the slave reports that, by the rule that it always has.
A process that ends in between leaves a store without a record: the next start finds it empty, and prepares it anew.
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
from rocketmq_ha.impl.net.tls import ClientTls
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE

_CHECK_S: Final = 2.0  # for the answer that a store with a log does without

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Where a new log begins, and the size of its files.

    start: "last", "min" or an offset; None: nobody said. settle_s: how long a put of the master may still wait for a slave; an
    older offset is reported only after that. file_size: bytes; None: the slave learns the master's.
    """

    start: str | int | None
    settle_s: float
    file_size: int | None


class FreshStore:
    """Prepares the log of a store. Enter it before the store is opened: after an error the store is as it was then."""

    def __init__(self, store: Path, start: str | int | None, settle_s: float, file_size: int | None, learns: bool) -> None:
        """file_size: bytes, if it was told. learns: whether the size is learnt, or compared, where no start is told either."""
        self._store, self._start, self._settle_s = store, start, settle_s
        self._file_size, self._learns = file_size, learns
        self._missing: list[Path] = []  # what the opening makes
        self._is_refused = False
        self._is_begun = False  # the log has been looked at
        self._is_prepared = False
        self._search: FreshStart | None = None  # that is going on

    @property
    def state(self) -> str:
        """How the search at the master stands; "" where none is going on, or no connection has come about."""
        return self._search.state if self._search else ""

    def __enter__(self) -> "FreshStore":
        inner = self._store / COMMIT_LOG_DIR, self._store / LOCK_FILE
        self._missing = [path for path in (*inner, self._store) if not path.exists()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_refused and self._store in self._missing:
            with contextlib.suppress(OSError):  # somebody has put something there
                self._store.rmdir()

    def prepare(
        self,
        commit_log: CommitLog,
        address: tuple[str, int],
        stopped: Callable[[], bool],
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> bool:
        """Give a log that holds no byte the master's file size, and have it begin where it was told.

        Returns: whether that is done. While the master is in its first file nobody knows the size: call again before each
        connect, for the master may have begun another file meanwhile (HA-S-99).
        Spec: HA-S-80 "A slave MAY be told where a log without a record begins; a log that holds a record MUST go on where it
        ends".
        Raises: NoSuchStart, WrongFileSize; Unreachable, FeedEnded, PeerViolation, after which another try may fare better;
        Stopped; OSError.
        """
        if self._is_prepared:
            return True
        # An empty file may be left of a process that had prepared it: it has the size that was right then.
        told = self._file_size or (commit_log.file_size if commit_log.queue.files else None)
        search = FreshStart(address, told, stopped, self._settle_s, tls, source_address)
        is_first, self._is_begun = not self._is_begun, True
        self._search = search
        try:
            if commit_log.max_offset > (commit_log.min_offset if is_first else 0):
                self._is_prepared = True
                if is_first:
                    self._look_at_log(commit_log, search)
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

    def _look_at_log(self, commit_log: CommitLog, search: FreshStart) -> None:
        """What there is to say and to see of a log that goes on. Raises: as `prepare`."""
        if self._start is not None:
            ends = f"{commit_log.min_offset} to {commit_log.max_offset}"
            log.info("%s: --from %s means nothing here: its log holds %s, and goes on", self._store, self._start, ends)
        # What is in a second file is in files of the right size. A log of one file whose size was not told still takes the
        # master's.
        is_of_one_file = commit_log.max_offset <= commit_log.min_offset + commit_log.file_size
        if self._learns and self._file_size is not None and is_of_one_file:
            with contextlib.suppress(Unreachable, FeedEnded, PeerViolation):  # the slave itself meets them, and says so
                search.check(_CHECK_S)

    def _begin(self, commit_log: CommitLog, search: FreshStart) -> bool:
        """Returns: whether the log has its size and its start. Raises: as `prepare`."""
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
        """HA-S-83 "with the store left as it was": take away what the opening has made, while this process has the lock."""
        self._is_refused = True
        for path in self._missing:
            with contextlib.suppress(OSError):
                if path.name == COMMIT_LOG_DIR:
                    path.rmdir()
                elif path.name == LOCK_FILE:
                    path.unlink()
