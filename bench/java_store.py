"""Run Apache RocketMQ's own store in its own process, round by round, so that its rounds can take turns with ours.

The jars are those of tests/interop. If they are not under build/interop yet, Maven fetches them with the same pom.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from .line_process import LineProcess

RELEASE: Final = "4.9.8"
ROOT: Final = Path(__file__).resolve().parents[1]
LIB: Final = ROOT / "build" / "interop" / RELEASE
CLASSES: Final = ROOT / "build" / "bench" / "java"
SOURCES: Final = sorted((Path(__file__).resolve().parent / "java").glob("*.java"))
LOGBACK: Final = SOURCES[0].with_name("logback.xml")
POM: Final = ROOT / "tests" / "interop" / "golden" / "pom.xml"
ROUNDS: Final = 7
WARM_UP_ROUNDS: Final = 1  # not counted; before it StoreBench puts half a million messages
FETCH_TIMEOUT_S: Final = 300
HEAP: Final = "1g"  # both minimum and maximum, as brokers are usually run
DIRECT: Final = "3g"  # memory outside the heap: the store has a buffer of 4 MiB for each thread that puts


Rates = dict[str, float]


class Versus(Protocol):
    """Run rounds in which both stores take turns, theirs first.

    rows: the title of each row -> the name of our rate, and the name of theirs.
    """

    def __call__(
        self,
        rows: Mapping[str, tuple[str, str]],
        ours: Callable[[], Rates],
        theirs: Callable[[], Rates],
        *,
        unit: str = "/s",
        warm_up_rounds: int = WARM_UP_ROUNDS,
    ) -> None: ...


class NoJavaError(Exception):
    """RocketMQ's store cannot be run on this machine. The message says why, in one line."""


def class_path() -> str:
    """Return the class path of the jars and our classes. Fetch and compile those that are missing. Raises: NoJavaError."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise NoJavaError(f"{program} is not on the PATH")
    if not (LIB / "lib" / f"rocketmq-store-{RELEASE}.jar").exists():
        if shutil.which("mvn") is None:
            raise NoJavaError("mvn is not on the PATH")
        goal = ("-P", RELEASE, f"-Dgolden.build={LIB}", "dependency:copy-dependencies")
        _run("Maven cannot fetch RocketMQ's jars", "mvn", "-q", "-B", "-f", str(POM), *goal)
    found = f"{CLASSES}:{LIB / 'lib'}/*"
    for source in SOURCES:
        compiled = CLASSES / f"{source.stem}.class"
        if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            _run(f"{source.name} does not compile", "javac", "-cp", found, "-d", str(CLASSES), str(source))
    return found


def java_version() -> str:
    """Return the first line that `java -version` prints."""
    return subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr.splitlines()[0]


def _run(what: str, *command: str) -> None:
    try:
        subprocess.run(command, check=True, timeout=FETCH_TIMEOUT_S, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stdout + error.stderr).splitlines() if line.strip()]
        raise NoJavaError(f"{what}: {lines[0] if lines else error}") from None
    except subprocess.TimeoutExpired:
        raise NoJavaError(f"{what}: no end within {FETCH_TIMEOUT_S} s") from None


def java_command(classpath: str, home: Path, main: str, *arguments: object) -> list[str]:
    """Return the command that runs one of our Java classes with a broker's settings. home: the folder for its own files."""
    return [
        "java",
        f"-Xms{HEAP}",
        f"-Xmx{HEAP}",
        f"-XX:MaxDirectMemorySize={DIRECT}",
        f"-Dlogback.configurationFile={LOGBACK}",
        f"-Duser.home={home}",
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",  # RocketMQ needs these to unmap files
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
        "-cp",
        classpath,
        main,
        *map(str, arguments),
    ]


class JavaStore(LineProcess):
    """A process that runs StoreBench on a store. The header of StoreBench.java describes the arguments."""

    def __init__(self, classpath: str, store_dir: Path, *arguments: object) -> None:
        command = java_command(classpath, store_dir.parent, "StoreBench", store_dir, *arguments)
        super().__init__(command, store_dir.with_name(store_dir.name + ".java.log"))

    def round(self) -> dict[str, float]:
        """Run one round and return its rates."""
        return self.ask()
