"""Each option of `send` and of `admin` reaches what it is for; what `admin` prints fits 80 columns."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from rich.console import Console

from kit.broker_option_tables import NAME_SERVERS, OF_CLIENTS
from kit.broker_tables import BrokerTables
from kit.command_line import invoke
from kit.option_tables import arguments
from rocketmq_ha.impl.app.client_session import NameServers
from rocketmq_ha.impl.app.put_lines import MessageFields
from rocketmq_ha.impl.cli import admin as admin_module
from rocketmq_ha.impl.cli import admin_changes, admin_output, main
from rocketmq_ha.impl.cli import send as send_module
from rocketmq_ha.impl.cli.table import console_for
from rocketmq_ha.impl.client.admin import BrokerAddress, QueueProgress
from rocketmq_ha.impl.client.route_data import BrokerData, MessageQueue, QueueData, TopicRoute
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.codes import RequestCode

Call = tuple[object, ...]
Calls = list[Call]


@contextmanager
def session(calls: Calls, name_servers: NameServers) -> Iterator[SimpleNamespace]:
    calls.append(("session", name_servers))
    yield SimpleNamespace(client="client", routes="routes", name_servers=name_servers.addresses)


# --- send --------------------------------------------------------------------------------------------------------------------


class Sending:
    """A `send` whose parts note what they get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Calls = []
        self.made: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.is_ok, self.counts = True, {"SENT": 1}
        stdio = SimpleNamespace(flush=lambda: None, fileno=lambda: 7, isatty=lambda: False)

        def leave(status: int) -> None:
            raise click.exceptions.Exit(status)

        monkeypatch.setattr(send_module, "sys", SimpleNamespace(stdin=stdio, stdout=stdio, exit=leave))
        monkeypatch.setattr(send_module, "client_session", lambda names: session(self.calls, names))
        monkeypatch.setattr(send_module, "message_ids", lambda name: f"ids of {name}")
        monkeypatch.setattr(send_module, "timed", lambda *_: None)
        for name in ("LineSource", "Producer", "Sender", "json_maker", "text_maker"):
            monkeypatch.setattr(send_module, name, self._maker(name))

    def _maker(self, name: str) -> Callable[..., Any]:
        def make(*arguments: Any, **more: Any) -> Any:
            self.made[name] = (arguments, more)
            return SimpleNamespace(name=name, lines=[], is_ok=self.is_ok, is_cut=False, counts=self.counts)

        return make


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(monkeypatch)


def test_each_option_of_send_has_its_place(sending: Sending) -> None:
    words = "--topic t --tags g --keys k --property p=v --queue-id 3 --no-wait --lines json"
    result = invoke(
        "send",
        *arguments(OF_CLIENTS),
        *words.split(),
        "--group",
        "x",
        "--in-flight",
        4,
        "--batch",
        5,
        "--timeout",
        6,
        "--json",
        "--quiet",
    )
    assert result.exit_code == 0, result.stderr
    assert sending.calls == [("session", NAME_SERVERS)]
    assert sending.made["json_maker"] == ((MessageFields("t", "g", "k", 3, (("p", "v"), ("WAIT", "false"))),), {})
    descriptor, make, _, is_text = sending.made["LineSource"][0]
    assert (descriptor, make.name, is_text) == (7, "json_maker", False)
    assert sending.made["Producer"] == (("client", "routes", "x", "ids of a:1"), {"timeout_ms": 6, "max_in_flight": 4})
    parts, more = sending.made["Sender"]
    assert [parts[0], *(each.name for each in parts[1:3])] == ["client", "Producer", "LineSource"]
    assert more == {"quiet": True, "batch": 5, "oneway": False}
    assert parts[4](1, {"status": "SEND_OK"}) == '{"line": 1, "status": "SEND_OK"}'


