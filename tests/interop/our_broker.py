"""A broker and a name server of ours, for real clients."""

import signal
from pathlib import Path

from golden_cluster import COMMON_CONF
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from kit.command_line import Process, Start
from kit.waiting import LONG_S
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import request


class OurBroker:
    """A broker and a name server of ours, as processes, on the ports and with the broker.conf of a real broker."""

    def __init__(self, rocketmq: Rocketmq, start: Start, directory: Path) -> None:
        self._rocketmq, self._start, self._directory = rocketmq, start, directory
        self.store = directory / "store"
        self.address = f"127.0.0.1:{rocketmq.ports.master}"
        words = "--listen", "127.0.0.1:0", "--kv-config", directory / "kvConfig.json"
        name_server = start("namesrv", *words, limit_s=LONG_S)  # a slave of 5.3.3 asks for tables after a minute
        self.namesrv = name_server.line("listening")
        self.process: Process | None = None

    def run(self, **settings: str) -> None:
        """Start the broker; it is registered when this returns."""
        conf = COMMON_CONF | {
            "storePathRootDir": str(self.store),
            "listenPort": str(self._rocketmq.ports.master),
            "namesrvAddr": self.namesrv,
            "brokerRole": "ASYNC_MASTER",
        }
        file = self._directory / "broker.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in (conf | settings).items()))
        self.process = self._start("broker", "--config", file, "--min-free-space", 0, limit_s=LONG_S)
        address = self.process.line("listening")
        wait("our broker is registered", lambda: address in self.clusters(settings.get("namesrvAddr", "")))

    def clusters(self, namesrv: str = "") -> str:
        """The brokers that a name server lists, ours if none is given."""
        client = RemotingClient()
        try:
            return client.ask(namesrv or self.namesrv, request(106), round(PATIENCE_S * 1000)).body.decode()
        except RequestFailed:
            return ""
        finally:
            client.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        return self.process.end(number)
