"""A cluster of Apache RocketMQ itself: the plan, the links and the power switch of ours, with a JVM for each node.

The jars are those of tests/interop. A JVM writes to mappings of files and syncs these by msync, which the power switch sees.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import golden_cluster
import jars
from planned_cluster import SETTINGS, PlannedCluster

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.app.cluster.cluster import Cluster, NodeFailed
from rocketmq_ha.impl.app.cluster.plan import HOST, Node, Plan
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request

BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"
NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
# Five of them share a machine, and live for a minute: the second compiler would work for nothing.
JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1")
# The address for slaves is of loopback, too; and others may have filled the disk.
JAVA_SETTINGS: Final = SETTINGS | {"brokerIP2": HOST, "diskMaxUsedSpaceRatio": "95"}
START_S: Final = 180.0  # a loaded machine takes half a minute to start a broker
STOP_S: Final = 60.0
_ASK_MS: Final = 2_000


class JavaNodes(Cluster):
    """The processes. Their own logs are in `java/logs`, what they print is in `logs`."""

    start_s = START_S
    stop_s = STOP_S

    def __init__(self, plan: Plan, directory: Path, environment: Mapping[str, str], *, release: str) -> None:
        """Raises: ConfigInvalid, if there is no Java; subprocess.CalledProcessError, if its jars cannot be fetched."""
        java = shutil.which("java")
        if java is None:
            raise ConfigInvalid(f"RocketMQ {release}: java is not on the PATH; expected a JDK and Maven")
        self._java: Final = java
        self._programs: Final = golden_cluster.Cluster(directory.resolve() / "java", f"{jars.lib_of(release)}/*")
        self._programs.prepare()
        super().__init__(plan, directory, settings=JAVA_SETTINGS, environment=environment)

    def command_of(self, node: Node) -> list[str]:
        main = BROKER if node.is_broker else NAME_SERVER
        _, *words = self._programs.java(node.name, main, "-c", str(self.conf_of(node.name)))
        at = words.index("-cp")
        return [self._java, *words[:at], *JVM, *words[at:]]

    def serves(self, _: Node, said: bytes) -> bool:
        return b"boot success" in said

    def is_registered(self, node: Node) -> bool:
        """Whether the name server lists its address. It is asked at its own one, since its link to the clients may be cut."""
        name_server = format_address(*self.plan.name_server.own)
        with client_session(NameServers((name_server,))) as session, suppress(RocketmqHaError):
            answer = session.client.ask(name_server, request(RequestCode.GET_BROKER_CLUSTER_INFO), _ASK_MS)
            return f'"{self.address(node.name)}"'.encode() in answer.body
        return False

    def last_line(self, name: str) -> str:
        """The last error in its own log; without one, what it has printed."""
        log = self._programs.work / "logs" / f"{name}.log"
        lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        said = next((line for line in reversed(lines) if " ERROR " in line), super().last_line(name))
        return said.partition(" ERROR ")[2].replace(f"{self.directory}/", "") or said


class JavaCluster(PlannedCluster):
    """A cluster of a release in a new directory. It must be ended by `down`."""

    def __init__(self, mode: str, flush: str, directory: Path, library: Path, *, release: str) -> None:
        super().__init__(mode, flush, directory, library, partial(JavaNodes, release=release))

    def start(self, node: str) -> None:
        """Start a node. Where a power cut has left zeros of its tables, so that it does not start, it is started without these.

        MixAll.string2File syncs none of the tables, and ConfigManager.load refuses one that is no JSON, if its copy is none.
        """
        try:
            super().start(node)
        except NodeFailed as error:
            tables = {file: file.read_bytes() for file in (self.store(node) / "config").glob("*") if file.is_file()}
            lost = [file for file, data in tables.items() if data and not data.strip(b"\0")]
            if not lost:
                raise
            for file in lost:
                file.unlink()
            self.said.append(f"{error}; it was started again without its tables, of which the power cut had left zeros")
            super().start(node)
