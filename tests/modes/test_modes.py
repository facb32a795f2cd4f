"""The measurement of the ways to deploy: its pieces, and one round of it with real processes. `make modes` is the whole."""

import json
import mmap
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cell
import pytest
from cell import Round, run_round
from figures import Figures, Span, Times, figures_of, out_of_order
from mode_faults import FAULTS
from mode_results import Cell, Results, all_cells
from modes_page import markdown, render, seconds
from our_cluster import OurCluster
from power import PowerSwitch, compile_library
from products import clients_of, cluster_of, title_of
from promises import CHECKS, FILE, load, verdicts
from run_modes import Task, chosen
from traffic import OK
from under_test import Delivered, Sent

from kit.children import Child
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.app.cluster.plan import MODES

GOOD = Figures(
    writable_hit=Span(0.2, 0.3),
    writable_any=Span(0.1, 0.1),
    stored_hit=Span(0.2, 0.3),
    readable_hit=Span(0.5, 0.2),
    sends=100,
    failed={},
    acknowledged=500,
    acknowledged_hit_per_s=50.0,
    lost=0,
    unreadable=0,
    unconsumed=0,
    twice=0,
    stored_twice=0,
    out_of_order=0,
    send_ms=1.5,
)
NEVER = Span(None, 1.0)


# --- The figures ---------------------------------------------------------------------------------------------------------


def sent(number: int, begun: float, status: str = OK, group: str = "a", took: float = 0.1) -> Sent:
    return Sent(number, begun, begun + took, status, group, 0, number)


def got(at: float, number: int, group: str = "a", queue_id: int = 0) -> Delivered:
    return Delivered(at, number, group, queue_id, number)


TIMES = Times(began=0.0, broken=10.0, mending=20.0, ended=30.0)


def test_a_send_counts_from_its_begin_and_in_its_phase() -> None:
    """An answer that was on its way when the fault came says nothing of what can be written after it."""
    sends = [sent(1, 9.95), sent(2, 12.0, group="b"), sent(3, 15.0, "NO_ANSWER", ""), sent(4, 21.0), sent(5, 22.0)]
    found = figures_of(TIMES, "a", sends, [], [], set())
    assert found.writable_any.in_fault == pytest.approx(2.1)
    assert found.writable_hit.in_fault is None
    assert found.writable_hit.after_mend == pytest.approx(1.1)
    assert (found.sends, found.failed, found.failed_sends) == (2, {"NO_ANSWER": 1}, 1)
    assert found.acknowledged == 4


def test_a_message_that_is_stored_without_its_slave_is_no_success() -> None:
    sends = [sent(1, 11.0, "SLAVE_NOT_AVAILABLE"), sent(2, 25.0)]
    found = figures_of(TIMES, "a", sends, [], [], {1, 2})
    assert found.writable_hit == Span(None, pytest.approx(5.1))
    assert found.stored_hit.in_fault == pytest.approx(1.1)
    assert (found.acknowledged, found.lost) == (1, 0)


def test_what_is_read_of_the_group_that_was_hit() -> None:
    delivered = [got(9.0, 1), got(10.5, 2, "b"), got(13.0, 3), got(20.5, 4)]
    found = figures_of(TIMES, "a", [], delivered, [], set())
    assert found.readable_hit == Span(pytest.approx(3.0), pytest.approx(0.5))


def test_what_is_lost_unread_or_there_twice() -> None:
    sends = [sent(number, 1.0) for number in range(5)] + [sent(5, 1.0, "NO_ANSWER", "")]
    delivered = [got(2.0, 0), got(2.0, 1), got(3.0, 1), got(4.0, 2)]
    readable = [got(40.0, 0), got(40.0, 1), got(40.0, 1, "b"), got(40.0, 2)]
    found = figures_of(TIMES, "a", sends, delivered, readable, stored={0, 1, 2, 3, 5})
    assert (found.acknowledged, found.lost, found.unreadable, found.unconsumed) == (5, 1, 2, 2)
    assert (found.twice, found.stored_twice) == (1, 1)
    assert found.acknowledged_hit_per_s == pytest.approx(0.5)
    assert found.send_ms == pytest.approx(100.0)


