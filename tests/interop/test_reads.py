"""Real consumers move to our slave and come back: when they are far behind, and when our master is killed.

HA-R-20 to HA-R-25, HA-R-57. The consumer's own poll of the routes, every 30 s, rules how soon it knows that a master is gone.
"""

import logging
import signal
import time
from collections.abc import Iterator

import pytest
from golden_cluster import COMMON_CONF
from links import await_same_end
from our_broker import OurBroker
from results import Results
from rocketmq import Rocketmq, wait
from servers import PATIENCE_S
from test_consumers import TOPIC, Clients

from kit.command_line import Process, Start
from kit.waiting import LONG_S
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import request

log = logging.getLogger(__name__)


class Pair:
    """Our master, which waits for our slave, and clients; the slave has what they have sent."""

    def __init__(self, rocketmq: Rocketmq, ours: OurBroker, start: Start, **of_both: str) -> None:
        self.ours, self._of_master = ours, {"brokerRole": "SYNC_MASTER", **of_both}
        ours.run(**self._of_master)
        self.store_of_slave, self.sent = ours.store.with_name("store-of-slave"), 0
        port = rocketmq.ports.slave
        conf = COMMON_CONF | of_both | {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": ours.namesrv}
        conf |= {"storePathRootDir": str(self.store_of_slave), "listenPort": str(port)}
        file = ours.store.with_name("slave.conf")
        file.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
        self.slave: Process = start("broker", "--config", file, "--min-free-space", 0, limit_s=LONG_S)
        self.slave_address = self.slave.line("listening")
        wait("our slave is registered", lambda: self.slave_address in ours.clusters())
        self.clients = Clients(rocketmq, ours)
        self.clients.make_topic()
        topics = self.store_of_slave / "config/topics.json"
        wait("the slave has the topic", lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text())
        self._await_slave()

    def _await_slave(self) -> None:
        """Wait until the slave counts at the master: it has to acknowledge a put first (HA-G-5)."""
        run = self.clients.run
        wait("a put is acknowledged by the slave", lambda: run("send", "Warm", "1", "100", "1", "1") == ["SEND_OK 1"])

    def send(self) -> list[str]:
        """Send in every way. Returns: the messages as lines, sorted; the slave has all of them."""
        sent = self.clients.send()
        self.sent += len(sent)
        wait("all of them are stored", lambda: len(self.clients.run("described", TOPIC)) == self.sent)  # oneway ones too
        await_same_end(self.store_of_slave, self.ours.store)
        return sent

    def kill_master(self) -> None:
        assert self.ours.stop(signal.SIGKILL) == -signal.SIGKILL

    def start_master(self) -> None:
        self.ours.run(**self._of_master)
        self._await_slave()

    def given_by_slave(self) -> int:
        return self.given_by(self.slave_address)

    def given_by(self, address: str) -> int:
        """How many messages a broker has given to consumers today, or since its start."""
        client = RemotingClient()
        try:
            answer = client.ask(address, request(28), round(PATIENCE_S * 1000))
        finally:
            client.close()
        found = answer.body.decode().split('"msgGetTotalTodayNow":"', 1)[1]
        return int(found.split('"', 1)[0])


@pytest.fixture
def stops(rocketmq: Rocketmq) -> Iterator[None]:
    """The live clients leave at the end of the test."""
    yield
    rocketmq.servers.run("leave")


@pytest.mark.usefixtures("stops")
def test_a_consumer_goes_on_at_our_slave_and_comes_back(
    rocketmq: Rocketmq, ours: OurBroker, start: Start, results: Results
) -> None:
    """What it has not consumed when the master is killed comes from the slave; when the master is back, from the master."""
    pair = Pair(rocketmq, ours, start)
    clients = pair.clients
    clients.consume("one", "push", "InteropReads")
    first = pair.send()
    results.check("from the master", True, clients.await_consumed(len(first), "one") == first)
    results.check("the slave has given nothing", 0, pair.given_by_slave())
    clients.run("leave", "one")
    second = pair.send()
    pair.kill_master()
    killed = time.monotonic()
    clients.consume("two", "push", "InteropReads")
    wait("the rest is consumed", lambda: set(second) <= set(clients.lines("two")))
    log.info("the rest came %.1f s after the kill", time.monotonic() - killed)
    wait("the slave says that it has given it", lambda: pair.given_by_slave() >= len(second))
    pair.start_master()
    third = pair.send()
    wait("what is sent then is consumed", lambda: set(third) <= set(clients.lines("two")))
    later: list[str] = []

    def comes_from_the_master() -> bool:
        """It comes back when it has asked for the route. Messages that are sent are read back once by the test itself."""
        before = pair.given_by(ours.address)
        later.extend(sent := pair.send())
        wait("and what is sent later", lambda: set(sent) <= set(clients.lines("two")))
        return pair.given_by(ours.address) >= before + pair.sent + len(sent)

    wait("the master gives it", comes_from_the_master)
    results.check("all of it, as sent", True, set(clients.lines("two")) <= set(first + second + third + later))


@pytest.mark.usefixtures("stops")
def test_a_live_consumer_goes_on_at_our_slave(rocketmq: Rocketmq, ours: OurBroker, start: Start, results: Results) -> None:
    """It is there when the master is killed, and when it is back. What it has consumed by then is left to chance."""
    pair = Pair(rocketmq, ours, start)
    clients = pair.clients
    clients.consume("one", "push", "InteropLive")
    first = pair.send()
    clients.await_consumed(len(first), "one")
    second = pair.send()
    pair.kill_master()
    killed = time.monotonic()
    wait("the rest is consumed", lambda: set(second) <= set(clients.lines("one")))
    log.info("the rest came %.1f s after the kill", time.monotonic() - killed)
    pair.start_master()
    third = pair.send()
    wait("what is sent then is consumed", lambda: set(third) <= set(clients.lines("one")))
    results.check("all of it, as sent", True, set(clients.lines("one")) == set(first + second + third))


@pytest.mark.usefixtures("stops")
def test_a_consumer_that_is_far_behind_reads_from_our_slave(
    rocketmq: Rocketmq, ours: OurBroker, start: Start, results: Results
) -> None:
    """With a bound of no memory each message is far behind: the master sends the consumer away until it has caught up."""
    pair = Pair(rocketmq, ours, start, slaveReadEnable="true", accessMessageInMemoryMaxRatio="0")
    clients = pair.clients
    sent = pair.send()
    clients.consume("one", "push", "InteropBehind")
    results.check("each message once", True, clients.await_consumed(len(sent), "one") == sent)
    wait("the slave says that it has given some", lambda: pair.given_by_slave() > 0)
    more = pair.send()
    results.check("and what comes later", True, clients.await_consumed(len(sent + more), "one") == sorted(sent + more))
