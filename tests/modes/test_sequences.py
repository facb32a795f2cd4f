"""Random sequences of faults: what is drawn, and one sequence with real processes. `make sequences` runs many."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from our_cluster import OurCluster
from power import compile_library
from run_sequences import longest_pause, run_sequence, table
from sequence import FAULTS_EACH, Actor, Step, draw, may_diverge, may_lose
from traffic import OK
from under_test import Group, Sent

from rocketmq_ha.impl.app.cluster.plan import MODES

SEEDS = range(300)
BREAKS = {"stop", "kill", "power off", "lose disk", "cut"}
MENDS = {"stop": {"start"}, "kill": {"start"}, "power off": {"power on"}, "lose disk": {"promote", "replace"}}


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_is_that_of_its_seed(mode: str) -> None:
    assert [draw(mode, str(seed)) for seed in SEEDS] == [draw(mode, str(seed)) for seed in SEEDS]
    assert len({tuple(draw(mode, str(seed))) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_can_be_taken_and_mends_all_that_it_breaks(mode: str) -> None:
    """A node that is broken is up, one that is mended is not, and a link is cut once."""
    acts: set[str] = set()
    for seed in SEEDS:
        steps = draw(mode, str(seed))
        assert sum(step.act in BREAKS for step in steps) == FAULTS_EACH
        acts |= {step.act for step in steps}
        down: dict[tuple[int, str], str] = {}
        cut: set[int] = set()
        promoted: set[int] = set()
        for step in steps:
            nodes = [(step.group, node) for node in (("master", "slave") if step.node == "both" else (step.node,))]
            if step.act == "cut":
                assert step.group not in cut
                cut.add(step.group)
            elif step.act == "heal":
                cut.remove(step.group)
            elif step.act in BREAKS:
                if step.act in ("power off", "lose disk"):
                    assert not cut & {-1, step.group}  # `power on` heals all links of a node
                assert not down.keys() & nodes
                assert not {node for _, node in nodes if node == "slave"} or step.group not in promoted
                down |= dict.fromkeys(nodes, step.act)
            else:
                assert step.act in MENDS[down.pop(nodes[0])]
                if step.act == "promote":
                    assert (step.group, "slave") not in down
                    promoted.add(step.group)
        assert not down and not cut
    has_slaves = MODES[mode].has_slaves
    assert acts == BREAKS | {"start", "power on", "heal", "promote" if has_slaves else "replace"}


@pytest.mark.parametrize("mode", ["async-2m-2s", "sync-2m-2s"])
def test_a_master_loses_its_disk_only_while_its_slave_has_all_that_was_acknowledged(mode: str) -> None:
    lost = 0
    for seed in SEEDS:
        slave_is_whole = dict.fromkeys(range(MODES[mode].masters), True)
        is_broken: dict[int, int] = dict.fromkeys([-1, *slave_is_whole], 0)
        for step in draw(mode, str(seed)):
            if step.act == "lose disk":
                lost += 1
                assert is_broken[step.group] == is_broken[-1] == 0 and slave_is_whole[step.group]
            is_broken[step.group] += (2 if step.node == "both" else 1) * (1 if step.act in BREAKS else -1)
            if step.act == "power off" and step.node != "master":
                slave_is_whole[step.group] = False
    assert lost > 50


def test_what_a_sequence_may_lose() -> None:
    disk, power, kill = (Step(0.1, act, 0, "master") for act in ("lose disk", "power off", "kill"))
    for mode, flush in itertools.product(MODES, ("async", "sync")):
        assert may_lose(mode, flush, [kill, disk]) == (mode != "sync-2m-2s")
        assert may_lose(mode, flush, [kill, power]) == (flush == "async")
        assert not may_lose(mode, flush, [kill])


def test_when_a_slave_may_have_what_its_master_has_not() -> None:
    """With either flush: what a master sends need not be on its disk yet (HA-M-29)."""
    power = [[Step(0.1, "power off", 0, node)] for node in ("master", "slave", "both")]
    assert [may_diverge(steps) for steps in power] == [True, False, True]
    assert not may_diverge([Step(0.1, act, 0, "master") for act in ("kill", "stop", "lose disk", "promote")])


def test_the_longest_pause_is_between_two_sends_that_ended_well() -> None:
    ends = [(0.0, OK), (1.0, OK), (2.0, "NO_ANSWER"), (4.0, OK)]
    assert (
        longest_pause([Sent(number, end - 0.1, end, status, "a", 0, number) for number, (end, status) in enumerate(ends)])
        == 3.0
    )
    assert longest_pause([]) == 0.0


def test_a_name_of_no_sequence_is_refused() -> None:
    program = Path(__file__).with_name("run_sequences.py")
    command = [sys.executable, str(program), "--replay", "3m/async/1"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=program.parents[2])
    assert found.returncode == 2
    assert found.stderr == "run_sequences.py: --replay 3m/async/1: expected MODE/FLUSH/SEED, as sync-2m-2s/async/17\n"


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_a_slave_that_has_more_than_its_master_is_started_anew(tmp_path: Path) -> None:
    """A power cut takes from a master what it had not flushed. Its slave has it, ends, and says what to do."""
    library = compile_library(tmp_path)
    steps = [Step(0.4, "power off", 0, "master"), Step(0.2, "power on", 0, "master")]
    for attempt in range(3):
        cluster = OurCluster("async-2m-2s", "async", tmp_path / f"cluster-{attempt}", library)
        found = run_sequence(cluster, steps, 500, lambda _: None, lossy=True)
        json.dumps(found)
        assert found["wrong"] == []
        if found["resynced"]:
            break  # else the cut came just behind a flush, and the slave had no more than that
    assert found["dropped"] > 0
    assert found["resynced"] == 1
    assert found["lost"] < found["unreadable"]  # the store that was put aside has the others
    assert found["acknowledged"] > 1_000
    rows = table([{"mode": "async-2m-2s", "flush": "async", **found}])
    assert rows.row_count == 1


class _Told:
    """A cluster that notes what it is told. Each power cut takes 10 bytes of a log."""

    def __init__(self) -> None:
        self.groups = [Group("g", "m", "s"), Group("h", "n", "t")]
        self.told: list[tuple[str, ...]] = []

    def __getattr__(self, act: str) -> Callable[..., int | None]:
        def note(*words: str) -> int | None:
            self.told.append((act, *words))
            return 10 if act == "lose_unsynced" else None

        return note


def test_the_steps_are_taken_on_the_groups_as_promotions_leave_them() -> None:
    cluster = _Told()
    actor = Actor(cluster)  # type: ignore[arg-type]
    steps = [("lose disk", 0, "master"), ("promote", 0, "master"), ("kill", 0, "master"), ("start", 0, "master")]
    steps += [("power off", 1, "both"), ("power on", 1, "slave"), ("power on", 1, "master"), ("cut", 1, ""), ("heal", 1, "")]
    steps += [("power off", 0, "master"), ("power on", 0, "master"), ("cut", -1, "")]
    for act, group, node in steps:
        actor.take(Step(0.1, act, group, node))
    assert cluster.told == [
        ("kill", "m"), ("lose_disk", "m"), ("promote", "s"), ("kill", "s"), ("start", "s"),
        ("vanish", "n", "t"), ("lose_unsynced", "n"), ("lose_unsynced", "t"), ("heal", "t"), ("start", "t"),
        ("heal", "n"), ("start", "n"), ("cut", "n", "t"), ("heal", "n", "t"),
        ("vanish", "s"), ("lose_unsynced", "s"), ("heal", "s"), ("start", "s"),
        ("cut", "s", "namesrv"), ("cut", "n", "namesrv"), ("cut", "t", "namesrv"),
    ]  # fmt: skip
    assert actor.dropped == 30
    assert actor.groups == [Group("g", "s", None), Group("h", "n", "t")]
