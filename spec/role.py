"""The roles of a broker, with RocketMQ's names, for both the model and the implementation. Data only."""

from enum import Enum


class BrokerRole(Enum):
    """HA-R-1 "one of three roles: ASYNC_MASTER, SYNC_MASTER or SLAVE"."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"  # a put waits for a slave unless its message has WAIT=false
    SLAVE = "SLAVE"  # refuses puts
