"""Questions besides pulls: messages by key (12) and by offset (33); a queue by time (29), and its ends (30 to 32).

Source: 4.9.8 QueryMessageProcessor, AdminBrokerProcessor.
"""

from typing import Final

from rocketmq_ha.impl.broker.pull_tables import Channel
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler
from rocketmq_ha.impl.store.derived.index_service import MAX_MSGS_NUM_BATCH
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
DEFAULT_QUERY_MAX_NUM: Final = 32
_MOST_BYTES: Final = REMOTING_FRAME_MAX - (64 << 10)  # of the records of an answer; the rest is for its header
_MOST_READ: Final = 1024  # HA-P-33 "MAY stop when it has read 1,024 messages"


class QueryMessageProcessor:
    """Handlers of the codes 12 and 33.

    most_bytes: of the records of one answer. most_read: messages that are read for one query, with other keys of the same hash.
    """

    def __init__(self, store: MessageStore, most_bytes: int = _MOST_BYTES, most_read: int = _MOST_READ) -> None:
        self._store, self._most_bytes, self._most_read = store, most_bytes, most_read

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message_by_id,
        }

    def query_message(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """HA-P-31 "MUST answer a QUERY_MESSAGE (12) with SUCCESS and the records of the newest messages".

        Raises: RequestInvalid; StoreClosed.
        """
        topic, key = fields.text(request, "topic"), fields.text(request, "key")
        max_num = min(fields.i32(request, "maxNum"), MAX_MSGS_NUM_BATCH)
        begin, end = fields.i64(request, "beginTimestamp"), fields.i64(request, "endTimestamp")
        # HA-P-32 "MUST be answered as one with a `maxNum` of 32".
        if request.ext_fields.get(UNIQUE_KEY_QUERY) == "true":
            max_num = DEFAULT_QUERY_MAX_NUM
        found = self._fitting(self._store.query_index(topic, key, max_num, begin, end, self._most_read))
        records = [view[:size] for offset, size, _ in found if (view := self._store.log.data_at(offset, size)) is not None]
        if not records:
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, "no such message in this time", self._header(None))
        return response_to(request, ext_fields=self._header(found[-1]), buffers=records)

    def view_message_by_id(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """HA-P-34 "the record that begins at the commit-log offset". Raises: RequestInvalid; StoreClosed."""
        offset = fields.i64(request, "offset")
        found = self._store.message_at(offset)
        view = None if found is None else self._store.log.data_at(offset, found[1])
        if view is None:
            remark = f"offset: found {offset}, expected one at which a message of this broker begins"
            return response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        return response_to(request, buffers=[view])

    def _fitting(self, found: list[Found]) -> list[Found]:
        """The newest that fit into one answer. HA-P-33 "MUST NOT be larger than a frame may be"."""
        left = self._most_bytes
        for index in range(len(found) - 1, -1, -1):
            left -= found[index][1]
            if left < 0:
                return found[index + 1 :]
        return found

    def _header(self, last: Found | None) -> dict[str, str]:
        """How far the index reaches. It lags behind the log: a message that is not in it yet may have been found."""
        files = self._store.index.files if last is not None else ()
        header = files[-1].header if files else None
        return {
            "indexLastUpdateTimestamp": str(header.end_timestamp if header is not None else 0),
            "indexLastUpdatePhyoffset": str(header.end_phy_offset if header is not None else 0),
        }


class QueueOffsetProcessor:
    """Handlers of the codes 29 to 32. HA-P-30 "MUST answer the four questions about a queue as the table has them"."""

    def __init__(self, queues: QueueFigures) -> None:
        self._queues = queues

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_storetime,
        }

    def search_offset_by_timestamp(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """29. Raises: RequestInvalid; StoreClosed."""
        topic, queue_id = _queue_of(request)
        # HA-P-30 "as the table has them": clients of 5.1.4 and later say UPPER or LOWER
        upper = fields.optional_text(request, "boundaryType", "").lower() == "upper"
        offset = self._queues.offset_in_queue_by_time(topic, queue_id, fields.i64(request, "timestamp"), upper=upper)
        return response_to(request, ext_fields={"offset": str(offset)})

    def get_max_offset(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """30. Raises: RequestInvalid."""
        return response_to(request, ext_fields={"offset": str(self._queues.max_offset_in_queue(*_queue_of(request)))})

    def get_min_offset(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """31; 0 for a queue that has never had a message. Raises: RequestInvalid."""
        return response_to(request, ext_fields={"offset": str(max(0, self._queues.min_offset_in_queue(*_queue_of(request))))})

    def get_earliest_msg_storetime(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """32. Raises: RequestInvalid; StoreClosed."""
        return response_to(request, ext_fields={"timestamp": str(self._queues.earliest_message_time(*_queue_of(request)))})


def _queue_of(request: RemotingCommand) -> tuple[str, int]:
    return fields.text(request, "topic"), fields.i32(request, "queueId")
