"""The faults: what is broken, for how long, and what an administrator does then. Each hits the first group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from under_test import ClusterUnderTest, Group

SHORT_S: Final = 12.0  # clients ask again after 1 s, and a route is old after 30 s; what comes in this time is automatic
ROUTE_S: Final = 40.0  # RocketMQ's clients ask for routes every 30 s, and until then they ask a broker that is gone
HA_S: Final = 30.0  # a slave, and a master, give up a silent connection after 20 s
# A name server takes a silent broker off after 120 s, looks every 5 s, and clients ask for routes every 30 s.
LONG_S: Final = 165.0

Act = Callable[[ClusterUnderTest, Group], object]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. breaks, mends: the acts, and `broken`, `mended` say them in words. window_s: the time between the two.

    hits: what the fault takes: "master", "slave", "link" or "names". keeps_master_store: the master's log may be whole again.
    """

    name: str
    title: str
    broken: str
    mended: str
    hits: str
    breaks: Act
    mends: Act
    window_s: float = SHORT_S
    needs_slave: bool = False


def _restart(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.stop(group.master)


def _kill(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.kill(group.master)


def _start(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.start(group.master)


def _lose_disk(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.kill(group.master)
    cluster.lose_disk(group.master)


def _lose_machine(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.vanish(group.master)
    cluster.lose_disk(group.master)


def _replace(cluster: ClusterUnderTest, group: Group) -> None:
    """With a slave: promote it. Without one: a new machine of the same address with an empty disk."""
    if group.slave is not None:
        cluster.promote(group.slave)
        return
    cluster.heal(group.master)
    cluster.start(group.master)


def _kill_slave(cluster: ClusterUnderTest, group: Group) -> None:
    assert group.slave is not None
    cluster.kill(group.slave)


def _start_slave(cluster: ClusterUnderTest, group: Group) -> None:
    assert group.slave is not None
    cluster.start(group.slave)


def _part_slave(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.cut(group.master, group.slave)


def _heal_slave(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.heal(group.master, group.slave)


def _nodes(cluster: ClusterUnderTest) -> list[str]:
    return [node for group in cluster.groups for node in (group.master, group.slave) if node is not None]


def _part_names(cluster: ClusterUnderTest, _: Group) -> None:
    for node in _nodes(cluster):
        cluster.cut(node, "namesrv")


def _heal_names(cluster: ClusterUnderTest, _: Group) -> None:
    for node in _nodes(cluster):
        cluster.heal(node, "namesrv")


def _cut_power(cluster: ClusterUnderTest, nodes: list[str]) -> dict[str, int]:
    """Returns: how many bytes of each log are gone."""
    cluster.vanish(*nodes)
    return {node: cluster.lose_unsynced(node) for node in nodes}


def _power(cluster: ClusterUnderTest, group: Group) -> dict[str, int]:
    return _cut_power(cluster, [group.master])


def _power_on(cluster: ClusterUnderTest, group: Group) -> None:
    cluster.heal(group.master)
    cluster.start(group.master)


def _both(group: Group) -> list[str]:
    return [node for node in (group.master, group.slave) if node is not None]


def _blackout(cluster: ClusterUnderTest, group: Group) -> dict[str, int]:
    return _cut_power(cluster, _both(group))


def _light(cluster: ClusterUnderTest, group: Group) -> None:
    for node in _both(group):
        cluster.heal(node)
        cluster.start(node)


_AGAIN: Final = "it starts again on its store"
_NEW: Final = "the slave is promoted; without one, a machine with an empty disk takes the master's place"

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("restart", "master stopped", "SIGTERM to a master", _AGAIN, "master", _restart, _start),
        Fault("kill", "master killed", "kill -9 of a master", _AGAIN, "master", _kill, _start),
        Fault(
            "power",
            "power cut of a master",
            "a master dies, and what it had not synced is gone",
            _AGAIN,
            "master",
            _power,
            _power_on,
        ),
        Fault(
            "blackout",
            "power cut of a pair",
            "a master and its slave die, and what each had not synced is gone",
            "both start again on their stores",
            "master",
            _blackout,
            _light,
            needs_slave=True,
        ),
        Fault("disk", "disk lost", "a master dies with its disk", _NEW, "master", _lose_disk, _replace),
        Fault(
            "machine",
            "machine gone",
            "a master's machine is gone: nobody is told, and nothing answers",
            _NEW,
            "master",
            _lose_machine,
            _replace,
            LONG_S,
        ),
        Fault("slave", "slave killed", "kill -9 of a slave", _AGAIN, "slave", _kill_slave, _start_slave, needs_slave=True),
        Fault(
            "part-slave",
            "slave cut off",
            "nothing passes between a master and its slave",
            "it passes again",
            "link",
            _part_slave,
            _heal_slave,
            HA_S,
            needs_slave=True,
        ),
        Fault(
            "part-namesrv",
            "name server cut off",
            "nothing passes between the name server and the brokers",
            "it passes again",
            "names",
            _part_names,
            _heal_names,
            LONG_S,
        ),
    )
}
