"""Values that follow from several options, values that are refused, and the options of query and put."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import click
import pytest

from kit.command_line import invoke
from kit.option_tables import COMMANDS, FILES, LOOPBACK, TLS, arguments, received
from rocketmq_ha.impl.app.cleaning import HOUR_MS
from rocketmq_ha.impl.app.endpoints import Listening, TlsListening
from rocketmq_ha.impl.app.put_lines import MessageFields
from rocketmq_ha.impl.app.query import KeyQuery
from rocketmq_ha.impl.cli.message_options import _source
from rocketmq_ha.impl.net.limits import Limits

# --- What follows from several options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), (None, False)),
        (("--file-reserved-time", "0"), (0, True)),
        (("--file-reserved-time", "72"), (72 * HOUR_MS, True)),
        (("--file-reserved-time", "72", "--no-clean-file-forcibly"), (72 * HOUR_MS, False)),
        (("--clean-file-forcibly",), (None, True)),
        (("--no-clean-file-forcibly",), (None, False)),
    ],
)
@pytest.mark.parametrize("command", ["master", "slave"])
def test_files_are_deleted_by_force_if_they_are_deleted_by_age(
    command: str, words: tuple[str, ...], expected: tuple[int | None, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-69 "`clean_file_forcibly` MUST be on"."""
    found: Any = received(monkeypatch, command, *arguments(COMMANDS[command][3]), *words)
    assert (found.retention.retention.file_reserved_ms, found.retention.retention.clean_file_forcibly) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--profile", "classic"), Limits()),
        (("--profile", "classic", "--max-connections", "3"), Limits(max_connections=3)),
        (("--max-connections", "3"), Limits(3, 128, 10_000, 20_000, LOOPBACK)),
        (("--report-deadline", "0.0001"), Limits(512, 128, 1, 20_000, LOOPBACK)),
        (("--report-deadline", "0.0016"), Limits(512, 128, 2, 20_000, LOOPBACK)),
        (("--write-stall-deadline", "0.0001"), Limits(512, 128, 10_000, 1, LOOPBACK)),
        (("--allow", "::/0"), Limits(512, 128, 10_000, 20_000, (ip_network("::/0"),))),
    ],
)
def test_limits_are_those_of_the_profile_changed_by_options(
    words: tuple[str, ...], expected: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = received(monkeypatch, "master", "--store", "s", *words)
    assert found.limits == expected


@pytest.mark.parametrize(("seconds", "expected"), [("0.0001", 1), ("0.0026", 3), ("60", 60_000)])
def test_a_frame_deadline_is_at_least_a_millisecond(seconds: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = received(monkeypatch, "slave", "--store", "s", "--master", "h:3", "--frame-deadline", seconds)
    assert found.following.frame_deadline_ms == expected


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("slave", "last", "last"),
        ("slave", "min", "min"),
        ("slave", "0", 0),
        ("tail", "end", "end"),
        ("tail", str((1 << 63) - 1), (1 << 63) - 1),
    ],
)
def test_a_start_is_a_word_or_an_offset(command: str, words: str, expected: object, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = received(monkeypatch, command, *arguments(COMMANDS[command][3]), "--from", words)
    assert (found.start.start if command == "slave" else found.start) == expected


BAD = "expected hours of the day from 00 to 23, with ';' between them"
AN_ADDRESS = "expected HOST:PORT with a port of 0 to 65535, as 127.0.0.1:10912"


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        ("slave", ("--from", "end"), "Invalid value for '--from': 'end': expected last, min or a commit-log offset"),
        ("slave", ("--from", "-1"), "Invalid value for '--from': '-1': expected last, min or a commit-log offset"),
        ("tail", ("--from", "x"), "Invalid value for '--from': 'x': expected last, min, end or a commit-log offset"),
        ("tail", ("--from", str(1 << 63)), f"Invalid value for '--from': '{1 << 63}': expected last, min, end or a commit-log"),
        ("master", ("--delete-when", "24"), f"Invalid value for '--delete-when': '24': {BAD}"),
        ("master", ("--delete-when", "4;;5"), f"Invalid value for '--delete-when': '4;;5': {BAD}"),
        ("master", ("--delete-when", "-1"), f"Invalid value for '--delete-when': '-1': {BAD}"),
        ("master", ("--delete-when", ""), f"Invalid value for '--delete-when': '': {BAD}"),
        ("master", ("--sync", "1.1"), "Invalid value for '--sync': 1.1 is not in the range 0<=x<=1."),
        ("master", ("--put", "-1"), "Invalid value for '--put': -1 is not in the range x>=0."),
        ("master", ("--size", "0"), "Invalid value for '--size': 0 is not in the range x>=1."),
        ("master", ("--in-flight", "0"), "Invalid value for '--in-flight': 0 is not in the range x>=1."),
        ("master", ("--await-slaves", "-1"), "Invalid value for '--await-slaves': -1 is not in the range x>=0."),
        ("master", ("--await-replicas", "-1"), "Invalid value for '--await-replicas': -1 is not in the range x>=0."),
        ("master", ("--file-size", "0"), "Invalid value for '--file-size': 0 is not in the range x>=1."),
        (
            "master",
            ("--max-transfer-rate", "1023"),
            "Invalid value for '--max-transfer-rate': 1023 is not in the range x>=1024.",
        ),
        ("master", ("--max-connections", "0"), "Invalid value for '--max-connections': 0 is not in the range x>=1."),
        (
            "master",
            ("--max-connections-per-address", "0"),
            "Invalid value for '--max-connections-per-address': 0 is not in the range x>=1.",
        ),
        ("master", ("--report-deadline", "0"), "Invalid value for '--report-deadline': 0.0 is not in the range x>0"),
        ("master", ("--write-stall-deadline", "0"), "Invalid value for '--write-stall-deadline': 0.0 is not in the range x>0"),
        ("slave", ("--frame-deadline", "0"), "Invalid value for '--frame-deadline': 0.0 is not in the range x>0"),
        ("slave", ("--settle", "-1"), "Invalid value for '--settle': -1.0 is not in the range x>=0"),
        ("doctor", ("--patience", "0.09"), "Invalid value for '--patience': 0.09 is not in the range x>=0.1"),
        ("tail", ("--limit", "0"), "Invalid value for '--limit': 0 is not in the range x>=1."),
        ("tail", ("--heartbeat", "0"), "Invalid value for '--heartbeat': 0 is not in the range x>=1."),
        ("tail", ("--file-size", "0"), "Invalid value for '--file-size': 0 is not in the range x>=1."),
        (
            "slave",
            ("--flush-interval-commit-log", "0"),
            "'--flush-interval-commit-log': 0 is not in the range 1<=x<=2147483647.",
        ),
        (
            "slave",
            ("--flush-interval-commit-log", "2147483648"),
            "'--flush-interval-commit-log': 2147483648 is not in the range 1<=x<=2147483647.",
        ),
        ("slave", ("--flush-commit-log-least-pages", "-1"), "'--flush-commit-log-least-pages': -1 is not in the range x>=0."),
        (
            "slave",
            ("--flush-commit-log-thorough-interval", "0"),
            "'--flush-commit-log-thorough-interval': 0 is not in the range 1<=x<=2147483647.",
        ),
        ("slave", ("--file-reserved-time", "-1"), "'--file-reserved-time': -1 is not in the range 0<=x<=2147483647."),
        ("slave", ("--disk-max-used-space-ratio", "0"), "'--disk-max-used-space-ratio': 0 is not in the range 1<=x<=100."),
        ("slave", ("--disk-max-used-space-ratio", "101"), "'--disk-max-used-space-ratio': 101 is not in the range 1<=x<=100."),
        ("slave", ("--max-log-size", "0"), "'--max-log-size': 0 is not in the range x>=1."),
        ("slave", ("--clean-resource-interval", "0"), "'--clean-resource-interval': 0 is not in the range 1<=x<=2147483647."),
        ("slave", ("--min-free-space", "-1"), "'--min-free-space': -1 is not in the range x>=0."),
        ("master", ("--replicas", "0"), "'--replicas': 0 is not in the range x>=1."),
        ("master", ("--role", "SLAVE"), "role SLAVE: expected ASYNC_MASTER or SYNC_MASTER for `rocketmq-ha master`"),
        ("master", ("--allow", "10.0.0.1/8"), "network '10.0.0.1/8': 10.0.0.1/8 has host bits set; expected one as"),
        ("master", ("--listen", "h:70000"), f"--listen 'h:70000': {AN_ADDRESS}"),
        ("master", ("--listen", "none"), "--listen none: expected --tls-listen with it, or nobody can connect"),
        ("master", ("--tls-listen", "h:1"), "--tls-listen is given and --tls-cert and --tls-key and --tls-ca are not"),
        (
            "master",
            tuple(arguments(TLS)),
            "--tls-cert is given and --tls-listen is not: expected the address where TLS is spoken",
        ),
        ("slave", ("--tls-name", "n"), "--tls-name is given and --tls-cert and --tls-key and --tls-ca are not"),
        ("doctor", ("--broker", "b"), f"--broker 'b': {AN_ADDRESS}"),
        ("doctor", ("--master", "h:0"), "address 'h:0': expected the port of a master, not 0"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(
    command: str, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"rocketmq_ha.impl.cli.{COMMANDS[command][0]}", lambda *_: pytest.fail("the command runs"))
    result = invoke(command, *arguments(COMMANDS[command][3]), *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--listen", "none", "--tls-listen", "[::1]:4"), Listening(None, TlsListening(("::1", 4), FILES))),
        (("--tls-listen", "h:4"), Listening(("127.0.0.1", 10912), TlsListening(("h", 4), FILES))),
    ],
)
def test_a_master_listens_without_tls_unless_it_is_told_not_to(
    words: tuple[str, ...], expected: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = received(monkeypatch, "master", "--store", "s", *arguments(TLS), *words)
    assert found.listening == expected


# --- put and query -----------------------------------------------------------------------------------------------------


def test_each_option_of_query_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def find(store: Path, wanted: KeyQuery, _: object, *, scan: bool) -> list[object]:
        seen.append((store, wanted, scan))
        return []

    monkeypatch.setattr("rocketmq_ha.impl.cli.query.find_messages", find)
    assert invoke("query", "s", "--topic", "t", "--key", "k").exit_code == 1
    words = ("--topic", "t", "--key", "k", "--from", "1", "--to", "2", "--limit", "3", "--scan")
    result = invoke("query", "s", *words)
    assert (result.exit_code, result.stderr) == (1, "s: no message of topic 't' with key 'k' in that time\n")
    assert seen == [
        (Path("s"), KeyQuery("t", "k", 0, (1 << 63) - 1, 64), False),
        (Path("s"), KeyQuery("t", "k", 1, 2, 3), True),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-5", -5),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01.0006", 1_001),
        ("1970-01-01T02:00:00+01:00", 3_600_000),
    ],
)
def test_a_time_is_in_utc_unless_it_names_a_zone(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[KeyQuery] = []
    monkeypatch.setattr("rocketmq_ha.impl.cli.query.find_messages", lambda _, wanted, *__, **___: seen.append(wanted) or [])
    invoke("query", "s", "--topic", "t", "--key", "k", "--from", text, "--to", text)
    assert [(wanted.begin, wanted.end) for wanted in seen] == [(expected, expected)]


def test_a_time_that_is_none_is_named(tmp_path: Path) -> None:
    result = invoke("query", tmp_path, "--topic", "t", "--key", "k", "--to", "noon")
    expected = "'noon': expected ms since 1970, or a time like 2024-01-31T12:00:00"
    assert (result.exit_code, expected in result.stderr) == (2, True)


def test_each_option_of_put_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def make(fields: MessageFields) -> None:
        seen.append(fields)
        raise click.ClickException("seen")

    for name in ("text_maker", "json_maker"):
        monkeypatch.setattr(f"rocketmq_ha.impl.cli.put.{name}", make)
    words = ("--topic", "t", "--tags", "a", "--keys", "k", "--property", "p=q=r", "--property", "x=y", "--queue-id", "7")
    invoke("put", "--to", "s", *words, "--no-wait")
    invoke("put", "--to", "s", "--lines", "json")
    assert seen == [MessageFields("t", "a", "k", 7, (("p", "q=r"), ("x", "y"), ("WAIT", "false"))), MessageFields()]


def test_the_source_of_put_is_one_of_three(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\xff\n")
    found = [
        _source("b\udcff", None, "json"),
        _source(None, file, "json"),
        _source(None, None, "json"),
        _source(None, None, "text"),
    ]
    assert [(each.body, each.is_json) for each in found] == [(b"b\xff", False), (b"\xff\n", False), (None, True), (None, False)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--body", "b"), "no --topic: expected one, but for --lines json"),
        (("--topic", "t"), "no such file or directory, expected a store, or the socket rocketmq-ha-put.sock in one"),
        (("--topic", "t", "--body", "b", "--file", __file__), "--body and --file: expected one of them"),
        *(
            (("--topic", "t", "--property", text), f"--property '{text}': expected NAME=VALUE, neither of them empty")
            for text in ("p", "p=", "=v", "")
        ),
        (("--topic", "t", "--queue-id", "-1"), "Invalid value for '--queue-id': -1 is not in the range 0<=x<=2147483647."),
        (("--topic", "t", "--in-flight", "0"), "Invalid value for '--in-flight': 0 is not in the range x>=1."),
    ],
)
def test_a_mistake_in_the_options_of_put_is_named(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = invoke("put", "--to", tmp_path / "none" / "s", *words)
    assert (result.exit_code, result.stdout, told in result.stderr) == (2, "", True), result.stderr


@pytest.mark.parametrize(("size", "is_taken"), [(1 << 22, True), ((1 << 22) + 1, False)])
def test_a_body_of_a_file_has_at_most_four_mebibytes(size: int, is_taken: bool, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    with file.open("r+b") as opened:
        opened.truncate(size)
    told = invoke("put", "--to", tmp_path / "none" / "s", "--topic", "t", "--file", file).stderr
    assert (f"{file}: found more than 4194304 bytes, expected a body of at most so many" in told) == (not is_taken)
