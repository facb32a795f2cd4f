"""Recorded links and test cases of Hypothesis as runs: the model follows what our own processes and real brokers have sent."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from kit import captures
from kit.captures import HA_PORT, Packet
from rocketmq_ha.fuzz import capture, link_rows
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.import_runs import import_runs
from rocketmq_ha.fuzz.link_rows import Chunk, Recording, rows_of
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.fuzz.transcript import Piece, Restarted, Transcript, save
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.reference.wire import pack_header, pack_report
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, MANIFEST_DIR, RUN_COLUMNS, SCHEMA_VERSION
from rocketmq_ha.spec.profile import HARDENED, Settings

ROOT = Path(__file__).resolve().parents[2]
FILE_SIZE = 1 << 16
MESSAGES = 60
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    """Record about 100 kB in two files between our own master and slave, with a cut in a header and a kill -9 of the slave.

    Frames are small and slow, so that a busy machine does not make a link of two frames and one report.
    """
    work, transcript = tmp_path_factory.mktemp("recorded"), Transcript()
    size = ("--file-size", str(FILE_SIZE))
    pace = ("--ha-transfer-batch-size", "1600", "--max-transfer-rate", "100000")
    with ExitStack() as nodes:
        serve = ("master", "--store", str(work / "master"), "--listen", "127.0.0.1:0", *size, *pace, "--size", "1500")
        master = Node(work / "master.log", *serve, "--put", str(MESSAGES), "--await-slaves", "1", "--in-flight", "2")
        nodes.callback(master.stop)
        proxy = CuttingProxy(parse_address(master.line("listening")), [PlannedCut(20_000, 5)], transcript)
        nodes.callback(proxy.close)
        follow = ("slave", "--store", str(work / "slave"), "--master", proxy.address, *size)
        first = Node(work / "slave.log", *follow)
        while proxy.body_bytes < 50_000:
            first.check()
            time.sleep(0.01)
        first.kill()
        links = proxy.links
        proxy.note_restart()
        second = Node(work / "slave.log", *follow)
        nodes.callback(second.stop)
        assert "put=" in f"put={master.line('put')}"
        while proxy.links == links or proxy.slave_ack_offset < FILE_SIZE:
            second.check()
            time.sleep(0.01)
    # As the slave's end of the link would show it: without what never passed.
    return [entry if isinstance(entry, Restarted) else replace(entry, data=entry.data[: entry.passed]) for entry in transcript]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(import_runs, [str(argument) for argument in arguments])


def rows(log: Path, part: str) -> Rows:
    found: Rows = pq.read_table(log / part / "imported.parquet").to_pylist()
    return found


def imported(tmp_path: Path, *sources: object, status: int = 0, **options: object) -> tuple[Rows, Rows]:
    """Import sources, and return the rows of events/ and of runs/."""
    log = tmp_path / f"log-{len(list(tmp_path.iterdir()))}"
    more = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    result = run(*sources, "--out", log, *more)
    assert result.exit_code == status, result.output
    events, runs = rows(log, "events"), rows(log, "runs")
    line = result.stdout.splitlines()[-1]
    assert line == f"log={log} runs={len(runs)} steps={len(events)} failed={sum(row['verdict'] != 'ok' for row in runs)}"
    return events, runs


OURS = {"profile": "hardened", "file_size": FILE_SIZE}


def possible() -> set[tuple[str, str, str, str, str]]:
    document = json.loads((resources.files("rocketmq_ha.spec") / "transitions.json").read_text())
    return {
        (profile, actor, *names)
        for actor, machine in document["machines"].items()
        for *names, profiles in machine["transitions"]
        for profile in profiles
    }


def assert_possible(events: Rows, profile: str) -> None:
    taken = {(profile, row["actor"], row["from_state"], row["event"], row["to_state"]) for row in events}
    assert taken <= possible(), taken - possible()


def steps(events: Rows) -> list[tuple[Any, ...]]:
    """The rows without their times."""
    return [tuple(value for name, value in row.items() if name not in ("ts_ns", "op_index")) for row in events]


def test_a_capture_of_our_own_link_is_a_run_of_the_model_for_each_connection(recorded: Transcript, tmp_path: Path) -> None:
    links = {entry.link for entry in recorded if isinstance(entry, Piece)}
    file = captures.write(tmp_path / "a.pcap", captures.packets(recorded))
    events, runs = imported(tmp_path, file, **OURS)
    assert len(runs) == len(links) >= 3
    assert [row["run_id"] for row in runs] == [-n - 1 for n in range(len(runs))]
    assert {(row["phase"], row["world"], row["profile"], row["verdict"]) for row in runs} == {
        ("recorded", "link", "hardened", "ok")
    }
    moved = sum(entry.passed for entry in recorded if isinstance(entry, Piece))
    assert sum(row["nbytes"] for row in runs) == moved > 80_000
    assert_possible(events, "hardened")
    taken = Counter((row["actor"], row["event"]) for row in events)
    assert taken["master_connection", "accept"] == taken["slave_client", "connect"] == len(runs)
    assert sum(row["nbytes"] for row in events if row["event"] == "frames") > FILE_SIZE
    # In the captured fragmentation: segments of 1,460 bytes leave frames of 1,500 and more unfinished.
    assert {"body_partial"} <= {row["to_state"] for row in events}
    assert max(row["fragment_len"] for row in events) == captures.SEGMENT
    for run_row in runs:
        mine = [row["step"] for row in events if row["run_id"] == run_row["run_id"]]
        assert mine == list(range(run_row["n_steps"]))
    assert [row["ts_ns"] for row in events if row["run_id"] == -1] == sorted(
        row["ts_ns"] for row in events if row["run_id"] == -1
    )


def test_what_is_written_is_a_log_of_version_2(recorded: Transcript, tmp_path: Path) -> None:
    save(recorded, tmp_path / "t.jsonl")
    log = tmp_path / "log"
    assert run(tmp_path / "t.jsonl", "--out", log, "--profile", "hardened", "--file-size", FILE_SIZE).exit_code == 0
    assert json.loads((log / "campaign.json").read_text())["schema_version"] == SCHEMA_VERSION
    (manifest,) = [json.loads(file.read_text()) for file in (log / MANIFEST_DIR).iterdir()]
    events, runs = rows(log, "events"), rows(log, "runs")
    assert (manifest["events"], manifest["n_runs"], manifest["n_steps"]) == ("imported.parquet", len(runs), len(events))
    assert [*events[0]] == [name for name, _, _ in EVENT_COLUMNS]
    assert [*runs[0]] == [name for name, _, _ in RUN_COLUMNS]


def test_a_transcript_and_a_capture_of_one_link_are_the_same_steps(recorded: Transcript, tmp_path: Path) -> None:
    """Where a segment holds whatever the proxy read at once."""
    save(recorded, tmp_path / "t.jsonl")
    file = captures.write(tmp_path / "a.pcap", captures.packets(recorded, segment=60_000))
    of_transcript, _ = imported(tmp_path, tmp_path / "t.jsonl", **OURS)
    of_capture, _ = imported(tmp_path, file, **OURS)
    # The transcript knows that a kill ended a link; TCP only shows the end.
    at = [number for number, row in enumerate(of_transcript) if row["event"] == "restart"]
    assert len(at) == 1
    assert of_capture[at[0]]["event"] == "end_of_stream"
    del of_transcript[at[0]], of_capture[at[0]]
    assert steps(of_transcript) == steps(of_capture)


def data_of(file: Path) -> list[dict[str, bytes]]:
    """What each end of each connection has sent."""
    return [
        {source: b"".join(chunk.data for chunk in one.chunks if chunk.source == source) for source in ("master", "slave")}
        for one in capture.connections(file, HA_PORT)
    ]


def with_repeats(packets: list[Packet]) -> list[Packet]:
    """Every third data packet is sent once more, later; every fifth once more with the begin of the next one."""
    found, late = [], []
    for number, packet in enumerate(packets):
        found.append(packet)
        if packet.data and number % 3 == 0:
            late.append(packet)
        if packet.data and number % 5 == 0:
            following = next(
                (p for p in packets[number + 1 :] if p.data and (p.link, p.source) == (packet.link, packet.source)), None
            )
            if following:
                late.append(replace(packet, data=packet.data + following.data[:100]))
        if len(late) > 2:
            found.append(late.pop(0))
    return [*found, *late]


def out_of_order(packets: list[Packet]) -> list[Packet]:
    """Each data packet of the master after the next one of it, without the acknowledgements between."""
    found = [packet for packet in packets if packet.data or packet.flags & (captures.TH.TH_SYN | captures.TH.TH_FIN)]
    for at in range(len(found) - 1):
        a, b = found[at], found[at + 1]
        if a.data and b.data and a.source == b.source == "master" and a.link == b.link and at % 2 == 0:
            found[at], found[at + 1] = b, a
    return found


DISTURBED: dict[str, Callable[[Transcript], list[Packet]]] = {
    "as it was": captures.packets,
    "small segments": lambda transcript: captures.packets(transcript, segment=333),
    "repeated": lambda transcript: with_repeats(captures.packets(transcript)),
    "out of order": lambda transcript: out_of_order(captures.packets(transcript)),
    "sequence numbers wrap": lambda transcript: captures.packets(transcript, first_seq=(1 << 32) - 5000),
    "wrap at once, repeated": lambda transcript: with_repeats(captures.packets(transcript, first_seq=(1 << 32) - 1)),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_each_direction_is_put_together_whatever_the_network_did(recorded: Transcript, tmp_path: Path, name: str) -> None:
    pieces = [entry for entry in recorded if isinstance(entry, Piece)]
    expected = [
        {source: b"".join(p.data for p in pieces if (p.link, p.source) == (link, source)) for source in ("master", "slave")}
        for link in sorted({piece.link for piece in pieces})
    ]
    file = captures.write(tmp_path / "a.pcap", DISTURBED[name](recorded))
    assert data_of(file) == expected
    _, runs = imported(tmp_path, file, **OURS)
    assert {row["verdict"] for row in runs} == {"ok"}


@pytest.mark.parametrize("begin", [0, 1000, (1 << 32) - 1, (1 << 32) - 2, (1 << 32) - 5, (1 << 32) - 9])
def test_segments_in_any_order_are_put_together_also_where_their_numbers_wrap(begin: int) -> None:
    """Four segments and a repeated one; each order of them gives the bytes once, in order."""
    data = b"abcdefghij"
    parts = [(0, data[:3]), (3, data[3:4]), (4, data[4:8]), (8, data[8:]), (2, data[2:6])]
    for order in permutations(parts):
        direction = capture.Direction(next_seq=begin)
        found = b"".join(piece for at, part in order for piece in direction.take((begin + at) % (1 << 32), part))
        assert found == data
        assert not direction.waiting


@pytest.mark.parametrize(("ipv6", "link_type"), [(True, 1), (False, 113), (False, 101), (True, 101)])
def test_other_kinds_of_links_are_read(recorded: Transcript, tmp_path: Path, ipv6: bool, link_type: int) -> None:
    ethernet = captures.write(tmp_path / "a.pcap", captures.packets(recorded))
    other = captures.write(tmp_path / "b.pcap", captures.packets(recorded), ipv6=ipv6, link_type=link_type)
    assert data_of(other) == data_of(ethernet)


def longest_link(packets: list[Packet]) -> list[Packet]:
    """The packets of the connection that carried most. How much each one carried depends on when the slave was killed."""
    carried = Counter[int]()
    for packet in packets:
        carried[packet.link] += len(packet.data)
    ((link, _),) = carried.most_common(1)
    return [packet for packet in packets if packet.link == link]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.45])
def test_a_capture_may_begin_in_the_middle_of_a_connection(recorded: Transcript, tmp_path: Path, share: float) -> None:
    """From some frame's middle on: what stands before the first whole frame is left out and told."""
    packets = longest_link(captures.packets(recorded))
    without = round(share * len(packets))
    file = captures.write(tmp_path / "a.pcap", packets[without:])
    result = run(file, "--out", tmp_path / "log", "--port", HA_PORT, "--profile", "hardened", "--file-size", FILE_SIZE)
    assert result.exit_code == 0, result.output
    events, (row,) = rows(tmp_path / "log", "events"), rows(tmp_path / "log", "runs")
    assert_possible(events, "hardened")
    assert "accept" not in {event["event"] for event in events}
    sent = sum(len(packet.data) for packet in packets[without:])
    skipped = [int(line.split()[-5]) for line in result.stderr.splitlines() if "begins in the middle" in line]
    assert row["nbytes"] + sum(skipped) == sent
    assert row["nbytes"] > sent / 2


