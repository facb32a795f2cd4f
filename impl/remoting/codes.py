"""The codes of requests and answers under the name that the other modules of impl use. They are data of the specification.

Spec: HA-RM-9 "MUST use the codes that RocketMQ has for it".
"""

from rocketmq_ha.spec.codes import LANGUAGES, RequestCode, ResponseCode, request_name, response_name

__all__ = ["LANGUAGES", "RequestCode", "ResponseCode", "request_name", "response_name"]
