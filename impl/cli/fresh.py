"""`slave --from`: a store that holds no log is made to begin where it was told, before the slave connects.

The store is prepared so that its max offset is the wanted start; then the slave reports that, by the rule that it always has.
A process that ends in between leaves a store without a record: the next start finds it empty, and prepares it anew.
"""

import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import click

from rocketmq_ha.impl.cli.start_option import start_at
from rocketmq_ha.impl.errors import PeerViolation, RocketmqHaError
from rocketmq_ha.impl.net.client import FIRST_BACK_OFF_S, LAST_BACK_OFF_S
from rocketmq_ha.impl.net.feed import FeedEnded, Stopped, Unreachable
from rocketmq_ha.impl.net.fresh import FreshStart, Start
from rocketmq_ha.impl.net.tls import ClientTls
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE

log = logging.getLogger(__name__)

from_option = click.option(
    "--from",
    "start",
    type=start_at("last", "min"),
    metavar="last|min|OFFSET",
    help="Where a store without a log begins: at the start of the master's last file, as in RocketMQ (last), of its first file "
    "(min), or of the file that holds an offset. A store that has a log goes on where it ends. [default: last]",
)


class FreshStore:
    """Prepares the log of a store. Enter it before the store is opened: after an error the store is as it was then."""

    def __init__(self, store: Path, start: str | int | None, settle_s: float) -> None:
        self._store, self._start, self._settle_s = store, start, settle_s
        self._missing: list[Path] = []  # what the opening makes
        self._is_refused = False

    def __enter__(self) -> "FreshStore":
        inner = self._store / COMMIT_LOG_DIR, self._store / LOCK_FILE
        self._missing = [path for path in (*inner, self._store) if not path.exists()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_refused and self._store in self._missing:
            with contextlib.suppress(OSError):  # somebody has put something there
                self._store.rmdir()

    def prepare(
        self, commit_log: CommitLog, address: tuple[str, int], stopped: Callable[[], bool], tls: ClientTls | None = None
    ) -> None:
        """Have the log begin where it was told, if it holds no byte; return when that is done, or when told to stop.

        A master that cannot be reached is tried again, as a slave does.
        Spec: HA-S-80 "A slave MAY be told where a log without a record begins; a log that holds a record MUST go on where it
        ends".
        Raises: NoSuchStart; OSError.
        """
        start = self._start
        if start is None:
            return
        if commit_log.max_offset > commit_log.min_offset:
            ends = f"{commit_log.min_offset} to {commit_log.max_offset}"
            log.info("%s: --from %s means nothing here: its log holds %s, and goes on", self._store, start, ends)
            return
        if start == "last":
            return
        search = FreshStart(address, commit_log.file_size, stopped, self._settle_s, tls)
        try:
            base = self._find(search, start, stopped)
            if base is None:
                return
            commit_log.begin_at(base)
        except (RocketmqHaError, OSError):
            self._undo()
            raise
        inside = f", which holds offset {start}" if start not in ("min", base) else ""
        log.info("%s: its log begins with the master's file %d%s", self._store, base, inside)

    def _find(self, search: FreshStart, start: Start, stopped: Callable[[], bool]) -> int | None:
        back_off_s = FIRST_BACK_OFF_S
        while not stopped():
            try:
                return search.find(start)
            except Stopped:
                return None
            except (Unreachable, FeedEnded, PeerViolation) as error:
                log.warning("%s; trying again", error)
            until = time.monotonic() + back_off_s * random.uniform(0.5, 1)
            back_off_s = min(2 * back_off_s, LAST_BACK_OFF_S)
            while time.monotonic() < until and not stopped():
                time.sleep(0.02)
        return None

    def _undo(self) -> None:
        """HA-S-83 "the store being left as it was": take away what the opening has made, while this process has the lock."""
        self._is_refused = True
        for path in self._missing:
            with contextlib.suppress(OSError):
                if path.name == COMMIT_LOG_DIR:
                    path.rmdir()
                elif path.name == LOCK_FILE:
                    path.unlink()
