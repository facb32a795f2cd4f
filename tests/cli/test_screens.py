"""Tables show every number whole on screens of 60, 80 and 120 columns, for any size of number and length of name."""

import io
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kit.command_line import COMMAND
from kit.terminals import terminal
from rocketmq_ha.fuzz import faults, replay, schedule
from rocketmq_ha.fuzz.worlds import link
from rocketmq_ha.impl.cli import cluster_screen
from rocketmq_ha.impl.cli.message_table import MESSAGE_COLUMNS, message_row
from rocketmq_ha.impl.cli.status import show
from rocketmq_ha.impl.cli.table import Column, print_pairs, print_table
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec import citations

WIDTHS = (60, 80, 120)
NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")
LARGE = 9_876_543_210_123  # 13 digits
PEERS = ("[2001:db8:1234:5678:9abc:def0:1234:5678]:54321", "203.0.113.250:10912")
SUBJECT = "CN=replica-17.broker-a.messaging.production.example.org,OU=Messaging,O=Example Organisation,L=Zurich,C=CH"

pytestmark = pytest.mark.parametrize("width", WIDTHS)


def screen(width: int) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None), file


def assert_whole(shown: str, wanted: str) -> None:
    """Assert that the screen shows each number of a text whole: not cut, not broken, not inside another number."""
    for number in NUMBER.findall(wanted):
        assert re.search(rf"(?<!\d)(?<!\d[,.]){re.escape(number)}(?!\d|[,.]\d)", shown), (
            f"{number} of {wanted!r} is not in:\n{shown}"
        )


def assert_fits(shown: str, width: int, longest: int = 0) -> None:
    """Assert that no line is wider than the screen, unless it is a single long word."""
    for line in shown.splitlines():
        assert len(line) <= max(width, longest + 14), line


def connection(peer: str, **more: Any) -> dict[str, Any]:
    figures = {
        "peer": peer,
        "certificate": SUBJECT,
        "kind": "not reported",
        "state": "awaiting report",
        "ack_offset": LARGE,
        "sent_offset": LARGE + 111_111,
        "lag_bytes": 250_000_000_000,
        "lag_ms": 987_654_321,
        "acks_per_second": 250_000_000.0,
        "silent_ms": 59_900,
        "connected_ms": 35_999_000,
    }
    return figures | more


def master(**more: Any) -> dict[str, Any]:
    figures = {
        "role": "master",
        "broker_role": "SYNC_MASTER",
        "profile": "hardened",
        "pid": 4_194_303,
        "uptime_s": 8_640_000.0,
        "version": "0.1.0",
        "min_offset": LARGE - 1_000_000,
        "max_offset": LARGE + 222_222,
        "flushed_offset": LARGE + 1,
        "file_size": 1 << 30,
        "growth_per_second": 123_456_789.0,
        "listen": PEERS[0],
        "tls_listen": PEERS[0],
        "refused_connections": 250_000_000,
        "slaves": 250_000_000,
        "replicas_counted": 250_000_001,
        "replicas_needed": 250_000_002,
        "push2_slave_max_offset": LARGE + 3,
        "waiting_puts": 250_000_003,
        "deleted_files": 250_000_004,
        "deleted_bytes": LARGE,
        "disk_full": None,
        "connections": [connection(peer) for peer in PEERS],
    }
    return figures | more


def test_the_status_of_a_master_shows_every_number_whole(width: int) -> None:
    console, file = screen(width)
    show(master(), console)
    shown = file.getvalue()
    for value in (LARGE - 1_000_000, LARGE + 222_222, LARGE + 1, LARGE + 3, 250_000_000, LARGE, LARGE + 111_111):
        assert_whole(shown, f"{value:,}")
    assert_whole(shown, "4194303 0.1.0 250000000 250000001 250000002 250000003 59.9 232.8 238.4 9 59 11 10")
    for word in (*PEERS, SUBJECT.split(" ", maxsplit=1)[0]):
        assert word in shown
    assert "…" not in shown
    assert_fits(shown, width, len(SUBJECT))


def test_the_status_of_a_slave_shows_every_number_whole(width: int) -> None:
    console, file = screen(width)
    figures = {
        "role": "slave",
        "broker_role": "SLAVE",
        "state": "connected",
        "connected_ms": 35_999_000,
        "silent_ms": 59_900,
        "reported_offset": LARGE,
        "comparing": True,
        "master": PEERS[0],
        "certificate": SUBJECT,
        "last_close_reason": f"frame (HA-S-11): found a frame from {LARGE} to {LARGE + 7}, expected its end by {LARGE + 5}",
        "connects": 250_000_000,
        "failed_connects": 250_000_001,
    }
    show(master() | figures, console)
    shown = file.getvalue()
    for value in (str(LARGE), str(LARGE + 7), str(LARGE + 5), f"{LARGE:,}", "250000000", "250000001", "59.9"):
        assert_whole(shown, value)
    assert_fits(shown, width, len(SUBJECT) + len(PEERS[0]))