def test_a_connection_without_a_report_after_its_lost_begin_is_left_out_and_told(recorded: Transcript, tmp_path: Path) -> None:
    """Nothing can be said of it, so it is no divergence."""
    whole = captures.packets(recorded)
    longest = longest_link(whole)
    mute = [packet for packet in longest if packet.source == "master"][5:]
    other = next(packet.link for packet in reversed(whole) if packet.link != longest[0].link)
    file = captures.write(tmp_path / "a.pcap", [*mute, *(packet for packet in whole if packet.link == other)])
    result = run(file, "--out", tmp_path / "log", "--port", HA_PORT, "--profile", "hardened", "--file-size", FILE_SIZE)
    assert result.exit_code == 0, result.output
    assert len(rows(tmp_path / "log", "runs")) == 1
    told = "begins in the middle; left out, as no frame or no report is found in it"
    assert [line for line in result.stderr.splitlines() if line.endswith(told)] == [f"a.pcap#0: {told}"]


def test_without_its_begin_and_without_a_port_nobody_knows_the_master(recorded: Transcript, tmp_path: Path) -> None:
    file = captures.write(tmp_path / "a.pcap", [packet for packet in captures.packets(recorded) if packet.link == 0][5:])
    result = run(file, "--out", tmp_path / "log")
    assert result.exit_code == 2
    assert result.stderr == f"rocketmq-ha: {file}: found no connection and no test case, expected at least one\n"
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("is_reported_first", [False, True])
def test_a_connection_ends_where_the_capture_lacks_bytes(recorded: Transcript, tmp_path: Path, is_reported_first: bool) -> None:
    """The other end has acknowledged them, so they will not come again: in an ACK alone, or in a report."""
    packets = longest_link(captures.packets(recorded, segment=500))
    data = [(at, packet.source) for at, packet in enumerate(packets) if packet.data]
    follower = "slave" if is_reported_first else "master"
    lost = [at for (at, source), (_, after) in pairwise(data) if (source, after) == ("master", follower)][4]
    without = [*packets[:lost], *packets[lost + 1 :]]
    whole = captures.write(tmp_path / "a.pcap", packets)
    file = captures.write(tmp_path / "b.pcap", without)
    (before,), (after,) = data_of(whole), data_of(file)
    for source in ("master", "slave"):
        assert before[source].startswith(after[source])
        assert len(after[source]) == sum(len(p.data) for p in packets[:lost] if p.source == source)
    _, (row,) = imported(tmp_path, file, **OURS)
    assert row["verdict"] == "ok"