def test_each_default_of_send_has_its_place(sending: Sending) -> None:
    assert invoke("send", "--namesrv", "a:1", "--topic", "t").exit_code == 0
    assert sending.calls == [("session", NameServers(("a:1",)))]
    assert sending.made["text_maker"] == ((MessageFields("t", None, None, None, ()),), {})
    descriptor, _, _, is_text = sending.made["LineSource"][0]
    assert (descriptor, is_text) == (7, True)
    expected = ("client", "routes", "rocketmq-ha", "ids of a:1"), {"timeout_ms": 3_000, "max_in_flight": 256}
    assert sending.made["Producer"] == expected
    parts, more = sending.made["Sender"]
    assert more == {"quiet": False, "batch": 1, "oneway": False}
    assert parts[4](1, {"status": "SEND_OK"}) == "      1  SEND_OK"


@pytest.mark.parametrize(
    ("words", "is_ok", "counts", "status"),
    [
        ((), True, {}, 0),
        ((), False, {"SENT": 1}, 1),
        (("--oneway",), False, {"SENT": 1}, 0),
        (("--oneway",), False, {"SENT": 1, "MESSAGE_ILLEGAL": 1}, 1),
    ],
)
def test_a_body_is_one_message_and_a_oneway_send_needs_no_ok(
    sending: Sending, words: tuple[str, ...], is_ok: bool, counts: dict[str, int], status: int
) -> None:
    sending.is_ok, sending.counts = is_ok, counts
    made: list[bytes] = []
    sending.made.clear()
    send_module.text_maker = lambda _: made.append  # type: ignore[assignment]
    assert invoke("send", "--namesrv", "a:1", "--topic", "t", "--body", "text", *words).exit_code == status
    assert made == [b"text"] and sending.made["LineSource"][0][0] is None
    assert sending.made["Sender"][1]["oneway"] == bool(words)


