"""Each figure of verify, recover and resync stands at its name, in the line and in the JSON object. No two are equal."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.command_line import invoke
from rocketmq_ha.impl.app import recover as recover_app
from rocketmq_ha.impl.app.verify import Verified, compare_logs, verdict_of
from rocketmq_ha.impl.cli import outcome as outcome_module
from rocketmq_ha.impl.cli.outcome import line_of
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt, StoreFull
from rocketmq_ha.impl.store.derived.verify import DerivedSummary
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, Difference, Summary
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan

Fields = dict[str, Any]

# --- verify --------------------------------------------------------------------------------------------------------------

A = Summary(Path("/a b"), files=11, messages=12, blanks=13, min_offset=1_400, max_offset=15_000, tail_size=0)
B = Summary(Path("/b"), files=21, messages=22, blanks=23, min_offset=2_400, max_offset=14_000, tail_size=0)
DERIVED = DerivedSummary(31, 32, 33, 34, 35, 36, "4.3.0-5.3.4")
A_LINE = "store='/a b' files=11 messages=12 bytes=13600 blanks=13 min_offset=1400 max_offset=15000 tail=0"
B_LINE = "store=/b files=21 messages=22 bytes=11600 blanks=23 min_offset=2400 max_offset=14000 tail=0"
DERIVED_WORDS = " queues=31 entries=32 entries_missing=33 index_files=34 keys=35 keys_missing=36 keys_as=4.3.0-5.3.4"
SAME = Comparison(2_400, 14_000, None, 41)
AT = Difference(9_999, Path("/a b/f"), 0x0A, Path("/b/g"), 0xFB)


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Two empty stores; what is found in them is given by each test."""
    for name in "ab":
        CommitLog.open(tmp_path / name, file_size=1024).close()
    return tmp_path / "a", tmp_path / "b"


def verified(
    stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, mine: Verified, theirs: Verified | None, found: Comparison
) -> tuple[int, list[str], Fields]:
    """Run verify twice, of one store or two. Returns: the exit status, the lines, the JSON object."""
    monkeypatch.setattr(
        "rocketmq_ha.impl.cli.verify.verify_store",
        lambda reader, _: mine if reader.store_dir == stores[0] else theirs,
    )

    def compare(ours: LogReader, other: LogReader, _: object) -> Comparison:
        assert (ours.store_dir, other.store_dir) == stores
        return found

    monkeypatch.setattr("rocketmq_ha.impl.cli.verify.compare_logs", compare)
    arguments = ("verify", *stores[: 1 if theirs is None else 2])
    in_lines, in_json = invoke(*arguments), invoke(*arguments, "--json")
    assert in_lines.exit_code == in_json.exit_code
    return in_lines.exit_code, in_lines.stdout.splitlines(), json.loads(in_json.stdout)


def test_a_log_alone(stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines, told = verified(stores, monkeypatch, Verified(A, None), None, SAME)
    assert (status, lines) == (0, [f"{A_LINE} verdict=OK"])
    nothing = dict.fromkeys(("queues", "entries", "entries_missing", "index_files", "keys", "keys_missing", "keys_as"))
    figures = {"files": 11, "messages": 12, "bytes": 13_600, "blanks": 13, "min_offset": 1_400, "max_offset": 15_000, "tail": 0}
    assert told == {"stores": [{"store": "/a b"} | figures | nothing], "comparison": None, "verdict": "OK", "error": None}


def test_a_store_with_queues_and_a_tail(stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Verified(replace(A, tail_size=55), DERIVED)
    status, lines, told = verified(stores, monkeypatch, mine, None, SAME)
    assert (status, lines) == (
        0,
        [
            "/a b: tail of 55 bytes at offset 15000, an incomplete record; no error",
            f"{A_LINE.replace('tail=0', 'tail=55')}{DERIVED_WORDS} verdict=OK",
        ],
    )
    found = told["stores"][0]
    assert [found[name] for name in ("queues", "entries", "entries_missing", "index_files")] == [31, 32, 33, 34]
    assert [found[name] for name in ("keys", "keys_missing", "keys_as", "tail")] == [35, 36, "4.3.0-5.3.4", 55]


@pytest.mark.parametrize(
    ("mine", "theirs", "found", "status", "last", "ahead"),
    [
        pytest.param(
            A, B, SAME, 0,
            "compared_from=2400 compared_to=14000 compared_bytes=11600 padding_differences=41 ahead='/a b' ahead_by=1000 "
            "verdict=EQUAL",
            ("/a b", 1_000),
            id="the first is ahead",
        ),
        pytest.param(
            A, replace(B, max_offset=15_007), SAME, 0,
            "compared_from=2400 compared_to=14000 compared_bytes=11600 padding_differences=41 ahead=/b ahead_by=7 "
            "verdict=EQUAL",
            ("/b", 7),
            id="the second is ahead",
        ),
        pytest.param(
            A, replace(B, max_offset=15_000), Comparison(2_400, 15_000, None, 0), 0,
            "compared_from=2400 compared_to=15000 compared_bytes=12600 padding_differences=0 ahead=neither ahead_by=0 "
            "verdict=EQUAL",
            (None, 0),
            id="level",
        ),
        pytest.param(
            A, B, Comparison(2_400, 9_999, AT, 0), 1,
            "compared_from=2400 compared_to=9999 compared_bytes=7599 padding_differences=0 ahead='/a b' ahead_by=1000 "
            "verdict=DIFFERENT",
            ("/a b", 1_000),
            id="different",
        ),
        pytest.param(
            A, B, Comparison(2_400, 2_400, None, 0), 1,
            "compared_from=2400 compared_to=2400 compared_bytes=0 padding_differences=0 ahead='/a b' ahead_by=1000 "
            "verdict=NO_OVERLAP",
            ("/a b", 1_000),
            id="no overlap",
        ),
    ],
)  # fmt: skip
def test_two_stores(
    mine: Summary,
    theirs: Summary,
    found: Comparison,
    status: int,
    last: str,
    ahead: tuple[str | None, int],
    stores: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = verified(stores, monkeypatch, Verified(mine, None), Verified(theirs, None), found)
    b_line = B_LINE.replace("14000", str(theirs.max_offset)).replace("11600", str(theirs.max_offset - 2_400))
    differ = ["the logs differ at offset 9999: /a b/f has 0x0a, /b/g has 0xfb"] if found.difference else []
    assert result[:2] == (status, [A_LINE, b_line, *differ, last])
    told = result[2]["comparison"]
    assert (told["ahead"], told["ahead_by"], told["padding_differences"]) == (*ahead, found.padding_differences)
    assert (told["compared_from"], told["compared_to"]) == (found.start, found.stop)
    assert told["compared_bytes"] == found.stop - found.start
    at = {"offset": 9_999, "files": ["/a b/f", "/b/g"], "bytes": [0x0A, 0xFB]}
    assert told["difference"] == (at if found.difference else None)
    assert [each["store"] for each in result[2]["stores"]] == ["/a b", "/b"]


EMPTY = Summary(Path("e"), 0, 0, 0, 7, 7, 0)


@pytest.mark.parametrize(
    ("found", "mine", "theirs", "expected"),
    [
        (Comparison(5, 9, None, 1), A, B, "EQUAL"),
        (Comparison(5, 5, AT, 0), A, B, "DIFFERENT"),
        (Comparison(5, 5, None, 0), A, EMPTY, "NO_OVERLAP"),
        (Comparison(5, 5, None, 0), EMPTY, A, "NO_OVERLAP"),
        (Comparison(7, 7, None, 0), EMPTY, EMPTY, "EQUAL"),
    ],
)
def test_nothing_compared_shows_nothing_unless_both_logs_are_empty(
    found: Comparison, mine: Summary, theirs: Summary, expected: str
) -> None:
    assert verdict_of(found, mine, theirs) == expected


def test_the_progress_of_a_comparison_is_over_what_both_have(tmp_path: Path) -> None:
    shown: list[tuple[str, int]] = []
    told: list[int] = []
    ends = []
    for name, size in (("a", 900), ("b", 700)):
        with CommitLog.open(tmp_path / name, file_size=1024) as log:
            log.append_data(1024, [memoryview(bytes(size))])
            ends.append(log.max_offset)

    def show(what: str, total: int) -> Any:
        shown.append((what, total))
        return nullcontext(told.append)

    with LogReader(tmp_path / "a") as mine, LogReader(tmp_path / "b") as theirs:
        compare_logs(mine, theirs, show)
        assert shown == [("comparing", min(mine.max_offset, theirs.max_offset) - 1024)]
        assert all(0 <= done <= shown[0][1] for done in told)


def test_the_progress_of_logs_that_begin_apart_is_from_the_later_beginning(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 1024)):
        with CommitLog.open(tmp_path / name, file_size=1024) as log:
            for base in range(first, 2048, 1024):
                log.append_data(base, [memoryview(bytes(1023) + b"x")])
    shown: list[int] = []
    told: list[int] = []

    def show(_: str, total: int) -> Any:
        shown.append(total)
        return nullcontext(told.append)

    with LogReader(tmp_path / "a") as mine, LogReader(tmp_path / "b") as theirs:
        mine.max_offset = theirs.max_offset = 2048  # as after a walk
        compare_logs(mine, theirs, show)
    assert (shown, max(told)) == ([1024], 1024)


# --- recover and resync --------------------------------------------------------------------------------------------------

PLAN = RecoveryPlan(
    store_dir=Path("/s t"),
    holder=None,
    is_clean=True,
    files=51,
    min_offset=52,
    start=53,
    end=54_000,
    messages=55,
    cut_size=56,
    dispatch_from=57,
    entries_cut=58,
    keys_cut=59,
    files_removed=60,
)
PLAN_FIELDS: Fields = {
    "store": "/s t",
    "stop": "clean",
    "held_by": None,
    "files": 51,
    "min_offset": 52,
    "looked_from": 53,
    "messages": 55,
    "max_offset": 54_000,
    "cut": 56,
    "entries_cut": 58,
    "keys_cut": 59,
    "dispatch_from": 57,
    "files_removed": 60,
}


@pytest.mark.parametrize(
    ("plan", "options", "changed"),
    [
        (PLAN, (), {"verdict": "WOULD_CHANGE"}),
        (PLAN, ("--dry-run",), {"verdict": "WOULD_CHANGE"}),
        (PLAN, ("--write",), {"verdict": "RECOVERED"}),
        (replace(PLAN, holder=4_711), (), {"verdict": "HELD", "held_by": 4_711, "stop": "running"}),
        (replace(PLAN, is_clean=False), (), {"verdict": "WOULD_CHANGE", "stop": "unclean"}),
    ],
)
def test_each_figure_of_recover(
    plan: RecoveryPlan, options: tuple[str, ...], changed: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Path, bool]] = []

    def recover(store: Path, *, dry_run: bool, show_progress: object) -> RecoveryPlan:
        assert callable(show_progress)
        called.append((store, dry_run))
        return plan

    monkeypatch.setattr("rocketmq_ha.impl.cli.recover.recover_store", recover)
    in_json, in_line = invoke("recover", "s", *options, "--json"), invoke("recover", "s", *options)
    assert (in_json.exit_code, in_line.exit_code) == (0, 0)
    expected = PLAN_FIELDS | changed
    assert json.loads(in_json.stdout) == expected | {"error": None}
    words = {"store": "'/s t'", "held_by": expected["held_by"] or "none"}
    assert in_line.stdout == " ".join(f"{name}={value}" for name, value in (expected | words).items()) + "\n"
    assert called == [(Path("s"), "--write" not in options)] * 2


NOTHING = replace(PLAN, cut_size=0, entries_cut=0, keys_cut=0, files_removed=0, start=0, dispatch_from=54_000)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "NOTHING_TO_DO"),
        ({"is_clean": False}, "WOULD_CHANGE"),
        ({"cut_size": 1}, "WOULD_CHANGE"),
        ({"entries_cut": 1}, "WOULD_CHANGE"),
        ({"keys_cut": 1}, "WOULD_CHANGE"),
        ({"dispatch_from": 53_999}, "WOULD_CHANGE"),
        ({"files_removed": 1}, "NOTHING_TO_DO"),
        ({"start": 1}, "NOTHING_TO_DO"),
        ({"files_removed": 1, "start": 1}, "WOULD_CHANGE"),
        ({"holder": 0}, "HELD"),
        ({"holder": 1, "cut_size": 1}, "HELD"),
    ],
)
def test_the_verdict_of_recover(change: Fields, expected: str) -> None:
    plan = replace(NOTHING, **change)
    assert recover_app.verdict_of(plan, dry_run=True) == expected
    assert recover_app.verdict_of(plan, dry_run=False) == "RECOVERED"


