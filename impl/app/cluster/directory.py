"""The directory of a cluster: its state file, its lock, and the plan for the cluster that runs in it.

Who runs a cluster holds the lock of its directory, so that a state file without a lock is what a dead one has left.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_ha.impl.app.cluster.plan import Link, Plan, make_plan
from rocketmq_ha.impl.app.cluster.ports import LAST_BASE_PORT, chosen_plan
from rocketmq_ha.impl.app.cluster.processes import POLL_S, Identity, is_running
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError

STATE_FILE: Final = "cluster.json"
FORMAT: Final = 1
LOCK_FILE: Final = "cluster.lock"
_LOCK_S: Final = 0.5  # who asks whether a cluster runs holds the lock for a moment


class NoCluster(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """No cluster runs in a directory."""


class State(StrEnum):
    """How a node is. ENDED: by itself."""

    DOWN = "down"
    UP = "up"
    KILLED = "killed"
    STOPPED = "stopped"
    ENDED = "ended"


class Noted(NamedTuple):
    """What the state file says of a node. status: its exit status. since_ms: of its state, since 1970."""

    state: State
    status: int | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What a state file says.

    pid: of who runs the cluster. processes: those that may run, by name: the nodes that are up, and the links. cut: since when
    links are cut. Times are ms since 1970.
    """

    plan: Plan
    pid: int
    is_ready: bool
    began_ms: int
    processes: dict[str, Identity]
    nodes: dict[str, Noted]
    cut: dict[Link, int]

    def write(self, directory: Path) -> None:
        """Replace the file as a whole. Raises: OSError."""
        state = {
            "format": FORMAT,
            "mode": self.plan.mode,
            "flush": self.plan.flush,
            "base_port": self.plan.base_port,
            "pid": self.pid,
            "is_ready": self.is_ready,
            "began_ms": self.began_ms,
            "processes": {name: [process.pid, process.started] for name, process in self.processes.items()},
            "nodes": {name: list(noted) for name, noted in self.nodes.items()},
            "cut": [[*sorted(link), since_ms] for link, since_ms in self.cut.items()],
        }
        new = directory / f"{STATE_FILE}.new"
        new.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
        new.replace(directory / STATE_FILE)


def read_state(directory: Path) -> Kept:
    """Read a directory's state file. Raises: NoCluster, if there is none; ConfigInvalid, if it cannot be read."""
    file = directory / STATE_FILE
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NoCluster(f"{directory}: no cluster was started here: there is no {STATE_FILE}") from None
    try:
        state = json.loads(text)
        base_port = state["base_port"]
        if type(base_port) is not int or not 0 < base_port <= LAST_BASE_PORT:
            raise ValueError(base_port)
        plan = make_plan(state["mode"], state["flush"], base_port)
        noted = state["nodes"]
        return Kept(
            plan=plan,
            pid=int(state["pid"]),
            is_ready=bool(state["is_ready"]),
            began_ms=int(state["began_ms"]),
            processes={name: Identity(int(pid), str(started)) for name, (pid, started) in state["processes"].items()},
            nodes={node.name: Noted(State(noted[node.name][0]), *noted[node.name][1:]) for node in plan.nodes},
            cut={frozenset({first, second}): int(since_ms) for first, second, since_ms in state["cut"]},
        )
    except (ConfigInvalid, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigInvalid(f"{file}: expected the state of a cluster, as `rocketmq-ha cluster up` writes it") from None


def is_alive(directory: Path) -> bool:
    """Whether a process runs a cluster in this directory: it holds the lock."""
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock. Raises: ConfigInvalid if another process does."""
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigInvalid(f"{directory}: a cluster runs here; expected a directory without one") from None
            time.sleep(POLL_S)
        yield
    finally:
        os.close(fd)


def plan_for(directory: Path, mode: str | None, flush: str | None, base_port: int | None) -> AbstractContextManager[Plan]:
    """The plan for a directory: a new one, or that of the cluster that ran here, whose stores are here. See `chosen_plan`.

    Raises: ConfigInvalid, if the cluster was another one, or if something of it still runs.
    """
    try:
        kept = read_state(directory)
    except NoCluster:
        if mode is None:
            raise ConfigInvalid(f"{directory}: no cluster was here; expected --mode for a new one") from None
        return chosen_plan(mode, flush or "async", base_port)
    if is_alive(directory):
        raise ConfigInvalid(f"{directory}: a cluster runs here, as pid {kept.pid}; expected a directory without one")
    if left := [name for name, process in kept.processes.items() if is_running(process)]:
        raise ConfigInvalid(
            f"{directory}: processes of the cluster before are left: {', '.join(left)}; expected"
            " `rocketmq-ha cluster down` first"
        )
    for option, found, wanted in (("--mode", kept.plan.mode, mode), ("--flush", kept.plan.flush, flush)):
        if wanted not in (None, found):
            raise ConfigInvalid(
                f"{option} {wanted}: the stores in {directory} are of {option} {found}; expected that, or another directory"
            )
    return chosen_plan(kept.plan.mode, kept.plan.flush, base_port, preferred=kept.plan.base_port)


def dead_line(directory: Path, kept: Kept) -> str:
    """What is to be said of a state file whose cluster does not run."""
    left = [f"{name} (pid {process.pid})" for name, process in kept.processes.items() if is_running(process)]
    again = "`rocketmq-ha cluster up --dir` starts it again"
    if left:
        return (
            f"{directory}: its cluster is dead, and processes are left: {', '.join(left)}; `rocketmq-ha cluster down` ends them"
        )
    if kept.processes:
        return f"{directory}: its cluster, pid {kept.pid}, is dead; {STATE_FILE} is what it has left. {again}"
    return f"{directory}: its cluster is down. {again}"


def find_directory(here: Path) -> Path:
    """The directory of a cluster: this one, or the only one in it; of several, the only one that runs. Raises: NoCluster."""
    if (here / STATE_FILE).exists():
        return here
    found = sorted(file.parent for file in here.glob(f"*/{STATE_FILE}"))
    running = [directory for directory in found if is_alive(directory)]
    for several in (running, found):
        if len(several) == 1:
            return several[0]
        if several:
            names = ", ".join(directory.name for directory in several)
            raise NoCluster(f"found the clusters {names}; expected --dir with one of them")
    raise NoCluster(f"{here}: found no {STATE_FILE} here, nor in a directory below; expected --dir with that of a cluster")


def new_directory(here: Path, mode: str) -> Path:
    """A directory for a new cluster that is not there yet."""
    names = (f"cluster-{mode}" + (f"-{number}" if number > 1 else "") for number in range(1, 10_000))
    return next(here / name for name in names if not (here / name).exists())
