"""Lag of a slave's tables behind its master's: from the answer to a change at the master until the slave knows it.

Name server, master and slave are processes on loopback. A round makes 1,000 changes, fifty a second: 100 new topics (17) and
900 offsets of consumers (15). The slave is asked for each change that it does not know yet every 10 ms, so a lag is right to
10 ms.
The same with 10,000 topics and 100,000 offsets in the tables; and what a master takes of a processor while nothing changes.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

from .broker_kit import Server, cpu_seconds, our_name_server
from .conftest import Figures

CHANGES: Final = 1_000
PER_SECOND: Final = 50
TOPIC_EVERY: Final = 10  # changes; the others are offsets. A master writes all its topics for each new one (HA-BT-3)
POLL_MS: Final = 10
ROUNDS: Final = 3
LARGE_TOPICS: Final = 10_000
LARGE_OFFSETS: Final = 100_000
IDLE_S: Final = 10.0
WAIT_MS: Final = 60_000


class Change(NamedTuple):
    """How a slave is asked for a change of its master, and which answer says that it knows it."""

    asked: RemotingCommand
    is_known: Callable[[RemotingCommand], bool]


class Pair(NamedTuple):
    """Master and slave. `client` asks both."""

    client: RemotingClient
    master: Server
    slave: Server

    @property
    def addresses(self) -> tuple[str, str]:
        return self.master.line("listening"), self.slave.line("listening")


@contextmanager
def running(work: Path, *, is_large: bool) -> Iterator[Pair]:
    """Start them; the slave has the master's tables when the context begins."""
    work.mkdir()
    if is_large:
        fill(work / "master" / "config")
    with ExitStack() as stack:
        routes, name_server = our_name_server(work)
        stack.enter_context(routes)
        servers = []
        for name, more in (("master", ()), ("slave", ("--role", "SLAVE", "--broker-id", "1"))):
            words = ["broker", "--store", work / name, "--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0"]
            command = [sys.executable, "-m", "rocketmq_ha.impl.cli", *map(str, [*words, "--namesrv", name_server, *more])]
            servers.append(stack.enter_context(Server(command, work / f"{name}.log", "ha_listening=")))
        client = RemotingClient()
        stack.callback(client.close)
        pair = Pair(client, *servers)
        settle(pair)
        yield pair


def fill(config: Path) -> None:
    """The files of a master that has many topics and offsets."""
    config.mkdir(parents=True)
    topics = {f"full-{number}": {"topicName": f"full-{number}"} for number in range(LARGE_TOPICS)}
    version = {"counter": LARGE_TOPICS, "timestamp": 1}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))
    offsets = {f"full-{number}@group": dict.fromkeys(range(8), number) for number in range(LARGE_OFFSETS // 8)}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


@pytest.mark.benchmark(group="metadata")
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_metadata_lag(is_large: bool, figure: Figures, tmp_path: Path) -> None:
    what = f" with {LARGE_TOPICS:,} topics and {LARGE_OFFSETS:,} offsets" if is_large else ""
    with running(tmp_path / "pair", is_large=is_large) as pair:
        rounds = [lags_ms(pair, str(number)) for number in range(ROUNDS)]
        idle = [busy(pair.master.pid) for _ in range(ROUNDS)]
    figure(f"metadata lag{what}, p50", "ms", [statistics.median(lags) for lags in rounds], None)
    figure(f"metadata lag{what}, p99", "ms", [statistics.quantiles(lags, n=100)[-1] for lags in rounds], 1_000)
    figure(f"metadata lag{what}, greatest", "ms", [max(lags) for lags in rounds], None)
    figure(f"processor of a master{what} while nothing changes", "%", idle, None)


def busy(pid: int) -> float:
    """The share of a processor that a process takes while nothing changes, percent."""
    before = cpu_seconds(pid)
    time.sleep(IDLE_S)
    return (cpu_seconds(pid) - before) / IDLE_S * 100


def settle(pair: Pair) -> None:
    """Wait until the slave knows a new topic, and so all that was there before."""
    change, made = topic_change("settled")
    answer = pair.client.ask(pair.addresses[0], change, WAIT_MS)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    deadline_ms = clock_ms() + WAIT_MS
    while not made.is_known(pair.client.ask(pair.addresses[1], made.asked, WAIT_MS)):
        assert clock_ms() < deadline_ms, "the slave has not taken its master's tables"
        time.sleep(POLL_MS / 1000)


def topic_change(topic: str) -> tuple[RemotingCommand, Change]:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    asked = request(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields), Change(asked, lambda answer: answer.code == 0)


def offset_change(group: str, queue_id: int, offset: int) -> tuple[RemotingCommand, Change]:
    fields = {"consumerGroup": group, "topic": "settled", "queueId": str(queue_id)}
    asked = request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    change = request(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": str(offset)})
    return change, Change(asked, lambda answer: int(answer.ext_fields.get("offset") or -1) >= offset)


def lags_ms(pair: Pair, name: str) -> list[float]:
    """Make the changes, and ask the slave. Returns: the lag of each change."""
    client, (master, slave) = pair.client, pair.addresses
    open_changes: dict[int, tuple[float, Change]] = {}
    lags: list[float] = []
    asked: set[int] = set()

    def on_made(number: int, change: Change, answer: RemotingCommand | RequestFailed) -> None:
        assert isinstance(answer, RemotingCommand) and answer.code == 0, answer
        open_changes[number] = time.perf_counter(), change

    def on_seen(number: int, answer: RemotingCommand | RequestFailed) -> None:
        assert isinstance(answer, RemotingCommand), answer
        asked.discard(number)
        made, change = open_changes[number]
        if change.is_known(answer):
            lags.append((time.perf_counter() - made) * 1000)
            del open_changes[number]

    began, made = time.perf_counter(), 0
    while len(lags) < CHANGES:
        while made < CHANGES and time.perf_counter() - began >= made / PER_SECOND:
            is_topic = made % TOPIC_EVERY == 0
            change, seen = topic_change(f"lag-{name}-{made}") if is_topic else offset_change(f"lag-{name}", made % 20, made + 1)
            client.invoke(master, change, clock_ms() + WAIT_MS, lambda answer, at=made, of=seen: on_made(at, of, answer))
            made += 1
        for number in open_changes.keys() - asked:
            asked.add(number)
            command = open_changes[number][1].asked
            client.invoke(slave, command, clock_ms() + WAIT_MS, lambda answer, at=number: on_seen(at, answer))
        until_ms = clock_ms() + POLL_MS
        while (left_ms := until_ms - clock_ms()) > 0:
            client.poll(left_ms)
        assert time.perf_counter() - began < WAIT_MS / 1000 + CHANGES / PER_SECOND, f"{len(lags)} of {made} changes are known"
    return lags
