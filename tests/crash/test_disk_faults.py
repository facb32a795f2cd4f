"""Full, read-only and broken disks, and files removed or cut under a live store: the error names the file, nothing is lost.

HA-ST-8, HA-ST-28. The scenarios of disk_faults.py and cut_files.py run in processes of their own, which a SIGBUS may end.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import disk_faults
import pytest

from kit.waiting import PATIENCE_S

HERE = Path(__file__).parent
TIMEOUT_S = 120


def scenarios(functions: tuple[Callable[[Path], None], ...]) -> list[object]:
    """The scenarios as test parameters."""
    return [pytest.param(one, id=one.__name__) for one in functions]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fail_calls.c."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler, or no LD_PRELOAD, for system calls that fail")
    library = tmp_path_factory.mktemp("shim") / "fail_calls.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "fail_calls.c", "-ldl"], check=True, timeout=PATIENCE_S
    )
    return library


def run(scenario: Callable[[Path], None], **environment: str) -> None:
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:  # only its owner may enter pytest's tmp_path
        Path(directory).chmod(0o755)
        done = subprocess.run(
            [sys.executable, str(HERE / "disk_faults.py"), scenario.__name__, str(directory)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    how = f"ended by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else done.stderr
    assert done.returncode == 0, how


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.skipif(shutil.which("mke2fs") is None, reason="there is no mke2fs")
@pytest.mark.parametrize("scenario", scenarios(disk_faults.NEED_ROOT))
def test_a_disk_that_is_full_or_read_only_loses_nothing(scenario: Callable[[Path], None]) -> None:
    run(scenario)


@pytest.mark.parametrize("scenario", scenarios(disk_faults.NEED_PRELOAD))
def test_a_disk_that_fails_loses_nothing(scenario: Callable[[Path], None], tmp_path: Path, shim: Path) -> None:
    control = tmp_path / "fail"
    control.touch()
    run(scenario, LD_PRELOAD=str(shim), FAIL_CALLS=str(control))


@pytest.mark.parametrize("scenario", scenarios(disk_faults.OTHERS))
def test_files_that_are_refused_removed_or_cut_are_named(scenario: Callable[[Path], None]) -> None:
    run(scenario)