# --- What the model would not do ---------------------------------------------------------------------------------------------


def recording(*chunks: tuple[str, bytes], has_begin: bool = True) -> Recording:
    return Recording("r", tuple(Chunk(source, data, n) for n, (source, data) in enumerate(chunks)), has_begin, "")  # type: ignore[arg-type]


BODY = bytes(range(100))
FRAME = pack_header(0, 100) + BODY


@pytest.mark.parametrize(
    ("chunks", "signature"),
    [
        ([("slave", pack_report(0)), ("master", FRAME), ("slave", pack_report(100))], ""),
        ([("slave", pack_report(0)), ("master", FRAME + pack_header(100, 0)), ("slave", pack_report(100))], ""),
        ([("slave", pack_report(0)), ("master", FRAME), ("slave", pack_report(99))], "slave_client/frames/report"),
        ([("slave", pack_report(0)), ("master", FRAME), ("slave", pack_report(101))], "slave_client/frames/report"),
        (
            [("slave", pack_report(0)), ("master", FRAME), ("master", pack_header(101, 4) + b"abcd")],
            "master_connection/transfer/frame",
        ),
        ([("master", FRAME)], "master_connection/transfer/frame"),
        ([("slave", pack_report(0)), ("master", pack_header(0, -1))], "master_connection/transfer/body_size"),
        ([("slave", pack_report(0)), ("master", pack_header(0, 1 << 20) + b"x")], "master_connection/transfer/body_size"),
        ([("slave", pack_report(-1))], "master_connection/reports/close_reason"),
    ],
)
def test_what_the_model_would_not_send_ends_the_run(chunks: list[tuple[str, bytes]], signature: str) -> None:
    found = rows_of(recording(*chunks), Settings(FILE_SIZE), HARDENED)
    assert found.signature == signature, found.detail
    assert bool(found.detail) == bool(signature)
    assert found.n_ops == len(chunks)


