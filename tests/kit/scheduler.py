"""Threads that run one at a time, with switches where a test says: so a race is an input, and happens again with it.

    with Scheduler(choices).in_place_of_threads(flush, log_writer) as scheduler:
        scheduler.run(main)

Each task is a thread of Python that waits for its turn. It may lose its turn before each operation of a lock, an event, a
condition, a queue or a deque of the modules, and wherever the test calls `switch`. Time stands still while a task can run, and
then goes to the next time-out. If no task can run and none has a time-out, or if the tasks of the test wait while only others
run, `run` raises StuckError: a deadlock and a lost wake-up are failures that name who waits for what, and no test hangs.
"""

import collections
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final, Self
from unittest import mock

STAY: Final = 160  # a choice below it lets the running task go on
_PATIENCE_S: Final = 30.0  # of the scheduler's time, for which no task of the test has run
_LIMIT: Final = 50_000  # switches
_REAL_PATIENCE_S: Final = 60.0  # a task that blocks elsewhere


class StuckError(AssertionError):
    """No task can go on."""


class _Ended(BaseException):
    """The run is over: what a task does is given up."""


class Task:
    """One thread. ready: says whether what it waits for has happened; None while it does not wait."""

    def __init__(self, name: str, *, daemon: bool) -> None:
        self.name, self.daemon = name, daemon
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None
        self.deadline_s: float | None = None
        self.what = ""
        self.has_ended = False

    def __str__(self) -> str:
        return f"{self.name} waits for {self.what}"


