"""One round of one cell: a new cluster under traffic, one fault, its mending, and what is found at the end."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from figures import Figures, Times, figures_of
from mode_faults import Fault
from traffic import OK, QUEUES, TOPIC, Traffic, number_of, read_all
from under_test import ClusterUnderTest, Group, TrafficUnderTest

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.client.admin import Admin
from rocketmq_ha.impl.client.route_data import MASTER_ID
from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.store.log.reader import LogReader

PATIENCE_S: Final = 120.0
WARM_S: Final = 3.0  # of steady traffic before the fault
BACKLOG_S: Final = 1.0  # how long the consumer rests before the fault, so that there is something to read after it
LATEST_S: Final = 0.5  # the fault comes by chance within this time: a flush comes as often
TAIL_S: Final = 3.0  # after the group is whole again
LONGEST_TAIL_S: Final = 45.0  # clients ask for routes every 30 s
QUIET_S: Final = 4.0  # a consumer asks again after 1 s, and a slave instead of its master for 3 s
_POLL_S: Final = 0.05
PAUSED_S: Final = 3.0  # a machine that lets this process wait so long measures nothing


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round. dropped: bytes of each log that a power cut took. ended: nodes that ended by themselves.

    routed: whom of the group that was hit a new client was told at the end of the fault, by broker id; None if it got no route
    of the topic at all. routed_again_s: from the mending on until it was told of a master; None if it was not.
    """

    seed: str
    figures: Figures
    window_s: float
    dropped: dict[str, int]
    ended: list[str]
    routed: list[int] | None
    routed_again_s: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "window_s": round(self.window_s, 1),
            "dropped": self.dropped,
            "ended": self.ended,
            "routed": self.routed,
            "routed_again_s": self.routed_again_s,
            **self.figures.to_json(),
        }


class NotMeasuredError(Exception):
    """A round did not come to its fault, or not to its end."""


def run_round(
    cluster: ClusterUnderTest,
    fault: Fault,
    seed: str,
    rate: int,
    told: Callable[[str], object],
    make_traffic: Callable[[str, int], TrafficUnderTest] = Traffic,
) -> Round:
    """Run one round; the cluster is new, and is down when this returns.

    Args:  rate: sends a second. make_traffic: of the name server's address and the rate.
    Raises: NotMeasuredError, RocketmqHaError, OSError.
    """
    draw, group = random.Random(seed), cluster.groups[0]
    ended: list[str] = []
    try:
        told("starting")
        start(cluster)
        traffic = make_traffic(cluster.name_server, rate)
        try:
            told("warming up")
            began = warm_up(cluster, traffic)
            traffic.is_paused = True
            time.sleep(BACKLOG_S + draw.uniform(0, LATEST_S))
            told(fault.title)
            dropped = fault.breaks(cluster, group)
            broken = time.monotonic()
            traffic.is_paused = False
            watch(cluster, traffic, ended, broken + fault.window_s)
            routed = routed_ids(cluster, group)
            mending = time.monotonic()
            told("mending")
            fault.mends(cluster, group)
            restore_topic(cluster, group)
            routed_again_s = _settle(cluster, traffic, ended, group, mending)
            traffic.stop_sending(PATIENCE_S)
            drain(traffic)
            finished = time.monotonic()
        finally:
            traffic.close()
        if traffic.error is not None:
            raise NotMeasuredError(f"a client ended: {traffic.error!r}")
        told("reading all")
        readable = read_all(cluster.name_server, PATIENCE_S)
        ended += cluster.ended()
    finally:
        cluster.down()
    times = Times(began, broken, mending, finished)
    found = figures_of(times, group.name, traffic.sent, traffic.delivered, readable, stored_numbers(cluster))
    return Round(seed, found, mending - broken, dropped if isinstance(dropped, dict) else {}, ended, routed, routed_again_s)


def start(cluster: ClusterUnderTest) -> None:
    """Start a new cluster, with the topic on all its groups. Raises: NotMeasuredError, RocketmqHaError."""
    cluster.up()
    for each in cluster.groups:
        make_topic(cluster, each.master)
    wait("the slaves have the topic", lambda: _all_have_topic(cluster))
    # That a route was read before the two clients begin has another reason, too: msgspec 0.22 crashes when two threads are
    # the first to read a type.
    wait("all groups have routes", lambda: all(routed_ids(cluster, each) for each in cluster.groups))


def wait(what: str, is_so: Callable[[], bool], every_s: float = _POLL_S) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            raise NotMeasuredError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(every_s)


# --- Topics --------------------------------------------------------------------------------------------------------------


def make_topic(cluster: ClusterUnderTest, node: str) -> None:
    with client_session(NameServers((cluster.name_server,))) as session:
        Admin(session.client, session.name_servers).create_topic(cluster.address(node), TOPIC, QUEUES, 6)


def _has_topic(cluster: ClusterUnderTest, node: str) -> bool:
    with client_session(NameServers((cluster.name_server,))) as session, suppress(RocketmqHaError):
        answer = session.client.ask(cluster.address(node), request(RequestCode.GET_ALL_TOPIC_CONFIG), 5_000)
        return f'"{TOPIC}"'.encode() in answer.body
    return False


def _all_have_topic(cluster: ClusterUnderTest) -> bool:
    return all(_has_topic(cluster, group.slave) for group in cluster.groups if group.slave is not None)


