"""A plan's verdict, field by field, and how often a store is looked at that a process opens or closes meanwhile.

HA-ST-49 "MUST report no damage and nothing to cut".
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.damaged import END, write_store
from rocketmq_ha.impl.errors import StoreCorrupt, StoreLocked
from rocketmq_ha.impl.store import recovery_plan
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan, plan_recovery
from rocketmq_ha.impl.wire.message import Message, encode

CLEAN = RecoveryPlan(
    store_dir=Path("s"),
    holder=None,
    is_clean=True,
    files=2,
    min_offset=1024,
    start=1024,
    end=END,
    messages=8,
    cut_size=0,
    dispatch_from=END,
    entries_cut=0,
    keys_cut=0,
    files_removed=0,
)


@pytest.mark.parametrize(
    ("change", "stop", "changes_something"),
    [
        ({}, "clean", False),
        ({"is_clean": False}, "unclean", True),
        ({"holder": 7}, "running", False),
        ({"holder": 0}, "running", False),
        ({"holder": 7, "is_clean": False}, "running", True),
        ({"cut_size": 1}, "clean", True),
        ({"entries_cut": 1}, "clean", True),
        ({"keys_cut": 1}, "clean", True),
        ({"files_removed": 2}, "clean", True),
        ({"files_removed": 1, "start": 0, "end": 0, "min_offset": 0, "dispatch_from": 0}, "clean", False),
        ({"start": 0}, "clean", False),
        ({"dispatch_from": END - 1}, "clean", True),
        ({"dispatch_from": 0, "end": 0}, "clean", False),
        ({"messages": 0}, "clean", False),
    ],
    ids=str,
)
def test_a_plan_changes_something(change: dict[str, Any], stop: str, changes_something: bool) -> None:
    plan = replace(CLEAN, **change)
    assert (plan.stop, plan.changes_something) == (stop, changes_something)


OK, TORN, GONE = "a plan", StoreCorrupt("f", 1, "damage", "none"), FileNotFoundError("f")


@pytest.mark.parametrize(
    ("looks", "result"),
    [
        # (holder before the look, what it gives, holder after it)
        ([(None, OK, None)], OK),
        ([(7, OK, 7)], OK),
        ([(7, OK, 8), (8, OK, 8)], OK),
        ([(None, OK, 7), (7, OK, None), (None, OK, None)], OK),
        ([(None, OK, 7), (7, OK, None), (None, OK, 7)], StoreLocked),
        ([(None, TORN, None)], StoreCorrupt),
        ([(None, GONE, None)], FileNotFoundError),
        ([(None, TORN, 7), (7, OK, 7)], OK),
        ([(None, GONE, 7), (7, OK, 7)], OK),
        ([(7, TORN, None), (None, OK, None)], OK),
        ([(7, TORN, 7), (7, TORN, 7), (7, OK, 7)], OK),
        ([(7, TORN, 7), (7, GONE, 7), (7, TORN, 7)], StoreCorrupt),
        ([(7, GONE, 7), (7, TORN, 7), (7, GONE, 7)], FileNotFoundError),
    ],
)
def test_a_store_is_looked_at_three_times(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    looks: list[tuple[int | None, Any, int | None]],
    result: Any,
) -> None:
    """Damage counts at once where no process has the store open, before and after the look."""
    now = [looks[0][0]]
    held: list[int | None] = []
    waits: list[float] = []

    def look(store: Path, holder: int | None, _: object) -> Any:
        assert store == tmp_path
        _, found, now[0] = looks[len(held)]
        held.append(holder)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(recovery_plan, "_plan", look)
    monkeypatch.setattr(recovery_plan, "lock_holder", lambda _: now[0])
    monkeypatch.setattr(recovery_plan.time, "sleep", waits.append)
    if isinstance(result, str):
        assert plan_recovery(tmp_path) == result
    else:
        with pytest.raises(result):
            plan_recovery(tmp_path)
    assert held == [before for before, _, _ in looks]
    assert waits == [0.1] * (len(looks) - 1)


@pytest.mark.parametrize("found", [OK, TORN, GONE], ids=str)
def test_the_owner_of_the_lock_looks_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: Any) -> None:
    def look(_: Path, holder: int | None, __: object) -> Any:
        assert holder is None
        if isinstance(found, Exception):
            raise found
        return found

    def ask(_: Path) -> int:
        raise AssertionError("it knows who has the lock")

    monkeypatch.setattr(recovery_plan, "_plan", look)
    monkeypatch.setattr(recovery_plan, "lock_holder", ask)
    if isinstance(found, Exception):
        with pytest.raises(type(found)):
            plan_recovery(tmp_path, is_ours=True)
    else:
        assert plan_recovery(tmp_path, is_ours=True) == found


def test_a_plan_tells_which_file_it_looks_at(tmp_path: Path) -> None:
    reached: list[int] = []
    plan = plan_recovery(write_store(tmp_path / "s"), reached.append)
    assert replace(plan, store_dir=Path("s")) == CLEAN
    assert list(dict.fromkeys(reached)) == [1024, 2048]


@pytest.mark.parametrize("holder", [None, 7], ids=("closed", "open"))
def test_a_log_without_a_whole_record_is_removed_only_where_no_process_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: int | None
) -> None:
    """HA-ST-7 "a store without a whole record MUST have no files"; a master that runs is just writing its first one."""
    with CommitLog.open(tmp_path / "s", file_size=1024, clear_tail=False) as log:
        log.append_data(2048, [memoryview(encode(Message("t", bytes(50)), 0, 2048))[:60]])
    monkeypatch.setattr(recovery_plan, "lock_holder", lambda _: holder)
    plan = plan_recovery(tmp_path / "s")
    found = (plan.holder, plan.files, plan.files_removed, plan.min_offset, plan.end, plan.cut_size, plan.dispatch_from)
    if holder is None:
        assert found == (None, 1, 1, 0, 0, 52, 0)
    else:
        assert found == (7, 1, 0, 2048, 2048, 0, 2048)
    assert plan.start == 2048
