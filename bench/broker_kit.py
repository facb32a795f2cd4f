"""Helpers of the broker's benchmarks: name servers and brokers, ours and RocketMQ's, each in a process of its own on loopback.

Both have the settings of RocketMQ's defaults: asynchronous flush, log files of 1 GiB, four queues in a topic.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request

from .ha_kit import free_port
from .java_store import LOGBACK, Rates, java_command
from .line_process import ROOT, LineProcess

START_S: Final = 60.0  # a loaded machine takes long to start a Java broker
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Server:
    """A server process, which is killed by close(): what it has stored is deleted anyway.

    Raises: RuntimeError if its output does not have `ready` in time.
    """

    def __init__(self, command: list[str], log: Path, ready: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as sink:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink, env=environment)
        self.pid: Final = self._process.pid
        try:
            _wait(f"{log.name}: {ready}", lambda: ready in self._output() or self._process.poll() is not None)
            if ready not in self._output():
                raise RuntimeError(f"{log.name}: the process ended: {(self._output().splitlines() or ['nothing'])[-1]}")
        except BaseException:
            self.close()
            raise

    def line(self, key: str) -> str:
        """The line of the output that begins with `key=`, without that."""
        return next(line.removeprefix(f"{key}=") for line in self._output().splitlines() if line.startswith(f"{key}="))

    def _output(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def our_name_server(work: Path) -> tuple[Server, str]:
    """Start `rocketmq-ha namesrv`. Returns: the process and its address."""
    command = _ours("namesrv", "--listen", "127.0.0.1:0", "--kv-config", work / "kvConfig.json")
    server = Server(command, work / "our-namesrv.log", "listening=")
    return server, server.line("listening")


def java_name_server(classpath: str, work: Path) -> tuple[Server, str]:
    """Start RocketMQ's name server. Returns: the process and its address."""
    port = free_port()
    server = _java_server(classpath, work, "namesrv", "namesrv.NamesrvStartup", {"listenPort": str(port)})
    return server, f"127.0.0.1:{port}"


def our_broker(work: Path, name_server: str) -> tuple[Server, int]:
    """Start `rocketmq-ha broker`. Returns: the process, when it is registered, and its port."""
    words = ("--store", work / "our-store", "--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0")
    server = Server(_ours("broker", *words, "--namesrv", name_server), work / "our-broker.log", "ha_listening=")
    address = server.line("listening")
    _await_registered(name_server, address)
    return server, int(address.rpartition(":")[2])


def java_broker(classpath: str, work: Path, name_server: str) -> Server:
    """Start RocketMQ's broker. Returns: the process, when it is registered."""
    port = _free_ports()
    store = work / "java-store"
    settings = {
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "diskMaxUsedSpaceRatio": "95",
        # A busy machine is no reason to refuse a message: it would end the benchmark.
        "waitTimeMillsInSendQueue": "60000",
        "osPageCacheBusyTimeOutMills": "60000",
    }
    server = _java_server(classpath, work, "broker", "broker.BrokerStartup", settings)
    _await_registered(name_server, f"127.0.0.1:{port}")
    return server


class Side(NamedTuple):
    """One of the two that are compared. name: of its rates, and in the client's commands. pid: of its server."""

    name: str
    pid: int


def measured(client: LineProcess, side: Side, *words: object) -> Rates:
    """Ask the client for a measurement. Returns: its numbers, and the processors that client and server kept busy meanwhile,
    all with the name of the side before theirs.
    """
    began, before = time.perf_counter(), (cpu_seconds(client.pid), cpu_seconds(side.pid))
    found = client.ask(*words)
    took = time.perf_counter() - began
    busy = {"client": (cpu_seconds(client.pid) - before[0]) / took, "server": (cpu_seconds(side.pid) - before[1]) / took}
    return {f"{side.name} {name}": value for name, value in (found | busy).items()}


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far; 0 on a system without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS  # utime and stime


def _ours(*words: object) -> list[str]:
    return [sys.executable, "-m", "rocketmq_ha.impl.cli", *map(str, words)]


def _java_server(classpath: str, work: Path, kind: str, main: str, settings: Mapping[str, str]) -> Server:
    home = work / "java-home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    shutil.copy(LOGBACK, home / "conf" / f"logback_{kind}.xml")
    file = work / f"java-{kind}.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    command = java_command(classpath, home, f"org.apache.rocketmq.{main}", "-c", file)
    return Server(command, work / f"java-{kind}.log", "boot success", {**os.environ, "ROCKETMQ_HOME": str(home)})


def _free_ports() -> int:
    """A port that is free, with those that a broker takes beside it: two below and one above."""
    while True:
        port = free_port()
        try:
            for beside in (port - 2, port + 1):
                socket.create_server(("127.0.0.1", beside)).close()
        except OSError:
            continue
        return port


def _await_registered(name_server: str, address: str) -> None:
    client = RemotingClient()

    def is_listed() -> bool:
        try:
            return address.encode() in client.ask(name_server, request(RequestCode.GET_BROKER_CLUSTER_INFO), 5_000).body
        except RequestFailed:
            return False

    try:
        _wait(f"{address} is registered", is_listed)
    finally:
        client.close()


def _wait(what: str, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {START_S:.0f} s: {what}")
        time.sleep(0.05)
