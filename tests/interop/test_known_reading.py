"""Quirks 43 to 46 of spec/violations.toml, reproduced on a real master and its slave: `make interop VIOLATIONS=1`.

The consumer of 46 is RocketMQ's. That of the others is a bare client: it asks the broker that a consumer would ask (HA-C-14,
HA-R-25).
"""

import itertools
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from known import compare
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

TOPIC: Final = "Reading"
GROUP: Final = "InteropReading"
LOST: Final = "Lost"  # of one queue; the slave lacks the end of it
GROUP_OF_LOST: Final = "InteropLost"
QUEUES: Final = 4
HOLD_MS: Final = 5_000  # a pull that is held is answered then, or up to 5 s later (HA-P-18)
AT_ONCE_S: Final = 3.0
ROUNDS_S: Final = 300.0  # a slave of 5.x asks once a minute, and learns of its master every half minute
SUSPEND, SUBSCRIPTION = 2, 4  # bits of sysFlag
READS: Final = {"slaveReadEnable": "true"}  # without it a slave of 5.x refuses pulls


class Asker:
    """A bare client of one broker, which may be killed and started: each question has its own connection."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"

    def ask(self, code: RequestCode, **fields: object) -> RemotingCommand:
        command = request(code, {name: str(value) for name, value in fields.items()})
        with closing(RemotingClient()) as client:
            return client.ask(self._address, command, round(PATIENCE_S * 1000))

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

    def committed(self, group: str = GROUP, topic: str = TOPIC) -> int:
        """-1 if the broker knows none."""
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0)
        return int(answer.ext_fields.get("offset", -1))


def test_reading(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """Commits at a slave, a pull from beyond it, and a topic that it has not been told of."""
    master_store, slave_store = tmp_path / "master", tmp_path / "slave"
    rocketmq.start_broker("master", master_store, "ASYNC_MASTER", **READS)
    rocketmq.start_broker("slave", slave_store, "SLAVE", **READS)
    master, slave = Asker(rocketmq.ports.master), Asker(rocketmq.ports.slave)
    rocketmq.servers.run("admin", "updateTopic", "-b", f"127.0.0.1:{rocketmq.ports.master}", "-t", LOST, "-r", "1", "-w", "1")
    assert rocketmq.send(TOPIC, 40) == rocketmq.send(LOST, 40) == {"SEND_OK": 40}
    end = master.max_offset(TOPIC)
    assert end > 4
    wait("the slave has the messages", lambda: slave.max_offset(TOPIC) == end)
    wait("the slave has the topics", lambda: slave.pull(TOPIC, 0) == slave.pull(LOST, 0) == 0, ROUNDS_S)
    found = {}

    master.commit(2)
    rocketmq.stop("master")
    beyond, at_end = slave.timed_pull(TOPIC, end + 1), slave.timed_pull(TOPIC, end)
    found[45] = f"from beyond the slave's queue {beyond}; from its end {at_end}"
    slave.commit(4)
    assert slave.committed() == 4
    rocketmq.start_broker("master", master_store, "ASYNC_MASTER", **READS)
    with suppress(AssertionError):  # the comparison says so
        wait("the slave has taken the master's offset", lambda: slave.committed() != 4, ROUNDS_S)
    found[43] = f"2 at the master, then 4 at the slave; the master is back: {master.committed()}, and {slave.committed()}"

    found[46] = dropped_messages(rocketmq, master, slave, slave_store)
    new_slave_store = tmp_path / "new-slave"
    rocketmq.start_broker("slave", new_slave_store, "SLAVE", **READS)
    found[44] = forgotten_topic(rocketmq, master, slave, new_slave_store)
    compare(results, rocketmq.release, found)


def dropped_messages(rocketmq: Rocketmq, master: Asker, slave: Asker, slave_store: Path) -> str:
    """A consumer has pulled all and consumed nothing. The master is killed, and a slave promoted that lacks the log's end."""

    def held() -> int:
        return int(rocketmq.servers.run("held", "waiting")[0])

    def consumed() -> set[int]:
        return {int(line.split("\t")[3]) for line in rocketmq.servers.run("consumed", "waiting")}

    wait("the slave has the messages", lambda: slave.max_offset(LOST) == 40)
    rocketmq.stop("slave")
    assert rocketmq.send(LOST, 20) == {"SEND_OK": 20}
    rocketmq.servers.run("consume", "waiting", "waiting", GROUP_OF_LOST, LOST, "*", "16")
    wait("the consumer has pulled all", lambda: held() == 60)
    rocketmq.kill("master")
    rocketmq.start_broker("master", slave_store, "ASYNC_MASTER", **READS)
    wait("the consumer has dropped what it had", lambda: held() != 60, ROUNDS_S)
    rocketmq.servers.run("release", "waiting")
    wait("the consumer has committed the end", lambda: master.committed(GROUP_OF_LOST, LOST) == 40, ROUNDS_S)
    assert rocketmq.send(LOST, 1) == {"SEND_OK": 1}
    wait("the consumer goes on behind the end", lambda: 40 in consumed(), ROUNDS_S)
    kept = len([offset for offset in consumed() if offset < 40])
    rocketmq.servers.run("leave", "waiting")
    return f"60 pulled, 40 of them in the new master's queue: {kept} of these consumed, and a commit of 40"


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
