"""What the tests of a release share, because its start costs more than its use: a name server, and a process of our clients."""

import json
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from golden_cluster import BROKER_NAME, COMMON_CONF, JVM, Cluster, Ports

PATIENCE_S: Final = 180.0  # a loaded machine takes half a minute to start a broker
GET_BROKER_CLUSTER_INFO: Final = 106
REGISTER_BROKER: Final = 103

# They live for seconds: the second compiler would work for nothing, on both cores.
JVM.append("-XX:TieredStopAtLevel=1")


def wait(what: str, done: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so. Raises: AssertionError with its name if it is not in time."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


class Servers:
    """A name server that runs, and the process of `interop.Client`. Close it."""

    def __init__(self, release: str, classpath: str, work: Path, base: int) -> None:
        self.release, self.classpath, self.work, self.ports = release, classpath, work, Ports(base)
        self.cluster = Cluster(work, classpath)
        self.cluster.prepare()
        self._client: subprocess.Popen[str] | None = None
        try:
            conf = {"listenPort": str(self.ports.namesrv)}
            self.cluster.start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", conf, PATIENCE_S)
        except BaseException:
            self.close()
            raise

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.ports.namesrv}"

    def run(self, command: str, *arguments: str, namesrv: str = "", timeout_s: float = 2 * PATIENCE_S) -> list[str]:
        """The lines that one of our clients prints. Raises: AssertionError with what went wrong.

        Args:  namesrv: the name servers that it asks, with `;` between; this one if there are none.
        """
        client = self._running_client()
        assert client.stdin is not None
        assert client.stdout is not None
        timer = threading.Timer(timeout_s, client.kill)
        timer.start()
        try:
            client.stdin.write("\t".join((command, namesrv or self.namesrv, *arguments)) + "\n")
            client.stdin.flush()
            lines = []
            while not (line := client.stdout.readline()).startswith("END"):
                if not line:
                    self._end_client()
                    raise AssertionError(f"{command}: the clients' process has ended, or took more than {timeout_s:.0f} s")
                lines.append(line.rstrip("\n"))
        finally:
            timer.cancel()
        assert line == "END\n", f"{command} {arguments}: {line}"
        return lines

    def _running_client(self) -> "subprocess.Popen[str]":
        """The process of our clients; after one that had to be killed, another."""
        if self._client is None:
            pipe, command = subprocess.PIPE, self.cluster.java("client", "interop.Client")
            with (self.work / "logs/client.err").open("ab") as errors:
                self._client = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, encoding="utf-8")
        return self._client

    def _end_client(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client.communicate(timeout=PATIENCE_S)
            self._client = None

    def knows(self, address: str) -> bool:
        """Whether a broker of this address is registered."""
        with socket.create_connection(("127.0.0.1", self.ports.namesrv), PATIENCE_S) as connection:
            return f'"{address}"'.encode() in ask(connection, GET_BROKER_CLUSTER_INFO, {}, b"")

    def await_no_broker(self) -> None:
        """One that was killed is forgotten as its connection closes."""
        for port in (self.ports.master, self.ports.slave):
            wait(f"the broker at {port} is forgotten", lambda port=port: not self.knows(f"127.0.0.1:{port}"))  # type: ignore[misc]

    def register_master(self, ha_address: str) -> socket.socket:
        """Tell the name server of a master whose HA address is ours; it is forgotten as the socket closes.

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
        connection = socket.create_connection(("127.0.0.1", self.ports.namesrv), PATIENCE_S)
        ask(connection, REGISTER_BROKER, fields, body)
        return connection

    def close(self) -> None:
        self.cluster.kill_all()
        self._end_client()


def ask(connection: socket.socket, code: int, fields: dict[str, str], body: bytes) -> bytes:
    """One remoting request. Returns: the body of its answer. Raises: AssertionError if the answer's code is not 0."""
    header = json.dumps(
        {"code": code, "language": "OTHER", "version": 399, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    size = 4 + len(header) + len(body)
    connection.sendall(size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body)
    with connection.makefile("rb") as stream:
        answer = stream.read(int.from_bytes(stream.read(4), "big"))
    header_size = int.from_bytes(answer[1:4], "big")
    assert json.loads(answer[4 : 4 + header_size])["code"] == 0, answer
    return answer[4 + header_size :]
