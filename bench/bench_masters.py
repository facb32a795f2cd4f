"""What the death of one of two masters costs the other.

Name server and two masters are processes on loopback. One producer keeps 64 sends of 1 KiB in flight, to a topic that both
have; it takes the queues of both in turn. After 3 s one master is killed (kill -9), and the sends go on for 3 s. The cost is
the share of its sends a second that the other master loses in the time from the kill on. A negative one is a gain, since it
gets the sends of both. The pause is the longest time without a SEND_OK from that master in the same time.
"""

import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from rocketmq_ha.impl.app.client_session import NameServers, client_session, message_ids
from rocketmq_ha.impl.client.admin import Admin
from rocketmq_ha.impl.client.decisions import SendStatus
from rocketmq_ha.impl.client.producer import Producer, SendResult
from rocketmq_ha.impl.clock import clock_ms, wall_clock_ms
from rocketmq_ha.impl.wire.message import Message

from .broker_kit import Server, our_name_server
from .conftest import Figures

ROUNDS: Final = 7
SECONDS: Final = 3.0  # before the kill, and from it on
WARM_UP_S: Final = 1.0
WINDOW: Final = 64
BODY: Final = b"x" * 1024
TOPIC: Final = "both"
QUEUES: Final = 4
POLL_MS: Final = 5
KILLED, OTHER = "a", "b"


class Load:
    """The producer. stored: when a SEND_OK came from the other master."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.stored: list[float] = []

    def send(self) -> None:
        message = Message(TOPIC, BODY, born_timestamp=wall_clock_ms())
        self._producer.send(message, self._on_result, clock_ms())

    def _on_result(self, result: SendResult) -> None:
        if result.status == SendStatus.SEND_OK and result.queue is not None and result.queue.broker_name == OTHER:
            self.stored.append(time.perf_counter())


@pytest.mark.benchmark(group="masters")
def test_a_killed_master_costs_the_other(figure: Figures, tmp_path: Path) -> None:
    rounds = [cost_and_pause(tmp_path / str(number)) for number in range(ROUNDS)]
    figure("one of two masters is killed: what the other loses of its sends", "%", [cost for cost, _ in rounds], 5)
    figure("one of two masters is killed: the longest pause of the other", "ms", [pause for _, pause in rounds], None)


def cost_and_pause(work: Path) -> tuple[float, float]:
    """One round. Returns: the cost in %, the pause in ms."""
    work.mkdir()
    with ExitStack() as stack:
        routes, name_server = our_name_server(work)
        stack.enter_context(routes)
        masters = {name: stack.enter_context(_master(work, name, name_server)) for name in (KILLED, OTHER)}
        session = stack.enter_context(client_session(NameServers((name_server,))))
        admin = Admin(session.client, session.name_servers)
        for master in masters.values():
            admin.create_topic(master.line("listening"), TOPIC, QUEUES, 6)
        producer = Producer(session.client, session.routes, "bench", message_ids(name_server), max_in_flight=WINDOW)
        load = Load(producer)

        def run(seconds: float) -> None:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                producer.turn(clock_ms())
                while not producer.is_full:
                    load.send()
                session.client.poll(POLL_MS)

        run(WARM_UP_S + SECONDS)
        masters[KILLED].close()
        killed = time.perf_counter()
        run(SECONDS)
        producer.end()
    before = sum(killed - SECONDS <= each < killed for each in load.stored)
    after = [each for each in load.stored if killed <= each < killed + SECONDS]
    assert before, "the master that stays has stored nothing before"
    times = [killed, *after, killed + SECONDS]
    pause_s = max(later - sooner for sooner, later in pairwise(times))
    return 100 * (1 - len(after) / before), 1000 * pause_s


def _master(work: Path, name: str, name_server: str) -> Server:
    words = ["broker", "--store", work / name, "--broker-name", name, "--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "rocketmq_ha.impl.cli", *map(str, words), "--namesrv", name_server]
    return Server(command, work / f"{name}.log", "ha_listening=")
