"""The role of a master and its way of flushing, which decide what its puts wait for; and the services that they need."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_ha.impl.app.flushing import flushing
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals, GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.role import BrokerRole

_NO_WAIT: Final = format_properties({"WAIT": "false"})


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """role: a SYNC_MASTER's puts wait for a slave. flush: with "sync" they wait for the master's disk, with "async" not."""

    role: BrokerRole
    flush: str


@contextmanager
def putting(server: Master, log: CommitLog, role: BrokerRole, flush: str, intervals: FlushIntervals) -> Iterator[Puts]:
    """Run the puts of a master, and the threads that flush for them, until the context ends. Then no put waits for the disk.

    With synchronous flush the log is flushed at intervals too: HA-G-40 "and only then" leaves out messages with WAIT=false.
    """
    waker = Waker()
    server.wake_by(waker)
    group_commit = GroupCommitService(log, waker.wake) if flush == "sync" else None
    puts = Puts(server.service, role, group_commit)
    if group_commit is not None:
        group_commit.start()
    try:
        with flushing(log, intervals):
            yield puts
    finally:
        puts.shutdown(clock_ms())
        waker.close()


def end_all(server: Master, puts: Puts, waiting: Iterable[WaitingPut]) -> list[PutMessageStatus]:
    """End the puts that wait, first those that wait for the disk, and close the master. Returns: their outcomes.

    Spec: HA-G-6 "Every waiting put MUST end exactly once"; classic's service gives some of them no outcome (quirk 33).
    """
    puts.shutdown(clock_ms())
    server.close()
    return [put.status for put in waiting if put.status is not None]


def without_wait(message: Message) -> Message:
    """Return the message with the property WAIT=false: its put waits neither for a slave nor for the disk."""
    properties = f"{message.properties_string}\x02{_NO_WAIT}" if message.properties_string else _NO_WAIT
    return replace(message, properties_string=properties)