def restore_topic(cluster: ClusterUnderTest, group: Group) -> None:
    """A master that lost its disk has lost its topics, too; an administrator makes them again."""
    master = group.master
    if cluster.is_up(master) and not _has_topic(cluster, master):
        make_topic(cluster, master)


def routed_ids(cluster: ClusterUnderTest, group: Group) -> list[int] | None:
    """What a client that comes now is told of a group, by broker id; None where it gets no route of the topic."""
    with client_session(NameServers((cluster.name_server,))) as session, suppress(RocketmqHaError):
        return sorted(Admin(session.client, session.name_servers).route(TOPIC).addrs(group.name))
    return None


# --- Phases --------------------------------------------------------------------------------------------------------------


def log_end(cluster: ClusterUnderTest, node: str) -> int | None:
    """The end offset of a broker's commit log, as it says itself; None if it gives no answer, as on a machine that is busy."""
    with client_session(NameServers((cluster.name_server,))) as session, suppress(RocketmqHaError):
        figures = Admin(session.client, session.name_servers).runtime_info(cluster.address(node))
        return int(figures["commitLogMaxOffset"])
    return None


def warm_up(cluster: ClusterUnderTest, traffic: TrafficUnderTest) -> float:
    """Wait until all groups take and give messages, and slaves follow, and for WARM_S more. Returns: when that time began."""
    names = {group.name for group in cluster.groups}

    def is_steady() -> bool:
        last, got = traffic.sent[-100:], traffic.delivered[-100:]
        is_ok = len(last) == 100 and all(each.status == OK for each in last) and traffic.error is None
        return is_ok and {each.group for each in last} == {each.group for each in got} == names

    wait("all groups take and give messages", is_steady)
    # A slave may have its master's topics before it connects for the log: one of RocketMQ tries every 5 s.
    for group in cluster.groups:
        if group.slave is not None:
            _await_follower(cluster, group.master, group.slave)
    began = time.monotonic()
    time.sleep(WARM_S)
    return began


def _await_follower(cluster: ClusterUnderTest, master: str, slave: str) -> None:
    """Wait until a slave has what its master had at some moment of this wait."""
    ends: list[int] = []

    def follows() -> bool:
        if not ends and (end := log_end(cluster, master)) is not None:
            ends.append(end)
        reached = log_end(cluster, slave) if ends else None
        return reached is not None and reached >= ends[0]

    wait(f"{slave} follows {master}", follows, every_s=1.0)  # 5.3.3 takes long to answer, and is busy with nothing else then


def watch(cluster: ClusterUnderTest, traffic: TrafficUnderTest, ended: list[str], until: float) -> None:
    """Raises: NotMeasuredError, if a client has ended, or if this process was stopped for a while."""
    last = time.monotonic()
    while last < until:
        ended += cluster.ended()
        if traffic.error is not None:
            raise NotMeasuredError(f"a client ended: {traffic.error!r}")
        before = time.monotonic()
        time.sleep(_POLL_S)
        last = time.monotonic()
        if last - before > PAUSED_S:
            raise NotMeasuredError(f"this process was stopped for {last - before:.0f} s")


def _settle(
    cluster: ClusterUnderTest, traffic: TrafficUnderTest, ended: list[str], group: Group, mending: float
) -> float | None:
    """Watch until the group takes and gives messages again, to new clients too, and TAIL_S more; no longer than LONGEST_TAIL_S.

    That time begins here, since brokers may take as long to start.

    Returns: when a new client was told of its master, in s from the mending on.
    """
    routed_s: float | None = None
    until = time.monotonic() + LONGEST_TAIL_S

    def is_whole() -> bool:
        sent = any(each.begun >= mending and each.group == group.name and each.status == OK for each in traffic.sent)
        got = any(each.at >= mending and each.group == group.name for each in traffic.delivered)
        return sent and got and routed_s is not None

    while not is_whole() and time.monotonic() < until:
        if routed_s is None and MASTER_ID in (routed_ids(cluster, group) or ()):
            routed_s = time.monotonic() - mending
        watch(cluster, traffic, ended, time.monotonic() + 0.5)
    watch(cluster, traffic, ended, time.monotonic() + TAIL_S)
    return routed_s


def drain(traffic: TrafficUnderTest) -> None:
    """Wait until the consumer gets nothing more."""
    count, since = len(traffic.delivered), time.monotonic()
    until = since + PATIENCE_S
    while time.monotonic() - since < QUIET_S and time.monotonic() < until:
        if len(traffic.delivered) != count:
            count, since = len(traffic.delivered), time.monotonic()
        time.sleep(_POLL_S)


def stored_numbers(cluster: ClusterUnderTest) -> set[int]:
    """The numbers of all messages in all stores, and in those that were put aside for a new one.

    What follows damage at the end of a log that a kill has left is no message.
    """
    found: set[int] = set()
    nodes = [node for group in cluster.groups for node in (group.master, group.slave) if node is not None]
    for store in [each for node in nodes for each in (cluster.store(node), *asides(cluster.store(node)))]:
        if (store / "commitlog").is_dir():
            with suppress(RocketmqHaError), LogReader(store) as log:
                for _, _, message in log.records():
                    if message.topic == TOPIC:
                        found.add(number_of(message.body))
    return found


def asides(store: Path) -> list[Path]:
    """Where `rocketmq-ha resync` has put the stores that a node had before."""
    return sorted(store.parent.glob(f"{store.name}.aside-*"))
