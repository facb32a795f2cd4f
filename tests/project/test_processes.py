"""`make test` uses several processes: all tests of a file, and of the files of a group, run in the same one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit import processes
from kit.waiting import LONG_S

CONFTEST = "from kit.processes import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: F401"
KIT = Path(__file__).resolve().parents[1]

TESTS = """
import os
import time
from pathlib import Path

import pytest
{mark}

@pytest.mark.parametrize("number", range(6))
def test_told(number: int) -> None:
    with Path(__file__).with_name("told").open("a") as told:
        told.write(f"{{os.environ['PYTEST_XDIST_WORKER']}} {name} {{number}}\\n")
    time.sleep(0.05)
"""
MARK = 'pytestmark = pytest.mark.xdist_group("{}")  # they share something'
FILES = {"a": "", "b": MARK.format("one"), "c": "", "d": MARK.format("two"), "e": MARK.format("one")}


@pytest.mark.parametrize(("count", "workers"), [(1, 2), (2, 3), (3, 5), (4, 6), (64, 96)])
def test_there_are_three_processes_for_two_processors(count: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: count)
    assert processes.pytest_xdist_auto_num_workers() == workers


def test_children_keep_their_bytecode_where_this_process_writes_none(tmp_path: Path) -> None:
    """In a folder that is gone at the end of the process, and nowhere else."""
    program = (
        "import os, subprocess, sys; from pathlib import Path; from kit.processes import share_bytecode; share_bytecode()\n"
        "subprocess.run([sys.executable, '-c', 'import module'], check=True)\n"
        "folder = Path(os.environ['PYTHONPYCACHEPREFIX']); print(folder, *(file.name for file in folder.rglob('module.*')))"
    )
    (tmp_path / "module.py").touch()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join((str(KIT), str(tmp_path)))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=LONG_S)
    folder, compiled = done.stdout.split()
    assert compiled.startswith("module.") and compiled.endswith(".pyc")
    assert not Path(folder).exists()
    assert not (tmp_path / "__pycache__").exists()


def test_a_file_and_a_group_of_files_run_in_one_process_each_and_the_groups_first(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    for name, mark in FILES.items():
        (folder / f"test_{name}.py").write_text(TESTS.format(name=name, mark=mark), encoding="utf-8")
    options = ("-q", "-n", "2", "-p", "no:cacheprovider", "-o", f"pythonpath={KIT}", "--rootdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [tuple(line.split()) for line in (folder / "told").read_text(encoding="utf-8").splitlines()]
    workers = {name: {worker for worker, of_file, _ in ran if of_file == name} for name in FILES}
    assert all(len(of_file) == 1 for of_file in workers.values()), workers
    assert workers["b"] == workers["e"] != workers["d"]
    for name in FILES:
        assert [number for _, of_file, number in ran if of_file == name] == list("012345")
    begun = {next(name for worker, name, _ in ran if worker == process) for process in ("gw0", "gw1")}
    assert begun == {"b", "d"}
