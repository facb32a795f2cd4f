"""What becomes of the JVM that PySpark is starting when Python is told to end."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext, java_gateway

from kit.children import Child
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.analysis.jvm_start import SIGNALS, ending_with_python

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture(autouse=True)
def handlers_and_gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The session that other tests share keeps its gateway."""
    for name in ("_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, getattr(SparkContext, name))
    before = {number: signal.getsignal(number) for number in SIGNALS}
    logger = logging.getLogger("py4j.clientserver")
    filters = list(logger.filters)
    yield
    logger.filters[:] = filters
    for number, action in before.items():
        signal.signal(number, action)


def start() -> subprocess.Popen[bytes]:
    """As PySpark starts the JVM."""
    child: subprocess.Popen[bytes] = vars(java_gateway)["Popen"](SLEEP, stdin=subprocess.PIPE)
    return child


@pytest.mark.parametrize("number", SIGNALS)
def test_the_jvm_is_ended_before_the_signal_does_its_work(number: signal.Signals) -> None:
    """PySpark's own error about a JVM that is gone does not hide what the signal raises."""
    statuses: list[int | None] = []

    def action(*_: object) -> None:
        statuses.append(child.returncode)
        raise KeyboardInterrupt("the signal's")

    signal.signal(number, action)
    with pytest.raises(KeyboardInterrupt, match="the signal's"), ending_with_python():
        child = start()
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise ConnectionError("Py4J's") from None
    assert statuses == [-signal.SIGKILL]
    assert signal.getsignal(number) is action
    assert vars(java_gateway)["Popen"] is subprocess.Popen


def test_what_ends_python_otherwise_ends_the_jvm_too() -> None:
    with pytest.raises(SystemExit), ending_with_python():
        child = start()
        raise SystemExit(3)
    assert child.returncode == -signal.SIGKILL


def test_the_jvm_of_an_error_of_spark_stays_for_another_try() -> None:
    with pytest.raises(ConnectionError), ending_with_python():
        child = start()
        raise ConnectionError("the master does not answer")
    assert child.poll() is None
    child.kill()
    child.wait(PATIENCE_S)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ending_with_python():
        child = start()
        signal.raise_signal(signal.SIGINT)
        assert child.poll() is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    child.kill()
    child.wait(PATIENCE_S)


def of_session(number: int) -> dict[int, str]:
    """The processes of a session that are no zombies, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the JVM in /proc")
@pytest.mark.parametrize(
    ("number", "to_group", "status"), [(signal.SIGINT, True, 130), (signal.SIGINT, False, 130), (signal.SIGTERM, False, 143)]
)
def test_a_signal_while_spark_starts_leaves_no_jvm(number: signal.Signals, to_group: bool, status: int, tmp_path: Path) -> None:
    """A terminal's Ctrl-C goes to the whole group, and PySpark's child ignores it."""
    told = tmp_path / "told"
    command = [sys.executable, "-m", "rocketmq_ha.impl.cli", "fuzz", "run", "--out", str(tmp_path / "log"), "--runs", "9"]
    with told.open("w") as file:
        child = Child(
            command,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # who starts the tests may ignore it
        )
    try:
        wait_for(lambda: any("SparkSubmit" in line and "-cp" in line for line in of_session(child.pid).values()))
        time.sleep(0.1)
        (os.killpg if to_group else os.kill)(child.pid, number)
        assert child.wait(PATIENCE_S) == status, told.read_text()
        wait_for(lambda: not of_session(child.pid))
    finally:
        for pid in of_session(child.pid):
            os.kill(pid, signal.SIGKILL)
    text = told.read_text()
    assert "Exception" not in text and "Traceback" not in text
