"""A producer's wait until enough slaves are there to acknowledge its puts."""

import time
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService

FIRST_ACK_S: Final = 10  # how long --await-slaves waits for the first acknowledgement of a connection


class SlaveWait:
    """Waits, before a put, until enough slaves are connected and enough replicas count.

    Args:  slaves: connections that must have reported, and that must count as slaves or have had FIRST_ACK_S to do so.
           replicas: distinct slaves that must count. put_unwaited: puts a message that waits for nobody.
    """

    def __init__(self, service: HAService, slaves: int, replicas: int, put_unwaited: Callable[[], object]) -> None:
        self.unwaited = 0  # messages that were put so that a slave could acknowledge one
        self._service, self._slaves, self._replicas = service, slaves, replicas
        self._put_unwaited = put_unwaited
        self._connections: list[MasterConnection] = []  # those of the last wait for a first acknowledgement
        self._until = 0.0  # when that wait ends

    def wait(self, poll: Callable[[], None], stopped: Callable[[], bool], *, for_slave: bool) -> None:
        """Return when there are enough, or when we are told to stop.

        Args:  for_slave: the next put waits for a slave, so that connections must count as slaves.
        """
        while not self._are_enough(for_slave=for_slave) and not stopped():
            poll()

    def _are_enough(self, *, for_slave: bool) -> bool:
        service = self._service
        if service.count_connected() < self._slaves:
            return False
        lacks_replicas = service.count_replicas() < self._replicas
        lacks_slaves = for_slave and service.count_slaves() < self._slaves
        if not (lacks_replicas or lacks_slaves):
            return True
        # HA-G-5 "from its first acknowledgement on": a slave that has everything is sent nothing that it could acknowledge.
        if any(conn.start_offset == service.log.max_offset for conn in service.connections):
            self._put_unwaited()
            self.unwaited += 1
        if service.connections != self._connections:
            self._connections, self._until = list(service.connections), time.monotonic() + FIRST_ACK_S
        return not lacks_replicas and time.monotonic() >= self._until
