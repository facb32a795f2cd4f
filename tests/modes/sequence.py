"""Random sequences of faults: drawn from a seed, so that each can be run again.

A sequence breaks and mends nodes and links of all groups; faults overlap. Its steps are drawn before it runs, and do not depend
on what happens. What a process does at the same step in another run still differs by some milliseconds.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from under_test import ClusterUnderTest, Group

from rocketmq_ha.impl.app.cluster.plan import MODES

FAULTS_EACH: Final = 6  # of a sequence
PAUSES_S: Final = (0.1, 5.0)  # before a step
NAMES: Final = "namesrv"


@dataclass(frozen=True, slots=True)
class Step:
    """One act. group: the number of the group, from 0; -1 for the name server's links. node: "master", "slave" or "both"."""

    pause_s: float
    act: str
    group: int
    node: str = ""

    def __str__(self) -> str:
        what = f" {self.node}" if self.node else ""
        where = " the name server's links" if self.group < 0 else f" of group {self.group}"
        if self.act in ("cut", "heal") and self.group >= 0:
            what = " the link"
        return f"+{self.pause_s:.1f} s {self.act}{what}{where}"


@dataclass(slots=True)
class _Drawn:
    """What the steps so far have made of a group. down: node to the act that mends it."""

    nodes: tuple[str, ...]
    down: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    slave_lost: bool = False  # what the slave had acknowledged may be gone from its disk
    disk_lost: bool = False


def draw(mode: str, seed: str) -> list[Step]:
    """The steps of a sequence; after the last one nothing is broken any more."""
    chance, what = random.Random(f"{mode}/{seed}"), MODES[mode]
    groups = [_Drawn(("master", "slave") if what.has_slaves else ("master",)) for _ in range(what.masters)]
    steps: list[Step] = []
    names_cut, broken = False, 0
    while True:
        mends = _mends(groups, names_cut=names_cut)
        breaks = _breaks(groups, names_cut=names_cut) if broken < FAULTS_EACH else []
        if not mends and not breaks:
            return steps
        act, group, node = chance.choice(mends if not breaks or (mends and chance.random() < 0.5) else breaks)
        broken += (act, group, node) in breaks
        steps.append(Step(round(chance.uniform(*PAUSES_S), 1), act, group, node))
        if group < 0:
            names_cut = act == "cut"
        else:
            _apply(groups[group], act, node)


def _breaks(groups: list[_Drawn], *, names_cut: bool) -> list[tuple[str, int, str]]:
    is_whole = not any(each.down or each.is_cut for each in groups)
    found = [("cut", -1, "")] if is_whole and not names_cut else []
    for number, each in enumerate(groups):
        up = [node for node in each.nodes if node not in each.down]
        found += [(act, number, node) for act in ("stop", "kill") for node in up]
        if each.is_cut or names_cut:  # a machine that comes back has all its links
            continue
        found += [("power off", number, node) for node in up]
        if len(up) < len(each.nodes):
            continue
        if "slave" in up:
            found += [("power off", number, "both"), ("cut", number, "")]
        if not each.disk_lost and not each.slave_lost:
            found.append(("lose disk", number, "master"))
    return found


def _mends(groups: list[_Drawn], *, names_cut: bool) -> list[tuple[str, int, str]]:
    found = [("heal", -1, "")] if names_cut else []
    for number, each in enumerate(groups):
        found += [(act, number, node) for node, act in each.down.items() if act != "promote" or "slave" not in each.down]
        found += [("heal", number, "")] if each.is_cut else []
    return found


def _apply(group: _Drawn, act: str, node: str) -> None:
    if act in ("cut", "heal"):
        group.is_cut = act == "cut"
    elif act in ("start", "power on"):
        del group.down[node]
    elif act in ("stop", "kill"):
        group.down[node] = "start"
    elif act == "power off":
        nodes = group.nodes if node == "both" else (node,)
        group.down.update(dict.fromkeys(nodes, "power on"))
        group.slave_lost |= "slave" in nodes
    elif act == "lose disk":
        group.down["master"] = "promote" if "slave" in group.nodes else "replace"
        group.disk_lost = True
    else:  # promote, replace
        del group.down["master"]
        if act == "promote":
            group.nodes = ("master",)


def may_lose(mode: str, flush: str, steps: list[Step]) -> bool:
    """Whether a message that ended with SEND_OK may be gone: what a mode and a flush do not promise.

    A disk takes what no slave has; a power cut takes what was not flushed.
    """
    acts = {step.act for step in steps}
    return ("lose disk" in acts and mode != "sync-2m-2s") or ("power off" in acts and flush == "async")


def may_diverge(steps: Sequence[Step]) -> bool:
    """Whether a slave may have what its master has lost, and so end: a master sends what it has not flushed (HA-M-29)."""
    return any(step.act == "power off" and step.node != "slave" for step in steps)


class Actor:
    """Takes the steps on a cluster."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self._cluster = cluster
        self.groups = list(cluster.groups)  # as promotions leave them
        self.dropped = 0  # bytes of logs that power cuts took

    def take(self, step: Step) -> None:
        """Raises: RocketmqHaError, OSError."""
        cluster = self._cluster
        if step.group < 0:
            for node in [node for group in self.groups for node in _nodes(group)]:
                (cluster.cut if step.act == "cut" else cluster.heal)(node, NAMES)
            return
        group = self.groups[step.group]
        if step.act in ("cut", "heal"):
            (cluster.cut if step.act == "cut" else cluster.heal)(group.master, group.slave)
        elif step.act == "promote":
            assert group.slave is not None
            cluster.promote(group.slave)
            self.groups[step.group] = Group(group.name, group.slave, None)
        elif step.act == "lose disk":
            cluster.kill(group.master)
            cluster.lose_disk(group.master)
        else:
            nodes = _nodes(group) if step.node == "both" else [group.master if step.node == "master" else str(group.slave)]
            self._take(step.act, nodes)

    def _take(self, act: str, nodes: list[str]) -> None:
        cluster = self._cluster
        if act == "power off":
            cluster.vanish(*nodes)
            self.dropped += sum(cluster.lose_unsynced(node) for node in nodes)
            return
        for node in nodes:
            if act == "power on":
                cluster.heal(node)
            {"stop": cluster.stop, "kill": cluster.kill}.get(act, cluster.start)(node)


def _nodes(group: Group) -> list[str]:
    return [node for node in (group.master, group.slave) if node is not None]
