"""Start and stop one name server, one master and one slave of the real RocketMQ on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BROKER_NAME = "golden-a"

# The store frees its mappings by reflection. Without the opened packages a clean stop fails half-way on Java 17: the
# checkpoint is not written and the abort file stays.
JVM = [
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.net.preferIPv4Stack=true",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
]

# From 5.0 on the brokers log through a copy of logback in a package of its own.
LOGBACK = """<configuration>
  <appender name="file" class="{package}ch.qos.logback.core.FileAppender">
    <file>${{golden.log}}</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""

# What both brokers are given, besides their role, ports and folders.
COMMON_CONF: dict[str, str] = {
    "brokerClusterName": "GoldenCluster",
    "brokerName": BROKER_NAME,
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(300 * 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "diskMaxUsedSpaceRatio": "95",
    "fileReservedTime": "720",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """Every port of a run; all have five digits, as the proxies replace them in place.

    A broker takes two more: port - 2 ("VIP") and port + 1 (HA).
    """

    base: int

    def __post_init__(self) -> None:
        assert 10_000 <= self.base <= 65_000, self.base

    @property
    def namesrv(self) -> int:
        return self.base

    def namesrv_for(self, who: str) -> int:
        return self.base + {"master": 1, "slave": 2, "client": 3}[who]

    @property
    def master(self) -> int:
        return self.base + 100

    @property
    def slave(self) -> int:
        return self.base + 200

    def master_for(self, who: str) -> int:
        return self.base + {"slave": 300, "client": 400}[who]


@dataclass(slots=True)
class Cluster:
    """The processes of one run, stopped by pid in the reverse order of their start."""

    work: Path
    classpath: str
    has_ipv6: bool = False
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def prepare(self) -> None:
        for part in ("home/conf", "logs"):
            (self.work / part).mkdir(parents=True)
        for kind in ("broker", "namesrv", "tools"):
            (self.work / f"home/conf/logback_{kind}.xml").write_text(LOGBACK.format(package=""))
        self.shaded_logback.write_text(LOGBACK.format(package="org.apache.rocketmq.logging."))

    @property
    def shaded_logback(self) -> Path:
        return self.work / "home/conf/shaded_logback.xml"

    def java(self, name: str, main: str, *args: str) -> list[str]:
        logs = self.work / "logs"
        return [
            "java",
            *JVM,
            *(["-Djava.net.preferIPv4Stack=false"] if self.has_ipv6 else []),
            f"-Dgolden.log={logs / name}.log",
            f"-Drmq.logback.configurationFile={self.shaded_logback}",
            f"-Drocketmq.client.logRoot={logs}",
            f"-Drocketmq.client.logFileName={name}-client.log",
            f"-Duser.home={self.work / 'home'}",
            f"-Drocketmq.home.dir={self.work / 'home'}",
            "-cp",
            self.classpath,
            main,
            *args,
        ]

    def start(self, name: str, main: str, conf: Mapping[str, str], timeout_s: float, behind: Sequence[str] = ()) -> None:
        """Start a server, by a command that stands behind another one if that is given; wait until it says "boot success"."""
        conf_file = self.work / f"{name}.conf"
        conf_file.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        out = self.work / f"logs/{name}.out"
        with out.open("wb") as sink:
            command = [*behind, *self.java(name, main, "-c", str(conf_file))]
            self.running[name] = subprocess.Popen(command, stdout=sink, stderr=sink)
        deadline = time.monotonic() + timeout_s
        while b"boot success" not in out.read_bytes():
            if self.running[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start:\n{out.read_text(errors='replace')}")
            time.sleep(0.2)

    def await_log(self, name: str, text: str, timeout_s: float) -> None:
        """Wait until a server's own log says `text`."""
        log = self.work / f"logs/{name}.log"
        deadline = time.monotonic() + timeout_s
        while text not in log.read_text(errors="replace"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not log {text!r} within {timeout_s} s")
            time.sleep(0.2)

    def run(self, name: str, main: str, *args: str, timeout_s: float) -> None:
        """Run one of our clients to its end."""
        out = self.work / f"logs/{name}.out"
        with out.open("wb") as sink:
            done = subprocess.run(self.java(name, main, *args), check=False, stdout=sink, stderr=sink, timeout=timeout_s)
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed:\n{out.read_text(errors='replace')}")

    def stop(self, name: str, timeout_s: float = 60) -> None:
        """Ask for a clean stop; a server that does not end in time is killed, and that is an error."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
            raise RuntimeError(f"{name} did not stop within {timeout_s} s") from None

    def kill_all(self) -> None:
        """Leave nothing behind when a run has failed."""
        for process in self.running.values():
            process.kill()
            process.wait(60)
        self.running.clear()


def refuse_busy_ports(ports: Ports) -> None:
    """A server of someone else on our ports would be recorded as RocketMQ."""
    brokers = [ports.master, ports.slave]
    for port in [ports.namesrv, *brokers, *(b - 2 for b in brokers), *(b + 1 for b in brokers)]:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise RuntimeError(f"port {port} is taken; choose another --port-base")


def broker_conf(name: str, ports: Ports, work: Path, release: str) -> dict[str, str]:
    """Return the settings of "master" or "slave"; those that name this machine's folders are `storePath*`."""
    slave = name == "slave"
    store = work / f"store-{name}"
    conf = COMMON_CONF | {
        "brokerRole": "SLAVE" if slave else "ASYNC_MASTER",
        "brokerId": "1" if slave else "0",
        "listenPort": str(ports.slave if slave else ports.master),
        "namesrvAddr": f"127.0.0.1:{ports.namesrv_for(name)}",
        "storePathRootDir": os.fspath(store),
        "storePathCommitLog": os.fspath(store / "commitlog"),
    }
    if slave and release.startswith("4."):
        # Without forceRegister a broker asks QUERY_DATA_VERSION (322) first; compressedRegister shows the other body.
        conf |= {"forceRegister": "false", "compressedRegister": "true"}
    # In 5.3.3 neither works: a slave that need not register is never told of its master, and the name server cannot read a
    # compressed body (it answers with a NullPointerException).
    return conf