def test_resync_says_where_the_store_was_and_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_ha.impl.app.resync.time.strftime", lambda text: f"at {text}")
    aside = f"s t.aside-at {'%Y%m%d-%H%M%S'}"
    for as_json in (True, False):
        CommitLog.open(tmp_path / "s t", file_size=1024).close()
        before = sorted(path.name for path in (tmp_path / "s t").iterdir())
        result = invoke("resync", tmp_path / "s t", *(["--json"] if as_json else []))
        assert result.exit_code == 0
        if as_json:
            told = {"moved": f"{tmp_path}/s t", "aside": f"{tmp_path}/{aside}", "verdict": "MOVED", "error": None}
            assert json.loads(result.stdout) == told
        else:
            assert result.stdout == f"moved='{tmp_path}/s t' aside='{tmp_path}/{aside}'\n"
        assert not (tmp_path / "s t").exists()
        assert sorted(path.name for path in (tmp_path / aside).iterdir()) == before
        (tmp_path / aside).rename(tmp_path / f"{as_json}")


def test_resync_takes_no_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_ha.impl.app.resync.time.strftime", lambda _: "now")
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    aside = tmp_path / "s.aside-now"
    aside.symlink_to(tmp_path / "nowhere")
    told = f"rocketmq-ha: {aside}: exists, expected a free name to move {tmp_path / 's'} to; try again in a second\n"
    assert invoke("resync", tmp_path / "s").stderr == told
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["commitlog"]
    aside.unlink()
    assert invoke("resync", tmp_path / "s").exit_code == 0
    assert [path.name for path in aside.iterdir()] == ["commitlog"]  # the lock that was made is gone


