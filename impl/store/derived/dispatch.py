"""The dispatch thread: it puts each record into queues and index once. HA-ST-35 "in the order of the log, by a thread of its
own".

A put may hand over a record in memory (`offer`). All other records are read from the log: replicated bytes, records of an
earlier process, BLANKs, and records dropped from the bounded memory. `reput_from_offset` joins both ways: a handed record is
used only if it begins there. If it begins later, the gap is read from the log first; if it begins earlier, it has been
dispatched already. So no record is lost, dispatched twice or out of order, whatever is handed over and whatever fails.

Source: article 003 section 1.6; 4.9.8 DefaultMessageStore.ReputMessageService.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rocketmq_ha.impl.errors import RocketmqHaError, StoreCorrupt
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, Read, RequestMaker, read_handed
from rocketmq_ha.impl.store.derived.dispatch_round import DispatchRound
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.wire.batch import COMMIT_LOG_OFFSET, SIZE, AllHanded, HandedBatch, HandedFields

__all__ = ["DispatchRequest", "Dispatcher", "LogSource", "ReputMessageService"]

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

_HANDED_LIMIT: Final = 1 << 16  # handed puts in memory; the oldest beyond this are dropped, and read from the log
_BATCH: Final = 4096  # messages in a round; a batch is never split
_GATHER_S: Final = 0.001  # rest after the rounds, so that a stream of puts causes at most a thousand wake-ups a second
_IDLE_S: Final = 0.1
_RETRY_S: Final = 1.0
_SAY_AGAIN_S: Final = 60.0  # between two lines about a failure that lasts


class LogSource(Protocol):
    """The part of CommitLog that the dispatch reads while other threads append."""

    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    def data_at(self, offset: int, limit: int) -> memoryview | None: ...


# Takes requests in the order of the log. After a failure some requests come again, and it skips them.
Dispatcher = Callable[[DispatchRound], None]


class ReputMessageService:
    """Dispatches the log from an offset on, in its own thread (`start`) or in the caller's (`dispatch_all`).

    Args:  dispatchers: called in turn with the same requests, from one thread. reput_from_offset: the start of the first record
           that is not dispatched yet.
    """

    def __init__(
        self,
        log: LogSource,
        dispatchers: Sequence[Dispatcher],
        reput_from_offset: int,
        delay_levels: DelayLevels | None = None,
    ) -> None:
        self.reput_from_offset = reput_from_offset  # every record before this offset is dispatched
        self.error: RocketmqHaError | None = None  # the error that ended the dispatch for good
        self._log, self._dispatchers = log, tuple(dispatchers)
        self._make = RequestMaker(delay_levels or DelayLevels.parse())
        self._handed: deque[HandedFields | HandedBatch] = deque(maxlen=_HANDED_LIMIT)
        self._held: HandedFields | HandedBatch | None = None  # taken from the deque, but begins behind a gap
        self._seen_end = -1  # the log's end when the last round found nothing to do
        self._thread: threading.Thread | None = None
        self._said: float | None = None  # when the last line about a failure was logged; None: the last try was none
        self._failures = 0  # tries that the system made fail
        self._is_idle = self._is_stopped = False
        self._wake, self._moved, self._is_leaving = threading.Event(), threading.Condition(), threading.Event()

    def start(self) -> None:
        """Dispatch in the background from now on."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="ReputMessageService", daemon=True)
        self._thread.start()

    def offer(self, handed: HandedFields) -> None:
        """Hand over a record that is in the log. The caller holds the put lock, so calls come in the order of the log."""
        self._handed.append(handed)
        if self._is_idle:
            self.wakeup()

    def offer_all(self, handed: AllHanded) -> None:
        """`offer` of a batch."""
        if isinstance(handed, HandedBatch):
            self._handed.append(handed)
        else:
            self._handed.extend(handed)
        if self._is_idle:
            self.wakeup()

    def wakeup(self) -> None:
        """Wake the dispatch: the log has grown."""
        self._is_idle = False
        self._wake.set()

    def behind(self) -> int:
        """Bytes of the log that are not dispatched, including a partial record at its end."""
        return max(0, self._log.max_offset - self.reput_from_offset)

    def wait_for(self, offset: int, timeout_s: float) -> bool:
        """Wait until every record before an offset is dispatched. Returns: False at the time-out.

        Raises: RocketmqHaError, if an error has ended the dispatch.
        """
        self._wait(lambda: self.reput_from_offset >= offset, timeout_s)
        if self.error is not None:
            raise self.error
        return self.reput_from_offset >= offset

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """Dispatch every whole record of the log and end the thread. Returns: False at the time-out, or after one more failure.

        The writers must have stopped. A dispatch that the system makes fail, on a full disk say, is tried once more: the
        next start dispatches what it has left.
        """
        if self._thread is not None:
            before = self._failures
            self._is_leaving.set()
            self._wait(lambda: self._is_caught_up() or self._failures > before, timeout_s)
            self._is_stopped = True
            self.wakeup()
            self._thread.join()
            self._thread = None
        return self.error is None and self._is_caught_up()

    def dispatch_all(self) -> int:
        """Dispatch every whole record now in the log, in the calling thread. The own thread must not run. Returns: their end.

        Raises: StoreCorrupt for bytes that are no record; OSError.
        """
        assert self._thread is None
        while self._round():
            pass
        return self.reput_from_offset

    def _is_caught_up(self) -> bool:
        return max(self.reput_from_offset, self._seen_end) >= self._log.max_offset

    def _wait(self, is_reached: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_reached() and self.error is None and self._thread is not None and self._thread.is_alive():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.wakeup()
            with self._moved:
                self._moved.wait_for(lambda: is_reached() or self.error is not None, min(left, _IDLE_S))

    def _run(self) -> None:
        while True:
            has_tried = not self._is_stopped
            try:
                while not self._is_stopped and self._round():
                    pass
            except OSError as error:  # a full disk, say: it may get room again, and what was not dispatched is in the log
                self._say_failure(error)
                with self._moved:
                    self._failures += 1
                    self._moved.notify_all()
                if self._is_stopped:
                    return
                # Once it is to end, `shutdown` sets _is_stopped after the next failure; a second is the most it may spin.
                self._is_leaving.wait(_RETRY_S)
                continue
            except RocketmqHaError as error:
                logger.error("dispatch ends at offset %d: %s", self.reput_from_offset, error)
                with self._moved:
                    self.error = error
                    self._moved.notify_all()
                return
            if self._said is not None and has_tried:
                logger.info("dispatch works again: it is at offset %d", self.reput_from_offset)
                self._said = None
            with self._moved:
                self._moved.notify_all()
            if self._is_stopped:
                return
            time.sleep(_GATHER_S)
            self._wake.clear()
            self._is_idle = True
            # Whoever appends looks at _is_idle afterwards, so either it is seen here, or we are seen there.
            if not self._handed and self._log.max_offset <= self._seen_end:
                self._wake.wait(_IDLE_S)
            self._is_idle = False

    def _say_failure(self, error: OSError) -> None:
        """Log the first failure in a row, and then one a minute: a disk may stay full for days."""
        now = time.monotonic()
        if self._said is None or now - self._said >= _SAY_AGAIN_S:
            logger.error("dispatch fails at offset %d, and is tried again: %s", self.reput_from_offset, error)
            self._said = now

    def _round(self) -> bool:
        """Dispatch up to a batch of records. Returns: whether there may be more.

        On an error the round has not been: what had been handed over is read from the log then. At a message that cannot be
        dispatched, those before it have been, to queues and index alike.
        """
        end = self._log.max_offset
        found = DispatchRound(self._make)
        offset, count = self._gather(self._first_offset(), found)
        if count:
            self._dispatch(found)
        if offset == self.reput_from_offset:
            self._seen_end = end
            return False
        self.reput_from_offset = offset
        if self._moved.acquire(blocking=False):  # who waits looks again by itself; this need not wait for it
            self._moved.notify_all()
            self._moved.release()
        return True

    def _dispatch(self, found: DispatchRound) -> None:
        failed: StoreCorrupt | None = None
        for dispatch in self._dispatchers:
            try:
                dispatch(found)
            except StoreCorrupt as error:
                failed, found = error, found.before(error.offset)
        if failed is not None:
            raise failed

    def _first_offset(self) -> int:
        if self.reput_from_offset < (min_offset := self._log.min_offset):
            logger.warning("dispatch is at offset %d, but the log begins at %d", self.reput_from_offset, min_offset)
            self.reput_from_offset = min_offset
        return self.reput_from_offset

    def _gather(self, offset: int, found: DispatchRound) -> tuple[int, int]:
        """Collect the messages that follow an offset. Returns: the offset behind them, and how many they are."""
        waiting = self._handed
        in_row: list[HandedFields | HandedBatch] = []  # what was handed over, without a gap
        count = 0
        handed, self._held = self._held, None
        while count < _BATCH:
            if handed is None and waiting:  # puts only add to it, or replace the oldest
                handed = waiting.popleft()
            if handed is not None:
                begin = handed[COMMIT_LOG_OFFSET]
                if begin == offset:
                    in_row.append(handed)
                    offset += handed[SIZE]
                    count += handed.messages if isinstance(handed, HandedBatch) else 1
                if begin <= offset:
                    handed = None
                    continue
            read: list[HandedFields] = []
            start, self._held = offset, handed
            bound = self._log.max_offset if handed is None else handed[COMMIT_LOG_OFFSET]
            offset = self._read(start, bound, read, is_first=not count)
            in_row += read
            count += len(read)
            if offset == start:
                break
        self._held = handed
        found.add_handed(in_row)
        return offset, count

    def _read(self, offset: int, bound: int, handed: list[HandedFields], *, is_first: bool) -> int:
        """Read the records before a bound from the log. Returns: the offset behind them; the same where none is whole.

        Raises: StoreCorrupt where there is no record, unless others are to be dispatched first.
        """
        if offset >= bound:
            return offset
        file_size = self._log.file_size
        room = file_size - offset % file_size
        view = self._log.data_at(offset, room)
        if view is None:
            return offset
        try:
            reached, why = read_handed(view, offset, room, bound, _BATCH, handed)
            if why is Read.BAD and reached == offset and is_first:
                found = view[reached - offset : reached - offset + 8].hex()
                file = f"commitlog/{file_name(reached - reached % file_size)}"
                raise StoreCorrupt(file, reached, f"bytes that begin {found}", "a record of this place")
            return reached
        finally:
            view.release()
