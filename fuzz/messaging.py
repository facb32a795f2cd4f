"""The demo's first part: a name server, a master and its slave; producers and consumers; at last the slave alone.

Each is a process of its own, on loopback. What consumers get is compared with what producers sent, message by message.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.java_clients import RELEASE, Java, JavaClients, find_java
from rocketmq_ha.fuzz.messages import KINDS, NUMBER, Row, differences, line_of, made, read_lines
from rocketmq_ha.fuzz.ports import free_port
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app.client_session import ClientSession, NameServers, client_session, message_ids
from rocketmq_ha.impl.client.admin import Admin
from rocketmq_ha.impl.client.route_data import MASTER_ID
from rocketmq_ha.impl.client.send_command import prepare
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import RequestFailed, RequestRefused
from rocketmq_ha.impl.net.status_socket import NotRunning, ask
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import format_properties

TOPIC: Final = "demo"
GROUP: Final = "demo"
QUEUES: Final = 4
SEED: Final = 1
WAIT_S: Final = 60.0
QUIET_S: Final = 30.0  # a consumer that gets nothing for so long gets nothing more
POLL_S: Final = 0.05
TIMEOUT_MS: Final = 60_000
JAVA_SENDS: Final = 500
COMMIT, ROLLBACK, PREPARED = 8, 12, 4
SMALL: Final = (
    "--file-size",
    "4194304",
    "--queue-file-size",
    "200000",
    "--max-hash-slot-num",
    "10000",
    "--max-index-num",
    "40000",
)


@dataclass(frozen=True, slots=True)
class Messaging:
    """Messages that were sent, consumed from the master, and read from the slave; all problems."""

    sent: int
    consumed: int
    from_slave: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses, and the stores of the brokers."""

    name_server: str
    master_address: str
    master: Node
    master_store: Path
    slave_store: Path


def exchange(out: Path, messages: int, console: Console, *, with_java: bool = True) -> Messaging:
    """Send, consume, kill the master, read from its slave, and compare.

    Args:  messages: that our producer sends. with_java: let RocketMQ's clients take part, if they are there.
    Raises: FuzzError, if a process fails or nothing goes on for WAIT_S.
    """
    directory = out / "messaging"
    directory.mkdir()
    java = find_java() if with_java else "it was not asked for"
    to_send = list(made(messages, SEED))
    (directory / "lines.json").write_text("".join(line_of(TOPIC, kind, row) for kind, row in to_send), "utf-8")
    with ExitStack() as stack:
        servers = _servers(directory, stack)
        console.print(f"   name server {servers.name_server}, master {servers.master_address}, and a slave of it")
        session = stack.enter_context(client_session(NameServers((servers.name_server,))))
        admin = Admin(session.client, session.name_servers)
        admin.create_topic(servers.master_address, TOPIC, QUEUES, 6)
        _wait("the topic has a route", lambda: _addresses(admin))
        _slave(directory, servers, stack)  # it takes the topic with its first round of tables
        theirs = None
        if isinstance(java, Java):
            await_ = messages + 1 + JAVA_SENDS
            theirs = JavaClients(java, directory, servers.name_server, TOPIC, JAVA_SENDS, await_, round(WAIT_S / 2))
            stack.callback(theirs.stop)
        consumed = directory / "consumed.json"
        consumer = _consumer(directory, servers.name_server, consumed, stack, "--group", GROUP)
        began = time.monotonic()
        counts = _produce(directory, servers.name_server, stack)
        committed = _transaction(session, servers.master_address, str(messages), COMMIT)
        _transaction(session, servers.master_address, str(messages + 1), ROLLBACK)
        kinds = Counter(kind for kind, _ in to_send)
        said = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS)
        console.print(f"   sent {messages + 1}: {said},\n   1 of a transaction; another one was rolled back")
        rows = [*(row for _, row in to_send), committed]
        problems = [] if counts == {"SEND_OK": messages} else [f"sends ended with {counts}"]
        if theirs is None:
            console.print(f"   Java's clients take no part: {java}")
        else:
            _wait("Java's clients end", lambda: theirs.status is not None)
            of_java, by_java = theirs.rows("sent"), theirs.rows("consumed")
            rows += of_java
            says = f"{len(of_java)} sent, {len(by_java)} consumed, {_said(rows, by_java)}"
            console.print(f"   Java's clients, {RELEASE}: {says}")
            problems += _problems("consumed by Java's clients", rows, by_java)
            problems += [f"Java's clients ended with status {theirs.status}"] if theirs.status else []
        _wait_long(lambda: _count(consumed), len(rows))
        seconds = time.monotonic() - began
        consumer.stop()
        got = read_lines(consumed)
        console.print(f"   consumed {len(got)} messages in {seconds:.1f} s: {_said(rows, got)}")
        problems += _problems("consumed", rows, got)
        _await_slave(servers)
        servers.master.kill()
        _wait("the name server has taken the master off", lambda: MASTER_ID not in _addresses(admin))
        read = directory / "from-slave.json"
        _consumer(directory, servers.name_server, read, stack, "--stop-at-end").join(WAIT_S)
        again = read_lines(read)
        console.print(f"   master killed with kill -9; the slave gave {len(again)}: {_said(rows, again)}")
        problems += _problems("read from the slave", rows, again)
    return Messaging(len(rows), len(got), len(again), tuple(problems))


