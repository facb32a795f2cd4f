"""The first part of the demo, for real, and each way in which it can fail: messages lost, changed, twice; no Java."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kit.waiting import PATIENCE_S
from rocketmq_ha.fuzz import java_clients, messaging
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.java_clients import JARS, Java, JavaClients, find_java
from rocketmq_ha.fuzz.messages import KINDS, Row, differences, line_of, made, read_lines
from rocketmq_ha.fuzz.messaging import exchange
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.wire.message_line import parse_message_line

A, B = Row("1", b"a", "t", "null"), Row("2", b"b", "null", "k")
SENT = [A, B]


def test_what_is_sent_is_consumed_and_read_from_the_slave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = exchange(tmp_path, 100, Console(width=1_000), with_java=False)
    assert (found.problems, found.sent, found.consumed, found.from_slave) == ((), 101, 101, 101)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "none lost, twice or changed" in line] == [lines[4], lines[5]]
    assert lines[1:4] == [
        "sent 101: 33 plain, 32 with tags, 32 with keys, 3 delayed by 1 s,",
        "1 of a transaction; another one was rolled back",
        "Java's clients take no part: it was not asked for",
    ]
    assert max(map(len, lines)) <= 77  # and three spaces before them
    consumed, again = (read_lines(tmp_path / "messaging" / name) for name in ("consumed.json", "from-slave.json"))
    assert sorted(consumed) == sorted(again)
    assert {row.number for row in consumed} == {str(number) for number in range(101)}


def test_the_kinds_of_messages_and_what_they_carry() -> None:
    """Each line is one that `send --lines json` takes."""
    for kind, row in made(64, 1):
        message = parse_message_line(line_of("T", kind, row).encode(), 7)
        properties = message.properties
        assert (message.topic, message.body, properties["number"]) == ("T", row.body, row.number)
        assert (properties.get("TAGS", "null"), properties.get("KEYS", "null")) == (row.tags, row.keys)
        carried = {name for name in ("TAGS", "KEYS", "DELAY") if name in properties}
        assert carried == dict(zip(KINDS, (set(), {"TAGS"}, {"KEYS"}, {"DELAY"}), strict=True))[kind]
    assert {kind for kind, _ in made(64, 1)} == set(KINDS)


@pytest.mark.parametrize(
    ("consumed", "found"),
    [
        ([A, B], {}),
        ([B, A], {}),
        ([A], {"lost": 1}),
        ([], {"lost": 2}),
        ([A, B, A], {"twice": 1}),
        ([A, B._replace(body=b"B")], {"changed": 1}),
        ([A._replace(tags="null"), B._replace(keys="null")], {"changed": 2}),
        ([A, B, Row("3", b"a", "t", "null")], {"never sent": 1}),
        ([A, A, A._replace(number="")], {"twice": 1, "never sent": 1, "lost": 1}),
    ],
)
def test_what_consumers_get_is_compared_message_by_message(consumed: list[Row], found: dict[str, int]) -> None:
    assert differences(SENT, consumed) == found
    assert (messaging._problems("read", SENT, consumed) == []) == (not found)


def test_a_line_that_is_not_whole_is_left(tmp_path: Path) -> None:
    fields = {"properties": {"number": "1"}, "body_base64": base64.b64encode(b"a").decode(), "tags": "t", "keys": []}
    text = json.dumps(fields) + "\n"
    (tmp_path / "f").write_text(text + text[:-1])
    assert read_lines(tmp_path / "f") == [A]


# --- Java's clients ----------------------------------------------------------------------------------------------------------


def java_of(directory: Path, script: str) -> Path:
    """A `java` that is a script of the test."""
    file = directory / "bin" / "java"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def cache_of(directory: Path) -> Path:
    for jar in JARS:
        (directory / jar).parent.mkdir(parents=True, exist_ok=True)
        (directory / jar).touch()
    return directory


@pytest.mark.parametrize(
    ("break_", "reason"),
    [
        (lambda _: None, None),
        (lambda at: (at / JARS[1]).unlink(), "Maven's cache has no rocketmq-common-4.9.8.jar"),
        (lambda at: java_of(at.parent, "echo openjdk 11.0.2"), "java is older than 17"),
        (lambda at: java_of(at.parent, "exit 1"), "java is older than 17"),
        (lambda at: (at.parent / "bin/java").unlink(), "no java is on the PATH"),
        (lambda at: (at.parent / "bin/java").write_text("#!/nowhere/sh\n"), "java does not run"),
    ],
)
def test_a_java_is_used_only_with_all_that_it_needs(
    break_: Callable[[Path], object], reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, cache = java_of(tmp_path, "echo openjdk 17.0.15 2025-04-15"), cache_of(tmp_path / "cache")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    break_(cache)
    found = find_java(cache)
    if reason is None:
        assert found == Java(str(executable), ":".join(str(cache / jar) for jar in JARS))
    else:
        assert isinstance(found, str) and found.endswith(reason)


def test_what_javas_clients_print_is_read_and_they_are_ended(tmp_path: Path) -> None:
    line = f"consumed\t1\t{base64.b64encode(b'a').decode()}\tt\tnull"
    script = f"echo \"$@\" >&2; printf 'sent\\t2\\tYg==\\tnull\\tk\\n{line}\\nconsumed\\t2'; exec sleep 60"
    clients = JavaClients(Java(str(java_of(tmp_path, script)), "a:b"), tmp_path, "127.0.0.1:1", "T", 3, 4, 5)
    try:
        messaging._wait("its lines", lambda: clients.rows("consumed"))
        assert (clients.rows("sent"), clients.rows("consumed"), clients.status) == ([B], [A], None)
        words = (tmp_path / "java.log").read_text().split()
        assert words[-7:-5] == ["a:b", str(java_clients.PROGRAM)] and words[-5:] == ["127.0.0.1:1", "T", "3", "4", "5"]
    finally:
        clients.stop()
    assert clients.status == -15


# --- Processes ---------------------------------------------------------------------------------------------------------------


def test_a_node_reads_a_file_and_writes_another(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("told\n")
    node = Node(tmp_path / "log", "x", behind=("sh", "-c", "cat"), source=tmp_path / "in", out=tmp_path / "out")
    node.join(within_s=PATIENCE_S)
    assert (tmp_path / "out").read_text() == "told\n"
    assert node.stop() == 0


def test_a_node_that_fails_or_does_not_end_is_an_error(tmp_path: Path) -> None:
    node = Node(tmp_path / "log", "x", behind=("sh", "-c", "exit 3"))
    with pytest.raises(FuzzError, match=r"log: the process ended with status 3$"):
        node.join(within_s=PATIENCE_S)
    node.stop()
    node = Node(tmp_path / "log", "x", behind=("sh", "-c", "exec sleep 60"))
    with pytest.raises(FuzzError, match=r"log: the process has not ended within 0.01 s$"):
        node.join(0.01)
    assert node.stop() == -15


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messaging, "WAIT_S", 0.0)
    with pytest.raises(FuzzError, match=r"^waited 0 s in vain: a sign$"):
        messaging._wait("a sign", lambda: False)
    monkeypatch.setattr(messaging, "QUIET_S", 0.0)
    messaging._wait_long(lambda: 1, 2)  # the comparison says what is missing
