"""The jars of the releases of Apache RocketMQ, and our clients in Java that use them.

Maven fetches the jars once for each state of pom.xml; the clients are compiled once for each of theirs.
"""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

POM: Final = Path(__file__).with_name("golden") / "pom.xml"
SOURCES: Final = POM.parent / "src" / "main" / "java" / "interop"
_JAVAC: Final = ("javac", "--release", "11", "-encoding", "UTF-8", "-nowarn", "-Xlint:-deprecation")
_COMPILE_S: Final = 300
BUILD: Final = Path(__file__).resolve().parents[2] / "build" / "interop"


def digest_of(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _stamp(release: str) -> tuple[Path, str]:
    """The file that says of which pom.xml the jars are, and what it must say."""
    return BUILD / release / "jars.stamp", digest_of(POM)


def are_there(release: str) -> bool:
    stamp, digest = _stamp(release)
    return stamp.exists() and stamp.read_text() == digest


def lib_of(release: str) -> Path:
    """The folder with the jars, which are fetched if they are not there; processes that come at once wait for the first.

    Raises: subprocess.CalledProcessError.
    """
    from make_golden import fetch_jars

    (BUILD / release).mkdir(parents=True, exist_ok=True)
    with (BUILD / release / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not are_there(release):
            fetch_jars(BUILD / release, release, [])
            stamp, digest = _stamp(release)
            stamp.write_text(digest)
    return BUILD / release / "lib"


def classpath_of(release: str) -> str:
    """The jars, and our clients as that release compiles them. Raises: subprocess.CalledProcessError; OSError without a JDK."""
    lib = lib_of(release)
    before_lite = tuple(map(int, release.split("."))) < (4, 6)  # releases before it have no lite pull consumer
    sources = sorted(file for file in SOURCES.rglob("*.java") if not (before_lite and file.name == "Lite.java"))
    classes = lib.parent / f"classes-{digest_of(*sources)[:16]}"
    with (lib.parent / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.is_dir():
            being_made = lib.parent / f"{classes.name}.{os.getpid()}"
            command = [*_JAVAC, "-cp", f"{lib}/*", "-d", str(being_made), *map(str, sources)]
            subprocess.run(command, check=True, timeout=_COMPILE_S)
            being_made.rename(classes)
    return f"{classes}:{lib}/*"