def test_resync_refuses_what_is_no_store(tmp_path: Path) -> None:
    result = invoke("resync", tmp_path)
    expected = f"rocketmq-ha: {tmp_path}: has no commitlog/ in it, expected the root of a store\n"
    assert (result.exit_code, result.stderr, tmp_path.exists()) == (2, expected, True)


# --- The form of both ----------------------------------------------------------------------------------------------------


def test_a_line_quotes_paths_and_says_none() -> None:
    fields: Fields = {"a": Path("/x y"), "b": None, "c": 0, "d": "w", "e": Path("/x")}
    assert line_of(fields) == "a='/x y' b=none c=0 d=w e=/x"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ConfigInvalid("s:\n  no store"),
            {"kind": "ConfigInvalid", "message": "s: no store", "file": None, "offset": None, "found": None, "expected": None},
        ),
        (
            PermissionError(13, "Permission denied", "/f"),
            {
                "kind": "PermissionError",
                "message": "[Errno 13] Permission denied: '/f'",
                "file": "/f",
                "offset": None,
                "found": None,
                "expected": None,
            },
        ),
        (
            StoreCorrupt(Path("/g"), 77, 1, 2),
            {
                "kind": "StoreCorrupt",
                "message": "/g: at commit-log offset 77: found 1, expected 2",
                "file": "/g",
                "offset": 77,
                "found": "1",
                "expected": "2",
            },
        ),
        (
            StoreFull(Path("/h"), 3, 4),
            {
                "kind": "StoreFull",
                "message": "/h: No space left on device: found 3, expected 4",
                "file": "/h",
                "offset": None,
                "found": None,
                "expected": None,
            },
        ),
    ],
    ids=["configuration", "system", "damage", "full disk"],
)
def test_an_error_is_an_outcome_too(error: Exception, expected: Fields, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(type(error)), outcome_module.outcome(("a", "b"), as_json=True) as fields:
        fields["a"] = 1
        raise error
    assert json.loads(capsys.readouterr().out) == {"a": 1, "b": None, "verdict": "REFUSED", "error": expected}
    with pytest.raises(type(error)), outcome_module.outcome(("a",), as_json=False):
        raise error
    assert capsys.readouterr().out == ""


def test_an_error_of_ours_is_no_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError), outcome_module.outcome(("a",), as_json=True):
        raise AssertionError
    assert capsys.readouterr().out == ""