def test_a_frame_in_pieces_is_the_steps_of_its_pieces() -> None:
    cuts = [("master", FRAME[:5]), ("master", FRAME[5:12]), ("master", FRAME[12:50]), ("master", FRAME[50:])]
    found = rows_of(recording(("slave", pack_report(0)), *cuts), Settings(FILE_SIZE), HARDENED)
    assert not found.signature
    taken = [(row.transition.event, row.transition.to_state, row.transition.split_at) for row in found.rows]
    assert [row for row in taken if row[0] in ("transfer", "frames")] == [
        ("transfer", "header_partial", 5),
        ("frames", "header_partial", 5),
        ("transfer", "body_partial", 12),
        ("frames", "body_partial", 12),
        ("transfer", "body_partial", 50),
        ("frames", "body_partial", 50),
        ("transfer", "caught_up", 0),
        ("frames", "connected", 0),
    ]


def test_the_first_frame_is_found_by_those_behind_it() -> None:
    frames = FRAME + pack_header(100, 30) + bytes(30) + pack_header(130, 0) + pack_header(130, 5) + bytes(5)
    for skipped in (0, 1, 11, 12, 60, 111):
        assert link_rows.frames_of(frames[skipped:], 1 << 15) == (0 if skipped == 0 else len(FRAME) - skipped)
    assert link_rows.frames_of(b"\xff" * 200, 1 << 15) == -1
    assert link_rows.frames_of(b"", 1 << 15) == -1


