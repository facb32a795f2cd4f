"""A thread that follows a master's log into a store, while the loop of a broker serves consumers from that store."""

import threading
from collections.abc import Callable
from typing import Any, Final, cast

from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.message_store import MessageStore

_IDLE_S: Final = 0.1  # how long the thread sleeps while it knows no master

Address = tuple[str, int]


class _DispatchedLog:
    """The log of a store, as a follower appends to it. HA-ST-36 "MUST dispatch the records that it has appended"."""

    def __init__(self, store: MessageStore) -> None:
        self._log = store.log
        self.append_data = store.append_data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Following:
    """Follows the master that it is told of. What ends it for good is raised by `check`, in the loop's thread.

    Args:  make: a follower of a master that writes to a log.
    """

    def __init__(self, store: MessageStore, make: Callable[[CommitLog, Address], Follower]) -> None:
        self._log = cast(CommitLog, _DispatchedLog(store))
        self._make = make
        self._master: Address | None = None
        self._stop = threading.Event()
        self.follower: Follower | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="Following", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, master: Address | None) -> None:
        """Follow this master from the next connect on. HA-S-15 "MUST leave its client idle": None, wait for an address."""
        self._master = master

    @property
    def master(self) -> Address | None:
        """The address for the next connect."""
        return self._master

    def is_connected(self) -> bool:
        """Whether there is a connection to a master at this moment. Any thread may ask."""
        follower = self.follower
        return follower is not None and follower.client.connected

    def check(self) -> None:
        """Raise what has ended the thread, such as OutOfStep, if anything has."""
        if self._error is not None:
            raise self._error

    def shutdown(self) -> None:
        """End the thread. The store is still open."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                master = self._master
                if master is None:
                    self._stop.wait(_IDLE_S)
                    continue
                self._follow(master)
        except Exception as error:  # a fault of ours, too: the loop raises it, or the broker would serve an old store
            self._error = error

    def _follow(self, master: Address) -> None:
        """Follow one master until it is told of another and has no connection, or until the end.

        HA-S-18 "A new address MUST NOT end the live connection; the next connect takes it".
        """
        follower = self.follower = self._make(self._log, master)
        follower.run(lambda: self._stop.is_set() or (self._master != master and not follower.client.connected))