def test_the_bytes_of_a_file_are_a_body(sending: Sending, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\n")
    made: list[bytes] = []
    send_module.text_maker = lambda _: made.append  # type: ignore[assignment]
    assert invoke("send", "--namesrv", "a:1", "--topic", "t", "--file", tmp_path / "f").exit_code == 0
    assert made == [b"\xff\n"] and sending.made["LineSource"][0][0] is None


# --- admin -------------------------------------------------------------------------------------------------------------------

LARGE = 9_876_543_210_123
BROKERS = [
    BrokerAddress("cluster-of-production", f"broker-{name}", number, f"203.0.113.{number}:10911")
    for name, number in (("a-with-a-long-name", 0), ("a-with-a-long-name", 250), ("b", 0))
]
QUEUE = MessageQueue("%RETRY%a-long-consumer-group-of-production", "broker-b", 1023)


class Asked:
    """An Admin that notes what it is asked, and answers with large numbers and long names."""

    def __init__(self, calls: Calls, **answers: object) -> None:
        """answers: in place of those below, by method."""
        self._calls = calls
        self._answers: dict[str, object] = {
            "topics": [QUEUE.topic, "t"],
            "brokers": BROKERS,
            "masters": [BROKERS[2]],
            "groups": {QUEUE.topic[7:]: {"consumeEnable": True, "retryQueueNums": 1023, "retryMaxTimes": 2_147_483_647}},
            "route": TopicRoute([QueueData("broker-b", 8, 4, 6)], [BrokerData("broker-b", {0: BROKERS[2].address})]),
            "progress": [QueueProgress(QUEUE, LARGE, LARGE + 30, LARGE + 10, 1_700_000_000_000)],
            "runtime_info": {"commitLogMaxOffset": str(LARGE), "putTps": "250000.1 250000.2 250000.3", "x": "word " * 40},
            "ha_status": {"master": True, "haConnectionInfo": [{"addr": "203.0.113.9:1", "slaveAckOffset": LARGE, "diff": 7}]},
            "consumers": [],
            "offset_of": LARGE,
            "delete_topic": [],
            **answers,
        }

    def __getattr__(self, name: str) -> Callable[..., object]:
        def ask(*arguments: object) -> object:
            self._calls.append((name, *arguments))
            return self._answers.get(name)

        return ask


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found: Calls = []
    answer(monkeypatch, found)
    return found


def answer(monkeypatch: pytest.MonkeyPatch, calls: Calls, **answers: object) -> None:
    """Let the servers give these answers; see Asked."""

    def make(client: object, name_servers: tuple[str, ...]) -> Asked:
        assert (client, name_servers) == ("client", ("a:1", "b:2"))
        return Asked(calls, **answers)

    for module in (admin_module, admin_changes):
        monkeypatch.setattr(module, "client_session", lambda names: session(calls, names))
        monkeypatch.setattr(module, "Admin", make)


B = BROKERS[2].address
QUEUES = [MessageQueue("t", "broker-b", number) for number in range(8)]
ADMIN: tuple[tuple[str, list[Call]], ...] = (
    ("topics", [("topics",)]),
    ("groups --cluster c --broker n", [("masters", "c", "n"), ("groups", B)]),
    ("groups", [("masters", None, None), ("groups", B)]),
    ("routes t", [("route", "t")]),
    ("progress g --topic t", [("masters",), ("progress", B, "g", "t")]),
    ("progress g", [("masters",), ("progress", B, "g", None)]),
    ("status --broker broker-b", [("brokers",), ("runtime_info", B), ("ha_status", B)]),
    ("status --cluster cluster-of-production --broker broker-b", [("brokers",), ("runtime_info", B), ("ha_status", B)]),
    ("clusters", [("brokers",)]),
    ("create-topic t --queues 3 --perm 4 --cluster c --broker n", [("masters", "c", "n"), ("create_topic", B, "t", 3, 4)]),
    ("create-topic t", [("masters", None, None), ("create_topic", B, "t", 8, 6)]),
    ("delete-topic t", [("topics",), ("masters",), ("delete_topic", "t", [BROKERS[2]])]),
    ("create-group g --retries 3 --cluster c --broker n", [("masters", "c", "n"), ("create_group", B, "g", 3)]),
    ("create-group g", [("masters", None, None), ("create_group", B, "g", 16)]),
    *(
        (
            f"reset-offset g t --to {place}",
            [
                *(("route", "t"), ("masters",), ("consumers", B, "g"), ("groups", B)),
                *(("offset_of", B, queue, asked) for queue in QUEUES),
                *(("reset_offset", B, "g", queue, LARGE) for queue in QUEUES),
            ],
        )
        for place, asked in (("first", "first"), ("last", "last"), ("1234", 1234))
    ),
)
# What brokers in Java answer to 28 besides: the names of 5.3.3 that are longer than ours, and one of 4.9.8.
JAVA_FIGURES = {
    "EndTransactionThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "commitLogDiskRatio_/var/lib/rocketmq/store/commitlog": "0.7658193627471952",
    "litePullThreadPoolQueueHeadWaitTimeMills": "0",
    "runtime": "[ 364 days, 23 hours, 59 minutes, 59 seconds ]",
    "startAcceptSendRequestTimeStamp": "1700000000000",
}

each_command = pytest.mark.parametrize(("words", "asked"), ADMIN, ids=[words for words, _ in ADMIN])


@each_command
@pytest.mark.parametrize("as_json", [True, False])
def test_each_option_of_admin_reaches_the_servers(words: str, asked: list[Call], as_json: bool, calls: Calls) -> None:
    result = invoke("admin", *words.split(), *arguments(OF_CLIENTS), *(["--json"] if as_json else []))
    assert result.exit_code == 0, result.stderr
    assert calls == [("session", NAME_SERVERS), *asked]
    is_json = [line.startswith("{") and bool(json.loads(line)) for line in result.stdout.splitlines()]
    assert is_json and set(is_json) == {as_json}


def test_a_name_server_that_was_not_told_of_a_deletion_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, [], topics=["t"], delete_topic=[RequestFailed("b:2", 216, "no answer within 3000 ms")])
    result = invoke("admin", "delete-topic", "t", *arguments(OF_CLIENTS))
    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert line.startswith("b:2: ")
    assert line.endswith("no answer within 3000 ms: if it runs, it lists topic t until it is started again")


