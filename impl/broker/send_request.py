"""The header of a send: of a single message, or of a batch."""

from typing import Final

from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.remoting.fields import boolean, i32, i64, optional_i32, text

# The fields in the order of the attributes below. HA-SE-1 "with the header fields of the table below".
_NAMES: Final = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"),
    *("properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
)
_NAMES_V2: Final = tuple("abcdefghijklm")


class SendRequest:
    """The fields of a send, read. reconsume_times is 0 and properties is empty where the request does not say."""

    __slots__ = (
        *("producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp"),
        *("flag", "properties", "reconsume_times", "unit_mode", "max_reconsume_times", "is_batch"),
    )

    def __init__(self, request: RemotingCommand) -> None:
        """Raises: RequestInvalid. HA-SE-2 "without a field that the table calls refused"."""
        names = _NAMES if request.code == RequestCode.SEND_MESSAGE else _NAMES_V2
        a, b, c, d, e, f, g, h, i, j, k, l, m = names  # noqa: E741  (the names of the fields in a request)
        fields = request.ext_fields
        self.producer_group = text(request, a)
        self.topic = text(request, b)
        self.default_topic = text(request, c)
        self.default_topic_queue_nums = i32(request, d)
        self.queue_id = i32(request, e)
        self.sys_flag = i32(request, f)
        self.born_timestamp = i64(request, g)
        self.flag = i32(request, h)
        self.properties = fields.get(i) or ""
        self.reconsume_times = optional_i32(request, j, 0)
        self.unit_mode = k in fields and boolean(request, k)
        self.max_reconsume_times = optional_i32(request, l)
        self.is_batch = m in fields and boolean(request, m)