def test_a_cluster_shows_every_number_whole(width: int) -> None:
    console, file = screen(width)
    names = ("namesrv", "broker-a", "broker-a-s", "broker-b", "broker-b-s")
    states = ("up", "killed", "up", "ended", "stopped")
    nodes = [
        {"name": name, "role": "SYNC_MASTER", "state": state, "state_ms": 86_399_000, "exit_status": -9, "pid": 4_194_303 - at}
        | {"address": f"127.0.0.1:{20_012 + at}", "listed": (True, False, None)[at % 3]}
        | {"max_offset": LARGE + at, "lag_bytes": None if at == 1 else 250_000_000_000}
        for at, (name, state) in enumerate(zip(names, states, strict=True))
    ]
    nodes[0]["role"] = "NAMESRV"
    ends = [[name, other] for name in names[1:] for other in ("clients", "namesrv")]
    ends += [["broker-a-s", "broker-a"], ["broker-b-s", "broker-b"], ["namesrv", "clients"]]
    links = [{"ends": each, "is_cut": len(each[0]) > 9, "cut_ms": 8_640_000_000} for each in ends]
    found = {"mode": "sync-2m-2s", "flush": "async", "up_ms": 86_399_000, "pid": 4_194_000, "directory": "/tmp/" + "x" * 90}
    cluster_screen.show(found | {"namesrv": "127.0.0.1:20000", "nodes": nodes, "links": links}, console)
    shown = file.getvalue()
    for node in nodes:
        assert_whole(shown, f"{node['pid']} {node['address']}" + f" {node['max_offset']:,}" * (node is not nodes[0]))
    assert_whole(shown, "232.8 GiB, ended (-9), pid 4194000, cut for 100 d")
    assert (shown.count("NO"), shown.count("CUT")) == (2, 8)
    assert_fits(shown, width, 95)


def test_messages_show_every_number_whole(width: int) -> None:
    console, file = screen(width)
    message = Message(
        "%RETRY%a-very-long-consumer-group-name-of-production-250000000",
        b"a body of 250000000 which may be shortened, being only a beginning",
        queue_id=1023,
        queue_offset=LARGE,
        store_timestamp=1_700_000_000_123,
        properties_string=f"KEYS\x01{LARGE} key-250000001\x02TAGS\x01tag-12345678",
    )
    rows = [message_row(LARGE + at, 4_194_304 + at, message) for at in range(3)]
    print_table(console, MESSAGE_COLUMNS, rows)
    shown = file.getvalue()
    for row in rows:
        assert_whole(shown, " ".join(row[:-1]))
    assert_fits(shown, width, len(message.topic))


def test_the_faults_that_can_be_planted_show_every_number_whole(width: int) -> None:
    console, file = screen(width)
    print_pairs(console, ((fault.name, fault.description) for fault in faults.FAULTS))
    for fault in faults.FAULTS:
        assert fault.name in file.getvalue()
        assert_whole(file.getvalue(), fault.description)
    assert_fits(file.getvalue(), width)


def test_a_replay_shows_every_number_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[str]] = []
    made = link.cells
    monkeypatch.setattr(link, "cells", lambda cluster: rows.append(made(cluster)) or rows[-1])  # type: ignore[func-returns-value]
    seed = next(seed for seed in range(100) if schedule.draw(seed).slaves == 2)
    console, file = screen(width)
    replay.show(schedule.draw(seed), console)
    table = file.getvalue()
    for row in rows:
        assert_whole(table, " ".join(row))
    assert "…" not in table


def test_a_column_of_text_is_shortened_before_a_table_becomes_lines(width: int) -> None:
    console, file = screen(width)
    print_table(console, [Column("offset", is_number=True), Column("body", least=16)], [[str(LARGE), "x" * 200]])
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["offset", "body"]
    assert lines[1].startswith(f"{LARGE}  xxx") and lines[1].endswith("…") and len(lines[1]) == width


def test_inspect_on_a_terminal_is_as_wide_as_that(width: int, tmp_path: Path) -> None:
    base = 10**12
    with CommitLog.open(tmp_path, file_size=1000) as log:
        log.begin_at(base)
        for _ in range(3):
            log.append(Message("topic-of-250000000", b"x" * 40, queue_id=3, store_timestamp=1_700_000_000_123))
    shown = terminal(width, *COMMAND, "inspect", tmp_path)
    assert_whole(shown, f"{base} 2023 14 13 20.123 250000000 3")
    assert_fits(shown, width)


@pytest.fixture(scope="module")
def coverage() -> citations.Coverage:
    return citations.check_tree(Path(citations.__file__).resolve().parents[1])


def test_the_table_of_clauses_shows_every_number_whole(width: int, coverage: citations.Coverage) -> None:
    shown = list(citations.table(coverage, width))
    places, totals = (list(part) for is_total, part in groupby(citations.table(coverage), key=bool) if is_total)
    words = {word for line in shown for word in line.split()}
    assert words >= {word for line in places[1:] for word in line.split()}
    assert [line.split() for line in shown[-len(totals) + 1 :]] == [line.split() for line in totals[1:]]
    longest = max(len(word) for word in words)
    assert_fits("\n".join(shown), width, longest)
