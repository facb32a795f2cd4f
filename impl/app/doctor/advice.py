"""Advice that several checks share."""

from typing import Final

START_ANEW: Final = (
    "stop the slave, move its store aside (`rocketmq-ha resync STORE`), start it anew; it gets the master's last file, a slave "
    "of ours with --from min all that the master has"
)
