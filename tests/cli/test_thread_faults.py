"""A thread of a server that meets a bug ends the server, and the next start recovers its store."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kit.children import Child
from kit.command_line import invoke
from kit.waiting import await_end
from rocketmq_ha.impl.app.thread_faults import EXIT_BUG, ending_with_threads

PROGRAM = """
from {module} import {name}
from rocketmq_ha.impl.cli import main

def fail(_):
    raise AssertionError("a bug of ours")

{name}._run = fail
main({words!r})
"""
LOG = "rocketmq_ha.impl.store.log"
BROKER = ("broker", "--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        pytest.param(f"{LOG}.flush", "FlushRealTimeService", ("master", "--listen", "127.0.0.1:0"), id="a master's flush"),
        pytest.param(f"{LOG}.flush", "FlushRealTimeService", ("slave", "--master", "127.0.0.1:1"), id="a slave's flush"),
        pytest.param(f"{LOG}.flush", "GroupCommitService", (*BROKER, "--flush", "sync"), id="synchronous flush"),
        pytest.param(f"{LOG}.allocate", "AllocateService", BROKER, id="allocation"),
        pytest.param("rocketmq_ha.impl.store.derived.dispatch", "ReputMessageService", BROKER, id="dispatch"),
        pytest.param("rocketmq_ha.impl.store.housekeeping", "Housekeeping", BROKER, id="housekeeping"),
    ],
)
def test_a_bug_in_a_thread_ends_the_server(module: str, name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    program = PROGRAM.format(module=module, name=name, words=[*words, "--store", str(tmp_path / "s")])
    with Child([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == EXIT_BUG
    assert f"CRITICAL rocketmq_ha.impl.app.thread_faults: {name} has ended by a bug of this program" in told
    assert "AssertionError: a bug of ours\n" in told
    assert invoke("recover", tmp_path / "s").exit_code == 0


def test_other_threads_are_left_alone() -> None:
    """The hook of whoever calls us is theirs again afterwards; SystemExit is an end that a thread has chosen."""
    before = threading.excepthook
    with ending_with_threads():
        leaving = threading.Thread(target=sys.exit, daemon=True)
        leaving.start()
        await_end(leaving)
        assert threading.excepthook is not before
    assert threading.excepthook is before
