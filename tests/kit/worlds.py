"""Run the model and the implementation in lock-step."""

from typing import Protocol

from rocketmq_ha.fuzz.lockstep import LinkLockstep
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.events import DeliverFrames, DeliverReports, Event
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import Profile

FILE_SIZE = 1000
ALL = 1 << 18


class Worlds:
    """The model and the implementation in lock-step. The lock-step compares them, so a test looks at the model alone."""

    def __init__(self, both: LinkLockstep) -> None:
        self._both = both

    def happens(self, *events: Event) -> Cluster:
        """Apply events to both. Returns: the cluster. Raises: AssertionError if the two differ."""
        for event in events:
            outcome = self._both.apply(event)
            assert outcome.verdict == VERDICT_OK, outcome
        return self.cluster

    def settle(self, slave: int = 0) -> Cluster:
        """Deliver bytes until none is in flight on a slave's link."""
        while (link := self.link(slave)) and (link.to_slave or link.to_master):
            self.happens(DeliverReports(slave, ALL), DeliverFrames(slave, ALL))
        return self.cluster

    @property
    def cluster(self) -> Cluster:
        return self._both.reference.cluster

    def link(self, slave: int = 0) -> Link | None:
        """The link whose end at the slave is open."""
        return next((link for link in self.cluster.links if link.slave == slave and link.slave_open), None)


class MakeWorlds(Protocol):
    def __call__(self, profile: Profile, slaves: int = 1, **settings: int) -> Worlds: ...
