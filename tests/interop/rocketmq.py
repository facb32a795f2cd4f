"""The real RocketMQ for one test: brokers on given stores, and what our clients say of them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from golden_cluster import BROKER_NAME, COMMON_CONF, Cluster
from servers import PATIENCE_S, Servers, wait
from small_disk import SmallDisk

from rocketmq_ha.spec import release_table

__all__ = ["BROKER_NAME", "FILE_SIZE", "Rocketmq", "wait"]

FILE_SIZE: Final = int(COMMON_CONF["mappedFileSizeCommitLog"])

CONF: Final = COMMON_CONF | {
    "haSendHeartbeatInterval": "1000",  # 4.9.8 says nothing before it has passed
    # A machine that is busy is no reason to refuse a message.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "slaveTimeout": "6000",
    "syncFlushTimeout": "6000",  # the setting of the same before 4.9.3
}

# From 5.0 on a SYNC_MASTER waits for nobody unless it is told to; 4.x knows neither setting.
IN_SYNC: Final = {"inSyncReplicas": "2", "minInSyncReplicas": "1"}

Pulled = tuple[str, int, int, int, int, str, str]


class Rocketmq:
    """One test's brokers. They have files of 1 MiB, so that they roll often; their logs are under `work/logs`."""

    def __init__(self, servers: Servers, work: Path) -> None:
        self.servers, self.work = servers, work
        self.release, self.ports = servers.release, servers.ports
        self.cluster = Cluster(work, servers.classpath)
        self.cluster.prepare()

    @property
    def ha_address(self) -> str:
        """Where the master's slaves connect: its port + 1."""
        return f"127.0.0.1:{self.ports.master + 1}"

    @property
    def status_without_a_slave(self) -> str:
        """How a put of a SYNC_MASTER with IN_SYNC ends."""
        return self.does("a put without a slave").split()[0]

    def does(self, behaviour: str) -> str:
        """What spec/versions.toml says that this release does."""
        return release_table.value_of(behaviour, self.release)

    def start_broker(self, name: str, store: Path, role: str, disk: SmallDisk | None = None, **more: str) -> None:
        """Start "master" or "slave" on a store, with the settings of a role and `more`; it is registered when this returns.

        With a disk the commit log is on that, and all the rest in `store`.
        """
        conf = CONF | {
            "brokerRole": role,
            "brokerId": "1" if role == "SLAVE" else "0",
            "listenPort": str(self.ports.slave if name == "slave" else self.ports.master),
            "namesrvAddr": self.servers.namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str((disk.inside if disk else store) / "commitlog"),
        }
        for setting in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"):  # 4.4.0 spells them with one p
            conf[setting.replace("mapped", "maped")] = (conf | more)[setting]
        if role == "SYNC_MASTER":
            conf |= IN_SYNC
        behind = disk.enter if disk else ()
        self.cluster.start(name, "org.apache.rocketmq.broker.BrokerStartup", conf | more, PATIENCE_S, behind)
        if "namesrvAddr" not in more:
            self._await_registered(int(conf["listenPort"]))

    def stop(self, name: str) -> None:
        self.cluster.stop(name, PATIENCE_S)

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.cluster.running.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def close(self) -> None:
        self.cluster.kill_all()
        self.servers.await_no_broker()

    def log(self, name: str) -> str:
        """What a broker has logged so far."""
        return (self.work / f"logs/{name}.log").read_text(errors="replace")

    def send(self, topic: str, count: int, largest: int = 4000, seed: int = 1, producers: int = 4) -> dict[str, int]:
        """Send messages by RocketMQ's producer. Returns: how many ended with which SendStatus, or as FAILED."""
        self._await_registered()
        lines = self.servers.run("send", topic, *map(str, (count, largest, seed, producers)))
        return {status: int(n) for status, n in (line.split() for line in lines)}

    def read_all(self, *topics: str, count: int = 0) -> list[Pulled]:
        """What a consumer pulls: (topic, queue id, queue offset, commit-log offset, CRC-32 of the body, tags, keys).

        It reads again until there are `count`, for 30 s: a broker dispatches a message after its send has been answered.
        """
        self._await_registered()
        deadline = time.monotonic() + 30
        while True:
            rows = [line.split("\t") for line in self.servers.run("read", *topics)]
            if len(rows) >= count or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        return [(row[0], int(row[1]), int(row[2]), int(row[3]), int(row[4]), row[5], row[6]) for row in rows]

    def query(self, asked: Sequence[tuple[str, str]], max_num: int = 64) -> list[list[int]]:
        """What the broker's index answers to (topic, key): commit-log offsets, in its order."""
        self._await_registered()
        questions = self.work / "questions"
        questions.write_text("".join(f"{topic}\t{key}\n" for topic, key in asked), encoding="utf-8")
        rows = [line.split("\t") for line in self.servers.run("query", str(max_num), str(questions))]
        assert [(row[0], row[1]) for row in rows] == list(asked), rows
        return [[int(offset) for offset in row[2].split(",") if offset] for row in rows]

    def _await_registered(self, port: int = 0) -> None:
        """Clients find a broker only after it has registered with the name server. port: the master's, if it is 0."""
        address = f"127.0.0.1:{port or self.ports.master}"
        wait(f"the broker at {address} is registered", lambda: self.servers.knows(address))