def test_the_first_report_is_found_by_its_neighbours() -> None:
    reports = b"".join(pack_report(value) for value in (1000, 1000, 1500))
    for skipped in (0, 1, 7, 8):
        assert link_rows.reports_of(reports[skipped:], 0, 2000) == -skipped % 8
    assert link_rows.reports_of(reports, 0, 1400) == -1
    assert link_rows.reports_of(b"1234567", 0, 2000) == -1


@pytest.mark.parametrize("release", ["4.9.8", "5.3.3", "5.4.0"])
def test_links_between_real_brokers_are_runs_of_classic(release: str, tmp_path: Path) -> None:
    """What a master and a slave of Apache RocketMQ have sent each other: spec/vectors."""
    file = ROOT / "spec" / "vectors" / f"rocketmq-{release}" / "unusual" / "link.jsonl.xz"
    events, runs = imported(tmp_path, file)
    assert {(row["profile"], row["verdict"]) for row in runs} == {("classic", "ok")}
    assert sum(row["nbytes"] for row in runs) > 100_000
    assert_possible(events, "classic")


# --- Test cases of Hypothesis ------------------------------------------------------------------------------------------------

LINE = {
    "type": "test_case",
    "property": "tests/a.py::TestA::runTest",
    "run_start": 1.5,
    "status": "passed",
    "status_reason": "",
    "representation": "state = A()\nstate.start(size=3)\nv1 = state.put(text='state.no()')\nstate.put()\nstate.teardown()",
    "arguments": {},
    "how_generated": "during generate phase",
    "features": {"Retried draw from sampled_from(0x7f)": "", "closed: offset": "", "n": 3},
    "timing": {"execute:test": 0.001, "generate:data": 0.0005},
    "metadata": {},
}


def lines(tmp_path: Path, *found: object) -> Path:
    file = tmp_path / "x_testcases.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in found))
    return file


def test_a_test_case_is_a_run_of_its_rules_its_features_and_itself(tmp_path: Path) -> None:
    failed = LINE | {"status": "failed", "status_reason": "AssertionError: no\nmore"}
    info = {"type": "info", "property": "p", "title": "Hypothesis Statistics", "content": "", "run_start": 1.5}
    events, runs = imported(tmp_path, lines(tmp_path, LINE, info, failed), status=1)
    first = [(row["actor"], row["from_state"], row["event"], row["verdict"]) for row in events if row["run_id"] == -1]
    name = LINE["property"]
    assert first == [
        (name, "rule", "start", "ok"),
        (name, "rule", "put", "ok"),
        (name, "rule", "put", "ok"),
        (name, "rule", "teardown", "ok"),
        (name, "feature", "closed: offset", "ok"),
        (name, "feature", "n: 3", "ok"),
        (name, "case", "passed", "ok"),
    ]
    assert {(row["phase"], row["world"], row["profile"]) for row in runs} == {("hypothesis", "hypothesis", "")}
    assert [(row["verdict"], row["signature"], row["detail"], row["elapsed_us"]) for row in runs] == [
        ("ok", "", "", 1500),
        ("error", name, "AssertionError: no", 1500),
    ]
    assert events[-1]["verdict"] == "error"


