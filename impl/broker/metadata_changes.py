"""A master's answer to a slave that asks for the changes of its tables, and what the slave tells it in its question.

Spec: HA-MD-28, HA-MD-29, HA-MD-33.  Source: this project.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from rocketmq_ha.impl.broker.clients import Channel
from rocketmq_ha.impl.broker.config_table import ConfigTable
from rocketmq_ha.impl.broker.consumer_offsets import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler

MOST_COMMITTED: Final = 1_000  # offsets that one question may name
_LIFE_SIZE: Final = 8  # random bytes

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


class Queues(Protocol):
    """What is asked of the store."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int: ...


class _Numbers(msgspec.Struct):
    deleted: int = 0
    topics: int = 0
    groups: int = 0
    offsets: int = 0


class _Question(msgspec.Struct):
    life: str
    at: _Numbers
    begun: _Numbers
    committed: dict[str, dict[int, tuple[int, int]]] = {}


class MetadataChanges:
    """Handler of GET_METADATA_CHANGES (30043), of one process of a master.

    Args:  max_offset: of the log. delay_offset: the body for 45. life: another than a random one, for tests.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        deleted: DeletedTopics,
        queues: Queues,
        max_offset: Callable[[], int],
        delay_offset: Callable[[], bytes],
        life: str | None = None,
    ) -> None:
        self._topics, self._groups, self._deleted = topics.table, groups.table, deleted.table
        self._offsets, self._queues = offsets, queues
        self._max_offset, self._delay_offset = max_offset, delay_offset
        self.life: Final = life or secrets.token_hex(_LIFE_SIZE)

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {RequestCode.GET_METADATA_CHANGES: self.get_metadata_changes}

    def get_metadata_changes(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """30043. HA-MD-28 "the entries that have changed since the number that the slave names". Raises: RequestInvalid."""
        question: _Question = body_json.read_as(request.body, _Question)
        self._take_committed(channel.peer, question.committed)
        at, begun = (question.at, question.begun) if question.life == self.life else (_Numbers(), _Numbers())
        parts = b'"deleted":%b,"topics":%b,"groups":%b,"offsets":%b' % (
            _table_part(self._deleted, at.deleted, begun.deleted),
            _table_part(self._topics, at.topics, begun.topics),
            _table_part(self._groups, at.groups, begun.groups),
            self._offsets.changes.part(at.offsets, begun.offsets, self._offsets.text_of),
        )
        told = body_json.write(self.life), self._max_offset(), self._delay_offset(), parts
        return response_to(request, body=b'{"life":%b,"maxOffset":%d,"delayOffset":%b,%b}' % told)

    def _take_committed(self, peer: str, committed: dict[str, dict[int, tuple[int, int]]]) -> None:
        """HA-MD-33 "if its own is still the one that the slave was told, and its queue goes as far". Raises: RequestInvalid."""
        count = sum(map(len, committed.values()))
        if count > MOST_COMMITTED:
            raise RequestInvalid("committed", f"{count} offsets", f"at most {MOST_COMMITTED}")
        for key, offsets in committed.items():
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if not topic or not group or TOPIC_GROUP_SEPARATOR in group:
                continue
            for queue_id, (told, offset) in offsets.items():
                mine = self._offsets.query_offset(group, topic, queue_id)
                if mine == told < offset <= self._queues.max_offset_in_queue(topic, queue_id):
                    logger.info("%s: %s, queue %d: %d was committed to a slave, after %d", peer, key, queue_id, offset, mine)
                    self._offsets.commit_offset(peer, group, topic, queue_id, offset)


_Tables = ConfigTable[TopicConfig] | ConfigTable[SubscriptionGroupConfig] | ConfigTable[int]


def _table_part(table: _Tables, since: int, begun: int) -> bytes:
    version = b',"dataVersion":%b' % body_json.write(table.data_version.fields())
    return table.changes.part(since, begun, table.text_of, version)
