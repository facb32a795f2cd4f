"""Our own cluster, as `rocketmq-ha cluster up` runs it, with small files, and with a power switch for each broker."""

from importlib.metadata import version
from pathlib import Path
from typing import Final

from power import PowerSwitch
from under_test import Group

from rocketmq_ha.impl.app.cluster.cluster import Cluster
from rocketmq_ha.impl.app.cluster.directory import choose_plan
from rocketmq_ha.impl.app.cluster.plan import SIZES

# A file is copied at each sync, so that it must be small.
SETTINGS: Final = SIZES | {"mappedFileSizeCommitLog": str(1 << 20)}
PROMOTED: Final = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}  # a SYNC_MASTER would wait for a slave that it does not have


class OurCluster:
    """A cluster in a new directory. It must be ended by `down`."""

    def __init__(self, mode: str, flush: str, directory: Path, library: Path) -> None:
        plan = choose_plan(mode, flush, None)
        directory.mkdir()
        self._power = PowerSwitch(directory / "store", directory / "synced", library)
        self._cluster = Cluster(plan, directory, settings=SETTINGS, environment=self._power.environment)
        brokers = plan.brokers
        slaves = {node.broker_name: node.name for node in brokers if node.broker_id}
        masters = [node for node in brokers if not node.broker_id]
        self.groups: Final = [Group(node.broker_name, node.name, slaves.get(node.broker_name)) for node in masters]

    @staticmethod
    def product() -> str:
        return f"rocketmq-ha {version('rocketmq-ha')}"

    @property
    def name_server(self) -> str:
        return self._cluster.name_server

    def up(self) -> None:
        self._cluster.up()

    def down(self) -> None:
        self._cluster.down()

    def address(self, node: str) -> str:
        return self._cluster.address(node)

    def store(self, node: str) -> Path:
        return self._cluster.store(node)

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
        return self._cluster.check()

    def _note(self, node: str) -> None:
        if self.store(node).exists():
            self._power.note_all(self.store(node))
