"""The roles of a broker, by RocketMQ's names. Data only; model and implementation take the same ones."""

from enum import Enum


class BrokerRole(Enum):
    """HA-R-1 "one of three roles: ASYNC_MASTER, SYNC_MASTER or SLAVE"."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"  # its puts wait for a slave, unless their messages say WAIT=false
    SLAVE = "SLAVE"  # takes no puts
