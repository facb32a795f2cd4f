"""Our broker and name server compared with Apache RocketMQ 4.9.8's, by one process of RocketMQ's own clients.

The loads of the two take turns. Every message has 1 KiB and is flushed asynchronously. The client is a Java process that runs
on the same processors, so the table says for each row how many processors client and server kept busy: a row whose server is
idle for a part of the time is limited by the client, or by the wake-ups between the two.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from .broker_kit import Side, java_broker, java_name_server, measured, our_broker, our_name_server
from .conftest import Figures
from .ha_kit import Compared, Sides
from .java_store import Rates, java_command
from .line_process import LineProcess, python

LOAD_MS: Final = 800
WARM_UP_MS: Final = 5_000  # of sends to each broker, so that Java has compiled its code, and the client its
BACKLOG: Final = 64 << 20  # bytes
IDLE: Final = 2_000
SETTLE_S: Final = 0.3  # in which a broker forgets the clients that have gone
TOPICS: Final = 5_000  # of each of the two brokers that the name servers have: 10,000 routes
LOADS: Final = {  # what: the client's command, and its number of threads or messages
    "sync sends, 1 thread": ("threads", 1),
    "sync sends, 16 threads": ("threads", 16),
    "sync sends, 64 threads": ("threads", 64),
    "batches of 32, 1 thread": ("batches", 1),
    "batches of 32, 16 threads": ("batches", 16),
    "async sends, 64 in flight": ("window", 64),
}


class Brokers(NamedTuple):
    """Both brokers, and the process of the clients, which have sent to both for a while."""

    client: LineProcess
    ours: Side
    java: Side
    our_port: int

    def sides(self, *words: object) -> list[Callable[[], Rates]]:
        """The same load on Java's broker and on ours. words: the command, and what follows the broker's name."""
        command, *more = words
        return [
            lambda: measured(self.client, self.java, command, self.java.name, *more),
            lambda: measured(self.client, self.ours, command, self.ours.name, *more),
        ]


@pytest.fixture(scope="module")
def brokers(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    work = tmp_path_factory.mktemp("brokers")
    with ExitStack() as stack:
        our_routes, our_address = our_name_server(work)
        stack.enter_context(our_routes)
        java_routes, java_address = java_name_server(java, work)
        stack.enter_context(java_routes)
        our_process, our_port = our_broker(work, our_address)
        stack.enter_context(our_process)
        java_process = stack.enter_context(java_broker(java, work, java_address))
        client = stack.enter_context(LineProcess(java_command(java, work, "BrokerBench"), work / "client.log"))
        client.answer()
        found = Brokers(client, Side("ours", our_process.pid), Side("java", java_process.pid), our_port)
        for side, address in ((found.ours, our_address), (found.java, java_address)):
            client.ask("use", side.name, address)
            client.ask("threads", side.name, WARM_UP_MS, 16)
            client.ask("batches", side.name, LOAD_MS, 1)
        yield found


@pytest.mark.benchmark(group="broker")
@pytest.mark.parametrize("what", LOADS)
def test_sends(sides: Sides, figure: Figures, brokers: Brokers, what: str) -> None:
    command, waiting = LOADS[what]
    rows = [Compared(what, "java", "ours per_second", "java per_second")]
    found = sides(rows, brokers.sides(command, LOAD_MS, waiting), warm_up_rounds=1)
    if command == "threads" and waiting == 1:
        for side in ("ours", "java"):
            figure(f"one send, median, {side}", "us", [rates[f"{side} p50_us"] for rates in found], None)


@pytest.mark.benchmark(group="broker")
def test_pull(sides: Sides, brokers: Brokers) -> None:
    """Pull a backlog that is in memory, by one thread for each of its four queues."""
    for side in (brokers.ours, brokers.java):
        brokers.client.ask("fill", side.name, BACKLOG)
    rows = [Compared("pull of a warm backlog", "java", "ours per_second", "java per_second", "B/s")]
    sides(rows, brokers.sides("pull", LOAD_MS), warm_up_rounds=1)


@pytest.mark.benchmark(group="broker")
def test_long_poll(sides: Sides, figure: Figures, brokers: Brokers) -> None:
    """From before the send until the consumer, whose pull the broker holds, has the message."""
    found = sides([], brokers.sides("poll", LOAD_MS), warm_up_rounds=1)
    for side, at_most in (("ours", 3.0), ("java", None)):
        for name in ("p50", "p99"):
            took_ms = [rates[f"{side} {name}_us"] / 1000 for rates in found]
            figure(f"from send to delivery, {name}, {side}", "ms", took_ms, at_most if name == "p50" else None)


@pytest.mark.benchmark(group="broker")
def test_idle_clients(sides: Sides, brokers: Brokers, tmp_path: Path) -> None:
    """The rate of our broker with many idle clients, compared with its rate without them."""
    with LineProcess(python("idle_clients", brokers.our_port), tmp_path / "idle.log") as idle:
        idle.answer()
        words = "threads", brokers.ours.name, LOAD_MS, 16

        def alone() -> Rates:
            return measured(brokers.client, Side("alone", brokers.ours.pid), *words)

        def beside() -> Rates:
            idle.ask("connect", IDLE)
            found = measured(brokers.client, Side("beside", brokers.ours.pid), *words)
            idle.ask("close")
            time.sleep(SETTLE_S)
            return found

        what = f"sync sends, 16 threads, beside {IDLE:,} idle clients"
        rows = [Compared(what, "no idle client", "beside per_second", "alone per_second")]
        sides(rows, [alone, beside], warm_up_rounds=1)


@pytest.mark.benchmark(group="broker")
def test_broker_routes(sides: Sides, figure: Figures, java: str, tmp_path: Path) -> None:
    """Name servers with the routes of two brokers: look up their topics, and register one of the brokers anew."""
    names = ("broker-a", "broker-b")
    with ExitStack() as stack:
        our_server, our_address = our_name_server(tmp_path)
        stack.enter_context(our_server)
        java_server, java_address = java_name_server(java, tmp_path)
        stack.enter_context(java_server)
        client = stack.enter_context(LineProcess(java_command(java, tmp_path, "NamesrvBench"), tmp_path / "client.log"))
        client.answer()
        for address in (our_address, java_address):
            for name in names:
                client.ask("register", address, name, TOPICS)
            client.ask("lookups", address, WARM_UP_MS, 16, TOPICS, *names)

        def load(side: Side, address: str) -> Rates:
            took_ms = [client.ask("register", address, name, TOPICS)["ms"] for name in names]
            found = measured(client, side, "lookups", address, LOAD_MS, 16, TOPICS, *names)
            registered_ms = sum(took_ms) / len(took_ms)
            return found | {f"registered ms {side.name}": registered_ms, f"registered {side.name}": 1000 / registered_ms}

        rows = [
            Compared(f"lookups of {len(names) * TOPICS:,} routes, 16 threads", "java", "ours per_second", "java per_second"),
            Compared(f"registrations of {TOPICS:,} topics", "java", "registered ours", "registered java"),
        ]
        turns = [
            lambda: load(Side("java", java_server.pid), java_address),
            lambda: load(Side("ours", our_server.pid), our_address),
        ]
        found = sides(rows, turns, warm_up_rounds=1)
    figure(f"registration of {TOPICS:,} topics", "ms", [rates["registered ms ours"] for rates in found], 50.0)
