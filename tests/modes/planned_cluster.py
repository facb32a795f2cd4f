"""A cluster of `rocketmq_ha.impl.app.cluster` as one to measure: its nodes, its links, and a power switch for each broker."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from power import PowerSwitch
from under_test import Group

from rocketmq_ha.impl.app.cluster.cluster import Cluster
from rocketmq_ha.impl.app.cluster.directory import State
from rocketmq_ha.impl.app.cluster.plan import SIZES, Plan
from rocketmq_ha.impl.app.cluster.ports import chosen_plan

# A file is copied at each sync, so that it must be small.
SETTINGS: Final = SIZES | {"mappedFileSizeCommitLog": str(1 << 20)}
PROMOTED: Final = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}  # a SYNC_MASTER would wait for a slave that it does not have

MakeNodes = Callable[[Plan, Path, Mapping[str, str]], Cluster]  # of a plan, a directory, and an environment of the brokers


class PlannedCluster:
    """A cluster in a new directory. It must be ended by `down`."""

    def __init__(self, mode: str, flush: str, directory: Path, library: Path, make_nodes: MakeNodes) -> None:
        with ExitStack() as stack:
            plan = stack.enter_context(chosen_plan(mode, flush, None))
            directory.mkdir()
            self._power = PowerSwitch(directory / "store", directory / "synced", library)
            self._cluster = make_nodes(plan, directory, self._power.environment)
            stack.callback(self._cluster.down)
            self._until_down = stack.pop_all()
        brokers = plan.brokers
        slaves = {node.broker_name: node.name for node in brokers if node.broker_id}
        masters = [node for node in brokers if not node.broker_id]
        self.said: Final[list[str]] = []  # what the next call of `ended` tells, besides
        self.groups: Final = [Group(node.broker_name, node.name, slaves.get(node.broker_name)) for node in masters]

    @property
    def name_server(self) -> str:
        return self._cluster.name_server

    def up(self) -> None:
        self._cluster.up()

    def down(self) -> None:
        self._until_down.close()

    def address(self, node: str) -> str:
        return self._cluster.address(node)

    def store(self, node: str) -> Path:
        return self._cluster.store(node)

    def is_up(self, node: str) -> bool:
        return self._cluster.nodes[node].state is State.UP

    def start(self, node: str) -> None:
        self._note(node)
        self._cluster.start(node)

    def promote(self, node: str) -> None:
        self._cluster.stop(node)
        self._note(node)
        self._cluster.start(node, **PROMOTED)

    def stop(self, node: str) -> None:
        self._cluster.stop(node)

    def kill(self, node: str) -> None:
        self._cluster.kill(node)

    def vanish(self, *nodes: str) -> None:
        self._cluster.vanish(*nodes)

    def lose_disk(self, node: str) -> None:
        self._cluster.remove_store(node)

    def lose_unsynced(self, node: str) -> int:
        return self._power.cut(self.store(node))

    def cut(self, first: str, second: str | None = None) -> None:
        self._cluster.cut(first, second)

    def heal(self, first: str, second: str | None = None) -> None:
        self._cluster.heal(first, second)

    def ended(self) -> list[str]:
        said = [*self.said, *self._cluster.check()]
        self.said.clear()
        return said

    def _note(self, node: str) -> None:
        if self.store(node).exists():
            self._power.note_all(self.store(node))
