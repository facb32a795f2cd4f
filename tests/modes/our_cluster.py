"""Our own cluster, as `rocketmq-ha cluster up` runs it, with small files."""

from pathlib import Path
from typing import Final

from planned_cluster import SETTINGS, PlannedCluster

from rocketmq_ha.impl.app.cluster.cluster import Cluster, NodeFailed
from rocketmq_ha.impl.app.resync import move_aside

RESYNC: Final = "`rocketmq-ha resync`"  # what a slave names as it ends, if its log is not its master's


class OurCluster(PlannedCluster):
    """A cluster in a new directory. It must be ended by `down`.

    A slave may end because its log is not its master's: a power cut took from the master what the slave has. It is then started
    anew, as an administrator would, who reads its last line.
    """

    def __init__(self, mode: str, flush: str, directory: Path, library: Path) -> None:
        make = lambda plan, place, environment: Cluster(plan, place, settings=SETTINGS, environment=environment)  # noqa: E731
        super().__init__(mode, flush, directory, library, make)

    def start(self, node: str) -> None:
        try:
            super().start(node)
        except NodeFailed as error:
            if RESYNC not in str(error):
                raise
            self._start_anew(node)
            self.said.append(str(error))

    def ended(self) -> list[str]:
        found = super().ended()
        for line in found:
            node = line.partition(":")[0]
            if RESYNC in line and not self.is_up(node):
                self._start_anew(node)
        return found

    def _start_anew(self, node: str) -> None:
        move_aside(self.store(node))
        super().start(node)
