"""The options that hold `--put` back until there are slaves, and the wait itself."""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService

_Command = TypeVar("_Command", bound=Callable[..., Any])
FIRST_ACK_S: Final = 10  # for the first acknowledgement of a connection, before --await-slaves lets puts go on without it

_OPTIONS: Final = (
    click.option(
        "--await-slaves",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N slaves are connected, as a producer would that tries again later. A slave that has everything "
        "counts once it has acknowledged something: for such a one a further message goes first, which is not one of --put's, "
        "and for which nobody waits; the line of counts tells how many, as unwaited=1.",
    ),
    click.option(
        "--await-replicas",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Put only while N distinct replicas count: N addresses, or under TLS N certificates, that have acknowledged "
        "something. It waits for them without end.",
    ),
)


def await_options(command: _Command) -> _Command:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Attendance:
    """Whether there are the slaves that a put is to wait for.

    Args:  slaves: connections that must have reported, and have counted or had FIRST_ACK_S for it. replicas: distinct ones
           that must count. put_unwaited: puts a message that waits for nobody.
    """

    def __init__(self, service: HAService, slaves: int, replicas: int, put_unwaited: Callable[[], object]) -> None:
        self.unwaited = 0  # messages that were put so that somebody could acknowledge one
        self._service, self._slaves, self._replicas = service, slaves, replicas
        self._put_unwaited = put_unwaited
        self._company: list[MasterConnection] = []  # who was there when the last wait for an acknowledgement began
        self._until = 0.0  # when that wait ends

    def wait(self, poll: Callable[[], None], stopped: Callable[[], bool], *, for_slave: bool) -> None:
        """Return when there are enough, or when we are told to stop.

        Args:  for_slave: the next put waits for a slave, so that it matters who counts as one.
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
        # HA-G-5 "from its first acknowledgement on": who has everything is sent nothing that it could acknowledge.
        if any(conn.start_offset == service.log.max_offset for conn in service.connections):
            self._put_unwaited()
            self.unwaited += 1
        if service.connections != self._company:
            self._company, self._until = list(service.connections), time.monotonic() + FIRST_ACK_S
        return not lacks_replicas and time.monotonic() >= self._until
