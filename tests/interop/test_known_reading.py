"""Quirks 43, 44 and 45 of spec/violations.toml, reproduced on a real master and its slave: `make interop VIOLATIONS=1`.

The consumer is a bare client: it asks the broker that a consumer would ask (HA-C-14, HA-R-25).
"""

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from known import compare
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

TOPIC: Final = "Reading"
GROUP: Final = "InteropReading"
QUEUES: Final = 4
HOLD_MS: Final = 5_000  # a pull that is held is answered then, or up to 5 s later (HA-P-18)
AT_ONCE_S: Final = 3.0
ROUNDS_S: Final = 300.0  # a slave of 5.x asks once a minute, and learns of its master every half minute
SUSPEND, SUBSCRIPTION = 2, 4  # bits of sysFlag
READS: Final = {"slaveReadEnable": "true"}  # without it a slave of 5.x refuses pulls


class Asker:
    """A bare client of one broker."""

    def __init__(self, client: RemotingClient, port: int) -> None:
        self._client, self._address = client, f"127.0.0.1:{port}"

    def ask(self, code: RequestCode, **fields: object) -> RemotingCommand:
        command = request(code, {name: str(value) for name, value in fields.items()})
        return self._client.ask(self._address, command, round(PATIENCE_S * 1000))

    def pull(self, topic: str, queue_offset: int, queue_id: int = 0) -> int:
        """The code of the answer."""
        more = {"maxMsgNums": 1, "sysFlag": SUSPEND | SUBSCRIPTION, "commitOffset": 0, "subVersion": 0, "subscription": "*"}
        answer = self.ask(
            RequestCode.PULL_MESSAGE,
            consumerGroup=GROUP,
            topic=topic,
            queueId=queue_id,
            queueOffset=queue_offset,
            suspendTimeoutMillis=HOLD_MS,
            expressionType="TAG",
            **more,
        )
        return answer.code

    def timed_pull(self, topic: str, queue_offset: int) -> str:
        begin = time.monotonic()
        code = self.pull(topic, queue_offset)
        return f"{code} {'at once' if time.monotonic() - begin < AT_ONCE_S else 'after the hold'}"

    def max_offset(self, topic: str, queue_id: int = 0) -> int:
        answer = self.ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        return int(answer.ext_fields["offset"])

    def commit(self, offset: int) -> None:
        self.pull(TOPIC, 0)  # which makes the group known to this broker
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
        assert self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0

    def committed(self) -> int:
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0)
        return int(answer.ext_fields["offset"])


@pytest.fixture
def client() -> Iterator[RemotingClient]:
    found = RemotingClient()
    yield found
    found.close()


def test_reading(rocketmq: Rocketmq, client: RemotingClient, tmp_path: Path, results: Results) -> None:
    """Commits at a slave, a pull from beyond it, and a topic that it has not been told of."""
    master_store, slave_store = tmp_path / "master", tmp_path / "slave"
    rocketmq.start_broker("master", master_store, "ASYNC_MASTER", **READS)
    rocketmq.start_broker("slave", slave_store, "SLAVE", **READS)
    master, slave = Asker(client, rocketmq.ports.master), Asker(client, rocketmq.ports.slave)
    assert rocketmq.send(TOPIC, 40) == {"SEND_OK": 40}
    end = master.max_offset(TOPIC)
    assert end > 4
    wait("the slave has the messages", lambda: slave.max_offset(TOPIC) == end)
    wait("the slave has the topic", lambda: slave.pull(TOPIC, 0) == 0, ROUNDS_S)
    found = {}

    master.commit(2)
    rocketmq.stop("master")
    beyond, at_end = slave.timed_pull(TOPIC, end + 1), slave.timed_pull(TOPIC, end)
    found[45] = f"from beyond the slave's queue {beyond}; from its end {at_end}"
    slave.commit(4)
    assert slave.committed() == 4
    rocketmq.start_broker("master", master_store, "ASYNC_MASTER", **READS)
    with contextlib.suppress(AssertionError):  # the comparison says so
        wait("the slave has taken the master's offset", lambda: slave.committed() != 4, ROUNDS_S)
    found[43] = f"2 at the master, then 4 at the slave; the master is back: {master.committed()}, and {slave.committed()}"

    found[44] = forgotten_topic(rocketmq, master, slave, slave_store)
    compare(results, rocketmq.release, found)


def forgotten_topic(rocketmq: Rocketmq, master: Asker, slave: Asker, slave_store: Path) -> str:
    """A message of a new topic comes to the slave before the topic does; then the master is killed, the slave promoted."""
    for number in itertools.count():
        topic = f"Fresh{number}"
        assert rocketmq.send(topic, 1) == {"SEND_OK": 1}
        [queue_id] = [each for each in range(QUEUES) if master.max_offset(topic, each)]
        wait("the slave has the message", lambda t=topic, q=queue_id: slave.max_offset(t, q) == 1)  # type: ignore[misc]
        code = slave.pull(topic, 0, queue_id)
        if code != 0 or number == 9:  # else a round has come between
            break
    rocketmq.kill("master")
    told = f"at the slave {slave.max_offset(topic, queue_id)} in its queue, a pull {code}"
    rocketmq.stop("slave")
    rocketmq.start_broker("master", slave_store, "ASYNC_MASTER", **READS)
    return f"{told}; promoted {master.max_offset(topic, queue_id)} in its queue, a pull {master.pull(topic, 0, queue_id)}"
