"""The requests by which consumers lock queues for ordered consumption (41), and free them (42).

Spec: HA-BT-50 to HA-BT-52.  Source: 4.9.8 AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ, LockBatchRequestBody.
"""

from typing import Final

from rocketmq_ha.impl.broker import body_fields
from rocketmq_ha.impl.broker.clients import Channel
from rocketmq_ha.impl.broker.groups import check_group_name
from rocketmq_ha.impl.broker.rebalance_lock import MessageQueue, RebalanceLockManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler

NAME_MAX: Final = 255  # characters of a topic's, a broker's or a client's name that a lock keeps


class LockManageProcessor:
    """Handlers of 41 and 42."""

    def __init__(self, locks: RebalanceLockManager) -> None:
        self._locks = locks

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock_batch_mq, RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch_mq}

    def lock_batch_mq(self, _channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        """41. HA-BT-50 "answer those that the client then holds, in `lockOKMQSet`"."""
        group, client_id, mqs = read_lock_request(request.body)
        locked = self._locks.try_lock_batch(group, mqs, client_id, now_ms)
        return response_to(request, body=body_json.write({"lockOKMQSet": [mq.fields() for mq in locked]}))

    def unlock_batch_mq(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """42; a client sends it as oneway too."""
        group, client_id, mqs = read_lock_request(request.body)
        self._locks.unlock_batch(group, mqs, client_id)
        return response_to(request)


def read_lock_request(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    """Consumer group, client id and queues of 41 and 42. Raises: RequestInvalid."""
    found = body_fields.read_object(body, "body")
    group = body_fields.text(found, "consumerGroup")
    check_group_name(group)
    client_id = _name(found, "clientId")
    mqs = [
        MessageQueue(_name(mq, "topic"), _name(mq, "brokerName"), body_fields.integer(mq, "queueId", 0, 32))
        for mq in body_fields.objects(found, "mqSet")
    ]
    return group, client_id, mqs


def _name(fields: body_fields.Fields, name: str) -> str:
    value = body_fields.text(fields, name)
    if len(value) > NAME_MAX:
        raise RequestInvalid(name, f"{len(value)} characters", f"at most {NAME_MAX}")
    return value
