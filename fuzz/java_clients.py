"""RocketMQ's own producer and consumer, where a Java is installed and Maven's cache has their jars; nothing is fetched."""

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.fuzz.messages import Row

RELEASE: Final = "4.9.8"
LEAST_JAVA: Final = 17
PROGRAM: Final = Path(__file__).resolve().with_name("DemoClients.java")
CACHE: Final = Path.home() / ".m2" / "repository"
# What the client of this release needs, as its poms say.
JARS: Final = (
    *(f"org/apache/rocketmq/rocketmq-{name}/{RELEASE}/rocketmq-{name}-{RELEASE}.jar" for name in (
        "client", "common", "logging", "remoting"
    )),
    "io/netty/netty-all/4.1.65.Final/netty-all-4.1.65.Final.jar",
    "com/alibaba/fastjson/1.2.69_noneautotype/fastjson-1.2.69_noneautotype.jar",
    "org/slf4j/slf4j-api/1.7.7/slf4j-api-1.7.7.jar",
    "org/apache/commons/commons-lang3/3.4/commons-lang3-3.4.jar",
    "commons-collections/commons-collections/3.2.2/commons-collections-3.2.2.jar",
    "commons-validator/commons-validator/1.7/commons-validator-1.7.jar",
    "commons-codec/commons-codec/1.9/commons-codec-1.9.jar",
    "com/github/luben/zstd-jni/1.5.2-2/zstd-jni-1.5.2-2.jar",
    "org/lz4/lz4-java/1.8.0/lz4-java-1.8.0.jar",
)  # fmt: skip
_PROBE_S: Final = 30
_STOP_S: Final = 10


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run the program."""

    executable: str
    classpath: str


def find_java(cache: Path = CACHE) -> Java | str:
    """Return a Java with the client's jars, or in a few words what is missing."""
    home = os.environ.get("JAVA_HOME")
    executable = shutil.which("java", path=f"{home}/bin" if home else None)
    if executable is None:
        return "no java is on the PATH"
    if not PROGRAM.is_file():
        return "this installation has no Java program"
    jars = [cache / jar for jar in JARS]
    if missing := next((jar for jar in jars if not jar.is_file()), None):
        return f"Maven's cache has no {missing.name}"
    try:
        said = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=_PROBE_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return f"{executable} does not run"
    found = re.match(r"\S+ (\d+)", said)
    if found is None or int(found[1]) < LEAST_JAVA:
        return f"{executable} is older than {LEAST_JAVA}"
    return Java(executable, ":".join(map(str, jars)))


class JavaClients:
    """The program as a process. The caller must stop it."""

    def __init__(self, java: Java, directory: Path, name_server: str, topic: str, send: int, await_: int, seconds: int) -> None:
        self._out, self._log = directory / "java.out", directory / "java.log"
        arguments = [name_server, topic, *map(str, (send, await_, seconds))]
        options = ["-Xmx256m", f"-Duser.home={directory}", "-Drocketmq.client.logUseSlf4j=false", "-cp", java.classpath]
        with self._out.open("wb") as out, self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [java.executable, *options, str(PROGRAM), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )

    @property
    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def rows(self, what: str) -> list[Row]:
        """The messages that were "sent" or "consumed" so far."""
        lines = [line.split("\t") for line in self._out.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
        return [_row(line[1:]) for line in lines if line[0] == what]

    def stop(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)


def _row(cells: Sequence[str]) -> Row:
    number, body, tags, keys = cells
    return Row(number, base64.b64decode(body), tags, keys.rstrip("\n"))
