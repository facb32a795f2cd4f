"""The flush services: at intervals (asynchronous flush), or before a put ends (synchronous flush).

Both only advance the log's flushed offset. A failed sync is reported and advances nothing.

Spec: HA-ST-25 to HA-ST-28, HA-ST-60, HA-ST-61.
Source: article 003 sections 2 and 2.1; 4.9.8 CommitLog.FlushRealTimeService, GroupCommitService; quirk 36.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.log.results import PutMessageStatus

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

FLUSH_INTERVAL_S: Final = 0.5
FLUSH_LEAST_PAGES: Final = 4
FLUSH_THOROUGH_INTERVAL_S: Final = 10.0
# Tries of a flush for waiting puts before they end with an error.
_TRIES: Final = 2


class FlushIntervals(NamedTuple):
    """HA-ST-60 "every `flush_interval_commit_log`, 500 ms by default"."""

    interval_s: float = FLUSH_INTERVAL_S
    least_pages: int = FLUSH_LEAST_PAGES
    thorough_interval_s: float = FLUSH_THOROUGH_INTERVAL_S


class Flushable(Protocol):
    """The part of a log that a flush service uses."""

    @property
    def flushed_offset(self) -> int: ...

    def flush(self, least_pages: int = 0) -> int: ...


class FlushRealTimeService:
    """Asynchronous flush. HA-ST-25 "a put MUST NOT wait for the disk: a thread of its own flushes at intervals".

    Every `interval_s` it flushes if at least `least_pages` pages are dirty; every `thorough_interval_s` it flushes any.
    HA-ST-60 "MUST be flushed by a thread of its own".
    """

    def __init__(
        self,
        log: Flushable,
        *,
        interval_s: float = FLUSH_INTERVAL_S,
        least_pages: int = FLUSH_LEAST_PAGES,
        thorough_interval_s: float = FLUSH_THOROUGH_INTERVAL_S,
    ) -> None:
        self.error: OSError | RocketmqHaError | None = None  # of the last flush, if that failed
        self.first_error: OSError | RocketmqHaError | None = None  # of the first failed flush; never reset
        self._log, self._interval_s, self._least_pages = log, interval_s, least_pages
        self._thorough_interval_s = thorough_interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="FlushRealTimeService", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the first flush that failed, if any did.

        Spec: HA-ST-61 "MUST stop with an error that names the file".
        """
        if self.first_error is not None:
            raise self.first_error

    def shutdown(self) -> None:
        """End the thread, without a last flush: the owner must do that."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        thorough_at = time.monotonic() + self._thorough_interval_s
        while not self._stop.wait(self._interval_s):
            is_thorough = time.monotonic() >= thorough_at
            try:
                self._log.flush(0 if is_thorough else self._least_pages)
            except (OSError, RocketmqHaError) as error:
                if self.error is None:
                    logger.error("flush failed, and is tried again: flushed to %d: %s", self._log.flushed_offset, error)
                self.error = error
                self.first_error = self.first_error or error
            else:
                self.error = None
                if is_thorough:
                    thorough_at = time.monotonic() + self._thorough_interval_s


class GroupCommitRequest:
    """One put that waits for the disk. `status` is None while it waits, and is set once."""

    __slots__ = ("_gate", "next_offset", "status")

    def __init__(self, next_offset: int, gate: threading.Lock) -> None:
        self.next_offset = next_offset
        self.status: PutMessageStatus | None = None
        self._gate = gate

    def wait(self, timeout_s: float) -> PutMessageStatus:
        """Wait. Returns: the status; FLUSH_DISK_TIMEOUT if there is none in time."""
        if self.status is None and self._gate.acquire(timeout=max(0.0, timeout_s)):
            self._gate.release()
        return self.status or PutMessageStatus.FLUSH_DISK_TIMEOUT


class Gathered(NamedTuple):
    """What one flush is for."""

    requests: list[GroupCommitRequest]
    gate: threading.Lock  # at which they wait
    is_last: bool  # the service shuts down


class GroupCommitService:
    """Synchronous flush. HA-ST-27 "MUST leave a GroupCommitRequest and wait; one thread flushes for all that have gathered".

    Requests that come during a flush wait for the next flush, which covers all of them. They wait at one gate: a lock that the
    thread opens once, and that each waiter opens for the next one.

    One lock for each request was slower: the thread would wake all waiters at once, and they would compete for the interpreter
    lock; that took a third more CPU time with 64 waiters. Waiting a moment for more requests did not help, either.
    """

    def __init__(self, log: Flushable, on_ended: Callable[[], None] | None = None) -> None:
        """on_ended: called by the thread after it has ended requests, for callers that do not wait at the gate."""
        self.error: OSError | RocketmqHaError | None = None  # of the last flush, if it failed
        self._log, self._on_ended = log, on_ended
        self._requests: SimpleQueue[GroupCommitRequest | None] = SimpleQueue()  # None ends the thread
        self._guard = threading.Lock()  # protects the pairing of requests and gate
        self._gate = _shut_gate()  # the gate of all requests in the queue
        self._thread = threading.Thread(target=self._run, name="GroupCommitService", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put_request(self, next_offset: int) -> GroupCommitRequest:
        """Add a request for a flush that covers everything before an offset."""
        with self._guard:
            request = GroupCommitRequest(next_offset, self._gate)
            self._requests.put(request)
        return request

    def shutdown(self) -> None:
        """Flush for the waiting requests, and end the thread. No request may follow."""
        self._requests.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        is_running = True
        while is_running:
            is_running = self.commit(self.gather())

    # The two halves of a round. A caller without the thread may take them itself.

    def gather(self) -> Gathered:
        """Wait for a request, and take all that have come. Those that an earlier flush has covered end at once.

        Such a request came between the last gathering and the moment at which its flush looked for the end of the log. The
        next flush may take long, or fail, and must not decide about it: HA-G-44 "with PUT_OK when a sync has covered the
        message".
        """
        gathered = [self._requests.get()]
        with self._guard:
            gathered += [self._requests.get_nowait() for _ in range(self._requests.qsize())]
            gate, self._gate = self._gate, _shut_gate()
        requests = [request for request in gathered if request is not None]
        is_last = len(requests) < len(gathered)
        flushed_offset = self._log.flushed_offset
        covered = [request for request in requests if request.next_offset <= flushed_offset]
        if covered:
            for request in covered:
                request.status = PutMessageStatus.PUT_OK
            requests = [request for request in requests if request.status is None]
            if self._on_ended is not None:
                self._on_ended()
        return Gathered(requests, gate, is_last)

    def commit(self, gathered: Gathered) -> bool:
        """Flush for the requests, and end them. Returns: whether another round follows."""
        requests, gate, is_last = gathered
        flushed_offset = self._flush(max((request.next_offset for request in requests), default=0))
        for request in requests:
            is_flushed = request.next_offset <= flushed_offset
            request.status = PutMessageStatus.PUT_OK if is_flushed else PutMessageStatus.FLUSH_DISK_TIMEOUT
        gate.release()
        if self._on_ended is not None:
            self._on_ended()
        return not is_last

    def _flush(self, next_offset: int) -> int:
        """Flush everything before an offset. HA-ST-28.  Returns: the flushed offset; it is less if all tries failed."""
        for _ in range(_TRIES):
            if self._log.flushed_offset >= next_offset:
                break
            try:
                self._log.flush()
            except (OSError, RocketmqHaError) as error:
                if self.error is None:
                    logger.error("flush failed: flushed to %d: %s", self._log.flushed_offset, error)
                self.error = error
            else:
                self.error = None
        return self._log.flushed_offset


def _shut_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate
