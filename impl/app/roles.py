"""What the puts of a master wait for: its role, how it flushes, and the services for both."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_ha.impl.app.flushing import FlushIntervals, flushing
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.server import Master, clock_ms
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.role import BrokerRole

_NO_WAIT: Final = format_properties({"WAIT": "false"})


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """role: whether puts wait for a slave. flush: "sync" or "async", whether they wait for the master's disk."""

    role: BrokerRole
    flush: str


@contextmanager
def putting(server: Master, log: CommitLog, role: BrokerRole, flush: str, intervals: FlushIntervals) -> Iterator[Puts]:
    """The puts of a master, and the threads that flush for them. At the end no put waits for the disk any more.

    With synchronous flush the log is flushed at intervals too: HA-G-40 "and only then" leaves messages for which nobody waits.
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
    """End the master, and with it the puts that wait: first those for the disk. Returns: how they ended, each.

    Spec: HA-G-6 "Every waiting put MUST end exactly once"; classic's service tells some of them nothing (quirk 33).
    """
    puts.shutdown(clock_ms())
    server.close()
    return [put.status for put in waiting if put.status is not None]


def without_wait(message: Message) -> Message:
    """The message with the property WAIT=false: its put waits neither for a slave nor for the disk."""
    properties = f"{message.properties_string}\x02{_NO_WAIT}" if message.properties_string else _NO_WAIT
    return replace(message, properties_string=properties)
