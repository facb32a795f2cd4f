"""The processes of a cluster and its links, as one object. Its owner calls `check` now and then, and `down` at the end."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.app.cluster.directory import Kept, Noted, State
from rocketmq_ha.impl.app.cluster.links import AddressTaken, Links, LinksFailed
from rocketmq_ha.impl.app.cluster.plan import Link, Node, Plan, broker_conf, conf_text, name_server_conf
from rocketmq_ha.impl.app.cluster.processes import POLL_S, STOP_S, Identity, identity_of, our_command, start
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.status_socket import NotRunning, ask

START_S: Final = 60.0  # a busy machine takes seconds to start Python, and to recover a log
_ASK_S: Final = 2.0


class NodeFailed(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """A node ended by itself, or did not start in time."""


@dataclass(slots=True)
class Running:
    """A node and its process. identity: of its last process. status: its exit status. since_ms: of its state, since 1970."""

    node: Node
    state: State = State.DOWN
    process: "subprocess.Popen[bytes] | None" = None
    identity: Identity | None = None
    status: int | None = None
    since_ms: int = field(default_factory=wall_clock_ms)

    def enter(self, state: State) -> None:
        self.state, self.since_ms = state, wall_clock_ms()


class Cluster:
    """A cluster in a directory of its own: `conf`, `logs` and `store` in it have a file or a folder for each node.

    settings: of the brokers, by RocketMQ's names, in place of those of the plan. environment: theirs, besides that of this
    process. is_over: says in a wait that it is to end.

    `conf_for`, `command_of`, `serves`, `is_registered` and `last_line` say what the nodes are: a cluster of other programs has
    its own.
    """

    start_s: float = START_S
    stop_s: float = STOP_S

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Lay out the directory, and start the links. Raises: LinksFailed, OSError."""
        self.plan, self.directory = plan, directory.resolve()
        self.nodes: Final = {node.name: Running(node) for node in plan.nodes}
        self.cut_links: dict[Link, int] = {}  # since when, ms since 1970
        self.began_ms = wall_clock_ms()
        self.is_ready = False  # all nodes were up once
        self._settings, self._environment, self._is_over = settings or {}, environment, is_over
        for name in ("conf", "logs", "store"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.write_conf()
        self._links = Links(plan.forwards, self.log_of("links"))
        self.kept().write(self.directory)

    # --- Where things are --------------------------------------------------------------------------------------------

    def store(self, name: str) -> Path:
        """The store of a broker; of the name server the folder of its file."""
        return self.directory / "store" / name

    def log_of(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def conf_of(self, name: str) -> Path:
        return self.directory / "conf" / f"{name}.conf"

    @property
    def name_server(self) -> str:
        """The address for clients."""
        return format_address(*self.plan.name_server.address)

    def address(self, name: str) -> str:
        """Where clients reach a node. Raises: ConfigInvalid."""
        return format_address(*self.plan.node(name).address)

    @property
    def processes(self) -> dict[str, Identity]:
        """All that run, by name: the nodes, and the links."""
        nodes = {
            name: each.identity for name, each in self.nodes.items() if each.state is State.UP and each.identity is not None
        }
        return nodes | ({"links": self._links.identity} if self._links.status is None else {})

    def write_conf(self) -> None:
        """Write the settings of all nodes."""
        for node in self.plan.nodes:
            self._write_conf(node, {})

    def _write_conf(self, node: Node, settings: Mapping[str, str]) -> None:
        """Write the settings of a node. settings: in place of those of a broker."""
        found = self.conf_for(node)
        if node.is_broker:
            found = {**found, **self._settings, **settings}
        self.conf_of(node.name).write_text(conf_text(found), "utf-8")

    # --- What the nodes are ------------------------------------------------------------------------------------------

    def conf_for(self, node: Node) -> dict[str, str]:
        """The settings of a node that the plan gives it."""
        store = self.store(node.name)
        return broker_conf(self.plan, node, store) if node.is_broker else name_server_conf(node, store)

    def command_of(self, node: Node) -> list[str]:
        """What is run; its first word is a path."""
        return our_command("broker" if node.is_broker else "namesrv", "--config", str(self.conf_of(node.name)))

    def serves(self, node: Node, said: bytes) -> bool:
        """Whether a node serves. said: what it has printed since its start."""
        last = b"ha_listening=" if node.is_broker else b"listening="
        return any(line.startswith(last) and line.endswith(b"\n") for line in said.splitlines(keepends=True))

    def is_registered(self, node: Node) -> bool:
        """Whether the name server knows the process of a broker that serves."""
        try:
            found = ask(self.store(node.name), _ASK_S)
        except (NotRunning, OSError):
            return False
        each = self.nodes[node.name].identity
        is_it = each is not None and found["pid"] == each.pid
        return is_it and all(server["registered_ms"] is not None for server in found["name_servers"])

    def last_line(self, name: str) -> str:
        """What a node has said last of what went wrong."""
        lines = self.log_of(name).read_text("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    # --- The whole ---------------------------------------------------------------------------------------------------

    def up(self, told: Callable[[str], object] = lambda _: None) -> None:
        """Start all: the name server, the masters, and then the slaves, which the name server tells of their masters.

        Args:  told: is called with the name of each node that is up. Raises: NodeFailed, AddressTaken, LinksFailed.
        """
        brokers = self.plan.brokers
        masters, slaves = ([node for node in brokers if bool(node.broker_id) is is_slave] for is_slave in (False, True))
        for nodes in ([self.plan.name_server], masters, slaves):
            if nodes and not self._is_over():
                self._start(*nodes)
                for node in nodes:
                    told(node.name)
        self.is_ready = not self._is_over()
        self.kept().write(self.directory)

    def down(self) -> None:
        """Stop all: the brokers first, which tell the name server; then the links."""
        with ExitStack() as stack:
            stack.callback(lambda: self.kept().write(self.directory))
            stack.callback(self._links.close)
            self.is_ready = False
            for names in ([node.name for node in self.plan.brokers], [self.plan.name_server.name]):
                running = [self.nodes[name] for name in names if self.nodes[name].state is State.UP]
                for each in running:
                    assert each.process is not None
                    each.process.terminate()
                until = time.monotonic() + self.stop_s
                for each in running:
                    self._collect(each, State.STOPPED, until)

    def check(self) -> list[str]:
        """Look which nodes have ended by themselves. Returns: a line for each. Raises: LinksFailed, if the links have."""
        found = []
        for name, each in self.nodes.items():
            if each.process is not None and each.state is State.UP and each.process.poll() is not None:
                self._collect(each, State.ENDED, time.monotonic())
                found.append(f"{name}: ended by itself with status {each.status}: {self.last_line(name)}")
        if self._links.status is not None:
            raise LinksFailed(f"{self.log_of('links')}: the process of the links ended with status {self._links.status}")
        if found:
            self._set_links()
        return found

    # --- One node ----------------------------------------------------------------------------------------------------

    def start(self, name: str, **settings: str) -> Identity:
        """Start a node on its store; it serves, and is registered, when this returns.

        Args:  settings: of a broker, by RocketMQ's names, in place of those it had.
        Raises: ConfigInvalid, NodeFailed; AddressTaken, if nobody could reach it; then it is stopped.
        """
        each = self._of(name)
        if each.state is State.UP:
            raise ConfigInvalid(f"{name}: is up, as pid {each.identity and each.identity.pid}; expected one that is not")
        if settings:
            self._write_conf(each.node, settings)
        try:
            self._start(each.node)
        except AddressTaken as error:
            self.stop(name)
            raise AddressTaken(f"{name}: is stopped again: {error}") from error
        assert each.identity is not None
        return each.identity

    def kill(self, name: str) -> Identity:
        """kill -9. Raises: ConfigInvalid if it is not up."""
        each = self._up(name)
        assert each.process is not None and each.identity is not None
        each.process.kill()
        self._collect(each, State.KILLED, time.monotonic() + self.stop_s)
        self._set_links()
        return each.identity

    def stop(self, name: str) -> Identity:
        """SIGTERM, and wait until it has ended. Raises: ConfigInvalid if it is not up."""
        each = self._up(name)
        assert each.process is not None and each.identity is not None
        each.process.terminate()
        self._collect(each, State.STOPPED, time.monotonic() + self.stop_s)
        self._set_links()
        return each.identity

    def vanish(self, *names: str) -> None:
        """Have machines gone at once: nothing of them runs on, and nobody is told that their connections have ended.

        Raises: ConfigInvalid if one is not up.
        """
        for name in names:
            each = self._up(name)
            assert each.process is not None
            each.process.send_signal(signal.SIGSTOP)
        for name in names:
            self.cut(name)
        for name in names:
            self.kill(name)

    def remove_store(self, name: str) -> None:
        """Lose the disk of a broker that is not up."""
        assert self._of(name).state is not State.UP, name
        shutil.rmtree(self.store(name))

    # --- Links -------------------------------------------------------------------------------------------------------

    def cut(self, first: str, second: str | None = None) -> list[Link]:
        """Cut the link of two names, or all links of one. Returns: those that were not cut.

        Raises: ConfigInvalid; AddressTaken, if connects to a node that is down could not be kept waiting; then none is cut.
        """
        found = [link for link in self.plan.links_of(first, second) if link not in self.cut_links]
        for link in found:
            self.cut_links[link] = wall_clock_ms()
        try:
            self._set_links()
        except AddressTaken:
            for link in found:
                del self.cut_links[link]
            self._set_links()
            raise
        return found

    def heal(self, first: str, second: str | None = None) -> list[Link]:
        """Heal the link of two names, or all links of one. Returns: those that were cut. Raises: ConfigInvalid."""
        found = [link for link in self.plan.links_of(first, second) if link in self.cut_links]
        for link in found:
            del self.cut_links[link]
        self._set_links()
        return found

    def _set_links(self) -> None:
        up = [name for name, each in self.nodes.items() if each.state is State.UP]
        self._links.set(up, self.cut_links)
        self.kept().write(self.directory)

    # --- Processes ---------------------------------------------------------------------------------------------------

    def _of(self, name: str) -> Running:
        return self.nodes[self.plan.node(name).name]

    def _up(self, name: str) -> Running:
        each = self._of(name)
        if each.state is not State.UP:
            raise ConfigInvalid(f"{name}: is {each.state}; expected a node that is up")
        return each

    def _start(self, *nodes: Node) -> None:
        """Start nodes, and wait until all serve."""
        sizes = {}
        for node in nodes:
            each = self.nodes[node.name]
            log, out = self.log_of(node.name), self._out_of(node.name)
            sizes[node.name] = out.stat().st_size if out.exists() else 0
            command = self.command_of(node)
            with log.open("ab") as errors, out.open("ab") as lines:
                each.process = start(command, errors, stdout=lines, environment=self._environment if node.is_broker else None)
            each.identity, each.status = identity_of(each.process.pid), None
            each.enter(State.UP)
        self.kept().write(self.directory)
        for node in nodes:
            self._wait(node, "listens", lambda node=node: self.serves(node, self._said(node.name, sizes[node.name])))  # type: ignore[misc]
        self._set_links()
        for node in nodes:
            if node.is_broker and self._reaches_name_server(node):
                self._wait(node, "is registered", lambda node=node: self.is_registered(node))  # type: ignore[misc]

    def _wait(self, node: Node, what: str, is_so: Callable[[], bool]) -> None:
        """Raises: NodeFailed."""
        each, until = self.nodes[node.name], time.monotonic() + self.start_s
        assert each.process is not None
        while not is_so():
            if each.process.poll() is not None:
                self._collect(each, State.ENDED, time.monotonic())
                self._set_links()
                raise NodeFailed(f"{node.name}: ended with status {each.status}: {self.last_line(node.name)}")
            if self._is_over():
                return
            if time.monotonic() > until:
                raise NodeFailed(f"{node.name}: not within {self.start_s:.0f} s: it {what}; see {self.log_of(node.name)}")
            time.sleep(POLL_S)

    def _said(self, name: str, size: int) -> bytes:
        """What a node has printed behind the first `size` bytes."""
        with self._out_of(name).open("rb") as out:
            out.seek(size)
            return out.read()

    def _reaches_name_server(self, node: Node) -> bool:
        name_server = self.plan.name_server.name
        return self.nodes[name_server].state is State.UP and frozenset({node.name, name_server}) not in self.cut_links

    def _collect(self, each: Running, state: State, until: float) -> None:
        """Wait for the end of a process, and kill it if it comes too late."""
        assert each.process is not None
        try:
            each.status = each.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.status = each.process.wait()
        each.enter(state)

    def _out_of(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.out"

    def kept(self) -> Kept:
        """What the state file is to say."""
        noted = {name: Noted(each.state, each.status, each.since_ms) for name, each in self.nodes.items()}
        return Kept(self.plan, os.getpid(), self.is_ready, self.began_ms, self.processes, noted, dict(self.cut_links))