# --- Processes -----------------------------------------------------------------------------------------------------------


def _servers(directory: Path, stack: ExitStack) -> Servers:
    """Start a name server and a master; they run when this returns."""
    kept = ("--kv-config", str(directory / "kvConfig.json"))
    name_server = Node(directory / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0", *kept)
    stack.callback(name_server.stop)
    address, store = name_server.line("listening"), directory / "master"
    master = _broker(directory, "master", address, stack)
    return Servers(address, master.line("listening"), master, store, directory / "slave")


def _slave(directory: Path, servers: Servers, stack: ExitStack) -> None:
    _broker(directory, "slave", servers.name_server, stack, "--role", "SLAVE", "--broker-id", "1").line("listening")


def _broker(directory: Path, name: str, name_server: str, stack: ExitStack, *more: str) -> Node:
    role = () if more else ("--role", "ASYNC_MASTER")
    port = free_port(-2)  # two below it, slaves ask for topics
    where = ("--store", str(directory / name), "--listen", f"127.0.0.1:{port}", "--ha-listen", "127.0.0.1:0")
    node = Node(directory / f"{name}.log", "broker", *where, "--namesrv", name_server, *SMALL, *role, *more)
    stack.callback(node.stop)
    return node


def _consumer(directory: Path, name_server: str, out: Path, stack: ExitStack, *more: str) -> Node:
    wanted = ("--topic", TOPIC, "--from", "first", "--body", "base64", *more)
    node = Node(directory / "consume.log", "consume", "--namesrv", name_server, *wanted, out=out)
    stack.callback(node.stop)
    return node


def _produce(directory: Path, name_server: str, stack: ExitStack) -> dict[str, int]:
    """Send the lines. Returns: how many sends ended with which status."""
    log = directory / "send.log"
    said = ("--namesrv", name_server, "--lines", "json", "--quiet", "--group", GROUP, "--timeout", str(TIMEOUT_MS))
    node = Node(log, "send", *said, source=directory / "lines.json", out=directory / "send.out")
    stack.callback(node.stop)
    node.join(WAIT_S)
    words = log.read_text("utf-8").split()
    return {name: int(count) for name, _, count in (word.partition("=") for word in words) if name.isupper()}


def _await_slave(servers: Servers) -> None:
    """Wait until the slave has all of the master's log, and its tables."""

    def has_all() -> bool:
        try:
            master, slave = ask(servers.master_store), ask(servers.slave_store)
        except NotRunning:
            return False
        return slave["following"]["tables_ms"] is not None and slave["max_offset"] == master["max_offset"]

    _wait("the slave has the master's log and tables", has_all)


def _addresses(admin: Admin) -> dict[int, str]:
    """The brokers of the topic, by id; none while it has no route."""
    try:
        route = admin.route(TOPIC)
    except (RequestFailed, RequestRefused):
        return {}
    return {number: address for data in route.broker_datas for number, address in data.broker_addrs.items()}


def _wait(what: str, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise FuzzError(f"waited {WAIT_S:.0f} s in vain: {what}")
        time.sleep(POLL_S)


def _wait_long(count: Callable[[], int], wanted: int) -> None:
    """Wait as long as something goes on; what never comes is found by the comparison."""
    last, since = -1, time.monotonic()
    while (now := count()) < wanted and time.monotonic() - since < QUIET_S:
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(POLL_S)


# --- Messages ------------------------------------------------------------------------------------------------------------


def _transaction(session: ClientSession, master: str, number: str, end: int) -> Row:
    """Send a half message, and end it by a commit or a rollback. Returns: the message. Raises: FuzzError if that is refused."""
    uniq_key = message_ids(session.name_servers[0]).create_uniq_id(wall_clock_ms())
    row = Row(number, b"in a transaction", "transaction", "null")
    properties = {NUMBER: number, "TAGS": row.tags, "TRAN_MSG": "true", "PGROUP": GROUP}
    message = Message(TOPIC, row.body, born_timestamp=wall_clock_ms(), properties_string=format_properties(properties))
    prepared = prepare(message, GROUP, uniq_key)
    half = prepared._replace(ext_fields={**prepared.ext_fields, "f": str(PREPARED)})
    answer = session.client.ask(master, half.command(0), TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise FuzzError(f"{master}: a half message ended with {answer.code} ({answer.remark}), expected SUCCESS")
    ext_fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(fields.i64(answer, "queueOffset")),
        "commitLogOffset": str(int(fields.text(answer, "msgId")[-16:], 16)),
        "commitOrRollback": str(end),
        "fromTransactionCheck": "false",
        "msgId": uniq_key,
        "transactionId": uniq_key,
    }
    answer = session.client.ask(master, request(RequestCode.END_TRANSACTION, ext_fields), TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise FuzzError(f"{master}: the end of a transaction ended with {answer.code} ({answer.remark}), expected SUCCESS")
    return row


def _count(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def _said(sent: Sequence[Row], got: Sequence[Row]) -> str:
    found = differences(sent, got)
    return ", ".join(f"{count} {what}" for what, count in found.items()) or "none lost, twice or changed"


def _problems(what: str, sent: Sequence[Row], got: Sequence[Row]) -> list[str]:
    return [f"{what}: {_said(sent, got)}"] if differences(sent, got) else []
