"""Real producers, consumers and mqadmin use our broker and name server; a real broker goes on with its store, then ours again.

HA-SE-1, HA-SE-9, HA-SE-11, HA-SE-21, HA-SE-30 to HA-SE-34, HA-R-15, HA-R-18, HA-BT-19.
"""

import signal
from pathlib import Path

from golden_cluster import BROKER_NAME, COMMON_CONF
from our_broker import OurBroker
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S

from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.wire.message import decode

TOPIC = "BrokerInterop"
OF_EACH_WAY = 60
WAYS = 5  # sync, async, oneway, to a queue, batch
CLUSTER = COMMON_CONF["brokerClusterName"]


def test_what_real_producers_send_real_consumers_read(ours: OurBroker, rocketmq: Rocketmq, results: Results) -> None:
    """In every way of sending; then a real broker opens the store, goes on, and leaves it to ours again."""
    run = rocketmq.servers.run
    ours.run()
    sent = run("ways", TOPIC, str(OF_EACH_WAY), namesrv=ours.namesrv)
    statuses = {line.split("\t", 1)[0] for line in sent}
    results.check("how the sends end", {"SEND_OK", "SENT"}, statuses)
    results.check("messages sent", WAYS * OF_EACH_WAY, len(sent))
    expected = sorted(line.split("\t", 1)[1] for line in sent)

    def read(namesrv: str = "") -> list[str]:
        """All messages, in order. A broker dispatches a message after its send has been answered."""
        wait("all are dispatched", lambda: len(run("described", TOPIC, namesrv=namesrv)) >= len(expected))
        return sorted(run("described", TOPIC, namesrv=namesrv))

    results.check("read as sent", True, read(ours.namesrv) == expected)

    def admin(*words: str) -> str:
        return "\n".join(run("admin", *words, namesrv=ours.namesrv))

    results.check("clusterList", True, ours.address in admin("clusterList"))
    results.check("brokerStatus", True, "V4_9_8" in admin("brokerStatus", "-b", ours.address))
    results.check("topicStatus", True, BROKER_NAME in admin("topicStatus", "-t", TOPIC))
    results.check("topicRoute", True, ours.address in admin("topicRoute", "-t", TOPIC))
    results.check(
        "updateTopic", True, "success" in admin("updateTopic", "-b", ours.address, "-t", "Made", "-r", "3", "-w", "3")
    )
    results.check("it ends well", 0, ours.stop())
    results.check("it is off the routes", False, ours.address in ours.clusters())

    rocketmq.start_broker("master", ours.store, "ASYNC_MASTER")
    results.check("read from a real broker", True, read() == expected)
    results.check("the topic that an admin made", True, "Made" in "\n".join(run("admin", "topicList")).split())
    more = run("ways", TOPIC, "20")
    expected = sorted(expected + [line.split("\t", 1)[1] for line in more])
    rocketmq.stop("master")

    ours.run()
    results.check("read from ours again", True, read(ours.namesrv) == expected)
    results.check("a kill", -signal.SIGKILL, ours.stop(signal.SIGKILL))
    ours.run()
    results.check("read after a kill", True, read(ours.namesrv) == expected)


def test_a_real_slave_follows_our_broker(ours: OurBroker, rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """It finds ours by the name server, acknowledges what producers wait for, and takes our tables from the VIP port."""
    ours.run(brokerRole="SYNC_MASTER", namesrvAddr=rocketmq.servers.namesrv)
    slave = tmp_path / "slave"
    rocketmq.start_broker("slave", slave, "SLAVE")
    run = rocketmq.servers.run
    wait("a put is acknowledged by the slave", lambda: run("send", TOPIC, "1", "100", "1", "1") == ["SEND_OK 1"])
    results.check("sends that wait for the slave", ["SEND_OK 200"], run("send", TOPIC, "200", "1000", "2", "4"))
    topics = slave / "config" / "topics.json"
    wait(
        "the slave has our topics", lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text()
    )  # 5.3.3 asks after a minute


def test_our_slave_follows_a_real_broker(ours: OurBroker, rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """A producer's puts wait for it, and it gives consumers what its master has, with the master's topics."""
    del tmp_path
    rocketmq.start_broker("master", rocketmq.work / "master", "SYNC_MASTER")
    port = str(rocketmq.ports.slave)
    ours.run(brokerRole="SLAVE", brokerId="1", listenPort=port, namesrvAddr=rocketmq.servers.namesrv)
    run = rocketmq.servers.run
    wait("a put is acknowledged by the slave", lambda: run("send", TOPIC, "1", "100", "1", "1") == ["SEND_OK 1"])
    results.check("sends that wait for the slave", ["SEND_OK 200"], run("send", TOPIC, "200", "1000", "2", "4"))
    read = sorted((queue_id, queue_offset) for _, queue_id, queue_offset, *_ in rocketmq.read_all(TOPIC, count=201))
    wait("our slave has all of them", lambda: pulled(f"127.0.0.1:{port}") == read)
    results.check("read from our slave", len(read), len(pulled(f"127.0.0.1:{port}")))


def pulled(address: str) -> list[tuple[int, int]]:
    """Queue id and queue offset of all messages of the topic that a broker gives; none while it does not know the topic."""
    client, found = RemotingClient(), []
    usual = {"consumerGroup": "InteropPulls", "topic": TOPIC, "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"}
    rest = {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    try:
        for queue_id in range(16):
            queue_offset = 0
            while True:
                fields = {**usual, **rest, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
                answer = client.ask(address, request(11, fields), round(PATIENCE_S * 1000))
                if answer.code != 0:
                    break
                left = answer.body
                while left:
                    size = int.from_bytes(left[:4])
                    found.append((queue_id, decode(left[:size]).queue_offset))
                    left = left[size:]
                queue_offset = int(answer.ext_fields["nextBeginOffset"])
    finally:
        client.close()
    return sorted(found)
