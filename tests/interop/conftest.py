"""Fixtures: Apache RocketMQ from Maven Central, as itself, on loopback.

Where Java or Maven is missing the tests are skipped with one line; with CI=true in the environment they fail.
"""

import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "golden"))
sys.path.insert(0, str(HERE))

from rocketmq import RELEASES, Rocketmq  # noqa: E402

BUILD = HERE.parents[1] / "build" / "interop"


def sources() -> list[Path]:
    return [HERE / "golden" / "pom.xml", *sorted((HERE / "golden" / "src").rglob("*.java"))]


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def classpath(release: str) -> str:
    """The jars of a release and our clients, fetched and compiled once for each state of the sources."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            told = f"{program} is not on the PATH: the real RocketMQ is not run"
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(told)
    from make_golden import fetch_jars

    build = BUILD / release
    stamp = build / "stamp"
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources())).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        fetch_jars(build, release, [])
        stamp.write_text(digest)
    return f"{build / 'classes'}:{build / 'lib'}/*"


def free_base() -> int:
    """A base from which on all ports that a run takes are free."""
    for base in range(23_000, 60_000, 700):
        for port in (base, base + 98, base + 100, base + 101, base + 198, base + 200, base + 201):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        else:
            return base
    raise AssertionError("no free ports")


@pytest.fixture
def rocketmq(release: str, classpath: str, tmp_path: Path) -> Iterator[Rocketmq]:
    """A name server that runs; brokers are started by the test. All are stopped at the end."""
    started = Rocketmq(release, classpath, tmp_path / "rocketmq", free_base())
    try:
        started.start_namesrv()
        yield started
    finally:
        started.cluster.kill_all()