def test_the_order_is_that_of_each_queue_and_of_first_deliveries() -> None:
    assert out_of_order([got(1, 0), got(2, 2), got(3, 1, queue_id=1), got(4, 3)]) == 0
    assert out_of_order([got(1, 0), got(2, 2), got(3, 0), got(4, 2), got(5, 3)]) == 0  # again is not behind
    assert out_of_order([got(1, 5), got(2, 1), got(3, 2), got(4, 6)]) == 2


def test_figures_come_back_from_json() -> None:
    found = json.loads(json.dumps(GOOD.to_json()))
    assert Figures.from_json(found | {"seed": "x"}) == GOOD


# --- The promises --------------------------------------------------------------------------------------------------------

# name of a check -> figures that keep it, and figures that do not
EXAMPLES = {
    "nobody writes": (replace(GOOD, writable_any=NEVER), GOOD),
    "somebody writes": (GOOD, replace(GOOD, writable_any=NEVER)),
    "nobody reads": (replace(GOOD, readable_hit=NEVER), GOOD),
    "somebody reads": (replace(GOOD, readable_hit=Span(9.0, None)), replace(GOOD, readable_hit=NEVER)),
    "reads at once": (GOOD, replace(GOOD, readable_hit=Span(1.1, None))),
    "the group is not written": (replace(GOOD, writable_hit=NEVER), GOOD),
    "the group is written at once": (GOOD, replace(GOOD, writable_hit=NEVER)),
    "no send fails": (GOOD, replace(GOOD, failed={"NO_ANSWER": 1})),
    "none lost": (GOOD, replace(GOOD, lost=1)),
    "few lost": (replace(GOOD, lost=50), replace(GOOD, lost=51)),
    "lost less than 0.1 s": (replace(GOOD, lost=5), replace(GOOD, lost=6)),
    "all readable": (GOOD, replace(GOOD, unreadable=1)),
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_holds_and_fails(name: str) -> None:
    keeps, breaks = EXAMPLES[name]
    assert CHECKS[name](keeps) == ""
    assert CHECKS[name](breaks) != ""


def test_each_promise_is_about_a_cell_and_each_check_is_used() -> None:
    promises, cells = load(), all_cells()
    for promise in promises:
        about = [cell for cell in cells if promise.is_about(cell.mode, cell.flush, cell.fault)]
        wanted = len(promise.modes) * len(promise.flushes) * len(promise.faults)
        lacking = sum(not MODES[mode].has_slaves for mode in promise.modes) * len(promise.flushes)
        lacking *= sum(FAULTS[fault].needs_slave for fault in promise.faults)
        assert len(about) == wanted - lacking > 0, promise.id
    assert {name for promise in promises for name in promise.checks} == CHECKS.keys()
    assert {promise.article for promise in promises} == {"000", "003"}


def test_a_promise_is_broken_by_one_round() -> None:
    promises = [promise for promise in load() if promise.id == "sync-never-loses"]
    (kept,) = verdicts(promises, "sync-2m-2s", "async", "kill", [GOOD, GOOD])
    (broken,) = verdicts(promises, "sync-2m-2s", "async", "kill", [GOOD, replace(GOOD, lost=3)])
    assert (kept.is_kept, broken.is_kept, broken.found) == (True, False, ("3 lost",))
    assert verdicts(promises, "async-2m-2s", "async", "kill", [GOOD]) == []


def test_a_name_that_is_not_known_is_told(tmp_path: Path) -> None:
    file = tmp_path / "promises.toml"
    file.write_text(FILE.read_text("utf-8").replace('"nobody writes"', '"nobody laughs"'), "utf-8")
    with pytest.raises(ValueError, match="one-master-all-down: nobody laughs: expected some of nobody writes"):
        load(file)
    file.write_text(FILE.read_text("utf-8") * 2, "utf-8")
    with pytest.raises(ValueError, match="one-master-all-down is there twice"):
        load(file)


# --- The cells, the results and the page ---------------------------------------------------------------------------------


def test_each_fault_meets_each_way_that_has_what_it_hits() -> None:
    cells = all_cells()
    assert len(cells) == len(set(cells)) == 2 * (2 * 6 + 2 * 9)
    assert not any(cell.mode in ("1m", "2m") and "slave" in cell.fault for cell in cells)


def test_cells_are_chosen_by_patterns() -> None:
    assert chosen([]) == all_cells()
    assert chosen(["2m/kill"]) == [Cell("2m", "async", "kill"), Cell("2m", "sync", "kill")]
    assert chosen(["2m/sync/kill"]) == [Cell("2m", "sync", "kill")]
    both = [Cell("2m", "sync", "kill", product) for product in ("ours", "5.3.3")]
    assert chosen(["2m/sync/kill"], ["5.3.3", "ours"]) == both
    assert {cell.fault for cell in chosen(["*/part-*"])} == {"part-slave", "part-namesrv"}
    with pytest.raises(ValueError, match="--only 2m/slave: found no cell"):
        chosen(["2m/slave"])


def result(figures: Figures, ended: list[str]) -> Round:
    return Round("1/0", figures, 12.0, {"broker-a": 4711}, ended, [1], 0.7)


def test_results_come_back_from_their_file_and_are_shown(tmp_path: Path) -> None:
    results, promises = Results.new({"ours": "a <product>"}, 500, 1), load()
    results.add(Cell("sync-2m-2s", "async", "power"), result(GOOD, ["broker-a-s: ended by itself with status 2: a <reason>"]))
    results.add(Cell("sync-2m-2s", "async", "power"), result(replace(GOOD, lost=12_345, readable_hit=NEVER), []))
    results.add(Cell("1m", "sync", "kill"), "a client ended")
    file = tmp_path / "modes.json"
    results.write(file, promises)
    again = Results.read(file)
    assert again == results
    page = render(again, promises)
    for text in (
        "a &lt;product&gt;",
        "a &lt;reason&gt;",
        "0 to 12,345",
        "0.50 s in 1 of 2",
        "not measured: a client ended",
        "4,711",
    ):
        assert text in page, text
    assert "<script" not in page
    written = json.loads(file.read_text())["cells"][1]
    assert {each["id"]: each["is_kept"] for each in written["promises"]} == {
        "sync-no-single-point-data": True,
        "sync-no-single-point-service": False,
        "sync-no-delay": False,
        "no-promotion": False,
        "slaves-only-read": False,
        "sync-never-loses": False,
    }
    table = markdown(again, promises)
    assert "| power cut of a master |  |  |  | w 0.10 s, r no, lost 0 to 12,345, unreadable 0 ≠ |" in table
    file.write_text(file.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(ValueError, match="format 9, expected 1 or 2"):
        Results.read(file)


@pytest.mark.parametrize(
    ("after_mend", "text"), [(3.04, "<small>after 3.0 s of mending</small>"), (None, "<small>nor after it was mended</small>")]
)
def test_what_did_not_come_in_the_fault_came_after_it_or_not_at_all(after_mend: float | None, text: str) -> None:
    results = Results.new({"ours": "a product"}, 500, 1)
    results.add(Cell("1m", "sync", "kill"), result(replace(GOOD, writable_hit=Span(None, after_mend)), []))
    assert text in render(results, load())


def test_products_stand_beside_each_other() -> None:
    results, promises = Results.new({"ours": "a product", "4.9.8": "another <one>"}, 500, 1), load()
    for product, lost in (("ours", 0), ("4.9.8", 7)):
        results.add(Cell("2m", "sync", "power", product), result(replace(GOOD, lost=lost, send_ms=2.25 + lost), []))
    page = render(results, promises)
    for text in (
        "another &lt;one&gt;",
        "<th>product</th>",
        "<td>4.9.8</td>",
        "<td>9.2</td>",
        "<code>4.9.8/2m/sync/power</code>",
    ):
        assert text in page, text
    assert page.index("<td>ours</td>") < page.index("<td>4.9.8</td>")
    table = markdown(results, promises).splitlines()
    assert table[0].startswith("| | | `1m` |")
    assert [line.split(" | ")[:2] for line in table[2:]] == [
        ["| power cut of a master", product] for product in ("ours", "4.9.8")
    ]
    assert ["lost 7" in line for line in table[2:]] == [False, True]


def test_a_product_is_a_cluster_and_its_clients() -> None:
    assert [(cluster_of(each), clients_of(each)) for each in ("ours", "5.3.3", "ours+4.9.8")] == [
        *(("ours", "ours"), ("5.3.3", "ours"), ("ours", "4.9.8")),
    ]
    assert title_of("4.9.8+5.3.3") == "Apache RocketMQ 4.9.8 with the Java clients of 5.3.3"
    tasks = [
        Task(Cell("2m", "sync", fault, each), 0, "", 1, Path(), Path()) for each in ("ours", "ours+4.9.8") for fault in FAULTS
    ]
    assert {task.fault.window_s for task in tasks[: len(FAULTS)]} == {12.0, 30.0, 165.0}
    assert {task.fault.window_s for task in tasks[len(FAULTS) :]} == {40.0, 165.0}  # clients ask for routes every 30 s


def test_results_of_before_there_were_products_are_ours(tmp_path: Path) -> None:
    results, file = Results.new({"ours": "a product"}, 500, 1), tmp_path / "modes.json"
    results.add(Cell("2m", "sync", "power"), result(GOOD, []))
    results.write(file, load())
    old = json.loads(file.read_text())
    old["format"], old["product"] = 1, old.pop("products")["ours"]
    for each in old["cells"]:
        del each["product"]
    file.write_text(json.dumps(old))
    assert Results.read(file) == results


def test_seconds_have_the_digits_that_matter() -> None:
    assert [seconds(value) for value in (0.0, 0.999, 1.0, 99.94, 130.4)] == ["0.00 s", "1.00 s", "1.0 s", "99.9 s", "130 s"]


class _Stopped:
    """A cluster whose measuring process does not run for a while."""

    def ended(self) -> list[str]:
        return []


def test_a_round_in_which_this_process_was_stopped_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = SimpleNamespace(error=None)
    monkeypatch.setattr(cell.time, "sleep", lambda _: None)
    moments = iter([0.0, 0.1, 4.0])
    monkeypatch.setattr(cell.time, "monotonic", lambda: next(moments))
    with pytest.raises(cell.NotMeasuredError, match="this process was stopped for 4 s"):
        cell.watch(_Stopped(), traffic, [], 10.0)  # type: ignore[arg-type]


# --- The power switch ----------------------------------------------------------------------------------------------------

WRITER = """
import mmap, os, sys, time
from pathlib import Path
root = Path(sys.argv[1])
log = os.open(root / "commitlog" / "0", os.O_RDWR | os.O_CREAT)
os.ftruncate(log, 100)
os.pwrite(log, b"synced", 0)
os.fdatasync(log)
os.pwrite(log, b"not", 6)
(root / "never").write_bytes(b"not a byte")
page = mmap.PAGESIZE
mapped = os.open(root / "mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(mapped, 3 * page)
with mmap.mmap(mapped, 3 * page) as memory:
    memory[:] = b"old" * page
    memory.flush(page, page)
    memory[page : page + 3] = b"new"  # after the sync
for number in range(20):  # the inode of one may be that of a later one
    new = root / "table.new"
    with new.open("wb") as table:
        table.write(b"table %d" % number)
        if number < 19:
            table.flush()
            os.fsync(table.fileno())
    new.replace(root / "table")
(root.parent / "outside").write_bytes(b"outside")
print("here", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "commitlog").mkdir(parents=True)
    (root / "before").write_bytes(b"there before")
    switch = PowerSwitch(root, tmp_path / "mirror", compile_library(tmp_path))
    switch.note_all(root)
    child = Child([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, env=dict(switch.environment))
    assert child.stdout is not None
    assert child.stdout.readline() == b"here\n"
    child.kill()
    child.wait(PATIENCE_S)
    assert switch.cut(root) == len(b"not")
    assert (root / "commitlog" / "0").read_bytes() == b"synced".ljust(100, b"\0")
    assert (root / "never").read_bytes() == bytes(10)
    page = mmap.PAGESIZE
    assert (root / "mapped").read_bytes() == bytes(page) + (b"old" * page)[page : 2 * page] + bytes(page)
    assert (root / "table").read_bytes() == bytes(len("table 19"))  # the last one was not synced
    assert (root / "before").read_bytes() == b"there before"
    assert (tmp_path / "outside").read_bytes() == b"outside"
    assert switch.cut(root) == 0


# --- A round -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_a_round_measures_what_a_lost_machine_takes(tmp_path: Path) -> None:
    """Without a slave: nothing is written or read meanwhile, the name server knows nothing of it, and the loss is noticed."""
    cluster = OurCluster("1m", "async", tmp_path / "cluster", compile_library(tmp_path))
    phases: list[str] = []
    fault = replace(FAULTS["machine"], window_s=2.0)
    found = run_round(cluster, fault, "1", 200, phases.append)
    assert phases == ["starting", "warming up", "machine gone", "mending", "reading all"]
    figures = found.figures
    assert (figures.writable_any.in_fault, figures.readable_hit.in_fault) == (None, None)
    assert figures.writable_hit.after_mend is not None and figures.readable_hit.after_mend is not None
    assert figures.lost == figures.unreadable > 200
    assert figures.acknowledged > figures.lost
    assert figures.failed_sends > 0
    assert figures.twice == figures.stored_twice == 0
    assert (found.ended, found.routed, found.dropped) == ([], [0], {})
    assert found.routed_again_s is not None
    assert 1.9 < found.window_s < PATIENCE_S


def test_the_rate_of_a_group_is_of_its_acknowledged_sends_before_the_fault() -> None:
    """It is what "few lost" is measured by."""
    sends = [sent(1, 1.0), sent(2, 2.0), sent(3, 3.0, group="b"), sent(4, 4.0, "SLAVE_NOT_AVAILABLE", took=9.0)]
    sends += [sent(5, 5.0, "SLAVE_NOT_AVAILABLE", took=9.0), sent(6, 6.0, "SLAVE_NOT_AVAILABLE", took=9.0)]
    sends += [sent(7, 7.0, "SLAVE_NOT_AVAILABLE", took=9.0), sent(8, 12.0)]
    found = figures_of(TIMES, "a", sends, [], [], set())
    assert found.acknowledged_hit_per_s == pytest.approx(0.2)
    assert found.send_ms == pytest.approx(100.0)


def test_what_the_consumer_got_is_not_what_a_new_reader_gets() -> None:
    sends = [sent(number, 1.0) for number in range(5)]
    delivered = [got(2.0, 0), got(3.0, 0), got(2.0, 1), got(3.0, 1), got(4.0, 2)]
    readable = [got(40.0, 0), got(40.0, 0, "b"), *(got(40.0, number) for number in range(1, 4))]
    found = figures_of(TIMES, "a", sends, delivered, readable, stored=set(range(5)))
    assert (found.unreadable, found.unconsumed) == (1, 2)
    assert (found.twice, found.stored_twice) == (2, 1)


def test_what_was_not_measured_keeps_no_promise(tmp_path: Path) -> None:
    results = Results.new({"ours": "a product", "4.9.8": "another"}, 500, 1)
    results.add(Cell("sync-2m-2s", "async", "power"), "a client ended")
    file = tmp_path / "modes.json"
    results.write(file, load())
    assert [each["promises"] for each in json.loads(file.read_text())["cells"]] == [[]]
    assert results.in_use() == {"ours": "a product"}


def test_few_messages_are_few_at_any_rate() -> None:
    slow = replace(GOOD, acknowledged_hit_per_s=5.0)
    assert CHECKS["lost less than 0.1 s"](replace(slow, lost=1)) == "1 lost, which is 0.2 s"
    assert CHECKS["few lost"](replace(slow, lost=5)) == ""
