"""Explore one slave's connections in a whole cluster: an event that cannot apply must do nothing (snapshot_machines.py)."""

from enum import Enum
from functools import partial
from typing import Final

from formal.snapshot_recorder import Happening, Recorder
from rocketmq_ha.reference import cluster, events
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Step, unique
from rocketmq_ha.spec.profile import Profile, Settings


class Ends(Enum):
    """One slave's connections: its current one, and a stale one that only the master still has."""

    NONE = "none"
    UP = "up"
    SEVERED = "severed"  # it carries no bytes any more, and the slave has not noticed
    STALE = "stale"
    UP_AND_STALE = "up_and_stale"
    SEVERED_AND_STALE = "severed_and_stale"


def ends(now: Cluster) -> Ends:
    own = next((cluster.classify(link) for link in now.links if link.slave_open), None)
    stale = any(not link.slave_open for link in now.links)
    name = "_AND_".join(part for part in (own.name if own else "", "STALE" if stale else "") if part)
    return Ends[name or "NONE"]


WHOLE: Final = 1 << 18
PUT: Final = events.Put("T", b"", "", 0, False)
EVENTS: Final[tuple[tuple[str, events.Event], ...]] = (
    ("put:", PUT),
    ("put: and wait", replace(PUT, wait=True)),
    ("put: and pause", replace(PUT, wait=True, pauses=True)),
    ("resume: nobody", events.Resume(0)),
    ("tick: 1 ms", events.Tick(1)),
    ("tick: a report is due", events.Tick(5001)),
    ("tick: silence", events.Tick(20_001)),
    ("connect:", events.Connect(0, WHOLE, WHOLE)),
    ("connect: no room", events.Connect(0, 0, 0)),
    ("grant: all", events.Grant(0, WHOLE)),
    ("frames: a byte", events.DeliverFrames(0, 1)),
    ("frames: all", events.DeliverFrames(0, WHOLE)),
    ("reports: a byte", events.DeliverReports(0, 1)),
    ("reports: all", events.DeliverReports(0, WHOLE)),
    ("forge_report: -5", events.ForgeReport(0, -5)),
    ("forge_report: 50", events.ForgeReport(0, 50)),
    ("forge_header: a size of -1", events.ForgeHeader(0, -1)),
    ("clog: no room", events.Clog(0, 0)),
    ("cut: both are told", events.Cut(0, "both")),
    ("cut: the slave is told", events.Cut(0, "slave")),
    ("cut: the master is told", events.Cut(0, "master")),
    ("restart_slave:", events.RestartSlave(0)),
    ("restart_master: killed", events.RestartMaster(False)),
    ("restart_master: clean", events.RestartMaster(True)),
)
CONNECTED: Final = (PUT, events.Connect(0, WHOLE, WHOLE), events.Tick(5001))
STREAMING: Final = (
    *CONNECTED,
    events.DeliverReports(0, WHOLE),
    events.DeliverFrames(0, 40),
    events.DeliverFrames(0, WHOLE),
    events.DeliverReports(0, 4),
    PUT,
)
AGAIN: Final = (events.Connect(0, WHOLE, WHOLE), events.Tick(5001), events.DeliverReports(0, WHOLE))
LIVES: Final = (  # every prefix of each sequence is a node
    STREAMING,
    (*STREAMING, events.Cut(0, "slave"), *AGAIN, events.Cut(0, "master")),
    (*STREAMING, events.Cut(0, "master")),
    (*CONNECTED, events.Cut(0, "slave")),
    (*CONNECTED, events.Cut(0, "master")),
)


def of_link(profile: Profile) -> list[Happening]:
    """Explore a cluster with one slave: try every event of a schedule at each point of a few sequences of events."""
    settings = Settings(mapped_file_size=1000)
    recorder = Recorder(ends)

    def step(now: Cluster, event: events.Event) -> Step[Cluster]:
        after, rows = cluster.step(now, event, settings, profile)
        return Step(replace(after, done=()), after.done, unique(clause for row in rows for clause in row.clauses))

    for life in LIVES:
        now = cluster.new_cluster(1, settings, profile, 1_000_000)
        for of_life in (*life, events.Tick(1)):
            for named, event in EVENTS:
                name, _, variant = named.partition(":")
                recorder.do(now, name, variant.strip(), partial(step, now, event))
            now = step(now, of_life).state
    return recorder.sorted(unique(named.partition(":")[0] for named, _ in EVENTS))
