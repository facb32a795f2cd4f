"""A pull processor over real consume queues, a played log, and tables that the test fills."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rocketmq_ha.impl.broker.arrivals import Arrivals
from rocketmq_ha.impl.broker.pull import PullMessageProcessor, PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings, PullRequestHoldService
from rocketmq_ha.impl.broker.store_queues import StoreQueues
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.pull import PullBounds, PullResult, TagCodes, pull_messages

PULL_MESSAGE = 11
_MOST = 4096  # bytes that a played log gives at once; its records are smaller
USUAL_BOUNDS = PullBounds(1 << 40)


class PlayedChannel:
    """A connection that keeps what it is answered."""

    def __init__(self, peer: str = "127.0.0.1:4711") -> None:
        self.peer, self.is_open = peer, True
        self.answers: list[RemotingCommand] = []

    def answer(self, response: RemotingCommand) -> None:
        assert self.is_open
        self.answers.append(response)


class PlayedLog:
    """The byte at an offset of the log is that offset modulo 251. It has whole files, but for the last one."""

    def __init__(self, min_offset: int = 0, max_offset: int = 0, file_size: int = 64) -> None:
        self.min_offset, self.max_offset, self.file_size = min_offset, max_offset, file_size

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        if not self.min_offset <= offset < self.max_offset:
            return None
        end_of_file = offset - offset % self.file_size + self.file_size
        return memoryview(bytes_of(offset, min(end_of_file, self.max_offset, offset + limit, offset + _MOST) - offset))


def bytes_of(offset: int, size: int) -> bytes:
    """What a played log has there."""
    return bytes(at % 251 for at in range(offset, offset + size))


class PlayedStore:
    """What StoreQueues needs of a store: queues by topic and id, and a log."""

    def __init__(self, log: PlayedLog | None = None) -> None:
        self.log = log or PlayedLog()
        self.found: dict[tuple[bytes, int], ConsumeQueue] = {}
        self.queues = SimpleNamespace(get=lambda topic, queue_id: self.found.get((topic, queue_id)))

    @property
    def max_offset(self) -> int:
        return self.log.max_offset

    def pull(
        self, topic: str, queue_id: int, queue_offset: int, max_msg_nums: int, codes: TagCodes, bounds: PullBounds
    ) -> PullResult:
        queue = self.found.get((topic.encode(), queue_id))
        if queue is None:
            return PullResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        return pull_messages(cast(CommitLog, self.log), queue, queue_offset, max_msg_nums, codes, bounds)


def open_queue(directory: Path, file_entries: int = 300_000) -> ConsumeQueue:
    """An empty queue that may be written."""
    queue = ConsumeQueue(directory, 20 * file_entries, writable=True)
    queue.recover()
    return queue


class PullStand:
    """The processor, its store and its tables. By default the group `g` may read the topic `t`, which has 4 queues."""

    def __init__(
        self,
        store: PlayedStore | MessageStore | None = None,
        settings: PullSettings | None = None,
        hold: HoldSettings | None = None,
        bounds: PullBounds = USUAL_BOUNDS,
        *,
        is_connected_to_master: bool = False,
    ) -> None:
        self.store = store or PlayedStore()
        self.topics: dict[str, Any] = {"t": topic()}
        self.groups: dict[str, Any] = {"g": group()}
        self.models: dict[str, str] = {}  # of the groups that have consumers
        self.subscriptions: dict[tuple[str, str], Any] = {}
        self.committed: list[tuple[str, str, str, int, int]] = []
        self.is_connected_to_master = is_connected_to_master
        self.wakes = 0
        self.arrivals = Arrivals(self._wake)
        queues = StoreQueues(cast(MessageStore, self.store), bounds)
        self.hold = PullRequestHoldService(queues.max_offset_of, queues.has_message_for, self.arrivals, hold or HoldSettings())
        self.channel = PlayedChannel()
        self.processor = PullMessageProcessor(
            queues,
            SimpleNamespace(select_topic_config=self._topic),
            SimpleNamespace(find_subscription_group_config=self._group),
            SimpleNamespace(get_consumer_group_info=self._info, find_subscription_data=self._subscription),
            SimpleNamespace(commit_offset=lambda *row: self.committed.append(row)),
            self.hold,
            settings or PullSettings(),
            lambda: self.is_connected_to_master,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _topic(self, name: str) -> Any:
        return self.topics.get(name)

    def _group(self, name: str) -> Any:
        return self.groups.get(name)

    def _info(self, name: str) -> Any:
        return SimpleNamespace(message_model=self.models[name]) if name in self.models else None

    def _subscription(self, name: str, topic_name: str) -> Any:
        return self.subscriptions.get((name, topic_name))

    def pull(self, now_ms: int = 0, channel: PlayedChannel | None = None, **changed: object) -> RemotingCommand | None:
        """Send a pull with the usual fields, but for those that are given."""
        return self.processor.pull_message(channel or self.channel, pull_request(**changed), now_ms)  # type: ignore[arg-type]


def topic(perm: int = 6, read_queue_nums: int = 4) -> SimpleNamespace:
    return SimpleNamespace(perm=perm, read_queue_nums=read_queue_nums)


def group(**changed: object) -> SimpleNamespace:
    usual = {
        "consume_enable": True,
        "consume_broadcast_enable": True,
        "broker_id": 0,
        "which_broker_when_consume_slowly": 1,
    }
    return SimpleNamespace(**usual | changed)


def subscription(**changed: object) -> SimpleNamespace:
    usual: dict[str, object] = {
        "sub_string": "*",
        "code_set": frozenset(),
        "sub_version": 0,
        "expression_type": "TAG",
        "class_filter_mode": False,
    }
    return SimpleNamespace(**usual | changed)


def pull_request(code: int = PULL_MESSAGE, opaque: int = 7, **changed: object) -> RemotingCommand:
    """A pull of everything in `t`, queue 0, from 0 on, with the subscription in the request. None leaves a field out."""
    usual: dict[str, object] = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subVersion": 0,
        "subscription": "*",
        "expressionType": "TAG",
    }
    fields = {name: str(value) for name, value in (usual | changed).items() if value is not None}
    return RemotingCommand(code, opaque, ext_fields=fields)


def body_of(answer: RemotingCommand) -> bytes:
    return answer.body + b"".join(answer.buffers)
