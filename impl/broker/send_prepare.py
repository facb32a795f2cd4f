"""What a message that is sent becomes before it is put: a dead letter, a half message, a delayed message, or itself.

Source: 4.9.8 SendMessageProcessor.asyncSendMessage, handleRetryAndDLQ; CommitLog.asyncPutMessage.
"""

from rocketmq_ha.impl.broker.delayed import to_schedule_topic
from rocketmq_ha.impl.broker.send import Refusal
from rocketmq_ha.impl.broker.send_back import SendBackProcessor
from rocketmq_ha.impl.broker.send_request import SendRequest
from rocketmq_ha.impl.broker.transactions import is_prepared, to_half_topic
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.wire.message import Message


class SendPreparation:
    """What the sends of one master become; the argument `prepares` of SendMessageProcessor.

    Args:  reject_transaction_message: RocketMQ's setting; all three parts of transactions are off then, or none is.
    """

    def __init__(self, send_back: SendBackProcessor, levels: DelayLevels, *, reject_transaction_message: bool = False) -> None:
        self._send_back, self._levels = send_back, levels
        self._rejects_transactions = reject_transaction_message

    def __call__(
        self, send: SendRequest, request: RemotingCommand, message: Message, properties: dict[str, str]
    ) -> Message | Refusal:
        """The message that is put, or the refusal. Raises: RequestInvalid, MessageIllegal."""
        retried = self._send_back.retried(message, properties, request.version, send.max_reconsume_times)
        if isinstance(retried, Refusal):
            return retried
        message, properties = retried
        if is_prepared(properties, message.reconsume_times):
            if self._rejects_transactions:  # HA-SE-14 "and never store it as an ordinary message"
                return Refusal(ResponseCode.NO_PERMISSION, "this broker takes no transactional messages")
            message = to_half_topic(message, properties)
        return to_schedule_topic(message, properties, self._levels)
