"""A standalone cluster of Spark on loopback: a master and some workers, from the wheel that Spark was installed from.

The wheel has no start-*.sh; `spark-class` starts the same classes. Every process belongs to its object, which ends it.
"""

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import pyspark

from rocketmq_ha.analysis.session import LOOPBACK, spark_environment
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.ports import free_port

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
POLL_S: Final = 0.2
WORKER_MEMORY: Final = "1g"


class SparkCluster:
    """A master and `workers` workers of one core each. Leaving its context ends them."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory, self._n_workers = directory, workers
        self._logs: list[IO[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    def __enter__(self) -> "SparkCluster":
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self.port = free_port()
            self._start("master", "master.Master", "--host", LOOPBACK, "--port", str(self.port), "--webui-port", "0")
            self._await_port()
            for number in range(self._n_workers):
                work = ("--work-dir", str(self._directory / f"worker-{number}"))
                size = ("--cores", "1", "--memory", WORKER_MEMORY)
                arguments = ("--host", LOOPBACK, "--webui-port", "0", *size, *work, self.url)
                self._start(f"worker-{number}", "worker.Worker", *arguments)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def kill_worker(self, number: int) -> None:
        """kill -9. The executor of the worker notices that it is alone, and ends."""
        self._processes[1 + number].kill()
        self._processes[1 + number].wait(STOP_SECONDS)

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        for log in self._logs:
            log.close()
        self._processes, self._logs = [], []

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        log = (self._directory / f"{name}.log").open("wb")
        self._logs.append(log)
        home = Path(pyspark.__file__).parent
        # spark-class replaces itself by Java, so the process is the JVM.
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        environment = os.environ | spark_environment() | {"SPARK_HOME": str(home)}
        self._processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _await_port(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            if self._processes[0].poll() is not None or time.monotonic() > until:
                raise FuzzError(f"{self._directory}/master.log: Spark's master did not listen at {self.url}")
            try:
                socket.create_connection((LOOPBACK, self.port), 1.0).close()
                return
            except OSError:
                time.sleep(POLL_S)
