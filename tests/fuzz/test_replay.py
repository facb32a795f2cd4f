"""A replay tells each event, each state of a slave and of a link, and each verdict, in words that are pinned here."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from kit.schedules import ALL, SETTINGS, put, schedule_of
from rocketmq_ha.fuzz import lockstep, replay
from rocketmq_ha.fuzz.lockstep import Lockstep, StepOutcome
from rocketmq_ha.fuzz.schedule import LinkSchedule
from rocketmq_ha.fuzz.world import ImplementationWorld
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Implementation, Reference, Schedule, World
from rocketmq_ha.reference.events import (
    Clog,
    Connect,
    Cut,
    DeleteFile,
    DeliverFrames,
    DeliverReports,
    DiskFull,
    Event,
    ForgeHeader,
    ForgeReport,
    Grant,
    RestartMaster,
    RestartSlave,
    Resume,
    Tick,
)
from rocketmq_ha.spec.profile import CLASSIC, HARDENED


def shown(schedule: LinkSchedule) -> tuple[StepOutcome, str]:
    text = io.StringIO()
    outcome = replay.show(schedule, Console(file=text, width=300, highlight=False))
    return outcome, text.getvalue()


def table(text: str) -> list[list[str]]:
    """The cells of the rows, without the header."""
    below = text.partition("unless the last line says otherwise.\n")[2].splitlines()
    return [re.split(r" {2,}", line.strip()) for line in below if re.match(r" *\d+ +\d+  ", line)]


# (event, its text, master, s0, link of s0, s1, link of s1), after each step of one run.
CLASSIC_TABLE: Sequence[tuple[Event, str, str, str, str, str, str]] = (
    (put(10), "put 10 B", "102", "0 -", "", "0 -", ""),
    (put(20, wait=True), "put 20 B and wait", "214 1xSLAVE_NOT_AVAILABLE", "0 -", "", "0 -", ""),
    (Connect(1, 20, ALL), "s1 connects", "214", "0 -", "", "0 .", "?"),
    (Tick(5001), "5001 ms pass", "214", "0 -", "", "0 .", "? <8"),
    (DeliverReports(1, 5), "master receives up to 5 B of s1", "214", "0 -", "", "0 .", "? <3"),
    (DeliverReports(1, -1), "master receives all but 1 B of s1", "214", "0 -", "", "0 .", "? <1"),
    (DeliverReports(1, 5), "master receives up to 5 B of s1", "214", "0 -", "", "0 .", "@100 =8 >20"),
    (DeliverFrames(1, -5), "s1 receives all but 5 B", "214", "0 -", "", "0 h+3", "@100 =8 >5"),
    (DeliverFrames(1, 0), "s1 receives up to 0 B", "214", "0 -", "", "0 h+3", "@100 =8 >5"),
    (Grant(1, 50), "socket to s1 takes 50 B", "214", "0 -", "", "0 h+3", "@100 =58 >55"),
    (DeliverFrames(1, 9), "s1 receives up to 9 B", "214", "0 -", "", "0 b+0", "@100 =58 >46"),
    (DeliverFrames(1, 21), "s1 receives up to 21 B", "214", "0 -", "", "0 b+21", "@100 =58 >25"),
    (put(40, wait=True, pauses=True), "put 40 B and wait, but pause first", "346", "0 -", "", "0 b+21", "@100 =58 >25"),
    (Resume(1), "paused put 1 goes on", "346", "0 -", "", "0 b+21", "@100 =58 >25"),
    (Resume(0), "paused put 0 goes on", "346 w1", "0 -", "", "0 b+21", "@100 =58 >25"),
    (put(50, wait=True), "put 50 B and wait", "488 w2", "0 -", "", "0 b+21", "@100 =58 >25"),
    (Clog(1, 3), "! socket of s1 takes 3 B, no more", "488 w2", "0 -", "", "0 b+21", "@100 =58 >25"),
    (ForgeHeader(1, -4), "! forged header of size -4 to s1", "488 w2", "0 -", "", "0 b+21", "@100 =58 >25"),
    (ForgeReport(1, 500), "! forged report 500 on s1", "488 w2", "0 -", "", "0 b+21", "@100 =58 >25 <8"),
    (DeliverReports(1, 8), "master receives up to 8 B of s1", "488 2xPUT_OK", "0 -", "", "0 b+21", "@100 =58 >25"),
    (Cut(1, "slave"), "! link of s1 cut, told: slave", "488", "0 -", "", "0 -", "+1 stale"),
    (Connect(1, 0, ALL), "s1 connects", "488", "0 -", "", "0 .", "? +1 stale"),
    (Cut(1, "slave"), "! link of s1 cut, told: slave", "488", "0 -", "", "0 -", "+2 stale"),
    (Connect(1, 0, ALL), "s1 connects", "488", "0 -", "", "0 .", "? +2 stale"),
    (Cut(1, "master"), "! link of s1 cut, told: master", "488", "0 -", "", "0 .", "x ~ +2 stale"),
    (Connect(0, 9, ALL), "s0 connects", "488", "0 .", "?", "0 .", "x ~ +2 stale"),
    (RestartSlave(1), "! s1 killed and restarted", "488", "0 .", "?", "0 -", "+2 stale"),
    (RestartMaster(clean=True), "! master stopped and restarted", "488", "0 -", "", "0 -", ""),
    (RestartMaster(clean=False), "! master killed and restarted", "488", "0 -", "", "0 -", ""),
    (
        RestartMaster(clean=False, lost=2),
        "! master killed and restarted, without its last 2 records",
        "214",
        "0 -",
        "",
        "0 -",
        "",
    ),
    (DiskFull(0, is_full=True), "! disk of s0 is full", "214", "0 -", "", "0 -", ""),
    (DiskFull(0, is_full=False), "disk of s0 has room again", "214", "0 -", "", "0 -", ""),
    (DeleteFile(), "! master deletes its first file", "214", "0 -", "", "0 -", ""),
)


def test_each_event_and_each_state_has_its_text() -> None:
    events = [event for event, *_ in CLASSIC_TABLE]
    outcome, text = shown(schedule_of(*events, profile=CLASSIC, slaves=2, seed=31))
    assert outcome.verdict == "ok"
    first = text.splitlines()[0]
    assert first == "seed 31: world link, classic, 2 slave(s), files of 1000, batches of 100, read buffers 16 and 4000 bytes"
    titles = text.partition("unless the last line says otherwise.\n")[2].splitlines()[0]
    assert re.split(r" {2,}", titles.strip()) == [
        "op",
        "ms",
        "event",
        "master",
        "s0",
        "link of s0",
        "s1",
        "link of s1",
        "verdict",
    ]
    ms = 0
    for at, (row, (event, *cells)) in enumerate(zip(table(text), CLASSIC_TABLE, strict=True)):
        ms += event.ms if isinstance(event, Tick) else 1 if isinstance(event, RestartMaster) and event.lost else 0
        assert row == [str(at), str(ms), *filter(None, cells), "ok"], event
    assert text.splitlines()[-1] == f"{len(events)} operations, both sides agree after every one"


def test_a_link_that_has_sent_all_shows_its_offset_alone() -> None:
    events = (put(10), Connect(0, ALL, ALL), DeliverReports(0, ALL), DeliverFrames(0, ALL), DeliverReports(0, ALL))
    _, text = shown(schedule_of(*events, profile=HARDENED))
    assert [row[4:6] for row in table(text)[2:]] == [["0 .", "@102 >126"], ["102 .", "@102 <8"], ["102 .", "@102"]]
    assert text.splitlines()[-1] == "5 operations, both sides agree after every one"


def test_a_failing_run_ends_with_its_last_step_and_both_sides() -> None:
    settings = replace(SETTINGS, master_read_buffer_size=12)  # the implementation refuses it at a connection
    outcome, text = shown(schedule_of(put(10), Tick(5), Connect(0, 1, 1), put(20), settings=settings))
    assert (outcome.verdict, outcome.op_index) == ("error", 2)
    lines = text.splitlines()
    assert lines[-2] == "error at operation 2: s0 connects"
    assert re.fullmatch(r"  ha/master\.py:\d+: AssertionError", lines[-1])
    assert [row[-1] for row in table(text)] == ["ok", "ok", "error"]


def test_each_difference_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    of_schedule = lockstep.of_schedule

    def unequal(schedule: LinkSchedule, directory: Path) -> Lockstep[Reference, Implementation]:
        both = of_schedule(schedule, directory)
        both.implementation.apply(put(10))
        return both

    monkeypatch.setattr(lockstep, "of_schedule", unequal)
    outcome, text = shown(schedule_of(Tick(1), Tick(1)))
    assert outcome.verdict == "divergence"
    assert text.splitlines()[-3:-1] == [
        "divergence at operation 0: 1 ms pass",
        "  master.max_offset: reference 0, implementation 102",
    ]
    assert text.splitlines()[-1].startswith("  master.log: reference 0 bytes, from 0: end, implementation 102 bytes")


def above_the_table(schedule: Schedule, width: int) -> str:
    """What a replay prints before the rows."""
    text = io.StringIO()
    replay.show(schedule, Console(file=text, width=width, highlight=False, soft_wrap=True))  # as console_for makes it
    return text.getvalue().partition("otherwise.\n")[0]


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=lambda world: world.name)
def test_what_stands_above_the_table_fits_the_terminal_and_loses_no_word(world: World[Any]) -> None:
    drawn = world.draw(4)
    narrow, wide = (above_the_table(replace(drawn, events=drawn.events[:1]), width) for width in (80, 1_000))
    assert narrow.split() == wide.split()
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines()))


def test_a_detail_that_is_too_wide_goes_on_under_its_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in brackets is no markup."""
    fault = f"[red] {'word ' * 30}end"

    def fails(*_: object) -> NoReturn:
        raise RuntimeError(fault)

    monkeypatch.setattr(ImplementationWorld, "apply", fails)
    text = io.StringIO()
    replay.show(schedule_of(put(10)), Console(file=text, width=80, highlight=False, soft_wrap=True))
    lines = text.getvalue().partition("error at operation 0: put 10 B\n")[2].splitlines()
    assert len(lines) == 3
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines)
    assert " ".join(text.getvalue().split()).endswith(fault)


def test_rows_without_an_effect_are_dim_and_a_failing_one_is_red() -> None:
    text = io.StringIO()
    settings = replace(SETTINGS, master_read_buffer_size=12)
    console = Console(file=text, width=300, highlight=False, force_terminal=True, color_system="standard")
    replay.show(schedule_of(put(10), Tick(5), Connect(0, 1, 1), settings=settings), console)
    lines = text.getvalue().splitlines()
    styles = {name: next(line for line in lines if name in line) for name in ("put 10 B", "5 ms pass", "s0 connects")}
    assert "\x1b[2m" in styles["5 ms pass"]
    assert "\x1b[2m" not in styles["put 10 B"]
    assert "\x1b[1;31m" in styles["s0 connects"]
    assert "\x1b[1;31m" not in styles["put 10 B"] + styles["5 ms pass"]


def test_a_replay_closes_both_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def close(world: ImplementationWorld) -> None:
        closed.append(world)

    monkeypatch.setattr(ImplementationWorld, "close", close)
    shown(schedule_of(put(10)))
    assert len(closed) == 1