class Scheduler:
    """choices: one byte a switch. Below STAY the running task goes on, else the byte chooses another. Behind them all go on.

    passes_time: the byte 255 lets time go to the next time-out, although tasks could run, as on a busy machine.
    """

    def __init__(self, choices: bytes, *, passes_time: bool = False) -> None:
        self.now_s = 1000.0
        self.switches = 0
        self._choices = iter(choices)
        self.passes_time = passes_time
        self._tasks: list[Task] = []  # that have not ended; the one that ran last is the last
        self._current: Task | None = None
        self._progress_s = self.now_s  # when a task of the test ran last
        self._error: BaseException | None = None
        self._is_over = False
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    # --- For the test ----------------------------------------------------------------------------------------------------

    def run(self, main: Callable[[], None]) -> None:
        """Run a function as the first task, until every task but daemons has ended.

        Raises: the first error of a task; StuckError.
        """
        self.spawn(main, "main")
        self._tasks[0].turn.release()
        self._current = self._tasks[0]
        is_over = self._over.wait(_REAL_PATIENCE_S)
        self._is_over = True
        for thread in self._threads:
            thread.join(_REAL_PATIENCE_S)
        assert is_over, f"{self._current} blocks, and not by the scheduler"
        if self._error is not None:
            raise self._error

    def spawn(self, function: Callable[[], object], name: str, *, daemon: bool = False) -> Task:
        """Begin a task; it runs when it is chosen."""
        task = Task(name, daemon=daemon)

        def run() -> None:
            task.turn.acquire()
            try:
                if not self._is_over:
                    function()
            except _Ended:
                pass
            except BaseException as error:
                self._error = self._error or error
            self._end(task)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        self._tasks.insert(0, task)
        thread.start()
        return task

    def join(self, *tasks: Task) -> None:
        """Wait until tasks have ended."""
        for task in tasks:
            self.block(lambda task=task: task.has_ended, None, f"the end of {task.name}")  # type: ignore[misc]

    def switch(self) -> None:
        """Perhaps let another task run first."""
        self._hand_over(self._chosen())

    def block(self, ready: Callable[[], bool], timeout_s: float | None, what: str) -> bool:
        """Wait until something has happened. Returns: False at the time-out."""
        task = self._running()
        task.ready, task.what = ready, what
        task.deadline_s = None if timeout_s is None else self.now_s + max(0.0, timeout_s)
        try:
            self._hand_over(self._next())
            return ready()
        finally:
            task.ready = task.deadline_s = None

    def sleep(self, seconds: float) -> None:
        self.block(lambda: False, seconds, f"{seconds} s to pass")

    # --- Who is next -----------------------------------------------------------------------------------------------------

    def _running(self) -> Task:
        if self._is_over:
            raise _Ended
        assert self._current is not None
        return self._current

    def _can_run(self, task: Task) -> bool:
        if task.ready is None or task.ready():
            return True
        return task.deadline_s is not None and task.deadline_s <= self.now_s

    def _chosen(self) -> Task:
        """The running task, or another that can run."""
        current = self._running()
        choice = next(self._choices, 0)
        if choice < STAY:
            return current
        if choice == 255 and self.passes_time:
            self._pass_time()
        others = [task for task in self._tasks if task is not current and self._can_run(task)]
        return others[choice % len(others)] if others else current

    def _next(self) -> Task:
        """A task that can run, where the running one cannot. Raises: StuckError."""
        while not (able := [task for task in self._tasks if self._can_run(task)]):
            if not self._pass_time() or self.now_s - self._progress_s > _PATIENCE_S:
                self._fail(StuckError("; ".join(map(str, self._tasks))))
        choice = next(self._choices, 0)
        return able[choice % len(able) if choice >= STAY else 0]

    def _pass_time(self) -> bool:
        deadlines = [task.deadline_s for task in self._tasks if task.deadline_s is not None]
        if deadlines:
            self.now_s = max(self.now_s, min(deadlines))
        return bool(deadlines)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._finish()
        raise _Ended

    def _hand_over(self, task: Task) -> None:
        current = self._running()
        self.switches += 1
        if self.switches > _LIMIT:
            self._fail(StuckError(f"no end after {_LIMIT} switches; " + "; ".join(map(str, self._tasks))))
        if not task.daemon:
            self._progress_s = self.now_s
        self._tasks.remove(task)
        self._tasks.append(task)
        if task is not current:
            self._current = task
            task.turn.release()
            current.turn.acquire()
            self._running()

    def _end(self, task: Task) -> None:
        task.has_ended = True
        self._tasks.remove(task)
        if self._is_over:
            return
        if self._error is not None or all(other.daemon for other in self._tasks):
            self._finish()
            return
        try:
            following = self._next()
        except _Ended:
            return
        self._tasks.remove(following)
        self._tasks.append(following)
        self._current = following
        following.turn.release()

    def _finish(self) -> None:
        self._is_over = True
        for task in list(self._tasks):
            task.turn.release()
        self._over.set()

    # --- In place of threads ---------------------------------------------------------------------------------------------

    @contextmanager
    def in_place_of_threads(self, *modules: ModuleType) -> Iterator[Self]:
        """Give modules tasks for threads, and this scheduler's locks, queues and time."""
        kinds = {kind.__name__: self._bound(kind) for kind in (Lock, Event, Condition, Thread)}
        others = {"SimpleQueue": self._bound(SimpleQueue), "deque": self._bound(Deque)}
        mine = {"monotonic": lambda: self.now_s, "perf_counter": lambda: self.now_s, "sleep": self.sleep}
        clock = SimpleNamespace(**{**vars(time), **mine})
        with ExitStack() as stack:
            for module in modules:
                for name, value in list(vars(module).items()):
                    if value is threading:
                        stack.enter_context(mock.patch.object(module, name, SimpleNamespace(**kinds)))
                    elif value is time:
                        stack.enter_context(mock.patch.object(module, name, clock))
                    elif name in others:
                        stack.enter_context(mock.patch.object(module, name, others[name]))
                    elif isinstance(value, type(threading.Lock())):
                        stack.enter_context(mock.patch.object(module, name, Lock(self)))
            yield self

    def _bound(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: kind(self, *arguments, **named)


class Lock:
    """Any task may release it, as with threading.Lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._scheduler.switch()
        if self._is_held:
            limit_s = None if timeout < 0 else timeout
            if not blocking or not self._scheduler.block(lambda: not self._is_held, limit_s, "a lock"):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        assert self._is_held or self._scheduler._is_over, "release of a lock that nobody holds"
        self._is_held = False

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
        if not self._scheduler._is_over:
            self._scheduler.switch()


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._scheduler.switch()
        self._is_set = True

    def clear(self) -> None:
        self._scheduler.switch()
        self._is_set = False
        self._scheduler.switch()

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.switch()
        return self._is_set or self._scheduler.block(self.is_set, timeout, "an event")


class Condition:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[list[bool]] = []  # of each task that waits: whether it was notified

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        assert self._lock.locked()
        told = [False]
        self._waiting.append(told)
        self._lock.release()
        self._scheduler.block(lambda: told[0], timeout, "a condition")
        self._waiting = [other for other in self._waiting if other is not told]
        self._lock.acquire()
        return told[0]

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until_s = None if timeout is None else self._scheduler.now_s + timeout
        while not (result := predicate()):
            left_s = None if until_s is None else until_s - self._scheduler.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return result

    def notify_all(self) -> None:
        assert self._lock.locked(), "notify without the lock"
        for told in self._waiting:
            told[0] = True


class Thread:
    def __init__(self, scheduler: Scheduler, target: Callable[[], object], name: str = "", *, daemon: bool = False) -> None:
        self._scheduler, self._target, self.name, self._daemon = scheduler, target, name, daemon
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._target, self.name, daemon=self._daemon)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.has_ended

    def join(self) -> None:
        assert self._task is not None
        self._scheduler.join(self._task)


class SimpleQueue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: collections.deque[Any] = collections.deque()

    def put(self, item: object) -> None:
        self._scheduler.switch()
        self._items.append(item)
        self._scheduler.switch()

    def get(self) -> Any:
        self._scheduler.switch()
        if not self._items:
            self._scheduler.block(lambda: bool(self._items), None, "a queue")
        return self._items.popleft()

    def get_nowait(self) -> Any:
        self._scheduler.switch()
        return self._items.popleft()

    def qsize(self) -> int:
        self._scheduler.switch()
        return len(self._items)


class Deque(collections.deque[Any]):
    """A deque is changed without a lock where one operation is enough; between two, another task may run."""

    def __init__(self, scheduler: Scheduler, *arguments: Any, **named: Any) -> None:
        self._scheduler = scheduler
        super().__init__(*arguments, **named)

    def append(self, item: object) -> None:
        self._scheduler.switch()
        super().append(item)
        self._scheduler.switch()

    def pop(self) -> Any:  # type: ignore[override]
        item = super().pop()
        self._scheduler.switch()
        return item

    def popleft(self) -> Any:
        self._scheduler.switch()
        return super().popleft()
