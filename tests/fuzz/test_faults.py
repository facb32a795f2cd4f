"""A planted fault is found by its name, changes one place of a copy, and a process runs on the copy."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import rocketmq_ha.impl
from rocketmq_ha.fuzz import faults
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.faults import FAULTS, Fault

IMPL = Path(rocketmq_ha.impl.__file__).parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_name_finds_its_fault(fault: Fault) -> None:
    assert faults.find(fault.name) is fault


def test_a_name_that_is_nearly_one_is_answered_with_it_and_another_with_all() -> None:
    with pytest.raises(FuzzError) as caught:
        faults.find("heartbeat-on-tim")
    assert str(caught.value) == "fault 'heartbeat-on-tim': there is none of that name. Did you mean 'heartbeat-on-time'?"
    with pytest.raises(FuzzError) as caught:
        faults.find("zzz")
    names = ", ".join(fault.name for fault in FAULTS)
    assert str(caught.value) == f"fault 'zzz': there is none of that name. Expected one of {names}"


def copied(root: Path) -> dict[str, str]:
    return {file.relative_to(root).as_posix(): file.read_text() for file in sorted(root.rglob("*.py"))}


def test_the_copy_has_the_edit_and_nothing_of_an_older_copy(tmp_path: Path) -> None:
    fault = faults.find("report-rounds-up")
    stale = tmp_path / fault.name / "rocketmq_ha" / "impl" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    root = faults.plant(fault, tmp_path)
    assert root == tmp_path / fault.name
    found, source = copied(root / "rocketmq_ha" / "impl"), copied(IMPL)
    assert set(found) == set(source)
    assert {name for name in source if found[name] != source[name]} == {fault.file}
    assert found[fault.file] == source[fault.file].replace(fault.old, fault.new)
    assert not list(root.rglob("__pycache__"))


@pytest.mark.parametrize("old", ["no such text", "class "])
def test_a_text_that_does_not_stand_there_once_is_a_mistake(tmp_path: Path, old: str) -> None:
    count = (IMPL / "errors.py").read_text().count(old)
    assert count != 1
    with pytest.raises(AssertionError, match=f"an-edit: its text stands {count} times in errors.py"):
        faults.plant(Fault("an-edit", "errors.py", old, "x", "a test"), tmp_path)


@pytest.mark.parametrize(("arguments", "status"), [(["replay", "3"], 0), (["replay", "-1"], 2)])
def test_a_process_runs_on_the_copy_and_its_status_is_returned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], status: int
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sitecustomize.py").write_text("import sys; sys.stderr.write('from the old path')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "more"))
    marked = Fault("marked", "errors.py", "# ruff:", "print('from the copy')  # ruff:", "says that it was imported")
    assert faults.run_with(marked, tmp_path, arguments) == status
    monkeypatch.setattr(faults, "RUN_SECONDS", 0.01)
    with pytest.raises(FuzzError, match=re.escape(f"marked: {' '.join(arguments)} has not ended within 0.01 s")):
        faults.run_with(marked, tmp_path, arguments)
    printed = capfd.readouterr()
    assert "from the old path" in printed.err
    assert "from the copy" in printed.out
