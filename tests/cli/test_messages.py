"""The program's messages after typing errors, missing arguments, and a reader that closes the output."""

import subprocess
import sys
from pathlib import Path

import pytest

from kit.children import Child
from kit.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the console script as if a package were not installed."""
    script = f"import sys; sys.path[:0] = {sys.path!r}; sys.modules.update(dict.fromkeys({without.split()!r})); "
    script += "from rocketmq_ha.impl.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["statsu"], "rocketmq-ha: No such command 'statsu'. Did you mean 'status'? (see rocketmq-ha --help)\n"),
        (["doktor"], "rocketmq-ha: No such command 'doktor'. Did you mean 'doctor'? (see rocketmq-ha --help)\n"),
        (["zzz"], "rocketmq-ha: No such command 'zzz'. (see rocketmq-ha --help)\n"),
        (
            ["status", "x", "--jsn"],
            "rocketmq-ha status: No such option '--jsn'. Did you mean '--json'? (see rocketmq-ha status --help)\n",
        ),
        (
            ["demo-bug", "report-round-up"],
            "rocketmq-ha: fault 'report-round-up': there is none of that name. Did you mean 'report-rounds-up'?\n",
        ),
    ],
)
def test_a_mistyped_name_gets_the_nearest_one_and_status_2(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_fault_that_is_like_no_other_gets_the_list_of_all() -> None:
    done = run("demo-bug", "zzz")
    assert done.returncode == 2
    assert "fault 'zzz': there is none of that name. Expected one of report-rounds-up, failed-append-counts," in done.stderr


@pytest.mark.parametrize(
    "arguments", [["fuzz", "run", "--runs", "1"], ["report", "nothing"], ["demo"]], ids=["fuzz run", "report", "demo"]
)
def test_without_the_extra_a_command_names_the_package_and_the_extra(arguments: list[str], tmp_path: Path) -> None:
    done = run(*arguments, "--out", tmp_path / "out", without="pyspark pyspark.sql")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "pyspark" in done.stderr
    assert "pip install 'rocketmq-ha[fuzz]'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_table_of_clauses_may_lose_its_reader() -> None:
    command = [sys.executable, "-m", "rocketmq_ha.spec.citations", "--root", str(ROOT)]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # before it writes its first line
        assert "Traceback" not in process.stderr.read()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("size", [0, 4_194_293, 1 << 40])
def test_a_batch_that_no_slave_takes_is_refused_before_a_store_is_made(size: int, tmp_path: Path) -> None:
    done = run("master", "--store", tmp_path / "store", "--listen", "127.0.0.1:0", "--ha-transfer-batch-size", size)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(size) in done.stderr and "--ha-transfer-batch-size" in done.stderr
    assert not (tmp_path / "store").exists()