def test_the_lines_of_the_installed_hypothesis_are_read(tmp_path: Path) -> None:
    """A test of a state machine and one with a feature, run as `make test` would."""
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import event, given, settings, strategies as st\n"
        "from hypothesis.stateful import RuleBasedStateMachine, rule\n"
        "class M(RuleBasedStateMachine):\n"
        "    @rule(n=st.integers(0, 9))\n"
        "    def add(self, n): event(f'big: {n > 4}')\n"
        "M.TestCase.settings = settings(max_examples=5, stateful_step_count=3)\n"
        "TestM = M.TestCase\n"
        "@given(st.integers())\n"
        "@settings(max_examples=4)\n"
        "def test_one(n): event('seen', n % 2)\n"
    )
    env = os.environ | {"HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    events, runs = imported(tmp_path, tmp_path / ".hypothesis" / "observed")
    properties = Counter(row["actor"].rpartition("::")[2] for row in events if row["from_state"] == "case")
    assert set(properties) == {"runTest", "test_one"}
    assert sum(properties.values()) == len(runs) >= 9
    assert "add" in {row["event"] for row in events if row["from_state"] == "rule"}
    assert {row["event"].partition(":")[0] for row in events if row["from_state"] == "feature"} == {"big", "seen"}


# --- What a user can give wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.pcap", b"\xa1\xb2\xc3\xd4\x00", "found no whole capture ("),
        ("a.jsonl", b"{\n", ":1: found no JSON ("),
        ("a.jsonl", b"[1]\n", ":1: found list, expected a JSON object on each line"),
        ("a.jsonl", b'{"x": 1}\n', "found another kind of file, expected a capture, a transcript or lines of Hypothesis"),
        ("a.jsonl", b"", "found another kind of file, expected a capture, a transcript or lines of Hypothesis"),
        ("a.jsonl", b"\xff\xfe\n", "found no text, expected a capture, a transcript or lines of Hypothesis"),
        ("a.jsonl", b'{"type": "test_case", "property": "p"}\n', ":1: expected a test case of Hypothesis, found"),
        ("a.jsonl", b'{"link": 0, "source": "slave"}\n', ":1: expected a piece of a transcript, found"),
        ("a.jsonl", b'{"connection": 0, "from": "moon", "ms": 1, "bytes": ""}\n', ":1: expected bytes of a connection, found"),
        ("a.jsonl.xz", b"no", "found "),
    ],
)
def test_a_file_that_is_none_of_these_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    result = run(tmp_path / name, "--out", tmp_path / "log")
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"rocketmq-ha: {tmp_path / name}")
    assert told in line
    assert not (tmp_path / "log").exists()


def test_packets_without_their_end_are_refused(recorded: Transcript, tmp_path: Path) -> None:
    file = captures.write(tmp_path / "a.pcap", captures.packets(recorded), snapshot=96)
    with pytest.raises(FuzzError, match=r"a\.pcap: found packets without their end, expected whole ones"):
        capture.connections(file, None)


def test_a_kind_of_link_that_is_not_known_is_named(tmp_path: Path) -> None:
    file = captures.write(tmp_path / "a.pcap", [], link_type=147)
    with pytest.raises(FuzzError, match=r"a\.pcap: found link type 147, expected Ethernet, Linux cooked or raw IP"):
        capture.connections(file, None)


def test_a_place_with_files_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "mine").touch()
    result = run(lines(tmp_path, LINE), "--out", tmp_path / "log")
    assert (result.exit_code, result.stderr) == (
        2,
        f"rocketmq-ha: {tmp_path / 'log'}: found files in it, expected a new directory for the log\n",
    )
    assert [file.name for file in (tmp_path / "log").iterdir()] == ["mine"]


def test_a_folder_without_a_source_and_nothing_at_all_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "found no file in it, expected *.jsonl, *.xz, *.pcap" in run(tmp_path / "empty", "--out", tmp_path / "log").stderr
    assert "none: found nothing, expected a capture" in run(tmp_path / "none", "--out", tmp_path / "log").stderr
