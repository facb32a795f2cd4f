"""A whole broker within the test: its store, its ports on loopback, its loop, and a client beside it."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kit.sends import fields_of
from kit.waiting import wait_for
from rocketmq_ha.impl.broker.broker import BrokerController, BrokerSettings
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.impl.store.log.flush import GroupCommitService
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 4 << 20
ALL = {"consumerGroup": "group", "topic": "orders", "subscription": "*", "subVersion": "0", "commitOffset": "0"}
SUSPEND_AND_SUBSCRIPTION = "6"


class LiveBroker:
    """Turn it by `turn`; `ask` does so until the answer is there. Close it."""

    def __init__(self, store: Path, settings: BrokerSettings | None = None, *, flush: str = "async") -> None:
        self.is_connected_to_master = False
        settings = settings or BrokerSettings(BrokerRole.ASYNC_MASTER, ("127.0.0.1", 10911), ("127.0.0.1", 10912))
        self._stack, self._is_closed = ExitStack(), False
        self.client = RemotingClient()
        self._stack.callback(self.client.close)
        self.server = RemotingServer([listen("127.0.0.1", 0)])
        self._stack.callback(self.server.close)
        own = RemotingClient()
        self._stack.callback(own.close)
        waker = Waker()
        self._stack.callback(waker.close)
        options = StoreOptions(
            file_size=FILE_SIZE, role=settings.role, store_host=settings.broker_addr, floor_size=0, notes_topics=False
        )
        self.store = self._stack.enter_context(MessageStore.open(store, options))
        ha_settings = Settings(FILE_SIZE, master_read_buffer_size=4096, sync_flush_timeout_ms=60_000)
        self.master = Master(self.store.log, listen("127.0.0.1", 0), ha_settings, HARDENED)
        self._stack.callback(self.master.close)
        group_commit = GroupCommitService(self.store.log_flush, waker.wake) if flush == "sync" else None
        self.puts = None if settings.role is BrokerRole.SLAVE else Puts(self.master.service, settings.role, group_commit)
        if group_commit is not None:
            group_commit.start()
        self.controller = BrokerController(
            settings,
            self.store,
            self.puts,
            self.server,
            own,
            waker.wake,
            dict[str, object],
            lambda: self.is_connected_to_master,
            clock_ms(),
        )
        for each in (self.server, own, waker, self.client):
            self.master.wake_by(each)
        host, port = self.server.addresses[0]
        self.address = f"{host}:{port}"

    def turn(self) -> None:
        """One turn of the loop, and one of the client."""
        self.master.poll(20)
        self.controller.turn(clock_ms())
        self.client.turn(clock_ms())

    def invoke(self, command: RemotingCommand) -> list[RemotingCommand | RequestFailed]:
        """Ask; the list will have the answer."""
        told: list[RemotingCommand | RequestFailed] = []
        self.client.invoke(self.address, command, clock_ms() + 60_000, told.append)
        return told

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """Ask, and turn until there is an answer."""
        told = self.invoke(request(code, fields, body))
        self.turn_until(lambda: told)
        assert isinstance(told[0], RemotingCommand), told
        return told[0]

    def turn_until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, self.turn)

    def await_dispatch(self, max_offset: int) -> None:
        """Turn until queue 1 of `orders` has so many messages: a pull from beyond its end is not parked."""
        self.turn_until(lambda: self.controller.figures.max_offset_in_queue("orders", 1) == max_offset)

    def send(self, body: bytes = b"body", code: int = 310, **changed: str | None) -> RemotingCommand:
        return self.ask(code, fields_of(code, **changed), body)

    def pull(self, queue_offset: int = 0, timeout_ms: int = 0, **changed: str) -> RemotingCommand:
        """Pull from queue 1 of `orders`, where `send` sends to."""
        return self.ask(11, pull_fields(queue_offset, timeout_ms, **changed))

    def close(self) -> None:
        """End as the process does. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.puts is not None:
            self.puts.shutdown(clock_ms())
        self.master.close()
        self.controller.finish()
        self._stack.close()


def pull_fields(queue_offset: int, timeout_ms: int, **changed: str) -> dict[str, str]:
    where = {"queueId": "1", "queueOffset": str(queue_offset), "maxMsgNums": "32", "expressionType": "TAG"}
    held = {"sysFlag": SUSPEND_AND_SUBSCRIPTION, "suspendTimeoutMillis": str(timeout_ms)}
    return {**ALL, **where, **held, **changed}
