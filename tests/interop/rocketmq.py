"""The real RocketMQ for the interop tests: a name server, brokers on given stores, and our two clients of them."""

import json
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from golden_cluster import BROKER_NAME, COMMON_CONF, Cluster, Ports

RELEASES = ("4.9.8", "5.3.3")
FILE_SIZE = int(COMMON_CONF["mappedFileSizeCommitLog"])


def wait(what: str, done: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something is so. Raises: AssertionError with its name if it is not in time."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


class Rocketmq:
    """One run. Brokers have files of 1 MiB, so that they roll often; their logs are under `work/logs`."""

    def __init__(self, release: str, classpath: str, work: Path, base: int) -> None:
        self.release, self.work, self.ports = release, work, Ports(base)
        self.cluster = Cluster(work, classpath)
        self.cluster.prepare()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.ports.namesrv}"

    @property
    def ha_address(self) -> str:
        """Where the master's slaves connect: its port + 1."""
        return f"127.0.0.1:{self.ports.master + 1}"

    def start_namesrv(self) -> None:
        conf = {"listenPort": str(self.ports.namesrv)}
        self.cluster.start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", conf, 60)

    def start_broker(self, name: str, store: Path, role: str, **more: str) -> None:
        """Start "master" or "slave" on a store, with the settings of a role and `more`; it runs when this returns."""
        conf = COMMON_CONF | {
            "brokerRole": role,
            "brokerId": "1" if role == "SLAVE" else "0",
            "listenPort": str(self.ports.slave if name == "slave" else self.ports.master),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        self.cluster.start(name, "org.apache.rocketmq.broker.BrokerStartup", conf | more, 60)

    def register_master(self, ha_address: str) -> socket.socket:
        """Tell the name server of a master whose HA address is ours (code 103); it is forgotten as the socket closes.

        It is how a slave of 5.3.3 finds us: of a configured haMasterAddress it makes nothing, for it sets the address before it
        makes the client that should take it (its log: "connect to master null failed").
        """
        wrapper = {"topicConfigTable": {}, "dataVersion": {"timestamp": 1, "counter": 1}}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
        fields = {
            "brokerName": BROKER_NAME,
            "brokerAddr": f"127.0.0.1:{self.ports.master}",
            "clusterName": COMMON_CONF["brokerClusterName"],
            "haServerAddr": ha_address,
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        told = {"code": 103, "language": "OTHER", "version": 399, "opaque": 1, "flag": 0, "extFields": fields}
        header = json.dumps(told).encode()
        connection = socket.create_connection(("127.0.0.1", self.ports.namesrv), 10)
        size = 4 + len(header) + len(body)
        connection.sendall(size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body)
        answer = connection.recv(1 << 16)
        assert json.loads(answer[8 : 8 + int.from_bytes(answer[5:8], "big")])["code"] == 0, answer
        return connection

    def stop(self, name: str) -> None:
        self.cluster.stop(name)

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.cluster.running.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        """What a broker has logged so far."""
        return (self.work / f"logs/{name}.log").read_text(errors="replace")

    def send(self, topic: str, count: int, largest: int = 4000, seed: int = 1, timeout_s: float = 120) -> dict[str, int]:
        """Send messages by RocketMQ's producer. Returns: how many ended with which SendStatus, or as FAILED."""
        self._await_route()
        self.cluster.run("send", "interop.Send", self.namesrv, topic, str(count), str(largest), str(seed), timeout_s=timeout_s)
        lines = (self.work / "logs/send.out").read_text().splitlines()
        return {status: int(n) for status, n in (line.split() for line in lines if line[:1].isupper() and line.count(" ") == 1)}

    def read_all(self, *topics: str, timeout_s: float = 120) -> list[tuple[str, int, int, int, int, str, str]]:
        """What a consumer pulls: (topic, queue id, queue offset, commit-log offset, CRC-32 of the body, tags, keys)."""
        self._await_route()
        self.cluster.run("read", "interop.ReadAll", self.namesrv, *topics, timeout_s=timeout_s)
        lines = (self.work / "logs/read.out").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines if line.count("\t") == 6]
        return [(row[0], int(row[1]), int(row[2]), int(row[3]), int(row[4]), row[5], row[6]) for row in rows]

    def query(self, asked: Sequence[tuple[str, str]], max_num: int = 64, timeout_s: float = 120) -> list[list[int]]:
        """What the broker's index answers to (topic, key): commit-log offsets, in its order."""
        self._await_route()
        questions = self.work / "questions"
        questions.write_text("".join(f"{topic}\t{key}\n" for topic, key in asked), encoding="utf-8")
        self.cluster.run("query", "interop.Query", self.namesrv, str(max_num), str(questions), timeout_s=timeout_s)
        lines = (self.work / "logs/query.out").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines if line.count("\t") == 2]
        assert [(row[0], row[1]) for row in rows] == list(asked), lines
        return [[int(offset) for offset in row[2].split(",") if offset] for row in rows]

    def _await_route(self) -> None:
        """A broker is found only after it has registered with the name server."""
        log = self.work / "logs/namesrv.log"
        wait("a broker is registered", lambda: "new broker registered" in log.read_text(errors="replace"))
