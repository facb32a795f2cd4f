"""Quirk 49 of spec/violations.toml, reproduced on a real broker: `make interop VIOLATIONS=1`.

The consumers are a bare client, which sends the commits (15) of all queues of a group before it reads an answer. A broker runs
them in up to 32 threads (`consumerManageThreadPoolNums`).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from known import compare
from results import Results
from rocketmq import Rocketmq
from servers import PATIENCE_S

from rocketmq_ha.impl.broker.consumer_offsets import read_table
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

TOPIC: Final = "Commits"
QUEUES: Final = 8
GROUPS: Final = 1_000  # of a round
MOST_GROUPS: Final = 20_000  # one of some 500 lost an offset on two processors
OFFSET: Final = 7
WAIT_MS: Final = round(PATIENCE_S * 1000)
SUBSCRIPTION: Final = 4  # a bit of sysFlag


class Committer:
    """A bare client of one broker, with one connection."""

    def __init__(self, client: RemotingClient, port: int) -> None:
        self._client, self._address = client, f"127.0.0.1:{port}"

    def ask(self, *commands: RemotingCommand) -> list[RemotingCommand]:
        """Send all requests, then wait for all answers."""
        told: list[RemotingCommand | RequestFailed] = []
        deadline_ms = clock_ms() + WAIT_MS
        for command in commands:
            self._client.invoke(self._address, command, deadline_ms, told.append)
        while len(told) < len(commands):
            self._client.poll(WAIT_MS)
        answers = [answer for answer in told if isinstance(answer, RemotingCommand)]
        assert len(answers) == len(told), told
        return answers

    def make_known(self, group: str) -> None:
        """Pull, which makes a group known to a broker: 5.x refuses the commits of others (26)."""
        fields = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "commitOffset": 0}
        fields |= {"sysFlag": SUBSCRIPTION, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
        self.ask(request(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()}))

    def commit(self, group: str, queue_ids: Sequence[int]) -> None:
        """Commit some queues at the same moment. All commits succeed."""
        fields = {"consumerGroup": group, "topic": TOPIC, "commitOffset": str(OFFSET)}
        asked = [request(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"queueId": str(each)}) for each in queue_ids]
        assert {answer.code for answer in self.ask(*asked)} == {ResponseCode.SUCCESS}

    def lacking(self, groups: Sequence[str]) -> int:
        """How many of the groups lack the offset of a queue."""
        [answer] = self.ask(request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        table = read_table(answer.body)
        expected = dict.fromkeys(range(QUEUES), OFFSET)
        return sum(table.get(f"{TOPIC}@{group}") != expected for group in groups)


@pytest.fixture
def client() -> Iterator[RemotingClient]:
    with closing(RemotingClient()) as found:
        yield found


def test_first_commits_of_a_group(rocketmq: Rocketmq, client: RemotingClient, tmp_path: Path, results: Results) -> None:
    """The first commits of groups: of each at the same moment, until one is lost; one after the other; and at once again.

    The third time every group has a table already.
    """
    rocketmq.start_broker("master", tmp_path / "master", "ASYNC_MASTER")
    address = f"127.0.0.1:{rocketmq.ports.master}"
    rocketmq.servers.run("admin", "updateTopic", "-b", address, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES))
    committer = Committer(client, rocketmq.ports.master)
    at_once: list[str] = []
    while not (first := committer.lacking(at_once)) and len(at_once) < MOST_GROUPS:
        new = [f"at-once-{len(at_once) + number}" for number in range(GROUPS)]
        for group in new:
            committer.make_known(group)
        for group in new:
            committer.commit(group, range(QUEUES))
        at_once += new
    by_turns = [f"by-turns-{number}" for number in range(GROUPS)]
    for group in by_turns:
        committer.make_known(group)
    for group in by_turns:
        for queue_id in range(QUEUES):
            committer.commit(group, [queue_id])
    turns = committer.lacking(by_turns)
    for group in at_once:
        committer.commit(group, range(QUEUES))
    again = committer.lacking(at_once)
    print(f"{rocketmq.release}: at once {first} of {len(at_once)} groups lack queues; "  # noqa: T201
          f"by turns {turns} of {GROUPS}; at once again {again} of {len(at_once)}")  # fmt: skip
    compare(results, rocketmq.release, {49: f"groups that lack queues: at once {_some(first)}, by turns {_some(turns)}, "
                                            f"at once again {_some(again)}"})  # fmt: skip


def _some(count: int) -> str:
    """The number depends on the machine."""
    return "some" if count else "none"