@pytest.mark.parametrize(("consumed", "lag"), [(0, 4), (2, 4), (3, 4), (5, 2), (7, 0), (9, -2)])
def test_messages_that_are_gone_are_no_lag(consumed: int, lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue has the messages 3 to 6: those of a deleted topic are gone, and so are those that have expired."""
    answer(monkeypatch, [], progress=[QueueProgress(QUEUES[0], 3, 7, consumed, 0)])
    words = ("admin", "progress", "g", *arguments(OF_CLIENTS))
    assert json.loads(invoke(*words, "--json").stdout)["lag"] == lag
    assert invoke(*words).stdout.splitlines()[-1] == f"lag in all {lag}"


def test_the_commands_of_admin_are_all_here() -> None:
    group = main.get_command(click.Context(main), "admin")
    assert isinstance(group, click.Group)
    assert {words.split()[0] for words, _ in ADMIN} == set(group.commands)


@each_command
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.usefixtures("calls")
def test_what_admin_prints_fits_the_screen(words: str, asked: list[Call], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number is whole."""
    assert asked
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None)
    for module in (admin_module, admin_output):
        monkeypatch.setattr(module, "console_for", lambda: console)
    invoke("admin", *words.split(), "--namesrv", "a:1;b:2")
    shown = file.getvalue()
    assert shown and max(map(len, shown.splitlines())) <= width, shown
    if words.split(maxsplit=1)[0] in ("progress", "status", "reset-offset"):
        assert str(LARGE) in shown
    if words.split(maxsplit=1)[0] in ("routes", "create-topic", "create-group", "delete-topic", "status"):
        assert B in shown


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [(0, None), (-1, None), (1, "1970-01-01 00:00:00"), (1_700_000_000_000, "2023-11-14 22:13:20"), (1 << 62, str(1 << 62))],
)
def test_a_queue_of_which_nothing_was_consumed_has_no_last_time(
    timestamp: int, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers 0 where the group has consumed no message of the queue (HA-BT-63)."""
    answer(monkeypatch, [], progress=[QueueProgress(QUEUES[0], 0, 7, 0, timestamp)])
    words = ("admin", "progress", "g", *arguments(OF_CLIENTS))
    assert json.loads(invoke(*words, "--json").stdout)["last_utc"] == shown
    _, row, _ = invoke(*words).stdout.splitlines()
    assert row.split() == ["t", "broker-b", "0", "0", "7", "0", "7", *(shown or "").split()]


GROUPS_OF_BROKERS = TopicRoute(
    [QueueData("broker-a-with-a-long-name", 2, 2, 6), QueueData("broker-b", 2, 2, 6)],
    [BrokerData("broker-a-with-a-long-name", {250: BROKERS[1].address}), BrokerData("broker-b", {0: BROKERS[2].address})],
)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (GROUPS_OF_BROKERS, "brokerName broker-a-with-a-long-name: found no master, expected one to take the offsets"),
        (TopicRoute([QueueData("broker-b", 8, 4, 2)], []), "found no queue that may be read, expected one"),
        (TopicRoute([], []), "found no queue that may be read, expected one"),
    ],
)
def test_offsets_that_nobody_can_take_are_no_success(route: TopicRoute, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No offset is set, of a queue that has a master neither: the group is at one time or at the other in all queues."""
    calls: Calls = []
    answer(monkeypatch, calls, route=route)
    result = invoke("admin", "reset-offset", "g", "t", "--to", "first", *arguments(OF_CLIENTS))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [f"rocketmq-ha: topic t: {said}"]
    assert [call[0] for call in calls] == ["session", "route", "masters"]


@pytest.mark.parametrize("is_pipe", [False, True])
@pytest.mark.parametrize("more", [{}, JAVA_FIGURES], ids=["ours", "Java"])
def test_each_figure_of_a_broker_stands_on_one_line_of_80_columns(
    tmp_path: Path, more: dict[str, str], is_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as resources:
        tables = BrokerTables(tmp_path, resources)
        tables.put("orders", 0)
        tables.wall_ms += 365 * 86_400_000 - 1_000
        figures = tables.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert figures["runtime"] == JAVA_FIGURES["runtime"]
    answer(monkeypatch, [], brokers=BROKERS[2:], runtime_info=figures | more)
    file = io.StringIO()
    screen = Console(file=file, width=80, highlight=False, soft_wrap=True, color_system=None)
    for module in (admin_module, admin_output):
        monkeypatch.setattr(module, "console_for", lambda: console_for(file) if is_pipe else screen)
    assert invoke("admin", "status", *arguments(OF_CLIENTS)).exit_code == 0
    lines = file.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    shown = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    assert {name: shown[name].strip() for name in figures | more} == figures | more
