"""`status`: what it prints for each state, word by word, from snapshots in which no two figures are equal."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kit.command_line import invoke
from kit.snapshots import Snapshot, master_connection, master_snapshot, slave_snapshot
from rocketmq_ha.impl.cli import status as status_module
from rocketmq_ha.impl.cli.quantities import ago, duration, number, rate, size
from rocketmq_ha.impl.cli.status import show
from rocketmq_ha.impl.net import remote_status
from rocketmq_ha.impl.net.status_socket import NotRunning

SHARED = (
    ("process", "pid 4321, up 1 d 2 h, version 9.8.7"),
    ("log", "1,001 to 7,890,123, files of 1.5 KiB, growing by 2.5 KiB/s"),
    ("flushed", "7,888,888, all but 1.2 KiB"),
    ("deleted", "1,234 files, 3.0 MiB"),
)
MASTER = (
    ("role", "SYNC_MASTER, profile hardened"),
    *SHARED,
    ("listens", "127.0.0.1:10912, [::1]:10922 (TLS), 1,026 connections refused"),
    ("slaves", "21, which have acknowledged up to 7,000,024; 25 puts wait"),
    ("replicas", "23 count, a put that waits needs 22"),
)
SLAVE = (
    ("role", "SLAVE, profile hardened"),
    *SHARED,
    ("master", "10.0.0.9:10912"),
    ("state", "connected for 41.0 s, heard 4.2 s ago, reported 7,000,043"),
    ("so far", "45 connections, 49 failed tries"),
)


def aligned(pairs: tuple[tuple[str, str], ...]) -> str:
    """The pairs as lines, with their values under each other."""
    indent = max(len(name) for name, _ in pairs) + 2
    return "".join(f"{name.ljust(indent)}{value}\n" for name, value in pairs)


def shown(snapshot: Snapshot) -> str:
    file = io.StringIO()
    show(snapshot, Console(file=file, width=1000, highlight=False, soft_wrap=True, color_system=None))
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def line(snapshot: Snapshot, name: str) -> str | None:
    """The line that begins with this name, without it."""
    return next((text.removeprefix(name).strip() for text in shown(snapshot).splitlines() if text.startswith(f"{name} ")), None)


def test_the_status_of_a_master() -> None:
    assert shown(master_snapshot()) == f"{aligned(MASTER)}\nno connections\n"


def test_the_status_of_a_slave() -> None:
    assert shown(slave_snapshot()) == aligned(SLAVE)


@pytest.mark.parametrize(
    ("snapshot", "name", "expected"),
    [
        (master_snapshot(flushed_offset=7_890_123), "flushed", "all of it"),
        (master_snapshot(flushed_offset=7_890_122), "flushed", "7,890,122, all but 1 B"),
        (master_snapshot(deleted_files=0), "deleted", None),
        (master_snapshot(deleted_files=1, deleted_bytes=0), "deleted", "1 files, 0 B"),
        (master_snapshot(), "disk", None),
        (master_snapshot(disk_full="no room for f"), "disk", "no room for f"),
        (slave_snapshot(disk_full="no room for g"), "disk", "no room for g"),
        (master_snapshot(refused_connections=0), "listens", "127.0.0.1:10912, [::1]:10922 (TLS)"),
        (master_snapshot(refused_connections=1, tls_listen=None), "listens", "127.0.0.1:10912, 1 connections refused"),
        (master_snapshot(refused_connections=0, listen=None), "listens", "[::1]:10922 (TLS)"),
        (master_snapshot(broker_role="ASYNC_MASTER"), "role", "ASYNC_MASTER, profile hardened"),
        (master_snapshot(broker_role="ASYNC_MASTER"), "replicas", "23 count, no put waits for them"),
        (master_snapshot(profile="classic"), "role", "SYNC_MASTER, profile classic"),
        (slave_snapshot(certificate="CN=m"), "master", "10.0.0.9:10912, CN=m"),
        (
            slave_snapshot(comparing=True),
            "state",
            "connected for 41.0 s, heard 4.2 s ago, reported 7,000,043, comparing its last message with the master's",
        ),
        (slave_snapshot(state="disconnected", comparing=True), "state", "disconnected"),
        (slave_snapshot(state="disk full"), "state", "disk full"),
        (
            slave_snapshot(last_close_reason="end_of_stream"),
            "so far",
            "45 connections, 49 failed tries; the last one that ended: end_of_stream",
        ),
    ],
)
def test_a_state_has_its_line(snapshot: Snapshot, name: str, expected: str | None) -> None:
    assert line(snapshot, name) == expected


NOT_A_SLAVE = dict.fromkeys(("ack_offset", "lag_bytes", "lag_ms", "acks_per_second"))


@pytest.mark.parametrize("is_tls", [True, False])
def test_the_connections_of_a_master(is_tls: bool) -> None:
    connections = [
        master_connection(1),
        master_connection(2, kind="not reported", state="awaiting report", sent_offset=None, certificate=None, **NOT_A_SLAVE),
    ]
    more: dict[str, object] = {} if is_tls else {"tls_listen": None}
    table = shown(master_snapshot(connections=connections, **more)).partition("\n\n")[2]
    rows = [
        ["peer", "kind", "state", "acknowledged", "sent", "lag", "lag time", "acks", "heard", "connected", "certificate"],
        [
            *("10.0.0.1:51", "slave", "streaming", "1,500,001", "1,400,001", "161 B", "171 ms", "181 B/s"),
            *("2.1 s ago", "1 min 1 s", "CN=r1"),
        ],
        ["10.0.0.2:52", "not reported", "awaiting report", "-", "-", "-", "-", "-", "2.1 s ago", "1 min 1 s", "-"],
    ]
    cells = [[cell.strip() for cell in text.split("  ") if cell.strip()] for text in table.splitlines()]
    assert cells == [row if is_tls else row[:-1] for row in rows]


@pytest.mark.parametrize(
    ("figure", "value", "expected"),
    [
        (number, None, "-"),
        (number, 0, "0"),
        (number, 1_234_567, "1,234,567"),
        (size, None, "-"),
        (size, 0, "0 B"),
        (size, 1_023, "1023 B"),
        (size, 1_024, "1.0 KiB"),
        (size, 1_536, "1.5 KiB"),
        (size, 1 << 20, "1.0 MiB"),
        (size, 3 << 29, "1.5 GiB"),
        (size, 5 << 40, "5.0 TiB"),
        (size, 5 << 50, "5120.0 TiB"),
        (rate, None, "-"),
        (rate, 0.0, "0 B/s"),
        (rate, 2_048.0, "2.0 KiB/s"),
        (duration, None, "-"),
        (duration, 0, "0 ms"),
        (duration, 999, "999 ms"),
        (duration, 1_000, "1.0 s"),
        (duration, 59_940, "59.9 s"),
        (duration, 60_000, "1 min 0 s"),
        (duration, 3_599_000, "59 min 59 s"),
        (duration, 3_600_000, "1 h 0 min"),
        (duration, 86_399_000, "23 h 59 min"),
        (duration, 86_400_000, "1 d 0 h"),
        (duration, 266_400_000, "3 d 2 h"),
        (ago, None, "-"),
        (ago, 1_500, "1.5 s ago"),
    ],
)
def test_a_figure_for_people(figure: Any, value: float | None, expected: str) -> None:
    assert figure(value) == expected


# --- The command -----------------------------------------------------------------------------------------------------


def answers(monkeypatch: pytest.MonkeyPatch, *told: Snapshot | Exception) -> list[object]:
    """Let a store answer one after the other; an interrupt follows. Returns: what the command asked and how long it slept."""
    seen: list[object] = []
    left = iter((*told, KeyboardInterrupt()))

    def ask(whom: object) -> Snapshot:
        seen.append(whom)
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(status_module, "ask", ask)
    monkeypatch.setattr(remote_status, "ask_remote", ask)
    monkeypatch.setattr("time.sleep", seen.append)
    return seen


@pytest.mark.parametrize("snapshot", [master_snapshot(), slave_snapshot()], ids=["master", "slave"])
def test_json_has_the_snapshot_and_lines_have_its_figures(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answers(monkeypatch, snapshot, snapshot)
    in_json, in_lines = invoke("status", "s", "--json"), invoke("status", "s")
    assert (in_json.exit_code, in_lines.exit_code) == (0, 0)
    assert json.loads(in_json.stdout) == snapshot
    assert "".join(text.rstrip() + "\n" for text in in_lines.stdout.splitlines()) == shown(snapshot)
    assert seen == [Path("s")] * 2


def test_an_address_is_asked_instead_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answers(monkeypatch, slave_snapshot())
    assert invoke("status", "--from", "[::1]:5557").exit_code == 0
    assert seen == [("::1", 5557)]


@pytest.mark.parametrize(("options", "every_s"), [((), 1.0), (("--every", "2.5"), 2.5)])
def test_a_watch_shows_each_snapshot_at_its_interval(
    options: tuple[str, ...], every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [master_snapshot(pid=1), NotRunning("s: no process"), slave_snapshot(pid=2)]
    seen = answers(monkeypatch, *told)
    found = invoke("status", "s", "--watch", "--json", *options)
    assert found.exit_code == 130
    assert [json.loads(text)["pid"] for text in found.stdout.splitlines()] == [1, 2]
    assert found.stderr.splitlines()[0] == "s: no process"
    assert seen == [Path("s"), every_s] * 3 + [Path("s")]


def test_a_watch_without_a_terminal_puts_an_empty_line_between_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, slave_snapshot(), NotRunning("s: no process"), slave_snapshot())
    found = invoke("status", "s", "--watch")
    one = shown(slave_snapshot())
    assert "".join(text.rstrip() + "\n" for text in found.stdout.splitlines()) == f"{one}\ns: no process\n\n{one}"
    assert "no process" not in found.stderr


@pytest.mark.parametrize(
    ("is_terminal", "as_json", "expected"),
    [(True, False, "\033[H\033[2J"), (False, False, "\n"), (True, True, ""), (False, True, "")],
)
def test_the_screen_is_cleared_on_a_terminal_only(
    is_terminal: bool, as_json: bool, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    status_module.clear(as_json)
    assert capsys.readouterr().out == expected


def test_a_first_snapshot_that_nobody_gives_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answers(monkeypatch, NotRunning("s: no process"))
    found = invoke("status", "s", "--watch")
    assert (found.exit_code, found.stdout, found.stderr) == (2, "", "rocketmq-ha: s: no process\n")
    assert seen == [Path("s")]
